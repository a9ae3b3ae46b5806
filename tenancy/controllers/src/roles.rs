//! ClusterRoles of the subsystem: of owners, for their namespaces, of the controllers and the webhook, and of the proxy.

use freehold_machinery::Value;
use freehold_tenancy_api::GROUP;
use freehold_tenancy_decide::namespace::OWNER_ROLE;
use serde_json::json;

fn role(name: &str, labels: Value, rules: Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": name, "labels": labels}, "rules": rules,
    })
}

/// The ClusterRole of the controllers and the webhook.
pub const CONTROLLER_ROLE: &str = "tenancy.freehold.dev:controller";
/// The ClusterRole of the proxy.
pub const PROXY_ROLE: &str = "tenancy.freehold.dev:proxy";
/// The ClusterRole that a proxy needs beside [`PROXY_ROLE`] where it takes client certificates.
pub const PROXY_CERTIFICATES_ROLE: &str = "tenancy.freehold.dev:proxy-certificates";

/// What the proxy reads as itself: names of tenants, namespaces and classes, and nothing that a tenant stores.
fn proxy_rules() -> Value {
    let read = json!(["get", "list", "watch"]);
    json!([
        {"apiGroups": [GROUP], "resources": ["tenants"], "verbs": read},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": read},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingressclasses"], "verbs": read},
        {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["gatewayclasses"], "verbs": read},
        {"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": read},
        {"apiGroups": ["node.k8s.io"], "resources": ["runtimeclasses"], "verbs": read},
    ])
}

/// The roles of namespaces' owners, of the controllers and of the proxy.
pub fn roles() -> Vec<Value> {
    let namespaces = json!([{
        "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get", "update", "patch", "delete"],
    }]);
    let kept = json!(["resourcequotas", "limitranges"]);
    // It grants members rights that it does not have itself: that takes `bind` and `escalate`.
    let controller = json!([
        {"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["namespaces", "namespaces/status"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": kept, "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": ["*"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["rolebindings", "clusterrolebindings", "clusterroles"], "verbs": ["*"]},
        {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["get", "create", "update", "patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
        // Instances of templates act with the rights of service accounts; the controllers act as none of the control plane's.
        {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"]},
        // Workloads that sleep. Custom resources that are scaled need a rule of their own.
        {"apiGroups": ["apps"], "resources": ["deployments", "statefulsets", "replicasets", "daemonsets"], "verbs": ["patch"]},
        {"apiGroups": ["batch"], "resources": ["cronjobs"], "verbs": ["patch"]},
        {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["patch"]},
        {"apiGroups": ["keda.sh"], "resources": ["scaledobjects"], "verbs": ["patch"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["create", "delete", "patch"]},
        // Tenants in Argo CD.
        {"apiGroups": ["argoproj.io"], "resources": ["appprojects", "applications"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "patch", "delete"]},
        // What Quotas count.
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
    ]);
    vec![
        role(OWNER_ROLE, json!({}), namespaces),
        role(CONTROLLER_ROLE, json!({}), controller),
        role(PROXY_ROLE, json!({}), proxy_rules()),
        role(
            PROXY_CERTIFICATES_ROLE,
            json!({}),
            json!([{"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]}]),
        ),
    ]
}
