//! What each plane serves: the built-in kinds, and what its CRDs add.

use crate::Planes;
use async_trait::async_trait;
use freehold_apiserver_cache::{Cache, Entry, ListRequest};
use freehold_apiserver_catalog::{Remote, TypeSet, custom_types, share};
use freehold_machinery::{PlaneId, PlaneMap, ResourceType, Result, Value, api_service};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

const GROUP: &str = "apiextensions.k8s.io";
const RESOURCE: &str = "customresourcedefinitions";
/// Planes whose types are remembered; over it the table starts anew.
const MAX_PLANES: usize = 4_096;

type Compiled = (u64, Vec<Arc<ResourceType>>);

/// What other servers serve in a plane. Another value says that it changed.
pub type Remotes = Arc<Vec<Arc<Remote>>>;

/// Knows what other servers serve in planes.
#[async_trait]
pub trait RemoteSource: Send + Sync + 'static {
    /// What they serve in one now.
    async fn remotes(&self, plane: &PlaneId) -> Result<Remotes>;
}

/// The types of one plane, as of one revision of its CRDs, with what other servers serve.
struct PlaneTypes {
    changed: u64,
    remotes: Remotes,
    set: Arc<TypeSet>,
    /// By CRD: the revision that was compiled, and what came out.
    compiled: HashMap<Box<str>, Compiled>,
}

/// What came out of a CRD at a revision, as long as somebody uses it.
type InternedTypes = (u64, Vec<Weak<ResourceType>>);

/// The types of planes that have CRDs and were asked for.
#[derive(Default)]
pub(crate) struct Types {
    known: Mutex<PlaneMap<PlaneTypes>>,
    /// What each CRD of any plane gave when all of them were asked for last, and at which revision.
    all: Mutex<HashMap<(PlaneId, Box<str>), InternedTypes>>,
    source: OnceLock<Arc<dyn RemoteSource>>,
}

impl Types {
    /// What a plane serves now.
    pub(crate) async fn of(&self, cache: &Cache, plane: &PlaneId) -> Result<Arc<TypeSet>> {
        let remotes = match self.source.get() {
            Some(source) => source.remotes(plane).await?,
            None => Remotes::default(),
        };
        let (changed, stack) = cache.changes(plane, GROUP, [RESOURCE]).await?;
        let changed = changed.map_or(stack.revision(), |[changed]| changed);
        // Most planes have no definitions, and need not list them for each request.
        let none = cache.count(plane, GROUP, RESOURCE, None) == Some(0) && !stack.has(GROUP, RESOURCE);
        if none && remotes.is_empty() {
            self.known.lock().remove(plane);
            return Ok(TypeSet::builtin());
        }
        if let Some(known) = self.known.lock().get(plane)
            && known.changed == changed
            && (Arc::ptr_eq(&known.remotes, &remotes) || known.remotes.is_empty() && remotes.is_empty())
        {
            return Ok(known.set.clone());
        }
        let request = ListRequest { plane, group: GROUP, resource: RESOURCE, namespace: None };
        let listed = Box::pin(cache.list(request)).await?;
        if listed.objects.is_empty() && remotes.is_empty() {
            self.known.lock().remove(plane);
            return Ok(TypeSet::builtin());
        }
        Ok(self.compile(plane, changed, remotes, listed.objects.iter()))
    }

    /// Asks `source` from now on.
    pub(crate) fn aggregate(&self, source: Arc<dyn RemoteSource>) {
        let _ = self.source.set(source);
    }

    /// Forgets a plane.
    pub(crate) fn forget(&self, plane: &PlaneId) {
        self.known.lock().remove(plane);
    }

    fn compile<'a>(
        &self,
        plane: &PlaneId,
        changed: u64,
        remotes: Remotes,
        crds: impl Iterator<Item = &'a Arc<Entry>>,
    ) -> Arc<TypeSet> {
        let mut table = self.known.lock();
        let mut before = table.remove(plane).map(|known| known.compiled).unwrap_or_default();
        let compiled: HashMap<Box<str>, Compiled> = crds
            .map(|entry| {
                let name: Box<str> = entry.name().into();
                let kept = before.remove(&name).filter(|(revision, _)| *revision == entry.modified);
                let types = kept.unwrap_or_else(|| (entry.modified, compile(&entry.value())));
                (name, types)
            })
            .collect();
        let types = compiled.values().flat_map(|(_, types)| types.iter().cloned()).collect();
        let set = share(types, remotes.to_vec());
        if table.len() >= MAX_PLANES {
            table.clear();
        }
        table.insert(plane.clone(), PlaneTypes { changed, remotes, set: set.clone(), compiled });
        set
    }
}

