//! What Pods need of ResourceClaims, and what becomes of claims.

use freehold_machinery::{Map, Value, meta};
use freehold_runtime::object::{controller_of, controller_reference, items, text};
use serde_json::json;

/// The name, within its Pod, of the entry that a claim was made for.
pub(super) const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// Held by a claim as long as devices are allocated to it.
pub(super) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Reports whether nothing of a Pod will run any more.
pub(super) fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
        || meta::is_deleting(pod) && text(pod, "/spec/nodeName").is_empty()
}

/// Reports whether a Pod has entries whose claims are made from templates.
pub(super) fn has_templates(pod: &Value) -> bool {
    templates(pod).next().is_some()
}

/// Returns the entries of a Pod whose claims are made from templates: name and template.
pub(super) fn templates(pod: &Value) -> impl Iterator<Item = (&str, &str)> {
    let entries = items(pod, "/spec/resourceClaims").iter();
    entries
        .map(|entry| (text(entry, "/name"), text(entry, "/resourceClaimTemplateName")))
        .filter(|(_, t)| !t.is_empty())
}

/// Returns the name of a Pod's claim as its status has it; `None` where nothing is said.
pub(super) fn told<'a>(pod: &'a Value, entry: &str) -> Option<&'a str> {
    let all = items(pod, "/status/resourceClaimStatuses").iter();
    all.filter(|status| status["name"] == entry).find_map(|status| status["resourceClaimName"].as_str())
}

/// Reports whether a claim was made for an entry of a Pod.
pub(super) fn is_of(claim: &Value, pod: &Value, entry: &str) -> bool {
    meta::annotation(claim, POD_CLAIM) == Some(entry)
        && controller_of(claim).is_some_and(|owner| owner["uid"] == meta::uid(pod))
}

/// Returns the claim that an entry of a Pod gets from a template.
pub(super) fn make(pod: &Value, entry: &str, template: &Value) -> Value {
    let from = |field: &str| template.pointer("/spec/metadata").and_then(|m| m.get(field)).cloned();
    let mut annotations = from("annotations").and_then(|a| a.as_object().cloned()).unwrap_or_default();
    annotations.insert(POD_CLAIM.to_owned(), entry.into());
    // Names of Pods may be as long as names can be.
    let start: String = format!("{}-{entry}", meta::name(pod)).chars().take(240).collect();
    let mut owner = controller_reference(pod);
    // As with kube-controller-manager, the Pod's deletion does not wait for it.
    owner.as_object_mut().map(|owner| owner.remove("blockOwnerDeletion"));
    let mut metadata = json!({
        "generateName": format!("{start}-"), "namespace": meta::namespace(pod), "annotations": annotations,
        "ownerReferences": [owner],
    });
    if let Some(labels) = from("labels") {
        metadata["labels"] = labels;
    }
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata,
        "spec": template.pointer("/spec/spec").cloned().unwrap_or_else(|| Map::new().into()),
    })
}

/// The next step for a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Its status is written: those whose Pods ended no longer have it, and devices that nobody has are free.
    Status(Value),
    /// Its finalizer goes, as no devices are allocated.
    Unprotect,
    /// It goes: the Pod that it was made for has ended.
    Delete,
    /// Nothing.
    Leave,
}

/// Returns the names of Pods, with their uids, that a claim's status or owner names.
pub(super) fn pods_of(claim: &Value) -> Vec<(&str, &str)> {
    let reserved = items(claim, "/status/reservedFor").iter().filter(|user| is_pod(user));
    let owner = controller_of(claim).filter(|owner| owner["kind"] == "Pod" && owner["apiVersion"] == "v1");
    reserved.chain(owner).map(|user| (text(user, "/name"), text(user, "/uid"))).collect()
}

fn is_pod(user: &Value) -> bool {
    user["resource"] == "pods" && text(user, "/apiGroup").is_empty()
}

