//! What templates watch in one plane: its namespaces, and objects of each kind that an instance keeps. A plane without
//! instances and groups has none of it.

use crate::discovery::{Discovery, ServedType};
use freehold_client::{Client, Resource};
use freehold_machinery::document::Document;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Change, Error, Informer, Interest, Key, Planes, Queue, Scope, Store};
use freehold_tenancy_api::template::{ADOPTED_ANNOTATION, INSTANCE_LABEL};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");

/// A namespace, as far as templates are concerned.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NamespaceView {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) metadata: Value,
    pub(super) terminating: bool,
}

/// An object that an instance keeps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Live {
    pub(super) resource_version: String,
    pub(super) owner: String,
    /// Whether it was there before the instance.
    pub(super) adopted: bool,
    content: Document,
}

impl Live {
    fn of(object: Value) -> Option<Self> {
        Some(Self {
            resource_version: meta::resource_version(&object).to_owned(),
            owner: meta::label(&object, INSTANCE_LABEL)?.to_owned(),
            adopted: meta::annotation(&object, ADOPTED_ANNOTATION).is_some(),
            content: Document::new(&object),
        })
    }

    pub(super) fn read(&self) -> Value {
        self.content.read()
    }
}

/// A kind with its objects.
#[derive(Clone)]
pub(super) struct Watched {
    pub(super) served: ServedType,
    pub(super) objects: Store<Live>,
}

/// The watches of one plane.
pub(super) struct World {
    pub(super) plane: PlaneId,
    planes: Planes,
    client: Client,
    scope: Scope,
    token: CancellationToken,
    instance_queue: Arc<Queue<Key>>,
    pub(super) namespaces: Store<NamespaceView>,
    kinds: Mutex<HashMap<(String, String), Watched>>,
    discovery: Discovery,
    version: tokio::sync::OnceCell<String>,
}

/// The worlds by plane.
pub(super) struct Worlds {
    scope: Scope,
    instance_queue: Arc<Queue<Key>>,
    group_queue: Arc<Queue<Key>>,
    worlds: Mutex<HashMap<PlaneId, Arc<World>>>,
}

impl NamespaceView {
    fn of(object: Value) -> Option<Self> {
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let metadata = serde_json::json!({
            "labels": object["metadata"]["labels"], "annotations": object["metadata"]["annotations"],
        });
        Some(Self {
            labels: labels
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            metadata,
            terminating: meta::is_deleting(&object),
        })
    }
}

impl Worlds {
    pub(super) fn new(
        scope: &Scope,
        instance_queue: &Arc<Queue<Key>>,
        group_queue: &Arc<Queue<Key>>,
    ) -> Self {
        Self {
            scope: scope.clone(),
            instance_queue: instance_queue.clone(),
            group_queue: group_queue.clone(),
            worlds: Mutex::default(),
        }
    }

    /// The world of a plane, begun where it is new. `groups` gives the groups to queue when a namespace changes, and
    /// `instances` the instances in it.
    pub(super) fn get_or_begin(
        &self,
        plane: &PlaneId,
        groups: impl Fn(&Change<NamespaceView>) -> Vec<Key> + Send + Sync + 'static,
        instances: impl Fn(&str) -> Vec<Key> + Send + Sync + 'static,
    ) -> Arc<World> {
        let mut worlds = self.worlds.lock();
        if let Some(world) = worlds.get(plane) {
            return world.clone();
        }
        let token = self.scope.token.child_token();
        let planes = self.scope.planes.within(plane);
        let mut informer = Informer::new(&planes, Interest::projected(NAMESPACES, NamespaceView::of));
        let (instance_queue, group_queue) = (self.instance_queue.clone(), self.group_queue.clone());
        informer.on_change(move |change: &Change<NamespaceView>| {
            if change.initial || change.new == change.old {
                return;
            }
            groups(change).into_iter().for_each(|key| group_queue.add(key));
            instances(&change.key.name).into_iter().for_each(|key| instance_queue.add(key));
        });
        let namespaces = informer.store();
        self.scope.tasks.spawn(informer.run(token.clone()));
        let world = Arc::new(World {
            plane: plane.clone(),
            client: planes.client(plane),
            planes,
            scope: self.scope.clone(),
            token,
            instance_queue: self.instance_queue.clone(),
            namespaces,
            kinds: Mutex::default(),
            discovery: Discovery::default(),
            version: tokio::sync::OnceCell::new(),
        });
        worlds.insert(plane.clone(), world.clone());
        world
    }

    /// Ends the watches of a plane.
    pub(super) fn end(&self, plane: &PlaneId) {
        if let Some(world) = self.worlds.lock().remove(plane) {
            world.token.cancel();
        }
    }
}

impl World {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits until namespaces are known.
    pub(super) async fn synced(&self) -> bool {
        self.namespaces.synced(&self.token).await
    }

    /// The version of the API, such as `v1.36.0`; empty where it is not told.
    pub(super) async fn version(&self) -> String {
        let read = async {
            let version = self.client.get_path("/version").await.ok()?;
            version["gitVersion"].as_str().map(str::to_owned)
        };
        self.version.get_or_try_init(|| async { read.await.ok_or(()) }).await.cloned().unwrap_or_default()
    }

    /// A kind with its objects, watched from now on; `None` where it is not served.
    pub(super) async fn kind(&self, api_version: &str, kind: &str) -> Result<Option<Watched>, Error> {
        let id = (api_version.to_owned(), kind.to_owned());
        let known = self.kinds.lock().get(&id).cloned();
        let watched = match known {
            Some(watched) => watched,
            None => {
                let Some(served) = self.discovery.of_kind(&self.client, api_version, kind).await? else {
                    return Ok(None);
                };
                self.kinds.lock().entry(id).or_insert_with(|| self.watch(served)).clone()
            }
        };
        watched.objects.synced(&self.token).await;
        Ok(Some(watched))
    }

    fn watch(&self, served: ServedType) -> Watched {
        let interest = Interest::projected(served.resource.clone(), Live::of).labels(INSTANCE_LABEL);
        let mut informer = Informer::new(&self.planes, interest);
        let (queue, plane) = (self.instance_queue.clone(), self.plane.clone());
        informer.on_change(move |change: &Change<Live>| {
            let (Some(live), false) = (change.new.as_deref().or(change.old.as_deref()), change.initial)
            else {
                return;
            };
            let (namespace, instance) = match change.key.ns() {
                Some(namespace) => (namespace, live.owner.as_str()),
                None => live.owner.split_once('.').unwrap_or_default(),
            };
            queue.add(Key::new(plane.clone(), namespace, instance));
        });
        let objects = informer.store();
        self.scope.tasks.spawn(informer.run(self.token.clone()));
        Watched { served, objects }
    }
}
