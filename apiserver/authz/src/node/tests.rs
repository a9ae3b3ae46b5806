use super::*;
use crate::selectors::{Selector, Selectors};
use freehold_machinery::Value;
use serde_json::json;
use std::time::Instant;

/// Objects, and what kube-apiserver 1.36.2 with `--authorization-mode=Node,RBAC` says of questions about them.
const RECORDED: &str = include_str!("kube-apiserver.json");

fn plural(object: &Value) -> String {
    format!("{}s", object["kind"].as_str().unwrap().to_lowercase())
}

fn put(graph: &mut NodeGraph, object: &Value) {
    let (kind, said) = said(&plural(object), object).unwrap();
    graph.put((kind, meta::namespace(object), meta::name(object)), Some(&said));
}

fn remove(graph: &mut NodeGraph, object: &Value) {
    let (kind, _) = said(&plural(object), object).unwrap();
    graph.put((kind, meta::namespace(object), meta::name(object)), None);
}

#[test]
fn nodes_may_what_kube_apiserver_allows_them() {
    let recorded: Value = serde_json::from_str(RECORDED).unwrap();
    let mut graph = NodeGraph::default();
    let objects = recorded["objects"].as_array().unwrap();
    objects.iter().for_each(|object| put(&mut graph, object));
    // Once more, and once more after all was gone: nothing is left over or counted twice.
    objects.iter().for_each(|object| put(&mut graph, object));
    objects.iter().for_each(|object| remove(&mut graph, object));
    assert_eq!(graph.edges(), 0);
    objects.iter().for_each(|object| put(&mut graph, object));
    for question in recorded["questions"].as_array().unwrap() {
        let asked = &question["resourceAttributes"];
        let text = |field: &str| asked[field].as_str().unwrap_or_default();
        let groups =
            question["groups"].as_array().unwrap().iter().map(|group| group.as_str().unwrap().to_owned());
        let user = User {
            name: question["user"].as_str().unwrap().to_owned(),
            groups: groups.collect(),
            ..User::default()
        };
        let attributes = Attributes {
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            selectors: Selectors {
                fields: Selector::of_review(&asked["fieldSelector"]),
                ..Selectors::default()
            },
            ..Attributes::resource(&user, text("verb"), text("group"), text("resource"))
        };
        let decision =
            node_of(&user).map_or_else(Decision::default, |node| authorize(node, &attributes, &graph));
        let expected = (question["allowed"] == true, question["reason"].as_str().unwrap_or_default());
        assert_eq!((decision.allowed, decision.reason.as_str()), expected, "{question}");
    }
}

#[test]
fn a_node_sees_nothing_of_a_pod_that_is_gone_or_elsewhere() {
    let pod = |node: &str| {
        json!({"kind": "Pod", "metadata": {"namespace": "d", "name": "p"}, "spec": {"nodeName": node, "volumes": [
            {"secret": {"secretName": "s"}}, {"persistentVolumeClaim": {"claimName": "c"}}]}})
    };
    let volume = json!({"kind": "PersistentVolume", "metadata": {"name": "v"},
        "spec": {"claimRef": {"namespace": "d", "name": "c"}}});
    let mut graph = NodeGraph::default();
    put(&mut graph, &volume);
    let seen = |graph: &NodeGraph, node: &str| {
        [(Kind::Secret, "d", "s"), (Kind::Claim, "d", "c"), (Kind::Volume, "", "v")]
            .map(|name| graph.sees(node, name))
    };
    for (node, other) in [("n1", "n2"), ("n2", "n1")] {
        put(&mut graph, &pod(node));
        assert_eq!((seen(&graph, node), seen(&graph, other)), ([true; 3], [false; 3]));
    }
    remove(&mut graph, &pod("n2"));
    assert_eq!(seen(&graph, "n2"), [false; 3]);
    remove(&mut graph, &volume);
    assert_eq!((graph.edges(), graph.sees("n2", (Kind::Node, "", "n2"))), (0, false));
}

/// 10,000 Pods on 100 nodes, each with an account, two Secrets, two ConfigMaps and a claim of their own or of many.
#[test]
fn an_edge_of_a_large_plane_is_small_and_a_decision_quick() {
    let mut graph = NodeGraph::default();
    for pod in 0..10_000 {
        let name = |kind: &str, of: usize| format!("{kind}-{}", pod % of);
        put(
            &mut graph,
            &json!({
                "kind": "Pod",
                "metadata": {"namespace": format!("namespace-{}", pod % 50), "name": format!("workload-{pod}-abcde")},
                "spec": {
                    "nodeName": format!("node-{}", pod % 100), "serviceAccountName": "default",
                    "imagePullSecrets": [{"name": "registry"}],
                    "volumes": [
                        {"secret": {"secretName": name("secret", 1000)}}, {"configMap": {"name": name("config", 1000)}},
                        {"configMap": {"name": "kube-root-ca.crt"}},
                        {"persistentVolumeClaim": {"claimName": format!("data-{pod}")}},
                    ],
                },
            }),
        );
    }
    let user = User { name: "system:node:node-7".into(), groups: vec![GROUP.into()], ..User::default() };
    let asked = Attributes {
        namespace: "namespace-7",
        name: "secret-7",
        ..Attributes::resource(&user, "get", "", "secrets")
    };
    let begun = Instant::now();
    for _ in 0..1000 {
        assert!(authorize("node-7", &asked, &graph).allowed);
    }
    let (micros, bytes) = (begun.elapsed().as_micros() / 1000, graph.bytes() / graph.edges());
    println!("{micros} us a decision, {bytes} bytes an edge, {} edges", graph.edges());
    assert!(bytes < 100, "{bytes} bytes an edge");
    // Without optimization, beside other tests.
    assert!(micros < 100, "{micros} us a decision");
}
