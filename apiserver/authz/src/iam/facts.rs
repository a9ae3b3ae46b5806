//! The facts of roles, bindings and memberships that decisions need, by namespace.

use super::compile::Compiled;
use freehold_machinery::{Value, meta};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::Hash,
    sync::Arc,
};

/// The kinds that say who may do what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `Role`.
    Role,
    /// `PolicyBinding`.
    Binding,
    /// `OrganizationMembership`.
    Membership,
    /// `GroupMembership`.
    GroupMembership,
    /// `UserDeactivation`.
    Deactivation,
    /// `User`.
    User,
    /// `ServiceAccount`.
    Account,
    /// `ServiceAccountKey`.
    Key,
    /// `Organization`, which may be suspended.
    Organization,
}

/// Why nothing is served, and who may lift that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspension {
    /// Why.
    pub reason: String,
    /// Whether the platform alone may lift it.
    pub by_platform: bool,
}

impl Suspension {
    /// Reads the suspension of a spec, if it has one.
    pub fn read(spec: &Value) -> Option<Self> {
        let suspension = spec.get("suspension").filter(|suspension| !suspension.is_null())?;
        Some(Self {
            reason: suspension["reason"].as_str().unwrap_or_default().to_owned(),
            by_platform: suspension["liftedBy"] != "Organization",
        })
    }
}

/// A key of a service account.
#[derive(Debug)]
pub(super) struct Key {
    /// `namespace/name` of the account.
    pub(super) account: Box<str>,
    hash: Box<str>,
    /// In seconds since 1970; `None` for one that does not end.
    pub(super) expires: Option<i64>,
}

impl Key {
    /// `None` for one that never counts.
    pub(super) fn read(namespace: &str, spec: &Value) -> Option<Self> {
        let hash = spec["tokenHash"].as_str().filter(|hash| hash.len() == 64)?;
        let expires = match spec["expirationDate"].as_str() {
            Some(time) => Some(freehold_machinery::time::parse(time)?.as_second()),
            None => None,
        };
        let account = format!("{namespace}/{}", spec["serviceAccountRef"]["name"].as_str()?);
        Some(Self { account: account.into(), hash: hash.into(), expires })
    }

    /// Compares all bytes, whatever the first are.
    pub(super) fn is_of(&self, hash: &str) -> bool {
        let different = self.hash.bytes().zip(hash.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        different == 0 && self.hash.len() == hash.len()
    }

    pub(super) fn counts(&self, now: i64) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

/// The roles of a membership.
type RoleNames = Arc<[Box<str>]>;

/// What a membership says. There are more of them than of anything else.
#[derive(Debug)]
pub(super) struct Member {
    /// Whether it is of the organization whose namespace it is in.
    pub(super) at_home: bool,
    pub(super) user: Arc<str>,
    pub(super) roles: RoleNames,
}

fn named<'a>(spec: &'a Value, field: &str) -> &'a str {
    spec[field]["name"].as_str().unwrap_or_default()
}

/// What the objects of one namespace say.
#[derive(Debug, Default)]
pub(super) struct Namespace {
    /// The specs of roles.
    pub(super) roles: HashMap<Box<str>, Value>,
    /// The specs of bindings.
    pub(super) bindings: HashMap<Box<str>, Value>,
    pub(super) memberships: HashMap<Arc<str>, Member>,
    /// The roles of memberships, each list once.
    role_names: HashSet<RoleNames>,
    /// With the state of the roles that all namespaces use.
    pub(super) compiled: Mutex<Option<(u64, Arc<Compiled>)>>,
}

impl Namespace {
    pub(super) fn put(&mut self, kind: Kind, name: &str, object: Option<&Value>) {
        let spec = object.filter(|object| !meta::is_deleting(object)).map(|object| &object["spec"]);
        match kind {
            Kind::Role => keep(&mut self.roles, name, spec.cloned()),
            Kind::Binding => keep(&mut self.bindings, name, spec.cloned()),
            _ => {
                let name: Arc<str> = name.into();
                let member = spec
                    .map(|spec| self.member(&name, meta::namespace(object.unwrap_or(&Value::Null)), spec));
                keep(&mut self.memberships, name, member);
            }
        }
        *self.compiled.get_mut() = None;
    }

    /// Reads a membership. What is the same in many is kept once.
    fn member(&mut self, name: &Arc<str>, namespace: &str, spec: &Value) -> Member {
        let roles = spec["roles"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let roles: RoleNames = roles.map(Box::from).collect();
        if self.role_names.len() == self.role_names.capacity() {
            self.role_names.retain(|roles| Arc::strong_count(roles) > 1);
        }
        let known = self.role_names.get(&roles).cloned();
        let roles = known.unwrap_or_else(|| {
            self.role_names.insert(roles.clone());
            roles
        });
        let user = named(spec, "userRef");
        Member {
            at_home: super::organization_of(namespace) == Some(named(spec, "organizationRef")),
            user: if user == &**name { name.clone() } else { user.into() },
            roles,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.roles.is_empty() && self.bindings.is_empty() && self.memberships.is_empty()
    }
}

fn keep<K: Eq + Hash, V>(map: &mut HashMap<K, V>, name: impl Into<K>, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(name.into(), value)),
        None => drop(map.remove(&name.into())),
    }
}

/// Takes in what the object of that key says of one user, in place of what it said before; `None` forgets it.
/// References do not change, so that an object stays with its user.
pub(super) fn of_user(
    map: &mut HashMap<Box<str>, BTreeMap<Box<str>, Box<str>>>,
    key: &str,
    spec: &Value,
    said: Option<String>,
) {
    let user = spec["userRef"]["name"].as_str().unwrap_or_default();
    match said {
        Some(said) => drop(map.entry(user.into()).or_default().insert(key.into(), said.into())),
        None => {
            let Some(entries) = map.get_mut(user) else { return };
            entries.remove(key);
            if entries.is_empty() {
                map.remove(user);
            }
        }
    }
}
