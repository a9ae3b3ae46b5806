//! What a host namespace has before any Pod: limits and walls, and the account that Pods have instead of one of the host.

use crate::names::{ACCOUNT, NAMESPACE, PROJECT, host_namespace, own_name};
use freehold_api::ClassWorkloads;
use freehold_machinery::{Map, Value};
use serde_json::json;
use std::net::IpAddr;

/// The label by which every namespace is known to network policies, with its name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";
/// The namespace of a cluster's DNS.
const DNS_NAMESPACE: &str = "kube-system";
/// The address at which NodeLocal DNSCache listens on every node.
const LOCAL_DNS: &str = "169.254.20.10/32";
/// Networks that no Pod of a project has to do with, whatever a WorkloadCluster says: link-local addresses, where clouds
/// keep metadata and credentials.
const NEVER: [&str; 2] = ["169.254.0.0/16", "fe80::/10"];

/// What is known of a project and its cluster.
#[derive(Clone, Debug)]
pub struct Walls<'a> {
    /// The identifier of the project's plane.
    pub project: &'a str,
    /// Networks that its Pods must not reach, as CIDRs.
    pub networks: &'a [String],
    /// Host and port of the project's API.
    pub api: (&'a str, u16),
    /// What the class says.
    pub class: &'a ClassWorkloads,
}

/// The namespace on the host of a namespace of a project, and what stands in it, in the order in which it is applied.
pub fn guards(namespace: &str, walls: &Walls<'_>) -> Vec<Value> {
    let mut all =
        vec![host_namespace_of(namespace, walls), account(namespace, walls), isolation(namespace, walls)];
    if !walls.class.quota.is_empty() {
        let spec = json!({"hard": walls.class.quota});
        all.push(object("v1", "ResourceQuota", "quota", namespace, walls, ("spec", spec)));
    }
    if !walls.class.limits.is_empty() {
        let spec = json!({"limits": walls.class.limits});
        all.push(object("v1", "LimitRange", "limits", namespace, walls, ("spec", spec)));
    }
    all
}

fn host_namespace_of(namespace: &str, walls: &Walls<'_>) -> Value {
    let level = walls.class.pod_security.as_str();
    let mut labels: Map = [(PROJECT.to_owned(), walls.project.into())].into_iter().collect();
    for mode in ["enforce", "audit", "warn"] {
        labels.insert(format!("pod-security.kubernetes.io/{mode}"), level.into());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": host_namespace(walls.project, namespace),
            "labels": labels,
            "annotations": {NAMESPACE: namespace},
        },
    })
}

fn object(
    version: &str,
    kind: &str,
    what: &str,
    namespace: &str,
    walls: &Walls<'_>,
    (field, content): (&str, Value),
) -> Value {
    json!({
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": own_name(what),
            "namespace": host_namespace(walls.project, namespace),
            "labels": {PROJECT: walls.project},
            "annotations": {NAMESPACE: namespace},
        },
        field: content,
    })
}

fn account(namespace: &str, walls: &Walls<'_>) -> Value {
    let mut account = object(
        "v1",
        "ServiceAccount",
        "pods",
        namespace,
        walls,
        ("automountServiceAccountToken", false.into()),
    );
    account["metadata"]["name"] = ACCOUNT.into();
    account
}

