//! The types that a plane serves.

use crate::builtin;
use freehold_machinery::{ResourceType, Value, crd::compare_versions};
use sha2::{Digest, Sha256};
use std::{cmp::Reverse, collections::HashMap, sync::Arc};

/// Group priority of the `APIService` that stands for a CRD's group and version.
const CUSTOM_GROUP_PRIORITY: i32 = 1000;
/// Version priority of the same.
const CUSTOM_VERSION_PRIORITY: i32 = 100;

/// An immutable set of types: the built-in ones, those of CRDs, and groups that other servers serve.
///
/// Lookups neither allocate nor lock. A set without customs is the built-in one, shared by all.
#[derive(Debug)]
pub struct TypeSet {
    groups: Vec<Arc<Group>>,
    index: HashMap<Box<str>, Arc<Group>>,
    hash: String,
    custom: Vec<Arc<ResourceType>>,
    /// Whether any type shows in some contexts only.
    bound: bool,
}

/// An API group and its versions, the preferred one first.
#[derive(Clone, Debug)]
pub struct Group {
    /// The name; empty for core.
    pub name: String,
    /// Its rank among groups: higher comes first.
    pub priority: i32,
    /// The versions that are served.
    pub versions: Vec<ServedVersion>,
}

/// A version of a group and its types.
#[derive(Clone, Debug)]
pub struct ServedVersion {
    /// The version.
    pub version: String,
    /// Its rank among the group's versions: higher comes first.
    pub priority: i32,
    /// Its types, sorted by plural. Empty where another server serves it.
    pub types: Vec<Arc<ResourceType>>,
    /// What another server serves here.
    pub remote: Option<Arc<Remote>>,
}

/// A group and version that an aggregated server serves (`APIService`).
#[derive(Clone, Debug, PartialEq)]
pub struct Remote {
    /// The API group.
    pub group: String,
    /// The version.
    pub version: String,
    /// `groupPriorityMinimum`.
    pub group_priority: i32,
    /// `versionPriority`.
    pub version_priority: i32,
    /// Its resources, as aggregated discovery lists them (`APIResourceDiscovery`).
    pub resources: Vec<Value>,
    /// Whether `resources` is what the server said last, rather than what it said before it went away.
    pub fresh: bool,
    /// The `hash` of its OpenAPI document of this version; empty where it has none.
    pub openapi: String,
}

impl TypeSet {
    /// The built-in types alone.
    pub fn builtin() -> Arc<Self> {
        builtin().types().clone()
    }

    /// The built-in types with those of CRDs and of other servers. What a built-in type serves already is not
    /// replaced.
    pub fn new(custom: Vec<Arc<ResourceType>>, remote: Vec<Arc<Remote>>) -> Self {
        Self::over(&Self::builtin(), custom, remote)
    }

    /// These types alone, without the built-in ones.
    pub fn only(types: Vec<Arc<ResourceType>>) -> Self {
        Self::over(&Self::of_groups(Vec::new(), "only".to_owned()), types, Vec::new())
    }

    pub(crate) fn over(base: &Self, mut custom: Vec<Arc<ResourceType>>, remote: Vec<Arc<Remote>>) -> Self {
        custom.retain(|ty| base.find(&ty.group, &ty.version, &ty.plural).is_none());
        custom.sort_by(|a, b| key(a).cmp(&key(b)));
        custom.dedup_by(|a, b| key(a) == key(b));
        let hash = hash(&base.hash, &custom, &remote);
        let mut index = base.index.clone();
        for ty in &custom {
            let group = group_of(&mut index, &ty.group, CUSTOM_GROUP_PRIORITY);
            version_of(group, &ty.version, CUSTOM_VERSION_PRIORITY).types.push(ty.clone());
        }
        for remote in remote {
            let group = group_of(&mut index, &remote.group, remote.group_priority);
            version_of(group, &remote.version, remote.version_priority).remote = Some(remote.clone());
        }
        let bound = custom.iter().any(|ty| !ty.contexts.is_empty());
        Self { groups: ranked(&mut index), index, hash, custom, bound }
    }

    /// What shows in a context (`platform`, `organization`, `project`, `user`): without the types that are bound to others.
    /// A set without such types is itself.
    pub fn shown_in(self: &Arc<Self>, context: &str) -> Arc<Self> {
        if !self.bound {
            return self.clone();
        }
        let shows =
            |ty: &&Arc<ResourceType>| ty.contexts.is_empty() || ty.contexts.iter().any(|c| c == context);
        let remote = self.groups.iter().flat_map(|group| &group.versions).filter_map(|v| v.remote.clone());
        crate::share(self.custom.iter().filter(shows).cloned().collect(), remote.collect())
    }

