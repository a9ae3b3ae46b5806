//! What a write has to agree with: the name, uid and version that its client has seen.

use crate::draft::Live;
use crate::{Operation, WriteOptions, validate};
use freehold_machinery::{
    GroupVersionKind, Result, Status, Value, meta,
    schema::{self},
};
use freehold_machinery_patch::apply::Options;
use std::sync::Arc;

pub(crate) fn managers<'a>(
    op: &'a Operation,
    options: &'a WriteOptions,
    api_version: &'a str,
    now: &'a str,
) -> Options<'a> {
    let reset = match op.subresource.as_deref() {
        None if op.ty.has_status() => Some(validate::status_fields()),
        Some("status") => Some(validate::spec_fields()),
        _ => None,
    };
    Options {
        manager: &options.field_manager,
        force: options.force,
        api_version,
        kind: &op.ty.kind,
        subresource: op.subresource.as_deref().unwrap_or(""),
        now,
        schema: op.ty.schema.get().map(|schema: &Arc<schema::Schema>| &**schema),
        reset_fields: reset,
    }
}

/// What is told of a key that stands twice in YAML, without what it is told of all of them together.
pub(crate) fn without_head(told: &str) -> &str {
    told.rsplit_once("unmarshal errors:\n  ").map_or(told, |(_, told)| told)
}

/// The kind of the bodies of a request: the resource's own, or that of its scale.
pub(crate) fn spoken(op: &Operation) -> GroupVersionKind {
    let scale =
        op.subresource.as_deref().filter(|name| *name == "scale").and_then(|name| op.ty.subresource(name));
    scale.map_or_else(|| op.ty.gvk(), |scale| scale.kind.clone())
}

/// The name in the body is not that of the URL.
pub(crate) fn misnamed(op: &Operation, given: &str) -> Status {
    let expected = op.name();
    Status::bad_request(if given.is_empty() {
        format!("the name of the object ({expected} based on URL) was undeterminable: name must be provided")
    } else {
        format!("the name of the object ({given}) does not match the name on the URL ({expected})")
    })
}

/// Where kube-apiserver keeps an object, which it tells who updates another one of its name.
pub(crate) fn stored_at(op: &Operation, dry_run: bool) -> String {
    const OLD: [(&str, &str, &str); 5] = [
        ("", "endpoints", "services/endpoints"),
        ("", "nodes", "minions"),
        ("", "replicationcontrollers", "controllers"),
        ("", "services", "services/specs"),
        ("networking.k8s.io", "ingresses", "ingress"),
    ];
    const BY_GROUP: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];
    let (group, plural) = (&*op.ty.group, &*op.ty.plural);
    let old = OLD.iter().find(|(g, p, _)| (*g, *p) == (group, plural)).map(|(.., old)| *old);
    let resource = match old {
        Some(old) => old.to_owned(),
        None if op.ty.custom || BY_GROUP.contains(&group) => format!("{group}/{plural}"),
        None => plural.to_owned(),
    };
    let namespace = op.namespace.as_ref().map(|namespace| format!("/{namespace}")).unwrap_or_default();
    let root = if dry_run { "" } else { "/registry" };
    format!("{root}/{resource}{namespace}/{}", op.name())
}

/// The uid that an update brings is a precondition.
pub(crate) fn check_uid(op: &Operation, draft: &Value, live: &Live, dry_run: bool) -> Result<()> {
    let (given, own) = (meta::uid(draft), meta::uid(&live.value));
    if given.is_empty() || given == own {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in \
         precondition: {given}, UID in object meta: {own}",
        stored_at(op, dry_run)
    );
    Err(Status::conflict(&op.ty.group_resource(), op.name(), &why))
}

pub(crate) fn check_version(op: &Operation, given: &str, live: &Live) -> Result<()> {
    let (resource, name) = (op.ty.group_resource(), op.name());
    if !given.is_empty() && given != "0" && given != live.modified.to_string() {
        if given.parse::<u64>().is_err() {
            return Err(Status::new(
                500,
                "",
                format!("strconv.ParseUint: parsing {given:?}: invalid syntax"),
            ));
        }
        return Err(Status::modified(&resource, name));
    }
    Ok(())
}

/// Whether a write would change nothing but the times of managed fields.
pub(crate) fn unchanged(draft: &Value, live: &Value) -> bool {
    let (Some(new), Some(old)) = (draft.as_object(), live.as_object()) else { return false };
    let skipped = |key: &str| key == "resourceVersion";
    new.len() == old.len()
        && new.iter().all(|(key, value)| {
            let Some(before) = old.get(key) else { return false };
            if key != "metadata" {
                return value == before;
            }
            let (Some(a), Some(b)) = (value.as_object(), before.as_object()) else { return false };
            let same = |k: &str, v: &Value, w: &Value| {
                v == w || (k == "managedFields" && without_times(v) == without_times(w))
            };
            a.iter().all(|(k, v)| skipped(k) || b.get(k).is_some_and(|w| same(k, v, w)))
                && b.keys().all(|k| skipped(k) || a.contains_key(k))
        })
}

/// Managed fields as they are apart from when they were written.
pub(crate) fn without_times(managed: &Value) -> Value {
    let mut managed = managed.clone();
    for entry in managed.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        entry.remove("time");
    }
    managed
}
