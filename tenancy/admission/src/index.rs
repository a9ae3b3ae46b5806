//! What decisions look things up in: informers of tenants, namespaces and Ingresses.

use freehold_client::Resource;
use freehold_machinery::{GroupResource, PlaneId, Value};
use freehold_runtime::{Informer, Interest, Key, Scope, Store};
use freehold_tenancy_api::tenant::{CollisionScope, Subject, Tenant};
use freehold_tenancy_controllers::observed::{Informers, member_entry};
use freehold_tenancy_controllers::usage::Usages;
use freehold_tenancy_decide::admission::{HostUse, Index, hosts_of};
use freehold_tenancy_decide::tenant::Namespace;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const INGRESSES: Resource = Resource::namespaced("networking.k8s.io", "v1", "ingresses");
/// How long a host name that was let in is remembered before the informer has its Ingress.
const PENDING: Duration = Duration::from_secs(10);
/// Most host names that are remembered.
const MAX_PENDING: usize = 10_000;

type HostPath = (String, String);

/// The state that decisions need, kept current by informers. Cheap to clone.
#[derive(Clone)]
pub struct Live {
    plane: PlaneId,
    tenants: Store<Tenant>,
    namespaces: Store<Namespace>,
    hosts: Store<Vec<HostPath>>,
    pending: Arc<Mutex<HashMap<HostPath, (HostUse, Instant)>>>,
    usages: Usages,
}

impl Live {
    /// Starts the informers in a plane.
    pub fn start(scope: &Scope, plane: PlaneId) -> Self {
        let (mut tenants, mut namespaces, mut quotas) = Informers::of_tenants(&scope.planes);
        let usages = Usages::new(scope, &mut tenants, &mut namespaces, &mut quotas);
        let resource = GroupResource::new("networking.k8s.io", "ingresses");
        let project = move |object: Value| Some(hosts_of(&resource, &object).into_iter().collect::<Vec<_>>());
        let interest = Interest::projected(INGRESSES, project).index(|_, hosts: &Vec<HostPath>| {
            hosts.iter().map(|(host, path)| format!("{host}{path}")).collect()
        });
        let ingresses = Informer::new(&scope.planes, interest);
        let live = Self {
            plane,
            tenants: tenants.store(),
            namespaces: namespaces.store(),
            hosts: ingresses.store(),
            pending: Arc::default(),
            usages,
        };
        // Ingresses are watched from the first tenant on whose host names must not collide.
        let (waiting, started) = (Mutex::new(Some(ingresses)), AtomicBool::new(false));
        let (tasks, token) = (scope.tasks.clone(), scope.token.clone());
        tenants.on_change(move |change| {
            let collides =
                |tenant: &Arc<Tenant>| tenant.spec.hosts.collision_scope != CollisionScope::Disabled;
            if change.new.as_ref().is_some_and(collides)
                && !started.swap(true, Ordering::AcqRel)
                && let Some(informer) = waiting.lock().take()
            {
                tasks.spawn(informer.run(token.clone()));
            }
        });
        scope.tasks.spawn(tenants.run(scope.token.clone()));
        scope.tasks.spawn(namespaces.run(scope.token.clone()));
        scope.tasks.spawn(quotas.run(scope.token.clone()));
        live
    }

    /// Whether all tenants and namespaces are known.
    pub fn is_synced(&self) -> bool {
        self.tenants.is_synced() && self.namespaces.is_synced()
    }

    /// Returns the index of what tenants use.
    pub fn usages(&self) -> &Usages {
        &self.usages
    }

    /// The plane that requests are about.
    pub fn plane(&self) -> &PlaneId {
        &self.plane
    }

    /// Remembers the host names of an object that was let in, until the informer has it.
    pub fn remember_hosts(&self, resource: &GroupResource, namespace: &str, name: &str, object: &Value) {
        let hosts = hosts_of(resource, object);
        if hosts.is_empty() {
            return;
        }
        let mut pending = self.pending.lock();
        pending.retain(|_, (_, since)| since.elapsed() < PENDING);
        let tenant = self.namespace(namespace).and_then(|namespace| namespace.tenant().map(str::to_owned));
        let user = HostUse { namespace: namespace.to_owned(), tenant, name: name.to_owned() };
        for host in hosts.into_iter().take(MAX_PENDING.saturating_sub(pending.len())) {
            pending.insert(host, (user.clone(), Instant::now()));
        }
    }
}

impl Index for Live {
    fn namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        self.namespaces.get(&Key::new(self.plane.clone(), "", name))
    }

    fn tenant(&self, name: &str) -> Option<Arc<Tenant>> {
        self.tenants.get(&Key::new(self.plane.clone(), "", name))
    }

    fn tenants_of(&self, subject: &Subject) -> Vec<Arc<Tenant>> {
        let found = self.tenants.by_index(&self.plane, &member_entry(subject));
        found.into_iter().map(|(_, tenant)| tenant).collect()
    }

    fn host_uses(&self, host: &str, path: &str) -> Vec<HostUse> {
        let stored =
            self.hosts.by_index(&self.plane, &format!("{host}{path}")).into_iter().map(|(key, _)| {
                let namespace = self.namespace(&key.namespace);
                HostUse {
                    tenant: namespace.and_then(|namespace| namespace.tenant().map(str::to_owned)),
                    namespace: key.namespace.to_string(),
                    name: key.name.to_string(),
                }
            });
        let pending = self.pending.lock();
        let recent = pending.get(&(host.to_owned(), path.to_owned()));
        let recent = recent.filter(|(_, since)| since.elapsed() < PENDING).map(|(user, _)| user.clone());
        stored.chain(recent).collect()
    }
}
