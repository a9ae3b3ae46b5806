//! CustomResourceDefinitions: defaulting, validation, status, and their compilation into [`ResourceType`]s.
//!
//! A CRD is a [`Value`] of `apiextensions.k8s.io/v1`. What makes one acceptable, and every text and path in an error, is
//! that of `k8s.io/apiextensions-apiserver`. Rules in CEL are compiled elsewhere; here they are only looked at.
//!
//! The order of a write: [`default`], [`validate`] or [`validate_update`], [`prepare_status`], commit, then
//! [`set_status`] with what [`name_conflict`] found, and [`compile`].

mod approval;
mod breaking;
mod compile;
mod export;
mod openapi;
mod parts;
pub mod references;
mod status;
mod validate;
mod webhook;

pub use breaking::{breaking, loses_webhook};
pub use compile::{compare_versions, compile};
pub use export::{Exporter, definition_of, exported};
pub use status::{
    CLEANUP_FINALIZER, NameConflict, begin_deletion, deletion_in_progress, has_its_names, is_established,
    name_conflict, prepare_status, set_status,
};
pub use validate::{validate, validate_update, warnings};
pub use webhook::check_url as check_webhook_url;

use crate::{Map, Value};
use parts::{flag, status_mut, text, versions};

/// Fills in what a client may leave out: singular, list kind, conversion, the webhook's port and stored versions.
pub fn default(crd: &mut Value) {
    let storage = versions(crd).iter().find(|v| flag(v, "storage")).map(|v| text(v, "name").to_owned());
    let Some(spec) = crd.get_mut("spec").and_then(Value::as_object_mut) else { return };
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(schema) = version.pointer_mut("/schema/openAPIV3Schema") {
            drop_null_defaults(schema);
        }
    }
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or("").to_owned();
        if !kind.is_empty() {
            set_if_empty(names, "singular", &kind.to_lowercase());
            set_if_empty(names, "listKind", &format!("{kind}List"));
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".into(), serde_json::json!({"strategy": "None"}));
    }
    if let Some(service) =
        spec.get_mut("conversion").and_then(|c| c.pointer_mut("/webhook/clientConfig/service"))
        && let Some(service) = service.as_object_mut()
        && service.get("port").is_none_or(Value::is_null)
    {
        service.insert("port".into(), 443.into());
    }
    if let Some(name) = storage
        && crd.pointer("/status/storedVersions").and_then(Value::as_array).is_none_or(Vec::is_empty)
    {
        status_mut(crd).insert("storedVersions".into(), vec![name].into());
    }
}

/// A default that is null is none.
fn drop_null_defaults(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    if map.get("default").is_some_and(Value::is_null) {
        map.remove("default");
    }
    for (key, inner) in map {
        match (key.as_str(), inner) {
            ("properties", Value::Object(fields)) => fields.values_mut().for_each(drop_null_defaults),
            ("items" | "additionalProperties" | "not", inner) => drop_null_defaults(inner),
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => list.iter_mut().for_each(drop_null_defaults),
            _ => {}
        }
    }
}

fn set_if_empty(map: &mut Map, field: &str, value: &str) {
    if map.get(field).and_then(Value::as_str).unwrap_or("").is_empty() {
        map.insert(field.to_owned(), value.into());
    }
}

#[cfg(test)]
#[path = "crd/tests.rs"]
mod tests;
