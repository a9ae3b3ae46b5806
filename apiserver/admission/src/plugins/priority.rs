//! A Pod's priority is its class's
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/pod-priority-preemption/>).

use crate::{Attributes, Lookup, Plugin, Verb, json::text};
use freehold_machinery::{Result, Value, meta};
use std::sync::Arc;

const GROUP: &str = "scheduling.k8s.io";
/// The classes of the system itself, which stay.
const SYSTEM: [&str; 2] = ["system-node-critical", "system-cluster-critical"];
const PREEMPTS: &str = "PreemptLowerPriority";

/// The plugin.
pub struct Priority;

impl Plugin for Priority {
    fn name(&self) -> &'static str {
        "Priority"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        if !attributes.is("", "pods") {
            let kept = attributes.is(GROUP, "priorityclasses") && SYSTEM.contains(&attributes.name);
            let why = "this is a system priority class and cannot be deleted";
            return match attributes.verb {
                Verb::Delete if kept => Err(attributes.forbidden(why)),
                _ => Ok(()),
            };
        }
        match attributes.verb {
            Verb::Create => resolve(attributes, lookup),
            Verb::Update => {
                keep(attributes);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let writes =
            attributes.is(GROUP, "priorityclasses") && matches!(attributes.verb, Verb::Create | Verb::Update);
        let Some(class) = attributes.object().filter(|class| writes && class["globalDefault"] == true) else {
            return Ok(());
        };
        let name = if attributes.name.is_empty() { meta::name(class) } else { attributes.name };
        match default_class(attributes, lookup).filter(|other| meta::name(other) != name) {
            None => Ok(()),
            Some(other) => Err(attributes.forbidden(&format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                meta::name(&other)
            ))),
        }
    }
}

/// The class that Pods have which name none: of several defaults the lowest.
fn default_class(attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Option<Arc<Value>> {
    let classes = lookup.list(attributes.plane, GROUP, "priorityclasses", "").into_iter();
    let defaults = classes.filter(|class| class["globalDefault"] == true);
    defaults.min_by_key(|class| (value(class), meta::name(class).to_owned()))
}

fn value(class: &Value) -> i64 {
    class["value"].as_i64().unwrap_or_default()
}

fn resolve(attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
    let Some(pod) = attributes.object() else { return Ok(()) };
    let name = text(pod, "/spec/priorityClassName").to_owned();
    let class = match name.as_str() {
        "" => default_class(attributes, lookup),
        name => {
            let found = lookup.get(attributes.plane, GROUP, "priorityclasses", "", name);
            let missing = || attributes.forbidden(&format!("no PriorityClass with name {name} was found"));
            Some(found.ok_or_else(missing)?)
        }
    };
    let priority = class.as_deref().map(value).unwrap_or_default();
    if let Some(given) = pod["spec"]["priority"].as_i64().filter(|given| *given != priority) {
        return Err(attributes.forbidden(&format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        )));
    }
    let policy =
        class.as_deref().map(|class| text(class, "/preemptionPolicy")).filter(|policy| !policy.is_empty());
    let policy = policy.unwrap_or(PREEMPTS);
    if let Some(given) = pod["spec"]["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        return Err(attributes.forbidden(&format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        )));
    }
    let Some(pod) = attributes.object.as_deref_mut() else { return Ok(()) };
    if let Some(class) = class.as_deref().filter(|_| name.is_empty()) {
        pod["spec"]["priorityClassName"] = meta::name(class).into();
    }
    pod["spec"]["priority"] = priority.into();
    pod["spec"]["preemptionPolicy"] = policy.into();
    Ok(())
}

/// An update that does not mention what was resolved does not remove it.
fn keep(attributes: &mut Attributes<'_>) {
    let (Some(pod), Some(old)) = (attributes.object.as_deref_mut(), attributes.old) else { return };
    for field in ["priority", "preemptionPolicy"] {
        if pod["spec"][field].is_null() && !old["spec"][field].is_null() {
            pod["spec"][field] = old["spec"][field].clone();
        }
    }
}
