//! Pod templates: telling them apart, and naming ReplicaSets after them.

use freehold_controllers_context::object::{controller_reference, generation};
use freehold_machinery::{Value, meta};
use serde_json::json;

/// The label that tells the pods of one template from those of another.
pub(super) const HASH_LABEL: &str = "pod-template-hash";
/// Counts the templates of a Deployment.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
/// What a ReplicaSet's Deployment wanted when it was last scaled.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
/// How many pods the Deployment may have at most.
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Asks for a revision to go back to.
pub(super) const ROLLBACK: &str = "deprecated.deployment.rollback.to";
/// The revisions that a ReplicaSet had before.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// The longest history.
const MAX_HISTORY: usize = 2000;
/// Annotations of a Deployment that its ReplicaSets don't get.
const KEPT: &[&str] =
    &[REVISION, HISTORY, DESIRED, MAX, ROLLBACK, "kubectl.kubernetes.io/last-applied-configuration"];
/// The longest name of a ReplicaSet.
const MAX_NAME: usize = 253;

/// Whether two templates are the same, the hash label aside.
pub(super) fn equal(a: &Value, b: &Value) -> bool {
    without_hash(a) == without_hash(b)
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
    }
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|m| !m.is_empty()));
    }
    template
}

/// The ReplicaSet of a Deployment's present template.
pub(super) fn replica_set(deployment: &Value, replicas: i64, max: i64, revision: i64) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    let hash = crate::template::hash(&template, deployment["status"]["collisionCount"].as_i64());
    let prefix: String = meta::name(deployment).chars().take(MAX_NAME - 1 - hash.len()).collect();
    template["metadata"]["labels"][HASH_LABEL] = hash.clone().into();
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH_LABEL] = hash.clone().into();
    let mut annotations = json!({});
    for (key, value) in annotations_of(deployment) {
        annotations[key] = value.clone();
    }
    annotations[REVISION] = revision.to_string().into();
    annotations[DESIRED] = deployment["spec"]["replicas"].as_i64().unwrap_or(1).to_string().into();
    annotations[MAX] = max.to_string().into();
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{prefix}-{hash}"),
            "namespace": meta::namespace(deployment),
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [controller_reference(deployment)],
        },
        "spec": {
            "replicas": replicas,
            "minReadySeconds": deployment["spec"]["minReadySeconds"].as_i64().unwrap_or(0),
            "selector": selector,
            "template": template,
        },
    })
}

/// The annotations of a Deployment, or of its ReplicaSet, that the other one has too.
pub(super) fn annotations_of(object: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = object.pointer("/metadata/annotations").and_then(Value::as_object);
    all.into_iter().flatten().map(|(key, value)| (key.as_str(), value)).filter(|(key, _)| !KEPT.contains(key))
}

/// The annotation with a ReplicaSet's earlier revisions, when it is about to get another one.
pub(super) fn history(set: &Value) -> Option<(&'static str, String)> {
    let last = meta::annotation(set, REVISION)?;
    let mut all: Vec<&str> =
        meta::annotation(set, HISTORY).unwrap_or_default().split(',').filter(|r| !r.is_empty()).collect();
    all.push(last);
    let length = |all: &[&str]| all.iter().map(|r| r.len() + 1).sum::<usize>();
    while length(&all) > MAX_HISTORY && all.len() > 1 {
        all.remove(0);
    }
    Some((HISTORY, all.join(",")))
}

/// The patch that brings a Deployment back to a ReplicaSet's template and annotations.
pub(super) fn rolled_back(deployment: &Value, set: &Value) -> Value {
    let template = replacing(&deployment["spec"]["template"], &without_hash(&set["spec"]["template"]));
    let mut annotations = json!({ROLLBACK: null});
    for (key, _) in annotations_of(deployment) {
        annotations[key] = Value::Null;
    }
    for (key, value) in annotations_of(set) {
        annotations[key] = value.clone();
    }
    json!({"metadata": {"annotations": annotations}, "spec": {"template": template}})
}

/// The merge patch that makes one value of another.
fn replacing(from: &Value, to: &Value) -> Value {
    let (Some(from), Some(wanted)) = (from.as_object(), to.as_object()) else { return to.clone() };
    let gone = from.keys().filter(|key| !wanted.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let kept = wanted
        .iter()
        .map(|(key, value)| (key.clone(), from.get(key).map_or(value.clone(), |f| replacing(f, value))));
    Value::Object(gone.chain(kept).collect())
}

/// The revision of a ReplicaSet, 0 where it has none.
pub(super) fn revision(object: &Value) -> i64 {
    meta::annotation(object, REVISION).and_then(|r| r.parse().ok()).unwrap_or(0)
}

/// `status.observedGeneration` is behind the spec: what the status says is not about it.
pub(super) fn is_stale(object: &Value) -> bool {
    object["status"]["observedGeneration"].as_i64().unwrap_or(0) < generation(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_equal_whatever_their_hash_label() {
        let template = |labels: Value| json!({"metadata": {"labels": labels}, "spec": {"containers": []}});
        assert!(equal(&template(json!({"a": "1"})), &template(json!({"a": "1", HASH_LABEL: "x"}))));
        assert!(!equal(&template(json!({"a": "1"})), &template(json!({"a": "2"}))));
        let bare = json!({"metadata": {"creationTimestamp": null}, "spec": {"containers": []}});
        assert!(equal(&bare, &template(json!({}))));
    }

    #[test]
    fn a_replica_set_selects_its_own_pods_alone() {
        let deployment = json!({
            "metadata": {"name": "web", "namespace": "n", "uid": "u", "annotations": {REVISION: "1", "note": "x"}},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}},
            },
        });
        let set = replica_set(&deployment, 2, 3, 4);
        let hash = set["metadata"]["labels"][HASH_LABEL].as_str().unwrap();
        assert_eq!(set["metadata"]["name"], format!("web-{hash}"));
        assert_eq!(set["spec"]["selector"]["matchLabels"], json!({"app": "web", HASH_LABEL: hash}));
        assert_eq!(set["spec"]["template"]["metadata"]["labels"][HASH_LABEL], hash);
        assert_eq!((revision(&set), meta::annotation(&set, "note")), (4, Some("x")));
        assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], "u");
    }
}
