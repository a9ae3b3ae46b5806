//! Limits over the sum of a tenant's namespaces, and how much of them each object uses.

use freehold_machinery::quantity::{Format, Quantity};
use freehold_machinery::{GroupResource, Value};
use freehold_machinery_cel::{Budget, Computed, Program, Variable};
use freehold_machinery_quota::{Surroundings, counted_types, matches, usage};
use freehold_machinery_table::jsonpath::JsonPath;
use freehold_tenancy_api::quota::{Counted, Quota};
use freehold_tenancy_api::tenant::Tenant;
use jiff::Timestamp;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The counter of namespaces, limited by `spec.namespaces.max`.
pub const NAMESPACES: &str = "namespaces";

/// Amounts by counter.
pub type Amounts = BTreeMap<String, Quantity>;

/// A resource whose objects are counted. Without a version the server's preferred one is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watched {
    /// Group and plural.
    pub resource: GroupResource,
    /// The version, where the Quota names one.
    pub version: Option<String>,
}

enum Measure {
    Objects,
    Field(JsonPath),
    Expression(Arc<Program>),
}

struct Counter {
    name: String,
    watched: Watched,
    measure: Measure,
}

/// The limits of one tenant: those of its Quota, and that of its namespaces.
#[derive(Default)]
pub struct Limits {
    hard: Amounts,
    native: Vec<String>,
    scopes: Option<Value>,
    counters: Vec<Counter>,
    watched: BTreeSet<Watched>,
}

impl std::fmt::Debug for Limits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Limits").field("hard", &self.hard).finish_non_exhaustive()
    }
}

fn amount(name: &str, text: &str) -> Result<Quantity, String> {
    let quantity: Quantity = text.parse().map_err(|error| format!("limit {name:?}: {error}"))?;
    if quantity.sign() < 0 { Err(format!("limit {name:?} is negative")) } else { Ok(quantity) }
}

impl Limits {
    /// Compiles the limits of a tenant.
    ///
    /// # Errors
    /// The first limit that cannot be read, in words for people.
    pub fn of(tenant: &Tenant, quota: Option<&Quota>) -> Result<Self, String> {
        let mut limits = quota.map(Self::of_quota).transpose()?.unwrap_or_default();
        if let Some(max) = tenant.spec.namespaces.max {
            limits.hard.insert(NAMESPACES.into(), Quantity::from_units(i64::from(max), Format::DecimalSi));
        }
        Ok(limits)
    }

    /// Compiles the limits of a Quota.
    ///
    /// # Errors
    /// The first limit that cannot be read, in words for people.
    pub fn of_quota(quota: &Quota) -> Result<Self, String> {
        let mut limits = Self::default();
        for (name, text) in &quota.spec.hard {
            limits.hard.insert(name.clone(), amount(name, text)?);
            limits.native.push(name.clone());
            let before = limits.watched.len();
            for resource in counted_types(name) {
                let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
                let resource = GroupResource::new(group, resource);
                limits.watched.insert(Watched { resource, version: None });
            }
            if limits.watched.len() == before && counted_types(name).next().is_none() {
                return Err(format!("limit {name:?} counts nothing that is known; use `counted` for it"));
            }
        }
        if !quota.spec.scopes.is_empty() {
            limits.scopes = Some(json!({"spec": {"scopes": quota.spec.scopes}}));
        }
        for counted in &quota.spec.counted {
            if limits.hard.contains_key(&counted.name) || counted.name == NAMESPACES {
                return Err(format!("{:?} is counted twice", counted.name));
            }
            limits.hard.insert(counted.name.clone(), amount(&counted.name, &counted.limit)?);
            let counter = Counter::of(counted)?;
            limits.watched.insert(counter.watched.clone());
            limits.counters.push(counter);
        }
        Ok(limits)
    }

    /// The limit of each counter.
    pub fn hard(&self) -> &Amounts {
        &self.hard
    }

