//! The steps that put the objects of a namespace to sleep, and that wake them.
//!
//! Putting to sleep writes the originals first. Each patch carries the resource version at which the original was
//! observed, so that none is applied to an object that has another original by now; it also marks the object. Waking
//! restores marked objects alone, and removes the mark in the same patch: an object that others changed meanwhile keeps
//! their change, and none is restored twice.

use super::rules::{Choice, Observed, Rule};
use super::supervisor::Settings;
use freehold_machinery::Value;
use freehold_tenancy_api::supervisor::{ASLEEP_ANNOTATION, Original};
use serde_json::json;
use std::collections::BTreeMap;

/// The longest original state that an object's own annotation repeats.
const LONGEST_MARK: usize = 1024;
/// The mark of objects whose original state only the record has.
const RECORDED: &str = "recorded";
/// The largest object that is deleted to be created again.
const LARGEST_OBJECT: usize = 90 * 1024;

/// The steps for a namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Originals to be recorded before the first step; `None`: the record stays as it is.
    pub record: Option<Vec<Original>>,
    /// Steps in groups: those of a group may be taken at the same time.
    pub steps: Vec<Vec<Step>>,
    /// Originals of objects that seem to need nothing. They are read once more before the record is deleted.
    pub verify: Vec<Original>,
    /// Whether the record is deleted after the steps.
    pub finish: bool,
    /// Objects that cannot sleep, with the reason.
    pub refused: Vec<String>,
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A JSON patch that holds for one resource version.
    Patch {
        /// The object.
        object: ObjectRef,
        /// The operations.
        operations: Value,
    },
    /// A deletion, of one resource version.
    Delete {
        /// The object.
        object: ObjectRef,
        /// Its unique id.
        uid: String,
        /// Its revision.
        resource_version: String,
    },
    /// A creation; an object that exists already is left alone.
    Create {
        /// The object.
        object: ObjectRef,
        /// What it is.
        body: Value,
    },
}

/// An object by type and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    /// Group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural.
    pub resource: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

type EntryKey = (String, String, String, String);

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.record.is_none() && self.steps.is_empty() && !self.finish
    }
}

fn key(original: &Original) -> EntryKey {
    let Original { group, resource, namespace, name, .. } = original;
    (group.clone(), resource.clone(), namespace.clone(), name.clone())
}

/// The original of an observed object.
fn original(rule: &Rule, object: &Observed) -> Original {
    Original {
        group: rule.group.clone(),
        version: rule.version.clone(),
        resource: rule.resource.clone(),
        namespace: if object.namespace == object.about { String::new() } else { object.namespace.clone() },
        name: object.name.clone(),
        state: object.state.as_ref().map(Value::to_string).unwrap_or_default(),
    }
}

fn object_ref(rule: &Rule, object: &Observed) -> ObjectRef {
    ObjectRef {
        group: rule.group.clone(),
        version: rule.version.clone(),
        resource: rule.resource.clone(),
        namespace: object.namespace.clone(),
        name: object.name.clone(),
    }
}

/// Whether an object is to sleep.
fn is_selected(rule: &Rule, object: &Observed, settings: &Settings) -> bool {
    let chosen = match rule.choice {
        Choice::Workload(kind) => settings.selection.has(kind),
        Choice::Scalable => {
            settings.scalable.iter().any(|kind| kind.group == rule.group && kind.resource == rule.resource)
        }
        Choice::LoadBalancer => settings.delete_load_balancers,
        Choice::ArgoCd => settings.hold_argo_cd,
    };
    chosen && !settings.selection.excludes(&rule.kind, object)
}

/// Plans the sleep of a namespace, whose objects come with their rules.
pub fn sleep(objects: &[(&Rule, Observed)], record: &[Original], settings: &Settings) -> Plan {
    let mut plan = Plan::default();
    let mut entries: BTreeMap<EntryKey, Original> =
        record.iter().map(|entry| (key(entry), entry.clone())).collect();
    let mut steps: BTreeMap<u8, Vec<Step>> = BTreeMap::new();
    let mut changed = false;
    for (rule, object) in objects {
        let asleep = rule.is_asleep(object.state.as_ref());
        if !is_selected(rule, object, settings) {
            // Excluded since it fell asleep.
            if object.mark.is_some() {
                match restore(rule, object, record) {
                    Some(step) => steps.entry(rule.order).or_default().push(step),
                    None => plan.refused.push(unrecorded(rule, object)),
                }
            }
            continue;
        }
        if asleep {
            continue;
        }
        let entry = original(rule, object);
        if rule.deletes() && entry.state.len() > LARGEST_OBJECT {
            plan.refused.push(format!("{} {} is too large to be recorded", rule.kind, object.name));
            continue;
        }
        changed |= entries.get(&key(&entry)) != Some(&entry);
        steps.entry(rule.order).or_default().push(put_to_sleep(rule, object, &entry.state));
        entries.insert(key(&entry), entry);
    }
    plan.record = changed.then(|| entries.into_values().collect());
    plan.steps = steps.into_values().collect();
    plan
}

