//! What the schema says of an object, and what every object must satisfy.

use crate::predicates::is_class;
use crate::predicates::is_definition;
use crate::strategy;
use crate::{Operation, class, scale};
use freehold_apiserver_catalog::schema_of_kind;
use freehold_apiserver_kinds as kinds;
pub(crate) use freehold_apiserver_kinds::default;
use freehold_machinery::{
    GroupVersionKind, ResourceType, Result, Status, Value, crd, go, meta,
    names::{NameRule, validate_metadata, validate_metadata_update},
    schema::{self, Schema, default::Empty},
    status::{FieldError, FieldErrorKind},
};
use freehold_machinery_patch::apply::FieldSet;
use std::{borrow::Cow, sync::LazyLock};

/// What keeps an object from being read as one of its type: values of the wrong JSON type, of custom resources in their
/// metadata only; what else is wrong with those is found when they are validated.
pub(crate) fn unreadable(ty: &ResourceType, object: &Value) -> Option<String> {
    match ty.custom {
        true => go::object_meta_mismatch(&object["metadata"])
            .or_else(|| schema::unreadable_metadata(object, ty.schema.get()?)),
        false => go::mismatch(object, ty.schema.get()?),
    }
}

/// Drops fields that the schema does not know.
pub(crate) fn prune(ty: &ResourceType, object: &mut Value) {
    if let Some(schema) = ty.schema.get() {
        schema::prune(object, schema, true);
    }
}

/// The kind that a subresource speaks which is posted to or connected to; `None` where that is the resource's own.
fn action<'a>(ty: &'a ResourceType, subresource: &str) -> Option<&'a GroupVersionKind> {
    let sub = ty.subresource(subresource)?;
    (sub.verbs.contains(&"create") && sub.kind != ty.gvk()).then_some(&sub.kind)
}

/// The schema of the objects that a subresource speaks, of the resource's own where it is empty; `None` where anything goes.
pub(crate) fn spoken_schema<'a>(ty: &'a ResourceType, subresource: &str) -> Option<&'a Schema> {
    match action(ty, subresource) {
        Some(kind) => schema_of_kind(kind).map(|schema| &**schema),
        None => ty.schema.get().map(|schema| &**schema),
    }
}

/// Why an object can't be read as one that a subresource speaks; `None` where it can.
pub(crate) fn unreadable_as(ty: &ResourceType, subresource: &str, object: &Value) -> Option<String> {
    match action(ty, subresource) {
        Some(_) => go::mismatch(object, spoken_schema(ty, subresource)?),
        None => unreadable(ty, object),
    }
}

/// Prunes an object that a subresource speaks, and fills in its defaults.
pub(crate) fn settle(ty: &ResourceType, subresource: &str, object: &mut Value) {
    if action(ty, subresource).is_none() {
        prune(ty, object);
        default(ty, object);
    } else if let Some(schema) = spoken_schema(ty, subresource) {
        schema::prune(object, schema, true);
        schema::default(object, schema);
    }
}

/// Fills in the defaults of a status, of which nothing that a request says is kept.
pub(crate) fn default_status(ty: &ResourceType, object: &mut Value) {
    let schema = ty.schema.get().filter(|_| ty.custom && ty.has_status());
    if let Some(schema) = schema.filter(|s| s.properties.get("status").is_some_and(|s| s.default.is_some())) {
        schema::default(object, schema);
    }
}

/// Levels of nesting that an object may have with its managed fields, which repeat it: what is stored can be read back.
const MAX_DEPTH: usize = 120;

fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(_) | Value::Array(_) if levels == 0 => true,
        Value::Object(map) => map.values().any(|value| is_deeper(value, levels - 1)),
        Value::Array(list) => list.iter().any(|value| is_deeper(value, levels - 1)),
        _ => false,
    }
}