    /// The resources whose objects are counted, namespaces aside.
    pub fn watched(&self) -> &BTreeSet<Watched> {
        &self.watched
    }

    /// Whether there are no limits.
    pub fn is_empty(&self) -> bool {
        self.hard.is_empty()
    }

    /// How much an object uses of each counter; counters that it does not touch are left out.
    ///
    /// # Errors
    /// An amount that an expression or a field does not give.
    pub fn amounts(
        &self,
        resource: &GroupResource,
        object: &Value,
        now: Timestamp,
    ) -> Result<Amounts, String> {
        let mut amounts = Amounts::new();
        if resource.group.is_empty() && resource.resource == NAMESPACES {
            if self.hard.contains_key(NAMESPACES) {
                amounts.insert(NAMESPACES.into(), Quantity::from_units(1, Format::DecimalSi));
            }
            return Ok(amounts);
        }
        let scoped = self.scopes.as_ref().is_none_or(|scopes| matches(scopes, resource, object));
        if !self.native.is_empty() && scoped {
            let used = usage(resource, object, &Surroundings::at(now));
            for name in &self.native {
                if let Some(amount) = used.get(name).filter(|amount| !amount.is_zero()) {
                    amounts.insert(name.clone(), *amount);
                }
            }
        }
        for counter in self.counters.iter().filter(|counter| counter.watched.resource == *resource) {
            let amount = counter.amount(object)?;
            if !amount.is_zero() {
                amounts.insert(counter.name.clone(), amount);
            }
        }
        Ok(amounts)
    }
}

impl Counter {
    fn of(counted: &Counted) -> Result<Self, String> {
        let name = &counted.name;
        let measure = match (counted.json_path.as_str(), counted.expression.as_str()) {
            ("", "") => Measure::Objects,
            (path, "") => Measure::Field(
                JsonPath::parse(path).map_err(|error| format!("jsonPath of {name:?}: {error}"))?,
            ),
            ("", source) => Measure::Expression(
                Program::compile(source).map_err(|error| format!("expression of {name:?}: {error}"))?,
            ),
            _ => return Err(format!("{name:?} has both jsonPath and expression")),
        };
        let resource = GroupResource::new(counted.group.clone(), counted.resource.clone());
        let watched = Watched { resource, version: Some(counted.version.clone()) };
        Ok(Self { name: name.clone(), watched, measure })
    }

    fn amount(&self, object: &Value) -> Result<Quantity, String> {
        let bad = |why: String| format!("{:?} cannot be counted: {why}", self.name);
        match &self.measure {
            Measure::Objects => Ok(Quantity::from_units(1, Format::DecimalSi)),
            Measure::Field(path) => path.find(object).into_iter().try_fold(Quantity::ZERO, |sum, value| {
                let amount = quantity_of(value).ok_or_else(|| bad(format!("{value} is no amount")))?;
                Ok(sum.plus(&amount))
            }),
            Measure::Expression(program) => {
                let variables = [("object", Variable::Json(object, None))];
                let value = program.value(&variables, &Budget::of_conditions());
                let value = value.map_err(|error| bad(format!("{error:?}")))?;
                computed(&value).ok_or_else(|| bad("the expression gives no amount".to_owned()))
            }
        }
    }
}

fn quantity_of(value: &Value) -> Option<Quantity> {
    let quantity = match value {
        Value::Null => Some(Quantity::ZERO),
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        Value::Array(items) => {
            items.iter().try_fold(Quantity::ZERO, |sum, item| Some(sum.plus(&quantity_of(item)?)))
        }
        _ => None,
    };
    // A negative amount would make room for others.
    quantity.filter(|quantity| quantity.sign() >= 0)
}

fn computed(value: &Computed) -> Option<Quantity> {
    quantity_of(&value.to_json()?)
}

/// An object that is counted: group and resource, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Group and plural.
    pub resource: GroupResource,
    /// The namespace, empty for namespaces themselves.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl std::fmt::Display for ObjectId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.resource, self.namespace, self.name)
    }
}

