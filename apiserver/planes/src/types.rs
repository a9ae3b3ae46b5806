//! What each plane serves: the built-in kinds, and what its CRDs add.

use crate::{Apis, apis::ClassBindings};
use async_trait::async_trait;
use freehold_api::apis;
use freehold_apiserver_cache::{Cache, Entry, ListRequest, Stack};
use freehold_apiserver_catalog::{Remote, TypeSet, custom_types, share};
use freehold_apiserver_resource_metrics as resource_metrics;
use freehold_machinery::{
    GroupVersionKind, PlaneId, PlaneMap, ResourceType, Result, Value, crd, resource::Subresource,
};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::HashMap,
    sync::{
        Arc, LazyLock, OnceLock, Weak,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

pub(crate) const GROUP: &str = "apiextensions.k8s.io";
pub(crate) const RESOURCE: &str = "customresourcedefinitions";
/// Planes whose types are remembered; over it the table starts anew.
const MAX_PLANES: usize = 4_096;
/// Stacks whose types are remembered, likewise.
const MAX_STACKS: usize = 256;

pub(crate) type Compiled = (u64, Vec<Arc<ResourceType>>);

/// What other servers serve in a plane. Another value says that it changed.
pub type Remotes = Arc<Vec<Arc<Remote>>>;

/// Knows what other servers serve in planes.
#[async_trait]
pub trait RemoteSource: Send + Sync + 'static {
    /// What they serve in one now.
    async fn remotes(&self, plane: &PlaneId) -> Result<Remotes>;
}

/// What a plane serves without a definition of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Undefined {
    /// The kinds of `apis.freehold.dev`.
    apis: bool,
    /// What nodes and Pods use.
    resource_metrics: bool,
}

/// The types of one plane, as of one revision of its CRDs, with what other servers serve.
pub(crate) struct PlaneTypes {
    undefined: Undefined,
    changed: u64,
    /// The last change of its bindings, and the generation of exports; 0 without bindings.
    bound: (u64, u64),
    /// The types that its bindings bring, and those of its class.
    brought: Box<[Arc<ResourceType>]>,
    remotes: Remotes,
    set: Arc<TypeSet>,
    /// By CRD: the revision that was compiled, and what came out.
    compiled: HashMap<Box<str>, Compiled>,
}

/// What the types of a plane are made of, its definitions aside.
pub(crate) struct Made {
    undefined: Undefined,
    changed: u64,
    bound: (u64, u64),
    brought: Box<[Arc<ResourceType>]>,
    remotes: Remotes,
}

/// What came out of a CRD at a revision, as long as somebody uses it.
pub(crate) type InternedTypes = (u64, Vec<Weak<ResourceType>>);

/// The types of planes that have CRDs and were asked for.
#[derive(Default)]
pub(crate) struct Types {
    pub(crate) known: Mutex<PlaneMap<PlaneTypes>>,
    /// What each CRD of any plane gave when all of them were asked for last, and at which revision.
    pub(crate) all: Mutex<HashMap<(PlaneId, Box<str>), InternedTypes>>,
    /// What planes serve that have no definitions and bindings of their own, by the content of their stack and what their
    /// class binds.
    pub(crate) stacks: Mutex<HashMap<(u64, u64, Undefined), Arc<TypeSet>>>,
    pub(crate) source: OnceLock<Arc<dyn RemoteSource>>,
}

