//! Objects that name objects of other projects: which fields do, and by an index who names an object.
//!
//! The index of a resource is made when somebody first asks for it, and follows the feed from then on. It is of one
//! export: no object of another one is in it.

use super::{
    Apis, Export,
    compiled::{self, ReferenceFields},
};
use freehold_apiserver_cache::{CacheEvent, Entry, EventKind};
use freehold_machinery::{
    PlaneId, ResourceType, Result, Value,
    crd::references::{Named, Reference},
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Weak},
};

/// Referrers of one object that are told.
const SHOWN: usize = 100;

/// An object that names another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Referrer {
    /// Its project.
    pub project: Box<str>,
    /// Its group and resource.
    pub resource: (Box<str>, Box<str>),
    /// Its namespace; empty for none.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// The field that names the other one.
    pub field: Box<str>,
    /// Whether the other one can't be deleted meanwhile.
    pub blocks: bool,
}

/// What an object says of another one: the project as it is named, namespace and name.
type Target = (Box<str>, Box<str>, Box<str>);
/// Where an object is: plane, namespace and name.
type Source = (PlaneId, Box<str>, Box<str>);

/// Objects of one resource by what they name.
#[derive(Default)]
pub(super) struct Followed {
    /// The schemas that it was made for.
    generation: u64,
    is_filled: bool,
    /// Each object as of a revision, with what it names.
    named: HashMap<Source, (u64, Vec<(usize, Target)>)>,
    /// Objects that name a project, namespace and name, with the field.
    by_target: HashMap<Target, BTreeSet<(Source, usize)>>,
}

/// Followed resources, by group and stored resource.
pub(super) type References = Mutex<HashMap<(Box<str>, Box<str>), Followed>>;

impl Followed {
    fn put(&mut self, source: Source, revision: u64, targets: Vec<(usize, Target)>) {
        if self.named.get(&source).is_some_and(|(at, _)| *at > revision) {
            return;
        }
        let before = self.named.remove(&source).map(|(_, targets)| targets).unwrap_or_default();
        for (nth, target) in before {
            if let Some(sources) = self.by_target.get_mut(&target) {
                sources.remove(&(source.clone(), nth));
                if sources.is_empty() {
                    self.by_target.remove(&target);
                }
            }
        }
        for (nth, target) in &targets {
            self.by_target.entry(target.clone()).or_default().insert((source.clone(), *nth));
        }
        // Of what went the revision is kept as long as the index is being made.
        if !(targets.is_empty() && self.is_filled) {
            self.named.insert(source, (revision, targets));
        }
    }
}

/// What an object names in each of the fields.
fn targets(fields: &[Reference], object: &Value) -> Vec<(usize, Target)> {
    let of_field = |(nth, field): (usize, &Reference)| {
        let target =
            move |named: Named| (nth, (named.project.into(), named.namespace.into(), named.name.into()));
        field.named(object).into_iter().map(target).collect::<Vec<_>>()
    };
    fields.iter().enumerate().flat_map(of_field).collect()
}

impl Apis {
    /// The fields of an exported type that name objects.
    pub fn references_of(&self, ty: &ResourceType) -> Arc<[Reference]> {
        let Some(export) = self.export_of(ty) else { return Arc::default() };
        let known = self.types_with(&export, ty).references;
        fields(&known, (&*ty.group, &*ty.plural, &*ty.version))
    }

    /// Who names an object of an exported type, within the organization of its plane: a hundred at most.
    ///
    /// # Errors
    /// 503 where the store does not answer.
    pub async fn referrers(
        self: &Arc<Self>,
        ty: &ResourceType,
        plane: &PlaneId,
        (namespace, name): (&str, &str),
    ) -> Result<Vec<Referrer>> {
        let Some(export) = self.export_of(ty) else { return Ok(Vec::new()) };
        let Some(home) = self.directory.by_plane(plane) else { return Ok(Vec::new()) };
        self.cache.catch_up().await?;
        let known = self.reference_fields(&export);
        let mut found = BTreeSet::new();
        for kind in &self.types_of_any(&export) {
            let (_, version) = kind.storage.api_version.split_once('/').unwrap_or_default();
            let fields = fields(&known, (&*kind.group, &*kind.plural, version));
            if !fields.iter().any(|field| compiled::is_about(field, &kind.group, ty)) {
                continue;
            }
            self.follow(&export, kind).await?;
            for (source, nth) in self.sources(kind, &home.name, (namespace, name), plane) {
                let field = fields.get(nth).filter(|field| compiled::is_about(field, &kind.group, ty));
                let info = self.directory.by_plane(&source.0);
                let (Some(field), Some(info)) = (field, info) else { continue };
                let consumes =
                    info.organization == home.organization && self.binding(&source.0, &export).is_some();
                if consumes && found.len() < SHOWN {
                    found.insert(Referrer {
                        project: info.name.as_ref().into(),
                        resource: (kind.group.as_str().into(), kind.plural.as_str().into()),
                        namespace: source.1,
                        name: source.2,
                        field: field.field().into(),
                        blocks: field.blocks,
                    });
                }
            }
        }
        Ok(found.into_iter().collect())
    }

