//! Parts of workloads' defaults that the server also needs when it writes.

use crate::access::{at, list_mut};
use freehold_machinery::{Value, meta};
use serde_json::json;

/// How often the template of a DaemonSet was changed, as `apps/v1` still tells it.
pub const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// Sets the template's generation of a DaemonSet.
pub fn set_template_generation(object: &mut Value, generation: i64) {
    let annotations = meta::metadata_mut(object).entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(TEMPLATE_GENERATION.to_owned(), generation.to_string().into());
    }
}

/// Whoever writes a DaemonSet writes the template's generation too, though only the server counts it.
pub fn default_template_generation(object: &mut Value) {
    if at(object, "metadata.annotations").get(TEMPLATE_GENERATION).is_none() {
        set_template_generation(object, 0);
    }
}

/// What of a StatefulSet's strategy is stored: not what a feature has that is off.
pub fn without_disabled(set: &mut Value) {
    if let Some(rolling) =
        set.pointer_mut("/spec/updateStrategy/rollingUpdate").and_then(Value::as_object_mut)
    {
        rolling.remove("maxUnavailable");
    }
}

/// The templates of a StatefulSet's claims say what they are.
pub fn name_claims(set: &mut Value) {
    for claim in list_mut(set, "spec.volumeClaimTemplates").filter_map(Value::as_object_mut) {
        claim.insert("apiVersion".into(), "v1".into());
        claim.insert("kind".into(), "PersistentVolumeClaim".into());
    }
}
