//! Mutexes and semaphores of a namespace, with fair queues: more priority first, then who came first.
//!
//! A holder takes all its locks at once or none, so that holders never wait for each other in a circle.

use crate::LockNeed;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

/// Locks, who has them and who waits for them. `H` names holders.
#[derive(Debug)]
pub struct Locks<H> {
    pools: HashMap<String, Pool<H>>,
    holders: HashMap<H, Vec<LockNeed>>,
    waiting: HashMap<H, Waiter>,
    sequence: u64,
}

#[derive(Debug)]
struct Pool<H> {
    taken: u32,
    queue: BTreeSet<(Reverse<i32>, u64, H)>,
}

#[derive(Debug)]
struct Waiter {
    needs: Vec<LockNeed>,
    priority: i32,
    sequence: u64,
}

impl<H> Default for Locks<H> {
    fn default() -> Self {
        Self { pools: HashMap::new(), holders: HashMap::new(), waiting: HashMap::new(), sequence: 0 }
    }
}

impl<H: Clone + Eq + Hash + Ord> Locks<H> {
    /// Asks for locks. `true`: the holder has them, now or from before. `false`: it waits, and [`release`](Self::release) of
    /// another names it one day.
    pub fn acquire(&mut self, holder: &H, needs: &[LockNeed], priority: i32) -> bool {
        if self.holders.contains_key(holder) {
            return true;
        }
        if self.waiting.contains_key(holder) {
            return false;
        }
        self.sequence += 1;
        let waiter = Waiter { needs: needs.to_vec(), priority, sequence: self.sequence };
        if self.is_next(holder, &waiter) {
            self.hold(holder, needs);
            return true;
        }
        for need in needs {
            self.pool(&need.name).queue.insert((Reverse(priority), waiter.sequence, holder.clone()));
        }
        self.waiting.insert(holder.clone(), waiter);
        false
    }

    /// Notes that a holder has locks, whatever others have: what was held before a restart.
    pub fn hold(&mut self, holder: &H, needs: &[LockNeed]) {
        if self.holders.contains_key(holder) {
            return;
        }
        self.leave(holder);
        for need in needs {
            self.pool(&need.name).taken += need.weight;
        }
        self.holders.insert(holder.clone(), needs.to_vec());
    }

    /// Gives back what a holder has, or stops its waiting. Returns the holders that have their locks thereby.
    pub fn release(&mut self, holder: &H) -> Vec<H> {
        let mut touched: Vec<String> = self.leave(holder).into_iter().map(|need| need.name).collect();
        for need in self.holders.remove(holder).unwrap_or_default() {
            self.pool(&need.name).taken -= need.weight;
            touched.push(need.name);
        }
        let mut granted = Vec::new();
        while let Some(name) = touched.pop() {
            while let Some(next) = self.first(&name) {
                let Some(waiter) = self.waiting.get(&next) else { break };
                if !self.is_next(&next, waiter) {
                    break;
                }
                let needs = waiter.needs.clone();
                touched.extend(needs.iter().filter(|need| need.name != name).map(|need| need.name.clone()));
                self.hold(&next, &needs);
                granted.push(next);
            }
            if self.pools.get(&name).is_some_and(|pool| pool.taken == 0 && pool.queue.is_empty()) {
                self.pools.remove(&name);
            }
        }
        granted
    }

    /// Returns how many tasks wait for it.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Everybody who has locks or waits.
    pub fn known(&self) -> Vec<H> {
        self.holders.keys().chain(self.waiting.keys()).cloned().collect()
    }

    fn pool(&mut self, name: &str) -> &mut Pool<H> {
        if !self.pools.contains_key(name) {
            self.pools.insert(name.to_owned(), Pool { taken: 0, queue: BTreeSet::new() });
        }
        self.pools.get_mut(name).unwrap_or_else(|| unreachable!("it was put there"))
    }

    fn first(&self, name: &str) -> Option<H> {
        self.pools.get(name)?.queue.first().map(|(_, _, holder)| holder.clone())
    }

    /// Whether all its locks have room, and nobody is before it in any of their queues.
    fn is_next(&self, holder: &H, waiter: &Waiter) -> bool {
        waiter.needs.iter().all(|need| {
            let Some(pool) = self.pools.get(&need.name) else { return true };
            let before = (Reverse(waiter.priority), waiter.sequence, holder.clone());
            let is_first = pool.queue.first().is_none_or(|first| *first >= before);
            is_first && pool.taken + need.weight <= need.limit
        })
    }

    fn leave(&mut self, holder: &H) -> Vec<LockNeed> {
        let Some(waiter) = self.waiting.remove(holder) else { return Vec::new() };
        for need in &waiter.needs {
            self.pool(&need.name).queue.remove(&(Reverse(waiter.priority), waiter.sequence, holder.clone()));
        }
        waiter.needs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(name: &str, limit: u32) -> LockNeed {
        LockNeed { name: name.into(), limit, weight: 1 }
    }

    #[test]
    fn a_mutex_goes_to_who_waits_by_priority_and_then_by_time() {
        let mut locks = Locks::default();
        let m = [need("m", 1)];
        assert!(locks.acquire(&1, &m, 0) && locks.acquire(&1, &m, 0));
        assert!(!locks.acquire(&2, &m, 0) && !locks.acquire(&3, &m, 0) && !locks.acquire(&4, &m, 5));
        assert_eq!(locks.release(&1), [4]);
        assert!(locks.release(&2).is_empty(), "it waited");
        assert_eq!(locks.release(&4), [3]);
        assert!(locks.release(&3).is_empty() && locks.pools.is_empty() && locks.waiting() == 0);
    }

    #[test]
    fn several_locks_are_taken_together_or_not_at_all() {
        let mut locks = Locks::default();
        assert!(locks.acquire(&1, &[need("a", 1)], 0) && locks.acquire(&2, &[need("b", 1)], 0));
        assert!(!locks.acquire(&3, &[need("a", 1), need("b", 1)], 0));
        // Who comes later does not overtake.
        assert!(locks.release(&1).is_empty() && !locks.acquire(&4, &[need("a", 1)], 0));
        assert_eq!(locks.release(&2), [3]);
        assert_eq!(locks.release(&3), [4]);
    }

    #[test]
    fn many_waiters_are_served_in_order() {
        let mut locks = Locks::default();
        let pool = [need("s", 10)];
        let granted = (0..20_000).filter(|n| locks.acquire(n, &pool, 0)).count();
        assert_eq!(granted, 10);
        let begun = std::time::Instant::now();
        for n in 0..19_990 {
            assert_eq!(locks.release(&n), [n + 10]);
        }
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    }
}
