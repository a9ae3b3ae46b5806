//! Pods and claims of a StatefulSet: their names, identity and volumes.

use crate::claims::Pod;
use freehold_controllers_context::object::{int, items, labels, text};
use freehold_controllers_context::pods::{PodView, new_pod};
use freehold_controllers_context::revisions::POD_REVISION;
use freehold_machinery::{Value, meta};
use serde_json::json;

/// The label of a pod with its own name.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label of a pod with its ordinal.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The ordinal in a pod's name, if it is one of this set.
pub(super) fn ordinal(set: &str, pod: &str) -> Option<i64> {
    let (parent, number) = pod.rsplit_once('-')?;
    let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    let number = (digits && parent == set).then(|| number.parse::<i32>().ok())??;
    Some(i64::from(number))
}

/// The first ordinal that a set has.
pub(super) fn start(set: &Value) -> i64 {
    int(set, "/spec/ordinals/start").unwrap_or(0)
}

/// How many pods a set is to have.
pub(super) fn replicas(set: &Value) -> i64 {
    int(set, "/spec/replicas").unwrap_or(1).max(0)
}

/// Whether an ordinal is one that a set is to have.
pub(super) fn in_range(set: &Value, ordinal: i64) -> bool {
    (start(set)..start(set) + replicas(set)).contains(&ordinal)
}

/// Templates of claims that a set has.
pub(super) fn templates(set: &Value) -> &[Value] {
    items(set, "/spec/volumeClaimTemplates")
}

/// The name of the claim of a template that a pod has.
pub(super) fn claim_name(set: &Value, template: &Value, ordinal: i64) -> String {
    format!("{}-{}-{ordinal}", meta::name(template), meta::name(set))
}

/// The claim of a template, as it is created.
pub(super) fn claim(set: &Value, template: &Value, ordinal: i64, owners: Vec<Value>) -> Value {
    let mut metadata = json!({
        "name": claim_name(set, template, ordinal), "namespace": meta::namespace(set),
    });
    let mut all = labels(template).cloned().unwrap_or_default();
    let selected = set.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    all.extend(selected.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    metadata["labels"] = Value::Object(all);
    if let Some(annotations) = template.pointer("/metadata/annotations") {
        metadata["annotations"] = annotations.clone();
    }
    if !owners.is_empty() {
        metadata["ownerReferences"] = owners.into();
    }
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]})
}

/// A pod with an ordinal, from the template of a revision.
pub(super) fn pod(set: &Value, template: &Value, ordinal: i64, revision: &str) -> Value {
    let mut pod = new_pod(set, template);
    let name = format!("{}-{ordinal}", meta::name(set));
    pod["metadata"]["name"] = name.clone().into();
    pod["metadata"]["labels"][POD_REVISION] = revision.into();
    pod["spec"]["hostname"] = name.into();
    pod["spec"]["subdomain"] = set["spec"]["serviceName"].clone();
    if text(&pod, "/spec/subdomain").is_empty() {
        pod["spec"].as_object_mut().map(|spec| spec.remove("subdomain"));
    }
    identify(&mut pod, ordinal);
    mount(set, &mut pod, ordinal);
    pod
}

/// Gives a pod the labels that it is known by.
pub(super) fn identify(pod: &mut Value, ordinal: i64) {
    let name = meta::name(pod).to_owned();
    pod["metadata"]["labels"][POD_NAME] = name.into();
    pod["metadata"]["labels"][POD_INDEX] = ordinal.to_string().into();
}

/// Gives a pod the volumes of its claims.
pub(super) fn mount(set: &Value, pod: &mut Value, ordinal: i64) {
    let mut volumes: Vec<Value> = templates(set)
        .iter()
        .map(|template| {
            let claim = json!({"claimName": claim_name(set, template, ordinal)});
            json!({"name": meta::name(template), "persistentVolumeClaim": claim})
        })
        .collect();
    let ours = |volume: &&Value| templates(set).iter().any(|t| meta::name(t) == text(volume, "/name"));
    volumes.extend(items(pod, "/spec/volumes").iter().filter(|v| !ours(v)).cloned());
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = volumes.into();
    }
}

/// Whether a pod has the label and the volumes that it is to have.
pub(super) fn is_consistent(set: &Value, (key, view): &Pod, ordinal: i64) -> bool {
    let mounts = |view: &PodView, template: &Value| {
        let claim = claim_name(set, template, ordinal);
        view.claims.iter().any(|(volume, name)| **volume == *meta::name(template) && **name == *claim)
    };
    view.label(POD_NAME) == &*key.name && templates(set).iter().all(|template| mounts(view, template))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinal_is_in_the_name_of_a_member() {
        for (name, expected) in [
            ("web-0", Some(0)),
            ("web-12", Some(12)),
            ("web-x", None),
            ("web-", None),
            ("web-+1", None),
            ("other-1", None),
            ("web-99999999999", None),
            ("web", None),
        ] {
            assert_eq!(ordinal("web", name), expected, "{name}");
        }
    }

    #[test]
    fn a_pod_has_its_name_as_host_and_the_claims_of_its_ordinal() {
        let set = json!({
            "apiVersion": "apps/v1", "kind": "StatefulSet",
            "metadata": {"name": "web", "namespace": "n", "uid": "u"},
            "spec": {
                "serviceName": "svc", "selector": {"matchLabels": {"app": "web"}},
                "volumeClaimTemplates": [{"metadata": {"name": "data", "labels": {"a": "b"}}, "spec": {"x": 1}}],
            },
        });
        let template = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]},
        });
        let pod = pod(&set, &template, 3, "web-r");
        assert_eq!(pod["metadata"]["name"], "web-3");
        assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!("web-3"), &json!("svc")));
        let labels = json!({"app": "web", POD_NAME: "web-3", POD_INDEX: "3", POD_REVISION: "web-r"});
        assert_eq!(pod["metadata"]["labels"], labels);
        let volumes = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-3"}}, {"name": "tmp", "emptyDir": {}},
        ]);
        assert_eq!(pod["spec"]["volumes"], volumes);
        let claim = claim(&set, &templates(&set)[0], 3, vec![]);
        assert_eq!(
            claim["metadata"],
            json!({"name": "data-web-3", "namespace": "n", "labels": {"a": "b", "app": "web"}})
        );
    }
}
