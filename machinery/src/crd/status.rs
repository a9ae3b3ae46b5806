//! The status of a CRD: which names it has, and whether it is served.

use super::{
    approval,
    parts::{flag, given, list, status_mut, text, versions},
};
use crate::{Value, meta, time};
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeSet;

/// Why a CRD can't have all of its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameConflict {
    /// `PluralConflict`, `SingularConflict`, `ShortNamesConflict`, `KindConflict` or `ListKindConflict`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// The names that are free: what `acceptedNames` becomes.
    accepted: Value,
}

/// Whether a CRD's types are served.
pub fn is_established(crd: &Value) -> bool {
    condition(crd, "Established").is_some_and(|c| text(c, "status") == "True")
}

/// Whether a CRD has all the names that it wants.
pub fn has_its_names(crd: &Value) -> bool {
    condition(crd, "NamesAccepted").is_none_or(|c| text(c, "status") == "True")
}

fn condition<'a>(crd: &'a Value, kind: &str) -> Option<&'a Value> {
    crd.get("status").and_then(|s| list(s, "conditions").iter().find(|c| text(c, "type") == kind))
}

/// What becomes of `status` when a client writes a CRD: what it was, with the storage version among the stored ones.
pub fn prepare_status(crd: &mut Value, old: Option<&Value>) {
    let was = old.and_then(|old| given(old, "status")).cloned().unwrap_or_else(|| json!({}));
    let storage = versions(crd).iter().find(|v| flag(v, "storage")).map(|v| Value::from(text(v, "name")));
    crd["status"] = was;
    let Some(storage) = storage else { return };
    let stored = status_mut(crd).entry("storedVersions").or_insert_with(|| json!([]));
    if !stored.is_array() {
        *stored = json!([]);
    }
    if let Some(stored) = stored.as_array_mut()
        && !stored.contains(&storage)
    {
        stored.push(storage);
    }
}

