//! Pods are taken into control by what selects them, and let go by what does not any more.

use crate::expectations::Expectations;
use crate::kinds::PODS;
use crate::object::{controller_reference, selects, unless_gone};
use crate::pods::PodView;
use freehold_client::{Client, Error, Patch, PatchOptions};
use freehold_machinery::{Value, meta, selector::Labels};
use freehold_runtime::Key;
use serde_json::json;
use std::sync::Arc;

type Pod = (Key, Arc<PodView>);

/// A pod that changes hands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Claim {
    /// Nothing controls it, and it is selected.
    Adopt(Key, String),
    /// It is controlled, and not selected.
    Release(Key, String),
}

/// The pods that change hands. Without `adopting` none is taken.
pub(crate) fn claims(selector: &Labels, adopting: bool, owned: &[Pod], orphans: &[Pod]) -> Vec<Claim> {
    let matches = |pod: &PodView| selects(selector, pod.labels.as_ref());
    let taken = orphans.iter().filter(|(_, pod)| adopting && matches(pod) && pod.is_active());
    let strangers = owned.iter().filter(|(_, pod)| !matches(pod) && !pod.deleting);
    let adopt = taken.map(|(key, pod)| Claim::Adopt(key.clone(), pod.uid.clone()));
    adopt.chain(strangers.map(|(key, pod)| Claim::Release(key.clone(), pod.uid.clone()))).collect()
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
