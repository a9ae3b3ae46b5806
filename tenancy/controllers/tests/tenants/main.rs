//! Tenants, namespaces and quotas on a project of a real Freehold and on a real kube-apiserver.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod figures;
mod site;

use site::Site;

#[test]
fn tenants_of_a_project_get_and_keep_what_they_declare() {
    let site = Site::freehold();
    all(&site);
    deletion(&site);
}

#[test]
fn tenants_of_a_kube_apiserver_get_and_keep_what_they_declare() {
    if let Some(site) = Site::kube() {
        all(&site);
        deletion(&site);
    }
}

#[test]
fn figures_of_a_project() {
    if let Some(count) = figures::count() {
        figures::figures(&Site::freehold(), count);
    }
}

#[test]
fn figures_of_a_kube_apiserver() {
    if let Some(count) = figures::count() {
        Site::kube().iter().for_each(|site| figures::figures(site, count));
    }
}

fn all(site: &Site) {
    let _scope = site.start();
    declared_namespaces_are_filled(site);
    drift_is_repaired(site);
    namespaces_of_members_are_adopted(site);
    a_namespace_that_moves_changes_hands(site);
    names_that_are_taken_are_reported_or_taken_over(site);
    limits_of_a_parent_are_reported(site);
    broken_references_have_reasons(site);
    cordoned_tenants_mark_their_namespaces(site);
    a_tenant_that_goes_in_the_middle_leaves_no_half(site);
}

const READY: &str = "tenancy.freehold.dev/Ready";

fn declared_namespaces_are_filled(site: &Site) {
    site.apply(
        r#"
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Quota
metadata: {name: small}
spec:
  hard: {pods: "10", requests.cpu: 4000m}
  perNamespace: {configmaps: "50"}
---
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Tenant
metadata: {name: web}
spec:
  members:
  - {role: owner, subjects: [{name: ann}]}
  - {role: viewer, subjects: [{kind: Group, name: auditors}]}
  namespaces:
    selfService: true
    personal: {ttlSeconds: 86400}
    declared: [{name: test, labels: {stage: test}}, {name: shared-web, prefixed: false}]
  metadata: {labels: {team: web}, annotations: {example.com/contact: ann}}
  quota: small
  classes: {storage: {allowed: [fast], default: fast}}
  networkPolicies: [{name: same-namespace, spec: {podSelector: {}, ingress: [{from: [{podSelector: {}}]}]}}]
  limitRanges: [{name: defaults, spec: {limits: [{type: Container, default: {cpu: 500m}}]}}]
"#,
    );
    for name in ["web-test", "shared-web", "web-ann"] {
        let namespace = site.condition(&["namespace", name], READY, "True", "Ready");
        assert_eq!(namespace["metadata"]["labels"]["team"], "web");
        assert_eq!(
            namespace["metadata"]["annotations"]["rules.tenancy.freehold.dev/storage-classes"],
            "fast"
        );
        let at = |kind: &str, object: &str| {
            site.get(&[kind, object, "-n", name]).unwrap_or_else(|| panic!("{object}"))
        };
        assert_eq!(at("rolebinding", "tenancy:admin")["subjects"][0]["name"], "ann");
        assert_eq!(at("rolebinding", "tenancy:view")["subjects"][0]["kind"], "Group");
        assert_eq!(at("resourcequota", "tenancy-small")["spec"]["hard"]["pods"], "10");
        assert_eq!(at("resourcequota", "tenancy-small-namespace")["spec"]["hard"]["configmaps"], "50");
        assert_eq!(at("limitrange", "tenancy-defaults")["spec"]["limits"][0]["type"], "Container");
        assert!(at("networkpolicy", "tenancy-same-namespace")["spec"]["ingress"].is_array());
    }
    let personal = site.get(&["namespace", "web-ann"]).unwrap();
    assert!(personal["metadata"]["annotations"]["tenancy.freehold.dev/expires-at"].is_string());
    let tenant = site.condition(&["tenant", "web"], "Ready", "True", "AsExpected");
    assert_eq!(tenant["status"]["phase"], "Active");
    site.until("three namespaces are counted", &["tenant", "web"], |tenant| {
        tenant["status"]["namespaces"] == 3 && tenant["status"]["readyNamespaces"] == 3
    });
    site.until("the quota is used by one", &["quotas.tenancy.freehold.dev", "small"], |q| {
        q["status"]["tenants"] == 1
    });
    let can = |args: &[&str]| {
        let args: Vec<&str> = ["auth", "can-i"].iter().chain(args).chain(&["--as", "ann"]).copied().collect();
        site.kubectl.run(&args).stdout.trim() == "yes"
    };
    // `admin` has its rules from a controller of the cluster.
    freehold_tests_harness::until("owners are admins of their namespaces", site::PATIENCE, || {
        can(&["create", "pods", "-n", "web-test"]).then_some(())
    });
    assert!(!can(&["create", "pods", "-n", "default"]));
    assert!(can(&["create", "namespaces"]), "self-service");
}

