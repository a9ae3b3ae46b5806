//! autoscaling/v1, which knows one metric, CPU utilization. The others go through it as annotations, as in Kubernetes.

use freehold_machinery::{GroupVersionKind, Value, meta};
use serde_json::json;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// A field of a metric: in v2, in the annotation, and whether that says it always, as an amount.
type Row = (&'static str, &'static str, bool);

const SPECS: [(&str, &[Row]); 5] = [
    (
        "object",
        &[
            ("/describedObject", "target", false),
            ("/metric/name", "metricName", false),
            ("/target/value", "targetValue", true),
            ("/metric/selector", "selector", false),
            ("/target/averageValue", "averageValue", false),
        ],
    ),
    (
        "pods",
        &[
            ("/metric/name", "metricName", false),
            ("/target/averageValue", "targetAverageValue", true),
            ("/metric/selector", "selector", false),
        ],
    ),
    (
        "resource",
        &[
            ("/name", "name", false),
            ("/target/averageUtilization", "targetAverageUtilization", false),
            ("/target/averageValue", "targetAverageValue", false),
        ],
    ),
    (
        "containerResource",
        &[
            ("/name", "name", false),
            ("/target/averageUtilization", "targetAverageUtilization", false),
            ("/target/averageValue", "targetAverageValue", false),
            ("/container", "container", false),
        ],
    ),
    (
        "external",
        &[
            ("/metric/name", "metricName", false),
            ("/metric/selector", "metricSelector", false),
            ("/target/value", "targetValue", false),
            ("/target/averageValue", "targetAverageValue", false),
        ],
    ),
];

const STATUSES: [(&str, &[Row]); 5] = [
    (
        "object",
        &[
            ("/describedObject", "target", false),
            ("/metric/name", "metricName", false),
            ("/current/value", "currentValue", true),
            ("/metric/selector", "selector", false),
            ("/current/averageValue", "averageValue", false),
        ],
    ),
    (
        "pods",
        &[
            ("/metric/name", "metricName", false),
            ("/current/averageValue", "currentAverageValue", true),
            ("/metric/selector", "selector", false),
        ],
    ),
    (
        "resource",
        &[
            ("/name", "name", false),
            ("/current/averageUtilization", "currentAverageUtilization", false),
            ("/current/averageValue", "currentAverageValue", true),
        ],
    ),
    (
        "containerResource",
        &[
            ("/name", "name", false),
            ("/current/averageUtilization", "currentAverageUtilization", false),
            ("/current/averageValue", "currentAverageValue", true),
            ("/container", "container", false),
        ],
    ),
    (
        "external",
        &[
            ("/metric/name", "metricName", false),
            ("/metric/selector", "metricSelector", false),
            ("/current/value", "currentValue", true),
            ("/current/averageValue", "currentAverageValue", false),
        ],
    ),
];

