//! Parts of the work that come from other controllers and go to them.

use super::Runs;
use crate::Options;
use freehold_runtime::{Key, Shared};

impl Runs {
    /// Takes up a part that came, or forgets one that went.
    pub(crate) fn moved(&self, change: Shared) {
        let (Shared::Came(part) | Shared::Went(part)) = change;
        let Some(shares) = self.options.shares.clone() else { return };
        let within = |key: &Key| Options::part(&shares, key) == part;
        // Of a part that comes too: what was known when it went is old by now.
        let known: Vec<Key> = self.live.lock().keys().filter(|key| within(key)).cloned().collect();
        known.iter().for_each(|key| self.forget(key));
        if change == Shared::Went(part) {
            return;
        }
        let in_part = |keys: Vec<Key>| keys.into_iter().filter(|key| within(key)).collect::<Vec<_>>();
        for key in in_part(self.runs.keys()) {
            if self.runs.get(&key).is_some_and(|run| run.untold) {
                self.notify_queue.add(key.clone());
            }
            self.queue.add(key);
        }
        in_part(self.definitions.dags.keys()).into_iter().for_each(|key| self.dag_queue.add(key));
    }
}
