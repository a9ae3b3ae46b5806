//! The writes that bind a claim and a volume, each of them `None` where it is done.

use super::matching::is_for;
use freehold_client::Patch;
use freehold_machinery::{Map, Value, meta};
use serde_json::json;

/// Marks a claim whose binding has been completed once.
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Marks what the controller, not a user, connected.
pub(super) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
const PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
const OLD_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";

/// Returns a merge patch of an object that is refused if the object changed meanwhile.
fn guarded(object: &Value, mut patch: Value) -> Patch {
    patch["metadata"]["resourceVersion"] = meta::resource_version(object).into();
    Patch::Merge(patch)
}

/// Makes a volume refer to a claim.
pub(super) fn volume_to_claim(volume: &Value, claim: &Value) -> Option<Patch> {
    let reserved = volume["spec"]["claimRef"].is_object() && is_for(volume, claim);
    if reserved && volume["spec"]["claimRef"]["uid"] == meta::uid(claim) {
        return None;
    }
    let reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": meta::namespace(claim),
        "name": meta::name(claim), "uid": meta::uid(claim), "resourceVersion": meta::resource_version(claim),
    });
    let mut patch = json!({"spec": {"claimRef": reference}});
    if !reserved && meta::annotation(volume, BOUND_BY_CONTROLLER).is_none() {
        patch["metadata"] = json!({"annotations": {BOUND_BY_CONTROLLER: "yes"}});
    }
    Some(guarded(volume, patch))
}

/// Makes a claim refer to a volume, for good.
pub(super) fn claim_to_volume(claim: &Value, volume: &Value) -> Option<Patch> {
    let (mut annotations, mut patch) = (Map::new(), json!({}));
    if claim["spec"]["volumeName"] != meta::name(volume) {
        patch["spec"] = json!({"volumeName": meta::name(volume)});
        annotations.insert(BOUND_BY_CONTROLLER.into(), "yes".into());
    }
    if meta::annotation(claim, BIND_COMPLETED).is_none() {
        annotations.insert(BIND_COMPLETED.into(), "yes".into());
    }
    if annotations.is_empty() {
        return None;
    }
    patch["metadata"] = json!({"annotations": annotations});
    Some(guarded(claim, patch))
}

/// Ends a volume's connection to a claim that has another one: it is free again or, where a user reserved it, waits.
pub(super) fn unbind(volume: &Value) -> Patch {
    if meta::annotation(volume, BOUND_BY_CONTROLLER).is_some() {
        let metadata = json!({"annotations": {BOUND_BY_CONTROLLER: null}});
        return guarded(volume, json!({"metadata": metadata, "spec": {"claimRef": null}}));
    }
    guarded(volume, json!({"spec": {"claimRef": {"uid": null, "resourceVersion": null}}}))
}

/// Gives a claim the default class.
pub(super) fn class(claim: &Value, class: &str) -> Patch {
    guarded(claim, json!({"spec": {"storageClassName": class}}))
}

/// Names the program that is to make a claim's volume.
pub(super) fn provisioner(claim: &Value, provisioner: &str) -> Option<Patch> {
    if meta::annotation(claim, PROVISIONER) == Some(provisioner) {
        return None;
    }
    let annotations = json!({PROVISIONER: provisioner, OLD_PROVISIONER: provisioner});
    Some(guarded(claim, json!({"metadata": {"annotations": annotations}})))
}

/// Sets the phase of a volume.
pub(super) fn volume_phase(volume: &Value, phase: &str, message: &str) -> Option<Patch> {
    if volume["status"]["phase"] == phase {
        return None;
    }
    let message = if message.is_empty() { Value::Null } else { message.into() };
    Some(guarded(volume, json!({"status": {"phase": phase, "message": message, "reason": null}})))
}

