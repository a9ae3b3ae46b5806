//! HorizontalPodAutoscalers.

use crate::world::{Namespace, template, within};
use freehold_client::Resource;
use serde_json::{Value, json};
use std::sync::Arc;

const CONTROLLERS: Resource = Resource::namespaced("", "v1", "replicationcontrollers");
const AUTOSCALERS: Resource = Resource::namespaced("autoscaling", "v2", "horizontalpodautoscalers");

fn reason<'a>(autoscaler: &'a Value, type_: &str) -> Option<(&'a Value, &'a Value)> {
    let all = autoscaler["status"]["conditions"].as_array()?;
    all.iter().find(|c| c["type"] == type_).map(|c| (&c["status"], &c["reason"]))
}

#[test]
fn an_autoscaler_keeps_its_target_in_range_and_says_what_it_lacks() {
    within("autoscaled", async |namespace: Arc<Namespace>| {
        namespace.play(|_| true);
        let spec = json!({"replicas": 1, "template": template("web", "registry.example/x")});
        let target = json!({
            "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"}, "spec": spec,
        });
        namespace.create(&CONTROLLERS, target).await;
        let reference = json!({"apiVersion": "v1", "kind": "ReplicationController", "name": "web"});
        let metric = json!({"type": "Resource", "resource": {
            "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
        }});
        let spec =
            json!({"scaleTargetRef": reference, "minReplicas": 2, "maxReplicas": 4, "metrics": [metric]});
        let object = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}, "spec": spec,
        });
        namespace.create(&AUTOSCALERS, object).await;
        namespace.reaches(&CONTROLLERS, "web", json!({"replicas": 2, "readyReplicas": 2})).await;
        namespace
            .until("the autoscaler tells of it", async || {
                let web = namespace.get(&AUTOSCALERS, "web").await;
                (reason(&web, "AbleToScale") == Some((&json!("True"), &json!("SucceededRescale"))))
                    .then_some(())
            })
            .await;
        namespace
            .until("it says that nobody serves metrics", async || {
                let web = namespace.get(&AUTOSCALERS, "web").await;
                let expected = Some((&json!("False"), &json!("FailedGetResourceMetric")));
                (reason(&web, "ScalingActive") == expected).then_some(())
            })
            .await;
        assert_eq!(namespace.get(&CONTROLLERS, "web").await["spec"]["replicas"], 2);
    });
}
