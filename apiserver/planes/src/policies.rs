//! RBAC of each plane, compiled when it is asked for and kept. When a binding changes, what its namespace has is compiled again
//! and the rest stays: a plane of 10,000 namespaces has some ten times as many bindings, and each new namespace brings a few.

mod known;

use crate::{Apis, apis::BundledRules};
use freehold_apiserver_authz::{Policy, RuleCache};
use freehold_apiserver_cache::{Cache, Entry, ListRequest, Stack};
use freehold_apiserver_catalog::TypeSet;
use freehold_machinery::{PlaneId, Result, Value, meta};
use known::{Compiled, Found, Table};
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
/// What policies are made of, in the order of [`known::Revisions`].
pub(crate) const RESOURCES: [&str; 4] = ["clusterroles", "clusterrolebindings", "roles", "rolebindings"];
/// Stacks whose policies are kept; over it the table starts anew.
const MAX_STACKS: usize = 256;

/// The policies of planes.
#[derive(Default)]
pub(crate) struct Policies {
    /// Rules, once for all planes that have the same.
    rules: RuleCache,
    known: Mutex<Table>,
    /// The policy of planes that have no RBAC objects of their own, by the content of their stack and the address of
    /// the types that exports bring.
    base: Mutex<HashMap<(u64, usize), Compiled>>,
}

/// Exports that a plane has.
pub(crate) struct Bundle<'a> {
    pub(crate) apis: &'a Apis,
    pub(crate) types: Arc<TypeSet>,
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
    /// The policies of a cache's planes.
    pub(crate) fn start(cache: &Cache) -> Arc<Self> {
        let policies: Arc<Self> = Arc::default();
        for (index, resource) in RESOURCES.into_iter().enumerate() {
            let weak = Arc::downgrade(&policies);
            cache.observe_everywhere(GROUP, resource, move |event| {
                let Some(policies) = weak.upgrade() else { return };
                let mut known = policies.known.lock();
                match event {
                    Some(event) => known.note(&event.plane, index, event.revision, event.namespace()),
                    None => known.clear(),
                }
            });
        }
        policies
    }

    pub(crate) async fn of(
        &self,
        cache: &Cache,
        plane: &PlaneId,
        bundle: Option<Bundle<'_>>,
    ) -> Result<Arc<Policy>> {
        let bundle = bundle.as_ref();
        let (revisions, stack) = cache.changes(plane, GROUP, RESOURCES).await?;
        let Some(revisions) = revisions else { return Ok(self.of_stack(plane, &stack, bundle)) };
        let found = self.known.lock().find(plane, &revisions, |known| known.is_of(bundle));
        match found {
            Some(Found::Current(known)) => Ok(known.policy),
            _ => Box::pin(self.renewed(cache, plane, bundle)).await,
        }
    }

    /// The policy of a plane that has no RBAC objects of its own.
    fn of_stack(&self, plane: &PlaneId, stack: &Stack, bundle: Option<&Bundle<'_>>) -> Arc<Policy> {
        let types = bundle.map(|bundle| &bundle.types);
        let key = (stack.content(), address(types));
        let known = self.base.lock().get(&key).filter(|known| known.is_of(bundle)).cloned();
        if let Some(known) = known {
            return known.policy;
        }
        let objects = RESOURCES.map(|resource| stack.objects(plane, GROUP, resource));
        let policy = self.compile(objects.iter().flatten(), bundle);
        let mut base = self.base.lock();
        if base.len() >= MAX_STACKS {
            base.clear();
        }
        base.insert(key, Compiled { policy: policy.clone(), types: types.cloned() });
        policy
    }

    /// The policy of a plane whose objects have changed.
    async fn renewed(
        &self,
        cache: &Cache,
        plane: &PlaneId,
        bundle: Option<&Bundle<'_>>,
    ) -> Result<Arc<Policy>> {
        self.known.lock().attend(plane);
        // Whatever is visible was noted, or is read below.
        cache.settle();
        let (revisions, stack) = cache.changes(plane, GROUP, RESOURCES).await?;
        let Some(revisions) = revisions else { return Ok(self.of_stack(plane, &stack, bundle)) };
        let found = self.known.lock().find(plane, &revisions, |known| known.is_of(bundle));
        let (begun, policy) = match found {
            Some(Found::Current(known)) => return Ok(known.policy),
            Some(Found::Behind(begun, known, places)) => {
                (Some(begun), self.caught_up(cache, plane, (*known.policy).clone(), places).await?)
            }
            Some(Found::Unknown(begun)) => {
                (Some(begun), self.compile(read(cache, plane).await?.iter(), bundle))
            }
            // So many planes are asked for that it was dropped meanwhile.
            None => (None, self.compile(read(cache, plane).await?.iter(), bundle)),
        };
        if let Some(begun) = begun {
            let types = bundle.map(|bundle| bundle.types.clone());
            self.known.lock().keep(plane, begun, revisions, Compiled { policy: policy.clone(), types });
        }
        Ok(policy)
    }

    /// A policy with what some namespaces (empty: the cluster scope) have now.
    async fn caught_up(
        &self,
        cache: &Cache,
        plane: &PlaneId,
        mut policy: Policy,
        places: BTreeSet<Box<str>>,
    ) -> Result<Arc<Policy>> {
        for place in places {
            let (resources, namespace): (&[&str], _) = match &*place {
                "" => (&["clusterrolebindings"], None),
                namespace => (&["roles", "rolebindings"], Some(namespace)),
            };
            let mut objects = Vec::new();
            for resource in resources {
                let request = ListRequest { plane, group: GROUP, resource, namespace };
                objects.extend(cache.list(request).await?.objects.iter().map(|entry| entry.value()));
            }
            policy = policy.with(&self.rules, &place, &objects);
        }
        Ok(Arc::new(policy))
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
        self.known.lock().forget(plane);
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
