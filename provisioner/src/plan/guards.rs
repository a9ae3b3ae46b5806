//! Isolation and availability of a pair: network policies and the disruption budget.

use super::args::PORT;
use super::{
    objects::{component, object},
    spec::{APISERVER, CONTROLLER_MANAGER, Inputs, Reach, Spec},
};
use freehold_machinery::Value;
use serde_json::{Value as Json, json};

/// The address of clouds' metadata services, from which a Pod could take its machine's identity.
const METADATA_SERVICE: &str = "169.254.169.254/32";

/// Protocols of name servers.
const DNS: [&str; 2] = ["UDP", "TCP"];

/// Nothing goes in or out of the namespace but: the core server and the controller manager to the apiserver; the
/// apiserver to etcd and to webhooks, which can be anywhere but at the cloud's metadata service.
pub(super) fn network_policies(spec: &Spec, inputs: &Inputs) -> Vec<Value> {
    let port = json!([{"protocol": "TCP", "port": PORT}]);
    let clients = clients(inputs);
    let to_apiserver = json!({"to": [{"podSelector": component(APISERVER)}], "ports": port});
    let rows = [
        ("deny-all", json!({}), json!([]), json!([])),
        (
            APISERVER,
            component(APISERVER),
            json!([{"from": clients, "ports": port}]),
            json!([{"to": [
                {"ipBlock": {"cidr": "0.0.0.0/0", "except": [METADATA_SERVICE]}},
                {"ipBlock": {"cidr": "::/0"}},
            ]}]),
        ),
        (
            CONTROLLER_MANAGER,
            component(CONTROLLER_MANAGER),
            json!([]),
            match inputs.reach {
                Reach::Pod => json!([to_apiserver]),
                Reach::Service => {
                    json!([to_apiserver, {"ports": DNS.map(|protocol| json!({"protocol": protocol, "port": 53}))}])
                }
            },
        ),
    ];
    rows.into_iter()
        .map(|(name, pods, ingress, egress)| policy(spec, name, &pods, &ingress, &egress))
        .collect()
}

/// Who reaches the apiserver, as peers of a NetworkPolicy.
pub(super) fn clients(inputs: &Inputs) -> Vec<Json> {
    let mut clients = vec![json!({"podSelector": component(CONTROLLER_MANAGER)})];
    // A core server on another cluster comes from a network, and from no namespace of this one.
    if inputs.core_networks.is_empty() || !inputs.core_namespace_labels.is_empty() {
        clients.push(json!({"namespaceSelector": {"matchLabels": inputs.core_namespace_labels}}));
    }
    clients.extend(inputs.core_networks.iter().map(|cidr| json!({"ipBlock": {"cidr": cidr}})));
    clients
}

fn policy(spec: &Spec, name: &str, pods: &Json, ingress: &Json, egress: &Json) -> Value {
    let content = json!({"spec": {
        "podSelector": pods,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": ingress,
        "egress": egress,
    }});
    object(spec, "networking.k8s.io/v1", "NetworkPolicy", name, content)
}

/// One apiserver at a time may be evicted, and a broken one always: a drain neither hangs nor takes all of them.
pub(super) fn disruption_budget(spec: &Spec) -> Value {
    let content = json!({"spec": {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": component(APISERVER),
    }});
    object(spec, "policy/v1", "PodDisruptionBudget", APISERVER, content)
}
