//! StatefulSets.

use crate::world::{CLAIMS, Namespace, PODS, REVISIONS, template, text, within};
use freehold_client::Resource;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const SETS: Resource = Resource::namespaced("apps", "v1", "statefulsets");

fn set(replicas: i64, change: impl FnOnce(&mut Value)) -> Value {
    let mut spec = json!({
        "replicas": replicas, "serviceName": "web", "selector": {"matchLabels": {"app": "web"}},
        "template": template("web", "registry.example/x:1"),
        "volumeClaimTemplates": [{
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }],
    });
    change(&mut spec);
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web"}, "spec": spec})
}

/// The image that each pod has, in order of their names.
async fn images(namespace: &Namespace) -> Vec<String> {
    let mut pods = namespace.list(&PODS).await;
    pods.sort_by_key(|pod| text(pod, "/metadata/name").to_owned());
    let image = |pod: &Value| text(pod, "/spec/containers/0/image").rsplit(':').next().unwrap().to_owned();
    pods.iter().map(image).collect()
}

async fn set_image(namespace: &Namespace, image: &str, strategy: Value) {
    let template = json!({"spec": {"containers": [{"name": "c", "image": image}]}});
    namespace.patch(&SETS, "web", json!({"spec": {"template": template, "updateStrategy": strategy}})).await;
}

#[test]
fn a_stateful_set_brings_its_pods_in_order_with_their_claims() {
    within("ordered", async |namespace: Arc<Namespace>| {
        let first_alone = Arc::new(AtomicBool::new(true));
        let wait = first_alone.clone();
        namespace.play(move |_| !wait.load(Ordering::Relaxed));
        let policy = json!({"whenDeleted": "Retain", "whenScaled": "Delete"});
        namespace.create(&SETS, set(3, |spec| spec["persistentVolumeClaimRetentionPolicy"] = policy)).await;
        namespace.reaches(&SETS, "web", json!({"replicas": 1})).await;
        namespace.comes_to_rest(&[&PODS, &SETS, &CLAIMS]).await;
        assert_eq!(namespace.names(&PODS).await, ["web-0"], "the second waits until the first is ready");

        first_alone.store(false, Ordering::Relaxed);
        let web = namespace.reaches(&SETS, "web", json!({"readyReplicas": 3, "availableReplicas": 3})).await;
        assert_eq!(namespace.names(&PODS).await, ["web-0", "web-1", "web-2"]);
        assert_eq!(namespace.names(&CLAIMS).await, ["data-web-0", "data-web-1", "data-web-2"]);
        let pod = namespace.get(&PODS, "web-1").await;
        let labels = &pod["metadata"]["labels"];
        assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "web-1");
        assert_eq!(labels["apps.kubernetes.io/pod-index"], "1");
        assert_eq!(labels["controller-revision-hash"], web["status"]["currentRevision"]);
        assert_eq!((text(&pod, "/spec/hostname"), text(&pod, "/spec/subdomain")), ("web-1", "web"));
        namespace.comes_to_rest(&[&PODS, &SETS, &CLAIMS, &REVISIONS]).await;

        namespace.patch(&SETS, "web", json!({"spec": {"replicas": 1}})).await;
        namespace
            .until("claims go with pods that are not wanted", async || {
                (namespace.names(&CLAIMS).await == ["data-web-0"]).then_some(())
            })
            .await;
        namespace.reaches(&SETS, "web", json!({"replicas": 1, "readyReplicas": 1})).await;
    });
}

#[test]
fn a_stateful_set_rolls_out_down_to_its_partition_and_back() {
    within("rollout", async |namespace: Arc<Namespace>| {
        namespace.play(|_| true);
        namespace.create(&SETS, set(3, |spec| spec["podManagementPolicy"] = "Parallel".into())).await;
        let web = namespace.reaches(&SETS, "web", json!({"readyReplicas": 3, "updatedReplicas": 3})).await;
        let first = web["status"]["updateRevision"].clone();

        let partition = |n: i64| json!({"type": "RollingUpdate", "rollingUpdate": {"partition": n}});
        set_image(&namespace, "registry.example/x:2", partition(1)).await;
        let expected = json!({"updatedReplicas": 2, "readyReplicas": 3, "currentRevision": first});
        let web = namespace.reaches(&SETS, "web", expected).await;
        assert_ne!(web["status"]["updateRevision"], first);
        assert_eq!(images(&namespace).await, ["1", "2", "2"]);
        namespace.delete(&PODS, "web-0").await;
        namespace
            .until("one below the partition comes again as it was", async || {
                let pod = namespace.client.get_opt(&PODS, Some(&namespace.name), "web-0").await.unwrap()?;
                (text(&pod, "/status/phase") == "Running").then_some(())
            })
            .await;
        assert_eq!(images(&namespace).await, ["1", "2", "2"]);

        set_image(&namespace, "registry.example/x:2", partition(0)).await;
        let second = web["status"]["updateRevision"].clone();
        namespace.reaches(&SETS, "web", json!({"currentRevision": second, "readyReplicas": 3})).await;
        assert_eq!(images(&namespace).await, ["2", "2", "2"]);

        set_image(&namespace, "registry.example/x:1", partition(0)).await;
        namespace.reaches(&SETS, "web", json!({"currentRevision": first, "readyReplicas": 3})).await;
        let mut numbers: Vec<i64> =
            namespace.list(&REVISIONS).await.iter().filter_map(|r| r["revision"].as_i64()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [2, 3], "the first revision is the newest now");

        set_image(&namespace, "registry.example/x:3", json!({"type": "OnDelete", "rollingUpdate": null}))
            .await;
        namespace
            .until("there is a third revision", async || {
                (namespace.list(&REVISIONS).await.len() == 3).then_some(())
            })
            .await;
        namespace.comes_to_rest(&[&PODS, &SETS, &REVISIONS]).await;
        assert_eq!(images(&namespace).await, ["1", "1", "1"], "nothing is updated that nobody deletes");
    });
}
