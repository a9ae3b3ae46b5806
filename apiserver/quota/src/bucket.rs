//! Buckets: what a consumer was granted of a resource, and what it uses.

use crate::{CONSUMERS, Consumer, ConsumerKind, objects};
use freehold_machinery::{Value, meta};
use serde_json::json;
use sha2::{Digest, Sha256};

/// The numbers of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// The sum of the grants.
    pub limit: i64,
    /// The sum of the claims.
    pub allocated: i64,
    /// How many claims there are.
    pub claims: i64,
    /// How many grants there are.
    pub grants: i64,
}

/// What a write asks of a bucket: differences to what was before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Whose bucket.
    pub consumer: Consumer,
    /// The resource type that is claimed.
    pub resource: String,
    /// What is added; claims that grow must fit.
    pub change: Balance,
}

/// It does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The consumer.
    pub consumer: Consumer,
    /// The resource.
    pub resource: String,
    /// What was asked for.
    pub requested: i64,
    /// What is used.
    pub used: i64,
    /// What is granted.
    pub limited: i64,
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { consumer, resource, requested, used, limited } = self;
        write!(
            f,
            "exceeded quota of {consumer}, requested: {resource}={requested}, used: {resource}={used}, \
             limited: {resource}={limited}"
        )
    }
}

/// The name of a bucket: readable, and of this consumer and resource alone.
pub fn name(consumer: &Consumer, resource: &str) -> String {
    let digest = Sha256::digest(format!("{}/{}/{resource}", consumer.kind.as_str(), consumer.name));
    let readable: String = consumer.name.chars().take(40).collect();
    let kind = consumer.kind.as_str().to_lowercase();
    format!("{kind}-{}-{}", readable.trim_end_matches(['-', '.']), &hex::encode(digest)[..12])
}

/// The consumer of a bucket, grant or claim.
pub fn consumer(object: &Value) -> Option<Consumer> {
    let consumer = object.pointer("/spec/consumerRef")?;
    let kind = ConsumerKind::read(consumer["kind"].as_str()?)?;
    Some(Consumer { kind, name: consumer["name"].as_str()?.to_owned() })
}

impl Balance {
    /// What an object says; nothing where there is none.
    pub fn read(bucket: Option<&Value>) -> Self {
        let number =
            |field: &str| bucket.and_then(|b| b["status"][field].as_i64()).unwrap_or_default().max(0);
        Self {
            limit: number("limit"),
            allocated: number("allocated"),
            claims: number("claimCount"),
            grants: number("grantCount"),
        }
    }

    /// As it stands in `status`.
    pub fn status(&self) -> Value {
        json!({
            "limit": self.limit, "allocated": self.allocated,
            "available": self.limit.saturating_sub(self.allocated).max(0),
            "claimCount": self.claims, "grantCount": self.grants,
        })
    }

    fn plus(&self, change: &Self) -> Self {
        let add = |a: i64, b: i64| a.saturating_add(b).max(0);
        Self {
            limit: add(self.limit, change.limit),
            allocated: add(self.allocated, change.allocated),
            claims: add(self.claims, change.claims),
            grants: add(self.grants, change.grants),
        }
    }
}

/// A new bucket in a namespace, of the consumer and resource of a demand, with nothing in it.
pub fn made(demand: &Demand, (namespace, now): (&str, &str)) -> Value {
    let consumer = &demand.consumer;
    let spec = json!({
        "consumerRef": {"apiGroup": CONSUMERS, "kind": consumer.kind.as_str(), "name": consumer.name},
        "resourceType": demand.resource,
    });
    objects::new("AllowanceBucket", (namespace, &name(consumer, &demand.resource)), spec, now)
}

/// A bucket after a demand; `None` where nothing is left of it.
///
/// # Errors
/// Claims grow beyond what is granted. What shrinks is always let through, grants too: they may go below what is used.
pub fn settle(
    bucket: Option<&Value>,
    demand: &Demand,
    (namespace, now): (&str, &str),
) -> Result<Option<Value>, Shortage> {
    let before = Balance::read(bucket);
    let fits = before.allocated.checked_add(demand.change.allocated).is_some_and(|sum| sum <= before.limit);
    if demand.change.allocated > 0 && !fits {
        return Err(Shortage {
            consumer: demand.consumer.clone(),
            resource: demand.resource.clone(),
            requested: demand.change.allocated,
            used: before.allocated,
            limited: before.limit,
        });
    }
    let after = before.plus(&demand.change);
    if after == Balance::default() {
        return Ok(None);
    }
    let mut object = bucket.cloned().unwrap_or_else(|| made(demand, (namespace, now)));
    meta::remove(&mut object, "resourceVersion");
    object["status"] = after.status();
    Ok(Some(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(allocated: i64, limit: i64) -> Demand {
        let consumer = Consumer { kind: ConsumerKind::Organization, name: "acme".into() };
        let change = Balance { allocated, limit, claims: allocated.signum(), grants: limit.signum() };
        Demand { consumer, resource: "widgets".into(), change }
    }

    #[test]
    fn claims_fit_to_the_last_unit_and_no_further() {
        let at = ("organization-acme", "2026-01-01T00:00:00Z");
        let refused = settle(None, &demand(1, 0), at).unwrap_err();
        assert_eq!((refused.requested, refused.used, refused.limited), (1, 0, 0));
        let granted = settle(None, &demand(0, 10), at).unwrap().unwrap();
        let full = settle(Some(&granted), &demand(10, 0), at).unwrap().unwrap();
        assert_eq!(full["status"]["available"], 0);
        let text = settle(Some(&full), &demand(1, 0), at).unwrap_err().to_string();
        assert_eq!(
            text,
            "exceeded quota of organization \"acme\", requested: widgets=1, used: widgets=10, limited: widgets=10"
        );
        assert!(settle(Some(&full), &demand(i64::MAX, 0), at).is_err());
        let less = settle(Some(&full), &demand(0, -5), at).unwrap().unwrap();
        assert_eq!(Balance::read(Some(&less)).limit, 5, "a grant may shrink below what is used");
        let back = settle(Some(&less), &demand(-10, 0), at).unwrap().unwrap();
        assert_eq!(back["status"]["available"], 5);
        assert_eq!(settle(Some(&back), &demand(0, -5), at), Ok(None));
    }

    #[test]
    fn buckets_of_other_consumers_and_resources_have_other_names() {
        let of = |kind, name: &str, resource| super::name(&Consumer { kind, name: name.into() }, resource);
        let names = [
            of(ConsumerKind::Organization, "acme", "a"),
            of(ConsumerKind::Organization, "acme", "b"),
            of(ConsumerKind::Organization, "acme-2", "a"),
            of(ConsumerKind::Project, "acme", "a"),
        ];
        assert!(names[0].starts_with("organization-acme-"), "{}", names[0]);
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name}");
        }
    }
}
