//! Tenants in Argo CD, with its real CustomResourceDefinitions.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Api, PATIENCE, Running, freehold};
use freehold_tenancy_controllers::integration::start_integrations;
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
    let _controllers = Running::start(&api, start_integrations);
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
    let _controllers = Running::start(&api, start_integrations);
    api.apply(&extension("{sourceRepositories: ['*']}"));
    api.wait_field("", "extension/acme", REASON, "NotAllowed");
    assert!(!api.kubectl.run(&["get", "appproject", "acme", "-n", "argocd"]).success);
    api.apply("{apiVersion: argoproj.io/v1alpha1, kind: AppProject, metadata: {name: acme, namespace: argocd}, spec: {description: theirs}}");
    api.apply(&extension("{sourceRepositories: ['https://git.example.com/acme/*']}"));
    api.wait_field("", "extension/acme", REASON, "NameTaken");
    assert_eq!(api.field("argocd", "appproject/acme", ".spec.description"), "theirs");
}

#[test]
fn a_refused_extension_reaches_no_namespace_that_the_tenant_has_lost() {
    let api = prepared();
    let _controllers = Running::start(&api, start_integrations);
    let repository = "{url: 'https://git.example.com/acme/app', secret: {namespace: acme-dev, name: git}}";
    api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: acme-prod, labels: {tenancy.freehold.dev/tenant: acme}}}");
    api.apply(&extension(&format!("{{repositories: [{repository}]}}")));
    let destinations = ".spec.destinations[*].namespace";
    api.wait_field("argocd", "appproject/acme", destinations, "acme-dev acme-prod");
    // The namespace goes to another tenant with the Secret in it: the repository is refused, and what is lost is lost.
    api.kubectl.ok(&["label", "namespace", "acme-dev", "tenancy.freehold.dev/tenant=other", "--overwrite"]);
    api.wait_field("", "extension/acme", REASON, "NotAllowed");
    api.wait_field("argocd", "appproject/acme", destinations, "acme-prod");
    assert_eq!(
        api.field("argocd", "appproject/acme", ".spec.roles[0].groups[0]"),
        "acme-admins",
        "all else stays"
    );
}

#[test]
fn the_end_of_a_tenant_decides_about_its_objects_in_argo_cd() {
    let api = prepared();
    let _controllers = Running::start(&api, freehold_tenancy_controllers::start);
    let delete = |policy: &str| {
        let patch = format!("{{\"spec\": {{\"deletion\": {{\"argocd\": \"{policy}\"}}}}}}");
        api.kubectl.ok(&["patch", "tenant", "acme", "--type=merge", "-p", &patch]);
        api.kubectl.ok(&["delete", "tenant", "acme", "--timeout=60s"]);
    };
    api.apply(&extension("{}"));
    api.wait_field("argocd", "appproject/acme", ".spec.destinations[*].namespace", "acme-dev");
    delete("Keep");
    api.wait_field("", "extension/acme", REASON, "TenantNotFound");
    api.wait_field("argocd", "appproject/acme", ".spec.destinations[*].namespace", "");
    // It comes again, and has what it had once its namespace is adopted.
    api.apply(
        "{apiVersion: tenancy.freehold.dev/v1alpha1, kind: Tenant, metadata: {name: acme}, \
         spec: {namespaces: {declared: [{name: dev, adopt: true}]}}}",
    );
    api.wait_field("argocd", "appproject/acme", ".spec.destinations[*].namespace", "acme-dev");
    delete("Delete");
    assert!(!api.kubectl.run(&["get", "extension", "acme"]).success);
    assert!(!api.kubectl.run(&["get", "appproject", "acme", "-n", "argocd"]).success);
    assert!(api.kubectl.run(&["get", "namespace", "acme-dev"]).success);
}

#[test]
fn an_integration_says_whether_its_system_is_there() {
    let api = freehold();
    let _controllers = Running::start(&api, start_integrations);
    api.apply("{apiVersion: tenancy.freehold.dev/v1alpha1, kind: IntegrationConfig, metadata: {name: argo}, spec: {type: ArgoCD}}");
    api.wait_field("", "integrationconfig/argo", REASON, "NamespaceMissing");
    api.apply("{apiVersion: v1, kind: Namespace, metadata: {name: argocd}}");
    // A change has it looked at again; so does each minute.
    let look_again = |description: &str| {
        let patch = format!("{{\"spec\": {{\"argoCD\": {{\"server\": \"https://{description}\"}}}}}}");
        api.kubectl.ok(&["patch", "integrationconfig", "argo", "--type=merge", "-p", &patch]);
    };
    look_again("one");
    api.wait_field("", "integrationconfig/argo", REASON, "NotInstalled");
    api.kubectl.run_with_input(&["create", "-f", "-"], &app_projects()).expect_ok();
    api.kubectl.ok(&["wait", "--for=condition=Established", "--timeout=60s", "crd/appprojects.argoproj.io"]);
    look_again("two");
    api.wait_field("", "integrationconfig/argo", REASON, "Available");
    api.apply(&extension("{}"));
    api.wait_field("", "extension/acme", REASON, "TenantNotFound");
    api.wait_field("", "integrationconfig/argo", ".status.extensions", "1");
}