fn drift_is_repaired(site: &Site) {
    let kubectl = &site.kubectl;
    kubectl.ok(&["-n", "web-test", "delete", "limitrange", "tenancy-defaults"]);
    kubectl.ok(&[
        "-n",
        "web-test",
        "patch",
        "networkpolicy",
        "tenancy-same-namespace",
        "--type=merge",
        "-p",
        r#"{"spec":{"ingress":[{}]}}"#,
    ]);
    kubectl.ok(&["label", "namespace", "web-test", "team-"]);
    kubectl.ok(&["delete", "clusterrolebinding", "tenancy:web:member"]);
    site.until("the limit range is back", &["limitrange", "tenancy-defaults", "-n", "web-test"], |_| true);
    site.until(
        "the policy is as before",
        &["networkpolicy", "tenancy-same-namespace", "-n", "web-test"],
        |policy| policy["spec"]["ingress"][0]["from"].is_array(),
    );
    site.until("the label is back", &["namespace", "web-test"], |ns| {
        ns["metadata"]["labels"]["team"] == "web"
    });
    site.until("the binding is back", &["clusterrolebinding", "tenancy:web:member"], |_| true);
}

fn namespaces_of_members_are_adopted(site: &Site) {
    let kubectl = &site.kubectl;
    kubectl.ok(&["create", "namespace", "web-mine"]);
    kubectl.ok(&["label", "namespace", "web-mine", "tenancy.freehold.dev/tenant=web"]);
    site.condition(&["namespace", "web-mine"], READY, "True", "Ready");
    kubectl.ok(&["create", "namespace", "web-by-prefix"]);
    kubectl.ok(&[
        "patch",
        "tenant",
        "web",
        "--type=merge",
        "-p",
        r#"{"spec":{"namespaces":{"adoptByPrefix":true}}}"#,
    ]);
    let adopted = site.condition(&["namespace", "web-by-prefix"], READY, "True", "Ready");
    assert_eq!(adopted["metadata"]["labels"]["tenancy.freehold.dev/tenant"], "web");
    kubectl.ok(&[
        "patch",
        "tenant",
        "web",
        "--type=merge",
        "-p",
        r#"{"spec":{"namespaces":{"adoptByPrefix":false}}}"#,
    ]);
}

fn a_namespace_that_moves_changes_hands(site: &Site) {
    site.apply(
        "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: db}, spec: {members: [{role: editor, subjects: [{name: bob}]}]}}",
    );
    site.condition(&["tenant", "db"], "Ready", "True", "AsExpected");
    site.kubectl.ok(&["label", "namespace", "web-mine", "--overwrite", "tenancy.freehold.dev/tenant=db"]);
    site.until("bob edits", &["rolebinding", "tenancy:edit", "-n", "web-mine"], |b| {
        b["subjects"][0]["name"] == "bob"
    });
    for (kind, name) in [
        ("rolebinding", "tenancy:admin"),
        ("resourcequota", "tenancy-small"),
        ("limitrange", "tenancy-defaults"),
    ] {
        site.gone(&format!("{name} left with web"), &[kind, name, "-n", "web-mine"]);
    }
    site.until("labels of web are gone", &["namespace", "web-mine"], |ns| {
        ns["metadata"]["labels"]["team"].is_null()
    });
    // Released: nothing of the tenant stays.
    site.kubectl.ok(&["label", "namespace", "web-mine", "tenancy.freehold.dev/tenant-"]);
    site.gone("bob edits no more", &["rolebinding", "tenancy:edit", "-n", "web-mine"]);
    site.until("the condition is gone", &["namespace", "web-mine"], |ns| !ns.to_string().contains(READY));
}

fn names_that_are_taken_are_reported_or_taken_over(site: &Site) {
    let kubectl = &site.kubectl;
    kubectl.ok(&["create", "namespace", "legacy"]);
    kubectl.ok(&[
        "-n",
        "legacy",
        "create",
        "rolebinding",
        "tenancy:admin",
        "--clusterrole=view",
        "--user=eve",
    ]);
    let declare = |adopt: bool| {
        site.apply(&format!(
            "{{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {{name: ops}}, spec: {{members: [{{role: owner, subjects: [{{name: oli}}]}}], \
             namespaces: {{declared: [{{name: legacy, prefixed: false, adopt: {adopt}}}, {{name: shared-web, prefixed: false, adopt: {adopt}}}]}}}}}}"
        ));
    };
    declare(false);
    site.condition(&["tenant", "ops"], "NamespacesAvailable", "False", "NamespaceExists");
    declare(true);
    // What another tenant has is never taken.
    site.condition(&["tenant", "ops"], "Ready", "False", "NamespaceOfOtherTenant");
    site.condition(&["namespace", "legacy"], READY, "True", "Ready");
    let binding = site.get(&["rolebinding", "tenancy:admin", "-n", "legacy"]).unwrap();
    assert_eq!(
        (&binding["roleRef"]["name"], &binding["subjects"][0]["name"]),
        (&"admin".into(), &"oli".into())
    );
    assert_eq!(binding["subjects"].as_array().map(Vec::len), Some(1));
}

