//! Between the stored version of an object and the version that was asked for.

use crate::{Object, validate};
use freehold_apiserver_cache::Entry;
use freehold_machinery::{ResourceType, Result, Status, Value, resource::Conversion};
use serde_json::json;
use std::sync::Arc;

/// An entry in the version of `ty`. The bytes are passed on as they are where the versions agree.
///
/// What was written before revision `since`, at which the schema may have changed, is pruned and defaulted by the schema
/// as it is now.
pub(crate) fn out(ty: &ResourceType, entry: Arc<Entry>, since: u64) -> Result<Object> {
    let outdated = ty.custom && entry.modified < since;
    if is_stored(ty) && !outdated {
        return Ok(Object::Cached(entry));
    }
    let kept = entry.value();
    let mut value = to_served(ty, kept.clone())?;
    if outdated {
        validate::prune(ty, &mut value);
        validate::default(ty, &mut value);
        if value == kept {
            return Ok(Object::Cached(entry));
        }
    }
    Ok(Object::Value(Arc::new(value)))
}

/// An entry as whoever looks at several planes sees it: as [`out`], but as it is stored where a webhook would have to
/// convert it. The type is that of one plane, and its webhook must not see what is in another.
pub(crate) fn own(ty: &ResourceType, entry: Arc<Entry>, since: u64) -> Result<Object> {
    match ty.storage.conversion {
        Conversion::Webhook(_) if entry.field("apiVersion") != ty.api_version() => Ok(Object::Cached(entry)),
        _ => out(ty, entry, since),
    }
}

/// Whether objects are stored in the version that `ty` serves.
pub(crate) fn is_stored(ty: &ResourceType) -> bool {
    let stored = &*ty.storage.api_version;
    match &*ty.group {
        "" => stored == ty.version,
        group => stored.strip_prefix(group).and_then(|rest| rest.strip_prefix('/')) == Some(&*ty.version),
    }
}

/// From the stored version to the served one.
pub(crate) fn to_served(ty: &ResourceType, object: Value) -> Result<Value> {
    convert(ty, object, &ty.api_version())
}

/// From the served version to the stored one.
pub(crate) fn to_stored(ty: &ResourceType, object: Value) -> Result<Value> {
    convert(ty, object, &ty.storage.api_version)
}

fn convert(ty: &ResourceType, mut object: Value, to: &str) -> Result<Value> {
    if object.get("apiVersion").and_then(Value::as_str) == Some(to) {
        return Ok(object);
    }
    match &ty.storage.conversion {
        Conversion::None => {}
        Conversion::BuiltIn("events") => events(&mut object, to),
        Conversion::BuiltIn("horizontalpodautoscalers") => autoscalers(&mut object, to),
        Conversion::BuiltIn(other) => return Err(Status::internal(format!("no conversion named {other}"))),
        Conversion::Webhook(_) => {
            // Where a webhook can be asked, it is asked before.
            return Err(Status::internal(format!(
                "{} needs a webhook to be had in {to}",
                ty.group_resource()
            )));
        }
    }
    object["apiVersion"] = to.into();
    object["kind"] = ty.kind.clone().into();
    Ok(object)
}

/// What core events and events.k8s.io events call the same things.
const EVENT_FIELDS: [(&str, &str); 6] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

fn events(object: &mut Value, to: &str) {
    let Some(map) = object.as_object_mut() else { return };
    let rename = |map: &mut freehold_machinery::Map, from: &str, to: &str| {
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    };
    for (core, modern) in EVENT_FIELDS {
        if to == "v1" { rename(map, modern, core) } else { rename(map, core, modern) }
    }
    if to == "v1" {
        rename(map, "reportingController", "reportingComponent");
    } else {
        rename(map, "reportingComponent", "reportingController");
        // The newer version leaves out who reports where nobody does.
        for field in ["reportingController", "reportingInstance"] {
            if map.get(field).is_some_and(|value| value == "") {
                map.remove(field);
            }
        }
    }
}

/// autoscaling/v1 knows one metric, CPU utilization.
fn autoscalers(object: &mut Value, to: &str) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if to == "autoscaling/v2" {
        if let Some(percent) = spec.remove("targetCPUUtilizationPercentage") {
            let target = json!({"type": "Utilization", "averageUtilization": percent});
            spec.insert(
                "metrics".into(),
                json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
            );
        }
        return;
    }
    let metrics = spec.remove("metrics").unwrap_or_default();
    let cpu = metrics.as_array().into_iter().flatten().find(|m| m["resource"]["name"] == "cpu");
    if let Some(percent) = cpu.and_then(|m| m["resource"]["target"].get("averageUtilization")) {
        spec.insert("targetCPUUtilizationPercentage".into(), percent.clone());
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.remove("currentMetrics");
        status.entry("currentReplicas").or_insert_with(|| 0.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_keeps_its_content_in_both_versions() {
        let core =
            json!({"involvedObject": {"kind": "Pod"}, "message": "m", "count": 2, "reportingComponent": "c"});
        let mut object = core.clone();
        events(&mut object, "events.k8s.io/v1");
        assert_eq!(object["regarding"]["kind"], "Pod");
        assert_eq!(object["note"], "m");
        events(&mut object, "v1");
        assert_eq!(object, core);
    }
}
