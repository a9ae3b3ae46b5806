//! Which layers lie below which plane, and the layers themselves, each in memory once while a plane in memory is above it.
//!
//! A plane stands on its snapshot (if its record names one), the layer of its project's class (if that has one) and the
//! base. Records are followed through the feed of the cache, so that each server switches a plane at the same revision.

use crate::{
    Directory,
    base::{Authorities, Base, InstallError},
    stored,
};
use async_trait::async_trait;
use freehold_apiserver_cache::{Entry, Layer, LayerKind, LayerSource, Stack, StackInfo, Switch, log_skipped};
use freehold_apiserver_storage::{Event, Key, KeyRange, KeyValue, LayerId, Placement, Range, StoreError};
use freehold_machinery::{PlaneId, PlaneMap};
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, OnceLock, Weak},
};
use tokio::sync::OnceCell;

/// What the class of its one plane is called in a pair.
const OWN: &str = "";
/// Keys that one read of a layer asks for.
const CHUNK: usize = 500;

/// What a plane stands on: the value of [`Key::stack`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StackRecord {
    /// Its snapshot.
    pub(crate) layer: String,
    /// The operation that put it there; doing that again changes nothing.
    pub(crate) operation: String,
    /// Those before it, as many as are remembered: they are not done again either.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) before: Vec<String>,
}

/// Operations that a record remembers.
const REMEMBERED: usize = 32;

impl StackRecord {
    /// Whether an operation is done.
    pub(crate) fn has_done(&self, operation: &str) -> bool {
        self.operation == operation || self.before.iter().any(|before| before == operation)
    }

    /// What a plane stands on after one more operation.
    pub(crate) fn after(before: Option<Self>, layer: &LayerId, operation: &str) -> Self {
        let done = before.map(|record| [record.before, vec![record.operation]].concat()).unwrap_or_default();
        let before = done[done.len().saturating_sub(REMEMBERED)..].to_vec();
        Self { layer: layer.to_string(), operation: operation.to_owned(), before }
    }
}

/// Which layer a class has: the value of [`Key::class`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClassRecord {
    /// Its layer.
    pub(crate) layer: String,
    /// The one before, which servers that are behind may still read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<String>,
    /// Whether what class and base bring can't be deleted.
    #[serde(default)]
    pub(crate) keeps: bool,
}

/// What a record says a plane stands on, since a revision.
#[derive(Clone)]
struct Named {
    /// `None` for a record that is not believed: the plane is served without its layer.
    layer: Option<LayerId>,
    revision: u64,
    keeps: bool,
}

type Loading = Arc<OnceCell<Arc<Layer>>>;

/// The layers of a store.
pub struct Layers {
    stores: Placement,
    /// The one plane of a dedicated pair; core where all planes are served.
    root: PlaneId,
    base: Base,
    ca_pem: String,
    directory: OnceLock<Weak<Directory>>,
    /// Planes that have a record.
    planes: RwLock<PlaneMap<Named>>,
    classes: RwLock<HashMap<String, Named>>,
    loaded: Mutex<HashMap<LayerId, Weak<Layer>>>,
    loading: Mutex<HashMap<LayerId, Loading>>,
}

/// The record of a plane that stands on a snapshot.
pub(crate) fn read_stack(record: &KeyValue) -> Option<StackRecord> {
    serde_json::from_slice(&record.value).ok()
}

/// What a class' record names; only core writes those.
fn class_named(record: &[u8], revision: u64) -> Option<Named> {
    let record: ClassRecord = serde_json::from_slice(record).ok()?;
    Some(Named { layer: Some(record.layer.parse().ok()?), revision, keeps: record.keeps })
}

impl Layers {
    /// The layers for a server with these authorities, as `store` has them installed. A `writer` installs the base
    /// where the store has none or another. `root` is core, or the one plane of a dedicated pair.
    ///
    /// # Errors
    /// [`InstallError`] where the store does not answer, an object of the base is broken, or nothing is installed
    /// and this server is no writer.
    pub async fn install(
        stores: impl Into<Placement>,
        root: PlaneId,
        authorities: &Authorities<'_>,
        now: &str,
    ) -> Result<Self, InstallError> {
        let stores = stores.into();
        let base = Base::install(&**stores.system(), authorities, root.is_core(), now).await?;
        let layers = Self {
            stores,
            root,
            base,
            ca_pem: authorities.serving.to_owned(),
            directory: OnceLock::new(),
            planes: RwLock::default(),
            classes: RwLock::default(),
            loaded: Mutex::default(),
            loading: Mutex::default(),
        };
        layers.refresh().await?;
        Ok(layers)
    }

    /// What planes publish as `kube-root-ca.crt`.
    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The definitions that every project's plane has.
    pub(crate) fn project_crds(&self) -> Vec<Arc<Entry>> {
        let base = self.base.project();
        base.stack.objects(&PlaneId::core(), "apiextensions.k8s.io", "customresourcedefinitions")
    }

    /// From now on planes are looked up there.
    pub(crate) fn attach(&self, directory: &Arc<Directory>) {
        drop(self.directory.set(Arc::downgrade(directory)));
    }

