//! Tenants in Argo CD, with its real CustomResourceDefinitions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Api, PATIENCE, Running, freehold};
use freehold_tenancy_controllers::integration::start_extensions;
use freehold_tests_harness::{crds, until};

const REASON: &str = ".status.conditions[?(@.type==\"Ready\")].reason";

/// Argo CD's definition of AppProject.
fn app_projects() -> String {
    let real = crds().into_iter().find(|crd| crd.object["metadata"]["name"] == "appprojects.argoproj.io");
    real.expect("Argo CD's definitions are there (`tools/get crds` gets them)").object.to_string()
}

fn prepared() -> Api {
    let api = freehold();
    // The real one is too large for an annotation of kubectl's.
    api.kubectl.run_with_input(&["create", "-f", "-"], &app_projects()).expect_ok();
    api.kubectl.ok(&["wait", "--for=condition=Established", "--timeout=60s", "crd/appprojects.argoproj.io"]);
    api.apply(
        r"
{apiVersion: v1, kind: Namespace, metadata: {name: argocd}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: acme-dev, labels: {tenancy.freehold.dev/tenant: acme}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: git, namespace: acme-dev}, stringData: {username: u, password: p}}
---
{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: acme}, spec: {members: [{role: owner, subjects: [{kind: Group, name: acme-admins}]}]}}
---
{apiVersion: tenancy.freehold.dev/v1alpha1, kind: IntegrationConfig, metadata: {name: argo}, spec: {type: ArgoCD}}
",
    );
    api
}

fn extension(argo_cd: &str) -> String {
    format!(
        "{{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Extension, metadata: {{name: acme}}, spec: {{tenant: acme, integration: argo, argoCD: {argo_cd}}}}}"
    )
}

#[test]
fn a_tenant_has_a_project_that_follows_its_namespaces_and_leaves_nothing_behind() {
    let api = prepared();
    let _controllers = Running::start(&api, start_extensions);
    let repository = "{url: 'https://git.example.com/acme/app', secret: {namespace: acme-dev, name: git}}";
    api.apply(&extension(&format!("{{repositories: [{repository}]}}")));
    api.wait_field("", "extension/acme", REASON, "Applied");
    let destinations = ".spec.destinations[*].namespace";
    api.wait_field("argocd", "appproject/acme", destinations, "acme-dev");
    assert_eq!(api.field("argocd", "appproject/acme", ".spec.roles[0].groups[0]"), "acme-admins");
    assert_eq!(api.field("argocd", "secret/acme-repository-0", ".data.username"), "dQ==");
    assert_eq!(
        api.field(
            "argocd",
            "secret/acme-repository-0",
            ".metadata.labels.argocd\\.argoproj\\.io/secret-type"
        ),
        "repository"
    );
    // A namespace comes, and somebody widens the project.
    api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: acme-prod, labels: {tenancy.freehold.dev/tenant: acme}}}");
    api.wait_field("argocd", "appproject/acme", destinations, "acme-dev acme-prod");
    api.kubectl.ok(&[
        "patch",
        "appproject",
        "acme",
        "-n",
        "argocd",
        "--type=merge",
        "-p",
        "{\"spec\": {\"destinations\": [{\"server\": \"*\", \"namespace\": \"*\"}]}}",
    ]);
    api.wait_field("argocd", "appproject/acme", destinations, "acme-dev acme-prod");
    // A namespace moves to another tenant.
    api.kubectl.ok(&["label", "namespace", "acme-prod", "tenancy.freehold.dev/tenant=other", "--overwrite"]);
    api.wait_field("argocd", "appproject/acme", destinations, "acme-dev");
    api.kubectl.ok(&["delete", "extension", "acme"]);
    until("nothing is left", PATIENCE, || {
        let left = api.kubectl.ok(&["get", "appprojects,secrets", "-n", "argocd", "-o", "name"]);
        (!left.contains("acme")).then_some(())
    });
}

#[test]
fn what_goes_beyond_the_tenant_is_refused_with_a_reason() {
    let api = prepared();
    let _controllers = Running::start(&api, start_extensions);
    api.apply(&extension("{sourceRepositories: ['*']}"));
    api.wait_field("", "extension/acme", REASON, "NotAllowed");
    assert!(!api.kubectl.run(&["get", "appproject", "acme", "-n", "argocd"]).success);
    api.apply("{apiVersion: argoproj.io/v1alpha1, kind: AppProject, metadata: {name: acme, namespace: argocd}, spec: {description: theirs}}");
    api.apply(&extension("{sourceRepositories: ['https://git.example.com/acme/*']}"));
    api.wait_field("", "extension/acme", REASON, "NameTaken");
    assert_eq!(api.field("argocd", "appproject/acme", ".spec.description"), "theirs");
}
