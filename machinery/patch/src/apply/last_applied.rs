//! The way from client-side to server-side apply: `kubectl.kubernetes.io/last-applied-configuration`.
//!
//! Only the manager `kubectl` gets this treatment; any other name opts out of it.

use super::{
    Options,
    managed::Manager,
    set::FieldSet,
    shape::Shape,
    typed::{differences, fields_of},
    validate,
};
use freehold_machinery::{Map, Value, meta};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
const MANAGER: &str = "kubectl";
/// The most that all annotations of an object can have, in bytes of keys and values.
const MAX_ANNOTATIONS: usize = 256 * 1024;

/// Leaves out the conflicts over fields that `live` still has as client-side apply left them.
pub(super) fn without_own(
    conflicts: Vec<(Manager, FieldSet)>,
    live: &Value,
    options: &Options<'_>,
) -> Vec<(Manager, FieldSet)> {
    if options.manager != MANAGER || conflicts.is_empty() {
        return conflicts;
    }
    let Some(own) = applied_before(live, options) else { return conflicts };
    let rest = conflicts.into_iter().map(|(manager, fields)| (manager, fields.difference(&own)));
    rest.filter(|(_, fields)| !fields.is_empty()).collect()
}

fn applied_before(live: &Value, options: &Options<'_>) -> Option<FieldSet> {
    let applied: Value = serde_json::from_str(meta::annotation(live, ANNOTATION)?).ok()?;
    let shape = Shape::Root(options.schema);
    if applied.get("apiVersion").and_then(Value::as_str) != Some(options.api_version) {
        return None;
    }
    validate::check(&applied, shape).ok()?;
    // An object with items that appear twice is not upgraded: it can't be told which of them was applied.
    validate::check(live, shape).ok()?;
    let changes = differences(&applied, live, shape);
    let fields = fields_of(&applied, shape);
    Some(fields.difference(&changes.modified).difference(&changes.added).difference(&changes.removed))
}

/// Brings the annotation, where `object` has it, up to what `config` says.
pub(super) fn refresh(object: &mut Value, config: &Value, options: &Options<'_>) {
    if options.manager != MANAGER || meta::annotation(object, ANNOTATION).is_none_or(str::is_empty) {
        return;
    }
    let mut config = config.clone();
    if let Some(Value::Object(annotations)) = config.pointer_mut("/metadata/annotations") {
        annotations.retain(|key, _| key != ANNOTATION);
    }
    let Some(Value::Object(annotations)) = meta::metadata_mut(object).get_mut("annotations") else { return };
    annotations.insert(ANNOTATION.to_owned(), Value::from(format!("{}\n", sorted(config))));
    let size: usize =
        annotations.iter().map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    if size > MAX_ANNOTATIONS {
        annotations.retain(|key, _| key != ANNOTATION);
    }
}

/// The value with its keys in order, as Go writes maps.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<_> = map.into_iter().map(|(key, value)| (key, sorted(value))).collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(Map::from_iter(fields))
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}