    /// The objects of a kind that name an object of a project, with the field. Without a project they name one of their
    /// own, and without a namespace one of their own namespace.
    fn sources(
        &self,
        kind: &ResourceType,
        project: &str,
        (namespace, name): (&str, &str),
        plane: &PlaneId,
    ) -> Vec<(Source, usize)> {
        let all = self.references.lock();
        let Some(followed) = all.get(&key_of(kind)) else { return Vec::new() };
        let mut found = Vec::new();
        for named in [project, ""] {
            for of in BTreeSet::from([namespace, ""]) {
                let target: Target = (named.into(), of.into(), name.into());
                let sources = followed.by_target.get(&target).into_iter().flatten();
                let is_it = |(source, _): &&(Source, usize)| {
                    (!named.is_empty() || source.0 == *plane) && (of == namespace || *source.1 == *namespace)
                };
                found.extend(sources.filter(is_it).cloned());
            }
        }
        found
    }

    /// Makes the index of a resource, where there is none for the schemas of now.
    async fn follow(self: &Arc<Self>, export: &Export, ty: &ResourceType) -> Result<()> {
        let (generation, key) = (self.generation(), key_of(ty));
        let is_new = {
            let mut all = self.references.lock();
            let is_new = !all.contains_key(&key);
            let followed = all.entry(key.clone()).or_default();
            if followed.is_filled && followed.generation == generation {
                return Ok(());
            }
            *followed = Followed { generation, ..Followed::default() };
            is_new
        };
        if is_new {
            let (one, two) = (Arc::downgrade(self), Arc::downgrade(self));
            let (of_one, of_two) = (key.clone(), key.clone());
            self.cache.observe_everywhere(&key.0, &key.1, move |event| observe(&one, &of_one, event));
            self.cache.observe_switches(&key.0, &key.1, move |event| observe(&two, &of_two, event));
        }
        let known = self.reference_fields(export);
        let visit = |plane: &PlaneId, entry: Arc<Entry>| {
            let named = named_by(&known, &key, &entry);
            let source = (plane.clone(), entry.namespace().into(), entry.name().into());
            if let Some(followed) = self.references.lock().get_mut(&key) {
                followed.put(source, entry.modified, named);
            }
        };
        self.cache.list_planes(&key.0, &key.1, visit).await?;
        if let Some(followed) = self.references.lock().get_mut(&key)
            && followed.generation == generation
        {
            followed.is_filled = true;
            followed.named.retain(|_, (_, targets)| !targets.is_empty());
        }
        Ok(())
    }
}

/// Where the index of a type is.
fn key_of(ty: &ResourceType) -> (Box<str>, Box<str>) {
    (ty.storage.group.as_str().into(), ty.storage.resource.as_str().into())
}

fn fields(known: &ReferenceFields, (group, plural, version): (&str, &str, &str)) -> Arc<[Reference]> {
    known.get(&(group.into(), plural.into(), version.into())).cloned().unwrap_or_default()
}

/// What a stored object names, by the fields of the version that it is stored in.
fn named_by(known: &ReferenceFields, key: &(Box<str>, Box<str>), entry: &Entry) -> Vec<(usize, Target)> {
    let object = entry.value();
    let (_, version) = object["apiVersion"].as_str().unwrap_or_default().split_once('/').unwrap_or_default();
    let plural = key.1.split(':').next().unwrap_or_default();
    targets(&fields(known, (&*key.0, plural, version)), &object)
}

/// Takes in what the feed tells of a resource; without an event, its index is made anew when it is asked for.
fn observe(apis: &Weak<Apis>, key: &(Box<str>, Box<str>), event: Option<&CacheEvent>) {
    let Some(apis) = apis.upgrade() else { return };
    let Some(event) = event else {
        if let Some(followed) = apis.references.lock().get_mut(key) {
            *followed = Followed::default();
        }
        return;
    };
    let Some(change) = event.change() else { return };
    let identity = key.1.rsplit_once(':').map(|(_, identity)| identity).unwrap_or_default();
    let export = apis.index.read().export_of(identity);
    let named = match (change.kind, export) {
        (EventKind::Deleted, _) | (_, None) => Vec::new(),
        (_, Some(export)) => named_by(&apis.reference_fields(&export), key, &change.entry),
    };
    let source = (event.plane.clone(), change.entry.namespace().into(), change.entry.name().into());
    if let Some(followed) = apis.references.lock().get_mut(key) {
        followed.put(source, event.revision, named);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(name: &str) -> Vec<(usize, Target)> {
        vec![(0, ("p".into(), "default".into(), name.into()))]
    }

    #[test]
    fn an_object_is_found_by_what_it_names_last() {
        let source: Source = ("web".parse().unwrap(), "default".into(), "orders".into());
        let mut followed = Followed::default();
        followed.put(source.clone(), 5, target("a"));
        followed.put(source.clone(), 4, target("older"));
        followed.put(source.clone(), 6, target("b"));
        let names = |followed: &Followed| {
            followed.by_target.keys().map(|(_, _, name)| name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(&followed), ["b"]);
        followed.put(source.clone(), 7, Vec::new());
        assert!(followed.by_target.is_empty());
        followed.put(source, 6, target("b"));
        assert!(followed.by_target.is_empty(), "what went stays so while the index is being made");
    }
}
