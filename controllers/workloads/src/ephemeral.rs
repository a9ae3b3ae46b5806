//! Ephemeral volumes: each gets a claim that goes with its pod
//! (<https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#generic-ephemeral-volumes>).

use freehold_client::{Client, Error};
use freehold_controllers_context::kinds::{CLAIMS, PODS};
use freehold_controllers_context::object::{
    controller_of, controller_reference, items, namespace_terminates, text,
};
use freehold_controllers_context::pods::PodView;
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta};
use freehold_runtime::{EventType, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store};
use serde_json::json;

/// The claims that a pod's ephemeral volumes need.
fn decide(pod: &Value) -> Vec<Value> {
    let volumes = items(pod, "/spec/volumes").iter().filter(|volume| volume["ephemeral"].is_object());
    let claim = |volume: &Value| {
        let template = &volume["ephemeral"]["volumeClaimTemplate"];
        let mut metadata = json!({
            "name": format!("{}-{}", meta::name(pod), text(volume, "/name")), "namespace": meta::namespace(pod),
            "ownerReferences": [controller_reference(pod)],
        });
        for field in ["labels", "annotations"] {
            if let Some(value) = template.pointer("/metadata").and_then(|m| m.get(field)) {
                metadata[field] = value.clone();
            }
        }
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]})
    };
    volumes.map(claim).collect()
}

/// Whether a claim was made for a pod.
fn is_of(claim: &Value, pod: &Value) -> bool {
    controller_of(claim).is_some_and(|owner| owner["uid"] == meta::uid(pod))
}

struct Ephemeral {
    planes: Planes,
    pods: Store<PodView>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let on_pods = queue.clone();
    context.pods().on_change(move |change| {
        let is_new = change.old.is_none();
        if change.new.as_ref().is_some_and(|pod| is_new && pod.has_ephemeral && !pod.deleting) {
            on_pods.add(change.key.clone());
        }
    });
    let pods = context.pods().store();
    let (on_claims, users) = (queue.clone(), pods.clone());
    context.claims().on_change(move |change| {
        if change.new.is_some() {
            return;
        }
        // One that somebody deleted comes again.
        for (key, pod) in users.in_namespace(&change.key.plane, &change.key.namespace) {
            if pod.has_ephemeral && !pod.deleting {
                on_claims.add(key);
            }
        }
    });
    let claims = context.claims().store();
    let controller = Ephemeral {
        planes: context.planes.clone(),
        pods: pods.clone(),
        recorder: Recorder::new("ephemeral_volume"),
    };
    context.control("ephemeral-volume", 4, &queue, &[&pods, &claims], controller);
}

impl Reconcile for Ephemeral {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.pods.get(&key).is_some_and(|pod| pod.has_ephemeral && !pod.deleting) {
            return Ok(Outcome::Done);
        }
        let client = self.planes.client(&key.plane);
        let Some(pod) = client.get_opt(&PODS, key.ns(), &key.name).await? else { return Ok(Outcome::Done) };
        if meta::is_deleting(&pod) {
            return Ok(Outcome::Done);
        }
        for claim in decide(&pod) {
            let name = meta::name(&claim).to_owned();
            if let Err(why) = create(&client, &key, &pod, &claim).await? {
                let message = format!("ephemeral volume {name}: {why}");
                self.recorder.event(&client, &pod, EventType::Warning, "FailedBinding", &message).await;
                return Err(message.into());
            }
        }
        Ok(Outcome::Done)
    }
}

/// Creates a claim unless the pod has it; gives why it can't have it.
async fn create(client: &Client, key: &Key, pod: &Value, claim: &Value) -> Result<Result<(), String>, Error> {
    match client.create(&CLAIMS, claim).await {
        Ok(_) => Ok(Ok(())),
        Err(error) if namespace_terminates(&error) => Ok(Ok(())),
        Err(error) if error.is_already_exists() => {
            let found = client.get_opt(&CLAIMS, key.ns(), meta::name(claim)).await?;
            let taken = found.is_some_and(|found| !is_of(&found, pod));
            let (name, whose) = (meta::name(claim), &key.name);
            let message = format!(
                "PVC {}/{name} was not created for pod {}/{whose} (pod is not owner)",
                key.namespace, key.namespace
            );
            Ok(if taken { Err(message) } else { Ok(()) })
        }
        Err(error) => Ok(Err(format!("create PVC {}: {error}", meta::name(claim)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ephemeral_volume_needs_a_claim_that_its_pod_controls() {
        let template =
            json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}});
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "uid": "u"},
            "spec": {"volumes": [
                {"name": "tmp", "emptyDir": {}}, {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}},
            ]},
        });
        let claims = decide(&pod);
        assert_eq!(claims.len(), 1);
        assert_eq!(
            (meta::name(&claims[0]), &claims[0]["metadata"]["labels"]),
            ("p-scratch", &json!({"a": "b"}))
        );
        assert_eq!(claims[0]["spec"], json!({"accessModes": ["ReadWriteOnce"]}));
        assert!(is_of(&claims[0], &pod));
        assert!(!is_of(&json!({"metadata": {}}), &pod));
        assert!(decide(&json!({"spec": {}})).is_empty());
    }
}
