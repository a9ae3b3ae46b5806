//! Objects that a plane has beside the definitions: roles.

use freehold_machinery::Value;
use freehold_workflow_api::{GROUP, kontroler};
use serde_json::json;

/// The group of the history, which a Freehold server serves itself.
const HISTORY: &str = "history.workflow.freehold.dev";

/// Roles that are aggregated into `admin`, `edit` and `view`.
pub fn manifests() -> Vec<Value> {
    let kinds = json!(["dags", "dagruns", "dagtasks"]);
    let groups = json!([GROUP, kontroler::GROUP]);
    let role = |name: &str, into: &[&str], rules: Value| {
        let labels: Value = into
            .iter()
            .map(|role| (format!("rbac.authorization.k8s.io/aggregate-to-{role}"), Value::from("true")))
            .collect::<freehold_machinery::Map>()
            .into();
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": format!("freehold:workflow:{name}"), "labels": labels}, "rules": rules,
        })
    };
    let all = json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]);
    let read = json!(["get", "list", "watch"]);
    vec![
        role("edit", &["admin", "edit"], json!([{"apiGroups": groups, "resources": kinds, "verbs": all}])),
        role(
            "view",
            &["view"],
            json!([
                {"apiGroups": groups, "resources": kinds, "verbs": read},
                {"apiGroups": [HISTORY], "resources": ["runs", "runs/tasks", "runs/logs", "days"], "verbs": ["get", "list"]},
            ]),
        ),
    ]
}

/// What the webhook of the controllers needs in a cluster that is not Freehold's.
pub fn webhook_roles() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "freehold:workflow:webhook"},
        "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["workflow-webhook-ca"], "verbs": ["get", "update"]},
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["validatingwebhookconfigurations"], "verbs": ["create", "get", "patch"]},
            {"apiGroups": [GROUP], "resources": ["dags"], "verbs": ["get"]},
        ],
    })
}

/// What the controllers need in a cluster that is not Freehold's.
pub fn roles() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": "freehold:workflow:controller"},
        "rules": [
            {"apiGroups": [GROUP, kontroler::GROUP], "resources": ["*"], "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete", "get", "list", "patch", "watch"]},
            {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["configmaps", "namespaces"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "delete", "get"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
            {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["get", "impersonate"]},
            {"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": ["create", "delete", "get", "list"]},
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "get", "update"]},
        ],
    })
}