/// Compares a CRD's names with those that other CRDs of its group were accepted with (`others`: whole CRDs; itself and
/// those of other groups are left out).
pub fn name_conflict<'a>(crd: &Value, others: impl Iterator<Item = &'a Value>) -> Option<NameConflict> {
    let (mut resources, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    let (group, name) = (crd.pointer("/spec/group"), crd.pointer("/metadata/name"));
    for other in others.filter(|o| o.pointer("/spec/group") == group && o.pointer("/metadata/name") != name) {
        let Some(names) = other.pointer("/status/acceptedNames") else { continue };
        resources.extend([text(names, "plural"), text(names, "singular")]);
        resources.extend(list(names, "shortNames").iter().filter_map(Value::as_str));
        kinds.extend([text(names, "kind"), text(names, "listKind")]);
    }
    let wanted = crd.pointer("/spec/names").cloned().unwrap_or_default();
    let had = crd.pointer("/status/acceptedNames").cloned().unwrap_or_else(|| json!({}));
    let mut conflict = Conflict { accepted: wanted.clone(), had, found: None };
    conflict.one(&wanted, "plural", "PluralConflict", &resources);
    conflict.one(&wanted, "singular", "SingularConflict", &resources);
    conflict.short_names(&wanted, &resources);
    conflict.one(&wanted, "kind", "KindConflict", &kinds);
    conflict.one(&wanted, "listKind", "ListKindConflict", &kinds);
    let accepted = conflict.accepted;
    conflict.found.map(|(reason, message)| NameConflict { reason, message, accepted })
}

struct Conflict {
    accepted: Value,
    had: Value,
    found: Option<(&'static str, String)>,
}

impl Conflict {
    fn one(&mut self, wanted: &Value, field: &str, reason: &'static str, used: &BTreeSet<&str>) {
        let name = text(wanted, field);
        if name != text(&self.had, field) && used.contains(name) {
            self.found = Some((reason, format!("{name:?} is already in use")));
            self.keep(field);
        }
    }

    fn short_names(&mut self, wanted: &Value, used: &BTreeSet<&str>) {
        let had = list(&self.had, "shortNames");
        let fresh = list(wanted, "shortNames").iter().filter(|n| !had.contains(n)).filter_map(Value::as_str);
        let taken: Vec<String> =
            fresh.filter(|n| used.contains(n)).map(|n| format!("{n:?} is already in use")).collect();
        let message = match taken.as_slice() {
            [] => return,
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        self.found = Some(("ShortNamesConflict", message));
        self.keep("shortNames");
    }

    /// The name stays what it was.
    fn keep(&mut self, field: &str) {
        let had = self.had.get(field).cloned();
        if let Some(accepted) = self.accepted.as_object_mut() {
            match had {
                Some(had) => accepted.insert(field.to_owned(), had),
                // These two are never left out.
                None if matches!(field, "kind" | "plural") => accepted.insert(field.to_owned(), "".into()),
                None => accepted.remove(field),
            };
        }
    }
}

/// Writes `acceptedNames`, `storedVersions` and the conditions `NamesAccepted`, `Established` and, in groups of the Kubernetes
/// community, `KubernetesAPIApprovalPolicyConformant`. A CRD that was established stays so.
pub fn set_status(crd: &mut Value, names_conflict: Option<&NameConflict>, now: Timestamp) {
    let old = json!({"status": crd.get("status").cloned().unwrap_or_default()});
    prepare_status(crd, Some(&old));
    let names =
        names_conflict.map_or_else(|| crd.pointer("/spec/names").cloned(), |c| Some(c.accepted.clone()));
    let established = is_established(crd);
    status_mut(crd).insert("acceptedNames".into(), names.unwrap_or_else(|| json!({})));
    let now = time::format_seconds(now);
    if let Some((status, reason, message)) = approval::condition(crd) {
        set_condition(crd, "KubernetesAPIApprovalPolicyConformant", status, (reason, &message), &now);
    }
    match names_conflict {
        None => set_condition(crd, "NamesAccepted", "True", ("NoConflicts", "no conflicts found"), &now),
        Some(c) => set_condition(crd, "NamesAccepted", "False", (c.reason, &c.message), &now),
    }
    if established {
        return;
    }
    match names_conflict {
        None => {
            let why = ("InitialNamesAccepted", "the initial names have been accepted");
            set_condition(crd, "Established", "True", why, &now);
        }
        Some(_) => {
            set_condition(crd, "Established", "False", ("NotAccepted", "not all names are accepted"), &now)
        }
    }
}

/// Puts this finalizer on a CRD that is being deleted: it goes when its objects are gone.
pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Begins the deletion of a CRD: its time, the finalizer that waits for its objects, and the condition `Terminating`.
pub fn begin_deletion(crd: &mut Value, now: Timestamp) {
    let mut finalizers: Vec<String> = meta::finalizers(crd).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|f| f == CLEANUP_FINALIZER) {
        finalizers.push(CLEANUP_FINALIZER.to_owned());
    }
    meta::set(crd, "finalizers", finalizers);
    let now = time::format_seconds(now);
    meta::set(crd, "deletionTimestamp", now.clone());
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(crd, "Terminating", "True", ("InstanceDeletionPending", message), &now);
}

/// Says of a CRD that its objects are being deleted; whether that is new.
pub fn deletion_in_progress(crd: &mut Value, now: Timestamp) -> bool {
    let known =
        condition(crd, "Terminating").is_some_and(|c| text(c, "reason") == "InstanceDeletionInProgress");
    let why = ("InstanceDeletionInProgress", "CustomResource deletion is in progress");
    if !known {
        set_condition(crd, "Terminating", "True", why, &time::format_seconds(now));
    }
    !known
}

fn set_condition(crd: &mut Value, kind: &str, status: &str, (reason, message): (&str, &str), now: &str) {
    let conditions = status_mut(crd).entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    let existing = conditions.iter_mut().find(|c| text(c, "type") == kind);
    let since =
        existing.as_ref().filter(|c| text(c, "status") == status).map(|c| text(c, "lastTransitionTime"));
    let since = since.filter(|t| !t.is_empty()).unwrap_or(now);
    let condition = json!({
        "lastTransitionTime": since, "message": message, "reason": reason, "status": status, "type": kind,
    });
    match existing {
        Some(existing) => *existing = condition,
        None => conditions.push(condition),
    }
}
