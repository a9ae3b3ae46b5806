//! APIs that projects publish and others consume: which exports there are, what they serve, and which planes consume them.
//!
//! The feed keeps the index, over all planes, so that a request on a consumer's plane never reads the provider's. The types
//! of an export are compiled once, for all its consumers. A binding counts with the server's proof in its status: whoever
//! writes a plane's keys past the API (an archive, a pair, a fork) binds nothing that nobody was allowed to bind there.

mod classes;
mod index;
mod proof;
mod references;
mod roles;

pub use classes::ClassBindings;
pub use index::{Binding, Claim, Export, identity, terms_digest};
pub use proof::ProofKey;
pub use references::Referrer;
pub(crate) use roles::BundledRules;

use crate::{Directory, changes::Changes};
use classes::Classes;
use freehold_api::apis::{BINDINGS, EXPORTS, GROUP, SCHEMAS};
use freehold_apiserver_cache::{Cache, CacheEvent, Entry, EventKind};
use freehold_machinery::{PlaneId, ResourceType, Result};
use index::{Index, Slot, Types};
use parking_lot::RwLock;
use references::References;
use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire},
        },
    },
    time::Duration,
};
use tokio::sync::watch;

/// The three kinds, as the index follows them.
const RESOURCES: [&str; 3] = [SCHEMAS, EXPORTS, BINDINGS];
/// How long a failed read of all objects waits for the next attempt.
const RETRY: Duration = Duration::from_millis(200);

/// Exports and bindings of all planes.
pub struct Apis {
    cache: Arc<Cache>,
    directory: Arc<Directory>,
    proofs: OnceLock<ProofKey>,
    index: RwLock<Index>,
    classes: Classes,
    references: References,
    /// Whether everything has been read.
    filled: watch::Sender<bool>,
    /// Counts changes of exports and schemas.
    generation: AtomicU64,
    /// Counts those and changes of bindings.
    changes: watch::Sender<u64>,
    /// Tells of planes whose roles an export changes.
    rbac_changes: Arc<Changes>,
}

impl Apis {
    /// Begins to follow all planes, where this server has them.
    pub(crate) fn start(
        cache: &Arc<Cache>,
        directory: &Arc<Directory>,
        rbac_changes: &Arc<Changes>,
        has_core: bool,
    ) -> Arc<Self> {
        let apis = Arc::new(Self {
            cache: cache.clone(),
            directory: directory.clone(),
            proofs: OnceLock::new(),
            index: RwLock::default(),
            classes: Classes::new(!has_core),
            references: References::default(),
            filled: watch::Sender::new(!has_core),
            generation: AtomicU64::new(1),
            changes: watch::Sender::new(1),
            rbac_changes: rbac_changes.clone(),
        });
        if has_core {
            for resource in RESOURCES {
                let (weak, on_switch) = (Arc::downgrade(&apis), Arc::downgrade(&apis));
                cache.observe_everywhere(GROUP, resource, move |event| observe(&weak, resource, event));
                cache.observe_switches(GROUP, resource, move |event| observe(&on_switch, resource, event));
            }
            let weak = Arc::downgrade(&apis);
            let of_class = move |event: Option<&CacheEvent>| classes::observe(&weak, event);
            cache.observe(PlaneId::core(), classes::GROUP, classes::RESOURCE, of_class);
            tokio::spawn(fill(Arc::downgrade(&apis)));
        }
        apis
    }

    /// Proves and checks bindings with a key from now on. Without one, nothing can be bound.
    pub fn prove_with(&self, key: ProofKey) {
        let _ = self.proofs.set(key);
    }

    /// The key that bindings are proved with.
    pub fn proofs(&self) -> Option<&ProofKey> {
        self.proofs.get()
    }

    /// Counts changes of exports and schemas.
    pub fn generation(&self) -> u64 {
        self.generation.load(Acquire)
    }