/// An object as its client wrote it, with the empty lists and maps that are not stored.
pub(crate) fn as_written<'a>(object: &'a Value, empties: &[Empty]) -> Cow<'a, Value> {
    let mut object = Cow::Borrowed(object);
    empties.iter().for_each(|empty| empty.restore(object.to_mut()));
    object
}

/// Everything that must hold before an object is stored. Gives warnings of what does not hold, and did not before.
pub(crate) fn object(op: &Operation, object: &Value, old: Option<&Value>) -> Result<Vec<String>> {
    if is_deeper(object, MAX_DEPTH) {
        return Err(Status::bad_request(format!("the object is nested deeper than {MAX_DEPTH} levels")));
    }
    let ty = &op.ty;
    let mut tolerated = Vec::new();
    let mut errors = match old {
        // The version is not part of what is stored; the write has compared it already, where the client gave one.
        Some(old) => {
            let mut errors = validate_metadata_update(object, old);
            errors.retain(|error| error.field != "metadata.resourceVersion");
            repeated(ty, object, errors)
        }
        None => validate_metadata(object, NameRule::of(&ty.group, &ty.plural), ty.namespaced),
    };
    let wrong = if ty.custom { wrong_type(ty, object) } else { Vec::new() };
    if !wrong.is_empty() {
        // Of what is of another type, its rules alone are looked at.
        errors = wrong.into_iter().chain(rules(ty, object, old).0).collect();
    } else if let Some(schema) = ty.schema.get().filter(|_| ty.custom) {
        let found = match op.subresource.as_deref() {
            Some("status") => schema::validate_field(object, "status", schema, old),
            _ => schema::validate(object, schema, old),
        };
        match freehold_machinery_cel::blocked_by(&found) {
            // Of a type without rules nothing was left unchecked.
            Some(blocked) => {
                let has_rules = freehold_machinery_cel::Rules::of(ty).map_or(true, |rules| !rules.is_empty());
                errors.extend(found.into_iter().chain(has_rules.then_some(blocked)));
            }
            None => {
                let (broken, known) = rules(ty, object, old);
                tolerated = known;
                errors.extend(found.into_iter().chain(scale::check(op, object)).chain(broken));
            }
        }
    }
    if !ty.custom {
        errors.extend(built_in(op, object, old));
    }
    if is_class(ty) {
        errors.extend(class::check(object));
    }
    if errors.is_empty() && op.plane.is_core() {
        errors.extend((strategy::of(ty).check)(object, old));
    }
    if ty.custom {
        errors.retain(|error| !error.detail.starts_with(UNQUALIFIED));
    }
    if errors.is_empty() {
        return Ok(tolerated.iter().map(ToString::to_string).collect());
    }
    errors.iter_mut().filter(|error| !ty.custom && error.shown.is_none()).for_each(|error| {
        // What is the same in all versions of a definition stands above them inside of Kubernetes.
        let at = match error.field.as_str() {
            "spec.validation.openAPIV3Schema" => "spec.versions[0].schema.openAPIV3Schema",
            field => field,
        };
        let value = error.value.as_ref().filter(|value| value.is_object() || value.is_array());
        error.shown = value.and_then(|value| freehold_apiserver_catalog::shown(&ty.gvk(), at, value));
    });
    let group = strategy::of(ty).error_group.unwrap_or(&ty.group);
    let kind = if ty.custom { object["kind"].as_str().unwrap_or_default() } else { &ty.kind };
    Err(Status::invalid(group, kind, meta::name(object), &errors))
}

/// What is said of finalizers of built-in kinds alone: of others it is a warning.
const UNQUALIFIED: &str = "name is neither a standard finalizer name";

/// What is wrong with the kind and version of a custom resource, which can be read all the same.
fn wrong_type(ty: &ResourceType, object: &Value) -> Vec<FieldError> {
    let expected = [("kind", ty.kind.clone()), ("apiVersion", ty.api_version())];
    let wrong = |(field, wanted): (&str, String)| {
        let given = object[field].as_str().unwrap_or_default();
        (given != wanted).then(|| FieldError::invalid(field, given.into(), format!("must be {wanted}")))
    };
    expected.into_iter().filter_map(wrong).collect()
}

