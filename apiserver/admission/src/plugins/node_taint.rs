//! TaintNodesByCondition: new nodes get a taint that keeps Pods away until a controller finds them ready and removes
//! it.

use crate::{
    Attributes, Lookup, Plugin, Verb,
    json::{items, list_mut, map_mut, text},
};
use freehold_machinery::{Result, Value};
use serde_json::json;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const EFFECT: &str = "NoSchedule";

/// The plugin
/// (<https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#taintnodesbycondition>).
pub struct TaintNodesByCondition;

impl Plugin for TaintNodesByCondition {
    fn name(&self) -> &'static str {
        "TaintNodesByCondition"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, _: &dyn Lookup) -> Result<()> {
        let made = attributes.verb == Verb::Create && attributes.is("", "nodes");
        let Some(node) = attributes.object.as_deref_mut().filter(|_| made) else { return Ok(()) };
        let has = |taint: &Value| text(taint, "/key") == NOT_READY && text(taint, "/effect") == EFFECT;
        if items(node, "/spec/taints").any(has) {
            return Ok(());
        }
        map_mut(node, "spec");
        if let Some(taints) = list_mut(&mut node["spec"], "taints") {
            taints.push(json!({"key": NOT_READY, "effect": EFFECT}));
        }
        Ok(())
    }
}
