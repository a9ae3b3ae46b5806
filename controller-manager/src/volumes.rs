//! Volumes, claims and classes of attributes that are being deleted: each goes when nothing uses it any more
//! (<https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection>).
//!
//! Their finalizers are added when they are made, by the admission plugin StorageObjectInUseProtection. Of those that are
//! not being deleted nothing is kept here.

use freehold_client::{Client, Error, ListOptions, PatchOptions, Resource};
use freehold_controllers_context::kinds::{ATTRIBUTES_CLASSES, CLAIMS, PODS, VOLUMES};
use freehold_controllers_context::object::{finalizer_patch, items, text};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, QueueKey, Reconciled, Store};
use std::time::Duration;

/// How often a used object is looked at without a cause.
const AGAIN: Duration = Duration::from_secs(15);

/// What is protected: of which resource, by which finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Protected {
    Claim,
    Volume,
    AttributesClass,
}

impl Protected {
    const ALL: [Self; 3] = [Self::Claim, Self::Volume, Self::AttributesClass];

    fn resource(self) -> Resource {
        match self {
            Self::Claim => CLAIMS,
            Self::Volume => VOLUMES,
            Self::AttributesClass => ATTRIBUTES_CLASSES,
        }
    }

    fn finalizer(self) -> &'static str {
        match self {
            Self::Claim => "kubernetes.io/pvc-protection",
            Self::Volume => "kubernetes.io/pv-protection",
            Self::AttributesClass => "kubernetes.io/vac-protection",
        }
    }

    /// Whether an object waits for this finalizer to go.
    fn waits(self, object: &Value) -> bool {
        meta::is_deleting(object) && meta::finalizers(object).contains(&self.finalizer())
    }
}

/// An object that waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Waiting {
    what: Protected,
    key: Key,
}

impl QueueKey for Waiting {
    fn plane(&self) -> &PlaneId {
        &self.key.plane
    }
}

/// Whether a Pod keeps a claim: one that is on a node, and has not ended where the claim was made for it.
fn uses(pod: &Value, claim: &Value) -> bool {
    if text(pod, "/spec/nodeName").is_empty() {
        return false;
    }
    let ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
    let owned = items(claim, "/metadata/ownerReferences")
        .iter()
        .any(|owner| owner["controller"] == true && owner["uid"] == meta::uid(pod));
    items(pod, "/spec/volumes").iter().any(|volume| {
        let of_its_own = format!("{}-{}", meta::name(pod), text(volume, "/name"));
        let ephemeral = volume["ephemeral"].is_object() && of_its_own == meta::name(claim);
        text(volume, "/persistentVolumeClaim/claimName") == meta::name(claim) || ephemeral && owned && !ended
    })
}

/// Whether a claim or volume names a class of attributes.
fn names_class(object: &Value, class: &str) -> bool {
    [
        "/spec/volumeAttributesClassName",
        "/status/currentVolumeAttributesClassName",
        "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
    ]
    .iter()
    .any(|field| text(object, field) == class)
}

struct Volumes {
    planes: Planes,
    waiting: [Store<()>; 3],
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let waiting = Protected::ALL.map(|what| {
        let interest = Interest::projected(what.resource(), move |object| what.waits(&object).then_some(()));
        let mut informer = Informer::new(&context.planes, interest);
        let queue = queue.clone();
        informer.on_change(move |change| queue.add(Waiting { what, key: change.key.clone() }));
        context.run_informer(informer)
    });
    // A Pod that goes or ends may have been the last that used a claim.
    let (claims, on_pods) = (waiting[0].clone(), queue.clone());
    context.pods().on_change(move |change| {
        if change.new.as_ref().is_some_and(|pod| pod.is_active()) {
            return;
        }
        for (key, _) in claims.in_namespace(&change.key.plane, &change.key.namespace) {
            on_pods.add(Waiting { what: Protected::Claim, key });
        }
    });
    let pods = context.pods().store();
    let [claims, volumes, classes] = waiting.clone();
    let controller = Volumes { planes: context.planes.clone(), waiting };
    context.control("volume-protection", 4, &queue, &[&pods, &claims, &volumes, &classes], controller);
}

impl Reconcile for Volumes {
    type Key = Waiting;

    async fn reconcile(&self, Waiting { what, key }: Waiting) -> Reconciled {
        if self.waiting[what as usize].get(&key).is_none() {
            return Ok(Outcome::Done);
        }
        let (client, resource) = (self.planes.client(&key.plane), what.resource());
        let namespace = key.ns();
        let Some(object) = client.get_opt(&resource, namespace, &key.name).await? else {
            return Ok(Outcome::Done);
        };
        if !what.waits(&object) {
            return Ok(Outcome::Done);
        }
        if in_use(&client, what, &object).await? {
            return Ok(Outcome::After(AGAIN));
        }
        if let Some(patch) = finalizer_patch(&object, what.finalizer(), false) {
            let patched =
                client.patch(&resource, namespace, &key.name, &patch, &PatchOptions::default()).await;
            match patched {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(Outcome::Done)
    }
}

/// Whether something uses an object, as the server knows it now.
async fn in_use(client: &Client, what: Protected, object: &Value) -> Result<bool, Error> {
    let all = ListOptions::default();
    Ok(match what {
        Protected::Claim => {
            let pods = client.list_all(&PODS, Some(meta::namespace(object)), &all).await?.items;
            pods.iter().any(|pod| uses(pod, object))
        }
        Protected::Volume => text(object, "/status/phase") == "Bound",
        Protected::AttributesClass => {
            let claims = client.list_all(&CLAIMS, None, &all).await?.items;
            let volumes = client.list_all(&VOLUMES, None, &all).await?.items;
            claims.iter().chain(&volumes).any(|other| names_class(other, meta::name(object)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_claim_is_used_by_pods_on_nodes_that_name_it() {
        let claim =
            json!({"metadata": {"name": "p-v", "ownerReferences": [{"uid": "u", "controller": true}]}});
        let pod = |node: &str, phase: &str, volume: Value| {
            json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": node, "volumes": [volume]},
                "status": {"phase": phase}})
        };
        let named = || json!({"name": "x", "persistentVolumeClaim": {"claimName": "p-v"}});
        let own = || json!({"name": "v", "ephemeral": {}});
        for (pod, used) in [
            (pod("n", "Running", named()), true),
            (pod("n", "Failed", named()), true),
            (pod("", "Pending", named()), false),
            (pod("n", "Running", own()), true),
            (pod("n", "Succeeded", own()), false),
            (pod("n", "Running", json!({"name": "v", "emptyDir": {}})), false),
        ] {
            assert_eq!(uses(&pod, &claim), used, "{pod}");
        }
    }

    #[test]
    fn an_object_waits_that_is_deleted_and_has_the_finalizer() {
        let of = |finalizer: &str| json!({"metadata": {"deletionTimestamp": "x", "finalizers": [finalizer]}});
        assert!(Protected::Volume.waits(&of("kubernetes.io/pv-protection")));
        assert!(!Protected::Claim.waits(&of("kubernetes.io/pv-protection")));
        assert!(
            !Protected::Claim.waits(&json!({"metadata": {"finalizers": ["kubernetes.io/pvc-protection"]}}))
        );
    }

    #[test]
    fn a_class_is_used_by_claims_that_have_it_or_change_to_it() {
        assert!(names_class(&json!({"spec": {"volumeAttributesClassName": "gold"}}), "gold"));
        assert!(names_class(&json!({"status": {"currentVolumeAttributesClassName": "gold"}}), "gold"));
        assert!(!names_class(&json!({"spec": {}}), "gold"));
    }
}
