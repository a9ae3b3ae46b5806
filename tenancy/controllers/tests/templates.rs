//! Templates on a Freehold project and on a real kube-apiserver.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "templates/charts.rs"]
mod charts;
mod common;

use common::{Api, PATIENCE, Running, apis, freehold};
use freehold_tenancy_controllers::template::{HelmOptions, TemplateOptions, start_templates_with};
use freehold_tests_harness::until;
use std::path::PathBuf;

const REASON: &str = ".status.conditions[?(@.type==\"Ready\")].reason";

/// A namespace of the group, with an account that may do a little.
fn namespace(name: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{env: dev, tenancy.freehold.dev/tenant: acme}}}}}}"
    )
}

/// An account that may write ConfigMaps and Secrets everywhere, and read Secrets in `shared`.
const ACCOUNT: &str = r"
{apiVersion: v1, kind: Namespace, metadata: {name: shared}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: writer, namespace: shared}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: writer}
rules:
- {apiGroups: [''], resources: [configmaps, secrets], verbs: [get, create, patch, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: writer}
subjects: [{kind: ServiceAccount, name: writer, namespace: shared}]
";

fn template(size: &str) -> String {
    format!(
        r#"
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Template
metadata: {{name: base}}
spec:
  parameters:
    type: object
    properties:
      color: {{type: string, default: blue}}
  manifests:
  - {{apiVersion: v1, kind: ConfigMap, metadata: {{name: settings}}, data: {{color: "${{parameters.color}}", tenant: "${{tenant.name}}", size: "{size}"}}}}
  - {{apiVersion: v1, kind: Secret, metadata: {{name: token}}, stringData: {{value: "${{namespace.name}}"}}}}
"#
    )
}

fn group(more: &str) -> String {
    format!(
        "{{apiVersion: tenancy.freehold.dev/v1alpha1, kind: TemplateGroupInstance, metadata: {{name: base}}, spec: {{template: base, target: {{selector: {{matchLabels: {{env: dev}}}}}}, serviceAccount: {{namespace: shared, name: writer}}{more}}}}}"
    )
}

fn options() -> TemplateOptions {
    let tools = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin/helm");
    let program = std::env::var_os("FREEHOLD_TEST_HELM").map_or(tools, PathBuf::from);
    TemplateOptions {
        trust_creators: false,
        helm: HelmOptions { program, sources: vec!["http://127.0.0.1:".into()] },
    }
}

fn start(api: &Api) -> Running {
    Running::start(api, |scope| start_templates_with(scope, options()))
}

fn value(api: &Api, namespace: &str, key: &str) -> String {
    api.field(namespace, "configmap/settings", &format!(".data.{key}"))
}

#[test]
fn a_template_reaches_all_namespaces_of_a_selector_as_they_come_and_go() {
    for api in apis() {
        api.apply(&[ACCOUNT, &namespace("a"), &namespace("b")].join("\n---\n"));
        api.apply(&template("1"));
        let controllers = start(&api);
        api.apply(&group(", parameters: {color: red}"));
        for name in ["a", "b"] {
            api.wait_field(name, "templateinstance/base", REASON, "Applied");
            assert_eq!(
                (value(&api, name, "color"), value(&api, name, "tenant")),
                ("red".into(), "acme".into())
            );
        }
        api.wait_field("", "templategroupinstance/base", REASON, "Applied");
        assert_eq!(api.field("a", "secret/token", ".data.value"), "YQ==");
        // One comes.
        api.apply(&namespace("c"));
        api.wait_field("c", "configmap/settings", ".data.color", "red");
        // Drift is repaired, also deletion.
        api.kubectl.ok(&[
            "patch",
            "configmap",
            "settings",
            "-n",
            "a",
            "--type=merge",
            "-p",
            "{\"data\": {\"color\": \"green\", \"own\": \"x\"}}",
        ]);
        api.wait_field("a", "configmap/settings", ".data.color", "red");
        assert_eq!(value(&api, "a", "own"), "x", "fields of others stay");
        api.kubectl.ok(&["delete", "secret", "token", "-n", "a"]);
        api.wait_field("a", "secret/token", ".data.value", "YQ==");
        // A new revision, and a second start that writes nothing.
        api.apply(&template("2"));
        for name in ["a", "b", "c"] {
            api.wait_field(name, "configmap/settings", ".data.size", "2");
            api.wait_field(name, "templateinstance/base", ".status.revision", "2");
        }
        api.wait_field("", "templategroupinstance/base", ".status.ready", "3");
        drop(controllers);
        let versions = |kinds: &str| {
            api.kubectl.ok(&["get", kinds, "-A", "-o", "jsonpath={.items[*].metadata.resourceVersion}"])
        };
        let kinds = "configmaps,secrets,templates,templaterevisions,templateinstances,templategroupinstances";
        let before = versions(kinds);
        let controllers = start(&api);
        std::thread::sleep(std::time::Duration::from_secs(3));
        assert_eq!(versions(kinds), before, "{}: the second run writes nothing", api.name);
        // Back to the first revision, and one namespace goes.
        api.apply(&group(", parameters: {color: red}, revision: 1"));
        api.wait_field("a", "configmap/settings", ".data.size", "1");
        api.kubectl.ok(&["label", "namespace", "b", "env-"]);
        until("b has no instance", PATIENCE, || {
            (!api.kubectl.run(&["get", "templateinstance", "base", "-n", "b"]).success).then_some(())
        });
        drop(controllers);
    }
}

#[test]
fn the_rights_of_the_account_decide_and_not_those_of_the_controller() {
    let api = freehold();
    api.apply(&[ACCOUNT, &namespace("a")].join("\n---\n"));
    api.apply(&template("1"));
    let _controllers = start(&api);
    // The namespace's own account may nothing.
    api.apply("{apiVersion: tenancy.freehold.dev/v1alpha1, kind: TemplateInstance, metadata: {name: mine, namespace: a}, spec: {template: base}}");
    api.wait_field("a", "templateinstance/mine", REASON, "Forbidden");
    assert!(!api.kubectl.run(&["get", "configmap", "settings", "-n", "a"]).success);
    api.kubectl.ok(&[
        "create",
        "rolebinding",
        "edit",
        "-n",
        "a",
        "--clusterrole=edit",
        "--serviceaccount=a:default",
    ]);
    // A claim to be somebody else is not believed.
    api.kubectl.ok(&[
        "annotate",
        "templateinstance",
        "mine",
        "-n",
        "a",
        "tenancy.freehold.dev/created-by={\"username\": \"admin\", \"groups\": [\"system:masters\"]}",
    ]);
    api.kubectl.ok(&[
        "patch",
        "templateinstance",
        "mine",
        "-n",
        "a",
        "--type=merge",
        "-p",
        "{\"spec\": {\"parameters\": {\"color\": \"red\"}}}",
    ]);
    api.wait_field("a", "templateinstance/mine", REASON, "Applied");
    api.wait_field("a", "configmap/settings", ".data.color", "red");
    // A group acts as its account, which may not write Roles.
    api.apply(r#"
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Template
metadata: {name: roles}
spec:
  manifests:
  - {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: evil}, rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]}
"#);
    api.apply(&group("").replace("name: base}", "name: roles}").replace("template: base", "template: roles"));
    api.wait_field("a", "templateinstance/roles", REASON, "Forbidden");
    assert!(!api.kubectl.run(&["get", "clusterrole", "evil"]).success);
    // A member changes the group's instance: it is what the group says.
    api.kubectl.ok(&[
        "patch",
        "templateinstance",
        "roles",
        "-n",
        "a",
        "--type=merge",
        "-p",
        "{\"spec\": {\"template\": \"base\"}}",
    ]);
    api.wait_field("a", "templateinstance/roles", ".spec.template", "roles");
}

