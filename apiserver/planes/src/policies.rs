//! RBAC of each plane, compiled when it is asked for and kept until one of its objects changes.

use freehold_apiserver_authz::{Policy, RuleCache};
use freehold_apiserver_cache::{Cache, Entry, ListRequest};
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
        let known = match revisions {
            None => self.base.lock().get(&stack.content()).cloned(),
            Some(revisions) => {
                let known = self.known.lock();
                known.get(plane).filter(|(at, _)| *at == revisions).map(|(_, policy)| policy.clone())
            }
        };
        if let Some(policy) = known {
            return Ok(policy);
        }
        let Some(revisions) = revisions else {
            let objects = RESOURCES.map(|resource| stack.objects(plane, GROUP, resource));
            let policy = self.compile(objects.iter().flatten());
            let mut base = self.base.lock();
            if base.len() >= MAX_STACKS {
                base.clear();
            }
            base.insert(stack.content(), policy.clone());
            return Ok(policy);
        };
        let policy = self.compile(Box::pin(read(cache, plane)).await?.iter());
        let mut known = self.known.lock();
        if known.len() >= MAX_PLANES {
            known.clear();
        }
        known.insert(plane.clone(), (revisions, policy.clone()));
        Ok(policy)
    }

    fn compile<'a>(&self, objects: impl Iterator<Item = &'a Arc<Entry>>) -> Arc<Policy> {
        let objects: Vec<Value> = objects.map(|entry| entry.value()).collect();
        Arc::new(Policy::compile(&self.rules, &objects))
    }

    /// Forgets a plane.
    pub(crate) fn forget(&self, plane: &PlaneId) {
        self.known.lock().remove(plane);
    }
}

/// All that a plane has of RBAC.
async fn read(cache: &Cache, plane: &PlaneId) -> Result<Vec<Arc<Entry>>> {
    let mut objects = Vec::new();
    for resource in RESOURCES {
        let request = ListRequest { plane, group: GROUP, resource, namespace: None };
        objects.extend(cache.list(request).await?.objects);
    }
    Ok(objects)
}
