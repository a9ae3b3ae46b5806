//! What each plane serves: the built-in kinds, and what its CRDs add.

use crate::Planes;
use async_trait::async_trait;
use freehold_apiserver_cache::{Cache, Entry, ListRequest};
use freehold_apiserver_catalog::{Remote, TypeSet, custom_types, share};
use freehold_machinery::{PlaneId, ResourceType, Result, Value};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
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
struct Known {
    changed: u64,
    remotes: Remotes,
    set: Arc<TypeSet>,
    /// By CRD: the revision that was compiled, and what came out.
    compiled: HashMap<Box<str>, Compiled>,
}

/// The types of planes that have CRDs and were asked for.
#[derive(Default)]
pub(crate) struct Types {
    known: Mutex<HashMap<PlaneId, Known>>,
    source: OnceLock<Arc<dyn RemoteSource>>,
}

impl Types {
    /// What a plane serves now.
    pub(crate) async fn of(&self, cache: &Cache, plane: &PlaneId) -> Result<Arc<TypeSet>> {
        let remotes = match self.source.get() {
            Some(source) => source.remotes(plane).await?,
            None => Remotes::default(),
        };
        let changed = cache.changed(plane, GROUP, RESOURCE).await?;
        if let Some(known) = self.known.lock().get(plane)
            && known.changed == changed
            && (Arc::ptr_eq(&known.remotes, &remotes) || known.remotes.is_empty() && remotes.is_empty())
        {
            return Ok(known.set.clone());
        }
        let request = ListRequest { plane, group: GROUP, resource: RESOURCE, namespace: None };
        let listed = cache.list(request).await?;
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
        table.insert(plane.clone(), Known { changed, remotes, set: set.clone(), compiled });
        set
    }
}

fn established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// The types of one CRD, shared with every other plane that has the same.
pub(crate) fn compile(crd: &Value) -> Vec<Arc<ResourceType>> {
    if !established(crd) {
        return Vec::new();
    }
    match custom_types(crd) {
        Ok(types) => types,
        Err(errors) => {
            let name = freehold_machinery::meta::name(crd);
            tracing::error!(name, ?errors, "a stored CRD can't be compiled; its types are not served");
            Vec::new()
        }
    }
}

impl Planes {
    /// What any plane serves, for watches over all of them. Types of planes are found through their CRDs.
    pub(crate) async fn all_types(&self) -> Result<Arc<TypeSet>> {
        let mut customs: Vec<Arc<ResourceType>> = Vec::new();
        for plane in [PlaneId::core(), PlaneId::infra()] {
            merge(&mut customs, self.types_of(&plane).await?.custom());
        }
        let mut crds = Vec::new();
        self.cache.list_planes(GROUP, RESOURCE, |_, entry| crds.push(entry)).await?;
        for crd in crds {
            merge(&mut customs, &compile(&crd.value()));
        }
        Ok(share(customs, Vec::new()))
    }

    /// What an organization's projects serve, all together: the core plane's own types first.
    pub(crate) async fn union(&self, organization: &str) -> Result<Arc<TypeSet>> {
        let mut customs = self.types_of(&PlaneId::core()).await?.custom().to_vec();
        let own = self.cache.planes_with_own(GROUP, RESOURCE).await?;
        for project in self.directory().of_organization(organization) {
            if own.binary_search(&project.plane).is_err() {
                continue;
            }
            merge(&mut customs, self.types_of(&project.plane).await?.custom());
        }
        Ok(share(customs, Vec::new()))
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