/// Sets the phase of a claim, and what it has of its volume. A size that was told once is not changed here: whoever
/// expands volumes tells it.
pub(super) fn claim_status(claim: &Value, phase: &str, volume: Option<&Value>) -> Option<Patch> {
    let status = &claim["status"];
    let becomes = status["phase"] != phase;
    let mut patch = Map::new();
    let mut set = |field: &str, value: Value| {
        let has = status.get(field).unwrap_or(&Value::Null);
        if *has != value {
            patch.insert(field.to_owned(), value);
        }
    };
    set("phase", phase.into());
    match volume {
        None => ["accessModes", "capacity"].into_iter().for_each(|field| set(field, Value::Null)),
        Some(volume) => {
            set("accessModes", volume["spec"]["accessModes"].clone());
            if becomes {
                let size = volume.pointer("/spec/capacity/storage").cloned();
                set("capacity", size.map_or(Value::Null, |size| json!({"storage": size})));
                let class = volume["spec"]["volumeAttributesClassName"].clone();
                set("currentVolumeAttributesClassName", class);
            }
        }
    }
    (!patch.is_empty()).then(|| guarded(claim, json!({"status": patch})))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(patch: Option<Patch>) -> Value {
        match patch {
            Some(Patch::Merge(mut body)) => {
                body["metadata"]["resourceVersion"].take();
                body
            }
            Some(_) => panic!("another patch"),
            None => Value::Null,
        }
    }

    fn claim() -> Value {
        json!({"metadata": {"name": "data", "namespace": "n", "uid": "u", "resourceVersion": "7"}, "spec": {}})
    }

    #[test]
    fn a_binding_is_written_once_and_says_who_made_it() {
        let mut volume = json!({"metadata": {"name": "v"}, "spec": {}});
        let patch = body(volume_to_claim(&volume, &claim()));
        assert_eq!(patch["spec"]["claimRef"]["uid"], "u");
        assert_eq!(patch["metadata"]["annotations"], json!({BOUND_BY_CONTROLLER: "yes"}));
        volume["spec"]["claimRef"] = json!({"namespace": "n", "name": "data"});
        let patch = body(volume_to_claim(&volume, &claim()));
        assert_eq!(patch["spec"]["claimRef"]["uid"], "u");
        assert_eq!(patch["metadata"]["annotations"], Value::Null, "a user reserved it");
        volume["spec"]["claimRef"]["uid"] = "u".into();
        assert!(volume_to_claim(&volume, &claim()).is_none());

        let mut bound = claim();
        let patch = body(claim_to_volume(&bound, &volume));
        assert_eq!(patch["spec"], json!({"volumeName": "v"}));
        assert_eq!(
            patch["metadata"]["annotations"],
            json!({BOUND_BY_CONTROLLER: "yes", BIND_COMPLETED: "yes"})
        );
        bound["spec"]["volumeName"] = "v".into();
        let patch = body(claim_to_volume(&bound, &volume));
        assert_eq!(patch["metadata"]["annotations"], json!({BIND_COMPLETED: "yes"}));
        bound["metadata"]["annotations"] = json!({BIND_COMPLETED: "yes"});
        assert!(claim_to_volume(&bound, &volume).is_none());
    }

    #[test]
    fn a_size_is_told_when_a_claim_becomes_bound_and_not_later() {
        let volume = json!({"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}}});
        let mut bound = claim();
        bound["status"] = json!({"phase": "Pending"});
        let status = body(claim_status(&bound, "Bound", Some(&volume)))["status"].take();
        assert_eq!(
            status,
            json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "5Gi"}})
        );
        bound["status"] = status;
        bound["status"]["capacity"]["storage"] = "9Gi".into();
        assert!(claim_status(&bound, "Bound", Some(&volume)).is_none());
        let lost = body(claim_status(&bound, "Lost", None))["status"].take();
        assert_eq!(lost, json!({"phase": "Lost", "accessModes": null, "capacity": null}));
    }

    #[test]
    fn an_unbound_volume_keeps_what_a_user_reserved() {
        let by = |who: Value| json!({"metadata": {"annotations": who}, "spec": {"claimRef": {"uid": "u"}}});
        let patch = body(Some(unbind(&by(json!({BOUND_BY_CONTROLLER: "yes"})))));
        assert_eq!(patch["spec"], json!({"claimRef": null}));
        let patch = body(Some(unbind(&by(json!({})))));
        assert_eq!(patch["spec"], json!({"claimRef": {"uid": null, "resourceVersion": null}}));
    }
}
