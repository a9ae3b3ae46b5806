//! A Pod that runs is changed only in ways that its node says it knows
//! (KEP-5328, <https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#nodedeclaredfeaturevalidator>).

use crate::{
    Attributes, Lookup, Plugin, Verb,
    json::{items, text},
    resources::amounts,
};
use freehold_machinery::{Result, Value};

/// Whether an update from one Pod to another takes a feature.
type Takes = fn(&Value, &Value) -> bool;

/// Features of nodes that updates take, in the order of their names.
const FEATURES: [(&str, Takes); 2] = [
    ("InPlacePodLevelResourcesVerticalScaling", resizes_pod),
    ("InPlacePodVerticalScalingInitContainers", resizes_init),
];

/// The plugin.
pub struct NodeDeclaredFeatureValidator;

impl Plugin for NodeDeclaredFeatureValidator {
    fn name(&self) -> &'static str {
        "NodeDeclaredFeatureValidator"
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let is_pod = attributes.is("", "pods") || attributes.is_sub("", "pods", "resize");
        let (Some(pod), Some(old)) = (attributes.object(), attributes.old) else { return Ok(()) };
        let name = text(pod, "/spec/nodeName");
        if !is_pod || attributes.verb != Verb::Update || name.is_empty() || pod["spec"] == old["spec"] {
            return Ok(());
        }
        let taken = FEATURES.into_iter().filter(|(_, takes)| takes(old, pod)).map(|(feature, _)| feature);
        let mut missing: Vec<&str> = taken.collect();
        if missing.is_empty() {
            return Ok(());
        }
        let Some(node) = lookup.get(attributes.plane, "", "nodes", "", name) else {
            return Err(attributes.forbidden(&format!("node {name:?} not found")));
        };
        missing.retain(|feature| !items(&node, "/status/declaredFeatures").any(|has| has == feature));
        if missing.is_empty() {
            return Ok(());
        }
        let missing = missing.join(", ");
        let why = format!("pod update requires features {missing} which are not available on node {name:?}");
        Err(attributes.forbidden(&why))
    }
}

/// Whether two `resources` say the same, by their amounts and not by how those are written.
fn same(one: Option<&Value>, other: Option<&Value>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one.is_none() && other.is_none() };
    ["requests", "limits"].iter().all(|field| amounts(one.get(field)) == amounts(other.get(field)))
        && one.get("claims") == other.get("claims")
}

fn resizes_pod(old: &Value, new: &Value) -> bool {
    !same(old["spec"].get("resources"), new["spec"].get("resources"))
}

/// Whether an init container is resized that does not go on beside the others.
fn resizes_init(old: &Value, new: &Value) -> bool {
    let containers = |pod| items(pod, "/spec/initContainers");
    let ends = |(old, _): &(&Value, &Value)| old["restartPolicy"] != "Always";
    let resized = |(old, new): (&Value, &Value)| {
        ["requests", "limits"].iter().any(|field| {
            let of = |container: &Value| amounts(container["resources"].get(field));
            of(old) != of(new)
        })
    };
    containers(old).zip(containers(new)).filter(ends).any(resized)
}