impl Types {
    /// What a plane serves now. Without `apis_of`, the kinds of `apis.freehold.dev` are not served.
    pub(crate) async fn of(
        &self,
        cache: &Cache,
        plane: &PlaneId,
        apis_of: Option<&Apis>,
    ) -> Result<Arc<TypeSet>> {
        let remotes = match self.source.get() {
            Some(source) => source.remotes(plane).await?,
            None => Remotes::default(),
        };
        let (changed, stack) = cache.changes(plane, GROUP, [RESOURCE]).await?;
        let (bindings, _) = cache.changes(plane, apis::GROUP, [apis::BINDINGS]).await?;
        let has_own = |group, resource| cache.count(plane, group, resource, None) != Some(0);
        // Most planes have neither, and need not list them for each request.
        let is_bound = apis_of.is_some()
            && (has_own(apis::GROUP, apis::BINDINGS) || stack.has_in_snapshot(apis::GROUP, apis::BINDINGS));
        let class = match apis_of {
            Some(apis) => {
                apis.classes_ready().await;
                apis.class_of(plane).map(|class| (apis, class))
            }
            None => None,
        };
        if let Some((apis, _)) = &class {
            apis.ready().await;
        }
        let has_nodes = has_own("", "nodes") || stack.has_in_snapshot("", "nodes");
        let undefined = Undefined {
            apis: apis_of.is_some(),
            resource_metrics: apis_of.is_some() && has_nodes && serves_resource_metrics(plane, &remotes),
        };
        let is_as_below = changed.is_none() || !stack.has(GROUP, RESOURCE);
        if !has_own(GROUP, RESOURCE) && is_as_below && !is_bound && remotes.is_empty() {
            self.known.lock().remove(plane);
            return Ok(self.of_stack(plane, &stack, undefined, class));
        }
        let revision = |changed: Option<[u64; 1]>| changed.map_or(stack.revision(), |[changed]| changed);
        let changed = revision(changed);
        let bound = match apis_of {
            Some(apis) if is_bound => {
                apis.ready().await;
                (revision(bindings), apis.generation())
            }
            Some(apis) if class.is_some() => (0, apis.generation()),
            _ => (0, 0),
        };
        if let Some(known) = self.known.lock().get(plane)
            && known.changed == changed
            && known.undefined == undefined
            && known.bound == bound
            && (Arc::ptr_eq(&known.remotes, &remotes) || known.remotes.is_empty() && remotes.is_empty())
        {
            return Ok(known.set.clone());
        }
        let own = base_types(plane, undefined);
        let mut brought = Vec::new();
        if let Some(apis) = apis_of.filter(|_| is_bound) {
            let request =
                ListRequest { plane, group: apis::GROUP, resource: apis::BINDINGS, namespace: None };
            brought = apis.bound(plane, &Box::pin(cache.list(request)).await?.objects);
        }
        if let Some((apis, class)) = &class {
            let is_taken = |ty: &Arc<ResourceType>| {
                let mut known = own.iter().chain(&brought);
                known.any(|other| other.group == ty.group && other.plural == ty.plural)
            };
            let by_class: Vec<_> =
                apis.class_types(class, plane).into_iter().filter(|ty| !is_taken(ty)).collect();
            brought.extend(by_class);
        }
        // Most changes of exports are about others.
        if let Some(set) = self.unchanged(plane, (changed, bound, undefined), &remotes, &brought) {
            return Ok(set);
        }
        let request = ListRequest { plane, group: GROUP, resource: RESOURCE, namespace: None };
        let listed = Box::pin(cache.list(request)).await?;
        let made = Made { undefined, changed, bound, brought: brought.into(), remotes };
        Ok(self.compile(plane, made, listed.objects.iter(), own))
    }

    /// The set of a plane whose bindings, and those of its class, bring what they brought before.
    fn unchanged(
        &self,
        plane: &PlaneId,
        (changed, bound, undefined): (u64, (u64, u64), Undefined),
        remotes: &Remotes,
        brought: &[Arc<ResourceType>],
    ) -> Option<Arc<TypeSet>> {
        let mut table = self.known.lock();
        let known = table.get_mut(plane)?;
        let is_same = known.changed == changed
            && known.undefined == undefined
            && (Arc::ptr_eq(&known.remotes, remotes) || known.remotes.is_empty() && remotes.is_empty())
            && known.brought.iter().map(Arc::as_ptr).eq(brought.iter().map(Arc::as_ptr));
        if !is_same {
            return None;
        }
        known.bound = bound;
        Some(known.set.clone())
    }

