//! Rules of roles, compiled and shared.

use crate::Attributes;
use freehold_machinery::Value;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, LazyLock, Weak},
};

/// A `PolicyRule`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Verbs, or `*`.
    pub verbs: Vec<String>,
    /// API groups, or `*`.
    pub groups: Vec<String>,
    /// Resources (`pods`, `pods/log`, `*/scale`), or `*`.
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    pub names: Vec<String>,
    /// Paths that are not resources; one `*` may stand at the end.
    pub paths: Vec<String>,
}

fn strings(value: &Value, field: &str) -> Vec<String> {
    let list = value.get(field).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn holds(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

impl Rule {
    /// From the object's form.
    pub fn read(value: &Value) -> Self {
        Self {
            verbs: strings(value, "verbs"),
            groups: strings(value, "apiGroups"),
            resources: strings(value, "resources"),
            names: strings(value, "resourceNames"),
            paths: strings(value, "nonResourceURLs"),
        }
    }

    /// In the object's form.
    pub fn to_value(&self) -> Value {
        let mut map = freehold_machinery::Map::new();
        map.insert("verbs".into(), self.verbs.clone().into());
        let parts = [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.paths),
        ];
        for (field, list) in parts.into_iter().filter(|(_, list)| !list.is_empty()) {
            map.insert(field.into(), list.clone().into());
        }
        Value::Object(map)
    }

    /// Whether it allows what is asked.
    pub fn allows(&self, asked: &Attributes<'_>) -> bool {
        if !holds(&self.verbs, asked.verb) {
            return false;
        }
        if !asked.is_resource() {
            return self.paths.iter().any(|path| match path.strip_suffix('*') {
                Some(prefix) => asked.path.starts_with(prefix),
                None => path == asked.path,
            });
        }
        holds(&self.groups, asked.group)
            && self.covers_resource(asked.resource, asked.subresource)
            && (self.names.is_empty() || self.names.iter().any(|name| name == asked.name))
    }

    /// Whether it is about a resource, or one of its subresources.
    pub fn covers_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|rule| match rule.split_once('/') {
            None => rule == "*" || (subresource.is_empty() && rule == resource),
            Some(("*", sub)) => !subresource.is_empty() && sub == subresource,
            Some((main, sub)) => main == resource && sub == subresource,
        })
    }
}

/// The rules of a role, with the text that they were made from.
struct Shared {
    text: String,
    rules: Vec<Rule>,
}

/// Rules that are held once whatever the number of planes that have them.
#[derive(Clone)]
pub(crate) struct Rules(Arc<Shared>);

impl std::ops::Deref for Rules {
    type Target = [Rule];

    fn deref(&self) -> &[Rule] {
        &self.0.rules
    }
}

struct Table {
    map: HashMap<u64, Weak<Shared>>,
    sweep_at: usize,
}

/// The rules of a role object.
pub(crate) fn compile(role: &Value) -> Rules {
    static SHARED: LazyLock<Mutex<Table>> =
        LazyLock::new(|| Mutex::new(Table { map: HashMap::new(), sweep_at: 1_024 }));
    let rules = role.get("rules").cloned().unwrap_or_default();
    let text = rules.to_string();
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let hash = hasher.finish();
    let mut table = SHARED.lock();
    if let Some(found) = table.map.get(&hash).and_then(Weak::upgrade)
        && found.text == text
    {
        return Rules(found);
    }
    let list = rules.as_array().into_iter().flatten().map(Rule::read).collect();
    let shared = Arc::new(Shared { text, rules: list });
    table.map.insert(hash, Arc::downgrade(&shared));
    if table.map.len() > table.sweep_at {
        table.map.retain(|_, rules| rules.strong_count() > 0);
        table.sweep_at = 2 * table.map.len().max(512);
    }
    Rules(shared)
}
