//! How much of a kind of long work is done at once for one organization.
//!
//! Objects of all organizations are in the core plane, so that queues cannot tell their owners apart.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Turns at long work, so many at once for each organization.
pub(crate) struct Turns {
    each: usize,
    taken: Mutex<HashMap<Box<str>, usize>>,
}

/// A turn, which ends when this is dropped.
pub(crate) struct Turn {
    turns: Arc<Turns>,
    organization: Box<str>,
}

impl Turns {
    /// So many turns at once for each.
    pub(crate) fn new(each: usize) -> Arc<Self> {
        Arc::new(Self { each, taken: Mutex::default() })
    }

    /// A turn of an organization; `None` while it has as many as it may.
    pub(crate) fn take(self: &Arc<Self>, organization: &str) -> Option<Turn> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let own = taken.entry(organization.into()).or_default();
        if *own >= self.each {
            return None;
        }
        *own += 1;
        Some(Turn { turns: self.clone(), organization: organization.into() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut taken = self.turns.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.organization) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.organization);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_organization_takes_its_turns_and_none_of_others() {
        let turns = Turns::new(2);
        let taken = [turns.take("a"), turns.take("a")];
        assert!(taken.iter().all(Option::is_some));
        assert!(turns.take("a").is_none());
        assert!(turns.take("b").is_some());
        drop(taken);
        assert!(turns.taken.lock().unwrap().is_empty());
        assert!(turns.take("a").is_some());
    }
}
