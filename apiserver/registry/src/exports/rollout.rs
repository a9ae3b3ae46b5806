//! Rollouts: what the server checks with each of their writes, whoever writes.
//!
//! A controller decides when the next stage begins. That no consumer gets schemas which its objects do not meet is decided
//! here, with the write that would make it so.

use super::{api_path, change::SchemaChange, condition, list, text};
use crate::{Operation, Registry};
use freehold_machinery::{PlaneId, Result, Status, Value, status::FieldError};
use serde_json::json;
use std::collections::HashSet;

/// A rollout that is under way.
pub struct FoundRollout {
    /// Its name.
    pub name: String,
    /// The names of the next schemas.
    pub schemas: Vec<Value>,
    /// The reason for which it may break objects.
    pub forced: Option<String>,
    /// Whether every stage has the next schemas.
    pub is_at_end: bool,
}

/// Consumers of an export.
#[derive(Default)]
pub struct Members {
    /// How many there are.
    pub all: usize,
    /// Those that stages select.
    pub selected: HashSet<PlaneId>,
}

fn stage_of(rollout: &Value) -> usize {
    rollout.pointer("/status/stage").and_then(Value::as_u64).unwrap_or_default() as usize
}

/// Whether a rollout is neither over nor taken back.
fn is_open(rollout: &Value) -> bool {
    !matches!(text(rollout, "/status/phase"), "Complete" | "Reverted")
}

impl Registry {
    pub(super) async fn settle_rollout(
        &self,
        op: &Operation,
        draft: &mut Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let reason = text(draft, "/spec/force/reason");
        if !reason.is_empty() && old.is_none_or(|old| text(old, "/spec/force/reason") != reason) {
            self.insist(op, reason);
        }
        match old {
            None => {
                draft["status"] = json!({"phase": "Pending", "stage": 0});
                self.check_new_rollout(op, draft).await?;
            }
            Some(old) => self.check_step(op, draft, old).await?,
        }
        if !(draft["status"].is_object() || draft["status"].is_null()) {
            // Validation says what is wrong with it.
            return Ok(());
        }
        let (export, stages) = (text(draft, "/spec/export"), list(draft, "/spec/stages"));
        let begun = if is_open(draft) { stage_of(draft).min(stages.len()) } else { 0 };
        let members = self.exports()?.members(&op.plane, export, op.name(), &stages[..begun]).await?;
        let is_complete = text(draft, "/status/phase") == "Complete";
        draft["status"]["consumers"] = members.all.into();
        draft["status"]["updated"] = if is_complete { members.all } else { members.selected.len() }.into();
        let phase = Some(text(draft, "/status/phase")).filter(|phase| !phase.is_empty()).unwrap_or("Pending");
        let generation = draft["metadata"]["generation"].clone();
        let complete = condition(old, "Complete", (is_complete, phase, ""), &generation);
        let others = list(draft, "/status/conditions").iter().filter(|one| one["type"] != "Complete");
        let conditions: Vec<Value> = others.cloned().chain([complete]).collect();
        draft["status"]["conditions"] = conditions.into();
        Ok(())
    }

    async fn export_of(&self, op: &Operation, rollout: &Value) -> Result<Value> {
        let name = text(rollout, "/spec/export");
        match self.cache.get_cached(&op.plane, &api_path("apiexports", name)).await? {
            Some(entry) => Ok(Value::clone(&entry.value())),
            None => Err(wrong(op, "spec.export", format!("there is no APIExport {name:?}"))),
        }
    }

    async fn check_new_rollout(&self, op: &Operation, draft: &Value) -> Result<()> {
        let exports = self.exports()?;
        let export = self.export_of(op, draft).await?;
        let (before, after) = (list(&export, "/spec/schemas"), list(draft, "/spec/schemas"));
        let names = after.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if let Some(name) = exports.missing(&op.plane, names).await?.first() {
            return Err(wrong(op, "spec.schemas", format!("there is no APIResourceSchema {name:?}")));
        }
        if before == after {
            return Err(wrong(op, "spec.schemas", "these are the export's schemas already".to_owned()));
        }
        if let Some(other) = exports.rollout(&op.plane, text(draft, "/spec/export")).await? {
            let why = format!("APIRollout {:?} of that export is under way", other.name);
            return Err(Status::conflict(&op.ty.group_resource(), op.name(), &why));
        }
        if !text(draft, "/spec/force/reason").is_empty() {
            return Ok(());
        }
        let identity = text(&export, "/status/identity");
        let change = SchemaChange { before, after, identity, only: None, thorough: false, condition: "" };
        match self.broken(op, &change).await? {
            Some(why) => {
                let why = format!("{why}; change them first, or give a reason in spec.force.reason");
                Err(wrong(op, "spec.schemas", why))
            }
            None => Ok(()),
        }
    }