/// Makes an object of v1 of one of v2, or the other way round.
pub fn convert(object: &mut Value, to: &str) {
    if to == "autoscaling/v2" { to_v2(object) } else { to_v1(object) }
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

fn to_v1(object: &mut Value) {
    let mut kept: Vec<(&str, String)> = Vec::new();
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = spec.remove("metrics").unwrap_or_default();
        let metrics = metrics.as_array().map(Vec::as_slice).unwrap_or_default();
        let of_cpu =
            |metric: &&Value| is_cpu(metric) && !metric["resource"]["target"]["averageUtilization"].is_null();
        if let Some(cpu) = metrics.iter().find(of_cpu) {
            let percent = cpu["resource"]["target"]["averageUtilization"].clone();
            spec.insert("targetCPUUtilizationPercentage".into(), percent);
        }
        let others = metrics.iter().filter(|metric| !of_cpu(metric)).map(|metric| flat(metric, &SPECS));
        kept.extend(listed(others).map(|text| (METRICS, text)));
        if let Some(behavior) = spec.remove("behavior").filter(Value::is_object) {
            let kind = GroupVersionKind {
                group: "autoscaling".into(),
                version: "v2".into(),
                kind: "HorizontalPodAutoscaler".into(),
            };
            let shown = crate::shown(&kind, "spec.behavior", &behavior);
            kept.extend(shown.map(|shown| (BEHAVIOR, shown)));
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let metrics = status.remove("currentMetrics").unwrap_or_default();
        let metrics = metrics.as_array().map(Vec::as_slice).unwrap_or_default();
        let cpu = metrics.iter().rfind(|metric| is_cpu(metric));
        if let Some(percent) = cpu.and_then(|m| m["resource"]["current"].get("averageUtilization")) {
            status.insert("currentCPUUtilizationPercentage".into(), percent.clone());
        }
        let flat = metrics.iter().map(|metric| flat(metric, &STATUSES));
        kept.extend(listed(flat).map(|text| (CURRENT_METRICS, text)));
        let conditions =
            status.remove("conditions").filter(|list| list.as_array().is_some_and(|l| !l.is_empty()));
        kept.extend(conditions.map(|conditions| (CONDITIONS, ordered(&conditions))));
        status.entry("currentReplicas").or_insert_with(|| 0.into());
    }
    if !kept.is_empty() {
        let annotations = meta::metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
        kept.into_iter().for_each(|(key, text)| annotations[key] = text.into());
    }
}

fn to_v2(object: &mut Value) {
    let kept = taken(object);
    let list = |key: &str| {
        let value = kept.iter().find(|(known, _)| *known == key).map(|(_, value)| value.clone());
        value.and_then(|value| value.as_array().cloned()).unwrap_or_default()
    };
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        let mut metrics: Vec<Value> = list(METRICS).iter().map(|metric| nested(metric, &SPECS)).collect();
        let cpu = spec.remove("targetCPUUtilizationPercentage");
        if let Some(percent) = cpu.or_else(|| metrics.is_empty().then(|| 80.into())) {
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            metrics.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
        }
        spec.insert("metrics".into(), metrics.into());
        if let Some((_, behavior)) = kept.iter().find(|(key, value)| *key == BEHAVIOR && value.is_object()) {
            spec.insert("behavior".into(), lower(behavior));
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        let cpu = status.remove("currentCPUUtilizationPercentage").map(|percent| {
            let resource = json!({"name": "cpu", "current": {"averageUtilization": percent}});
            json!({"type": "Resource", "resource": resource})
        });
        let known: Vec<Value> =
            list(CURRENT_METRICS).iter().map(|metric| nested(metric, &STATUSES)).collect();
        let metrics = if known.is_empty() { cpu.into_iter().collect() } else { known };
        if !metrics.is_empty() {
            status.insert("currentMetrics".into(), metrics.into());
        }
        let conditions = list(CONDITIONS);
        if !conditions.is_empty() {
            status.insert("conditions".into(), conditions.into());
        }
    }
}

/// Takes out the annotations that stand for fields; those that can't be read are gone as well.
fn taken(object: &mut Value) -> Vec<(&'static str, Value)> {
    let metadata = meta::metadata_mut(object);
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return Vec::new();
    };
    let read = |key: &'static str| {
        let text = annotations.remove(key)?;
        Some((key, serde_json::from_str(text.as_str()?).ok()?))
    };
    let kept = [METRICS, CURRENT_METRICS, CONDITIONS, BEHAVIOR].into_iter().filter_map(read).collect();
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    kept
}

/// A metric as the annotation has it, its fields in the order in which Go writes them.
fn flat(metric: &Value, rows: &[(&str, &[Row])]) -> String {
    let mut parts = vec![format!("\"type\":{}", metric["type"])];
    for (kind, rows) in rows.iter().filter(|(kind, _)| metric[*kind].is_object()) {
        let field = |(path, field, always): &Row| {
            let value = metric[*kind].pointer(path).filter(|value| !value.is_null());
            let text = value.map(ordered).or_else(|| always.then(|| "\"0\"".to_owned()))?;
            Some(format!("{field:?}:{text}"))
        };
        let fields: Vec<String> = rows.iter().filter_map(field).collect();
        parts.push(format!("{kind:?}:{{{}}}", fields.join(",")));
    }
    format!("{{{}}}", parts.join(","))
}

fn listed(items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<String> = items.collect();
    (!items.is_empty()).then(|| format!("[{}]", items.join(",")))
}

