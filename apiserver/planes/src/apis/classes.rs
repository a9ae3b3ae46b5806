//! What classes bind, for all planes of a class at once.
//!
//! A ControlPlaneClass is the platform's: its bindings were checked when it was written, and its status names the plane of
//! each export. A plane's class follows from its project. Both are read from the core plane, so these bindings need no
//! proof, and a plane that is bound this way has no key.

use super::{Apis, Binding, Claim, Consumer, Export, rollout::Labels};
use freehold_api::apis::CLASS_LABEL;
use freehold_api::resourcemanager::{ControlPlaneClassSpec, ControlPlaneClassStatus};
use freehold_apiserver_cache::{CacheEvent, Entry, EventKind, ListRequest};
use freehold_machinery::{PlaneId, ResourceType, Result};
use parking_lot::RwLock;
use serde::Deserialize;
use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Weak},
};
use tokio::sync::watch;

pub(super) const GROUP: &str = "resourcemanager.freehold.dev";
pub(super) const RESOURCE: &str = "controlplaneclasses";

/// The exports that a class binds.
pub struct ClassBindings {
    /// The class.
    pub class: Box<str>,
    /// Its bindings. Their proofs are empty.
    pub bindings: Vec<Arc<Binding>>,
}

/// Classes by name, each with the revision that it is known as of.
type Known = HashMap<Box<str>, (u64, Option<Arc<ClassBindings>>)>;

/// Classes that bind anything.
pub(super) struct Classes {
    known: RwLock<Known>,
    /// Whether all classes have been read.
    pub(super) filled: watch::Sender<bool>,
}

impl ClassBindings {
    /// The bindings of a class, each of the export that the server found when it was written.
    fn read(entry: &Entry) -> Option<Self> {
        if entry.is_deleting() {
            return None;
        }
        let object = entry.value();
        let spec = ControlPlaneClassSpec::deserialize(&object["spec"]).ok()?;
        let status = ControlPlaneClassStatus::deserialize(&object["status"]).unwrap_or_default();
        // What the APIBinding is labelled with that projects see.
        let labels: Labels = [(CLASS_LABEL.to_owned(), entry.name().to_owned())].into();
        let bindings: Vec<Arc<Binding>> = spec
            .bindings
            .into_iter()
            .filter_map(|one| {
                let names = |bound: &&freehold_api::apis::BoundExport| {
                    bound.name == one.name && bound.export == one.export.name
                };
                let bound = status.bindings.iter().find(names)?;
                Some(Arc::new(Binding {
                    name: one.name.into(),
                    provider: bound.plane.as_str().into(),
                    export: one.export.name.into(),
                    proof: Box::default(),
                    accepted: one
                        .accepted_claims
                        .into_iter()
                        .chain(bound.default_claims.clone())
                        .map(Claim)
                        .collect(),
                    labels: labels.clone(),
                    created: entry.created,
                }))
            })
            .collect();
        (!bindings.is_empty()).then(|| Self { class: entry.name().into(), bindings })
    }
}

impl Classes {
    pub(super) fn new(is_filled: bool) -> Self {
        Self { known: RwLock::default(), filled: watch::Sender::new(is_filled) }
    }

    pub(super) fn of(&self, class: &str) -> Option<Arc<ClassBindings>> {
        self.known.read().get(class)?.1.clone()
    }

    fn is_empty(&self) -> bool {
        self.known.read().values().all(|(_, class)| class.is_none())
    }

    /// Classes that bind an export.
    fn binding(&self, export: &Export) -> HashSet<Box<str>> {
        let known = self.known.read();
        let classes = known.values().filter_map(|(_, class)| class.as_ref());
        let binds = |class: &&Arc<ClassBindings>| class.bindings.iter().any(|one| one.is_for(export));
        classes.filter(binds).map(|class| class.class.clone()).collect()
    }

    pub(super) fn clear(&self) {
        self.known.write().clear();
    }

    /// Takes in a class as of a revision, and returns the bindings that went with it or give less now.
    pub(super) fn put(&self, entry: &Entry, revision: u64, present: bool) -> Vec<Arc<Binding>> {
        let mut known = self.known.write();
        if known.get(entry.name()).is_some_and(|(at, _)| *at > revision) {
            return Vec::new();
        }
        let after = if present { ClassBindings::read(entry).map(Arc::new) } else { None };
        let before = known.insert(entry.name().into(), (revision, after.clone()));
        let before = before.and_then(|(_, class)| class);
        let is_kept = |one: &Arc<Binding>| {
            let mut now = after.iter().flat_map(|class| &class.bindings);
            now.any(|other| one.export == other.export && one.is_within(other))
        };
        let bindings = before.iter().flat_map(|class| &class.bindings);
        bindings.filter(|one| !is_kept(one)).cloned().collect()
    }
}

