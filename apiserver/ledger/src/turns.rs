//! Turns: writers of this server that charge the same account go one after the other, in the order in which they came.
//!
//! The commit's conditions are what keeps accounts right, whoever writes; turns keep a thousand writers from failing each
//! other's conditions over and over. An account that nobody waits for takes no memory.

use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use tokio::sync::OwnedMutexGuard;

/// An account: the revision of its last commit by this server, while anybody uses it.
type Slot = Arc<tokio::sync::Mutex<u64>>;

/// The accounts that are in use.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<String, Slot>>);

/// The right to change accounts, until it is dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    held: Vec<(String, Option<OwnedMutexGuard<u64>>)>,
}

impl Turns {
    /// Waits for all of these accounts. They are taken in their order, so that nobody waits in a circle.
    pub(crate) async fn take(&self, mut accounts: Vec<String>) -> Turn<'_> {
        accounts.sort();
        accounts.dedup();
        let mut turn = Turn { turns: self, held: Vec::with_capacity(accounts.len()) };
        for account in accounts {
            let slot = self.0.lock().entry(account.clone()).or_default().clone();
            // In the list before it is waited for: who gives up meanwhile tidies up.
            turn.held.push((account, None));
            let guard = slot.lock_owned().await;
            if let Some(last) = turn.held.last_mut() {
                last.1 = Some(guard);
            }
        }
        turn
    }
}

impl Turn<'_> {
    /// The revision of the last commit of those before.
    pub(crate) fn seen(&self) -> u64 {
        self.held.iter().filter_map(|(_, guard)| guard.as_deref().copied()).max().unwrap_or(0)
    }

    /// Tells those that follow what was committed.
    pub(crate) fn done(&mut self, revision: u64) {
        for guard in self.held.iter_mut().filter_map(|(_, guard)| guard.as_deref_mut()) {
            *guard = revision;
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut slots = self.turns.0.lock();
        for (account, guard) in self.held.drain(..) {
            drop(guard);
            if slots.get(&account).is_some_and(|slot| Arc::strong_count(slot) == 1) {
                slots.remove(&account);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn writers_go_one_after_the_other_and_nothing_stays() {
        let turns = Arc::new(Turns::default());
        let running = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let tasks: Vec<_> = (0..50u64)
            .map(|n| {
                let (turns, running) = (turns.clone(), running.clone());
                tokio::spawn(async move {
                    let accounts = ["a", "b", "c"].map(str::to_owned);
                    let mut turn = turns.take(accounts[(n % 2) as usize..].to_vec()).await;
                    assert_eq!(running.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    let seen = turn.seen();
                    turn.done(seen + 1);
                    running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert!(turns.0.lock().is_empty());
        let held = turns.take(vec!["a".into()]).await;
        let waits = turns.take(vec!["a".into()]);
        assert!(tokio::time::timeout(std::time::Duration::from_millis(5), waits).await.is_err());
        drop(held);
        assert!(turns.0.lock().is_empty(), "who gave up left nothing");
    }
}