/// An object's amounts as the store has them.
#[derive(Clone, Debug, Default)]
struct Entry {
    uid: String,
    version: u64,
    amounts: Amounts,
}

/// What a tenant uses of its limits: a sum that follows each change of an object.
#[derive(Debug, Default)]
pub struct Account {
    /// The limits.
    pub limits: Arc<Limits>,
    entries: HashMap<ObjectId, Entry>,
    sum: Amounts,
}

impl Account {
    /// An account of nothing.
    pub fn new(limits: Arc<Limits>) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Counts an object as it is stored, or (`None`) no more. Returns whether any sum changed.
    pub fn put(&mut self, id: &ObjectId, object: Option<&Value>, now: Timestamp) -> bool {
        let entry = object.map(|object| Entry {
            uid: object["metadata"]["uid"].as_str().unwrap_or_default().to_owned(),
            version: object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse().ok()).unwrap_or(0),
            // An object that cannot be counted was let in before the Quota was as it is now.
            amounts: self.limits.amounts(&id.resource, object, now).unwrap_or_default(),
        });
        let old = match entry.clone() {
            Some(entry) => self.entries.insert(id.clone(), entry),
            None => self.entries.remove(id),
        };
        let (old, new) =
            (old.map(|e| e.amounts).unwrap_or_default(), entry.map(|e| e.amounts).unwrap_or_default());
        if old == new {
            return false;
        }
        for (name, amount) in &new {
            let sum = self.sum.entry(name.clone()).or_insert(Quantity::ZERO);
            *sum = sum.plus(amount);
        }
        for (name, amount) in &old {
            let sum = self.sum.entry(name.clone()).or_insert(Quantity::ZERO);
            *sum = sum.minus(amount);
        }
        true
    }

    /// The stored uid and resource version of an object that is counted.
    pub fn stored(&self, id: &ObjectId) -> Option<(&str, u64)> {
        self.entries.get(id).map(|entry| (entry.uid.as_str(), entry.version))
    }

    /// The amounts of an object as it is stored.
    pub fn amounts_of(&self, id: &ObjectId) -> Amounts {
        self.entries.get(id).map(|entry| entry.amounts.clone()).unwrap_or_default()
    }

    /// What stored objects use together.
    pub fn used(&self) -> &Amounts {
        &self.sum
    }

    /// Forgets the objects of a namespace, which has left the tenant.
    pub fn forget_namespace(&mut self, namespace: &str, now: Timestamp) {
        let gone: Vec<ObjectId> = self
            .entries
            .keys()
            .filter(|id| id.namespace == namespace || (id.namespace.is_empty() && id.name == namespace))
            .cloned()
            .collect();
        for id in gone {
            self.put(&id, None, now);
        }
    }
}

/// A counter that would be over its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// The counter.
    pub counter: String,
    /// The requested amount.
    pub requested: Quantity,
    /// The amount that is used or reserved.
    pub used: Quantity,
    /// The limit.
    pub hard: Quantity,
}

impl std::fmt::Display for Exceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { counter, requested, used, hard } = self;
        write!(f, "{counter}: requested {requested}, used {used}, limited to {hard}")
    }
}

/// Compares what a request adds with what is left. Amounts that do not grow are never refused.
///
/// # Errors
/// The first counter that would be over its limit.
pub fn check(limits: &Limits, used: &Amounts, growth: &Amounts) -> Result<(), Box<Exceeded>> {
    for (name, requested) in growth.iter().filter(|(_, amount)| amount.sign() > 0) {
        let Some(hard) = limits.hard.get(name) else { continue };
        let used = used.get(name).copied().unwrap_or(Quantity::ZERO);
        if used.plus(requested) > *hard {
            let (counter, requested, hard) = (name.clone(), *requested, *hard);
            return Err(Box::new(Exceeded { counter, requested, used, hard }));
        }
    }
    Ok(())
}