impl Apis {
    /// Waits until all classes have been read.
    pub(crate) async fn classes_ready(&self) {
        if !*self.classes.filled.borrow() {
            // The sender lives as long as this.
            let _ = self.classes.filled.subscribe().wait_for(|filled| *filled).await;
        }
    }

    /// What the class of a plane binds.
    pub fn class_of(&self, plane: &PlaneId) -> Option<Arc<ClassBindings>> {
        if self.classes.is_empty() {
            return None;
        }
        let info = self.directory.by_plane(plane).filter(|info| !info.dedicated)?;
        self.classes.of(&info.class)
    }

    /// Whether a plane binds an export itself, whatever its class does.
    fn has_own(&self, plane: &PlaneId, export: &Export) -> bool {
        let bindings = self.index.read().bindings_of(plane);
        bindings.iter().any(|one| one.is_for(export) && self.is_proved(plane, one))
    }

    /// An object of an export, `(resource, project/namespace/name)`, in a plane that has the export from its class alone.
    ///
    /// # Errors
    /// 503 where the store does not answer.
    pub async fn object_in_class(&self, class: &str, export: &Export) -> Result<Option<(String, String)>> {
        let mut found = None;
        for ty in self.types_of(export).iter() {
            let visit = |plane: &PlaneId, entry: Arc<Entry>| {
                let info = self.directory.by_plane(plane).filter(|info| *info.class == *class);
                if let Some(info) = info.filter(|_| found.is_none() && !self.has_own(plane, export)) {
                    let place = format!("{}/{}/{}", info.name, entry.namespace(), entry.name());
                    found = Some((ty.plural.clone(), place));
                }
            };
            self.cache.list_planes(&ty.group, &ty.storage.resource, visit).await?;
        }
        Ok(found)
    }

    /// The types that a class brings to one of its planes.
    pub(crate) fn class_types(&self, class: &ClassBindings, plane: &PlaneId) -> Vec<Arc<ResourceType>> {
        self.types_of_bindings(plane, class.bindings.iter().map(|one| &**one))
    }

    /// Equal for planes of a class to which it brings the same types: it differs for other bindings, for other schemas of
    /// their exports, and between planes that a rollout has reached and others.
    pub(crate) fn class_key(&self, class: &ClassBindings, plane: &PlaneId) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&class.class, self.generation()).hash(&mut hasher);
        if self.index.read().has_rollouts() {
            let info = self.directory.by_plane(plane);
            let organization = info.as_ref().map_or("", |info| &*info.organization);
            let is_reached = |one: &Binding| {
                let export = self.export(&one.provider.parse().ok()?, &one.export)?;
                let consumer = Consumer { plane, organization, labels: &one.labels };
                Some(self.rollout(&export)?.includes(consumer))
            };
            let reached: Vec<_> = class.bindings.iter().map(|one| is_reached(one)).collect();
            reached.hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The planes that consume an export by their class.
    pub(super) fn class_consumers(&self, export: &Export) -> Vec<PlaneId> {
        let classes = self.classes.binding(export);
        if classes.is_empty() { Vec::new() } else { self.directory.of_classes(&classes) }
    }

    pub(super) async fn read_classes(&self) -> Result<()> {
        let at = self.cache.catch_up().await?;
        let request =
            ListRequest { plane: &PlaneId::core(), group: GROUP, resource: RESOURCE, namespace: None };
        let put = |entry: Arc<Entry>| drop(self.classes.put(&entry, entry.modified, true));
        self.cache.scan(request, at, put).await?;
        self.classes.filled.send_replace(true);
        Ok(())
    }
}

/// Takes in what the feed tells of classes; without an event, everything has to be read again.
pub(super) fn observe(apis: &Weak<Apis>, event: Option<&CacheEvent>) {
    let Some(apis) = apis.upgrade() else { return };
    let Some(event) = event else {
        apis.classes.clear();
        return super::read_again(&apis);
    };
    let Some(change) = event.change() else { return };
    let present = change.kind != EventKind::Deleted;
    let restricted = apis.classes.put(&change.entry, event.revision, present);
    for one in restricted {
        apis.index.write().restrict(&one, event.revision);
    }
    apis.changed(true);
}
