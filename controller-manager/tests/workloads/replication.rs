//! ReplicationControllers.

use crate::world::{Namespace, PODS, template, within};
use freehold_client::Resource;
use serde_json::json;
use std::sync::Arc;

const CONTROLLERS: Resource = Resource::namespaced("", "v1", "replicationcontrollers");

#[test]
fn a_replication_controller_keeps_as_many_pods_as_wanted() {
    within("replication", async |namespace: Arc<Namespace>| {
        namespace.play(|_| true);
        let spec = json!({"replicas": 2, "selector": {"app": "old"}, "template": template("old", "registry.example/x")});
        let controller = json!({"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "old"}, "spec": spec});
        namespace.create(&CONTROLLERS, controller).await;
        let expected =
            json!({"replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "fullyLabeledReplicas": 2});
        let status = namespace.reaches(&CONTROLLERS, "old", expected).await["status"].clone();
        assert!(status.get("terminatingReplicas").is_none(), "{status}");
        let name = namespace.names(&PODS).await.remove(0);
        let pod = namespace.get(&PODS, &name).await;
        assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "ReplicationController");

        // One that is not selected any more is let go, and another comes in its place.
        namespace.patch(&PODS, &name, json!({"metadata": {"labels": {"app": "mine"}}})).await;
        namespace
            .until("it is let go", async || {
                let pod = namespace.get(&PODS, &name).await;
                (pod["metadata"].get("ownerReferences").is_none() && namespace.list(&PODS).await.len() == 3)
                    .then_some(())
            })
            .await;
        namespace.patch(&CONTROLLERS, "old", json!({"spec": {"replicas": 0}})).await;
        namespace
            .until("none is left but the one that was let go", async || {
                (namespace.names(&PODS).await == [name.clone()]).then_some(())
            })
            .await;
        namespace.comes_to_rest(&[&PODS, &CONTROLLERS]).await;
    });
}
