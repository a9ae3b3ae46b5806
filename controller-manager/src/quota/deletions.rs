//! What is deleted is given back at once: each type that a quota counts is watched, once over all planes, from when the
//! first quota names it until the last has gone. Nothing is kept of what the watches tell.

use freehold_client::Resource;
use freehold_controllers_context::Context;
use freehold_machinery::Value;
use freehold_runtime::{Informer, Interest, Key, Planes, Queue, Seen, Store};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What quotas count, by the name of each type.
pub(super) type Names = Vec<String>;

/// Most types that are watched; what is of others is given back with the next count without a cause.
const MOST: usize = 256;
/// Several objects that go together are counted once.
const TOGETHER: Duration = Duration::from_millis(100);

/// The watches.
pub(super) struct Deletions {
    planes: Planes,
    quotas: Store<Names>,
    queue: Arc<Queue<Key>>,
    token: CancellationToken,
    tasks: TaskTracker,
    running: Mutex<HashMap<String, CancellationToken>>,
}

impl Deletions {
    pub(super) fn new(context: &Context, quotas: Store<Names>, queue: Arc<Queue<Key>>) -> Self {
        Self {
            planes: context.planes.clone(),
            quotas,
            queue,
            token: context.token.clone(),
            tasks: context.tasks.clone(),
            running: Mutex::default(),
        }
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, CancellationToken>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a type that quotas name in this way. True where a watch begins, so that something may have gone before it.
    pub(super) fn watch(&self, name: &str, resource: &Resource) -> bool {
        let mut running = self.running();
        if running.contains_key(name) || running.len() >= MOST {
            return false;
        }
        let token = self.token.child_token();
        running.insert(name.to_owned(), token.clone());
        let interest =
            Interest::projected(resource.clone(), |_: Value| None::<()>).metadata_only().from_now();
        let mut informer = Informer::new(&self.planes, interest);
        let (name, quotas, queue) = (name.to_owned(), self.quotas.clone(), self.queue.clone());
        informer.on_object(move |key, _, seen| {
            if seen == Seen::Gone {
                for (quota, names) in quotas.in_namespace(&key.plane, &key.namespace) {
                    if names.contains(&name) {
                        queue.add_after(quota, TOGETHER);
                    }
                }
            }
        });
        self.tasks.spawn(informer.run(token));
        true
    }

    /// Ends the watches of types that no quota names any more.
    pub(super) fn retain(&self) {
        let wanted: BTreeSet<String> = self
            .quotas
            .keys()
            .iter()
            .filter_map(|key| self.quotas.get(key))
            .flat_map(|names| (*names).clone())
            .collect();
        self.running().retain(|name, token| {
            let stays = wanted.contains(name);
            if !stays {
                token.cancel();
            }
            stays
        });
    }
}