    /// The built-in set itself, from groups in their order.
    pub(crate) fn of_groups(groups: Vec<Group>, hash: String) -> Self {
        let groups: Vec<_> = groups.into_iter().map(Arc::new).collect();
        let index = groups.iter().map(|group| (group.name.as_str().into(), group.clone())).collect();
        Self { groups, index, hash, custom: Vec::new(), bound: false }
    }

    /// The type that serves `resource` (plural) in a group and version.
    pub fn find(&self, group: &str, version: &str, resource: &str) -> Option<&Arc<ResourceType>> {
        let types = &self.version(group, version)?.types;
        types.binary_search_by(|ty| ty.plural.as_str().cmp(resource)).ok().map(|at| &types[at])
    }

    /// The type of a kind in a group and version.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<ResourceType>> {
        self.version(group, version)?.types.iter().find(|ty| ty.kind == kind)
    }

    /// A type that serves `resource` in a group, in the most preferred version that does.
    pub fn by_resource(&self, group: &str, resource: &str) -> Option<&Arc<ResourceType>> {
        self.group(group)?.versions.iter().find_map(|version| self.find(group, &version.version, resource))
    }

    /// A group by name.
    pub fn group(&self, name: &str) -> Option<&Arc<Group>> {
        self.index.get(name)
    }

    /// A version of a group.
    pub fn version(&self, group: &str, version: &str) -> Option<&ServedVersion> {
        self.group(group)?.versions.iter().find(|served| served.version == version)
    }

    /// Groups in the order of discovery, core among them.
    pub fn groups(&self) -> &[Arc<Group>] {
        &self.groups
    }

    /// Each type, in the order of groups and versions.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceType>> {
        self.groups.iter().flat_map(|group| group.versions.iter().flat_map(|version| &version.types))
    }

    /// The types that are not built in.
    pub fn custom(&self) -> &[Arc<ResourceType>] {
        &self.custom
    }

    /// Names the content: equal for sets that serve the same, in this build. Hex.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

fn key(ty: &ResourceType) -> (&str, &str, &str) {
    (&ty.group, &ty.version, &ty.plural)
}

fn hash(base: &str, custom: &[Arc<ResourceType>], remote: &[Arc<Remote>]) -> String {
    let mut digest = Sha256::new_with_prefix(base);
    for ty in custom {
        digest.update(format!("{:?}{}\n", key(ty), ty.hash));
    }
    let mut lines: Vec<_> = remote.iter().map(|remote| format!("{remote:?}\n")).collect();
    lines.sort();
    lines.iter().for_each(|line| digest.update(line));
    hex::encode(&digest.finalize()[..16])
}

/// The group's own copy in this index, made where it is absent or shared with the set below.
fn group_of<'a>(index: &'a mut HashMap<Box<str>, Arc<Group>>, name: &str, priority: i32) -> &'a mut Group {
    let fresh = || Arc::new(Group { name: name.to_owned(), priority, versions: Vec::new() });
    let group = Arc::make_mut(index.entry(name.into()).or_insert_with(fresh));
    group.priority = group.priority.max(priority);
    group
}

fn version_of<'a>(group: &'a mut Group, version: &str, priority: i32) -> &'a mut ServedVersion {
    let at = group.versions.iter().position(|served| served.version == version).unwrap_or_else(|| {
        let version = version.to_owned();
        group.versions.push(ServedVersion { version, priority, types: Vec::new(), remote: None });
        group.versions.len() - 1
    });
    &mut group.versions[at]
}

/// Sorts groups by priority, each group's versions by priority, and each version's types by plural.
fn ranked(index: &mut HashMap<Box<str>, Arc<Group>>) -> Vec<Arc<Group>> {
    for group in index.values_mut() {
        if group.priority <= CUSTOM_GROUP_PRIORITY || group.versions.iter().any(|v| v.remote.is_some()) {
            let versions = &mut Arc::make_mut(group).versions;
            versions.sort_by(|a, b| {
                (b.priority.cmp(&a.priority)).then_with(|| compare_versions(&b.version, &a.version))
            });
        }
    }
    let mut groups: Vec<_> = index.values().cloned().collect();
    groups.sort_by(|a, b| (Reverse(a.priority), &a.name).cmp(&(Reverse(b.priority), &b.name)));
    groups
}
