//! Limits that several namespaces of a plane share, as objects of the plane say: which namespaces belong together a label of
//! theirs says, and groups may lie within others. What they use together is kept in an object for each group, the group's
//! ledger, and is changed in the commit of the write itself, on the condition that neither the namespace nor the objects that
//! the limits come from have changed since they were looked at. A ledger that is not there, or that was counted by other
//! rules or above another snapshot, is counted anew from the plane's objects.
//!
//! What the objects mean is not known here: [`SharedLimits`] reads them. A plane that has none of them pays for finding that
//! out in memory.

use crate::{
    Ledger,
    meters::{Amounts, MAX_METERS, Meter, SharedGroup, SharedKinds, SharedLimits},
    plan::{Also, Plan, Posting, path},
};
use bytes::Bytes;
use freehold_apiserver_authz::Attributes;
use freehold_apiserver_cache::{Entry, ListRequest, Seen, codec};
use freehold_apiserver_operation::{Operation, is_stored, now};
use freehold_apiserver_storage::{Change, Expect, Key, KeyRange, ObjectPath};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, Value, meta, quantity::Quantity};
use serde_json::json;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};
use uuid::Uuid;

/// Most groups that a group lies within, itself included.
const MAX_DEPTH: usize = 9;
/// A group that a write is charged to.
struct Charged {
    name: String,
    meter: Arc<dyn Meter>,
}

/// The groups that a write is charged to, nearest first, and what that rests on.
#[derive(Default)]
struct Chain {
    charged: Vec<Charged>,
    conditions: Vec<Expect>,
}

fn is_namespaces(op: &Operation) -> bool {
    op.ty.storage.group.is_empty() && op.ty.storage.resource == "namespaces"
}

fn is_groups(op: &Operation, kinds: SharedKinds) -> bool {
    op.ty.storage.group == kinds.group && op.ty.storage.resource == kinds.groups
}

fn label(object: Option<&Value>, kinds: SharedKinds) -> Option<&str> {
    object.and_then(|object| meta::label(object, kinds.label)).filter(|name| !name.is_empty())
}

fn condition(plane: &PlaneId, path: &ObjectPath, seen: Seen) -> Expect {
    Expect { key: Key::object(plane, path), modified: seen.own }
}

/// The plural of stored objects' kind, without the identity of the export that it is from.
fn plural(stored: &str) -> &str {
    stored.split_once(':').map_or(stored, |(plural, _)| plural)
}

/// Where objects of a resource are kept: an export's have its identity in the name, and some kinds are another group's.
fn kept_as<'a>(op: &'a Operation, resource: &'a GroupResource) -> (&'a str, &'a str) {
    let ty = op.types.by_resource(&resource.group, &resource.resource);
    ty.map_or((&*resource.group, &*resource.resource), |ty| (&*ty.storage.group, &*ty.storage.resource))
}

/// What an object was and becomes as it is stored, where that is known and not what is served: what is charged is given back,
/// and found by whoever counts anew.
fn stored(op: &Operation, posting: Posting<'_>) -> (Option<Value>, Option<Value>) {
    let new = posting.new.filter(|_| !is_stored(&op.ty)).and_then(|_| {
        match codec::decode(&Bytes::copy_from_slice(posting.stored)) {
            Some(codec::Stored::Json(json)) => serde_json::from_slice(&json).ok(),
            _ => None,
        }
    });
    (posting.entry.map(Entry::value), new)
}

fn amounts_of(texts: &Value) -> Option<Amounts> {
    let texts = texts.as_object()?;
    texts.iter().map(|(name, text)| Some((name.clone(), text.as_str()?.parse().ok()?))).collect()
}

/// Adds amounts, or takes them away.
fn add(sum: &mut Amounts, amounts: &Amounts, sign: i8) {
    for (name, amount) in amounts {
        let before = sum.get(name).copied().unwrap_or(Quantity::ZERO);
        let after = if sign < 0 { before.minus(amount) } else { before.plus(amount) };
        sum.insert(name.clone(), if after.sign() < 0 { Quantity::ZERO } else { after });
    }
}

/// How much more the new amounts are; what shrinks is left out.
fn growth(old: &Amounts, new: &Amounts) -> Amounts {
    let more = new
        .iter()
        .map(|(name, amount)| (name.clone(), amount.minus(old.get(name).unwrap_or(&Quantity::ZERO))));
    more.filter(|(_, amount)| amount.sign() > 0).collect()
}

