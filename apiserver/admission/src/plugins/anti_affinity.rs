//! Pods keep others away from their node and from nothing larger
//! (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#limitpodhardantiaffinitytopology>).

use crate::{
    Attributes, Lookup, Plugin, Verb,
    json::{items, text},
};
use freehold_machinery::Result;

const TERMS: &str = "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
const HOST: &str = "kubernetes.io/hostname";

/// The plugin.
pub struct LimitPodHardAntiAffinityTopology;

impl Plugin for LimitPodHardAntiAffinityTopology {
    fn name(&self) -> &'static str {
        "LimitPodHardAntiAffinityTopology"
    }

    fn validate(&self, attributes: &Attributes<'_>, _: &dyn Lookup) -> Result<()> {
        let writes = attributes.is("", "pods") && matches!(attributes.verb, Verb::Create | Verb::Update);
        let Some(pod) = attributes.object().filter(|_| writes) else { return Ok(()) };
        match items(pod, TERMS).map(|term| text(term, "/topologyKey")).find(|key| *key != HOST) {
            None => Ok(()),
            Some(key) => Err(attributes.forbidden(&format!(
                "affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey {key} but only key {HOST} is allowed"
            ))),
        }
    }
}
