//! What becomes of a volume.

use super::claim::Notice;
use super::matching::mode_differs;
use freehold_machinery::{Value, meta};
use freehold_runtime::object::text;

const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Annotation of volumes whose driver moved out of Kubernetes: that one deletes them.
const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";

/// The next step for a volume.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// It is free, or reserved for a claim that does not have it yet.
    Available,
    /// Its claim has it.
    Bound,
    /// Its claim is gone, and somebody decides what becomes of it: an administrator or its driver.
    Released,
    /// It can't be reclaimed.
    Failed(Notice),
    /// It goes back: its claim has another volume.
    Unbind,
    /// The claim that it is reserved for has to be looked at.
    AskClaim,
    /// Nothing, but somebody is told why it can't be bound.
    Refuse(Notice),
    /// Nothing.
    Leave,
}

/// Decides the next step for a volume; `claim` is the one of `spec.claimRef`'s name, whatever its uid.
pub(super) fn decide(volume: &Value, claim: Option<&Value>) -> Step {
    let reference = &volume["spec"]["claimRef"];
    let uid = text(reference, "/uid");
    if !reference.is_object() || uid.is_empty() {
        return Step::Available;
    }
    let Some(claim) = claim.filter(|claim| meta::uid(claim) == uid) else { return reclaim(volume) };
    match text(claim, "/spec/volumeName") {
        "" if mode_differs(volume, claim) => Step::Refuse(Notice {
            warning: true,
            reason: "VolumeMismatch",
            message: format!(
                "Cannot bind PersistentVolume to requested PersistentVolumeClaim {:?} due to incompatible volumeMode.",
                meta::name(claim)
            ),
        }),
        "" => Step::AskClaim,
        name if name == meta::name(volume) => Step::Bound,
        _ if is_provisioned(volume) && policy(volume) == "Delete" => reclaim(volume),
        _ => Step::Unbind,
    }
}

fn policy(volume: &Value) -> &str {
    match text(volume, "/spec/persistentVolumeReclaimPolicy") {
        "" => "Retain",
        policy => policy,
    }
}

fn is_provisioned(volume: &Value) -> bool {
    meta::annotation(volume, PROVISIONED_BY).is_some()
}

/// Decides what becomes of a volume whose claim is gone.
fn reclaim(volume: &Value) -> Step {
    let failed =
        |reason, message: &str| Step::Failed(Notice { warning: true, reason, message: message.to_owned() });
    // Those of CSI are their drivers', whoever made them.
    let is_ours = meta::annotation(volume, MIGRATED_TO).is_none() && !volume["spec"]["csi"].is_object();
    match policy(volume) {
        _ if volume["status"]["phase"] == "Failed" => Step::Leave,
        "Recycle" if is_ours => failed("VolumeFailedRecycle", "No recycler plugin found for the volume!"),
        // Whoever made it, or its driver, deletes it.
        "Delete" if is_ours && !is_provisioned(volume) && volume["status"]["phase"] == "Released" => {
            let message = format!(
                "error getting deleter volume plugin for volume {:?}: no deletable volume plugin matched",
                meta::name(volume)
            );
            failed("VolumeFailedDelete", &message)
        }
        _ => Step::Released,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn volume(reference: Value, policy: &str, annotations: Value, phase: &str) -> Value {
        json!({
            "metadata": {"name": "v", "annotations": annotations},
            "spec": {"claimRef": reference, "persistentVolumeReclaimPolicy": policy}, "status": {"phase": phase},
        })
    }

    #[test]
    fn a_volume_follows_its_claim() {
        let reference = |uid: &str| json!({"namespace": "n", "name": "data", "uid": uid});
        let claim = |volume: &str| {
            Some(json!({"metadata": {"name": "data", "uid": "u"}, "spec": {"volumeName": volume}}))
        };
        let made = json!({PROVISIONED_BY: "csi.example"});
        let rows = [
            (volume(json!(null), "Retain", json!({}), "Pending"), None, "Available"),
            (volume(reference(""), "Retain", json!({}), "Pending"), claim(""), "Available"),
            (volume(reference("u"), "Retain", json!({}), "Available"), claim(""), "AskClaim"),
            (volume(reference("u"), "Retain", json!({}), "Available"), claim("v"), "Bound"),
            (volume(reference("u"), "Retain", json!({}), "Available"), claim("other"), "Unbind"),
            (volume(reference("u"), "Delete", made.clone(), "Available"), claim("other"), "Released"),
            (volume(reference("u"), "Retain", json!({}), "Bound"), None, "Released"),
            (volume(reference("old"), "Retain", json!({}), "Bound"), claim("v"), "Released"),
            (volume(reference("u"), "Delete", made, "Released"), None, "Released"),
            (volume(reference("u"), "Delete", json!({}), "Bound"), None, "Released"),
            (volume(reference("u"), "Delete", json!({}), "Released"), None, "VolumeFailedDelete"),
            (volume(reference("u"), "Recycle", json!({}), "Bound"), None, "VolumeFailedRecycle"),
            (volume(reference("u"), "Delete", json!({}), "Failed"), None, "Leave"),
        ];
        for (volume, claim, expected) in rows {
            let step = match decide(&volume, claim.as_ref()) {
                Step::Failed(notice) => notice.reason.to_owned(),
                other => format!("{other:?}"),
            };
            assert_eq!(step, expected, "{volume}");
        }
    }

    #[test]
    fn a_volume_of_a_driver_is_left_to_it() {
        let reference = json!({"namespace": "n", "name": "data", "uid": "u"});
        let mut driven = volume(reference, "Delete", json!({}), "Released");
        driven["spec"]["csi"] = json!({"driver": "csi.example"});
        assert_eq!(decide(&driven, None), Step::Released);
    }

    #[test]
    fn a_reserved_volume_of_another_mode_is_refused() {
        let reference = json!({"namespace": "n", "name": "data", "uid": "u"});
        let claim = json!({"metadata": {"name": "data", "uid": "u"}, "spec": {"volumeMode": "Block"}});
        let step = decide(&volume(reference, "Retain", json!({}), "Available"), Some(&claim));
        assert!(matches!(step, Step::Refuse(notice) if notice.reason == "VolumeMismatch"));
    }
}