    /// What a plane serves that has nothing of its own: what its layers define and its class binds, once for all such
    /// planes that the same rollouts have reached.
    fn of_stack(
        &self,
        plane: &PlaneId,
        stack: &Stack,
        undefined: Undefined,
        class: Option<(&Apis, Arc<ClassBindings>)>,
    ) -> Arc<TypeSet> {
        let bound = class.as_ref().map_or(0, |(apis, class)| apis.class_key(class, plane));
        let key = (stack.content(), bound, undefined);
        if let Some(known) = self.stacks.lock().get(&key) {
            return known.clone();
        }
        let crds = stack.objects(plane, GROUP, RESOURCE);
        let mut types: Vec<_> = crds.iter().flat_map(|entry| compile(&entry.value())).collect();
        types.extend(base_types(plane, undefined));
        if let Some((apis, class)) = class {
            // What the layers define comes before what is bound.
            let is_own = |ty: &Arc<ResourceType>| {
                types.iter().any(|own| own.group == ty.group && own.plural == ty.plural)
            };
            let more: Vec<_> = apis.class_types(&class, plane).into_iter().filter(|ty| !is_own(ty)).collect();
            types.extend(more);
        }
        let set = share(types, Vec::new());
        let mut stacks = self.stacks.lock();
        if stacks.len() >= MAX_STACKS {
            stacks.clear();
        }
        stacks.insert(key, set.clone());
        set
    }

    /// Asks `source` from now on.
    pub(crate) fn aggregate(&self, source: Arc<dyn RemoteSource>) {
        let _ = self.source.set(source);
    }

    /// Forgets a plane.
    pub(crate) fn forget(&self, plane: &PlaneId) {
        self.known.lock().remove(plane);
    }

    fn compile<'a>(
        &self,
        plane: &PlaneId,
        Made { undefined, changed, bound, brought, remotes }: Made,
        crds: impl Iterator<Item = &'a Arc<Entry>>,
        mut more: Vec<Arc<ResourceType>>,
    ) -> Arc<TypeSet> {
        more.extend(brought.iter().cloned());
        let mut table = self.known.lock();
        let mut before = table.remove(plane).map(|known| known.compiled).unwrap_or_default();
        let compiled: HashMap<Box<str>, Compiled> = crds
            .map(|entry| {
                let name: Box<str> = entry.name().into();
                let kept = before.remove(&name).filter(|(revision, _)| *revision == entry.modified);
                let types = kept.unwrap_or_else(|| (entry.modified, compile(&entry.value())));
                (name, types)
            })
            .collect();
        let mut types: Vec<_> = compiled.values().flat_map(|(_, types)| types.iter().cloned()).collect();
        // What a plane defines itself comes before what it binds.
        let is_own =
            |ty: &Arc<ResourceType>| types.iter().any(|own| own.group == ty.group && own.plural == ty.plural);
        let more: Vec<_> = more.into_iter().filter(|ty| !is_own(ty)).collect();
        types.extend(more);
        let set = share(types, remotes.to_vec());
        if table.len() >= MAX_PLANES {
            table.clear();
        }
        table.insert(
            plane.clone(),
            PlaneTypes { undefined, changed, bound, brought, remotes, set: set.clone(), compiled },
        );
        set
    }
}

/// Whether a plane's nodes are asked by this server what they use: a project's, where no other server does so.
fn serves_resource_metrics(plane: &PlaneId, remotes: &[Arc<Remote>]) -> bool {
    let is_other = |remote: &Arc<Remote>| {
        (&*remote.group, &*remote.version) == (resource_metrics::GROUP, resource_metrics::VERSION)
    };
    !plane.is_core() && *plane != PlaneId::infra() && !remotes.iter().any(is_other)
}

