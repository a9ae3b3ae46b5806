//! A server without its edge, over the embedded engine.
#![allow(dead_code, reason = "each test binary has its own copy of this module")]

use freehold_apiserver_cache::{Cache, CacheOptions, ListRequest, codec};
use freehold_apiserver_planes::{Authorities, Layers, Planes};
use freehold_apiserver_storage::{Change, Commit, Key, KeyRange, ObjectPath, Range, Store};
use freehold_apiserver_storage_embedded::Embedded;
use freehold_machinery::PlaneId;
use serde_json::json;
use std::sync::Arc;

/// A server without its edge.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) planes: Arc<Planes>,
    _folder: tempfile::TempDir,
}

pub(crate) fn path(name: &str) -> ObjectPath {
    let (group, resource) = (String::new(), "configmaps".to_owned());
    ObjectPath { group, resource, namespace: Some("default".into()), name: name.into() }
}

pub(crate) fn id<T: std::str::FromStr>(text: &str) -> T {
    text.parse().ok().unwrap()
}

impl World {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Embedded::open(folder.path()).unwrap();
        Self::over(store, folder).await
    }

    pub(crate) async fn over(store: Arc<dyn Store>, folder: tempfile::TempDir) -> Self {
        Self::with_authority(store, folder, "ca").await
    }

    async fn with_authority(store: Arc<dyn Store>, folder: tempfile::TempDir, serving: &str) -> Self {
        let core = PlaneId::core();
        let authorities = Authorities {
            project_objects: &[],
            serving,
            front_proxy: Some("proxies"),
            clients: Arc::new(|plane| format!("clients of {plane}\n")),
        };
        let layers =
            Layers::install(store.clone(), core.clone(), &authorities, "2026-01-01T00:00:00Z").await.unwrap();
        let layers = Arc::new(layers);
        let keys = KeyRange::all_planes();
        let options = CacheOptions::default();
        let cache = Cache::start(store.clone(), keys, layers.clone(), options).await.unwrap();
        let planes = Planes::new(store.clone(), cache.clone(), layers, core);
        Self { store, cache, planes, _folder: folder }
    }

    /// Another server over the same store, as after a restart.
    pub(crate) async fn restarted(self) -> Self {
        Self::over(self.store, self._folder).await
    }

    /// Upgrades the base to other content: another authority is published in each plane.
    pub(crate) async fn upgraded(self) -> Self {
        Self::with_authority(self.store, self._folder, "ca-2").await
    }

    pub(crate) async fn put(&self, plane: &PlaneId, name: &str, data: &str) -> u64 {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": data},
            "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")}});
        let change = Change::Put(Key::object(plane, &path(name)), codec::encode(&object));
        self.commit(change).await
    }

    /// Makes the project of a plane, and waits until it is known.
    pub(crate) async fn project(&self, plane: &PlaneId, organization: &str) {
        let name = format!("project-{plane}");
        let (group, resource) = ("resourcemanager.freehold.dev".to_owned(), "projects".to_owned());
        let path = ObjectPath { group, resource, namespace: None, name: name.clone() };
        let object = json!({"metadata": {"name": name, "uid": plane.as_str()},
            "spec": {"ownerRef": {"kind": "Organization", "name": organization}}});
        self.commit(Change::Put(Key::object(&PlaneId::core(), &path), codec::encode(&object))).await;
        self.cache.catch_up().await.unwrap();
    }

    pub(crate) async fn commit(&self, change: Change) -> u64 {
        let done = self.store.commit(Commit { expect: Vec::new(), changes: vec![change] }).await.unwrap();
        let freehold_apiserver_storage::Committed::Done(revision) = done else { panic!("refused") };
        revision
    }

    /// Names, contents and resource versions of a plane's ConfigMaps, those of the base left out.
    pub(crate) async fn list(&self, plane: &PlaneId) -> Vec<(String, String, u64)> {
        self.cache.catch_up().await.unwrap();
        let request = ListRequest { plane, group: "", resource: "configmaps", namespace: Some("default") };
        let listed = self.cache.list(request).await.unwrap();
        let own = listed.objects.iter().filter(|entry| !entry.place().contains("kube-root-ca"));
        own.map(|entry| {
            let data = entry.value()["data"]["k"].as_str().unwrap().to_owned();
            (entry.name().to_owned(), data, entry.modified)
        })
        .collect()
    }

    pub(crate) async fn contents(&self, plane: &PlaneId) -> Vec<String> {
        self.list(plane).await.into_iter().map(|(name, data, _)| format!("{name}={data}")).collect()
    }

    pub(crate) async fn keys(&self, keys: KeyRange) -> usize {
        self.store.range(Range { keys_only: true, ..Range::all(keys) }).await.unwrap().items.len()
    }
}
