//! Limits that several namespaces of a plane share, as far as the ledger knows them.

use freehold_apiserver_storage::Change;
use freehold_machinery::{GroupResource, PlaneId, Result, User, Value, quantity::Quantity};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// Most compiled limits that are kept; over it the table starts anew.
pub(crate) const MAX_METERS: usize = 4_096;

/// Amounts by counter.
pub type Amounts = BTreeMap<String, Quantity>;

/// The resources that shared limits come from.
#[derive(Clone, Copy, Debug)]
pub struct SharedKinds {
    /// The API group of all of them.
    pub group: &'static str,
    /// The API version of all of them.
    pub version: &'static str,
    /// The plural of the groups.
    pub groups: &'static str,
    /// The plural of the limits that groups name.
    pub limits: &'static str,
    /// The plural and the kind of the ledgers.
    pub ledgers: (&'static str, &'static str),
    /// The label of a namespace with the name of its group.
    pub label: &'static str,
}

/// What a group says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SharedGroup {
    /// The group that it lies within; empty for none.
    pub above: String,
    /// The name of its limits; empty for none.
    pub limits: String,
    /// Limits that it states itself, in a form that differs where they do.
    pub own: String,
}

/// Reads the objects that shared limits come from.
pub trait SharedLimits: Send + Sync + 'static {
    /// The resources that the limits come from.
    fn kinds(&self) -> SharedKinds;
    /// What a group says.
    fn group(&self, object: &Value) -> SharedGroup;
    /// Compiles the limits of a group; `None` where it has none that can be read.
    fn meter(&self, group: &Value, limits: Option<&Value>) -> Option<Arc<dyn Meter>>;
    /// Whether limits hold for a user who writes an object. `bypasses`: RBAC lets the user go past them in person.
    fn binds(&self, user: &User, resource: &GroupResource, object: &Value, bypasses: bool) -> bool;
}

/// The limits of one group.
pub trait Meter: Send + Sync {
    /// What is counted and how, in a form that differs where that does. The limits themselves are no part of it.
    fn definition(&self) -> &str;
    /// The resources whose objects are counted, namespaces aside.
    fn counted(&self) -> Vec<GroupResource>;
    /// How much an object uses. It depends on the object alone, so that what was charged is given back.
    ///
    /// # Errors
    /// What cannot be counted, in words for people.
    fn amounts(&self, resource: &GroupResource, object: &Value) -> Result<Amounts, String>;
    /// Compares what is added with what is left.
    ///
    /// # Errors
    /// The counter that would exceed its limit, in words for people.
    fn check(&self, used: &Amounts, growth: &Amounts) -> Result<(), String>;
}

/// Compiled limits by plane, name of the limits and what the group states itself, with the revision of the limits.
#[derive(Default)]
pub(crate) struct Meters(pub(crate) Mutex<HashMap<MeterKey, Known>>);

/// The revision of limits, and what they were compiled to.
pub(crate) type Known = (u64, Option<Arc<dyn Meter>>);

pub(crate) type MeterKey = (PlaneId, SharedGroup);

/// What a write does to shared limits.
#[derive(Default)]
pub(crate) struct Shared {
    /// The groups that it is charged to, by name, where it is to any.
    pub(crate) accounts: Vec<String>,
    /// Ledgers that are counted anew after it.
    pub(crate) forgotten: Vec<Change>,
}

impl Shared {
    /// The accounts that writers take turns for.
    pub(crate) fn accounts(&self, plane: &PlaneId) -> impl Iterator<Item = String> {
        self.accounts.iter().map(move |name| format!("shared/{plane}/{name}"))
    }

    /// What is committed along with it, whatever is charged.
    pub(crate) fn take_forgotten(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.forgotten)
    }
}