/// The kinds of `apis.freehold.dev`, which every plane but infra serves without having their definitions, and what nodes and
/// Pods use, where a plane has nodes.
fn base_types(plane: &PlaneId, undefined: Undefined) -> Vec<Arc<ResourceType>> {
    static TYPES: LazyLock<Vec<Arc<ResourceType>>> = LazyLock::new(|| {
        let crds = freehold_api::api_crds().into_iter().map(|crd| crd::definition_of(&crd["spec"]));
        // What was just compiled is nobody else's yet.
        let compiled = crds.flat_map(|crd| crd::compile(&crd).unwrap_or_default());
        compiled.map(with_access).collect()
    });
    let mut types = if undefined.apis && *plane != PlaneId::infra() { TYPES.clone() } else { Vec::new() };
    if undefined.resource_metrics {
        types.extend_from_slice(resource_metrics::types());
    }
    types
}

/// Bindings have a subresource that tells what they bring.
fn with_access(mut ty: Arc<ResourceType>) -> Arc<ResourceType> {
    if let Some(ty) = Arc::get_mut(&mut ty).filter(|ty| ty.plural == apis::BINDINGS) {
        ty.subresources.push(Subresource {
            name: apis::ACCESS.into(),
            kind: GroupVersionKind {
                group: apis::GROUP.into(),
                version: apis::VERSION.into(),
                kind: "BindingAccess".into(),
            },
            verbs: vec!["get"],
            scale: None,
        });
        ty.hash.push_str(":access");
    }
    ty
}

fn established(crd: &Value) -> bool {
    let conditions = crd["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// Whether nothing was logged in this second yet.
fn is_seldom() -> bool {
    static LAST: AtomicI64 = AtomicI64::new(0);
    let now = jiff::Timestamp::now().as_second();
    LAST.swap(now, Relaxed) != now
}

/// The types of one CRD, shared with every other plane that has the same.
pub(crate) fn compile(crd: &Value) -> Vec<Arc<ResourceType>> {
    if !established(crd) {
        return Vec::new();
    }
    match custom_types(crd) {
        Ok(types) => types,
        Err(errors) => {
            // Whoever runs a pair of their own can store as many of these as they like.
            if is_seldom() {
                let name = freehold_machinery::meta::name(crd);
                tracing::error!(name, ?errors, "a stored CRD can't be compiled; its types are not served");
            }
            Vec::new()
        }
    }
}

/// Adds what other servers serve in one project, of which nothing was there yet. Over several projects it can be listed
/// and watched, and no more.
pub(crate) fn merge_remotes(into: &mut Vec<Arc<Remote>>, types: &TypeSet) {
    let found = types.groups().iter().flat_map(|group| &group.versions).filter_map(|v| v.remote.as_ref());
    for remote in found {
        if into.iter().any(|known| known.group == remote.group && known.version == remote.version) {
            continue;
        }
        let lists = |resource: &&Value| {
            resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "list"))
        };
        let listed = |resource: &Value| {
            let can_watch =
                resource["verbs"].as_array().is_some_and(|verbs| verbs.iter().any(|verb| verb == "watch"));
            let mut resource = resource.clone();
            resource["verbs"] = if can_watch { json!(["list", "watch"]) } else { json!(["list"]) };
            resource.as_object_mut().map(|map| map.remove("subresources"));
            resource
        };
        let resources = remote.resources.iter().filter(lists).map(listed).collect();
        into.push(Arc::new(Remote { resources, openapi: String::new(), ..Remote::clone(remote) }));
    }
}

/// Adds types that are not there yet. Of two planes' different types under one name the first is taken.
pub(crate) fn merge(into: &mut Vec<Arc<ResourceType>>, more: &[Arc<ResourceType>]) {
    // Nothing is stored of what nodes and Pods use, so nothing of it can be read over several planes.
    for ty in more.iter().filter(|ty| !resource_metrics::is_served(ty)) {
        let same = |known: &&Arc<ResourceType>| {
            known.group == ty.group && known.plural == ty.plural && known.version == ty.version
        };
        if !into.iter().any(|known| same(&known)) {
            into.push(ty.clone());
        }
    }
}
