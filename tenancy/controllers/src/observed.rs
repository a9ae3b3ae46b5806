//! Informers that the controllers of tenants, namespaces and quotas share, and what they know together.

use freehold_client::Resource;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Informer, Interest, Key, Planes, Scope, Store};
use freehold_tenancy_api::quota::Quota;
use freehold_tenancy_api::tenant::{Subject, Tenant};
use freehold_tenancy_api::{GROUP, MANAGED_LABEL, MANAGED_VALUE, VERSION};
use freehold_tenancy_decide::namespace::{ChildKind, Children};
use freehold_tenancy_decide::tenant::{Chain, Namespace, chain};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Tenants.
pub const TENANTS: Resource = Resource::cluster(GROUP, VERSION, "tenants");
/// Quotas.
pub const QUOTAS: Resource = Resource::cluster(GROUP, VERSION, "quotas");
/// Namespaces.
pub const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
const RBAC: &str = "rbac.authorization.k8s.io";
pub(crate) const CLUSTER_ROLES: Resource = Resource::cluster(RBAC, "v1", "clusterroles");
pub(crate) const CLUSTER_ROLE_BINDINGS: Resource = Resource::cluster(RBAC, "v1", "clusterrolebindings");

/// Informers before they run: handlers are added to them.
pub struct Informers {
    /// Tenants, indexed by `parent/NAME`, `quota/NAME` and [`member_entry`].
    pub tenants: Informer<Tenant>,
    /// Namespaces, indexed by the name of their tenant and, if they are ready, `ready/NAME`.
    pub namespaces: Informer<Namespace>,
    /// Quotas.
    pub quotas: Informer<Quota>,
    pub(crate) children: Vec<(ChildKind, Informer<Value>)>,
    pub(crate) roles: [(Resource, Informer<Value>); 2],
}

/// What the informers know.
#[derive(Clone)]
pub struct Observed {
    /// The planes.
    pub planes: Planes,
    /// Tenants.
    pub tenants: Store<Tenant>,
    /// Namespaces.
    pub namespaces: Store<Namespace>,
    /// Quotas.
    pub quotas: Store<Quota>,
    children: Vec<(ChildKind, Store<Value>)>,
    roles: [Store<Value>; 2],
}

/// The resource of a kind of child.
pub(crate) fn child_resource(kind: ChildKind) -> Resource {
    let (group, version, plural) = kind.resource();
    Resource::namespaced(group, version, plural)
}

/// The entry of a subject in the index of tenants.
pub fn member_entry(subject: &Subject) -> String {
    format!("member/{:?}/{}/{}", subject.kind, subject.namespace, subject.name)
}

/// Reads an object as its kind; one that is damaged is left out.
pub fn typed<T: serde::de::DeserializeOwned>(object: Value) -> Option<T> {
    let name = meta::name(&object).to_owned();
    serde_json::from_value(object)
        .inspect_err(|error| tracing::warn!(name, %error, "failed to read an object; it is ignored"))
        .ok()
}

impl Informers {
    /// Informers of tenants, namespaces and quotas alone, for readers.
    pub fn of_tenants(planes: &Planes) -> (Informer<Tenant>, Informer<Namespace>, Informer<Quota>) {
        let tenants = Interest::projected(TENANTS, typed::<Tenant>).index(|_, tenant: &Tenant| {
            let spec = &tenant.spec;
            let entries = [("parent", &spec.parent), ("quota", &spec.quota)].into_iter();
            let given = entries.filter(|(_, name)| !name.is_empty());
            let members = spec.members.iter().flat_map(|member| &member.subjects).map(member_entry);
            given.map(|(what, name)| format!("{what}/{name}")).chain(members).collect()
        });
        let namespaces = Interest::projected(NAMESPACES, |object| Some(Namespace::of(&object)));
        let namespaces = namespaces.index(|_, namespace: &Namespace| {
            let Some(tenant) = namespace.tenant() else { return Vec::new() };
            let ready = namespace.is_ready().then(|| format!("ready/{tenant}"));
            ready.into_iter().chain([tenant.to_owned()]).collect()
        });
        let quotas = Interest::projected(QUOTAS, typed::<Quota>);
        (Informer::new(planes, tenants), Informer::new(planes, namespaces), Informer::new(planes, quotas))
    }

