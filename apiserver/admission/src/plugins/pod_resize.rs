//! A resized Pod requests no more than its node has
//! (<https://kubernetes.io/docs/tasks/configure-pod-container/resize-container-resources/>).

use crate::{Attributes, Lookup, Plugin, Verb, json::text, resources};
use freehold_machinery::{Result, meta, quantity::Quantity, status::Cause};

/// What of an amount is compared and told.
type Unit = fn(&Quantity) -> i64;

const SYSTEM: &str = "kubernetes.io/os";

/// The plugin.
pub struct PodResizeValidator;

impl Plugin for PodResizeValidator {
    fn name(&self) -> &'static str {
        "PodResizeValidator"
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        if attributes.verb != Verb::Update || !attributes.is_sub("", "pods", "resize") {
            return Ok(());
        }
        let (Some(pod), Some(old)) = (attributes.object(), attributes.old) else { return Ok(()) };
        let name = text(pod, "/spec/nodeName");
        if name.is_empty() || pod["spec"] == old["spec"] {
            return Ok(());
        }
        let refused = |why: String, reason: &str| {
            let cause = Cause { reason: reason.to_owned(), ..Cause::default() };
            Err(attributes.forbidden(&why).with_details(|details| details.causes.push(cause)))
        };
        let Some(node) = lookup.get(attributes.plane, "", "nodes", "", name) else {
            return Err(attributes.forbidden(&format!("node {name:?} not found")));
        };
        if let Some(system) = meta::label(&node, SYSTEM).filter(|system| *system != "linux") {
            let why = format!("pod resize is only supported on linux nodes, node {name:?} is {system:?}");
            return refused(why, "UnsupportedPlatform");
        }
        let allocatable = resources::amounts(node.pointer("/status/allocatable"));
        let asked = resources::of_pod(pod, "requests");
        let units: [(&str, Unit); 2] = [("cpu", Quantity::milli), ("memory", Quantity::units)];
        let mut missing = Vec::new();
        for (resource, unit) in units {
            let amount = |amounts: &resources::Amounts| amounts.get(resource).map_or(0, unit);
            if amount(&asked) > amount(&allocatable) {
                let (asked, has) = (amount(&asked), amount(&allocatable));
                missing.push(format!("{resource}, requested: {asked}, allocatable: {has}"));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let why = format!("node didn't have enough allocatable resources: {}", missing.join("; "));
        refused(why, "NodeCapacity")
    }
}