fn limits_of_a_parent_are_reported(site: &Site) {
    site.apply(
        r#"
{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Quota, metadata: {name: few}, spec: {hard: {configmaps: "4"}}}
---
{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: corp}, spec: {quota: few, members: [{role: owner, subjects: [{name: boss}]}]}}
---
{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: sub}, spec: {parent: corp, namespaces: {declared: [{name: a}, {name: b}]}}}
"#,
    );
    for name in ["sub-a", "sub-b"] {
        site.condition(&["namespace", name], READY, "True", "Ready");
        site.until(
            "an owner above is an owner below",
            &["rolebinding", "tenancy:admin", "-n", name],
            |binding| binding["subjects"][0]["name"] == "boss",
        );
        site.kubectl.ok(&["-n", name, "create", "configmap", "one"]);
    }
    site.until("the sum counts for the parent", &["tenant", "corp"], |tenant| {
        let used = tenant["status"]["quota"]["configmaps"]["used"]
            .as_str()
            .and_then(|used| used.parse::<u32>().ok());
        used.is_some_and(|used| used >= 2) && tenant["status"]["quota"]["configmaps"]["hard"] == "4"
    });
    site.kubectl.ok(&[
        "patch",
        "quotas.tenancy.freehold.dev",
        "few",
        "--type=merge",
        "-p",
        r#"{"spec":{"hard":{"configmaps":"1"}}}"#,
    ]);
    site.condition(&["tenant", "corp"], "WithinQuota", "False", "UsageAboveLimit");
}

fn broken_references_have_reasons(site: &Site) {
    let round = "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: round}, spec: {parent: about, namespaces: {declared: [{name: x}]}}}";
    let about = "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: about}, spec: {parent: round}}";
    site.apply(round);
    site.condition(&["tenant", "round"], "ParentResolved", "False", "ParentMissing");
    if site.name == "Freehold" {
        let output = site.kubectl.run_with_input(&["apply", "-f", "-"], &format!("---\n{about}"));
        assert!(output.stderr.contains("would be its own ancestor"), "{}", output.stderr);
    } else {
        // No webhook runs here: it is reported.
        site.apply(about);
        site.condition(&["tenant", "round"], "ParentResolved", "False", "ParentCycle");
        site.condition(&["tenant", "about"], "Ready", "False", "ParentCycle");
        site.condition(&["namespace", "round-x"], READY, "False", "ParentCycle");
    }
    site.apply(
        r#"
{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: orphan}, spec: {parent: nobody, quota: none}}
---
{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Quota, metadata: {name: wrong}, spec: {hard: {pods: many}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: lost, labels: {tenancy.freehold.dev/tenant: nobody}}}
"#,
    );
    site.condition(&["tenant", "orphan"], "ParentResolved", "False", "ParentMissing");
    site.condition(&["tenant", "orphan"], "WithinQuota", "False", "QuotaMissing");
    site.condition(&["quotas.tenancy.freehold.dev", "wrong"], "Ready", "False", "InvalidLimit");
    site.condition(&["namespace", "lost"], READY, "False", "TenantMissing");
    site.kubectl.ok(&["label", "namespace", "kube-system", "tenancy.freehold.dev/tenant=db"]);
    site.condition(&["namespace", "kube-system"], READY, "False", "Protected");
    assert!(site.get(&["rolebinding", "tenancy:edit", "-n", "kube-system"]).is_none());
    site.kubectl.ok(&["label", "namespace", "kube-system", "tenancy.freehold.dev/tenant-"]);
    site.kubectl.ok(&[
        "patch",
        "tenant",
        "round",
        "--type=merge",
        "-p",
        r#"{"spec":{"parent":"","networkPolicies":[{"name":"bad","spec":{"podSelector":7}}]}}"#,
    ]);
    site.condition(&["namespace", "round-x"], READY, "False", "WriteRefused");
}