    /// The layer of a plane's class.
    fn class_of(&self, plane: &PlaneId) -> Option<Named> {
        let classes = self.classes.read();
        if classes.is_empty() {
            return None;
        }
        if !self.root.is_core() {
            return classes.get(OWN).cloned();
        }
        let directory = self.directory.get()?.upgrade()?;
        classes.get(&*directory.by_plane(plane)?.class).cloned()
    }

    /// A layer in memory.
    fn in_memory(&self, layer: &LayerId) -> Option<Arc<Layer>> {
        self.loaded.lock().get(layer)?.upgrade()
    }

    /// A layer, loaded. [`StoreError::Corrupt`] where there is none, or only a part of one.
    pub(crate) async fn layer(&self, id: &LayerId) -> Result<Arc<Layer>, StoreError> {
        self.layer_at(id, None).await
    }

    /// Loads a layer that was sealed as of a revision and may be gone since.
    async fn layer_at(&self, id: &LayerId, at: Option<u64>) -> Result<Arc<Layer>, StoreError> {
        if let Some(found) = self.in_memory(id) {
            return Ok(found);
        }
        let cell = self.loading.lock().entry(id.clone()).or_default().clone();
        let read = async || match (self.read(id, None).await, at) {
            (Err(StoreError::Corrupt(_)), Some(at)) => self.read(id, Some(at)).await,
            (read, _) => read,
        };
        let loaded = cell.get_or_try_init(read).await.cloned();
        let mut known = self.loaded.lock();
        self.loading.lock().remove(id);
        known.retain(|_, layer| layer.strong_count() > 0);
        let layer = loaded?;
        known.insert(id.clone(), Arc::downgrade(&layer));
        Ok(layer)
    }

    async fn read(&self, id: &LayerId, at: Option<u64>) -> Result<Arc<Layer>, StoreError> {
        let (is_sealed, revision) = stored::is_sealed_at(&**self.stores.of_layer(id), id, at).await?;
        if !is_sealed {
            return Err(StoreError::Corrupt(format!("layer {id} is not there")));
        }
        let mut layer = Layer::default();
        let mut keys = KeyRange::layer_objects(id);
        loop {
            // All of it as of one revision: somebody may begin to take it away.
            let range = Range { at: Some(revision), limit: CHUNK, ..Range::all(keys.clone()) };
            let page = self.stores.of_layer(id).range(range).await?;
            for item in &page.items {
                if let Some(path) = item.key.layer_path() {
                    layer.add(&path, item);
                }
            }
            match page.rest(&keys) {
                Some(rest) => keys = rest,
                None => return Ok(Arc::new(layer)),
            }
        }
    }

    /// What the record in a plane's own range names. Whoever writes the plane's keys, a dedicated pair among them, can write
    /// any record there, so a layer counts only where it lists the plane, which core alone writes. A pair is answered by core,
    /// which looks at the list itself.
    async fn snapshot_named(&self, plane: &PlaneId, record: &KeyValue) -> Result<Named, StoreError> {
        let mut named = Named { layer: None, revision: record.modified, keeps: false };
        let wanted = read_stack(record).and_then(|record| record.layer.parse::<LayerId>().ok());
        let listed = match &wanted {
            Some(layer) if self.root.is_core() => {
                stored::lists(&**self.stores.of(plane), layer, plane, record.modified).await?
            }
            wanted => wanted.is_some(),
        };
        if listed {
            named.layer = wanted;
        } else {
            log_skipped(&record.key, &"no layer lists the plane for this record; it is served without");
        }
        Ok(named)
    }

    /// The stack of a plane of these layers; `None` where one of them is not in `find`.
    fn assemble(
        &self,
        plane: &PlaneId,
        snapshot: Option<&Named>,
        class: Option<&Named>,
        find: impl Fn(&LayerId) -> Option<Arc<Layer>>,
    ) -> Option<Arc<Stack>> {
        let base = self.base.of(plane);
        if snapshot.is_none() && class.is_none() {
            return Some(base.stack.clone());
        }
        let mut layers = Vec::with_capacity(3);
        let mut hasher = DefaultHasher::new();
        base.stack.content().hash(&mut hasher);
        let mut info = StackInfo { revision: base.stack.revision(), ..StackInfo::default() };
        for (kind, named) in [(LayerKind::Snapshot, snapshot), (LayerKind::Class, class)] {
            let Some(named) = named else { continue };
            if let Some(layer) = &named.layer {
                layers.push((kind, find(layer)?));
            }
            info.revision = info.revision.max(named.revision);
            info.keeps |= named.keeps;
            (kind == LayerKind::Class, &named.layer, named.keeps).hash(&mut hasher);
        }
        layers.push((LayerKind::Base, base.layer.clone()));
        info.record = snapshot.map_or(0, |named| named.revision);
        info.content = hasher.finish();
        Some(Arc::new(Stack::new(layers, info)))
    }

