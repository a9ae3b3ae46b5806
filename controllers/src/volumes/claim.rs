//! What becomes of a claim.

use super::bind::{BIND_COMPLETED, BOUND_BY_CONTROLLER};
use super::matching::{class_of, find, has_class, is_for, mismatch};
use freehold_machinery::{Value, meta};
use freehold_runtime::object::text;
use std::sync::Arc;

/// The node that the scheduler chose for a claim whose volume is made for its first Pod.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Classes of these provisioners are not for programs outside of Kubernetes.
const IN_TREE: &str = "kubernetes.io/";

/// What is known of a claim's surroundings.
#[derive(Default)]
pub(super) struct Observed {
    /// Free volumes of the claim's class, and those that are reserved for the claim.
    pub(super) candidates: Vec<Arc<Value>>,
    /// The volume that `spec.volumeName` names.
    pub(super) named: Option<Arc<Value>>,
    /// The class that the claim names.
    pub(super) class: Option<Arc<Value>>,
    /// The name of the default class.
    pub(super) default_class: Option<String>,
}

/// A warning or notice about an object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Notice {
    pub(super) warning: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The next step for a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// It is bound to a volume, as far as it is not yet.
    Bind(Arc<Value>),
    /// It waits, in the phase `Pending`.
    Wait(Option<Notice>),
    /// Its volume or their connection is gone.
    Lost(Notice),
    /// It gets the default class.
    SetClass(String),
    /// A program outside makes its volume.
    Provision(String),
    /// Nothing: it is being deleted and never had a volume.
    Leave,
}

fn warning(reason: &'static str, message: impl Into<String>) -> Notice {
    Notice { warning: true, reason, message: message.into() }
}

fn notice(reason: &'static str, message: impl Into<String>) -> Notice {
    Notice { warning: false, reason, message: message.into() }
}

/// Decides the next step for a claim.
pub(super) fn decide(claim: &Value, observed: &Observed) -> Step {
    match meta::annotation(claim, BIND_COMPLETED) {
        Some(_) => decide_bound(claim, observed),
        None if text(claim, "/spec/volumeName").is_empty() => decide_free(claim, observed),
        None => decide_named(claim, observed),
    }
}

fn decide_bound(claim: &Value, observed: &Observed) -> Step {
    if text(claim, "/spec/volumeName").is_empty() {
        let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return Step::Lost(warning("ClaimLost", message));
    }
    let Some(volume) = &observed.named else {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return Step::Lost(warning("ClaimLost", message));
    };
    let holder = &volume["spec"]["claimRef"];
    if holder.is_object() && holder["uid"] != meta::uid(claim) {
        let message = "Two claims are bound to the same volume, this one is bound incorrectly";
        return Step::Lost(warning("ClaimMisbound", message));
    }
    Step::Bind(volume.clone())
}

fn decide_named(claim: &Value, observed: &Observed) -> Step {
    let Some(volume) = &observed.named else { return Step::Wait(None) };
    let name = meta::name(volume);
    if !volume["spec"]["claimRef"].is_object() {
        return match mismatch(volume, claim) {
            None => Step::Bind(volume.clone()),
            Some(why) => {
                let message = format!("Cannot bind to requested volume {name:?}: {why}");
                Step::Wait(Some(warning("VolumeMismatch", message)))
            }
        };
    }
    if is_for(volume, claim) {
        return Step::Bind(volume.clone());
    }
    let message = match meta::annotation(claim, BOUND_BY_CONTROLLER) {
        None => format!("volume {name:?} already bound to a different claim."),
        Some(_) => {
            let whose = |field| text(volume, field);
            format!(
                "volume {name:?} already bound to a different claim: {}/{}",
                whose("/spec/claimRef/namespace"),
                whose("/spec/claimRef/name")
            )
        }
    };
    Step::Wait(Some(warning("FailedBinding", message)))
}

fn decide_free(claim: &Value, observed: &Observed) -> Step {
    if meta::is_deleting(claim) {
        return Step::Leave;
    }
    let waits = observed.class.as_ref().is_some_and(|c| c["volumeBindingMode"] == "WaitForFirstConsumer");
    let delayed = waits && meta::annotation(claim, SELECTED_NODE).is_none_or(str::is_empty);
    if let Some(volume) = find(claim, &observed.candidates, waits) {
        return Step::Bind(volume);
    }
    if !has_class(claim)
        && let Some(class) = &observed.default_class
    {
        return Step::SetClass(class.clone());
    }
    if delayed {
        let message = "waiting for first consumer to be created before binding";
        return Step::Wait(Some(notice("WaitForFirstConsumer", message)));
    }
    let class = class_of(claim);
    if class.is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        return Step::Wait(Some(notice("FailedBinding", message)));
    }
    let Some(found) = &observed.class else {
        let message = format!("storageclass.storage.k8s.io {class:?} not found");
        return Step::Wait(Some(warning("ProvisioningFailed", message)));
    };
    match text(found, "/provisioner") {
        in_tree if in_tree.starts_with(IN_TREE) => {
            let message = format!("no volume plugin matched name: {in_tree}");
            Step::Wait(Some(warning("ProvisioningFailed", message)))
        }
        provisioner => Step::Provision(provisioner.to_owned()),
    }
}

/// Returns what a claim is told that waits for a program outside.
pub(super) fn provisioning(provisioner: &str) -> Notice {
    notice(
        "ExternalProvisioning",
        format!(
            "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the \
             system administrator. If volume creation is delayed, please verify that the provisioner is running and \
             correctly registered."
        ),
    )
}

