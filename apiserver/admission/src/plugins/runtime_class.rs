//! RuntimeClass: a Pod gets the overhead, node selector and tolerations of its RuntimeClass
//! (<https://kubernetes.io/docs/concepts/containers/runtime-class/>).

use crate::{
    Attributes, Lookup, Plugin, Verb,
    json::{list_mut, text},
};
use freehold_machinery::{Result, Status, Value};
use serde_json::json;
use std::sync::Arc;

/// The plugin.
pub struct RuntimeClass;

impl Plugin for RuntimeClass {
    fn name(&self) -> &'static str {
        "RuntimeClass"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let Some(class) = class_of(attributes, lookup)? else { return Ok(()) };
        if let Some(overhead) = class.pointer("/overhead/podFixed") {
            set_overhead(attributes, overhead)?;
        }
        let selector = class.pointer("/scheduling/nodeSelector").and_then(Value::as_object);
        if let Some(selector) = selector {
            add_node_selector(attributes, selector)?;
        }
        let tolerations = class.pointer("/scheduling/tolerations").and_then(Value::as_array);
        if let Some(pod) = attributes.object.as_deref_mut() {
            for toleration in tolerations.into_iter().flatten() {
                let Some(list) = list_mut(&mut pod["spec"], "tolerations") else { continue };
                if !list.contains(toleration) {
                    list.push(toleration.clone());
                }
            }
        }
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let creates = attributes.is("", "pods") && attributes.verb == Verb::Create;
        let Some(pod) = attributes.object().filter(|_| creates) else { return Ok(()) };
        let given = overhead_of(pod);
        match class_of(attributes, lookup)? {
            Some(class) => {
                let wanted = class.pointer("/overhead/podFixed").cloned().unwrap_or_else(|| json!({}));
                if given != wanted {
                    let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
                    return Err(attributes.forbidden(why));
                }
                Ok(())
            }
            None if given == json!({}) => Ok(()),
            None => Err(attributes.forbidden(
                "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
            )),
        }
    }
}

fn overhead_of(pod: &Value) -> Value {
    pod.pointer("/spec/overhead")
        .filter(|overhead| overhead.is_object())
        .cloned()
        .unwrap_or_else(|| json!({}))
}

/// The class that a new Pod names; 403 where it is not there.
fn class_of(attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<Option<Arc<Value>>> {
    let creates = attributes.is("", "pods") && attributes.verb == Verb::Create;
    let Some(pod) = attributes.object().filter(|_| creates) else { return Ok(None) };
    let name = text(pod, "/spec/runtimeClassName");
    if name.is_empty() {
        return Ok(None);
    }
    let found = lookup.get(attributes.plane, "node.k8s.io", "runtimeclasses", "", name);
    let missing = || attributes.forbidden(&format!("pod rejected: RuntimeClass {name:?} not found"));
    found.map(Some).ok_or_else(missing)
}

fn set_overhead(attributes: &mut Attributes<'_>, overhead: &Value) -> Result<()> {
    let Some(pod) = attributes.object() else { return Ok(()) };
    let given = overhead_of(pod);
    if given != json!({}) && given != *overhead {
        let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
        return Err(attributes.forbidden(why));
    }
    if let Some(pod) = attributes.object.as_deref_mut() {
        pod["spec"]["overhead"] = overhead.clone();
    }
    Ok(())
}

fn add_node_selector(attributes: &mut Attributes<'_>, selector: &freehold_machinery::Map) -> Result<()> {
    for (key, value) in selector {
        let Some(pod) = attributes.object() else { return Ok(()) };
        let given = pod["spec"]["nodeSelector"].get(key);
        if let Some(given) = given.filter(|given| *given != value) {
            let conflict: std::result::Result<(), Status> = Err(attributes.forbidden(&format!(
                "conflict: node selector {key}={} is already set, and the RuntimeClass wants {value}",
                given
            )));
            return conflict;
        }
        if let Some(pod) = attributes.object.as_deref_mut() {
            pod["spec"]["nodeSelector"][key] = value.clone();
        }
    }
    Ok(())
}