    /// Tells of changes of exports, schemas and bindings.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until everything has been read.
    pub async fn ready(&self) {
        if !*self.filled.borrow() {
            // The sender lives as long as this.
            let _ = self.filled.subscribe().wait_for(|filled| *filled).await;
        }
    }

    /// The export of a name in a provider's plane. One whose project is gone, or is served by a pair, is none.
    pub fn export(&self, plane: &PlaneId, name: &str) -> Option<Arc<Export>> {
        let info = self.directory.by_plane(plane)?;
        if info.dedicated || info.deleting {
            return None;
        }
        self.index.read().export(plane, name)
    }

    /// The export that a type is of, as long as its project is served here.
    pub fn export_of(&self, ty: &ResourceType) -> Option<Arc<Export>> {
        let (_, identity) = ty.storage.resource.rsplit_once(':').filter(|_| ty.since > 0)?;
        let export = self.index.read().export_of(identity)?;
        self.export(&export.plane, &export.name)
    }

    /// The types that an export serves now, shared by all of its consumers.
    pub fn types_of(&self, export: &Export) -> Arc<[Arc<ResourceType>]> {
        self.compiled(export).served
    }

    fn compiled(&self, export: &Export) -> Types {
        export.types(|name| self.index.read().schema(&export.plane, name), self.generation())
    }

    /// The schemas that an export names and that there are not.
    pub fn missing(&self, export: &Export) -> Vec<Box<str>> {
        let index = self.index.read();
        export.schemas.iter().filter(|name| index.schema(&export.plane, name).is_none()).cloned().collect()
    }

    /// The spec of a schema of a plane.
    pub fn has_schema(&self, plane: &PlaneId, name: &str) -> bool {
        self.index.read().schema(plane, name).is_some()
    }

    /// An export of a plane that names a schema.
    pub fn export_with(&self, plane: &PlaneId, schema: &str) -> Option<Box<str>> {
        self.index.read().export_with(plane, schema)
    }

    /// The binding of a plane that counts for an export, where it has one and its project is served here. Of several, that
    /// of the class among them, each grants what it grants.
    pub fn binding(&self, consumer: &PlaneId, export: &Export) -> Option<Arc<Binding>> {
        let info = self.directory.by_plane(consumer).filter(|info| !info.dedicated)?;
        let bindings = self.index.read().bindings_of(consumer);
        let counts = |binding: &Arc<Binding>| binding.is_for(export) && self.is_proved(consumer, binding);
        let class = self.classes.of(&info.class);
        let of_class = class.iter().flat_map(|class| class.bindings.iter().filter(|one| one.is_for(export)));
        let all = bindings.into_iter().filter(counts).chain(of_class.cloned());
        all.reduce(|one, other| {
            let mut both = Binding::clone(&one);
            both.accepted.extend(other.accepted.iter().cloned());
            Arc::new(both)
        })
    }

    /// The revision at which a consumer of an export went last, or took back what it had granted: what was seen before may
    /// not be shown any more.
    pub fn restricted(&self, export: &Export) -> u64 {
        self.index.read().restricted(export)
    }

    /// The planes that consume an export.
    pub fn consumers(&self, export: &Export) -> Vec<PlaneId> {
        let mut candidates = self.index.read().consumers(&export.plane, &export.name);
        let by_class = self.class_consumers(export);
        if !by_class.is_empty() {
            candidates.extend(by_class);
            candidates.sort_unstable();
            candidates.dedup();
        }
        candidates.into_iter().filter(|plane| self.binding(plane, export).is_some()).collect()
    }

    /// Whether somebody who was allowed to made a binding in this plane.
    pub fn is_proved(&self, consumer: &PlaneId, binding: &Binding) -> bool {
        let about = (consumer, &*binding.provider, &*binding.export);
        self.proofs.get().is_some_and(|key| key.verify(about, &binding.proof))
    }