/// How much more `new` is than `old`, by counter; what shrinks is left out.
pub fn growth(old: &Amounts, new: &Amounts) -> Amounts {
    let more = new
        .iter()
        .map(|(name, amount)| (name.clone(), amount.minus(old.get(name).unwrap_or(&Quantity::ZERO))));
    more.filter(|(_, amount)| amount.sign() > 0).collect()
}

/// Amounts as text, for objects.
pub fn texts(amounts: &Amounts) -> BTreeMap<String, String> {
    amounts.iter().map(|(name, amount)| (name.clone(), amount.to_string())).collect()
}

/// Amounts from text; what cannot be read is left out.
pub fn amounts_from(texts: &BTreeMap<String, String>) -> Amounts {
    texts.iter().filter_map(|(name, text)| Some((name.clone(), text.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_tenancy_api::quota::QuotaSpec;

    fn quota(spec: Value) -> Quota {
        Quota::new("q", serde_json::from_value::<QuotaSpec>(spec).unwrap())
    }

    fn id(resource: &str, name: &str) -> ObjectId {
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        ObjectId { resource: GroupResource::new(group, resource), namespace: "a".into(), name: name.into() }
    }

    #[test]
    fn an_account_follows_pods_and_custom_sums() {
        let spec = json!({
            "hard": {"pods": "2", "requests.cpu": "1"},
            "counted": [
                {"name": "replicas", "group": "example.com", "version": "v1", "resource": "apps",
                 "jsonPath": ".spec.replicas", "limit": "5"},
                {"name": "disks", "group": "example.com", "version": "v1", "resource": "apps",
                 "expression": "object.spec.replicas * 2", "limit": "8"},
            ],
        });
        let limits = Arc::new(Limits::of_quota(&quota(spec)).unwrap());
        assert_eq!(limits.watched().len(), 2);
        let mut account = Account::new(limits.clone());
        let pod = json!({"metadata": {"uid": "1"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]}});
        let app = json!({"metadata": {"uid": "2"}, "spec": {"replicas": 3}});
        let now = Timestamp::UNIX_EPOCH;
        assert!(account.put(&id("pods", "p"), Some(&pod), now));
        assert!(!account.put(&id("pods", "p"), Some(&pod), now));
        assert!(account.put(&id("apps.example.com", "x"), Some(&app), now));
        let used: Vec<_> = account.used().iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(used, ["disks=6", "pods=1", "replicas=3", "requests.cpu=500m"]);
        let more = limits.amounts(&GroupResource::new("example.com", "apps"), &app, now).unwrap();
        let exceeded = check(&limits, account.used(), &more).unwrap_err();
        assert_eq!(exceeded.to_string(), "disks: requested 6, used 6, limited to 8");
        account.forget_namespace("a", now);
        assert!(account.used().values().all(Quantity::is_zero));
    }

    #[test]
    fn limits_that_count_nothing_or_cannot_be_read_are_refused() {
        for spec in [
            json!({"hard": {"pods": "many"}}),
            json!({"hard": {"pods": "-1"}}),
            json!({"hard": {"unicorns": "1"}}),
            json!({"counted": [{"name": "a", "version": "v1", "resource": "pods", "expression": "1 +", "limit": "1"}]}),
            json!({"counted": [{"name": "a", "version": "v1", "resource": "pods", "jsonPath": ".x", "expression": "1", "limit": "1"}]}),
        ] {
            assert!(Limits::of_quota(&quota(spec.clone())).is_err(), "{spec}");
        }
    }

    #[test]
    fn negative_amounts_make_no_room() {
        let spec = json!({"counted": [{"name": "a", "version": "v1", "resource": "pods", "jsonPath": ".x", "limit": "1"}]});
        let limits = Limits::of_quota(&quota(spec)).unwrap();
        let pods = GroupResource::new("", "pods");
        assert!(limits.amounts(&pods, &json!({"x": -5}), Timestamp::UNIX_EPOCH).is_err());
    }
}
