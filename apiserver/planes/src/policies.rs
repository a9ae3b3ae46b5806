//! RBAC of each plane, compiled when it is asked for and kept until one of its objects changes.

use freehold_apiserver_authz::{Policy, RuleCache};
use freehold_apiserver_cache::{Cache, ListRequest};
use freehold_machinery::{PlaneId, PlaneMap, Result, Value};
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
pub(crate) const RESOURCES: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];
/// Planes whose policies are kept; over it the table starts anew.
const MAX_PLANES: usize = 2_048;
/// Stacks whose policies are kept, likewise.
const MAX_STACKS: usize = 256;

type Revisions = [u64; 4];

/// The policies of planes.
#[derive(Default)]
pub(crate) struct Policies {
    /// Rules, once for all planes that have the same.
    rules: RuleCache,
    /// Policies of planes, with the revisions of the four resources that they were compiled from.
    known: Mutex<PlaneMap<(Revisions, Arc<Policy>)>>,
    /// The policy of planes that have no RBAC objects of their own, by the content of their stack.
    base: Mutex<HashMap<u64, Arc<Policy>>>,
}

impl Policies {
    pub(crate) async fn of(&self, cache: &Cache, plane: &PlaneId) -> Result<Arc<Policy>> {
        let (revisions, stack) = cache.changes(plane, GROUP, RESOURCES).await?;
        let layer = stack.content();
        let untouched = revisions.iter().all(|revision| *revision == stack.revision());
        let found = if untouched {
            self.base.lock().get(&layer).cloned()
        } else {
            self.known
                .lock()
                .get(plane)
                .filter(|(known, _)| *known == revisions)
                .map(|(_, policy)| policy.clone())
        };
        if let Some(policy) = found {
            return Ok(policy);
        }
        let objects = Box::pin(read(cache, plane)).await?;
        let policy = Arc::new(Policy::compile(&self.rules, &objects));
        self.keep(plane, layer, untouched, revisions, &policy);
        Ok(policy)
    }

    fn keep(&self, plane: &PlaneId, layer: u64, untouched: bool, revisions: Revisions, policy: &Arc<Policy>) {
        if untouched {
            let mut base = self.base.lock();
            if base.len() >= MAX_STACKS {
                base.clear();
            }
            base.insert(layer, policy.clone());
            return;
        }
        let mut known = self.known.lock();
        if known.len() >= MAX_PLANES {
            known.clear();
        }
        known.insert(plane.clone(), (revisions, policy.clone()));
    }

    /// Forgets a plane.
    pub(crate) fn forget(&self, plane: &PlaneId) {
        self.known.lock().remove(plane);
    }
}

/// All that a plane has of RBAC.
async fn read(cache: &Cache, plane: &PlaneId) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for resource in RESOURCES {
        let request = ListRequest { plane, group: GROUP, resource, namespace: None };
        objects.extend(cache.list(request).await?.objects.iter().map(|entry| entry.value()));
    }
    Ok(objects)
}