impl Ledger {
    /// Whether a write is in a namespace without a group, as far as that is seen at once.
    fn is_ungrouped(&self, op: &Operation, kinds: SharedKinds) -> bool {
        let Some(namespace) = op.namespace.as_deref() else { return !op.ty.namespaced };
        let entry = self.cache.peek(&op.plane, &path("", "namespaces", "", namespace));
        entry.is_some_and(|entry| entry.label(kinds.label).is_none())
    }

    pub(crate) async fn plan_shared(
        &self,
        op: &Operation,
        posting: Posting<'_>,
        plan: &mut Plan,
    ) -> Result<()> {
        let Some(shared) = self.shared_limits.as_deref() else { return Ok(()) };
        let kinds = shared.kinds();
        if is_groups(op, kinds) {
            plan.shared.forgotten = self.forgotten_with_group(op, posting, shared);
            return Ok(());
        }
        if op.ty.storage.group == kinds.group && op.ty.storage.resource == kinds.limits {
            // What is not counted for a while, a ledger of before knows nothing of.
            let spec = |object: Option<&Value>| object.map(|object| object["spec"].clone());
            let is_other = spec(posting.old) != spec(posting.new);
            plan.shared.forgotten = self.forget_shared(&op.plane).filter(|_| is_other).into_iter().collect();
            return Ok(());
        }
        if is_namespaces(op) {
            let (old, new) = (label(posting.old, kinds), label(posting.new, kinds));
            let is_left = posting.new.is_none() && self.has_objects(op, shared).await?;
            if (posting.new.is_some() && posting.old.is_some() && old != new) || is_left {
                let names = [old, new].into_iter().flatten().map(str::to_owned).collect();
                plan.shared.forgotten = self.forgotten(op, shared, names);
                return Ok(());
            }
        } else if self.is_ungrouped(op, kinds) {
            return Ok(());
        }
        let chain = self.chain_of(op, posting, shared).await?;
        plan.shared.accounts = chain.charged.into_iter().map(|charged| charged.name).collect();
        Ok(())
    }

    /// The changes that make the ledgers of groups, and of all above them, be counted anew.
    fn forgotten(&self, op: &Operation, shared: &dyn SharedLimits, names: Vec<String>) -> Vec<Change> {
        let kinds = shared.kinds();
        let mut all = BTreeSet::new();
        for name in names {
            let above = |name: &str| self.group_object(&op.plane, kinds, name);
            all.extend(walk(name, |name| above(name).map(|object| shared.group(&object).above)));
        }
        let key = |name: &String| Key::object(&op.plane, &path(kinds.group, kinds.ledgers.0, "", name));
        all.iter().map(|name| Change::Delete(key(name))).collect()
    }

    fn forgotten_with_group(
        &self,
        op: &Operation,
        posting: Posting<'_>,
        shared: &dyn SharedLimits,
    ) -> Vec<Change> {
        let read = |object: Option<&Value>| object.map(|object| shared.group(object));
        let (old, new) = (read(posting.old), read(posting.new));
        if old == new {
            return Vec::new();
        }
        let above = old.into_iter().chain(new).map(|group| group.above).filter(|name| !name.is_empty());
        let own = posting.new.or(posting.old).map(|object| meta::name(object).to_owned());
        self.forgotten(op, shared, own.into_iter().chain(above).collect())
    }

    fn group_object(&self, plane: &PlaneId, kinds: SharedKinds, name: &str) -> Option<Value> {
        self.cache.peek(plane, &path(kinds.group, kinds.groups, "", name)).map(|entry| entry.value())
    }

    /// Whether a namespace that goes has objects that its group counts.
    async fn has_objects(&self, op: &Operation, shared: &dyn SharedLimits) -> Result<bool> {
        let kinds = shared.kinds();
        let Some(entry) = self.cache.peek(&op.plane, &op.path()) else { return Ok(false) };
        let Some(group) = entry.label(kinds.label) else { return Ok(false) };
        let chain = self.chain_from(&op.plane, group, shared).await?;
        let mut counted = chain.charged.iter().flat_map(|charged| charged.meter.counted());
        Ok(counted.any(|resource| {
            let (group, plural) = kept_as(op, &resource);
            let count = self.cache.count(&op.plane, group, plural, Some(op.name()));
            count.is_none_or(|count| count > 0)
        }))
    }

