//! DaemonSets.

use crate::world::{NODES, Namespace, PODS, REVISIONS, template, text, within};
use freehold_client::{Patch, PatchOptions, Resource};
use serde_json::{Value, json};
use std::sync::Arc;

const SETS: Resource = Resource::namespaced("apps", "v1", "daemonsets");

async fn add_node(namespace: &Namespace, name: &str, labels: Value) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    namespace.client.create(&NODES, &node).await.unwrap();
    // It has the taint of a new node until it says that it is ready.
    let ready = json!({"type": "Ready", "status": "True"});
    let patch = Patch::Merge(json!({"status": {"conditions": [ready]}}));
    namespace.client.patch(&NODES, None, name, &patch, &PatchOptions::status()).await.unwrap();
}

/// The nodes that have pods, each with the image of its pods.
async fn placed(namespace: &Namespace) -> Vec<String> {
    let pods = namespace.list(&PODS).await;
    let place = |pod: &Value| {
        let image = text(pod, "/spec/containers/0/image").rsplit(':').next().unwrap();
        format!("{} {image}", text(pod, "/spec/nodeName"))
    };
    let mut places: Vec<String> = pods.iter().map(place).collect();
    places.sort_unstable();
    places
}

#[test]
fn a_daemon_set_has_a_pod_on_each_node_that_fits_and_updates_them() {
    within("daemons", async |namespace: Arc<Namespace>| {
        for (name, labels) in
            [("ds-a", json!({"pool": "ds"})), ("ds-b", json!({"pool": "ds"})), ("ds-other", json!({}))]
        {
            add_node(&namespace, name, labels).await;
        }
        namespace.play(|_| true);
        let mut pod = template("agent", "registry.example/x:1");
        pod["spec"]["nodeSelector"] = json!({"pool": "ds"});
        let spec = json!({"selector": {"matchLabels": {"app": "agent"}}, "template": pod});
        let set = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}, "spec": spec});
        namespace.create(&SETS, set).await;
        let expected = json!({
            "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberReady": 2, "numberAvailable": 2,
            "updatedNumberScheduled": 2, "numberMisscheduled": 0,
        });
        namespace.reaches(&SETS, "agent", expected).await;
        assert_eq!(placed(&namespace).await, ["ds-a 1", "ds-b 1"]);

        // A node that fits from now on gets one, and one that fits no more loses it.
        let relabel = async |name: &str, pool: Value| {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"pool": pool}}}));
            namespace.client.patch(&NODES, None, name, &patch, &PatchOptions::default()).await.unwrap();
        };
        relabel("ds-other", json!("ds")).await;
        relabel("ds-b", Value::Null).await;
        namespace
            .until("pods follow labels of nodes", async || {
                (placed(&namespace).await == ["ds-a 1", "ds-other 1"]).then_some(())
            })
            .await;

        let containers = json!([{"name": "c", "image": "registry.example/x:2"}]);
        let update = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        namespace.patch(&SETS, "agent", update).await;
        let expected = json!({"observedGeneration": 2, "updatedNumberScheduled": 2, "numberAvailable": 2});
        namespace.reaches(&SETS, "agent", expected).await;
        assert_eq!(placed(&namespace).await, ["ds-a 2", "ds-other 2"]);
        assert_eq!(namespace.list(&REVISIONS).await.len(), 2);
        namespace.comes_to_rest(&[&PODS, &SETS, &REVISIONS]).await;
    });
}
