//! What a type or an object is, where the verbs treat it as something of its own.

use freehold_machinery::{ResourceType, Value, meta};

/// Whether a type is that of classes.
pub(crate) fn is_class(ty: &ResourceType) -> bool {
    ty.group == "resourcemanager.freehold.dev" && ty.plural == "controlplaneclasses"
}

/// Whether objects of a type are definitions.
pub(crate) fn is_definition(ty: &ResourceType) -> bool {
    ty.group == "apiextensions.k8s.io" && ty.plural == "customresourcedefinitions"
}

/// Whether nothing holds an object any more whose deletion has begun.
pub(crate) fn is_released(object: &Value) -> bool {
    let grace = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
    let held = object["spec"]["finalizers"].as_array().is_some_and(|f| !f.is_empty());
    meta::is_deleting(object) && meta::finalizers(object).is_empty() && grace == 0 && !held
}
