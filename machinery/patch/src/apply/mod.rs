//! Server-side apply and field management
//! (<https://kubernetes.io/docs/reference/using-api/server-side-apply/>, KEP-555), as structured-merge-diff v6 and
//! `k8s.io/apimachinery/pkg/util/managedfields` do it.
//!
//! Each writer of an object owns the fields that it set; an apply can take a field from its owner only by force, and
//! removes what it owned alone and no longer names. [`apply`] is for apply patches, [`update`] for all other writes.
//!
//! Managers that used another version of the type keep their sets as they are: field names are taken to be equal in
//! all versions. This module must not know storage, admission, defaulting, or the time of day.

mod conflict;
mod element;
mod last_applied;
mod managed;
mod merge;
mod set;
mod shape;
mod typed;
mod validate;

#[cfg(test)]
mod tests;

pub use element::PathElement;
pub use managed::MAX_UPDATE_MANAGERS;
pub use set::{FieldSet, Path};
pub use typed::Comparison;

use freehold_machinery::{
    GroupVersion, Map, Value, meta,
    schema::{Schema, zeros},
    status::{Result, Status},
};
use managed::{Entry, Managed, Manager, Operation};
use shape::Shape;
use std::{borrow::Cow, sync::OnceLock};

/// Who writes, and how.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// The field manager; empty becomes `unknown`. For updates without one, callers derive it from the user agent.
    pub manager: &'a str,
    /// Whether an apply takes fields from other managers rather than fail.
    pub force: bool,
    /// `apiVersion` of the request.
    pub api_version: &'a str,
    /// Kind of the request.
    pub kind: &'a str,
    /// The subresource that is written; empty for the object itself.
    pub subresource: &'a str,
    /// The time of the write: RFC 3339, UTC, whole seconds.
    pub now: &'a str,
    /// The schema of the whole object; without one maps are granular and lists atomic. Defaults of list keys
    /// (`protocol` of container ports) are read from it.
    pub schema: Option<&'a Schema>,
    /// Fields that this endpoint does not write (`status` of the object itself, all but `status` of its
    /// subresource): they are neither applied nor owned through it.
    pub reset_fields: Option<&'a FieldSet>,
}

impl Options<'_> {
    fn manager(&self, operation: Operation) -> Manager {
        let name = if self.manager.is_empty() { "unknown" } else { self.manager };
        self.named(name, operation)
    }

    fn named(&self, name: &str, operation: Operation) -> Manager {
        Manager {
            name: name.to_owned(),
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }

    /// The type as Go prints a `GroupVersionKind`.
    fn type_name(&self) -> String {
        type_name(self.api_version, self.kind)
    }
}

fn type_name(api_version: &str, kind: &str) -> String {
    let gv = GroupVersion::parse(api_version).unwrap_or_default();
    format!("{}/{}, Kind={kind}", gv.group, gv.version)
}

/// The fields that a value has: what an apply of it would own.
pub fn set_of(value: &Value, schema: Option<&Schema>) -> FieldSet {
    typed::fields_of(value, Shape::Root(schema))
}

/// What differs between two objects.
pub fn compare(old: &Value, new: &Value, schema: Option<&Schema>) -> Comparison {
    typed::differences(old, new, Shape::Root(schema))
}

/// Checks that a configuration fits its schema and has no item of a list twice.
///
/// # Errors
/// All that is wrong, in the words of structured-merge-diff: `.spec.replica: field not declared in schema`.
pub fn check(config: &Value, schema: Option<&Schema>) -> Result<(), String> {
    validate::check(config, Shape::Root(schema))
}

/// Merges `config` into `live`, without regard to owners.
///
/// # Errors
/// A 500 without a reason, as in Kubernetes, where `config` does not fit the schema.
pub fn merge(live: &Value, config: &Value, schema: Option<&Schema>) -> Result<Value> {
    let mut merged = live.clone();
    merge::merge_into(&mut merged, config, Shape::Root(schema))
        .map_err(|e| unfit(format!("failed to merge config: {e}")))?;
    Ok(merged)
}

