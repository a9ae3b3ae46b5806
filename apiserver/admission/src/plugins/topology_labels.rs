//! PodTopologyLabels: Pods get the zone and region labels of their node
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#podtopologylabels>).

use crate::{
    Attributes, Lookup, Plugin, Verb,
    json::{map_mut, text},
};
use freehold_machinery::{Result, meta};

const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "topology.kubernetes.io/region"];

/// The plugin.
pub struct PodTopologyLabels;

impl Plugin for PodTopologyLabels {
    fn name(&self) -> &'static str {
        "PodTopologyLabels"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        // The labels of a Binding are copied to its Pod.
        let node_at = match attributes.subresource {
            "" if attributes.is("", "pods") => "/spec/nodeName",
            "binding" if attributes.is_sub("", "pods", "binding") => "/target/name",
            "" if attributes.is("", "bindings") => "/target/name",
            _ => return Ok(()),
        };
        let plane = attributes.plane;
        let creates = attributes.verb == Verb::Create;
        let Some(pod) = attributes.object.as_deref_mut().filter(|_| creates) else { return Ok(()) };
        let name = text(pod, node_at).to_owned();
        let node = Some(name).filter(|name| !name.is_empty());
        let Some(node) = node.and_then(|name| lookup.get(plane, "", "nodes", "", &name)) else {
            return Ok(());
        };
        for label in LABELS {
            let Some(value) = meta::label(&node, label) else { continue };
            let labels = map_mut(pod, "metadata").and_then(|metadata| {
                let slot = metadata.entry("labels").or_insert_with(|| serde_json::json!({}));
                slot.as_object_mut()
            });
            if let Some(labels) = labels {
                labels.insert(label.to_owned(), value.into());
            }
        }
        Ok(())
    }
}