#[test]
fn bad_parameters_objects_and_names_that_are_taken_are_conditions() {
    let api = freehold();
    api.apply(&[ACCOUNT, &namespace("a")].join("\n---\n"));
    api.apply(&template("1"));
    api.kubectl.ok(&[
        "create",
        "rolebinding",
        "edit",
        "-n",
        "a",
        "--clusterrole=edit",
        "--serviceaccount=a:default",
    ]);
    api.apply(r#"
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Template
metadata: {name: odd}
spec:
  parameters: {type: object, properties: {namespace: {type: string}, replicas: {type: string}}}
  manifests:
  - {apiVersion: v1, kind: ConfigMap, metadata: {name: odd, namespace: "${parameters.namespace}"}, data: {a: "${parameters.replicas}"}}
"#);
    let _controllers = start(&api);
    let instance = |name: &str, template: &str, more: &str| {
        api.apply(&format!("{{apiVersion: tenancy.freehold.dev/v1alpha1, kind: TemplateInstance, metadata: {{name: {name}, namespace: a}}, spec: {{template: {template}{more}}}}}"));
    };
    instance("nothing", "none", "");
    instance("unknown", "base", ", parameters: {colour: red}");
    instance("typed", "base", ", parameters: {color: 3}");
    instance("foreign", "odd", ", parameters: {namespace: kube-system, replicas: '1'}");
    instance("injected", "odd", ", parameters: {namespace: a, replicas: \"x\\nkind: Pod\\n---\\n\"}");
    for (name, reason) in [
        ("nothing", "TemplateNotFound"),
        ("unknown", "ParametersInvalid"),
        ("typed", "ParametersInvalid"),
        ("foreign", "ForeignNamespace"),
        ("injected", "Applied"),
    ] {
        api.wait_field("a", &format!("templateinstance/{name}"), REASON, reason);
    }
    assert_eq!(api.field("a", "configmap/odd", ".data.a"), "x\nkind: Pod\n---\n");
    too_much_is_refused(&api);
    // A name that somebody else has.
    api.kubectl.ok(&["create", "configmap", "settings", "-n", "a", "--from-literal=mine=1"]);
    instance("taken", "base", "");
    api.wait_field("a", "templateinstance/taken", REASON, "Exists");
    assert_eq!(value(&api, "a", "mine"), "1");
    instance("taken", "base", ", force: true");
    api.wait_field("a", "templateinstance/taken", REASON, "Applied");
    assert_eq!((value(&api, "a", "mine"), value(&api, "a", "color")), ("1".into(), "blue".into()));
    assert_eq!(
        api.field("a", "configmap/settings", ".metadata.ownerReferences"),
        "",
        "what was there before outlives the instance"
    );
}

/// Some kilobytes of parameters become more than 10 MB of objects.
fn too_much_is_refused(api: &Api) {
    let manifest = |at: usize| {
        format!(
            "  - {{apiVersion: v1, kind: ConfigMap, metadata: {{name: big{at}}}, data: {{a: \"${{parameters.text}}\"}}}}\n"
        )
    };
    let manifests: String = (0..60).map(manifest).collect();
    api.apply(&format!(
        "apiVersion: tenancy.freehold.dev/v1alpha1\nkind: Template\nmetadata: {{name: big}}\nspec:\n  \
         parameters: {{type: object, properties: {{text: {{type: string}}}}}}\n  manifests:\n{manifests}"
    ));
    let text = "x".repeat(200 << 10);
    let instance = format!(
        "{{apiVersion: tenancy.freehold.dev/v1alpha1, kind: TemplateInstance, metadata: {{name: big, namespace: a}}, \
         spec: {{template: big, parameters: {{text: {text}}}}}}}"
    );
    api.kubectl.run_with_input(&["create", "-f", "-"], &format!("---\n{instance}")).expect_ok();
    api.wait_field("a", "templateinstance/big", REASON, "TooLarge");
    assert!(!api.kubectl.run(&["get", "configmap", "big0", "-n", "a"]).success, "nothing is written of it");
}

#[test]
fn a_dry_run_tells_what_would_change_and_writes_nothing() {
    let api = freehold();
    api.apply(&[ACCOUNT, &namespace("a")].join("\n---\n"));
    api.apply(&template("1"));
    let _controllers = start(&api);
    api.apply(&group(", dryRun: true"));
    api.wait_field("a", "templateinstance/base", REASON, "DryRun");
    assert_eq!(api.field("a", "templateinstance/base", ".status.diff[*].operation"), "Create Create");
    assert!(!api.kubectl.run(&["get", "configmap", "settings", "-n", "a"]).success);
    api.apply(&group(", dryRun: false"));
    api.wait_field("a", "templateinstance/base", REASON, "Applied");
    api.apply(&template("2"));
    api.wait_field("a", "configmap/settings", ".data.size", "2");
    api.apply(&group(", dryRun: true, parameters: {color: red}"));
    api.wait_field("a", "templateinstance/base", ".status.diff[0].fields[0]", ".data.color");
    assert_eq!(value(&api, "a", "color"), "blue");
}

#[test]
fn a_rollout_halts_when_a_wave_fails() {
    let api = freehold();
    api.apply(&[ACCOUNT, &namespace("a"), &namespace("b"), &namespace("c")].join("\n---\n"));
    api.apply(&template("1"));
    let _controllers = start(&api);
    let waves = ", rollout: {waves: ['1', '2']}";
    api.apply(&group(waves));
    api.wait_field("", "templategroupinstance/base", ".status.ready", "3");
    // A revision that cannot be applied: the server refuses it.
    api.apply(&template("2").replace("name: settings", "name: Settings_2"));
    api.wait_field(
        "",
        "templategroupinstance/base",
        ".status.conditions[?(@.type==\"Halted\")].status",
        "True",
    );
    assert_eq!(api.field("", "templategroupinstance/base", ".status.updated"), "1");
    assert_eq!(value(&api, "c", "size"), "1", "later waves keep what they have");
    api.apply(&template("3"));
    api.wait_field("", "templategroupinstance/base", REASON, "Applied");
    for name in ["a", "b", "c"] {
        assert_eq!(value(&api, name, "size"), "3");
    }
}

#[test]
fn secrets_are_copied_with_the_rights_of_the_account() {
    let api = freehold();
    api.apply(&[ACCOUNT, &namespace("a")].join("\n---\n"));
    api.kubectl.ok(&["create", "secret", "generic", "pull", "-n", "shared", "--from-literal=key=v1"]);
    api.apply(
        r#"
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Template
metadata: {name: base}
spec:
  copies: [{kind: Secret, namespace: shared, name: pull, as: "${tenant.name}-pull"}]
"#,
    );
    let _controllers = start(&api);
    api.apply(&group(""));
    api.wait_field("a", "secret/acme-pull", ".data.key", "djE=");
    // The namespace's own account may not read it.
    api.apply("{apiVersion: tenancy.freehold.dev/v1alpha1, kind: TemplateInstance, metadata: {name: mine, namespace: a}, spec: {template: base}}");
    api.wait_field("a", "templateinstance/mine", REASON, "Forbidden");
}

/// An instance may be named as the label of another namespace's cluster-scoped objects is.
#[test]
fn an_instance_deletes_no_object_of_another_namespace() {
    let api = freehold();
    let role = "apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole";
    let label = "tenancy.freehold.dev/template-instance: a.web";
    api.apply(&format!("{{{role}, metadata: {{name: reader, labels: {{{label}}}}}, rules: []}}"));
    api.apply(&[namespace("a"), namespace("b")].join("\n---\n"));
    api.apply(&format!(
        "{{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Template, metadata: {{name: base}}, \
         spec: {{manifests: [{{{role}, metadata: {{name: reader}}, rules: []}}]}}}}"
    ));
    let _controllers = start(&api);
    let instance = "apiVersion: tenancy.freehold.dev/v1alpha1, kind: TemplateInstance";
    api.apply(&format!("{{{instance}, metadata: {{name: a.web, namespace: b}}, spec: {{template: base}}}}"));
    api.wait_field("b", "templateinstance/a.web", ".status.objects[0].name", "reader");
    api.kubectl.ok(&["delete", "templateinstance", "a.web", "-n", "b", "--timeout=60s"]);
    assert!(api.kubectl.run(&["get", "clusterrole", "reader"]).success, "it is the other instance's");
}

#[test]
fn a_chart_is_rendered_by_helm() {
    let program = options().helm.program;
    if !program.is_file() {
        eprintln!("left out: there is no helm; `tools/get helm` builds it");
        return;
    }
    let api = freehold();
    api.apply(&[ACCOUNT, &namespace("a")].join("\n---\n"));
    api.apply(
        r#"
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Template
metadata: {name: base}
spec:
  parameters: {type: object, properties: {color: {type: string, default: blue}}}
  helm:
    releaseName: web
    values: {color: "${parameters.color}"}
    files:
      Chart.yaml: "apiVersion: v2\nname: demo\nversion: 1.0.0\n"
      values.yaml: "color: none\n"
      templates/settings.yaml: |
        apiVersion: v1
        kind: ConfigMap
        metadata: {name: {{ .Release.Name }}-settings, namespace: {{ .Release.Namespace }}}
        data: {color: {{ .Values.color | quote }}, mode: "0644"}
"#,
    );
    let _controllers = start(&api);
    api.apply(&group(", parameters: {color: \"x: y\\nz\"}"));
    api.wait_field("a", "configmap/web-settings", ".data.color", "x: y\nz");
    api.kubectl.ok(&[
        "patch",
        "template",
        "base",
        "--type=merge",
        "-p",
        "{\"spec\": {\"helm\": {\"files\": {\"templates/settings.yaml\": \"{{ fail \\\"no\\\" }}\"}}}}",
    ]);
    api.wait_field("a", "templateinstance/base", REASON, "ChartFailed");
    assert_eq!(api.field("a", "configmap/web-settings", ".data.color"), "x: y\nz", "what was applied stays");
}

#[test]
fn charts_come_from_a_repository_and_from_a_registry() {
    let program = options().helm.program;
    if !program.is_file() {
        eprintln!("left out: there is no helm; `tools/get helm` builds it");
        return;
    }
    let source = charts::serve(&program);
    let api = freehold();
    api.apply(&[ACCOUNT, &namespace("a")].join("\n---\n"));
    let _controllers = Running::start(&api, |scope| {
        let sources = vec![format!("http://{}", source.address), format!("oci://{}/", source.address)];
        let helm = HelmOptions { program: program.clone(), sources };
        start_templates_with(scope, TemplateOptions { trust_creators: false, helm });
    });
    let rows = [
        (
            "repository",
            format!("repository: 'http://{}', chart: demo, version: 1.2.3", source.address),
            "Applied",
        ),
        ("registry", format!("oci: 'oci://{}/charts/demo', version: 1.2.3", source.address), "Applied"),
        (
            "absent",
            format!("repository: 'http://{}', chart: demo, version: 9.9.9", source.address),
            "ChartUnavailable",
        ),
        ("foreign", "oci: 'oci://registry.example.com/demo', version: 1.2.3".to_owned(), "SourceNotAllowed"),
    ];
    for (name, chart, reason) in rows {
        api.apply(&format!(
            "{{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Template, metadata: {{name: {name}}}, \
             spec: {{helm: {{releaseName: {name}, values: {{color: \"${{tenant.name}}\"}}, {chart}}}}}}}"
        ));
        api.apply(
            &group("")
                .replace("name: base}", &format!("name: {name}}}"))
                .replace("template: base", &format!("template: {name}")),
        );
        api.wait_field("a", &format!("templateinstance/{name}"), REASON, reason);
    }
    for name in ["repository", "registry"] {
        assert_eq!(api.field("a", &format!("configmap/{name}-settings"), ".data.color"), "acme");
    }
}
