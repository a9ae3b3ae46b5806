//! The subresources of a pod that write its spec: `ephemeralcontainers` and `resize`
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/>).

use super::{
    field::{Errors, Field, same},
    pods::{self, Whose},
};
use freehold_machinery::{GroupVersionKind, Value, meta};
use serde_json::json;

/// What an update changes, as messages show it.
fn difference(field: &str, old: &Value, new: &Value) -> String {
    let pod = GroupVersionKind { group: String::new(), version: "v1".into(), kind: "Pod".into() };
    freehold_apiserver_catalog::difference(&pod, field, old, new).unwrap_or_default()
}

fn whose<'a>(object: &Field<'a>, old: &'a Value) -> Whose<'a> {
    Whose { name: meta::name(object.value), mirror: false, before: Some(&old["spec"]) }
}

/// An update of `ephemeralcontainers`: containers are added, and stay as they are.
pub(super) fn ephemeral(object: &Field<'_>, old: &Value, errors: &mut Errors) {
    let spec = object.get("spec");
    pods::pod_spec(&spec, &whose(object, old), errors);
    let list = spec.get("ephemeralContainers");
    for before in old["spec"]["ephemeralContainers"].as_array().into_iter().flatten() {
        let name = before["name"].as_str().unwrap_or_default();
        let Some(now) = list.items().find(|now| now.get("name").text() == name) else {
            errors
                .push(list.forbidden(format!("existing ephemeral containers {name:?} may not be removed\n")));
            continue;
        };
        if !same(now.value, before) {
            let difference = difference("spec.ephemeralContainers[0]", before, now.value);
            let detail = format!("existing ephemeral containers {name:?} may not be changed\n{difference}");
            errors.push(list.forbidden(detail));
        }
    }
}

/// An update of `resize`: amounts of CPU and memory change, and nothing that follows from them.
pub(super) fn resize(object: &Field<'_>, old: &Value, errors: &mut Errors) {
    let spec = object.get("spec");
    pods::pod_spec(&spec, &whose(object, old), errors);
    let class = crate::pod::qos(object.value);
    if class != crate::pod::qos(old) {
        let shown = object.get("status.qosClass").text();
        errors.push(spec.invalid_as(shown, "Pod QOS Class may not change as a result of resizing"));
    }
    if !spec.get("nodeName").is_empty() && object.get("status.phase").text() == "Succeeded" {
        return;
    }
    for (index, container) in spec.get("containers").items().enumerate() {
        let before = &old["spec"]["containers"][index];
        let resources = container.get("resources");
        for part in ["limits", "requests"] {
            let had = before["resources"][part].as_object();
            if had.is_some_and(|had| had.keys().any(|name| !resources.get(part).key(name).is_set())) {
                errors.push(resources.get(part).forbidden(format!("resource {part} cannot be removed")));
            }
        }
        if without_amounts(container.value) != without_amounts(before) {
            errors.push(spec.forbidden("only cpu and memory resources are mutable"));
        }
    }
}

/// A container but for what a resize changes.
fn without_amounts(container: &Value) -> Value {
    let mut rest = container.clone();
    for part in ["limits", "requests"] {
        let amounts = rest.get_mut("resources").and_then(|resources| resources.get_mut(part));
        if let Some(amounts) = amounts.and_then(Value::as_object_mut) {
            amounts.retain(|name, _| name != "cpu" && name != "memory");
            if amounts.is_empty()
                && let Some(resources) = rest["resources"].as_object_mut()
            {
                resources.remove(part);
            }
        }
    }
    if rest["resources"].is_null() {
        rest["resources"] = json!({});
    }
    rest
}
