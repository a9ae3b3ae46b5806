//! Who owns the claims of a StatefulSet's pods, so that they are deleted when its retention policy says so
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#persistentvolumeclaim-retention>).

use super::pod::in_range;
use freehold_controllers_context::object::{controller_reference, items, text};
use freehold_machinery::{Value, meta};
use serde_json::json;

/// What becomes of claims, as a set's `spec.persistentVolumeClaimRetentionPolicy` says it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Policy {
    /// They are deleted with the set.
    pub(super) with_set: bool,
    /// They are deleted with pods that the set has no use for any more.
    pub(super) with_pods: bool,
}

/// The pod of a claim: its name and uid, which is empty before it is created.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member<'a> {
    pub(super) name: &'a str,
    pub(super) uid: &'a str,
    pub(super) ordinal: i64,
}

impl Policy {
    pub(super) fn of(set: &Value) -> Self {
        let policy = &set["spec"]["persistentVolumeClaimRetentionPolicy"];
        Self { with_set: policy["whenDeleted"] == "Delete", with_pods: policy["whenScaled"] == "Delete" }
    }

    fn keeps(self) -> bool {
        !self.with_set && !self.with_pods
    }
}

/// The owners that a new claim of a pod gets, or one that nobody else has to do with.
pub(super) fn owners(set: &Value, pod: Member<'_>) -> Vec<Value> {
    let policy = Policy::of(set);
    let surplus = !in_range(set, pod.ordinal);
    match (policy.with_pods && surplus, policy.with_set && !(policy.with_pods && surplus)) {
        (true, _) => vec![json!({
            "apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": true,
            "blockOwnerDeletion": true,
        })],
        (_, true) => vec![controller_reference(set)],
        _ => Vec::new(),
    }
}

/// The owners that a claim is to have instead of those that it has; `None` where it has them or is none of ours.
pub(super) fn corrected(claim: &Value, set: &Value, pod: Member<'_>) -> Option<Vec<Value>> {
    let references = items(claim, "/metadata/ownerReferences");
    let names_set = |r: &Value| {
        r["apiVersion"] == "apps/v1" && r["kind"] == "StatefulSet" && text(r, "/name") == meta::name(set)
    };
    let names_pod = |r: &Value| r["apiVersion"] == "v1" && r["kind"] == "Pod" && text(r, "/name") == pod.name;
    let is_set = |r: &Value| text(r, "/uid") == meta::uid(set);
    let is_pod = |r: &Value| text(r, "/uid") == pod.uid;
    // One of an earlier set or pod of this name is left to the garbage collector.
    if references.iter().any(|r| names_set(r) && !is_set(r) || names_pod(r) && !is_pod(r)) {
        return None;
    }
    let others: Vec<Value> = references.iter().filter(|r| !names_set(r) && !names_pod(r)).cloned().collect();
    let has_ours = references.iter().any(|r| is_set(r) || is_pod(r));
    if !Policy::of(set).keeps() && others.iter().any(|r| r["controller"] == true) {
        return has_ours.then_some(others);
    }
    let wanted: Vec<Value> = others.into_iter().chain(owners(set, pod)).collect();
    let uids = |list: &[Value]| {
        let mut uids: Vec<(String, bool)> =
            list.iter().map(|r| (text(r, "/uid").to_owned(), r["controller"] == true)).collect();
        uids.sort_unstable();
        uids
    };
    (uids(references) != uids(&wanted)).then_some(wanted)
}

/// Whether a claim belongs to an earlier pod of this name, and goes with it: its successor has to wait.
pub(super) fn is_stale(claim: &Value, set: &Value, pod: &str) -> bool {
    let names_pod = |r: &Value| r["apiVersion"] == "v1" && r["kind"] == "Pod" && text(r, "/name") == pod;
    Policy::of(set).with_pods && items(claim, "/metadata/ownerReferences").iter().any(names_pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(deleted: &str, scaled: &str) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web", "uid": "s"},
            "spec": {
                "replicas": 2,
                "persistentVolumeClaimRetentionPolicy": {"whenDeleted": deleted, "whenScaled": scaled},
            },
        })
    }

    fn claim(owners: Value) -> Value {
        json!({"metadata": {"ownerReferences": owners}})
    }

    fn uids(owners: &[Value]) -> Vec<&str> {
        owners.iter().map(|owner| text(owner, "/uid")).collect()
    }

    #[test]
    fn claims_are_owned_by_whom_they_go_with() {
        for (deleted, scaled, ordinal, expected) in [
            ("Retain", "Retain", 1, vec![]),
            ("Retain", "Retain", 2, vec![]),
            ("Delete", "Retain", 1, vec!["s"]),
            ("Delete", "Retain", 2, vec!["s"]),
            ("Retain", "Delete", 1, vec![]),
            ("Retain", "Delete", 2, vec!["p"]),
            ("Delete", "Delete", 1, vec!["s"]),
            ("Delete", "Delete", 2, vec!["p"]),
        ] {
            let set = set(deleted, scaled);
            let pod = Member { name: "web-x", uid: "p", ordinal };
            let given = owners(&set, pod);
            assert_eq!(uids(&given), expected, "{deleted} {scaled} {ordinal}");
            assert_eq!(corrected(&claim(given.clone().into()), &set, pod), None, "it stays so");
            let changed = corrected(&claim(json!([])), &set, pod);
            assert_eq!(changed.is_some(), !expected.is_empty());
        }
    }

    #[test]
    fn claims_that_others_have_to_do_with_are_left_alone() {
        let pod = Member { name: "web-0", uid: "p", ordinal: 0 };
        let other =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c", "controller": true});
        let own = controller_reference(&set("Delete", "Retain"));
        let earlier = json!({"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "before"});
        let rows = [
            (set("Delete", "Retain"), json!([other]), None),
            (set("Delete", "Retain"), json!([other, own]), Some(vec!["c"])),
            (set("Retain", "Retain"), json!([own]), Some(vec![])),
            (set("Delete", "Delete"), json!([earlier]), None),
        ];
        for (set, owners, expected) in rows {
            let changed = corrected(&claim(owners.clone()), &set, pod);
            assert_eq!(changed.as_deref().map(uids), expected, "{owners}");
        }
        assert!(is_stale(&claim(json!([earlier])), &set("Retain", "Delete"), "web-0"));
        assert!(!is_stale(&claim(json!([earlier])), &set("Delete", "Retain"), "web-0"));
    }
}
