//! APIs that projects publish and others consume: which exports there are, what they serve, and which planes consume them.
//!
//! The feed keeps the index, over all planes, so that a request on a consumer's plane never reads the provider's. The types
//! of an export are compiled once, for all its consumers. A binding counts with the server's proof in its status: whoever
//! writes a plane's keys past the API (an archive, a pair, a fork) binds nothing that nobody was allowed to bind there.

mod accesses;
mod classes;
mod compiled;
mod index;
mod proof;
mod references;
mod roles;
mod rollout;
mod system;

pub use accesses::Access;
pub use classes::ClassBindings;
pub use index::{Binding, Claim, Export, identity, terms_digest};
pub use proof::ProofKey;
pub use references::Referrer;
pub(crate) use roles::BundledRules;
pub use rollout::{Consumer, Rollout, selects};
pub use system::{SYSTEM, SystemExport};

use crate::{Directory, changes::Changes};
use accesses::Accesses;
use classes::Classes;
use compiled::{ReferenceFields, Schema, Types};
use freehold_api::apis::{BINDINGS, EXPORTS, GROUP, SCHEMAS};
use freehold_api::rollouts::ROLLOUTS;
use freehold_apiserver_cache::{Cache, CacheEvent, Entry, EventKind};
use freehold_machinery::{PlaneId, ResourceType, Result};
use index::{Index, Slot};
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

