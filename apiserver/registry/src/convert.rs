//! Between the stored version of an object and the version that was asked for.

use crate::Object;
use freehold_apiserver_cache::{Cache, Entry};
use freehold_apiserver_catalog::autoscalers;
use freehold_apiserver_operation::is_stored;
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{
    PlaneId, ResourceType, Result, Status, Value,
    resource::Conversion,
    schema::{self, Schema},
};
use std::sync::Arc;

/// The revision at which the schema of a type was last written; 0 for those that never change.
pub(crate) fn schema_since(cache: &Cache, plane: &PlaneId, ty: &ResourceType) -> u64 {
    if !ty.custom || ty.since > 0 {
        return ty.since;
    }
    let definition = ObjectPath {
        group: "apiextensions.k8s.io".to_owned(),
        resource: "customresourcedefinitions".to_owned(),
        namespace: None,
        name: format!("{}.{}", ty.plural, ty.group),
    };
    cache.peek(plane, &definition).map_or(0, |entry| entry.modified)
}

/// An entry in the version of `ty`. The bytes are passed on as they are where the versions agree.
///
/// What was written before revision `since`, at which the schema may have changed, is pruned and defaulted by the schema
/// of its version as it is now.
pub(crate) fn out(ty: &ResourceType, entry: Arc<Entry>, since: u64) -> Result<Object> {
    let outdated = ty.custom && entry.modified < since;
    // An export may have gone back to schemas of before, which do not know the version.
    let foreign = ty.since > 0 && !entry.is_of(&ty.storage.api_version);
    if is_stored(ty) && !outdated && !foreign {
        return Ok(Object::Cached(entry));
    }
    let kept = entry.value();
    let mut value = kept.clone();
    if outdated && let Some(schema) = schema_of(ty, entry.field("apiVersion")) {
        schema::prune(&mut value, schema, true);
        schema::default(&mut value, schema);
    }
    let mut value = to_served(ty, value)?;
    if foreign && let Some(schema) = ty.schema.get() {
        schema::default(&mut value, schema);
    }
    if value == kept { Ok(Object::Cached(entry)) } else { Ok(Object::Value(Arc::new(value))) }
}

/// The schema of a version of a CRD: the served one, or that in which objects are stored.
fn schema_of<'t>(ty: &'t ResourceType, api_version: &str) -> Option<&'t Arc<Schema>> {
    if !ty.custom {
        None
    } else if api_version == ty.api_version() {
        ty.schema.get()
    } else if api_version == ty.storage.api_version {
        ty.stored_schema.as_ref()?.get()
    } else {
        None
    }
}

/// Prunes and defaults what was brought into the version in which it is stored, as who reads it in that version sees it.
pub(crate) fn settle_stored(ty: &ResourceType, object: &mut Value) {
    if let Some(schema) = ty.stored_schema.as_ref().and_then(|schema| schema.get()) {
        schema::prune(object, schema, true);
        schema::default(object, schema);
    }
}

/// An entry as whoever looks at several planes sees it by the type of one of them: as [`out`], but as it is stored where a
/// webhook would have to convert it, which must not see what is in another plane.
pub(crate) fn own(ty: &ResourceType, entry: Arc<Entry>, since: u64) -> Result<Object> {
    match ty.storage.conversion {
        Conversion::Webhook(_) if !entry.is_of(&ty.api_version()) => Ok(Object::Cached(entry)),
        _ => out(ty, entry, since),
    }
}

/// From any version to the served one.
pub(crate) fn to_served(ty: &ResourceType, object: Value) -> Result<Value> {
    convert(ty, object, &ty.api_version())
}

/// From the served version to the stored one.
pub(crate) fn to_stored(ty: &ResourceType, object: Value) -> Result<Value> {
    convert(ty, object, &ty.storage.api_version)
}

/// An object as it would be read again, of a type that is stored in another version and needs no webhook: without fields
/// that the stored version does not know, and with its defaults.
pub(crate) fn through_stored(ty: &ResourceType, object: Value) -> Result<Value> {
    match ty.storage.conversion {
        Conversion::BuiltIn(_) | Conversion::None if !is_stored(ty) => {
            let mut stored = to_stored(ty, object)?;
            settle_stored(ty, &mut stored);
            to_served(ty, stored)
        }
        _ => Ok(object),
    }
}

fn convert(ty: &ResourceType, mut object: Value, to: &str) -> Result<Value> {
    if object.get("apiVersion").and_then(Value::as_str) == Some(to) {
        return Ok(object);
    }
    match &ty.storage.conversion {
        Conversion::None => {}
        Conversion::BuiltIn("events") => events(&mut object, to),
        Conversion::BuiltIn("horizontalpodautoscalers") => autoscalers::convert(&mut object, to),
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
    // What one version has and the other has not is not shown there, nor kept.
    if let Some(schema) = schema_of(ty, to) {
        schema::prune(&mut object, schema, true);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery::crd;
    use serde_json::json;

    /// Versions of one definition: v1, in which objects are stored and which may not be served, and v2.
    fn versions(v1_served: bool) -> Vec<Arc<ResourceType>> {
        let version = |name: &str, served: bool, fields: Value| {
            let spec = json!({"type": "object", "properties": fields});
            let schema = json!({"type": "object", "properties": {"spec": spec}});
            json!({"name": name, "served": served, "storage": name == "v1", "schema": {"openAPIV3Schema": schema}})
        };
        let one = json!({"both": {"type": "string"}, "old": {"type": "string"}, "at": {"type": "string", "default": "v1"}});
        let two = json!({"both": {"type": "string"}, "new": {"type": "string"}, "at": {"type": "string", "default": "v2"}});
        let definition = json!({"spec": {"group": "g.io", "scope": "Cluster", "names": {"plural": "ts", "kind": "T"},
            "versions": [version("v1", v1_served, one), version("v2", true, two)]}});
        crd::compile(&definition).unwrap()
    }

    #[test]
    fn versions_that_need_no_webhook_show_what_their_schemas_know() {
        for v1_served in [true, false] {
            let types = versions(v1_served);
            let v2 = types.last().unwrap();
            let sent = json!({"apiVersion": "g.io/v2", "kind": "T", "spec": {"both": "b", "new": "n"}});
            let mut stored = to_stored(v2, sent).unwrap();
            settle_stored(v2, &mut stored);
            let kept = json!({"apiVersion": "g.io/v1", "kind": "T", "spec": {"both": "b", "at": "v1"}});
            assert_eq!(stored, kept);
            let shown = to_served(
                v2,
                json!({"apiVersion": "g.io/v1", "kind": "T", "spec": {"both": "b", "old": "o"}}),
            );
            assert_eq!(
                shown.unwrap()["spec"],
                json!({"both": "b"}),
                "defaults are those of the stored version"
            );
        }
    }

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
