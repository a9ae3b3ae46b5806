//! The webhook configurations: which requests the API server asks about. Each request makes one call at most.

use crate::policies::{not_admins, only_creations_of_controllers, only_members};
use freehold_client::{Client, Error, Resource};
use freehold_machinery::Value;
use freehold_tenancy_api::{GROUP, METERED_LABEL, TENANT_LABEL};
use freehold_webhook::Address;
use serde_json::json;

/// The path of reviews.
pub const PATH: &str = "/admit";
/// The path of reviews that ask for defaults alone.
pub const DEFAULTS_PATH: &str = "/default";
const API_VERSION: &str = "admissionregistration.k8s.io/v1";
const MUTATING: Resource =
    Resource::cluster("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations");
const VALIDATING: Resource =
    Resource::cluster("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations");
/// The name of both configurations.
pub const NAME: &str = "tenancy.freehold.dev";

/// Both configurations. With `defaults` the webhook also injects defaults, for servers without MutatingAdmissionPolicies:
/// creations of objects that can have some make a second call there.
pub fn configurations(address: &Address, bundle: &str, defaults: bool) -> [Value; 2] {
    let config = address.client_config(bundle, PATH);
    let metadata = json!({"name": NAME});
    let hook = |name: &str, failure: &str, rule: Value, selector: Value, conditions: Value| {
        json!({
            "name": format!("{name}.{GROUP}"), "clientConfig": config, "rules": [rule],
            "namespaceSelector": selector, "matchConditions": conditions, "failurePolicy": failure,
            "matchPolicy": "Equivalent", "sideEffects": "NoneOnDryRun", "timeoutSeconds": 10,
            "admissionReviewVersions": ["v1"],
        })
    };
    let rule = |groups: &str, resources: &[&str], operations: &[&str], scope: &str| {
        json!({
            "apiGroups": [groups], "apiVersions": ["*"], "resources": resources, "operations": operations,
            "scope": scope,
        })
    };
    let namespaces = |operations: &[&str]| rule("", &["namespaces"], operations, "Cluster");
    let objects = || {
        rule(
            "*",
            &["*", "pods/ephemeralcontainers", "pods/resize"],
            &["CREATE", "UPDATE", "DELETE"],
            "Namespaced",
        )
    };
    let metered = |operator: &str| {
        json!({"matchExpressions": [
            {"key": TENANT_LABEL, "operator": "Exists"}, {"key": METERED_LABEL, "operator": operator},
        ]})
    };
    let creation = hook("namespace-creation", "Fail", namespaces(&["CREATE"]), json!({}), only_members());
    let mut mutating = json!({
        "apiVersion": API_VERSION, "kind": "MutatingWebhookConfiguration", "metadata": metadata,
        "webhooks": [creation],
    });
    if defaults {
        let tenants = json!({"matchExpressions": [{"key": TENANT_LABEL, "operator": "Exists"}]});
        let kinds = ["pods", "persistentvolumeclaims", "ingresses"];
        let mut hook =
            hook("defaults", "Ignore", rule("*", &kinds, &["CREATE"], "Namespaced"), tenants, not_admins());
        hook["clientConfig"] = address.client_config(bundle, DEFAULTS_PATH);
        if let Some(hooks) = mutating["webhooks"].as_array_mut() {
            hooks.push(hook);
        }
    }
    let quiet = quiet_objects();
    let validating = json!({
        "apiVersion": API_VERSION, "kind": "ValidatingWebhookConfiguration", "metadata": metadata,
        "webhooks": [
            // Limits over several namespaces hold only where this process is asked.
            hook("metered-objects", "Fail", objects(), metered("Exists"), quiet.clone()),
            // All other rules are policies of the API server, too.
            hook("objects", "Ignore", objects(), metered("DoesNotExist"), quiet),
            hook("namespaces", "Ignore", namespaces(&["UPDATE", "DELETE"]), json!({}), only_members()),
            hook(
                "tenants", "Ignore", rule(GROUP, &["tenants"], &["CREATE", "UPDATE", "DELETE"], "Cluster"),
                json!({}), json!([]),
            ),
        ],
    });
    [mutating, validating]
}

/// Conditions of requests about objects: not those of administrators and nodes, and no kinds that change all the time
/// and that no rule is about.
fn quiet_objects() -> Value {
    let mut conditions = not_admins().as_array().cloned().unwrap_or_default();
    conditions.push(only_creations_of_controllers());
    conditions.push(json!({
        "name": "not-a-heartbeat",
        "expression": "!(request.resource.group == 'coordination.k8s.io' || request.resource.resource in ['events', 'endpoints', 'endpointslices'])",
    }));
    conditions.into()
}

/// Whether the server has MutatingAdmissionPolicies.
async fn has_mutating_policies(client: &Client) -> bool {
    let Ok(list) = client.get_path("/apis/admissionregistration.k8s.io/v1").await else { return false };
    let resources = list["resources"].as_array();
    resources.is_some_and(|resources| resources.iter().any(|r| r["name"] == "mutatingadmissionpolicies"))
}

/// Writes both configurations.
///
/// # Errors
/// The server's refusal.
pub async fn register(client: &Client, address: &Address, bundle: &str) -> Result<(), Error> {
    let [mutating, validating] = configurations(address, bundle, !has_mutating_policies(client).await);
    client.apply(&MUTATING, "freehold-tenancy", &mutating).await?;
    client.apply(&VALIDATING, "freehold-tenancy", &validating).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_request_is_asked_about_twice_and_administrators_never() {
        let address = Address::Url("https://127.0.0.1:1".into());
        let [mutating, validating] = configurations(&address, "", false);
        let hooks = validating["webhooks"].as_array().unwrap();
        let names: Vec<&str> = hooks.iter().filter_map(|hook| hook["name"].as_str()).collect();
        assert_eq!(names.len(), 4);
        // Creations of namespaces are mutated, all else is validated; metered namespaces exclude the others.
        assert_eq!(mutating["webhooks"][0]["rules"][0]["operations"], json!(["CREATE"]));
        assert_eq!(hooks[2]["rules"][0]["operations"], json!(["UPDATE", "DELETE"]));
        let operator = |hook: &Value| hook["namespaceSelector"]["matchExpressions"][1]["operator"].clone();
        assert_eq!((operator(&hooks[0]), operator(&hooks[1])), (json!("Exists"), json!("DoesNotExist")));
        for hook in hooks.iter().take(3).chain(mutating["webhooks"].as_array().unwrap()) {
            assert!(hook["matchConditions"].to_string().contains("system:masters"), "{}", hook["name"]);
        }
        // Tenants are cluster-scoped: nothing that a cluster needs to start.
        assert_eq!(hooks[3]["failurePolicy"], "Ignore");
    }
}