/// Applies `config` on `live`, which is absent when the object is to be created.
///
/// Returns the merged object with `metadata.managedFields`, not defaulted yet; `None` when neither the object nor
/// its managed fields change.
///
/// # Errors
/// 400: `config` has managed fields or is of another type. 409: conflicts with other managers. 500 without a reason,
/// as in Kubernetes: `config` does not fit the schema.
pub fn apply(live: Option<&Value>, config: &Value, options: &Options<'_>) -> Result<Option<Value>> {
    check_config(config, options)?;
    let shape = Shape::Root(options.schema);
    let none = Value::Object(Map::new());
    let object = live.unwrap_or(&none);
    let managed_before = meta::metadata(object).and_then(|m| m.get("managedFields"));
    let mut managed = Managed::decode(managed_before)
        .map_err(|e| unfit(format!("failed to decode managed fields: {e}")))?;
    if managed.is_empty() {
        adopt(&mut managed, live, options);
    }
    managed.reconcile(shape);

    let manager = options.manager(Operation::Apply);
    let mut new = without_managed_fields(object);
    merge::merge_into(&mut new, &written_here(config, options), shape)
        .map_err(|e| unfit(format!("failed to merge config: {e}")))?;
    let before = managed.get(&manager).cloned();
    let fields = without_reset(typed::fields_of(config, shape), options);
    let time = before.as_ref().and_then(|entry| entry.time.clone());
    managed.put(Entry { manager: manager.clone(), time, fields });
    let nothing = FieldSet::default();
    let owned = before.as_ref().map_or(&nothing, |entry| &entry.fields);
    let Pruned { object: new, emptied } = prune(new, &managed, &manager, owned, shape);

    let mut changes = exclude(typed::differences(object, &new, shape), options);
    changes.removed = changes.removed.difference(&emptied);
    if !options.force {
        let conflicts =
            last_applied::without_own(managed.conflicts(Some(&manager), &changes), object, options);
        if !conflicts.is_empty() {
            return Err(conflict::status(&conflicts));
        }
    }
    managed.yield_to(Some(&manager), &changes);
    finish_apply(managed, &manager, new, object, config, options)
}

/// Gives the entry its time, and the object its managed fields.
fn finish_apply(
    mut managed: Managed,
    manager: &Manager,
    mut new: Value,
    live: &Value,
    config: &Value,
    options: &Options<'_>,
) -> Result<Option<Value>> {
    let changed = !element::same(&new, &without_managed_fields(live));
    if let Some(mut entry) = managed.get(manager).cloned() {
        entry.fields = entry.fields.difference(never_owned());
        if changed {
            entry.time = Some(options.now.to_owned());
        }
        managed.put(entry);
    }
    managed.drop_idle();
    last_applied::refresh(&mut new, config, options);
    set_managed_fields(&mut new, managed.encode());
    Ok((!element::same(&new, live)).then_some(new))
}

/// Refuses what can't be applied here at all.
fn check_config(config: &Value, options: &Options<'_>) -> Result<()> {
    let text = |name| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let given = (text("apiVersion"), text("kind"));
    if given != (options.api_version, options.kind) {
        return Err(Status::bad_request(format!("invalid object type: {}", type_name(given.0, given.1))));
    }
    if meta::metadata(config).and_then(|m| m.get("managedFields")).is_some_and(|fields| !fields.is_null()) {
        return Err(Status::bad_request("metadata.managedFields must be nil"));
    }
    validate::check(config, Shape::Root(options.schema)).map_err(|e| {
        let (namespace, name, kind) = (meta::namespace(config), meta::name(config), options.type_name());
        unfit(format!("failed to create typed patch object ({namespace}/{name}; {kind}): {e}"))
    })
}

/// An error that Kubernetes answers with 500 and no reason.
fn unfit(message: String) -> Status {
    Status::new(500, "", message)
}

/// An object that nobody has applied or tracked yet belongs to `before-first-apply`.
fn adopt(managed: &mut Managed, live: Option<&Value>, options: &Options<'_>) {
    let Some(live) = live else { return };
    let live = without_managed_fields(live);
    let changes = typed::differences(&Value::Object(Map::new()), &live, Shape::Root(options.schema));
    own_changes(
        managed,
        exclude(changes, options).difference(never_owned()),
        options.named("before-first-apply", Operation::Update),
        options,
    );
}

/// An object after fields were taken out of it.
struct Pruned {
    object: Value,
    /// Maps and lists that are gone because nothing was left in them.
    emptied: FieldSet,
}

impl Pruned {
    fn of(object: &Value, fields: &FieldSet, shape: Shape<'_>) -> Self {
        let mut object = object.clone();
        let emptied = merge::remove_fields(&mut object, fields, shape);
        Self { object, emptied }
    }

    /// The fields that are left, with named parents.
    fn fields(&self, shape: Shape<'_>) -> FieldSet {
        typed::with_named_parents(&typed::fields_of(&self.object, shape).union(self.emptied.clone()), shape)
    }
}

/// Takes out of `merged` what `manager` applied before, does not apply now, and nobody else owns.
fn prune(merged: Value, managed: &Managed, manager: &Manager, before: &FieldSet, shape: Shape<'_>) -> Pruned {
    let kept = managed.get(manager).map(|entry| entry.fields.clone()).unwrap_or_default();
    let merged = Pruned { object: merged, emptied: FieldSet::default() };
    if before.clone().difference(&kept).is_empty() {
        return merged;
    }
    let before = typed::with_named_parents(before, shape);
    let present = merged.fields(shape);
    let managed = typed::with_named_parents(&managed.all_fields(), shape);
    let bare = Pruned::of(&merged.object, &before, shape);
    let unowned = present.clone().difference(&bare.fields(shape).union(managed));
    let owned = Pruned::of(&merged.object, &unowned, shape);
    let mut gone = present.difference(&owned.fields(shape)).intersection(&before);
    gone.remove_field_member("metadata");
    Pruned::of(&merged.object, &gone, shape)
}

