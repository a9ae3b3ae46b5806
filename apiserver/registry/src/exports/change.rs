//! A new schema in an export: refused where it breaks what consumers have, unless the provider insists.

use super::{api_path, list, text};
use crate::{Operation, Registry};
use freehold_machinery::{
    PlaneId, ResourceType, Result, Status, Value,
    crd::{self, breaking, loses_webhook},
    meta, schema,
    status::FieldError,
    strict,
};
use std::{collections::HashSet, sync::Arc};

/// The annotation with which a provider insists on a breaking change; its value is the reason.
const INSIST: &str = "apis.freehold.dev/breaking-change";
/// Where an export says for which reason it was insisted on last: that one counts for no other change.
const USED: &str = "/status/breakingChange";
/// Objects that no longer validate, as many as are named.
const NAMED: usize = 5;
/// Changes that are named.
const CHANGES: usize = 10;

/// A kind whose schema changes; `new` is `None` where it is no longer exported.
struct Changed {
    group: String,
    plural: String,
    old: Value,
    new: Option<Value>,
}

/// A change from one set of schemas of an export to another, and whose objects it is about.
pub(super) struct SchemaChange<'a> {
    /// The names of the schemas before.
    pub(super) before: &'a [Value],
    /// The names of the schemas after.
    pub(super) after: &'a [Value],
    /// The identity of the export.
    pub(super) identity: &'a str,
    /// The consumers whose objects are looked at; `None` for all.
    pub(super) only: Option<&'a HashSet<PlaneId>>,
    /// Whether objects are looked at although the comparison finds nothing that breaks.
    pub(super) thorough: bool,
    /// A condition that no object may have with status `False`; empty for none.
    pub(super) condition: &'a str,
}

impl Registry {
    /// Refuses an update of an export whose schemas break stored objects of consumers, or that a rollout will make. Gives
    /// the reason that counts for no further change: the one that insists on this one, or on the last one so far.
    pub(super) async fn check_change(
        &self,
        op: &Operation,
        draft: &Value,
        old: &Value,
    ) -> Result<Option<String>> {
        let used = Some(text(old, USED)).filter(|used| !used.is_empty()).map(str::to_owned);
        let (before, after) = (list(old, "/spec/schemas"), list(draft, "/spec/schemas"));
        if before == after {
            return Ok(used);
        }
        let given = meta::annotation(draft, INSIST).unwrap_or_default();
        let mut reason = if used.as_deref() == Some(given) { String::new() } else { given.to_owned() };
        if let Some(rollout) = self.exports()?.rollout(&op.plane, op.name()).await? {
            if after != rollout.schemas.as_slice() {
                let why = format!(
                    "APIRollout {:?} is changing the schemas: revert it, or delete it if no stage has begun",
                    rollout.name
                );
                return Err(Status::conflict(&op.ty.group_resource(), op.name(), &why));
            }
            if rollout.is_at_end {
                reason = rollout.forced.unwrap_or(reason);
            }
        }
        if !reason.is_empty() {
            self.insist(op, &reason);
            return Ok(if reason == given { Some(reason) } else { used });
        }
        let identity = text(old, "/status/identity");
        let change = SchemaChange { before, after, identity, only: None, thorough: false, condition: "" };
        let Some(why) = self.broken(op, &change).await? else { return Ok(used) };
        let other = if given.is_empty() { "a" } else { "another" };
        let why = format!("{why}; change them first, or give {other} reason in the annotation {INSIST}");
        let error = FieldError::forbidden("spec.schemas", why);
        Err(Status::invalid(&op.ty.group, &op.ty.kind, op.name(), &[error]))
    }

    /// Notes in the audit log and in the server's that somebody insists on a change that breaks.
    pub(super) fn insist(&self, op: &Operation, reason: &str) {
        op.annotations.add(INSIST.to_owned(), reason.to_owned());
        tracing::warn!(plane = %op.plane, name = op.name(), user = op.user.name, reason, "a provider insists on a change of schemas");
    }

