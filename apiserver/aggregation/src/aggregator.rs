//! The servers of all planes that are in use.

use crate::{
    Server,
    openapi::{Documents, OfPlane},
};
use async_trait::async_trait;
use freehold_apiserver_cache::{Cache, ListRequest};
use freehold_apiserver_catalog::Remote;
use freehold_apiserver_outbound::{Identity, Outbound};
use freehold_apiserver_planes::{RemoteSource, Remotes};
use freehold_machinery::{
    PlaneId, PlaneMap, Result,
    api_service::{GROUP, RESOURCE},
};
use parking_lot::Mutex;
use std::{
    sync::{Arc, LazyLock, Weak},
    time::{Duration, Instant},
};
use tokio::sync::{Notify, Semaphore};

/// How often is looked for servers that are to be checked.
const TICK: Duration = Duration::from_secs(1);
/// How long after a plane's last request its servers are still checked.
const IN_USE: Duration = Duration::from_secs(15 * 60);
/// Checks at a time: of all planes, and of one.
const CHECKS: (usize, usize) = (256, 4);
/// Planes without servers that are remembered.
const MAX_PLANES: usize = 4_096;
/// Servers of one plane; further `APIService` objects are stored and answered with 503.
const MAX_SERVERS: usize = 200;

static NOTHING: LazyLock<Remotes> = LazyLock::new(Remotes::default);

/// Writes the condition `Available` of `APIService` objects.
#[async_trait]
pub trait Statuses: Send + Sync + 'static {
    /// Writes it, unless it is so already, or the object is not of that uid any more.
    async fn write(
        &self,
        plane: &PlaneId,
        name: &str,
        uid: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) -> Result<()>;

    /// A server of a plane answers that did not, or does no longer.
    fn changed(&self, plane: &PlaneId);
}

/// Gives the certificates that aggregated servers are shown.
pub trait Identities: Send + Sync + 'static {
    /// The certificate for servers of a plane; `None` where this server has none to show.
    ///
    /// # Errors
    /// The reason why it cannot be created.
    fn of(&self, plane: &PlaneId) -> Result<Option<Arc<Identity>>, String>;
}

/// The aggregated servers of all planes that are in use.
pub struct Aggregator {
    pub(crate) cache: Arc<Cache>,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) identities: Arc<dyn Identities>,
    pub(crate) statuses: Arc<dyn Statuses>,
    pub(crate) documents: Documents,
    planes: Mutex<PlaneMap<Plane>>,
    wake: Notify,
    checks: Arc<Semaphore>,
}

/// The servers of a plane, as of a revision of its `APIService` objects.
struct Plane {
    revision: u64,
    used: Instant,
    remotes: Remotes,
    servers: Vec<Arc<Server>>,
    checks: Arc<Semaphore>,
    /// What its servers' documents of version 2 share.
    documents: Arc<OfPlane>,
}

impl Aggregator {
    /// Starts to look after servers, for as long as this is in use.
    pub fn start(
        cache: Arc<Cache>,
        outbound: Arc<Outbound>,
        identities: Arc<dyn Identities>,
        statuses: Arc<dyn Statuses>,
    ) -> Arc<Self> {
        let aggregator = Arc::new(Self {
            cache,
            outbound,
            identities,
            statuses,
            documents: Documents::default(),
            planes: Mutex::default(),
            wake: Notify::new(),
            checks: Arc::new(Semaphore::new(CHECKS.0)),
        });
        tokio::spawn(run(Arc::downgrade(&aggregator)));
        aggregator
    }

    /// The server of a group and version, as the plane's objects were when its types were asked for last.
    pub fn server(&self, plane: &PlaneId, group: &str, version: &str) -> Option<Arc<Server>> {
        let planes = self.planes.lock();
        let servers = &planes.get(plane)?.servers;
        servers.iter().find(|server| server.group == group && server.version == version).cloned()
    }

    /// The servers of a plane.
    pub(crate) fn servers(&self, plane: &PlaneId) -> Vec<Arc<Server>> {
        self.planes.lock().get(plane).map(|plane| plane.servers.clone()).unwrap_or_default()
    }

    /// What the documents of a plane's servers share; `None` without servers.
    pub(crate) fn documents_of(&self, plane: &PlaneId) -> Option<Arc<OfPlane>> {
        let planes = self.planes.lock();
        planes.get(plane).filter(|plane| !plane.servers.is_empty()).map(|plane| plane.documents.clone())
    }