/// Decides the next step for a claim. `needs` reports whether a Pod of this name and uid exists and goes on.
pub(super) fn decide(claim: &Value, needs: impl Fn(&str, &str) -> bool) -> Step {
    let users = items(claim, "/status/reservedFor");
    // Other users are looked after by whoever made them such.
    let kept: Vec<&Value> =
        users.iter().filter(|u| !is_pod(u) || needs(text(u, "/name"), text(u, "/uid"))).collect();
    let is_protected = meta::finalizers(claim).contains(&FINALIZER);
    let is_allocated = claim["status"]["allocation"].is_object();
    let unused = kept.is_empty();
    let frees = unused && is_protected && (!users.is_empty() || meta::is_deleting(claim));
    if kept.len() < users.len() || frees && is_allocated {
        let mut status = json!({"reservedFor": if unused { Value::Null } else { json!(kept) }});
        if frees && is_allocated {
            status["allocation"] = Value::Null;
        }
        return Step::Status(status);
    }
    if is_protected && unused && !is_allocated {
        return Step::Unprotect;
    }
    let owner = controller_of(claim).filter(|owner| owner["kind"] == "Pod" && owner["apiVersion"] == "v1");
    match owner {
        Some(owner) if unused && !meta::is_deleting(claim) => {
            match needs(text(owner, "/name"), text(owner, "/uid")) {
                true => Step::Leave,
                false => Step::Delete,
            }
        }
        _ => Step::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_made_as_its_template_says() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train", "namespace": "n", "uid": "u"},
            "spec": {"resourceClaims": [
                {"name": "gpu", "resourceClaimTemplateName": "one"}, {"name": "shared", "resourceClaimName": "c"},
            ]},
            "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "train-gpu-x"}]},
        });
        assert_eq!(templates(&pod).collect::<Vec<_>>(), [("gpu", "one")]);
        assert_eq!((told(&pod, "gpu"), told(&pod, "shared")), (Some("train-gpu-x"), None));
        let template = json!({"spec": {
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d", POD_CLAIM: "forged"}},
            "spec": {"devices": {"requests": []}},
        }});
        let claim = make(&pod, "gpu", &template);
        assert_eq!(claim["metadata"]["generateName"], "train-gpu-");
        assert_eq!(claim["metadata"]["annotations"], json!({"c": "d", POD_CLAIM: "gpu"}));
        assert_eq!(claim["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(claim["spec"], json!({"devices": {"requests": []}}));
        assert!(is_of(&claim, &pod, "gpu") && !is_of(&claim, &pod, "shared"));
    }

    #[test]
    fn a_pod_has_ended_by_its_phase_or_before_it_had_a_node() {
        for (pod, ended) in [
            (json!({"status": {"phase": "Running"}}), false),
            (json!({"status": {"phase": "Failed"}}), true),
            (json!({"metadata": {"deletionTimestamp": "x"}, "spec": {}}), true),
            (json!({"metadata": {"deletionTimestamp": "x"}, "spec": {"nodeName": "n"}}), false),
        ] {
            assert_eq!(has_ended(&pod), ended, "{pod}");
        }
    }

    #[test]
    fn a_claim_is_freed_unprotected_and_deleted_with_its_pods() {
        let pod = |name: &str| json!({"resource": "pods", "name": name, "uid": name});
        let other = || json!({"resource": "things", "apiGroup": "example.com", "name": "x", "uid": "x"});
        let claim = |users: Vec<Value>, allocated: bool, protected: bool, deleting: bool| {
            let mut claim = json!({"metadata": {}, "status": {}});
            claim["metadata"]["ownerReferences"] = json!([{"kind": "Pod", "apiVersion": "v1", "name": "gone", "uid": "gone", "controller": true}]);
            if !users.is_empty() {
                claim["status"]["reservedFor"] = json!(users);
            }
            if allocated {
                claim["status"]["allocation"] = json!({"devices": {}});
            }
            if protected {
                claim["metadata"]["finalizers"] = json!([FINALIZER]);
            }
            if deleting {
                claim["metadata"]["deletionTimestamp"] = "x".into();
            }
            claim
        };
        let status = Step::Status;
        let rows = [
            (claim(vec![pod("runs")], true, true, false), Step::Leave),
            (
                claim(vec![pod("runs"), pod("gone")], true, true, false),
                status(json!({"reservedFor": [pod("runs")]})),
            ),
            (
                claim(vec![pod("gone")], true, true, false),
                status(json!({"reservedFor": null, "allocation": null})),
            ),
            (claim(vec![pod("gone"), other()], true, true, false), status(json!({"reservedFor": [other()]}))),
            (claim(vec![], false, true, false), Step::Unprotect),
            (claim(vec![], true, true, true), status(json!({"reservedFor": null, "allocation": null}))),
            (claim(vec![], false, false, false), Step::Delete),
            (claim(vec![], false, false, true), Step::Leave),
        ];
        for (claim, step) in rows {
            assert_eq!(decide(&claim, |name, _| name == "runs"), step, "{claim}");
        }
    }

    #[test]
    fn a_claim_of_nobodys_stays() {
        let claim = json!({"metadata": {"name": "mine"}, "status": {}});
        assert_eq!(decide(&claim, |_, _| false), Step::Leave);
    }
}
