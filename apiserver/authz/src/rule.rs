//! Rules of roles, compiled once by content.

use crate::Attributes;
use freehold_machinery::{Map, Value};
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
};

/// One rule: what may be done with which resources or paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Verbs, or `*`.
    pub verbs: Vec<String>,
    /// API groups, or `*`.
    pub groups: Vec<String>,
    /// Resources (`pods`, `pods/log`, `*/scale`), or `*`.
    pub resources: Vec<String>,
    /// Names of objects; empty for all.
    pub names: Vec<String>,
    /// Paths that are no resources (`/healthz`, `/api/*`), or `*`.
    pub urls: Vec<String>,
}

impl Rule {
    /// A rule that allows everything with every resource, or with every path.
    pub fn everything() -> [Self; 2] {
        let all = || vec!["*".to_owned()];
        [
            Self { verbs: all(), groups: all(), resources: all(), ..Self::default() },
            Self { verbs: all(), urls: all(), ..Self::default() },
        ]
    }

    /// Reads a `PolicyRule`. What is not a list of strings counts as empty, which allows nothing.
    pub fn from_value(value: &Value) -> Self {
        let list = |field: &str| {
            let items = value[field].as_array().map(Vec::as_slice).unwrap_or_default();
            items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Self {
            verbs: list("verbs"),
            groups: list("apiGroups"),
            resources: list("resources"),
            names: list("resourceNames"),
            urls: list("nonResourceURLs"),
        }
    }

    /// The rule as a `PolicyRule`; empty lists are left out.
    pub fn to_value(&self) -> Value {
        let fields = [
            ("verbs", &self.verbs),
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
        ];
        let present = fields.into_iter().filter(|(_, list)| !list.is_empty());
        Value::Object(present.map(|(name, list)| (name.to_owned(), json!(list))).collect::<Map>())
    }

    /// Whether the rule names the resource, whatever the verb and the object.
    pub(crate) fn is_about(&self, attributes: &Attributes<'_>) -> bool {
        has(&self.groups, attributes.group)
            && self.resources.iter().any(|resource| names_resource(resource, attributes))
    }

    /// Whether the rule allows that.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        if !has(&self.verbs, attributes.verb) {
            return false;
        }
        if !attributes.is_resource() {
            return self.urls.iter().any(|url| covers_path(url, attributes.path));
        }
        self.is_about(attributes)
            && (self.names.is_empty() || self.names.iter().any(|name| name == attributes.name))
    }
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

fn names_resource(rule: &str, attributes: &Attributes<'_>) -> bool {
    match (rule, attributes.subresource) {
        ("*", _) => true,
        (rule, "") => rule == attributes.resource,
        (rule, subresource) => rule.split_once('/').is_some_and(|(resource, sub)| {
            sub == subresource && (resource == "*" || resource == attributes.resource)
        }),
    }
}

/// Whether a rule's path covers another one, or is it: `*` at the end stands for everything that follows.
pub(crate) fn covers_path(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

/// The rules of one role, with a filter that tells most questions apart without looking at them.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    /// What the rules do not reach to.
    except: Vec<Rule>,
    verbs: u64,
    targets: u64,
}

/// A question's bits: which a role must have to allow it.
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    verb: u64,
    target: u64,
}

impl Probe {
    pub(crate) fn new(attributes: &Attributes<'_>) -> Self {
        let target = if attributes.is_resource() { bit(target_of(attributes)) } else { PATHS };
        Self { verb: bit(attributes.verb), target }
    }
}

/// The bit of rules about paths.
const PATHS: u64 = 1;

/// What a rule must name to cover the attributes: `pods` for `pods`, `log` for `pods/log` and `*/log`.
fn target_of<'a>(attributes: &Attributes<'a>) -> &'a str {
    if attributes.subresource.is_empty() { attributes.resource } else { attributes.subresource }
}

/// One of 63 bits for a text (FNV-1a).
fn bit(text: &str) -> u64 {
    let hash = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    2 << ((hash ^ (hash >> 32)) % 63)
}

impl Rules {
    /// Compiles the `rules` of a role.
    pub fn from_value(rules: &Value) -> Self {
        Self::but(rules, &Value::Null)
    }

    /// Compiles rules that do not reach to what `except` names.
    pub fn but(rules: &Value, except: &Value) -> Self {
        let list = |rules: &Value| -> Vec<Rule> {
            rules.as_array().into_iter().flatten().map(Rule::from_value).collect()
        };
        let (rules, except) = (list(rules), list(except));
        let star = |item: &str| if item == "*" { u64::MAX } else { bit(item) };
        let verbs = rules.iter().flat_map(|r| &r.verbs).fold(0, |bits, verb| bits | star(verb));
        let resources = rules.iter().flat_map(|r| &r.resources).map(String::as_str);
        let resources = resources
            .fold(0, |bits, resource| bits | star(resource.split_once('/').map_or(resource, |(_, sub)| sub)));
        let paths = if rules.iter().any(|rule| !rule.urls.is_empty()) { PATHS } else { 0 };
        Self { rules, except, verbs, targets: resources | paths }
    }

    /// The rules, in the role's order.
    pub fn as_slice(&self) -> &[Rule] {
        &self.rules
    }

    /// What the rules do not reach to.
    pub fn exceptions(&self) -> &[Rule] {
        &self.except
    }

    pub(crate) fn allow(&self, attributes: &Attributes<'_>, probe: Probe) -> bool {
        self.verbs & probe.verb != 0
            && self.targets & probe.target != 0
            && self.rules.iter().any(|rule| rule.allows(attributes))
            && !self.except.iter().any(|rule| rule.allows(attributes))
    }
}

/// Compiled rules by content: roles of the same rules share them, whatever their plane.
#[derive(Debug, Default)]
pub struct RuleCache {
    rules: Mutex<Shelf>,
}

#[derive(Debug, Default)]
struct Shelf {
    by_hash: HashMap<[u8; 32], Weak<Rules>>,
    /// When so many are there, those that nobody uses are swept out.
    sweep_at: usize,
}

impl RuleCache {
    /// The compiled form of the `rules` of a role.
    pub fn get(&self, rules: &Value) -> Arc<Rules> {
        self.get_but(rules, &Value::Null)
    }

    /// The compiled form of rules that do not reach to what `except` names.
    pub fn get_but(&self, rules: &Value, except: &Value) -> Arc<Rules> {
        let hash: [u8; 32] = Sha256::digest(format!("{rules} {except}")).into();
        let mut shelf = self.rules.lock();
        if let Some(found) = shelf.by_hash.get(&hash).and_then(Weak::upgrade) {
            return found;
        }
        if shelf.by_hash.len() >= shelf.sweep_at {
            shelf.by_hash.retain(|_, rules| rules.strong_count() > 0);
            shelf.sweep_at = (shelf.by_hash.len() * 2).max(1024);
        }
        let compiled = Arc::new(Rules::but(rules, except));
        shelf.by_hash.insert(hash, Arc::downgrade(&compiled));
        compiled
    }

    /// How many different sets of rules are in use.
    pub fn in_use(&self) -> usize {
        self.rules.lock().by_hash.values().filter(|rules| rules.strong_count() > 0).count()
    }
}