    /// Refuses a stage whose consumers the next schemas do not fit.
    async fn check_step(&self, op: &Operation, draft: &Value, old: &Value) -> Result<()> {
        let (from, to) = (if is_open(old) { stage_of(old) } else { 0 }, stage_of(draft));
        let stages = list(draft, "/spec/stages");
        if to <= from || !is_open(draft) {
            return Ok(());
        }
        if to > from + 1 || to > stages.len() {
            let why = format!("the next stage is {}, and there are {}", from + 1, stages.len());
            return Err(wrong(op, "status.stage", why));
        }
        let exports = self.exports()?;
        let name = text(draft, "/spec/export");
        if let Some(other) = exports.rollout(&op.plane, name).await?.filter(|other| other.name != op.name()) {
            let why = format!("APIRollout {:?} of that export is under way", other.name);
            return Err(wrong(op, "status.stage", why));
        }
        let export = self.export_of(op, draft).await?;
        let (before, after) = (list(&export, "/spec/schemas"), list(draft, "/spec/schemas"));
        let names = after.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        if let Some(name) = exports.missing(&op.plane, names).await?.first() {
            return Err(wrong(op, "spec.schemas", format!("there is no APIResourceSchema {name:?}")));
        }
        let members = exports.members(&op.plane, name, op.name(), &stages[..to]).await?;
        if let Some(why) = self.occupied(op, (before, after), &members).await? {
            return Err(wrong(op, "status.stage", why));
        }
        let condition = text(draft, "/spec/health/objectCondition");
        let is_forced = !text(draft, "/spec/force/reason").is_empty();
        if is_forced && condition.is_empty() {
            return Ok(());
        }
        let change = SchemaChange {
            before,
            after: if is_forced { before } else { after },
            identity: text(&export, "/status/identity"),
            only: Some(&members.selected),
            thorough: true,
            condition,
        };
        match self.broken(op, &change).await? {
            Some(why) => Err(wrong(op, "status.stage", why)),
            None => Ok(()),
        }
    }

    /// Which consumers define kinds themselves that a change brings.
    async fn occupied(
        &self,
        op: &Operation,
        (before, after): (&[Value], &[Value]),
        members: &Members,
    ) -> Result<Option<String>> {
        let names = |specs: Vec<Value>| -> HashSet<String> {
            let name = |spec: &Value| format!("{}.{}", text(spec, "/names/plural"), text(spec, "/group"));
            specs.iter().map(name).collect()
        };
        let (known, next) = (names(self.schemas(op, before).await?), names(self.schemas(op, after).await?));
        let new: HashSet<&String> = next.difference(&known).collect();
        if new.is_empty() {
            return Ok(None);
        }
        let mut found = 0;
        self.cache
            .list_planes("apiextensions.k8s.io", "customresourcedefinitions", |plane, entry| {
                let is_new = new.iter().any(|name| **name == *entry.name());
                if is_new && members.selected.contains(plane) {
                    found += 1;
                }
            })
            .await?;
        // Which ones is theirs to say: no claim is about definitions.
        let why = || format!("{found} consumers define a kind of the next schemas themselves");
        Ok((found > 0).then(why))
    }

    /// Refuses to delete a rollout while some consumers have other schemas than the rest.
    pub(super) fn check_rollout_deletion(&self, op: &Operation, live: &Value) -> Result<()> {
        if is_open(live) && stage_of(live) > 0 {
            let why = "consumers have its schemas: set spec.revert, or let it complete";
            return Err(Status::conflict(&op.ty.group_resource(), op.name(), why));
        }
        Ok(())
    }
}

fn wrong(op: &Operation, field: &str, why: String) -> Status {
    Status::invalid(&op.ty.group, &op.ty.kind, op.name(), &[FieldError::forbidden(field, why)])
}