/// JSON with the fields of conditions, references and selectors in the order in which Go writes them.
fn ordered(value: &Value) -> String {
    const ORDER: [&str; 8] =
        ["type", "status", "lastTransitionTime", "reason", "message", "kind", "name", "matchLabels"];
    let place = |key: &str| ORDER.iter().position(|known| *known == key).unwrap_or(ORDER.len());
    match value {
        Value::Object(map) => {
            let mut fields: Vec<(&String, &Value)> = map.iter().collect();
            fields.sort_by_key(|(key, _)| place(key));
            let field =
                |(key, value): (&String, &Value)| format!("{}:{}", Value::from(key.as_str()), ordered(value));
            format!("{{{}}}", fields.into_iter().map(field).collect::<Vec<_>>().join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(ordered).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

/// A metric of v1's annotation as v2 has it.
fn nested(metric: &Value, rows: &[(&str, &[Row])]) -> Value {
    let mut out = json!({"type": metric["type"]});
    for (kind, rows) in rows.iter().filter(|(kind, _)| metric[*kind].is_object()) {
        let given = &metric[*kind];
        let average = given.get("averageValue").is_some() || given.get("targetAverageValue").is_some();
        for (path, field, always) in *rows {
            // An amount of nothing stands for no amount where it is always said.
            let nothing = *always && average && given[*field] == "0" && !field.contains("Average");
            if let Some(value) = given.get(*field).filter(|_| !nothing) {
                let mut at = &mut out[*kind];
                for step in path.trim_start_matches('/').split('/') {
                    at = &mut at[step];
                }
                *at = value.clone();
            }
        }
        if out[*kind]["target"].is_object() {
            let kind_of_target = match (&out[*kind]["target"]["averageUtilization"], average) {
                (percent, _) if !percent.is_null() => "Utilization",
                (_, true) => "AverageValue",
                (_, false) => "Value",
            };
            out[*kind]["target"]["type"] = kind_of_target.into();
            if let Some(target) = out[*kind]["target"].as_object_mut() {
                target.retain(|_, value| !value.is_null());
            }
        }
    }
    out
}

/// Fields by the names that clients use, of those that Go has; what is not set is left out.
fn lower(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let field = |(key, value): (&String, &Value)| {
                let mut letters = key.chars();
                let first = letters.next()?.to_ascii_lowercase();
                (!value.is_null()).then(|| (format!("{first}{}", letters.as_str()), lower(value)))
            };
            Value::Object(map.iter().filter_map(field).collect())
        }
        Value::Array(list) => list.iter().map(lower).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way_through_the_old_version() {
        let target = |kind: &str, field: &str, value: Value| json!({"type": kind, field: value});
        let metric = json!({"name": "m", "selector": {"matchLabels": {"a": "b"}}});
        let about = json!({"kind": "Service", "name": "s", "apiVersion": "v1"});
        let utilization = target("Utilization", "averageUtilization", 50.into());
        let original = json!({
            "apiVersion": "autoscaling/v2",
            "metadata": {"name": "a", "annotations": {"own": "x"}},
            "spec": {
                "maxReplicas": 3,
                "behavior": {"scaleUp": {"selectPolicy": "Max", "stabilizationWindowSeconds": 0,
                    "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}},
                "metrics": [
                    {"type": "Object", "object": {"describedObject": about, "metric": metric, "target": target("Value", "value", "2".into())}},
                    {"type": "Pods", "pods": {"metric": metric, "target": target("AverageValue", "averageValue", "1".into())}},
                    {"type": "External", "external": {"metric": metric, "target": target("AverageValue", "averageValue", "1".into())}},
                    {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c", "target": utilization}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": utilization}},
                ],
            },
            "status": {"currentReplicas": 1, "desiredReplicas": 2,
                "conditions": [{"type": "AbleToScale", "status": "True"}],
                "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 4, "averageValue": "7m"}}}]},
        });
        let mut object = original.clone();
        convert(&mut object, "autoscaling/v1");
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 50);
        assert_eq!(object["status"]["currentCPUUtilizationPercentage"], 4);
        assert_eq!(
            meta::annotation(&object, CURRENT_METRICS).unwrap(),
            r#"[{"type":"Resource","resource":{"name":"cpu","currentAverageUtilization":4,"currentAverageValue":"7m"}}]"#
        );
        assert!(object["spec"].get("behavior").is_none());
        convert(&mut object, "autoscaling/v2");
        assert_eq!(object, original);
    }
}
