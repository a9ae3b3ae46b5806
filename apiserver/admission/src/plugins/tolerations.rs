//! Pods stay for five minutes on a node that does not answer.

use crate::{
    Attributes, Lookup, Plugin, Verb,
    json::{items, list_mut, text},
};
use freehold_machinery::{Result, Value};
use serde_json::json;

const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
const SECONDS: i64 = 300;

/// The plugin.
pub struct DefaultTolerationSeconds;

impl Plugin for DefaultTolerationSeconds {
    fn name(&self) -> &'static str {
        "DefaultTolerationSeconds"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, _: &dyn Lookup) -> Result<()> {
        let writes = attributes.is("", "pods") && matches!(attributes.verb, Verb::Create | Verb::Update);
        let Some(pod) = attributes.object.as_deref_mut().filter(|_| writes) else { return Ok(()) };
        for taint in TAINTS.into_iter().filter(|taint| !tolerates(pod, taint)).collect::<Vec<_>>() {
            let toleration = json!({"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": SECONDS});
            list_mut(&mut pod["spec"], "tolerations")
                .into_iter()
                .for_each(|list| list.push(toleration.clone()));
        }
        Ok(())
    }
}

fn tolerates(pod: &Value, taint: &str) -> bool {
    items(pod, "/spec/tolerations").any(|toleration| {
        let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
        (key == taint || key.is_empty()) && (effect == "NoExecute" || effect.is_empty())
    })
}
