//! Applying a plan: what changed in it or in the cluster, by stages, and removing what it no longer has.

use crate::FIELD_MANAGER;
use crate::plan::delivery::Delivery;
use crate::watch::{KINDS, Kind, LAST_STAGE, Stores, fingerprint};
use freehold_api::keys;
use freehold_client::{Client, DeleteOptions};
use freehold_machinery::{Value, meta};
use freehold_runtime::{Error, Key};
use futures_util::future::try_join_all;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// What was applied of an object.
#[derive(Clone, Debug)]
struct Applied {
    /// Hash of the planned object.
    planned: u64,
    /// Fingerprint of the object that the server answered with.
    result: u64,
    resource_version: String,
}

/// Applies plans to a cluster, and remembers what it applied last.
pub(crate) struct Applier {
    cluster: Client,
    applied: Mutex<HashMap<Key, HashMap<String, Applied>>>,
}

/// An object of a plan that has to be applied.
struct Due {
    id: String,
    kind: &'static Kind,
    planned: u64,
    object: Value,
}

impl Applier {
    pub(crate) fn new(cluster: Client) -> Self {
        Self { cluster, applied: Mutex::default() }
    }

    /// Forgets what was applied for one pair.
    pub(crate) fn forget(&self, key: &Key) {
        self.applied.lock().remove(key);
    }

    /// Makes the next apply of each pair one of everything.
    pub(crate) fn forget_all(&self) {
        self.applied.lock().clear();
    }

    /// Applies what the provisioner makes itself and is not as it was applied last, stage by stage, and then removes what the
    /// plan does not have.
    ///
    /// # Errors
    /// The cluster refuses an object, or does not answer; the message names the object.
    pub(crate) async fn apply(
        &self,
        key: &Key,
        mut plan: Vec<Value>,
        delivery: Delivery,
        stores: &Stores,
    ) -> Result<(), Error> {
        let wanted: HashSet<String> = plan.iter().map(identity).collect();
        plan.retain(|object| delivery.makes(object));
        let mut due = self.due(key, plan, stores)?;
        for stage in 0..=LAST_STAGE {
            let (now, later): (Vec<_>, Vec<_>) = due.into_iter().partition(|due| due.kind.stage == stage);
            due = later;
            let done = try_join_all(now.iter().map(|due| self.apply_one(due))).await?;
            let mut applied = self.applied.lock();
            applied.entry(key.clone()).or_default().extend(now.into_iter().map(|due| due.id).zip(done));
        }
        let kinds = KINDS.iter().filter(|kind| kind.resource.namespaced && delivery.prunes(kind.name));
        self.prune(key, &wanted, kinds, stores).await
    }

    fn due(&self, key: &Key, plan: Vec<Value>, stores: &Stores) -> Result<Vec<Due>, Error> {
        let before = self.applied.lock().get(key).cloned().unwrap_or_default();
        let due = plan.into_iter().map(|object| {
            let name = object["kind"].as_str().unwrap_or_default();
            let kind = KINDS.iter().find(|kind| kind.name == name);
            let kind = kind.ok_or_else(|| format!("{name} is not of a plan"))?;
            Ok(Due { id: identity(&object), kind, planned: hash(&object), object })
        });
        let due: Result<Vec<Due>, Error> = due.collect();
        let stands = |due: &Due| before.get(&due.id).is_some_and(|applied| stands(key, due, applied, stores));
        Ok(due?.into_iter().filter(|due| !stands(due)).collect())
    }

    async fn apply_one(&self, due: &Due) -> Result<Applied, Error> {
        let (kind, name) = (due.kind.name, meta::name(&due.object));
        let result = self.cluster.apply(&due.kind.resource, FIELD_MANAGER, &due.object).await;
        let result = result.map_err(|error| format!("{kind} {name:?}: {error}"))?;
        Ok(Applied {
            planned: due.planned,
            result: fingerprint(&result),
            resource_version: meta::resource_version(&result).to_owned(),
        })
    }

    async fn prune(
        &self,
        key: &Key,
        wanted: &HashSet<String>,
        kinds: impl Iterator<Item = &'static Kind>,
        stores: &Stores,
    ) -> Result<(), Error> {
        let namespace = keys::pair_namespace(&key.name);
        for kind in kinds {
            for name in stores.removable(&key.name, kind.name) {
                if wanted.contains(&format!("{}/{name}", kind.name)) {
                    continue;
                }
                let options = DeleteOptions::default();
                match self.cluster.delete(&kind.resource, Some(&namespace), &name, &options).await {
                    Err(error) if !error.is_not_found() => {
                        return Err(format!("{} {name:?}: {error}", kind.name).into());
                    }
                    _ => tracing::info!(
                        kind = kind.name,
                        namespace,
                        name,
                        "removed what the plan no longer has"
                    ),
                }
            }
        }
        Ok(())
    }
}

/// Whether an object is in the cluster as it was applied, as far as that was seen.
fn stands(key: &Key, due: &Due, applied: &Applied, stores: &Stores) -> bool {
    if applied.planned != due.planned {
        return false;
    }
    let (kind, name) = (due.kind.name, meta::name(&due.object));
    match stores.object(&key.name, kind, name) {
        Some(seen) if seen.fingerprint == applied.result => true,
        // The watch has not come to what was applied.
        _ => !stores.has_seen(kind, &applied.resource_version),
    }
}

fn identity(object: &Value) -> String {
    format!("{}/{}", object["kind"].as_str().unwrap_or_default(), meta::name(object))
}

fn hash(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    object.to_string().hash(&mut hasher);
    hasher.finish()
}