/// The kinds, as the index follows them: each after what it names.
const RESOURCES: [&str; 4] = [SCHEMAS, EXPORTS, ROLLOUTS, BINDINGS];
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
    accesses: Accesses,
    system: system::System,
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
            accesses: Accesses::default(),
            system: system::System::default(),
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

    /// Lets projects bind what the platform exports from now on.
    pub fn offer(&self, exports: &[SystemExport]) {
        self.system.offer(exports);
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

    /// The export of a name in a provider's plane; in the core plane that of the platform itself. One whose project is gone, or is served by a pair, is none.
    pub fn export(&self, plane: &PlaneId, name: &str) -> Option<Arc<Export>> {
        if plane.is_core() {
            return self.system.export(name);
        }
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

    /// The types that an export serves now where no rollout says otherwise, shared by all of its consumers.
    pub fn types_of(&self, export: &Export) -> Arc<[Arc<ResourceType>]> {
        self.compiled(export).served
    }

    /// The types that an export serves to one consumer.
    pub fn types_for(&self, export: &Export, consumer: Consumer<'_>) -> Arc<[Arc<ResourceType>]> {
        match self.rollout(export).filter(|rollout| rollout.includes(consumer)) {
            Some(rollout) => self.compiled_next(export, &rollout).served,
            None => self.compiled(export).served,
        }
    }

    /// The types that an export serves to any consumer: its current ones, and versions and kinds that a rollout brings.
    pub fn types_of_any(&self, export: &Export) -> Vec<Arc<ResourceType>> {
        let mut types = self.compiled(export).served.to_vec();
        if let Some(rollout) = self.rollout(export).filter(|rollout| rollout.stage > 0) {
            let next = self.compiled_next(export, &rollout);
            let current = types.clone();
            let is_current = |ty: &&Arc<ResourceType>| {
                current
                    .iter()
                    .any(|own| own.group == ty.group && own.version == ty.version && own.plural == ty.plural)
            };
            types.extend(next.served.iter().filter(|ty| !is_current(ty)).cloned());
        }
        types
    }

    /// The rollout of an export that counts, where one is under way.
    pub fn rollout(&self, export: &Export) -> Option<Arc<Rollout>> {
        self.index.read().rollout(&export.plane, &export.name)
    }

    fn compiled(&self, export: &Export) -> Types {
        if let Some(types) = &export.fixed {
            return types.clone();
        }
        let schemas = || self.found(&export.plane, &export.schemas);
        export.types.get(self.generation(), schemas, export.exporter(export.since))
    }

    /// The next types of an export. A rollout whose schemas are not all there changes nothing.
    fn compiled_next(&self, export: &Export, rollout: &Rollout) -> Types {
        let found = self.found(&export.plane, &rollout.schemas);
        if found.len() < rollout.schemas.len() {
            return self.compiled(export);
        }
        let since = rollout.since.max(export.since);
        rollout.types.get(self.generation(), || found, export.exporter(since))
    }

    /// The types of an export that a type is one of: the next ones for a consumer in a stage, otherwise the current ones.
    fn types_with(&self, export: &Export, ty: &ResourceType) -> Types {
        let current = self.compiled(export);
        let is_it = |own: &Arc<ResourceType>| own.api_version() == ty.api_version() && own.hash == ty.hash;
        let rollout = self.rollout(export).filter(|rollout| rollout.stage > 0);
        let Some(rollout) = rollout.filter(|_| !current.served.iter().any(is_it)) else { return current };
        let next = self.compiled_next(export, &rollout);
        if next.served.iter().any(is_it) { next } else { current }
    }

    /// The fields of an export's types that name objects, those of versions and kinds that a rollout brings among them.
    fn reference_fields(&self, export: &Export) -> Arc<ReferenceFields> {
        let current = self.compiled(export).references;
        let Some(rollout) = self.rollout(export).filter(|rollout| rollout.stage > 0) else { return current };
        let mut all = ReferenceFields::clone(&self.compiled_next(export, &rollout).references);
        if all.is_empty() {
            return current;
        }
        all.extend(current.iter().map(|(key, fields)| (key.clone(), fields.clone())));
        Arc::new(all)
    }

    fn found(&self, plane: &PlaneId, schemas: &[Box<str>]) -> Vec<Arc<Schema>> {
        let index = self.index.read();
        schemas.iter().filter_map(|name| index.schema(plane, name)).collect()
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

    /// A rollout of a plane that is under way and names a schema.
    pub fn rollout_with(&self, plane: &PlaneId, schema: &str) -> Option<Box<str>> {
        self.index.read().rollout_with(plane, schema)
    }

    /// Looks at a consumer of an export as stages do; `None` where a plane is none.
    pub fn with_consumer<T>(
        &self,
        plane: &PlaneId,
        export: &Export,
        look: impl FnOnce(Consumer<'_>) -> T,
    ) -> Option<T> {
        let info = self.directory.by_plane(plane)?;
        let binding = self.binding(plane, export)?;
        Some(look(Consumer { plane, organization: &info.organization, labels: &binding.labels }))
    }

    /// The binding of a plane that counts for an export, where it has one and its project is served here. Of several, that
    /// of the class among them, each grants what it grants; the labels are those of the plane's own, the oldest first.
    pub fn binding(&self, consumer: &PlaneId, export: &Export) -> Option<Arc<Binding>> {
        let info = self.directory.by_plane(consumer).filter(|info| !info.dedicated)?;
        let mut bindings = self.index.read().bindings_of(consumer);
        bindings.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
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
        self.types_of_bindings(plane, own.iter().filter(|binding| self.is_proved(plane, binding)))
    }

    /// The types of what is bound in a plane. Of two with the same group and resource the first wins.
    fn types_of_bindings<'a>(
        &self,
        plane: &PlaneId,
        bindings: impl Iterator<Item = &'a Binding>,
    ) -> Vec<Arc<ResourceType>> {
        let info = self.directory.by_plane(plane);
        let organization = info.as_ref().map_or("", |info| &*info.organization);
        let mut types: Vec<Arc<ResourceType>> = Vec::new();
        for binding in bindings {
            let Ok(provider) = binding.provider.parse::<PlaneId>() else { continue };
            let Some(export) = self.export(&provider, &binding.export) else { continue };
            let others = types.clone();
            let is_taken = |ty: &&Arc<ResourceType>| {
                others.iter().any(|other| other.group == ty.group && other.plural == ty.plural)
            };
            let consumer = Consumer { plane, organization, labels: &binding.labels };
            types.extend(self.types_for(&export, consumer).iter().filter(|ty| !is_taken(ty)).cloned());
        }
        types
    }

    /// The types of all exports for readers of all planes: each under the resource that its objects are stored as, and
    /// the oldest export's of each name under that name too.
    pub(crate) fn all_types(&self) -> Vec<Arc<ResourceType>> {
        let mut exports = self.index.read().exports();
        exports.sort_by(|a, b| (a.created, &a.plane, &a.name).cmp(&(b.created, &b.plane, &b.name)));
        let mut compiled: Vec<Types> = exports.iter().map(|export| self.compiled(export)).collect();
        // Versions that a rollout brings come last: of different types under one name the first is taken.
        let next = |export: &Arc<Export>| {
            let rollout = self.rollout(export).filter(|rollout| rollout.stage > 0)?;
            Some(self.compiled_next(export, &rollout))
        };
        compiled.extend(exports.iter().filter_map(next));
        let system = self.system.all().iter().filter_map(|export| export.fixed.as_ref());
        let named = system.chain(&compiled).flat_map(|types| types.served.iter());
        named.chain(compiled.iter().flat_map(|types| types.everywhere.iter())).cloned().collect()
    }

    /// Counts a change; whether planes may serve other types now.
    fn changed(&self, types: bool) {
        if types {
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
        self.changed(true);
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
    let types = apis.index.write().put(&event.plane, resource, &change.entry, slot);
    apis.changed(types);
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
