//! What providers did of late in planes of consumers, for the consumers to see.
//!
//! A bounded record in memory, of this server and since its start; the audit trail has each request in full. A consumer
//! that its provider has not been at has no entry.

use super::Apis;
use freehold_machinery::PlaneId;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Rows of one consumer and export; over it the one that is oldest goes.
const MAX_ROWS: usize = 32;
/// Consumers and exports that have rows; over it the older half goes.
const MAX_KNOWN: usize = 10_000;
/// Characters of a user's name that are kept.
const MAX_USER: usize = 253;

/// What somebody of the provider did with one resource in a plane of a consumer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// The verb, such as `list`.
    pub verb: Box<str>,
    /// The API group.
    pub group: Box<str>,
    /// The resource, with its subresource.
    pub resource: Box<str>,
    /// Who, in the provider's project.
    pub user: Box<str>,
    /// How many times.
    pub count: u64,
    /// When last, in seconds since 1970.
    pub last: i64,
    /// Whether it was a request over all consumers of the export.
    pub is_wide: bool,
}

/// An export by its identity, and the consumer; `None` stands for all.
type Key = (Box<str>, Option<PlaneId>);

/// The record.
#[derive(Default)]
pub(super) struct Accesses(Mutex<HashMap<Key, Vec<Access>>>);

fn last(rows: &[Access]) -> i64 {
    rows.iter().map(|row| row.last).max().unwrap_or_default()
}

impl Accesses {
    fn note(&self, key: Key, access: Access) {
        let mut known = self.0.lock();
        if known.len() >= MAX_KNOWN && !known.contains_key(&key) {
            let mut times: Vec<i64> = known.values().map(|rows| last(rows)).collect();
            times.sort_unstable();
            let middle = times.get(times.len() / 2).copied().unwrap_or_default();
            known.retain(|_, rows| last(rows) > middle);
        }
        let rows = known.entry(key).or_default();
        let same = |row: &&mut Access| {
            (&row.verb, &row.group, &row.resource, &row.user)
                == (&access.verb, &access.group, &access.resource, &access.user)
        };
        if let Some(row) = rows.iter_mut().find(same) {
            row.count += 1;
            row.last = access.last;
            return;
        }
        if rows.len() >= MAX_ROWS {
            let oldest = rows.iter().enumerate().min_by_key(|(_, row)| row.last).map(|(at, _)| at);
            rows.swap_remove(oldest.unwrap_or_default());
        }
        rows.push(access);
    }

    fn of(&self, identity: &str, consumer: &PlaneId) -> Vec<Access> {
        let known = self.0.lock();
        let rows = |plane: Option<PlaneId>| known.get(&(identity.into(), plane)).cloned().unwrap_or_default();
        let mut found = rows(Some(consumer.clone()));
        found.extend(rows(None));
        found.sort_by_key(|row| std::cmp::Reverse(row.last));
        found
    }
}

impl Apis {
    /// Notes that the provider of an export did something in a consumer's plane, or in those of all.
    pub fn note_access(
        &self,
        identity: &str,
        consumer: Option<&PlaneId>,
        (verb, group, resource): (&str, &str, &str),
        user: &str,
    ) {
        let access = Access {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
            user: user.chars().take(MAX_USER).collect::<String>().into(),
            count: 1,
            last: jiff::Timestamp::now().as_second(),
            is_wide: consumer.is_none(),
        };
        self.accesses.note((identity.into(), consumer.cloned()), access);
    }

    /// What the provider of an export did in a consumer's plane of late, the last first.
    pub fn accesses(&self, identity: &str, consumer: &PlaneId) -> Vec<Access> {
        self.accesses.of(identity, consumer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(verb: &str, last: i64) -> Access {
        Access {
            verb: verb.into(),
            group: "".into(),
            resource: "secrets".into(),
            user: "u".into(),
            count: 1,
            last,
            is_wide: false,
        }
    }

    #[test]
    fn requests_are_counted_and_rows_and_consumers_are_limited() {
        let accesses = Accesses::default();
        let plane = PlaneId::core();
        let key = || (Box::from("a"), Some(PlaneId::core()));
        accesses.note(key(), access("get", 1));
        accesses.note(key(), access("get", 5));
        let found = accesses.of("a", &plane);
        assert_eq!((found.len(), found[0].count, found[0].last), (1, 2, 5));
        (0..100).for_each(|nth| accesses.note(key(), access(&format!("v{nth}"), 10 + nth)));
        let found = accesses.of("a", &plane);
        assert_eq!((found.len(), &*found[0].verb), (MAX_ROWS, "v99"));
        assert!(accesses.of("b", &plane).is_empty() && accesses.of("a", &PlaneId::infra()).is_empty());
        accesses.note((Box::from("a"), None), access("list", 500));
        assert_eq!(&*accesses.of("a", &PlaneId::infra())[0].verb, "list");
        (0..MAX_KNOWN as i64).for_each(|nth| {
            accesses.note((format!("export-{nth}").into(), Some(PlaneId::core())), access("get", 1000 + nth));
        });
        assert!(accesses.0.lock().len() <= MAX_KNOWN);
    }
}