/// Errors of metadata as often as kube-apiserver finds them in an update: the rules for all objects and those of the kind
/// look at them, and most kinds check the whole object once more each time.
fn repeated(ty: &ResourceType, object: &Value, update: Vec<FieldError>) -> Vec<FieldError> {
    let whole = || validate_metadata(object, NameRule::of(&ty.group, &ty.plural), ty.namespaced);
    let once = strategy::of(ty).checks_metadata_once;
    let passes: Vec<FieldError> = match (ty.custom, once) {
        (true, _) => Vec::new(),
        (false, true) => whole(),
        (false, false) => whole().into_iter().chain(update.clone()).chain(whole()).collect(),
    };
    let again = if ty.custom || once { update.clone() } else { Vec::new() };
    update.into_iter().chain(again).chain(passes).collect()
}

/// What a client should know of what it wrote.
pub(crate) fn warnings(op: &Operation, object: &Value, old: Option<&Value>) -> Vec<String> {
    if op.subresource.is_some() {
        return Vec::new();
    }
    if is_definition(&op.ty) {
        return crd::warnings(object, old);
    }
    let known = old.map(meta::finalizers).unwrap_or_default();
    let plain = |f: &&str| op.ty.custom && !f.contains('/') && !STANDARD.contains(f) && !known.contains(f);
    let warn = |finalizer| {
        format!(
            "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
        )
    };
    meta::finalizers(object).into_iter().filter(plain).map(warn).collect()
}

/// Finalizers of Kubernetes that have no domain.
const STANDARD: [&str; 3] = ["foregroundDeletion", "orphan", "kubernetes"];

/// What the CEL rules of a type say, and what they said before of what did not change. Rules that don't compile were
/// refused with their CRD.
fn rules(ty: &ResourceType, object: &Value, old: Option<&Value>) -> (Vec<FieldError>, Vec<FieldError>) {
    match freehold_machinery_cel::Rules::of(ty) {
        Ok(rules) => rules.validate_update(object, old),
        Err(errors) => (errors, Vec::new()),
    }
}

/// What the rules of a built-in kind find, and what of it can't be read: its schema says no more than that.
fn built_in(op: &Operation, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let special = kinds::check::run(&op.ty, op.subresource.as_deref(), object, old);
    // Its own checks say everything, and in paths of their own.
    if is_definition(&op.ty) {
        return special;
    }
    let Some(schema) = op.ty.schema.get() else { return special };
    let mut errors = schema::validate::against(object, schema, old, "");
    let unreadable = [FieldErrorKind::Invalid, FieldErrorKind::TypeInvalid];
    // No bytes at all are written as an empty string.
    let no_bytes = |error: &FieldError| {
        error.detail.contains("must be of type byte") && error.value.as_ref().is_some_and(|value| value == "")
    };
    errors.retain(|error| {
        unreadable.contains(&error.kind)
            && !no_bytes(error)
            && !error.field.starts_with("metadata.")
            && !special.iter().any(|own| own.field == error.field)
    });
    special.into_iter().chain(errors).collect()
}

/// What the main endpoint of a type with a status subresource does not write.
pub(crate) fn status_fields() -> &'static FieldSet {
    static FIELDS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_paths(&[&["status"]]));
    &FIELDS
}

/// What the status endpoint does not write.
pub(crate) fn spec_fields() -> &'static FieldSet {
    static FIELDS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_paths(&[&["spec"], &["metadata"]]));
    &FIELDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_counted_in_levels() {
        let nested =
            |levels: usize| (1..levels).fold(serde_json::json!([]), |inner, _| serde_json::json!([inner]));
        assert!(!is_deeper(&nested(MAX_DEPTH), MAX_DEPTH));
        assert!(is_deeper(&nested(MAX_DEPTH + 1), MAX_DEPTH));
    }
}