    /// The groups that a write is charged to.
    async fn chain_of(
        &self,
        op: &Operation,
        posting: Posting<'_>,
        shared: &dyn SharedLimits,
    ) -> Result<Chain> {
        let kinds = shared.kinds();
        if is_namespaces(op) {
            return match label(posting.new.or(posting.old), kinds) {
                Some(group) => self.chain_from(&op.plane, group, shared).await,
                None => Ok(Chain::default()),
            };
        }
        let Some(namespace) = op.namespace.as_deref() else { return Ok(Chain::default()) };
        let at = path("", "namespaces", "", namespace);
        let (entry, seen) = self.cache.get_for_update(&op.plane, &at).await?;
        let Some(group) = entry.as_deref().and_then(|entry| entry.label(kinds.label)) else {
            return Ok(Chain::default());
        };
        let mut chain = self.chain_from(&op.plane, group, shared).await?;
        chain.conditions.push(condition(&op.plane, &at, seen));
        Ok(chain)
    }

    /// A group and those that it lies within.
    async fn chain_from(&self, plane: &PlaneId, group: &str, shared: &dyn SharedLimits) -> Result<Chain> {
        let kinds = shared.kinds();
        let (mut chain, mut names) = (Chain::default(), BTreeSet::new());
        let mut next = group.to_owned();
        while !next.is_empty() && names.len() < MAX_DEPTH && names.insert(next.clone()) {
            let at = path(kinds.group, kinds.groups, "", &next);
            let (entry, seen) = self.cache.get_for_update(plane, &at).await?;
            chain.conditions.push(condition(plane, &at, seen));
            let Some(object) = entry.as_deref().map(Entry::value) else { break };
            let says = shared.group(&object);
            let meter = self.meter_of(plane, (&object, &says), shared, &mut chain.conditions).await?;
            chain.charged.extend(meter.map(|meter| Charged { name: next, meter }));
            next = says.above;
        }
        Ok(chain)
    }

    /// The compiled limits of a group.
    async fn meter_of(
        &self,
        plane: &PlaneId,
        (object, says): (&Value, &SharedGroup),
        shared: &dyn SharedLimits,
        conditions: &mut Vec<Expect>,
    ) -> Result<Option<Arc<dyn Meter>>> {
        let kinds = shared.kinds();
        let limits = if says.limits.is_empty() {
            None
        } else {
            let at = path(kinds.group, kinds.limits, "", &says.limits);
            let (entry, seen) = self.cache.get_for_update(plane, &at).await?;
            conditions.push(condition(plane, &at, seen));
            entry
        };
        if limits.is_none() && says.own.is_empty() {
            return Ok(None);
        }
        let modified = limits.as_ref().map_or(0, |entry| entry.modified);
        let key = (plane.clone(), SharedGroup { above: String::new(), ..says.clone() });
        let known = self.books.meters.0.lock().get(&key).cloned();
        if let Some((_, meter)) = known.filter(|(at, _)| *at == modified) {
            return Ok(meter);
        }
        let meter = shared.meter(object, limits.as_deref().map(Entry::value).as_ref());
        let mut meters = self.books.meters.0.lock();
        if meters.len() >= MAX_METERS {
            meters.clear();
        }
        meters.insert(key, (modified, meter.clone()));
        Ok(meter)
    }