    /// The certificate for a plane's servers.
    ///
    /// # Errors
    /// It can't be made.
    pub fn identity(&self, plane: &PlaneId) -> Result<Option<Arc<Identity>>, String> {
        self.identities.of(plane)
    }

    /// Makes what discovery shows of a plane's servers anew.
    pub(crate) fn changed(&self, plane: &PlaneId) {
        if let Some(plane) = self.planes.lock().get_mut(plane) {
            let now = shown(&plane.servers);
            if !same(&now, &plane.remotes) {
                plane.remotes = now;
            }
        }
    }

    async fn read(&self, plane: &PlaneId, revision: u64) -> Result<Remotes> {
        let request = ListRequest { plane, group: GROUP, resource: RESOURCE, namespace: None };
        let listed = self.cache.list(request).await?.objects;
        let remote = listed.iter().filter(|entry| !entry.field("spec.service.name").is_empty());
        let objects: Vec<_> = remote.take(MAX_SERVERS).map(|entry| entry.value()).collect();
        let mut planes = self.planes.lock();
        let known = planes.remove(plane);
        let checks = known.as_ref().map(|known| known.checks.clone());
        let documents = known.as_ref().map(|known| known.documents.clone()).unwrap_or_default();
        let before = known.map(|known| known.servers).unwrap_or_default();
        let kept = |object: &_| before.iter().find(|server| server.is_of(object)).cloned();
        let servers: Vec<Arc<Server>> = objects
            .iter()
            .filter_map(|object| kept(object).or_else(|| Server::of(plane, object).map(Arc::new)))
            .collect();
        if servers.is_empty() && planes.len() >= MAX_PLANES {
            planes.retain(|_, plane| !plane.servers.is_empty());
        }
        let (remotes, used) = (shown(&servers), Instant::now());
        let checks = checks.unwrap_or_else(|| Arc::new(Semaphore::new(CHECKS.1)));
        if !servers.is_empty() {
            self.wake.notify_one();
        }
        let now = Plane { revision, used, remotes: remotes.clone(), servers, checks, documents };
        planes.insert(plane.clone(), now);
        Ok(remotes)
    }

    /// The planes in use that have servers.
    fn in_use(&self) -> Vec<(PlaneId, Vec<Arc<Server>>, Arc<Semaphore>)> {
        let mut planes = self.planes.lock();
        planes.retain(|_, plane| plane.servers.is_empty() || plane.used.elapsed() < IN_USE);
        let with_servers = planes.iter().filter(|(_, plane)| !plane.servers.is_empty());
        with_servers.map(|(id, plane)| (id.clone(), plane.servers.clone(), plane.checks.clone())).collect()
    }

    /// Checks each server whose time has come, or whose Service has changed. `false` where there is none to look after.
    async fn tick(self: &Arc<Self>) -> bool {
        let planes = self.in_use();
        for (plane, servers, checks) in &planes {
            let services = self.cache.changed(plane, "", "services").await;
            let slices = self.cache.changed(plane, "discovery.k8s.io", "endpointslices").await;
            let (Ok(services), Ok(slices)) = (services, slices) else { continue };
            for server in servers.iter().filter(|server| server.begin_check((services, slices))) {
                let (aggregator, server, checks) = (self.clone(), server.clone(), checks.clone());
                tokio::spawn(async move {
                    let _places = (checks.acquire().await, aggregator.checks.acquire().await);
                    aggregator.check(&server).await;
                });
            }
        }
        !planes.is_empty()
    }
}

async fn run(aggregator: Weak<Aggregator>) {
    while let Some(aggregator) = aggregator.upgrade() {
        if aggregator.tick().await {
            let _ = tokio::time::timeout(TICK, aggregator.wake.notified()).await;
        } else {
            aggregator.wake.notified().await;
        }
    }
}

/// What discovery shows of servers.
fn shown(servers: &[Arc<Server>]) -> Remotes {
    match servers {
        [] => NOTHING.clone(),
        _ => Arc::new(servers.iter().map(|server| Arc::new(server.remote())).collect()),
    }
}

fn same(a: &[Arc<Remote>], b: &[Arc<Remote>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}

#[async_trait]
impl RemoteSource for Aggregator {
    async fn remotes(&self, plane: &PlaneId) -> Result<Remotes> {
        let revision = self.cache.changed(plane, GROUP, RESOURCE).await?;
        if let Some(known) = self.planes.lock().get_mut(plane)
            && known.revision == revision
        {
            known.used = Instant::now();
            return Ok(known.remotes.clone());
        }
        self.read(plane, revision).await
    }
}
