//! The last changes, kept in memory within a bound, so that watches that keep up never touch the disk.

use freehold_apiserver_storage::{Event, Revision};
use std::{collections::VecDeque, sync::Arc};

/// What every event costs beside its bytes.
const EVENT_OVERHEAD: usize = 160;

/// All changes of one revision, each with what was there before.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) revision: Revision,
    pub(crate) events: Vec<Event>,
}

impl Changes {
    fn weight(&self) -> usize {
        let weigh = |event: &Event| {
            let value = event.value.as_ref().map_or(0, bytes::Bytes::len);
            let previous = event.previous.as_ref().map_or(0, |previous| previous.value.len());
            EVENT_OVERHEAD + event.key.as_bytes().len() + value + previous
        };
        self.events.iter().map(weigh).sum()
    }
}

/// A run of consecutive revisions that ends with the latest.
#[derive(Debug)]
pub(crate) struct Recent {
    runs: VecDeque<(usize, Arc<Changes>)>,
    weight: usize,
    limit: usize,
}

impl Recent {
    pub(crate) fn new(limit: usize) -> Self {
        Self { runs: VecDeque::new(), weight: 0, limit }
    }

    /// Adds the next revision, and forgets the oldest ones while there are too many bytes.
    pub(crate) fn push(&mut self, changes: Changes) {
        let weight = changes.weight();
        self.weight += weight;
        self.runs.push_back((weight, Arc::new(changes)));
        while self.weight > self.limit {
            let Some((weight, _)) = self.runs.pop_front() else { break };
            self.weight -= weight;
        }
    }

    /// At most `limit` revisions from `first` on; `None` if `first` is not among the recent ones.
    pub(crate) fn from(&self, first: Revision, limit: usize) -> Option<Vec<Arc<Changes>>> {
        let oldest = self.runs.front()?.1.revision;
        let skip = usize::try_from(first.checked_sub(oldest)?).ok()?;
        (skip < self.runs.len())
            .then(|| self.runs.iter().skip(skip).take(limit).map(|(_, changes)| changes.clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use freehold_apiserver_storage::Key;

    fn changes(revision: Revision, bytes: usize) -> Changes {
        let value = Some(Bytes::from(vec![0; bytes]));
        let event = Event { key: Key::system("a"), revision, value, created: revision, previous: None };
        Changes { revision, events: vec![event] }
    }

    #[test]
    fn what_exceeds_the_bound_is_forgotten_oldest_first() {
        let mut recent = Recent::new(4 * (EVENT_OVERHEAD + 8 + 1000));
        (10..20).for_each(|revision| recent.push(changes(revision, 1000)));
        assert!(recent.from(15, 9).is_none());
        let found: Vec<_> = recent.from(16, 3).unwrap().iter().map(|changes| changes.revision).collect();
        assert_eq!(found, [16, 17, 18]);
        assert!(recent.from(20, 1).is_none());
        recent.push(changes(20, 1 << 20));
        assert!(recent.from(20, 1).is_none());
    }
}