    pub(crate) fn new(planes: &Planes) -> Self {
        let managed = |resource: Resource| {
            Informer::new(
                planes,
                Interest::objects(resource).labels(format!("{MANAGED_LABEL}={MANAGED_VALUE}")),
            )
        };
        let (tenants, namespaces, quotas) = Self::of_tenants(planes);
        Self {
            tenants,
            namespaces,
            quotas,
            children: ChildKind::ALL.map(|kind| (kind, managed(child_resource(kind)))).into(),
            roles: [CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS].map(|r| (r.clone(), managed(r))),
        }
    }

    pub(crate) fn observed(&self, planes: &Planes) -> Observed {
        Observed {
            planes: planes.clone(),
            tenants: self.tenants.store(),
            namespaces: self.namespaces.store(),
            quotas: self.quotas.store(),
            children: self.children.iter().map(|(kind, informer)| (*kind, informer.store())).collect(),
            roles: [self.roles[0].1.store(), self.roles[1].1.store()],
        }
    }

    pub(crate) fn spawn(self, scope: &Scope) {
        scope.tasks.spawn(self.tenants.run(scope.token.clone()));
        scope.tasks.spawn(self.namespaces.run(scope.token.clone()));
        scope.tasks.spawn(self.quotas.run(scope.token.clone()));
        for (_, informer) in self.children {
            scope.tasks.spawn(informer.run(scope.token.clone()));
        }
        for (_, informer) in self.roles {
            scope.tasks.spawn(informer.run(scope.token.clone()));
        }
    }
}

impl Observed {
    /// Waits until all that exists is known. `false`: the token was cancelled before.
    pub(crate) async fn synced(&self, token: &CancellationToken) -> bool {
        let mut synced = self.tenants.synced(token).await
            && self.namespaces.synced(token).await
            && self.quotas.synced(token).await;
        for store in self.children.iter().map(|(_, store)| store).chain(&self.roles) {
            synced = synced && store.synced(token).await;
        }
        synced
    }

    /// The tenant of a name.
    pub fn tenant(&self, plane: &PlaneId, name: &str) -> Option<Arc<Tenant>> {
        self.tenants.get(&Key::new(plane.clone(), "", name))
    }

    /// The Quota of a name.
    pub fn quota(&self, plane: &PlaneId, name: &str) -> Option<Arc<Quota>> {
        self.quotas.get(&Key::new(plane.clone(), "", name))
    }

    /// The tenant and all above it.
    pub fn chain(&self, plane: &PlaneId, name: &str) -> Option<Chain> {
        Some(chain(self.tenant(plane, name)?, |name| self.tenant(plane, name)))
    }

    /// The tenant and all below it, by name.
    pub fn family(&self, plane: &PlaneId, name: &str) -> BTreeSet<String> {
        family(&self.tenants, plane, name)
    }

    /// What the namespace controller keeps in a namespace.
    pub(crate) fn children(&self, plane: &PlaneId, namespace: &str) -> Children {
        let of = |(kind, store): &(ChildKind, Store<Value>)| {
            let objects = store.in_namespace(plane, namespace).into_iter();
            let kind = *kind;
            objects.map(move |(key, object)| ((kind, key.name.to_string()), object)).collect::<Vec<_>>()
        };
        self.children.iter().flat_map(of).collect()
    }

    /// A managed ClusterRole or ClusterRoleBinding.
    pub(crate) fn role(&self, plane: &PlaneId, resource: &Resource, name: &str) -> Option<Arc<Value>> {
        let store = &self.roles[usize::from(*resource == CLUSTER_ROLE_BINDINGS)];
        store.get(&Key::new(plane.clone(), "", name))
    }
}

/// A tenant and all below it, by name.
pub fn family(tenants: &Store<Tenant>, plane: &PlaneId, name: &str) -> BTreeSet<String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![name.to_owned()]);
    while let Some(name) = open.pop() {
        let below = tenants.by_index(plane, &format!("parent/{name}"));
        if found.insert(name) {
            open.extend(below.into_iter().map(|(key, _)| key.name.to_string()));
        }
    }
    found
}