/// Plans the waking of a namespace, whose objects come with their rules.
pub fn wake(objects: &[(&Rule, Observed)], record: &[Original]) -> Plan {
    let mut plan = Plan { finish: !record.is_empty(), ..Plan::default() };
    let mut steps: BTreeMap<std::cmp::Reverse<u8>, Vec<Step>> = BTreeMap::new();
    let mut settled: BTreeMap<EntryKey, bool> = BTreeMap::new();
    for (rule, object) in objects {
        if object.mark.is_some() {
            match restore(rule, object, record) {
                Some(step) => steps.entry(std::cmp::Reverse(rule.order)).or_default().push(step),
                None => {
                    plan.refused.push(unrecorded(rule, object));
                    plan.finish = false;
                }
            }
        }
        settled.insert(key(&original(rule, object)), object.mark.is_some() || rule.deletes());
    }
    for entry in record {
        match settled.get(&key(entry)) {
            Some(true) => {}
            Some(false) => plan.verify.push(entry.clone()),
            None => match recreate(entry) {
                Some((order, step)) => steps.entry(std::cmp::Reverse(order)).or_default().push(step),
                None => plan.verify.push(entry.clone()),
            },
        }
    }
    plan.steps = steps.into_values().collect();
    plan
}

/// The step that creates a deleted object again.
fn recreate(entry: &Original) -> Option<(u8, Step)> {
    let body: Value = serde_json::from_str(&entry.state).ok()?;
    if entry.resource != "services" || !body.is_object() {
        return None;
    }
    let object = ObjectRef {
        group: entry.group.clone(),
        version: entry.version.clone(),
        resource: entry.resource.clone(),
        namespace: body["metadata"]["namespace"].as_str()?.to_owned(),
        name: entry.name.clone(),
    };
    Some((3, Step::Create { object, body }))
}

fn put_to_sleep(rule: &Rule, object: &Observed, state: &str) -> Step {
    let at = object_ref(rule, object);
    if rule.deletes() {
        let (uid, resource_version) = (object.uid.clone(), object.resource_version.clone());
        return Step::Delete { object: at, uid, resource_version };
    }
    let mark = if state.len() <= LONGEST_MARK { state } else { RECORDED };
    let annotation = json!({ASLEEP_ANNOTATION: mark});
    let marking = if object.has_annotations {
        json!({"op": "add", "path": mark_path(), "value": mark})
    } else {
        json!({"op": "add", "path": "/metadata/annotations", "value": annotation})
    };
    let asleep = rule.asleep_state(object.state.as_ref());
    let operations = json!([
        expect_version(object),
        marking,
        {"op": "add", "path": rule.path, "value": asleep},
    ]);
    Step::Patch { object: at, operations }
}

/// The step that restores a marked object; `None` where nothing tells its original state.
fn restore(rule: &Rule, object: &Observed, record: &[Original]) -> Option<Step> {
    let mut operations = vec![expect_version(object), json!({"op": "remove", "path": mark_path()})];
    let current = object.state.as_ref();
    // What is not asleep was changed by others, and stays as they want it.
    if rule.is_asleep(current) {
        let restored = rule.restored(current, recorded(rule, object, record)?);
        match (current, restored) {
            (Some(current), Some(state)) if *current == state => {}
            (_, Some(state)) => operations.push(json!({"op": "add", "path": rule.path, "value": state})),
            (Some(_), None) => operations.push(json!({"op": "remove", "path": rule.path})),
            (None, None) => {}
        }
    }
    Some(Step::Patch { object: object_ref(rule, object), operations: operations.into() })
}

fn unrecorded(rule: &Rule, object: &Observed) -> String {
    format!(
        "{} {}: its original state is not recorded; set it, then remove the annotation {ASLEEP_ANNOTATION}",
        rule.kind, object.name
    )
}

/// The original state by the record, or by the object's own mark where the record was lost. `Some(None)`: it was not set.
fn recorded(rule: &Rule, object: &Observed, record: &[Original]) -> Option<Option<Value>> {
    let wanted = key(&original(rule, object));
    let entry = record.iter().find(|entry| key(entry) == wanted).map(|entry| entry.state.as_str());
    let text = entry.or(object.mark.as_deref().filter(|mark| *mark != RECORDED))?;
    if text.is_empty() { Some(None) } else { serde_json::from_str(text).ok().map(Some) }
}

fn mark_path() -> String {
    format!("/metadata/annotations/{}", ASLEEP_ANNOTATION.replace('/', "~1"))
}

/// An operation that makes a patch hold for one resource version alone.
fn expect_version(object: &Observed) -> Value {
    json!({"op": "add", "path": "/metadata/resourceVersion", "value": object.resource_version})
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
