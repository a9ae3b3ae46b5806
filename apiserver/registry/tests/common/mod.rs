//! Servers without their edge, on one embedded store.

use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_authz::Access;
use freehold_apiserver_cache::{Cache, CacheOptions};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_planes::{Authorities, Layers, Planes};
use freehold_apiserver_registry::{
    Annotations, ClientConfig, DeleteOptions, List, ListOptions, Operation, Patch, PolicySource, Question,
    Registry, Webhooks, WriteOptions, Written,
};
use freehold_apiserver_storage::{KeyRange, Store};
use freehold_apiserver_storage_embedded::Embedded;
use freehold_machinery::{PlaneId, Result, User, Value, meta, user::MASTERS};
use std::sync::Arc;
use tempfile::TempDir;

/// Resources of one place.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) namespace: Option<&'static str>,
}

/// Rights as the planes' own objects say them.
struct Policies(Arc<Planes>);

#[async_trait]
impl PolicySource for Policies {
    async fn access(&self, plane: &PlaneId) -> Result<Access> {
        self.0.access(plane).await
    }
}

/// Planes here have no webhooks, so there is no way to them.
struct NoWay;

#[async_trait]
impl Webhooks for NoWay {
    async fn ask(&self, _: &PlaneId, _: &ClientConfig, _: Question) -> Result<Bytes, String> {
        Err("no webhook can be reached".to_owned())
    }
}

/// Some servers on one store, and a plane that they all serve. Cheap to clone.
#[derive(Clone)]
pub(crate) struct World {
    servers: Arc<Vec<Registry>>,
    plane: PlaneId,
    _folder: Arc<TempDir>,
}

/// The code of a write or read that has to fail.
pub(crate) fn code<T>(outcome: Result<T>) -> u16 {
    outcome.err().map(|status| status.code).expect("it is refused")
}

fn object(written: &Written) -> Value {
    Value::clone(&written.object.value())
}

impl World {
    pub(crate) async fn new(servers: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Embedded::open(folder.path()).unwrap();
        let mut all = Vec::new();
        for _ in 0..servers {
            all.push(server(&store).await);
        }
        Self { servers: Arc::new(all), plane: "tried".parse().unwrap(), _folder: Arc::new(folder) }
    }

    pub(crate) fn options() -> WriteOptions {
        WriteOptions { field_manager: "tests".to_owned(), ..WriteOptions::default() }
    }

    fn operation(&self, kind: Kind, name: Option<&str>) -> Operation {
        let types = TypeSet::builtin();
        let user = User { name: "admin".into(), groups: vec![MASTERS.to_owned()], ..User::default() };
        Operation {
            plane: self.plane.clone(),
            ty: types.by_resource(kind.group, kind.resource).expect("a built-in kind").clone(),
            types,
            user: Arc::new(user),
            namespace: kind.namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource: None,
            seen: 0,
            narrowed: false,
            annotations: Annotations::default(),
        }
    }

    pub(crate) async fn create(&self, server: usize, kind: Kind, object: Value) -> Result<Value> {
        self.create_with(server, kind, object, &Self::options()).await
    }

    pub(crate) async fn create_with(
        &self,
        server: usize,
        kind: Kind,
        new: Value,
        options: &WriteOptions,
    ) -> Result<Value> {
        let written = self.servers[server].create(&self.operation(kind, None), &new.into(), options).await?;
        Ok(object(&written))
    }

    pub(crate) async fn update(&self, server: usize, kind: Kind, new: Value) -> Result<Value> {
        let op = self.operation(kind, Some(meta::name(&new)));
        Ok(object(&self.servers[server].update(&op, &new.into(), &Self::options()).await?))
    }

    pub(crate) async fn patch(&self, server: usize, kind: Kind, name: &str, patch: Patch) -> Result<Value> {
        let op = self.operation(kind, Some(name));
        Ok(object(&self.servers[server].patch(&op, &patch, &Self::options()).await?))
    }

    pub(crate) async fn delete(
        &self,
        server: usize,
        kind: Kind,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<()> {
        self.servers[server].delete(&self.operation(kind, Some(name)), options).await.map(drop)
    }

    pub(crate) async fn get(&self, server: usize, kind: Kind, name: &str) -> Result<Arc<Value>> {
        Ok(self.servers[server].get(&self.operation(kind, Some(name)), "").await?.value())
    }

    pub(crate) async fn list(&self, server: usize, kind: Kind, options: &ListOptions) -> Result<List> {
        self.servers[server].list(&self.operation(kind, None), options).await
    }
}

async fn server(store: &Arc<dyn Store>) -> Registry {
    let core = PlaneId::core();
    let clients = Arc::new(|plane: &PlaneId| format!("clients of {plane}\n"));
    let authorities = Authorities { project_objects: &[], serving: "ca", front_proxy: None, clients };
    let layers = Layers::install(store.clone(), core.clone(), &authorities, "2026-01-01T00:00:00Z");
    let layers = Arc::new(layers.await.unwrap());
    let (keys, options) = (KeyRange::all_planes(), CacheOptions::default());
    let cache = Cache::start(store.clone(), keys, layers.clone(), options).await.unwrap();
    let planes = Planes::new(store.clone(), cache.clone(), layers, core);
    Registry::new(store.clone(), cache, Arc::new(Policies(planes)), Arc::new(NoWay))
}