fn established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// Whether nothing was logged in this second yet.
fn is_seldom() -> bool {
    static LAST: AtomicI64 = AtomicI64::new(0);
    let now = jiff::Timestamp::now().as_second();
    LAST.swap(now, Relaxed) != now
}

/// The types of one CRD, shared with every other plane that has the same.
pub(crate) fn compile(crd: &Value) -> Vec<Arc<ResourceType>> {
    if !established(crd) {
        return Vec::new();
    }
    match custom_types(crd) {
        Ok(types) => types,
        Err(errors) => {
            // Whoever runs a pair of their own can store as many of these as they like.
            if is_seldom() {
                let name = freehold_machinery::meta::name(crd);
                tracing::error!(name, ?errors, "a stored CRD can't be compiled; its types are not served");
            }
            Vec::new()
        }
    }
}

impl Planes {
    /// What any plane serves, for watches over all of them. Types of planes are found through their CRDs.
    pub(crate) async fn all_types(&self) -> Result<Arc<TypeSet>> {
        let mut customs: Vec<Arc<ResourceType>> = Vec::new();
        for plane in [PlaneId::core(), PlaneId::infra()] {
            customs.extend_from_slice(self.types_of(&plane).await?.custom());
        }
        let mut crds = Vec::new();
        self.cache.list_planes(GROUP, RESOURCE, |plane, entry| crds.push((plane.clone(), entry))).await?;
        // Most are as they were, and many planes have the same: equal ones are one.
        let mut taken: HashSet<*const ResourceType> = customs.iter().map(Arc::as_ptr).collect();
        let mut before = std::mem::take(&mut *self.types.all.lock());
        let mut now = HashMap::with_capacity(crds.len());
        for (plane, crd) in crds {
            let at = (plane, Box::from(crd.name()));
            let kept = before.remove(&at).filter(|(revision, _)| *revision == crd.modified);
            let kept =
                kept.and_then(|(_, types)| types.iter().map(Weak::upgrade).collect::<Option<Vec<_>>>());
            let types = kept.unwrap_or_else(|| compile(&crd.value()));
            now.insert(at, (crd.modified, types.iter().map(Arc::downgrade).collect()));
            customs.extend(types.into_iter().filter(|ty| taken.insert(Arc::as_ptr(ty))));
        }
        *self.types.all.lock() = now;
        // Of different types under one name the set takes the first.
        Ok(share(customs, Vec::new()))
    }

    /// What an organization's projects serve, all together: the core plane's own types first.
    pub(crate) async fn union(&self, organization: &str) -> Result<Arc<TypeSet>> {
        let mut customs = self.types_of(&PlaneId::core()).await?.custom().to_vec();
        let own = self.cache.planes_with_own(GROUP, RESOURCE).await?;
        let registered = self.cache.planes_with_own(api_service::GROUP, api_service::RESOURCE).await?;
        let mut remotes: Vec<Arc<Remote>> = Vec::new();
        for project in self.directory().of_organization(organization) {
            let [own, registered] =
                [&own, &registered].map(|list| list.binary_search(&project.plane).is_ok());
            if !own && !registered {
                continue;
            }
            let types = self.types_of(&project.plane).await?;
            merge(&mut customs, types.custom());
            if registered {
                merge_remotes(&mut remotes, &types);
            }
        }
        Ok(share(customs, remotes))
    }
}

/// Adds what other servers serve in one project, of which nothing was there yet. Over several projects it can be listed
/// and watched, and no more.
fn merge_remotes(into: &mut Vec<Arc<Remote>>, types: &TypeSet) {
    let found = types.groups().iter().flat_map(|group| &group.versions).filter_map(|v| v.remote.as_ref());
    for remote in found {
        if into.iter().any(|known| known.group == remote.group && known.version == remote.version) {
            continue;
        }
        let lists = |resource: &&Value| {
            resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"))
        };
        let listed = |resource: &Value| {
            let can_watch =
                resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "watch"));
            let mut resource = resource.clone();
            resource["verbs"] = if can_watch { json!(["list", "watch"]) } else { json!(["list"]) };
            resource.as_object_mut().map(|map| map.remove("subresources"));
            resource
        };
        let resources = remote.resources.iter().filter(lists).map(listed).collect();
        into.push(Arc::new(Remote { resources, openapi: String::new(), ..Remote::clone(remote) }));
    }
}

/// Adds types that are not there yet. Of two planes' different types under one name the first is taken.
fn merge(into: &mut Vec<Arc<ResourceType>>, more: &[Arc<ResourceType>]) {
    for ty in more {
        let same = |known: &&Arc<ResourceType>| {
            known.group == ty.group && known.plural == ty.plural && known.version == ty.version
        };
        if !into.iter().any(|known| same(&known)) {
            into.push(ty.clone());
        }
    }
}