    /// What a change breaks, with the objects that are no longer valid; `None` where nothing is.
    pub(super) async fn broken(&self, op: &Operation, change: &SchemaChange<'_>) -> Result<Option<String>> {
        for changed in self.changed(op, change).await? {
            let lines = match &changed.new {
                Some(new) => breaking(&changed.old, new),
                None => vec!["it is no longer exported".to_owned()],
            };
            if lines.is_empty() && !change.thorough {
                continue;
            }
            let failing = self.failing(&changed, change).await?;
            if failing.is_empty() {
                continue;
            }
            let mut shown: Vec<String> = lines.iter().take(CHANGES).cloned().collect();
            if lines.len() > CHANGES {
                shown.push(format!("and {} more", lines.len() - CHANGES));
            }
            let breaks = match shown.is_empty() {
                true => String::new(),
                false => format!(" would break ({}), and", shown.join("; ")),
            };
            return Ok(Some(format!(
                "{}.{}{breaks} stored objects of consumers are no longer valid or healthy: {}",
                changed.plural,
                changed.group,
                failing.join(", "),
            )));
        }
        Ok(None)
    }

    async fn changed(&self, op: &Operation, change: &SchemaChange<'_>) -> Result<Vec<Changed>> {
        let (before, after) = (self.schemas(op, change.before).await?, self.schemas(op, change.after).await?);
        let key = |spec: &Value| (text(spec, "/group").to_owned(), text(spec, "/names/plural").to_owned());
        let one = |old: Value| {
            let (group, plural) = key(&old);
            let new = after.iter().find(|new| key(new) == (group.clone(), plural.clone())).cloned();
            Changed { group, plural, old, new }
        };
        let is_changed =
            |changed: &Changed| changed.new.as_ref() != Some(&changed.old) || !change.condition.is_empty();
        Ok(before.into_iter().map(one).filter(is_changed).collect())
    }

    /// The specs of schemas by name, as far as they are there.
    pub(super) async fn schemas(&self, op: &Operation, names: &[Value]) -> Result<Vec<Value>> {
        let mut specs = Vec::new();
        for name in names.iter().filter_map(Value::as_str) {
            let path = api_path("apiresourceschemas", name);
            if let Some(entry) = self.cache.get_cached(&op.plane, &path).await? {
                specs.push(entry.value()["spec"].clone());
            }
        }
        Ok(specs)
    }

    /// The first objects of consumers that are no longer valid, as `project/namespace/name`.
    async fn failing(&self, changed: &Changed, change: &SchemaChange<'_>) -> Result<Vec<String>> {
        let types =
            changed.new.as_ref().map(|new| crd::compile(&crd::definition_of(new)).unwrap_or_default());
        // Without a webhook an object has to be as each version wants it, otherwise as the one that it is stored in.
        let in_all = changed.new.as_ref().is_some_and(|new| loses_webhook(&changed.old, new));
        let is_valid = |object: &Value| {
            let is_stored = |ty: &Arc<ResourceType>| ty.api_version() == text(object, "/apiVersion");
            let mut types = types.iter().flatten();
            types.clone().any(is_stored)
                && types.all(|ty| !in_all && !is_stored(ty) || is_valid(ty, object))
                && !has_failed(object, change.condition)
        };
        let mut failing = Vec::new();
        let resource = format!("{}:{}", changed.plural, change.identity);
        let visit = |plane: &PlaneId, entry: Arc<freehold_apiserver_cache::Entry>| {
            let is_asked = change.only.is_none_or(|only| only.contains(plane));
            if is_asked && failing.len() < NAMED && !is_valid(&entry.value()) {
                failing.push(format!("{}/{}/{}", self.consumer_name(plane), entry.namespace(), entry.name()));
            }
        };
        self.cache.list_planes(&changed.group, &resource, visit).await?;
        Ok(failing)
    }

    /// The project of a plane, or the plane where it has none any more.
    pub(super) fn consumer_name(&self, plane: &PlaneId) -> String {
        self.ledger
            .tenancy()
            .owner(plane)
            .map_or_else(|| plane.to_string(), |owner| owner.project.to_string())
    }
}

/// Whether an object is as a type wants it, and loses nothing by it.
fn is_valid(ty: &ResourceType, object: &Value) -> bool {
    let Some(schema) = ty.schema.get() else { return true };
    let mut object = object.clone();
    // What a field had that is gone would be lost.
    let keeps_all = strict::unknown(&object, schema).is_empty();
    schema::default(&mut object, schema);
    if !keeps_all || !schema::validate(&object, schema, None).is_empty() {
        return false;
    }
    // Rules that don't compile were refused with the schema.
    match freehold_machinery_cel::Rules::of(ty) {
        Ok(rules) => rules.validate_update(&object, None).0.is_empty(),
        Err(_) => false,
    }
}

/// Whether an object has a condition with status `False`.
fn has_failed(object: &Value, condition: &str) -> bool {
    !condition.is_empty()
        && list(object, "/status/conditions")
            .iter()
            .any(|one| one["type"] == condition && one["status"] == "False")
}
