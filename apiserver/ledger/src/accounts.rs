//! Changes of quota's own objects, and what claims and grants add up to.

use freehold_apiserver_cache::codec;
use freehold_apiserver_quota::{Balance, Consumer, ConsumerKind, Rules};
use freehold_apiserver_storage::{Change, Expect, Key, ObjectPath};
use freehold_machinery::{PlaneId, Value, meta};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Namespaces of organizations begin so.
pub(crate) const ORGANIZATION: &str = "organization-";

/// What is asked of one bucket, added up.
pub(crate) type Sums = BTreeMap<(Consumer, String), Balance>;

pub(crate) fn namespace_of(organization: &str) -> String {
    format!("{ORGANIZATION}{organization}")
}

/// A change of an object of quota, on the condition that it is as it was read.
pub(crate) fn put(path: &ObjectPath, modified: u64, mut object: Value) -> (Expect, Change) {
    if meta::uid(&object).is_empty() {
        meta::set(&mut object, "uid", Uuid::new_v4().to_string());
    }
    let key = Key::object(&PlaneId::core(), path);
    (Expect { key: key.clone(), modified }, Change::Put(key, codec::encode(&object)))
}

pub(crate) fn take_away(path: &ObjectPath, modified: u64) -> (Expect, Change) {
    let key = Key::object(&PlaneId::core(), path);
    (Expect { key: key.clone(), modified }, Change::Delete(key))
}

/// Adds what a claim uses, or gives back.
pub(crate) fn add_claim(sums: &mut Sums, consumer: &Consumer, requests: &BTreeMap<String, i64>, sign: i64) {
    for (resource, amount) in requests {
        let sum = sums.entry((consumer.clone(), resource.clone())).or_default();
        sum.allocated = sum.allocated.saturating_add(amount.saturating_mul(sign));
        sum.claims += sign;
    }
}

/// Adds what a grant gives, or takes back.
pub(crate) fn add_grant(sums: &mut Sums, consumer: &Consumer, allowances: &BTreeMap<String, i64>, sign: i64) {
    for (resource, amount) in allowances {
        let sum = sums.entry((consumer.clone(), resource.clone())).or_default();
        sum.limit = sum.limit.saturating_add(amount.saturating_mul(sign));
        sum.grants += sign;
    }
}

/// Whether a resource is registered for consumers of a kind.
pub(crate) fn check_registered(rules: &Rules, resource: &str, kind: ConsumerKind) -> Result<(), String> {
    match rules.registration(resource) {
        None => Err(format!("{resource:?} is not registered")),
        Some(registration) if registration.consumer != kind => {
            Err(format!("{resource:?} is of each {}", registration.consumer.as_str()))
        }
        Some(_) => Ok(()),
    }
}