    async fn load(
        &self,
        plane: &PlaneId,
        snapshot: Option<Named>,
        class: Option<Named>,
        at: Option<u64>,
    ) -> Result<Arc<Stack>, StoreError> {
        let mut found = HashMap::new();
        for named in [&snapshot, &class].into_iter().flatten() {
            // When it was named it was whole.
            let at = at.map(|at| at.max(named.revision));
            if let Some(layer) = &named.layer {
                found.insert(layer.clone(), self.layer_at(layer, at).await?);
            }
        }
        let stack =
            self.assemble(plane, snapshot.as_ref(), class.as_ref(), |layer| found.get(layer).cloned());
        Ok(stack.unwrap_or_else(|| self.base.of(plane).stack.clone()))
    }
}

#[async_trait]
impl LayerSource for Layers {
    async fn stack(&self, plane: &PlaneId, record: Option<&KeyValue>) -> Result<Arc<Stack>, StoreError> {
        let snapshot = match record {
            Some(record) => Some(self.snapshot_named(plane, record).await?),
            None => None,
        };
        self.load(plane, snapshot, self.class_of(plane), None).await
    }

    fn known(&self, plane: &PlaneId) -> Option<Arc<Stack>> {
        let snapshot = self.planes.read().get(plane).cloned();
        let class = self.class_of(plane);
        self.assemble(plane, snapshot.as_ref(), class.as_ref(), |layer| self.in_memory(layer))
    }

    async fn following(&self, plane: &PlaneId, at: u64) -> Result<Arc<Stack>, StoreError> {
        let snapshot = self.planes.read().get(plane).cloned();
        match self.load(plane, snapshot, self.class_of(plane), Some(at)).await {
            // One plane whose layer is gone is no reason not to follow the others.
            Err(StoreError::Corrupt(why)) => {
                tracing::error!(%plane, why, "failed to read a plane's layers");
                Ok(self.base.of(plane).stack.clone())
            }
            other => other,
        }
    }

    async fn follow(&self, event: &Event) -> Result<Option<Switch>, StoreError> {
        let own = !self.root.is_core() && event.key == Key::plane_class(&self.root);
        if let Some(class) = event.key.class_name().or_else(|| own.then_some(OWN)) {
            let named = event.value.as_ref().and_then(|value| class_named(value, event.revision));
            let mut classes = self.classes.write();
            match named {
                Some(named) => classes.insert(class.to_owned(), named),
                None => classes.remove(class),
            };
            return Ok(Some(Switch::Class(class.to_owned())));
        }
        let Some((plane, _)) = event.key.split_plane() else { return Ok(None) };
        if event.key != Key::stack(&plane) {
            return Ok(None);
        }
        let (key, created, modified) = (event.key.clone(), event.created, event.revision);
        let record = event.value.clone().map(|value| KeyValue { key, value, created, modified });
        let named = match &record {
            Some(record) => Some(self.snapshot_named(&plane, record).await?),
            None => None,
        };
        let mut planes = self.planes.write();
        match named {
            Some(named) => planes.insert(plane.clone(), named),
            None => planes.remove(&plane),
        };
        Ok(Some(Switch::Plane(plane)))
    }

    fn above_snapshots(&self) -> Vec<PlaneId> {
        let planes = self.planes.read();
        planes.iter().filter(|(_, named)| named.layer.is_some()).map(|(plane, _)| plane.clone()).collect()
    }

    fn is_of_class(&self, plane: &PlaneId, class: &str) -> bool {
        if !self.root.is_core() {
            return *plane == self.root;
        }
        let directory = self.directory.get().and_then(Weak::upgrade);
        directory.and_then(|directory| directory.by_plane(plane)).is_some_and(|info| &*info.class == class)
    }

    async fn refresh(&self) -> Result<(), StoreError> {
        let mut planes = PlaneMap::default();
        let mut classes = HashMap::new();
        let stacks = match self.root.is_core() {
            true => self.stores.system().range(Range::all(KeyRange::system("stacks"))).await?.items,
            false => Vec::new(),
        };
        let listed = stacks.iter().filter_map(|item| {
            let text = std::str::from_utf8(item.key.as_bytes()).ok()?;
            text.strip_prefix("system/stacks/")?.parse::<PlaneId>().ok()
        });
        let own = (!self.root.is_core()).then(|| self.root.clone());
        for plane in listed.chain(own) {
            if let Some(record) = self.stores.of(&plane).get(&Key::stack(&plane)).await? {
                let named = self.snapshot_named(&plane, &record).await?;
                planes.extend([(plane, named)]);
            }
        }
        if !self.root.is_core()
            && let Some(found) = self.stores.of(&self.root).get(&Key::plane_class(&self.root)).await?
        {
            let named = class_named(&found.value, found.modified);
            classes.extend(named.map(|named| (OWN.to_owned(), named)));
        }
        if self.root.is_core() {
            for item in self.stores.system().range(Range::all(KeyRange::classes())).await?.items {
                let found = class_named(&item.value, item.modified);
                classes.extend(item.key.class_name().map(str::to_owned).zip(found));
            }
        }
        *self.planes.write() = planes;
        *self.classes.write() = classes;
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.loaded.lock().values().filter_map(Weak::upgrade).map(|layer| layer.bytes()).sum()
    }
}