    /// The ledgers after the write, and what has to be as it was for that to hold.
    pub(crate) async fn book_shared(
        &self,
        op: &Operation,
        own: Seen,
        posting: Posting<'_>,
        plan: &Plan,
    ) -> Result<Vec<Also>> {
        let charged = self.shared_limits.as_deref().filter(|_| !plan.shared.accounts.is_empty());
        let Some(shared) = charged else { return Ok(Vec::new()) };
        let resource = GroupResource::new(&*op.ty.storage.group, plural(&op.ty.storage.resource));
        let chain = self.chain_of(op, posting, shared).await?;
        let (old_stored, new_stored) = match chain.charged.is_empty() {
            true => (None, None),
            false => stored(op, posting),
        };
        let (old_stored, new_stored) =
            (old_stored.as_ref().or(posting.old), new_stored.as_ref().or(posting.new));
        let mut changes = Vec::new();
        for Charged { name, meter } in &chain.charged {
            let forbidden = |why: String| {
                let why = format!("exceeded quota of tenant {name:?}: {why}");
                Status::forbidden(&op.ty.group_resource(), op.name(), &why)
            };
            let amounts = |object: Option<&Value>| {
                object.map_or(Ok(Amounts::new()), |object| meter.amounts(&resource, object))
            };
            let old = amounts(old_stored);
            let new = match amounts(new_stored) {
                Ok(new) => new,
                // What could not be counted before is no more than it was.
                Err(why) if old.is_ok() && self.is_bound(op, shared, posting).await? => {
                    return Err(forbidden(why));
                }
                Err(_) => Amounts::new(),
            };
            let old = old.unwrap_or_default();
            if new == old {
                continue;
            }
            let more = growth(&old, &new);
            let (mut used, seen) = self.used(op, own, shared, (name.as_str(), &**meter)).await?;
            if !more.is_empty()
                && let Err(why) = meter.check(&used, &more)
                && self.is_bound(op, shared, posting).await?
            {
                return Err(forbidden(why));
            }
            add(&mut used, &new, 1);
            add(&mut used, &old, -1);
            changes.push(self.ledger(
                &op.plane,
                own,
                shared.kinds(),
                (name.as_str(), &**meter),
                (used, seen),
            ));
        }
        if changes.is_empty() && posting.new.is_some() && posting.old.is_some() {
            return Ok(Vec::new());
        }
        let key = Key::object(&op.plane, &op.path());
        let conditions = chain.conditions.into_iter().filter(|expect| expect.key != key);
        Ok(changes.into_iter().chain(conditions.map(|expect| (expect, None))).collect())
    }

    /// Whether limits hold for who writes.
    async fn is_bound(
        &self,
        op: &Operation,
        shared: &dyn SharedLimits,
        posting: Posting<'_>,
    ) -> Result<bool> {
        let kinds = shared.kinds();
        let asked = Attributes::resource(&op.user, "bypass", kinds.group, kinds.groups);
        let bypasses = self.policies.access(&op.plane).await?.authorize(&asked).allowed;
        let resource = op.ty.group_resource();
        Ok(shared.binds(&op.user, &resource, posting.new.unwrap_or(&Value::Null), bypasses))
    }

    /// What a group uses, and its ledger as it was seen.
    async fn used(
        &self,
        op: &Operation,
        own: Seen,
        shared: &dyn SharedLimits,
        (name, meter): (&str, &dyn Meter),
    ) -> Result<(Amounts, Option<(Arc<Entry>, Seen)>)> {
        let kinds = shared.kinds();
        let at = path(kinds.group, kinds.ledgers.0, "", name);
        let (entry, seen) = self.cache.get_for_update(&op.plane, &at).await?;
        if let Some(entry) = entry {
            let mut object = entry.value();
            let spec = object["spec"].take();
            let is_current =
                spec["counted"] == meter.definition() && spec["above"] == own.record.to_string().as_str();
            let used = amounts_of(&spec["used"]).filter(|_| is_current && seen.own != 0);
            let used = match used {
                Some(used) => used,
                None => self.count_shared(op, shared, (name, meter)).await?,
            };
            return Ok((used, Some((entry, seen))));
        }
        Ok((self.count_shared(op, shared, (name, meter)).await?, None))
    }

    fn ledger(
        &self,
        plane: &PlaneId,
        own: Seen,
        kinds: SharedKinds,
        (name, meter): (&str, &dyn Meter),
        (used, seen): (Amounts, Option<(Arc<Entry>, Seen)>),
    ) -> Also {
        let mut object = match &seen {
            Some((entry, _)) => entry.value(),
            None => json!({
                "apiVersion": format!("{}/{}", kinds.group, kinds.version), "kind": kinds.ledgers.1,
                "metadata": {
                    "name": name, "uid": Uuid::new_v4().to_string(), "generation": 1,
                    "creationTimestamp": now(),
                },
                "spec": {},
            }),
        };
        meta::remove(&mut object, "resourceVersion");
        let texts: BTreeMap<&String, String> =
            used.iter().filter(|(_, amount)| !amount.is_zero()).map(|(n, a)| (n, a.to_string())).collect();
        object["spec"]["used"] = json!(texts);
        object["spec"]["counted"] = meter.definition().into();
        object["spec"]["above"] = own.record.to_string().into();
        let at = path(kinds.group, kinds.ledgers.0, "", name);
        let modified = seen.map_or(0, |(_, seen)| seen.own);
        let key = Key::object(plane, &at);
        (Expect { key: key.clone(), modified }, Some(Change::Put(key, codec::encode(&object))))
    }

