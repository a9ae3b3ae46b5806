//! ExtendedResourceToleration: Pods that request a device tolerate the taint of nodes reserved for it
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#extendedresourcetoleration>).

use crate::{
    Attributes, Lookup, Plugin, Verb,
    json::{items, list_mut},
};
use freehold_machinery::{Result, Value};
use serde_json::json;
use std::collections::BTreeSet;

/// The plugin.
pub struct ExtendedResourceToleration;

impl Plugin for ExtendedResourceToleration {
    fn name(&self) -> &'static str {
        "ExtendedResourceToleration"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, _: &dyn Lookup) -> Result<()> {
        let writes = attributes.is("", "pods") && matches!(attributes.verb, Verb::Create | Verb::Update);
        let Some(pod) = attributes.object.as_deref_mut().filter(|_| writes) else { return Ok(()) };
        let containers = ["/spec/containers", "/spec/initContainers"].into_iter();
        let asked = containers.flat_map(|list| items(pod, list));
        let asked = asked.filter_map(|container| container.pointer("/resources/requests")?.as_object());
        let asked: BTreeSet<String> =
            asked.flat_map(|requests| requests.keys()).filter(|name| is_extended(name)).cloned().collect();
        for name in asked {
            let toleration = json!({"key": name, "operator": "Exists", "effect": "NoSchedule"});
            if let Some(list) = list_mut(&mut pod["spec"], "tolerations") {
                put(list, toleration);
            }
        }
        Ok(())
    }
}

/// Whether a resource is none of Kubernetes' own.
fn is_extended(name: &str) -> bool {
    name.contains('/') && !name.contains("kubernetes.io/") && !name.starts_with("requests.")
}

/// Puts a toleration in the place of those for the same, or behind all.
fn put(list: &mut Vec<Value>, toleration: Value) {
    let same = |other: &Value| {
        ["key", "operator", "value", "effect"].iter().all(|field| other.get(field) == toleration.get(field))
    };
    if !list.iter().any(same) {
        list.push(toleration);
        return;
    }
    list.iter_mut().filter(|other| same(other)).for_each(|other| *other = toleration.clone());
}