    /// The types that bindings bring to a plane. Of two with the same group and resource the older binding wins.
    pub(crate) fn bound(&self, plane: &PlaneId, bindings: &[Arc<Entry>]) -> Vec<Arc<ResourceType>> {
        let mut own: Vec<Binding> = bindings.iter().filter_map(|entry| Binding::read(entry)).collect();
        own.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        self.types_of_bindings(own.iter().filter(|binding| self.is_proved(plane, binding)))
    }

    /// The types of what is bound. Of two with the same group and resource the first wins.
    fn types_of_bindings<'a>(&self, bindings: impl Iterator<Item = &'a Binding>) -> Vec<Arc<ResourceType>> {
        let mut types: Vec<Arc<ResourceType>> = Vec::new();
        for binding in bindings {
            let Ok(provider) = binding.provider.parse::<PlaneId>() else { continue };
            let Some(export) = self.export(&provider, &binding.export) else { continue };
            let others = types.clone();
            let is_taken = |ty: &&Arc<ResourceType>| {
                others.iter().any(|other| other.group == ty.group && other.plural == ty.plural)
            };
            types.extend(self.types_of(&export).iter().filter(|ty| !is_taken(ty)).cloned());
        }
        types
    }

    /// The types of all exports for readers of all planes: each under the resource that its objects are stored as, and
    /// the oldest export's of each name under that name too.
    pub(crate) fn all_types(&self) -> Vec<Arc<ResourceType>> {
        let mut exports = self.index.read().exports();
        exports.sort_by(|a, b| (a.created, &a.plane, &a.name).cmp(&(b.created, &b.plane, &b.name)));
        let compiled: Vec<Types> = exports.iter().map(|export| self.compiled(export)).collect();
        let named = compiled.iter().flat_map(|types| types.served.iter());
        named.chain(compiled.iter().flat_map(|types| types.everywhere.iter())).cloned().collect()
    }

    fn changed(&self, resource: &str) {
        if resource != BINDINGS {
            self.generation.fetch_add(1, AcqRel);
        }
        self.changes.send_modify(|count| *count += 1);
    }

    fn put(&self, plane: &PlaneId, resource: &str, entry: &Entry) {
        let slot = Slot { revision: entry.modified, present: true };
        self.index.write().put(plane, resource, entry, slot);
    }

    async fn read_all(&self) -> Result<()> {
        self.read_classes().await?;
        for resource in RESOURCES {
            self.cache.list_planes(GROUP, resource, |plane, entry| self.put(plane, resource, &entry)).await?;
        }
        self.index.write().settle();
        self.changed(EXPORTS);
        self.filled.send_replace(true);
        Ok(())
    }
}

/// Takes in what the feed tells; without an event, everything has to be read again.
fn observe(apis: &Weak<Apis>, resource: &str, event: Option<&CacheEvent>) {
    let Some(apis) = apis.upgrade() else { return };
    let Some(event) = event else {
        return read_again(&apis);
    };
    let Some(change) = event.change() else { return };
    let present = change.kind != EventKind::Deleted;
    let slot = Slot { revision: event.revision, present };
    apis.index.write().put(&event.plane, resource, &change.entry, slot);
    apis.changed(resource);
    apis.tell_of_roles(&event.plane, resource, change.entry.name());
}

/// Forgets everything, and reads it anew. Each kind tells that it has to be: one read is enough.
fn read_again(apis: &Arc<Apis>) {
    if apis.filled.send_replace(false) {
        apis.classes.filled.send_replace(false);
        *apis.index.write() = Index::default();
        tokio::spawn(fill(Arc::downgrade(apis)));
    }
}

/// Reads everything once, and again until that succeeds.
async fn fill(apis: Weak<Apis>) {
    loop {
        let Some(strong) = apis.upgrade() else { return };
        match strong.read_all().await {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "failed to read exports and bindings; will retry"),
        }
        drop(strong);
        tokio::time::sleep(RETRY).await;
    }
}
