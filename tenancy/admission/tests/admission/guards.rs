//! What decides about tenants without being in their namespaces.

use crate::site::{PATIENCE, Site};
use freehold_tests_harness::{Kubectl, crds, until};

/// Mallory may write the kinds, and is no administrator.
const SETUP: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: argocd}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shared}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: writer, namespace: shared}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mallory}
rules:
  - {apiGroups: [argoproj.io], resources: [appprojects], verbs: ['*']}
  - {apiGroups: [''], resources: [secrets], verbs: ['*']}
  - {apiGroups: [tenancy.freehold.dev], resources: [templateinstances, templategroupinstances], verbs: ['*']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: mallory}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: mallory}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: mallory}]
---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: acme, namespace: argocd, labels: {tenancy.freehold.dev/extension: acme}}
spec: {destinations: [{server: https://kubernetes.default.svc, namespace: web-a}], roles: [{name: dev, policies: ['p, x']}]}
---
{apiVersion: v1, kind: Secret, metadata: {name: acme-repository-0, namespace: argocd, labels: {tenancy.freehold.dev/extension: acme}}}
";

fn refused(site: &Site, kubectl: &Kubectl, args: &[&str], input: &str, words: &str) {
    until(&format!("{}: {args:?} {input} is refused: {words}", site.name), PATIENCE, || {
        let output = kubectl.run_with_input(args, input);
        (!output.success && output.stderr.contains(words)).then_some(())
    });
}

fn patch<'a>(object: &'a str, patch: &'a str) -> [&'a str; 7] {
    ["patch", "-n", "argocd", object, "--type=merge", "-p", patch]
}

pub(crate) fn hold(site: &Site) {
    let known = crds().into_iter().find(|crd| crd.object["metadata"]["name"] == "appprojects.argoproj.io");
    let crd = known.expect("`tools/get crds` gets the definitions of Argo CD").object.to_string();
    site.kubectl.run_with_input(&["create", "-f", "-"], &crd).expect_ok();
    site.kubectl.ok(&["wait", "--for=condition=Established", "--timeout=60s", "crd/appprojects.argoproj.io"]);
    site.apply(SETUP);
    let mallory = site.kubectl.with(&["--as", "mallory"]);
    extensions_keep_their_objects(site, &mallory);
    templates_act_as_accounts_that_their_author_may_act_as(site, &mallory);
}

fn extensions_keep_their_objects(site: &Site, mallory: &Kubectl) {
    let kept = "kept by an Extension";
    let wider = r#"{"spec": {"destinations": [{"server": "*", "namespace": "*"}]}}"#;
    refused(site, mallory, &patch("appproject/acme", wider), "", kept);
    for change in [
        r#"{"spec": {"sourceRepos": ["*"]}}"#,
        r#"{"spec": {"clusterResourceWhitelist": [{"group": "*", "kind": "*"}]}}"#,
        r#"{"spec": {"roles": [{"name": "dev", "policies": ["p, x", "p, y"]}]}}"#,
        r#"{"metadata": {"labels": {"tenancy.freehold.dev/extension": null}}}"#,
        r#"{"metadata": {"labels": {"tenancy.freehold.dev/extension": "other"}}}"#,
    ] {
        refused(site, mallory, &patch("appproject/acme", change), "", kept);
    }
    refused(site, mallory, &["delete", "-n", "argocd", "appproject/acme"], "", kept);
    refused(site, mallory, &patch("secret/acme-repository-0", r#"{"stringData": {"url": "x"}}"#), "", kept);
    let token = r#"{"spec": {"description": "fine", "roles": [{"name": "dev", "policies": ["p, x"], "jwtTokens": [{"iat": 1}]}]}}"#;
    mallory.ok(&patch("appproject/acme", token));
    mallory.ok(&["create", "secret", "generic", "own", "-n", "argocd"]);
    // It is the policy that refuses, and an administrator passes.
    site.kubectl.ok(&patch("appproject/acme", r#"{"spec": {"sourceRepos": ["https://git.example.com/*"]}}"#));
    let binding = "validatingadmissionpolicybinding/extension-projects.tenancy.freehold.dev";
    site.kubectl.ok(&["delete", binding]);
    until("without its binding it does not", PATIENCE, || {
        mallory.run(&patch("appproject/acme", wider)).success.then_some(())
    });
}

fn templates_act_as_accounts_that_their_author_may_act_as(site: &Site, mallory: &Kubectl) {
    let words = "may not act as the service account";
    let group = |account: &str| {
        format!(
            "---\n{{apiVersion: tenancy.freehold.dev/v1alpha1, kind: TemplateGroupInstance, metadata: {{name: all}}, \
             spec: {{template: absent, target: {{tenants: [web]}}, serviceAccount: {account}}}}}"
        )
    };
    let create = ["create", "-f", "-"];
    for account in ["{namespace: kube-system, name: default}", "{namespace: shared, name: writer}"] {
        refused(site, mallory, &create, &group(account), words);
    }
    let instance = "---\n{apiVersion: tenancy.freehold.dev/v1alpha1, kind: TemplateInstance, metadata: {name: one, namespace: shared}, \
                    spec: {template: absent, serviceAccount: writer}}";
    refused(site, mallory, &create, instance, words);
    site.kubectl.ok(&[
        "create",
        "role",
        "act",
        "-n",
        "shared",
        "--verb=impersonate",
        "--resource=serviceaccounts",
    ]);
    site.kubectl.ok(&["create", "rolebinding", "act", "-n", "shared", "--role=act", "--user=mallory"]);
    let writer = group("{namespace: shared, name: writer}");
    until("who may act as the account may name it", PATIENCE, || {
        mallory.run_with_input(&create, &writer).success.then_some(())
    });
    refused(
        site,
        mallory,
        &[
            "patch",
            "templategroupinstance",
            "all",
            "--type=merge",
            "-p",
            r#"{"spec": {"serviceAccount": {"namespace": "people"}}}"#,
        ],
        "",
        words,
    );
    site.kubectl.run_with_input(&["create", "-f", "-"], instance).expect_ok();
    site.kubectl.ok(&["delete", "templategroupinstance/all", "templateinstance/one", "-n", "shared"]);
}
