//! Whether a pod may be on a node: its node selector, required node affinity and tolerations
//! (<https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/>).

use crate::node::{NodeView, Taint};
use crate::object::{items, text};
use freehold_machinery::Value;

/// Whether a pod's node selector and required node affinity admit a node.
pub fn admits(spec: &Value, name: &str, node: &NodeView) -> bool {
    const REQUIRED: &str = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution";
    let label = |key: &str| node.labels.as_ref().and_then(|l| l.get(key)).and_then(Value::as_str);
    let selected = spec["nodeSelector"].as_object();
    if selected.into_iter().flatten().any(|(key, value)| label(key) != value.as_str()) {
        return false;
    }
    let Some(required) = spec.pointer(REQUIRED).filter(|r| !r.is_null()) else { return true };
    items(required, "/nodeSelectorTerms").iter().any(|term| {
        let (expressions, fields) = (items(term, "/matchExpressions"), items(term, "/matchFields"));
        let by_field = |key: &str| (key == "metadata.name").then_some(name);
        !(expressions.is_empty() && fields.is_empty())
            && expressions.iter().all(|one| meets(one, label(text(one, "/key"))))
            && fields.iter().all(|one| meets(one, by_field(text(one, "/key"))))
    })
}

/// Whether a value meets a requirement of a node selector.
fn meets(requirement: &Value, value: Option<&str>) -> bool {
    let values = items(requirement, "/values");
    let listed = || value.is_some_and(|value| values.iter().any(|v| v == value));
    let compare = |is: fn(i64, i64) -> bool| {
        let number = |text: Option<&str>| text.and_then(|t| t.parse::<i64>().ok());
        let (own, bound) = (number(value), number(values.first().and_then(Value::as_str)));
        own.zip(bound).is_some_and(|(own, bound)| is(own, bound))
    };
    match text(requirement, "/operator") {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(|own, bound| own > bound),
        "Lt" => compare(|own, bound| own < bound),
        _ => false,
    }
}

/// Whether a toleration is one of a taint.
pub fn tolerates(toleration: &Value, taint: &Taint) -> bool {
    let (effect, key) = (text(toleration, "/effect"), text(toleration, "/key"));
    if !effect.is_empty() && *effect != *taint.effect || !key.is_empty() && *key != *taint.key {
        return false;
    }
    match text(toleration, "/operator") {
        "" | "Equal" => *text(toleration, "/value") == *taint.value,
        "Exists" => true,
        _ => false,
    }
}

/// Whether tolerations leave one of a node's taints with such an effect.
pub fn is_repelled(tolerations: &[Value], node: &NodeView, effects: &[&str]) -> bool {
    let mut taints = node.taints.iter().filter(|taint| effects.contains(&&*taint.effect));
    taints.any(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(labels: Value) -> NodeView {
        NodeView { labels: labels.as_object().cloned(), ..NodeView::default() }
    }

    #[test]
    fn a_node_is_admitted_by_selector_and_affinity() {
        let required = |terms: Value| {
            json!({"affinity": {"nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
            }}})
        };
        let by_label = |operator: &str, values: Value| {
            required(json!([{"matchExpressions": [{"key": "k", "operator": operator, "values": values}]}]))
        };
        let by_name = required(json!([{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["a"]},
        ]}]));
        for (spec, labels, expected) in [
            (json!({}), json!({}), true),
            (json!({"nodeSelector": {"k": "1"}}), json!({"k": "1"}), true),
            (json!({"nodeSelector": {"k": "1"}}), json!({"k": "2"}), false),
            (by_label("In", json!(["1", "2"])), json!({"k": "2"}), true),
            (by_label("In", json!(["1"])), json!({}), false),
            (by_label("NotIn", json!(["1"])), json!({}), true),
            (by_label("Exists", json!([])), json!({"k": ""}), true),
            (by_label("DoesNotExist", json!([])), json!({"k": ""}), false),
            (by_label("Gt", json!(["5"])), json!({"k": "6"}), true),
            (by_label("Lt", json!(["5"])), json!({"k": "x"}), false),
            (by_name, json!({}), true),
            (required(json!([])), json!({}), false),
            (required(json!([{}])), json!({}), false),
        ] {
            assert_eq!(admits(&spec, "a", &node(labels.clone())), expected, "{spec} {labels}");
        }
    }

    #[test]
    fn a_taint_repels_unless_it_is_tolerated() {
        let taint = json!({"key": "k", "value": "v", "effect": "NoExecute"});
        let tainted = NodeView { taints: vec![Taint::of(&taint)], ..NodeView::default() };
        for (toleration, expected) in [
            (json!({}), true),
            (json!({"operator": "Exists"}), false),
            (json!({"key": "k", "operator": "Exists"}), false),
            (json!({"key": "k", "value": "v"}), false),
            (json!({"key": "k", "value": "w"}), true),
            (json!({"key": "k", "operator": "Exists", "effect": "NoSchedule"}), true),
        ] {
            let tolerations = [toleration];
            assert_eq!(is_repelled(&tolerations, &tainted, &["NoExecute"]), expected, "{tolerations:?}");
        }
        assert!(!is_repelled(&[], &tainted, &["NoSchedule"]));
    }
}
