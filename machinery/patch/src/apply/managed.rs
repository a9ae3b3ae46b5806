//! `metadata.managedFields`: who owns which fields.
//!
//! A manager is told by its name, operation and subresource, and by the version too when it updates. Managers that own
//! nothing are not kept.

use super::{
    set::FieldSet,
    shape::Shape,
    typed::{Comparison, reconciled},
};
use freehold_machinery::{Map, Value};
use std::cmp::Ordering;

/// The most entries of updates that are kept; older ones are merged.
pub const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager of merged entries.
const ANCIENT: &str = "ancient-changes";

/// How a manager writes. `Apply` comes first, as in encoded managed fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// Who a manager is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Manager {
    pub(super) name: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
}

impl Manager {
    /// Whether the two write to one entry.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The text by which Kubernetes orders managers: their entry's JSON without fields and time.
    pub(super) fn identifier(&self) -> String {
        let quoted = |name: &str, text: &str| match text {
            "" => String::new(),
            text => format!(",\"{name}\":{}", Value::from(text)),
        };
        let version = if self.operation == Operation::Update { self.api_version.as_str() } else { "" };
        let parts = [
            quoted("manager", &self.name),
            quoted("operation", self.operation.name()),
            quoted("apiVersion", version),
            quoted("subresource", &self.subresource),
        ];
        format!("{{{}}}", parts.concat().trim_start_matches(','))
    }
}

/// What a manager owns.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) manager: Manager,
    pub(super) time: Option<String>,
    pub(super) fields: FieldSet,
}

impl Entry {
    fn decode(entry: &Value, at: usize) -> Result<Self, String> {
        let text = |name| entry.get(name).and_then(Value::as_str).unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        if text("apiVersion").is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => return Err(format!("missing fieldsType in managed fields entry {at}")),
            other => return Err(format!("invalid fieldsType {other:?} in managed fields entry {at}")),
        }
        let manager = Manager {
            name: text("manager").to_owned(),
            operation,
            api_version: text("apiVersion").to_owned(),
            subresource: text("subresource").to_owned(),
        };
        let fields = FieldSet::from_json(entry.get("fieldsV1").unwrap_or(&Value::Null))
            .map_err(|e| format!("error decoding set: {e}"))?;
        Ok(Self { manager, time: Some(text("time").to_owned()).filter(|t| !t.is_empty()), fields })
    }

    fn encode(&self) -> Value {
        let mut map = Map::new();
        let mut put = |name: &str, text: &str| {
            if !text.is_empty() {
                map.insert(name.to_owned(), Value::from(text));
            }
        };
        put("manager", &self.manager.name);
        put("operation", self.manager.operation.name());
        put("apiVersion", &self.manager.api_version);
        put("time", self.time.as_deref().unwrap_or_default());
        put("fieldsType", "FieldsV1");
        put("subresource", &self.manager.subresource);
        map.insert("fieldsV1".to_owned(), self.fields.to_json());
        Value::Object(map)
    }

    /// Seconds since the epoch; 0 where there is no time.
    fn seconds(&self) -> i64 {
        self.time
            .as_deref()
            .and_then(|t| t.parse::<jiff::Timestamp>().ok())
            .map_or(0, jiff::Timestamp::as_second)
    }
}

/// All managers of an object.
#[derive(Clone, Debug, Default)]
pub(super) struct Managed {
    entries: Vec<Entry>,
}

impl Managed {
    /// Reads `metadata.managedFields`; absent ones are empty. Of entries of one manager the last counts.
    pub(super) fn decode(managed: Option<&Value>) -> Result<Self, String> {
        let mut all = Self::default();
        for (at, entry) in managed.and_then(Value::as_array).into_iter().flatten().enumerate() {
            let entry = Entry::decode(entry, at)?;
            all.put(entry);
        }
        Ok(all)
    }