fn cordoned_tenants_mark_their_namespaces(site: &Site) {
    let cordon = |on: bool| {
        let patch = format!(r#"{{"spec":{{"cordoned":{on}}}}}"#);
        site.kubectl.ok(&["patch", "tenant", "corp", "--type=merge", "-p", &patch]);
    };
    cordon(true);
    site.until("the namespace below is marked", &["namespace", "sub-a"], |ns| {
        ns["metadata"]["labels"]["tenancy.freehold.dev/cordoned"] == "true"
    });
    site.until("the phase says so", &["tenant", "corp"], |tenant| tenant["status"]["phase"] == "Cordoned");
    cordon(false);
    site.until("the mark goes", &["namespace", "sub-a"], |ns| {
        ns["metadata"]["labels"]["tenancy.freehold.dev/cordoned"].is_null()
    });
}

/// A tenant is deleted while its namespaces are being made, and another takes its place under another name: that is how a
/// tenant is renamed.
fn a_tenant_that_goes_in_the_middle_leaves_no_half(site: &Site) {
    let kubectl = &site.kubectl;
    let declared = |adopt: bool| {
        let one = |n: usize| format!("{{name: wave-{n}, prefixed: false, adopt: {adopt}}}");
        (0..12).map(one).collect::<Vec<_>>().join(", ")
    };
    let tenant = |name: &str, adopt: bool| {
        format!(
            "{{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {{name: {name}}}, \
             spec: {{members: [{{role: owner, subjects: [{{name: {name}}}]}}], namespaces: {{declared: [{}]}}}}}}",
            declared(adopt)
        )
    };
    site.apply(&tenant("before", false));
    site.until("the first namespace is there", &["namespace", "wave-0"], |_| true);
    kubectl.ok(&["delete", "tenant", "before", "--timeout=60s"]);
    let labelled = "tenancy.freehold.dev/tenant=before";
    assert!(kubectl.ok(&["get", "namespaces", "-l", labelled, "-o", "name"]).is_empty(), "{}", site.name);
    assert!(
        kubectl.ok(&["get", "rolebindings", "-A", "-l", labelled, "-o", "name"]).is_empty(),
        "{}",
        site.name
    );
    // Whatever there is by now is taken over, and the rest is made.
    site.apply(&tenant("after", true));
    site.condition(&["tenant", "after"], "Ready", "True", "AsExpected");
    for n in 0..12 {
        let name = format!("wave-{n}");
        site.condition(&["namespace", &name], READY, "True", "Ready");
        let binding = site.get(&["rolebinding", "tenancy:admin", "-n", &name]).unwrap();
        assert_eq!(binding["subjects"][0]["name"], "after", "{}", site.name);
    }
}

fn deletion(site: &Site) {
    let kubectl = &site.kubectl;
    kubectl.ok(&["patch", "tenant", "corp", "--type=merge", "-p", r#"{"spec":{"preventDeletion":true}}"#]);
    let held = kubectl.run(&["delete", "tenant", "corp", "--wait=false"]);
    if held.success {
        // Nobody refuses it there: it begins to go, and stays.
        site.condition(&["tenant", "corp"], "Deletable", "False", "DeletionPrevented");
    } else {
        assert!(held.stderr.contains("spec.preventDeletion is set"), "{}", held.stderr);
    }
    kubectl.ok(&["patch", "tenant", "corp", "--type=merge", "-p", r#"{"spec":{"preventDeletion":false}}"#]);
    kubectl.ok(&["delete", "tenant", "corp", "--wait=false", "--ignore-not-found"]);
    site.gone("the parent goes", &["tenant", "corp"]);
    site.condition(&["tenant", "sub"], "ParentResolved", "False", "ParentMissing");
    // Kept: the namespaces stay without the tenant.
    kubectl.ok(&["delete", "tenant", "sub", "--wait=false"]);
    site.gone("sub goes", &["tenant", "sub"]);
    let kept = site.get(&["namespace", "sub-a"]).expect("it is kept");
    assert!(kept["metadata"]["labels"]["tenancy.freehold.dev/tenant"].is_null(), "{kept}");
    assert!(site.get(&["rolebinding", "tenancy:admin", "-n", "sub-a"]).is_none());
    assert!(site.get(&["configmap", "one", "-n", "sub-a"]).is_some());
    // Deleted: namespaces go with the tenant.
    kubectl.ok(&[
        "patch",
        "tenant",
        "web",
        "--type=merge",
        "-p",
        r#"{"spec":{"deletion":{"namespaces":"Delete"}}}"#,
    ]);
    kubectl.ok(&["delete", "tenant", "web", "--wait=false"]);
    site.gone("web goes", &["tenant", "web"]);
    site.gone("its namespaces go", &["namespace", "web-test"]);
    site.gone("its rights go", &["clusterrole", "tenancy:web:member"]);
    // Expired: a personal namespace is deleted, and comes again empty.
    site.apply(
        "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: play}, spec: {members: [{role: editor, subjects: [{name: kim}]}], \
         namespaces: {personal: {ttlSeconds: 4}}}}",
    );
    let first = site.condition(&["namespace", "play-kim"], READY, "True", "Ready");
    site.until("a new one takes its place", &["namespace", "play-kim"], |ns| {
        ns["metadata"]["uid"] != first["metadata"]["uid"]
    });
}
