//! Policies on objects that decide about tenants without being in their namespaces: AppProjects and Secrets of Extensions,
//! and accounts that templates act as.
//!
//! Nobody is locked out: administrators pass, and so do the subsystem's own controllers, which have the verb `bypass`.

use crate::policies::{API_VERSION, SAME_SPEC, binding, only_administrators_pass, only_members};
use freehold_machinery::Value;
use freehold_tenancy_api::GROUP;
use freehold_tenancy_api::integration::EXTENSION_LABEL;
use serde_json::json;

/// A policy beyond tenants' namespaces.
struct Guard {
    name: &'static str,
    group: &'static str,
    resource: &'static str,
    operations: &'static [&'static str],
    /// Whether only objects of Extensions are checked.
    of_extensions: bool,
    expression: String,
    message: &'static str,
}

/// Whether a list of an AppProject's spec is as it was.
fn same(field: &str) -> String {
    let (new, old) = (format!("object.spec.{field}"), format!("oldObject.spec.{field}"));
    format!("has({new}) == has({old}) && (!has({new}) || {new} == {old})")
}

/// Whether an AppProject allows what it did. Argo CD itself writes tokens into roles, which must go on.
fn same_project() -> String {
    let label = |object: &str| {
        format!(
            "(has({object}.metadata.labels) && '{EXTENSION_LABEL}' in {object}.metadata.labels \
             ? {object}.metadata.labels['{EXTENSION_LABEL}'] : '')"
        )
    };
    let roles = |object: &str| {
        format!(
            "(has({object}.spec.roles) ? {object}.spec.roles.map(r, r.name + ' ' \
             + (has(r.policies) ? r.policies.join(';') : '') + ' ' + (has(r.groups) ? r.groups.join(';') : '')) : [])"
        )
    };
    let lists = [
        "sourceRepos",
        "sourceNamespaces",
        "destinations",
        "destinationServiceAccounts",
        "clusterResourceWhitelist",
        "clusterResourceBlacklist",
        "namespaceResourceWhitelist",
        "namespaceResourceBlacklist",
    ]
    .map(same)
    .join(" && ");
    format!(
        "request.operation == 'UPDATE' && {} == {} && {lists} && {} == {}",
        label("object"),
        label("oldObject"),
        roles("object"),
        roles("oldObject")
    )
}

fn guards() -> [Guard; 4] {
    let account = |namespace: &str, name: &str| {
        format!(
            "authorizer.group('').resource('serviceaccounts').namespace({namespace}).name({name}).check('impersonate').allowed()"
        )
    };
    let of_group = account("object.spec.serviceAccount.namespace", "object.spec.serviceAccount.name");
    let of_instance = account("object.metadata.namespace", "object.spec.serviceAccount");
    let message = "you may not act as the service account that is named: it takes the verb impersonate";
    [
        Guard {
            name: "extension-projects",
            group: "argoproj.io",
            resource: "appprojects",
            operations: &["CREATE", "UPDATE", "DELETE"],
            of_extensions: true,
            expression: same_project(),
            message: "the AppProject is kept by an Extension: change the Extension or the Tenant instead",
        },
        Guard {
            name: "extension-secrets",
            group: "",
            resource: "secrets",
            operations: &["CREATE", "UPDATE", "DELETE"],
            of_extensions: true,
            expression: "false".to_owned(),
            message: "the Secret is kept by an Extension: change the Extension instead",
        },
        Guard {
            name: "template-group-accounts",
            group: GROUP,
            resource: "templategroupinstances",
            operations: &["CREATE", "UPDATE"],
            of_extensions: false,
            expression: format!("{SAME_SPEC} || !has(object.spec.serviceAccount) || {of_group}"),
            message,
        },
        Guard {
            name: "template-accounts",
            group: GROUP,
            resource: "templateinstances",
            operations: &["CREATE", "UPDATE"],
            of_extensions: false,
            expression: format!(
                "{SAME_SPEC} || !has(object.spec.serviceAccount) || object.spec.serviceAccount == '' || {of_instance}"
            ),
            message,
        },
    ]
}

/// All guards as ValidatingAdmissionPolicies with their bindings.
pub(crate) fn validating() -> Vec<Value> {
    guards().iter().flat_map(policy).collect()
}

fn policy(guard: &Guard) -> [Value; 2] {
    let name = format!("{}.{GROUP}", guard.name);
    let objects = match guard.of_extensions {
        true => json!({"matchExpressions": [{"key": EXTENSION_LABEL, "operator": "Exists"}]}),
        false => json!({}),
    };
    let conditions = if guard.of_extensions { only_members() } else { only_administrators_pass() };
    let policy = json!({
        "apiVersion": API_VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "objectSelector": objects,
                "resourceRules": [{
                    "apiGroups": [guard.group], "apiVersions": ["*"], "resources": [guard.resource],
                    "operations": guard.operations,
                }],
            },
            "matchConditions": conditions,
            "validations": [{"expression": guard.expression, "message": guard.message, "reason": "Forbidden"}],
        },
    });
    [policy, binding(&name)]
}