    /// `metadata.managedFields`, in Kubernetes' order: applies first, then by time, name, version and subresource.
    /// `None` when nobody owns anything.
    pub(super) fn encode(mut self) -> Option<Value> {
        self.entries.sort_by(|a, b| {
            let (m, n) = (&a.manager, &b.manager);
            (m.operation.cmp(&n.operation))
                .then_with(|| a.seconds().cmp(&b.seconds()))
                .then_with(|| m.name.cmp(&n.name))
                .then_with(|| m.api_version.cmp(&n.api_version))
                .then_with(|| m.subresource.cmp(&n.subresource))
        });
        (!self.entries.is_empty()).then(|| self.entries.iter().map(Entry::encode).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Brings all sets up to the schema of today.
    pub(super) fn reconcile(&mut self, shape: Shape<'_>) {
        for entry in &mut self.entries {
            if let Some(fields) = reconciled(&entry.fields, shape) {
                entry.fields = fields;
            }
        }
    }

    pub(super) fn get(&self, manager: &Manager) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.manager.is(manager))
    }

    /// Sets the entry of a manager.
    pub(super) fn put(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|other| other.manager.is(&entry.manager)) {
            Some(other) => *other = entry,
            None => self.entries.push(entry),
        }
    }

    /// Whatever anybody owns.
    pub(super) fn all_fields(&self) -> FieldSet {
        self.entries.iter().fold(FieldSet::default(), |all, entry| all.union(entry.fields.clone()))
    }

    /// What others than `manager` own of the fields that change, ordered by manager.
    pub(super) fn conflicts(
        &self,
        manager: Option<&Manager>,
        changes: &Comparison,
    ) -> Vec<(Manager, FieldSet)> {
        let changed = changes.modified.clone().union(changes.added.clone());
        let others = self.entries.iter().filter(|entry| !manager.is_some_and(|m| entry.manager.is(m)));
        let mut conflicts: Vec<_> = others
            .map(|entry| (entry.manager.clone(), entry.fields.intersection(&changed)))
            .filter(|(_, fields)| !fields.is_empty())
            .collect();
        conflicts.sort_by_cached_key(|(manager, _)| manager.identifier());
        conflicts
    }

    /// Takes what `manager` changed away from all others, and drops those who own nothing then.
    pub(super) fn yield_to(&mut self, manager: Option<&Manager>, changes: &Comparison) {
        for entry in self.entries.iter_mut().filter(|entry| !manager.is_some_and(|m| entry.manager.is(m))) {
            for gone in [&changes.modified, &changes.added, &changes.removed] {
                entry.fields = std::mem::take(&mut entry.fields).difference(gone);
            }
        }
        self.drop_idle();
    }

    /// Drops those who own nothing.
    pub(super) fn drop_idle(&mut self) {
        self.entries.retain(|entry| !entry.fields.is_empty());
    }

    /// Merges the oldest updaters of each version into one entry until at most [`MAX_UPDATE_MANAGERS`] remain.
    pub(super) fn cap(&mut self) {
        let is_update = |entry: &Entry| entry.manager.operation == Operation::Update;
        let mut count = self.entries.iter().filter(|entry| is_update(entry)).count();
        if count <= MAX_UPDATE_MANAGERS {
            return;
        }
        let (mut updaters, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.entries).into_iter().partition(is_update);
        self.entries = rest;
        updaters.sort_by(oldest_first);
        let mut firsts: Vec<Entry> = Vec::new();
        for entry in updaters {
            let first =
                firsts.iter_mut().find(|first| first.manager.api_version == entry.manager.api_version);
            match first {
                Some(bucket) if count > MAX_UPDATE_MANAGERS => {
                    bucket.manager.name = ANCIENT.to_owned();
                    bucket.manager.subresource = String::new();
                    bucket.fields = std::mem::take(&mut bucket.fields).union(entry.fields);
                    bucket.time = entry.time;
                    count -= 1;
                }
                Some(_) => self.entries.push(entry),
                None => firsts.push(entry),
            }
        }
        firsts.into_iter().for_each(|entry| self.put_or_join(entry));
    }

    /// Sets the entry of a manager, together with what it owns already.
    pub(super) fn put_or_join(&mut self, mut entry: Entry) {
        if let Some(before) = self.get(&entry.manager) {
            entry.fields = entry.fields.union(before.fields.clone());
        }
        self.put(entry);
    }
}

fn oldest_first(a: &Entry, b: &Entry) -> Ordering {
    a.seconds().cmp(&b.seconds()).then_with(|| a.manager.identifier().cmp(&b.manager.identifier()))
}
