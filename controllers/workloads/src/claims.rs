//! Pods are taken into control by what selects them, and let go by what does not any more.

use freehold_client::{Client, Error, Patch, PatchOptions};
use freehold_controllers_context::TOGETHER;
use freehold_controllers_context::expectations::Expectations;
use freehold_controllers_context::kinds::PODS;
use freehold_controllers_context::object::{controller_reference, own_entry, selector, selects, unless_gone};
use freehold_controllers_context::pods::PodView;
use freehold_machinery::{Value, meta, selector::Labels};
use freehold_runtime::{Change, Key, Queue, Store};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// A pod with its key.
pub(crate) type Pod = (Key, Arc<PodView>);

/// A pod that changes hands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Claim {
    /// Nothing controls it, and it is selected.
    Adopt(Key, String),
    /// It is controlled, and not selected.
    Release(Key, String),
}

/// The pods that change hands. Without `adopting` none is taken, and never one that has ended.
pub(crate) fn claims(selector: &Labels, adopting: bool, owned: &[Pod], orphans: &[Pod]) -> Vec<Claim> {
    let orphans: Vec<Pod> = orphans.iter().filter(|(_, pod)| pod.is_active()).cloned().collect();
    claims_where(&|(_, pod)| selects(selector, pod.labels.as_ref()), adopting, owned, &orphans)
}

/// The pods that change hands, where more than a selector says which do. Those that have ended are taken too.
pub(crate) fn claims_where(
    matches: &dyn Fn(&Pod) -> bool,
    adopting: bool,
    owned: &[Pod],
    orphans: &[Pod],
) -> Vec<Claim> {
    let taken = orphans.iter().filter(|pod| adopting && matches(pod) && !pod.1.deleting);
    let strangers = owned.iter().filter(|pod| !matches(pod) && !pod.1.deleting);
    let adopt = taken.map(|(key, pod)| Claim::Adopt(key.clone(), pod.uid.clone()));
    adopt.chain(strangers.map(|(key, pod)| Claim::Release(key.clone(), pod.uid.clone()))).collect()
}

/// Adds to a queue whom a pod concerns: the object that controls it or, if nothing does, those that select it. Their
/// store is indexed by [`own_entry`].
pub(crate) fn enqueue_owners(queue: &Arc<Queue<Key>>, sets: &Store<Value>, change: &Change<PodView>) {
    let (plane, namespace) = (&change.key.plane, &change.key.namespace);
    let (owned, free): (Vec<_>, Vec<_>) =
        [&change.old, &change.new].into_iter().flatten().partition(|pod| !pod.owner.is_empty());
    // Of many pods that become ready at about the same time the status tells at once.
    let stays = change.old.is_some() && change.new.as_ref().is_some_and(|pod| !pod.deleting);
    let delay = if stays { TOGETHER } else { Duration::ZERO };
    for pod in owned {
        for (key, _) in sets.by_index(plane, &own_entry(&pod.owner)) {
            queue.add_after(key, delay);
        }
    }
    if free.is_empty() {
        return;
    }
    for (key, set) in sets.in_namespace(plane, namespace) {
        if selector(&set).is_some_and(|s| free.iter().any(|pod| selects(&s, pod.labels.as_ref()))) {
            queue.add(key);
        }
    }
}

/// Makes them change hands. What is adopted gets `finalizers` as well.
pub(crate) async fn make_claims(
    client: &Client,
    key: &Key,
    owner: &Value,
    claims: Vec<Claim>,
    finalizers: Option<&Value>,
    written: &Expectations<Key>,
) -> Result<(), Error> {
    for claim in claims {
        let (pod, uid, patch) = match claim {
            Claim::Adopt(pod, uid) => {
                let mut metadata = json!({"uid": uid, "ownerReferences": [controller_reference(owner)]});
                if let Some(finalizers) = finalizers {
                    metadata["finalizers"] = finalizers.clone();
                }
                (pod, uid, metadata)
            }
            Claim::Release(pod, uid) => {
                let gone = json!([{"$patch": "delete", "uid": meta::uid(owner)}]);
                let mut metadata = json!({"uid": uid, "ownerReferences": gone});
                if let Some(finalizers) = finalizers {
                    metadata["$deleteFromPrimitiveList/finalizers"] = finalizers.clone();
                }
                (pod, uid, metadata)
            }
        };
        let patch = Patch::Strategic(json!({ "metadata": patch }));
        match client.patch(&PODS, pod.ns(), &pod.name, &patch, &PatchOptions::default()).await {
            Ok(answer) => written.expect(key, &answer),
            // It has another controller by now.
            Err(error) if error.code() == 422 => {}
            Err(error) => unless_gone(client, &PODS, (pod.ns(), &pod.name, &uid), error).await?,
        }
    }
    Ok(())
}