/// Brings `new.metadata.managedFields` up to date for a create, update or patch. `live` is absent for a create.
///
/// `new` is the object as it will be stored, defaulted. What the client put into `metadata.managedFields` is honoured
/// as Kubernetes does, except through subresources: `[]` and `[{}]` reset it, a valid list replaces it, anything else
/// is ignored. An object whose managed fields were reset is not tracked again before it is applied.
pub fn update(live: Option<&Value>, new: &mut Value, options: &Options<'_>) {
    let shape = Shape::Root(options.schema);
    let given = take_managed_fields(new);
    // Whose items can't be told apart is not tracked, nor what does not fit its schema, as custom resources of another
    // version may not.
    let custom = options.schema.is_some_and(|schema| schema.go.is_none());
    if validate::lacks_keys(new, shape) || custom && validate::misfits(new, shape) {
        return;
    }
    let before = live.and_then(meta::metadata).and_then(|m| m.get("managedFields"));
    // What is new is told from an object that nobody has filled in, as Kubernetes' typed objects are when they are made.
    let unset =
        live.is_none().then(|| options.schema.map_or_else(|| Value::Object(Map::new()), zeros::unset));
    let old = live.or(unset.as_ref()).unwrap_or(&Value::Null);
    let whole = options.schema.filter(|schema| !schema.zeros.is_empty()).map(|schema| {
        let mut whole = new.clone();
        zeros::complete(&mut whole, schema);
        whole
    });
    let changes = exclude(typed::differences(old, whole.as_ref().unwrap_or(new), shape), options)
        .difference(never_owned());
    let replaced = options.subresource.is_empty() && given.is_some() && given.as_ref() != before;
    if changes.is_empty() && !replaced {
        return set_managed_fields(new, before.cloned());
    }
    let mut managed = requested(given.filter(|_| replaced), before);
    if managed.is_empty() && live.is_some() {
        return;
    }
    managed.reconcile(shape);
    own_changes(&mut managed, changes, options.manager(Operation::Update), options);
    set_managed_fields(new, managed.encode());
}

/// The managed fields to start from: the client's where they are valid, else those of the live object.
fn requested(given: Option<Value>, before: Option<&Value>) -> Managed {
    if given.as_ref().is_some_and(is_reset) {
        return Managed::default();
    }
    let given =
        given.and_then(|given| Managed::decode(Some(&given)).ok()).filter(|managed| !managed.is_empty());
    given.unwrap_or_else(|| Managed::decode(before).unwrap_or_default())
}

fn is_reset(managed: &Value) -> bool {
    match managed.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.is_empty(),
        _ => false,
    }
}

/// Gives changed fields, of which none is nobody's, to `manager` and takes them from all others.
fn own_changes(managed: &mut Managed, changes: Comparison, manager: Manager, options: &Options<'_>) {
    managed.yield_to(None, &changes);
    let fields = changes.modified.union(changes.added);
    if !fields.is_empty() {
        managed.put_or_join(Entry { manager, time: Some(options.now.to_owned()), fields });
    }
    managed.cap();
}

/// The configuration without the fields that this endpoint does not write.
fn written_here<'v>(config: &'v Value, options: &Options<'_>) -> Cow<'v, Value> {
    match options.reset_fields.filter(|fields| !fields.is_empty()) {
        None => Cow::Borrowed(config),
        Some(fields) => {
            let mut config = config.clone();
            merge::remove_fields(&mut config, fields, Shape::Root(options.schema));
            Cow::Owned(config)
        }
    }
}

fn without_reset(fields: FieldSet, options: &Options<'_>) -> FieldSet {
    match options.reset_fields {
        Some(reset) => fields.recursive_difference(reset),
        None => fields,
    }
}

fn exclude(changes: Comparison, options: &Options<'_>) -> Comparison {
    match options.reset_fields {
        Some(reset) => changes.without(reset),
        None => changes,
    }
}

/// Fields that the server sets or that name the object: nobody owns them.
fn never_owned() -> &'static FieldSet {
    static FIELDS: OnceLock<FieldSet> = OnceLock::new();
    FIELDS.get_or_init(|| {
        FieldSet::of_paths(&[
            &["apiVersion"],
            &["kind"],
            &["metadata"],
            &["metadata", "name"],
            &["metadata", "namespace"],
            &["metadata", "creationTimestamp"],
            &["metadata", "selfLink"],
            &["metadata", "uid"],
            &["metadata", "clusterName"],
            &["metadata", "generation"],
            &["metadata", "managedFields"],
            &["metadata", "resourceVersion"],
        ])
    })
}

fn without_managed_fields(object: &Value) -> Value {
    let mut copy = object.clone();
    take_managed_fields(&mut copy);
    copy
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    let taken = metadata.get_mut("managedFields").map(Value::take);
    metadata.retain(|key, _| key != "managedFields");
    taken
}

fn set_managed_fields(object: &mut Value, managed: Option<Value>) {
    if let Some(managed) = managed {
        meta::set(object, "managedFields", managed);
    }
}
