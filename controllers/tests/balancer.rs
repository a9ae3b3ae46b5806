//! Addresses of a pool, given to Services of two projects of a real server.

use freehold_tests_harness::{Engine, Kubectl, Server};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const PROJECTS: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: shops}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: one}
spec: {ownerRef: {kind: Organization, name: shops}}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: two}
spec: {ownerRef: {kind: Organization, name: shops}}
";

fn service(name: &str, ip: &str) -> String {
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerIP": ip});
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}).to_string()
}

/// Waits until `look` returns something of a Service.
fn until<T>(project: &Kubectl, name: &str, look: impl Fn(&Value) -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        let service = project.json(&["get", "service", name]);
        if let Some(found) = look(&service) {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain: {service}");
    }
}

fn address(service: &Value) -> Option<String> {
    service.pointer("/status/loadBalancer/ingress/0/ip")?.as_str().map(str::to_owned)
}

fn wait_for_event(project: &Kubectl, text: &str) {
    let begun = Instant::now();
    while !project.ok(&["get", "events"]).contains(text) {
        assert!(begun.elapsed() < PATIENCE, "no event {text:?}: {}", project.ok(&["get", "events"]));
    }
}

#[test]
fn services_of_all_projects_share_a_pool_and_no_address() {
    let server = Server::start(Engine::Embedded);
    let core = server.kubectl();
    core.apply(PROJECTS);
    let (one, two) = (server.project("one"), server.project("two"));
    one.apply(&service("before", ""));
    let pool = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "load-balancer-addresses", "namespace": "kube-system"},
        "data": {"addresses": "192.0.2.1-192.0.2.4", "addressesPerPlane": "2"},
    });
    core.apply(&pool.to_string());
    let mut all = BTreeSet::new();
    all.insert(until(&one, "before", address));
    for (project, name) in [(&one, "web"), (&two, "web")] {
        project.apply(&service(name, ""));
        all.insert(until(project, name, address));
    }
    assert_eq!(all.len(), 3, "{all:?}");

    // What another one has is refused, and so is more than a project may have.
    let taken = until(&one, "web", address);
    two.apply(&service("greedy", &taken));
    wait_for_event(&two, &format!("loadBalancerIP {taken} is in use"));
    one.apply(&service("third", ""));
    wait_for_event(&one, "this control plane may have 2 addresses");

    // What is given back is free for another one.
    one.ok(&["delete", "service", "third", "web"]);
    one.ok(&["patch", "service", "before", "--type=merge", "-p", r#"{"spec":{"type":"ClusterIP"}}"#]);
    until(&one, "before", |service| {
        (address(service).is_none() && service["metadata"].get("finalizers").is_none()).then_some(())
    });
    two.ok(&["delete", "service", "greedy"]);
    two.apply(&service("again", &taken));
    assert_eq!(until(&two, "again", address), taken);
    let leases = core.json(&["-n", "kube-system", "get", "leases", "-l", "load-balancer.freehold.dev/pool"]);
    let held = leases["items"].as_array().expect("a list");
    let of = |name: &str| held.iter().any(|l| l["metadata"]["name"] == format!("load-balancer-{name}"));
    assert!(of(&taken), "{leases}");
}
