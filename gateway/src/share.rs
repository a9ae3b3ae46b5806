//! What a group of users may hold of the gateway at a time: places for requests, and bytes that wait for clients.
//!
//! A group is a user, or all service accounts of a namespace, which are an organization's: accounts cost nothing to make.

use crate::error::Failure;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

/// Requests of a group that are served at a time, streams aside.
const PLACES: usize = 32;
/// Bytes of events that wait for the clients of a group.
const BYTES: usize = 32 << 20;
/// Bytes of events that wait for all clients of this process.
const ALL_BYTES: usize = 1 << 30;
/// Longest time for which something waits for bytes that others hold.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longest time for which a request waits for a place of its group.
const PLACE_TIME: Duration = Duration::from_secs(5);

/// What names of accounts begin with, before their namespace: those of a plane, and those of an organization.
const ACCOUNTS: [&str; 2] = ["system:serviceaccount:", "freehold:serviceaccount:"];

/// The group of a user: the namespace of a service account, or the user. Whoever may make one account may make many.
pub(crate) fn group(user: &str) -> &str {
    let account = ACCOUNTS.iter().find_map(|prefix| {
        let (namespace, _) = user.strip_prefix(prefix)?.split_once(':')?;
        Some(&user[..prefix.len() + namespace.len() + 1])
    });
    account.unwrap_or(user)
}

/// The shares of all groups that hold something or are signed in.
pub(crate) struct Shares {
    all: Arc<Semaphore>,
    of: Mutex<HashMap<String, Weak<Share>>>,
}

impl Default for Shares {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(ALL_BYTES)), of: Mutex::default() }
    }
}

impl Shares {
    /// The share of a user's group. It is the same one as long as anything of the group is left.
    pub(crate) fn of(&self, user: &str) -> Arc<Share> {
        let mut shares = self.of.lock();
        shares.retain(|_, share| share.strong_count() > 0);
        let name = group(user);
        if let Some(share) = shares.get(name).and_then(Weak::upgrade) {
            return share;
        }
        let share = Arc::new(Share {
            places: Semaphore::new(PLACES),
            bytes: Arc::new(Semaphore::new(BYTES)),
            all: self.all.clone(),
        });
        shares.insert(name.to_owned(), Arc::downgrade(&share));
        share
    }
}

/// What one group may hold.
pub(crate) struct Share {
    places: Semaphore,
    bytes: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

impl Share {
    /// A place for a request.
    pub(crate) async fn place(&self) -> Result<tokio::sync::SemaphorePermit<'_>, Failure> {
        match timeout(PLACE_TIME, self.places.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(Failure::too_many("too many requests at a time; the console slows down")),
        }
    }

    /// Counts bytes as held by the group, as soon as it has room for them.
    pub(crate) async fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, Failure> {
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX);
        let holding = async {
            let own = self.bytes.clone().acquire_many_owned(wanted).await.ok()?;
            let all = self.all.clone().acquire_many_owned(wanted).await.ok()?;
            Some(Held { _share: self.clone(), own, all })
        };
        let held = timeout(PATIENCE, holding).await.ok().flatten();
        held.ok_or_else(|| Failure::too_many("too much waits for clients that do not read"))
    }
}

/// Bytes that are counted until this is dropped.
pub(crate) struct Held {
    _share: Arc<Share>,
    own: OwnedSemaphorePermit,
    all: OwnedSemaphorePermit,
}

impl Held {
    /// Adds what another one holds of the same share.
    pub(crate) fn merge(&mut self, other: Self) {
        self.own.merge(other.own);
        self.all.merge(other.all);
    }

    /// Takes some bytes out; `None` where there are fewer.
    pub(crate) fn split(&mut self, bytes: usize) -> Option<Self> {
        let (own, all) = (self.own.split(bytes)?, self.all.split(bytes)?);
        Some(Self { _share: self._share.clone(), own, all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_of_a_namespace_are_one_group() {
        let accounts = ["system:serviceaccount:acme:a", "system:serviceaccount:acme:b"];
        assert_eq!(group(accounts[0]), group(accounts[1]));
        assert_ne!(group(accounts[0]), group("system:serviceaccount:acme2:a"));
        let owners =
            ["freehold:serviceaccount:organization-acme:ci", "freehold:serviceaccount:organization-acme:cd"];
        assert_eq!(group(owners[0]), group(owners[1]));
        assert_ne!(group("jane"), group("john"));
        assert_eq!(group("system:serviceaccount:odd"), "system:serviceaccount:odd");
    }

    #[tokio::test]
    async fn what_a_group_holds_is_counted_whoever_of_it_is_signed_in() {
        let shares = Shares::default();
        let mut held = shares.of("jane").hold(100).await.unwrap();
        let part = held.split(40).unwrap();
        assert!(held.split(61).is_none());
        let free = |user: &str| shares.of(user).bytes.available_permits();
        assert_eq!((free("jane"), free("john")), (BYTES - 100, BYTES));
        drop(held);
        assert_eq!((free("jane"), shares.all.available_permits()), (BYTES - 40, ALL_BYTES - 40));
        drop(part);
        assert_eq!((free("jane"), shares.all.available_permits()), (BYTES, ALL_BYTES));
    }

    #[tokio::test]
    async fn one_group_takes_no_places_of_another() {
        let shares = Shares::default();
        let (jane, john) = (shares.of("jane"), shares.of("john"));
        let _all = jane.places.try_acquire_many(u32::try_from(PLACES).unwrap()).unwrap();
        assert!(shares.of("jane").places.try_acquire().is_err());
        assert!(john.place().await.is_ok());
    }
}