/// Keeps projects apart: Pods reach those of their own project, DNS, the project's API, and what is outside of the cluster.
fn isolation(namespace: &str, walls: &Walls<'_>) -> Value {
    let own = json!({"namespaceSelector": {"matchLabels": {PROJECT: walls.project}}});
    let named = |name: &str| json!({"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: name}}});
    let mut from = vec![own.clone()];
    from.extend(walls.class.ingress_namespaces.iter().map(|name| named(name)));
    let dns = json!([{"protocol": "UDP", "port": 53}, {"protocol": "TCP", "port": 53}]);
    let local = json!({"ipBlock": {"cidr": LOCAL_DNS}});
    let mut egress = vec![
        json!({"to": [own]}),
        json!({"to": [named(DNS_NAMESPACE), local], "ports": dns}),
        json!({"to": [world("0.0.0.0/0", walls.networks), world("::/0", walls.networks)]}),
    ];
    if let Ok(ip) = walls.api.0.parse::<IpAddr>() {
        let cidr = if ip.is_ipv4() { format!("{ip}/32") } else { format!("{ip}/128") };
        let port = json!([{"protocol": "TCP", "port": walls.api.1}]);
        egress.push(json!({"to": [{"ipBlock": {"cidr": cidr}}], "ports": port}));
    }
    let spec = json!({
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": from}],
        "egress": egress,
    });
    object("networking.k8s.io/v1", "NetworkPolicy", "isolation", namespace, walls, ("spec", spec))
}

/// Everything of one family but what is closed.
fn world(all: &str, networks: &[String]) -> Value {
    let is_v6 = all.contains(':');
    let closed = networks.iter().map(String::as_str).chain(NEVER);
    let closed: std::collections::BTreeSet<&str> =
        closed.filter(|cidr| cidr.contains(':') == is_v6 && *cidr != all).collect();
    json!({"ipBlock": {"cidr": all, "except": closed}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(class: Value, networks: &[&str]) -> Vec<Value> {
        let class = serde_json::from_value(class).unwrap();
        let networks: Vec<String> = networks.iter().map(|n| (*n).to_owned()).collect();
        guards("shop", &Walls { project: "p", networks: &networks, api: ("192.0.2.1", 7443), class: &class })
    }

    fn find<'a>(all: &'a [Value], kind: &str) -> &'a Value {
        all.iter().find(|object| object["kind"] == kind).unwrap()
    }

    #[test]
    fn a_namespace_is_closed_to_other_projects_before_a_pod_is_in_it() {
        let all = all(json!({"ingressNamespaces": ["ingress"]}), &["10.0.0.0/8", "fd00::/8"]);
        assert_eq!(all[0]["kind"], "Namespace");
        let policy = find(&all, "NetworkPolicy");
        assert_eq!(policy["spec"]["podSelector"], json!({}));
        let from = &policy["spec"]["ingress"][0]["from"];
        assert_eq!(from[0]["namespaceSelector"]["matchLabels"], json!({PROJECT: "p"}));
        assert_eq!(from[1]["namespaceSelector"]["matchLabels"], json!({NAMESPACE_NAME: "ingress"}));
        assert_eq!(from.as_array().unwrap().len(), 2);
        let world = &policy["spec"]["egress"][2]["to"];
        assert_eq!(world[0]["ipBlock"]["except"], json!(["10.0.0.0/8", "169.254.0.0/16"]));
        assert_eq!(world[1]["ipBlock"]["except"], json!(["fd00::/8", "fe80::/10"]));
        assert_eq!(policy["spec"]["egress"][3]["to"][0]["ipBlock"]["cidr"], "192.0.2.1/32");
    }

    #[test]
    fn the_host_enforces_what_the_class_says() {
        let class = json!({
            "podSecurity": "restricted", "quota": {"pods": "5"}, "limits": [{"type": "Container", "max": {"cpu": "1"}}],
        });
        let all = all(class, &[]);
        for mode in ["enforce", "audit", "warn"] {
            let label = format!("pod-security.kubernetes.io/{mode}");
            assert_eq!(all[0]["metadata"]["labels"][&label], "restricted");
        }
        assert_eq!(find(&all, "ResourceQuota")["spec"]["hard"], json!({"pods": "5"}));
        assert_eq!(find(&all, "LimitRange")["spec"]["limits"][0]["max"]["cpu"], "1");
        assert_eq!(find(&all, "ServiceAccount")["automountServiceAccountToken"], false);
        let few = super::guards(
            "shop",
            &Walls { project: "p", networks: &[], api: ("api", 443), class: &ClassWorkloads::default() },
        );
        let kinds: Vec<&str> = few.iter().filter_map(|object| object["kind"].as_str()).collect();
        assert_eq!(kinds, ["Namespace", "ServiceAccount", "NetworkPolicy"]);
        assert_eq!(few[0]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "baseline");
    }
}
