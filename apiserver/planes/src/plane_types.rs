//! What each plane serves.

use crate::Planes;
use crate::types::{GROUP, RESOURCE, compile, merge, merge_remotes};
use freehold_api::apis;
use freehold_apiserver_catalog::{Remote, TypeSet, share};
use freehold_machinery::{PlaneId, ResourceType, Result, api_service};
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Weak},
};

impl Planes {
    /// What any plane serves, for watches over all of them. Types of planes are found through their CRDs.
    pub(crate) async fn all_types(&self) -> Result<Arc<TypeSet>> {
        let mut customs: Vec<Arc<ResourceType>> = Vec::new();
        for plane in [PlaneId::core(), PlaneId::infra()] {
            customs.extend_from_slice(self.types_of(&plane).await?.custom());
        }
        customs.extend(self.layers.project_crds().iter().flat_map(|crd| compile(&crd.value())));
        self.apis.ready().await;
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
        customs.extend(self.apis.all_types());
        // Of different types under one name the set takes the first.
        Ok(share(customs, Vec::new()))
    }

    /// What an organization's projects serve, all together: the core plane's own types first.
    pub(crate) async fn union(&self, organization: &str) -> Result<Arc<TypeSet>> {
        let mut customs = self.types_of(&PlaneId::core()).await?.custom().to_vec();
        for crd in self.layers.project_crds() {
            merge(&mut customs, &compile(&crd.value()));
        }
        let mut own = self.cache.planes_with_own(GROUP, RESOURCE).await?;
        own.extend(self.cache.planes_with_own(apis::GROUP, apis::BINDINGS).await?);
        own.sort_unstable();
        let registered = self.cache.planes_with_own(api_service::GROUP, api_service::RESOURCE).await?;
        let mut remotes: Vec<Arc<Remote>> = Vec::new();
        for project in self.directory().of_organization(organization) {
            if let Some(class) = self.apis.class_of(&project.plane) {
                merge(&mut customs, &self.apis.class_types(&class, &project.plane));
            }
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
