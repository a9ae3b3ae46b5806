//! Pods on tainted nodes, and the claims of ephemeral volumes.

use crate::world::{CLAIMS, NODES, Namespace, PODS, template, within};
use freehold_client::{Patch, PatchOptions};
use serde_json::{Value, json};
use std::sync::Arc;

fn pod(name: &str, change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = template("x", "registry.example/x")["spec"].clone();
    change(&mut spec);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

#[test]
fn a_taint_evicts_pods_that_do_not_tolerate_it() {
    within("tainted", async |namespace: Arc<Namespace>| {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "tainted"}});
        namespace.client.create(&NODES, &node).await.unwrap();
        namespace.play(|_| true);
        let on_node = |spec: &mut Value| spec["nodeName"] = "tainted".into();
        namespace.create(&PODS, pod("plain", on_node)).await;
        let tolerant = |spec: &mut Value| {
            on_node(spec);
            spec["tolerations"] = json!([{"key": "mine", "operator": "Exists"}]);
        };
        namespace.create(&PODS, pod("tolerant", tolerant)).await;
        namespace.comes_to_rest(&[&PODS]).await;
        assert_eq!(namespace.names(&PODS).await, ["plain", "tolerant"]);
        let patch = Patch::Merge(json!({"spec": {"taints": [{"key": "mine", "effect": "NoExecute"}]}}));
        namespace.client.patch(&NODES, None, "tainted", &patch, &PatchOptions::default()).await.unwrap();
        namespace
            .until("one is evicted", async || (namespace.names(&PODS).await == ["tolerant"]).then_some(()))
            .await;
    });
}

#[test]
fn an_ephemeral_volume_has_a_claim_that_comes_again_and_goes_with_its_pod() {
    within("ephemeral", async |namespace: Arc<Namespace>| {
        namespace.play(|_| true);
        let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        let volume = json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}});
        namespace.create(&PODS, pod("p", |spec| spec["volumes"] = json!([volume]))).await;
        let there =
            async || namespace.client.get_opt(&CLAIMS, Some(&namespace.name), "p-scratch").await.unwrap();
        let first = namespace.until("a claim", there).await;
        assert_eq!(first["metadata"]["ownerReferences"][0]["name"], "p");
        namespace.delete(&CLAIMS, "p-scratch").await;
        namespace
            .until("another one", async || {
                there().await.filter(|claim| claim["metadata"]["uid"] != first["metadata"]["uid"])
            })
            .await;
        namespace.delete(&PODS, "p").await;
        namespace.until("it goes with the pod", async || there().await.is_none().then_some(())).await;
    });
}