/// Returns what is told of a claim that is larger than its volume, which a program outside expands.
pub(super) fn expansion(claim: &Value, volume: &Value) -> Option<Notice> {
    let size = |object: &Value, pointer: &str| {
        text(object, pointer).parse::<freehold_machinery::quantity::Quantity>().ok()
    };
    let wanted = size(claim, "/spec/resources/requests/storage")?;
    let grows = wanted > size(volume, "/spec/capacity/storage")? && claim["status"]["phase"] == "Bound";
    // Those in between have been begun by whoever expands.
    let is_new = !claim["status"]["allocatedResourceStatuses"].is_object()
        && freehold_runtime::object::items(claim, "/status/conditions").is_empty();
    (grows && is_new && volume["spec"]["csi"].is_object())
        .then(|| notice("ExternalExpanding", "waiting for an external controller to expand this PVC"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(annotations: Value, spec: Value) -> Value {
        json!({"metadata": {"name": "data", "namespace": "n", "uid": "u", "annotations": annotations}, "spec": spec})
    }

    fn volume(claim_ref: Value) -> Arc<Value> {
        Arc::new(json!({
            "metadata": {"name": "v"},
            "spec": {"capacity": {"storage": "1Gi"}, "claimRef": claim_ref}, "status": {"phase": "Available"},
        }))
    }

    fn class(provisioner: &str, mode: &str) -> Option<Arc<Value>> {
        Some(Arc::new(json!({"provisioner": provisioner, "volumeBindingMode": mode})))
    }

    fn reason(step: Step) -> &'static str {
        match step {
            Step::Wait(Some(notice)) | Step::Lost(notice) => notice.reason,
            Step::Wait(None) => "waits",
            Step::Bind(_) => "bind",
            Step::SetClass(_) => "class",
            Step::Provision(_) => "provision",
            Step::Leave => "leave",
        }
    }

    #[test]
    fn a_free_claim_is_bound_classed_provisioned_or_waits() {
        let free = |spec| claim(json!({}), spec);
        let named = || free(json!({"storageClassName": "c"}));
        let chosen = claim(json!({SELECTED_NODE: "n1"}), json!({"storageClassName": "c"}));
        let default = || Observed { default_class: Some("d".into()), ..Observed::default() };
        let of = |class| Observed { class, ..Observed::default() };
        let mut deleting = free(json!({}));
        deleting["metadata"]["deletionTimestamp"] = "x".into();
        let some = Observed { candidates: vec![volume(json!(null))], ..Observed::default() };
        let rows = [
            (free(json!({})), some, "bind"),
            (free(json!({})), Observed::default(), "FailedBinding"),
            (free(json!({})), default(), "class"),
            (free(json!({"storageClassName": ""})), default(), "FailedBinding"),
            (named(), Observed::default(), "ProvisioningFailed"),
            (named(), of(class("csi.example", "Immediate")), "provision"),
            (named(), of(class("kubernetes.io/no-provisioner", "Immediate")), "ProvisioningFailed"),
            (named(), of(class("csi.example", "WaitForFirstConsumer")), "WaitForFirstConsumer"),
            (chosen, of(class("csi.example", "WaitForFirstConsumer")), "provision"),
            (deleting, default(), "leave"),
        ];
        for (claim, observed, expected) in rows {
            assert_eq!(reason(decide(&claim, &observed)), expected, "{claim}");
        }
    }

    #[test]
    fn a_claim_that_names_a_volume_gets_that_one_or_waits() {
        let spec = json!({"volumeName": "v", "resources": {"requests": {"storage": "1Gi"}}});
        let named = |volume| Observed { named: volume, ..Observed::default() };
        let other = json!({"namespace": "n", "name": "other", "uid": "o"});
        let mut large = spec.clone();
        large["resources"]["requests"]["storage"] = "2Gi".into();
        let rows = [
            (spec.clone(), None, "waits"),
            (spec.clone(), Some(volume(json!(null))), "bind"),
            (spec.clone(), Some(volume(json!({"namespace": "n", "name": "data"}))), "bind"),
            (spec, Some(volume(other)), "FailedBinding"),
            (large, Some(volume(json!(null))), "VolumeMismatch"),
        ];
        for (spec, volume, expected) in rows {
            assert_eq!(reason(decide(&claim(json!({}), spec), &named(volume))), expected);
        }
    }

    #[test]
    fn a_bound_claim_without_its_volume_is_lost() {
        let bound = |spec| claim(json!({BIND_COMPLETED: "yes"}), spec);
        let named = |volume| Observed { named: volume, ..Observed::default() };
        let spec = || json!({"volumeName": "v"});
        let rows = [
            (json!({}), None, "ClaimLost"),
            (spec(), None, "ClaimLost"),
            (spec(), Some(volume(json!({"namespace": "n", "name": "data", "uid": "o"}))), "ClaimMisbound"),
            (spec(), Some(volume(json!({"namespace": "n", "name": "data", "uid": "u"}))), "bind"),
            (spec(), Some(volume(json!(null))), "bind"),
        ];
        for (spec, volume, expected) in rows {
            assert_eq!(reason(decide(&bound(spec), &named(volume))), expected);
        }
    }

    #[test]
    fn growth_of_a_bound_csi_claim_is_left_to_a_program_outside() {
        let mut grown = claim(json!({}), json!({"resources": {"requests": {"storage": "2Gi"}}}));
        grown["status"] = json!({"phase": "Bound"});
        let mut csi = (*volume(json!(null))).clone();
        csi["spec"]["csi"] = json!({"driver": "d"});
        assert_eq!(expansion(&grown, &csi).map(|n| n.reason), Some("ExternalExpanding"));
        assert_eq!(expansion(&grown, &volume(json!(null))), None);
        grown["status"]["conditions"] = json!([{"type": "Resizing"}]);
        assert_eq!(expansion(&grown, &csi), None);
    }
}
