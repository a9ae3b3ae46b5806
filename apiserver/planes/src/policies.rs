//! RBAC of each plane, compiled when it is asked for and kept until one of its objects changes.

use crate::{Apis, apis::BundledRules};
use freehold_apiserver_authz::{Policy, RuleCache};
use freehold_apiserver_cache::{Cache, Entry, ListRequest};
use freehold_apiserver_catalog::TypeSet;
use freehold_machinery::{PlaneId, PlaneMap, Result, Value, meta};
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
    known: Mutex<PlaneMap<(Revisions, Compiled)>>,
    /// The policy of planes that have no RBAC objects of their own, by the content of their stack and the address of
    /// the types that exports bring.
    base: Mutex<HashMap<(u64, usize), Compiled>>,
}

/// Exports that a plane has.
pub(crate) struct Bundle<'a> {
    pub(crate) apis: &'a Apis,
    pub(crate) types: Arc<TypeSet>,
}

/// A policy, and the types that exports brought when it was compiled: kept, so that their address stays theirs.
#[derive(Clone)]
struct Compiled {
    policy: Arc<Policy>,
    types: Option<Arc<TypeSet>>,
}

impl Compiled {
    fn is_of(&self, bundle: Option<&Bundle<'_>>) -> bool {
        address(self.types.as_ref()) == address(bundle.map(|bundle| &bundle.types))
    }
}

fn address(types: Option<&Arc<TypeSet>>) -> usize {
    types.map_or(0, |types| Arc::as_ptr(types).addr())
}

impl Policies {
    pub(crate) async fn of(
        &self,
        cache: &Cache,
        plane: &PlaneId,
        bundle: Option<Bundle<'_>>,
    ) -> Result<Arc<Policy>> {
        let bundle = bundle.as_ref();
        let types = bundle.map(|bundle| &bundle.types);
        let (revisions, stack) = cache.changes(plane, GROUP, RESOURCES).await?;
        let known = match revisions {
            None => self.base.lock().get(&(stack.content(), address(types))).cloned(),
            Some(revisions) => {
                let known = self.known.lock();
                known.get(plane).filter(|(at, _)| *at == revisions).map(|(_, policy)| policy.clone())
            }
        };
        if let Some(known) = known.filter(|known| known.is_of(bundle)) {
            return Ok(known.policy);
        }
        let Some(revisions) = revisions else {
            let objects = RESOURCES.map(|resource| stack.objects(plane, GROUP, resource));
            let policy = self.compile(objects.iter().flatten(), bundle);
            let mut base = self.base.lock();
            if base.len() >= MAX_STACKS {
                base.clear();
            }
            let compiled = Compiled { policy: policy.clone(), types: types.cloned() };
            base.insert((stack.content(), address(types)), compiled);
            return Ok(policy);
        };
        let policy = self.compile(Box::pin(read(cache, plane)).await?.iter(), bundle);
        let mut known = self.known.lock();
        if known.len() >= MAX_PLANES {
            known.clear();
        }
        let compiled = Compiled { policy: policy.clone(), types: types.cloned() };
        known.insert(plane.clone(), (revisions, compiled));
        Ok(policy)
    }

    fn compile<'a>(
        &self,
        objects: impl Iterator<Item = &'a Arc<Entry>>,
        bundle: Option<&Bundle<'_>>,
    ) -> Arc<Policy> {
        let mut objects: Vec<Value> = objects.map(|entry| entry.value()).collect();
        let added = bundle.map(|bundle| bundle.apis.bundled_rules(&bundle.types)).unwrap_or_default();
        if !added.is_empty() {
            objects.iter_mut().for_each(|object| add_rules(object, &added));
        }
        Arc::new(Policy::compile(&self.rules, &objects))
    }

    /// Forgets a plane.
    pub(crate) fn forget(&self, plane: &PlaneId) {
        self.known.lock().remove(plane);
    }
}

/// Adds what exports allow to a ClusterRole.
fn add_rules(object: &mut Value, added: &BundledRules) {
    let Some(more) = added.get(meta::name(object)).filter(|_| object["kind"] == "ClusterRole") else {
        return;
    };
    match object["rules"].as_array_mut() {
        Some(rules) => rules.extend(more.iter().cloned()),
        None => object["rules"] = more.clone().into(),
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