    /// Counts what a group uses, from the objects of its namespaces and of those of all groups within it.
    async fn count_shared(
        &self,
        op: &Operation,
        shared: &dyn SharedLimits,
        (name, meter): (&str, &dyn Meter),
    ) -> Result<Amounts> {
        let kinds = shared.kinds();
        let read = async |group: &str, resource: &str| {
            let request = ListRequest { plane: &op.plane, group, resource, namespace: None };
            Ok::<_, Status>(self.cache.list(request).await?.objects)
        };
        let groups = read(kinds.group, kinds.groups).await?;
        let above: HashMap<String, String> = groups
            .iter()
            .map(|entry| (entry.name().to_owned(), shared.group(&entry.value()).above))
            .collect();
        let within = |group: &str| {
            walk(group.to_owned(), |name| above.get(name).cloned()).iter().any(|above| above == name)
        };
        let mut sum = Amounts::new();
        let mut members = HashSet::new();
        let namespace = GroupResource::new("", "namespaces");
        for entry in read("", "namespaces").await? {
            if entry.label(kinds.label).is_some_and(&within) {
                add(&mut sum, &meter.amounts(&namespace, &entry.value()).unwrap_or_default(), 1);
                members.insert(entry.name().to_owned());
            }
        }
        for resource in meter.counted() {
            let (group, plural) = kept_as(op, &resource);
            for entry in read(group, plural).await? {
                if members.contains(entry.namespace()) {
                    add(&mut sum, &meter.amounts(&resource, &entry.value()).unwrap_or_default(), 1);
                }
            }
        }
        Ok(sum)
    }

    /// The change that makes all ledgers of a plane be counted anew: many of its objects go at once.
    pub fn forget_shared(&self, plane: &PlaneId) -> Option<Change> {
        let kinds = self.shared_limits.as_deref()?.kinds();
        let count = self.cache.count(plane, kinds.group, kinds.ledgers.0, None);
        if count == Some(0) {
            return None;
        }
        Some(Change::DeleteRange(KeyRange::resource(plane, kinds.group, kinds.ledgers.0, None)))
    }
}

/// A group and those above it, each once.
fn walk(name: String, above: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut names = Vec::new();
    let mut next = name;
    while !next.is_empty() && names.len() < MAX_DEPTH && !names.contains(&next) {
        let further = above(&next).unwrap_or_default();
        names.push(std::mem::replace(&mut next, further));
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(list: &[(&str, &str)]) -> Amounts {
        list.iter().map(|(name, text)| ((*name).to_owned(), text.parse().expect("a quantity"))).collect()
    }

    #[test]
    fn groups_are_walked_to_the_top_to_a_gap_or_around_a_circle_once() {
        let above = |name: &str| match name {
            "a" => Some("b".to_owned()),
            "b" => Some("a".to_owned()),
            "c" => Some("gone".to_owned()),
            "top" => Some(String::new()),
            name => name.strip_prefix('t')?.parse::<u32>().ok().map(|n| format!("t{}", n + 1)),
        };
        assert_eq!(walk("a".into(), above), ["a", "b"]);
        assert_eq!(walk("c".into(), above), ["c", "gone"]);
        assert_eq!(walk("top".into(), above), ["top"]);
        assert_eq!(walk("t0".into(), above).len(), MAX_DEPTH);
    }

    #[test]
    fn amounts_are_added_and_given_back_and_never_fall_below_nothing() {
        let mut sum = amounts(&[("pods", "2"), ("cpu", "500m")]);
        add(&mut sum, &amounts(&[("pods", "1"), ("disks", "3")]), 1);
        add(&mut sum, &amounts(&[("cpu", "1")]), -1);
        let text: Vec<_> = sum.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(text, ["cpu=0", "disks=3", "pods=3"]);
        assert!(growth(&amounts(&[("pods", "2")]), &amounts(&[("pods", "1")])).is_empty());
        assert_eq!(growth(&Amounts::new(), &amounts(&[("pods", "1")])), amounts(&[("pods", "1")]));
        assert_eq!(amounts_of(&json!({"pods": "x"})), None);
    }
}
