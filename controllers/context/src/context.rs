//! What every controller is started with, and the informers that several share.

use crate::config::Config;
use crate::kinds;
use crate::node::NodeView;
use crate::object::NamespaceView;
use crate::pods::PodView;
use crate::project::ProjectView;
use crate::revisions::Revision;
use crate::services::Kept;
use freehold_client::Client;
use freehold_machinery::{PlaneId, Value};
use freehold_runtime::{Controller, Informer, Interest, Key, Metrics, Planes, Queue, Store, resync};
pub use freehold_runtime::{Reconcile, Synced};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often every object that a controller looks after is looked at without a cause.
pub const RESYNC: Duration = Duration::from_secs(30 * 60);

/// How long changes of what an object counts are gathered, where many come at about the same time: its status tells of them at
/// once, and who follows that takes one step for all of them.
pub const TOGETHER: Duration = Duration::from_millis(100);

/// What every controller is started with.
pub struct Context {
    /// Configuration of the manager.
    pub config: Config,
    /// The planes that controllers of Kubernetes work in.
    pub planes: Planes,
    /// The core plane, for Freehold's own.
    pub core: Planes,
    /// The plane on which dedicated pairs run.
    pub infra: Planes,
    /// Where controllers count.
    pub metrics: Metrics,
    /// Cancelled when controllers have to stop.
    pub token: CancellationToken,
    /// Holds the running tasks; whoever stops the controllers waits for them.
    pub tasks: TaskTracker,
    shared: Shared,
    /// What every controller waits for before it begins.
    first: Vec<Arc<dyn Synced>>,
}

/// Informers that several controllers read. Made when first asked for, started when all handlers are in.
#[derive(Default)]
struct Shared {
    namespaces: Option<Informer<NamespaceView>>,
    pods: Option<Informer<PodView>>,
    replica_sets: Option<Informer<Value>>,
    stateful_sets: Option<Informer<Value>>,
    revisions: Option<Informer<Revision>>,
    claims: Option<Informer<Value>>,
    daemon_sets: Option<Informer<Value>>,
    nodes: Option<Informer<NodeView>>,
    jobs: Option<Informer<Value>>,
    services: Option<Informer<Value>>,
    endpoints: Option<Informer<Kept>>,
    endpoint_slices: Option<Informer<Kept>>,
    deployments: Option<Informer<Value>>,
    organizations: Option<Informer<Value>>,
    projects: Option<Informer<ProjectView>>,
}

/// Makes the accessor of each shared informer, and what starts those that were asked for.
macro_rules! shared {
    ($($name:ident: $view:ty = $scope:ident, $interest:expr;)*) => {
        impl Context {
            $(
                /// Returns the informer that controllers share, made at the first call.
                pub fn $name(&mut self) -> &mut Informer<$view> {
                    let planes = &self.$scope;
                    self.shared.$name.get_or_insert_with(|| Informer::new(planes, $interest))
                }
            )*

            /// Starts the shared informers that anyone asked for.
            pub fn run_shared(&mut self) {
                $(
                    if let Some(informer) = self.shared.$name.take() {
                        self.tasks.spawn(informer.run(self.token.clone()));
                    }
                )*
            }
        }
    };
}

shared! {
    namespaces: NamespaceView = planes, Interest::projected(kinds::NAMESPACES, NamespaceView::of);
    pods: PodView = planes, Interest::projected(kinds::PODS, PodView::of).index(PodView::index);
    replica_sets: Value = planes, Interest::objects(kinds::REPLICA_SETS).index(crate::object::owner_and_own);
    deployments: Value = planes, Interest::objects(kinds::DEPLOYMENTS);
    stateful_sets: Value = planes, Interest::objects(kinds::STATEFUL_SETS).index(crate::object::own_index);
    revisions: Revision = planes,
        Interest::projected(kinds::CONTROLLER_REVISIONS, Revision::of).index(Revision::index);
    claims: Value = planes, Interest::objects(kinds::CLAIMS);
    daemon_sets: Value = planes, Interest::objects(kinds::DAEMON_SETS).index(crate::object::own_index);
    nodes: NodeView = planes, Interest::projected(kinds::NODES, NodeView::of);
    jobs: Value = planes, Interest::objects(kinds::JOBS).index(crate::object::uid_and_owner);
    services: Value = planes, Interest::projected(kinds::SERVICES, crate::services::service_view);
    endpoints: Kept = planes, Interest::projected(kinds::ENDPOINTS, Kept::endpoints);
    endpoint_slices: Kept = planes, Interest::projected(kinds::ENDPOINT_SLICES, Kept::slice).index(Kept::index);
    organizations: Value = core, Interest::objects(kinds::ORGANIZATIONS);
    projects: ProjectView = core,
        Interest::projected(kinds::PROJECTS, ProjectView::of).index(crate::project::project_index);
}

impl Context {
    /// Returns a context without any informer; `infra` is a client of the plane on which pairs run.
    pub fn new(config: Config, client: Client, infra: Client, token: CancellationToken) -> Self {
        let planes = match &config.scope {
            crate::config::Scope::AllPlanes => match config.parts {
                None => Planes::all(client.clone()),
                Some(count) => Planes::in_parts(client.clone(), count),
            },
            crate::config::Scope::OnePlane { plane, base_path } => {
                Planes::one(client.clone(), plane.clone(), base_path)
            }
        };
        let infra_base = if config.infra.is_some() { "" } else { "/planes/infra" };
        let core = match config.parts {
            None => Planes::one(client, PlaneId::core(), "/planes/core"),
            Some(_) => planes.beside(PlaneId::core(), "/planes/core"),
        };
        Self {
            metrics: config.metrics.clone(),
            config,
            planes,
            core,
            infra: Planes::one(infra, PlaneId::infra(), infra_base),
            token,
            tasks: TaskTracker::new(),
            shared: Shared::default(),
            first: Vec::new(),
        }
    }

    /// What controllers of other crates are started with.
    pub fn of_others(&self) -> freehold_controllers::Context {
        let platform = match self.config.scope {
            crate::config::Scope::AllPlanes => self.core.clone(),
            crate::config::Scope::OnePlane { .. } => self.planes.clone(),
        };
        freehold_controllers::Context {
            planes: self.planes.clone(),
            platform,
            metrics: self.metrics.clone(),
            token: self.token.clone(),
            tasks: self.tasks.clone(),
            options: self.config.options.clone(),
            first: self.first.clone(),
            leaves: crate::handover::leaves,
        }
    }

    /// Runs an informer that only one controller has, and gives its store.
    pub fn run_informer<T: Send + Sync + 'static>(&self, informer: Informer<T>) -> Store<T> {
        let store = informer.store();
        self.tasks.spawn(informer.run(self.token.clone()));
        store
    }

    /// Runs an informer once another store is complete, which its projection reads.
    pub fn run_informer_after<T: Send + Sync + 'static, U: Send + Sync + 'static>(
        &self,
        first: &Store<U>,
        informer: Informer<T>,
    ) -> Store<T> {
        let (store, first, token) = (informer.store(), first.clone(), self.token.clone());
        self.tasks.spawn(async move {
            if first.synced(&token).await {
                informer.run(token).await;
            }
        });
        store
    }

    /// Makes every controller that is started from now on wait for a store too.
    pub fn wait_for<T: Send + Sync + 'static>(&mut self, store: Store<T>) {
        self.first.push(Arc::new(store));
    }

    /// Runs a controller once the stores that it reads are complete.
    pub fn control<R: Reconcile>(
        &self,
        name: &'static str,
        workers: usize,
        queue: &Arc<Queue<R::Key>>,
        stores: &[&dyn Synced],
        reconciler: R,
    ) {
        let first = self.first.iter().map(|store| &**store);
        let waits: Vec<_> =
            first.chain(stores.iter().copied()).map(|store| store.wait(self.token.clone())).collect();
        let controller = Controller::new(name, queue.clone()).workers(workers).metrics(&self.metrics);
        let (token, planes) = (self.token.clone(), self.planes.clone());
        let leaves = move |plane: &PlaneId| crate::handover::leaves(name, plane, &planes);
        self.tasks.spawn(controller.run_in_planes(self.planes.clone(), waits, leaves, reconciler, token));
    }

    /// Adds every key of a store to a queue from time to time.
    pub fn resync<T: Send + Sync + 'static>(&self, store: &Store<T>, queue: &Arc<Queue<Key>>) {
        self.resync_every(RESYNC, store, queue);
    }

    /// Adds every key of a store to a queue at each end of a period.
    pub fn resync_every<T: Send + Sync + 'static>(
        &self,
        period: Duration,
        store: &Store<T>,
        queue: &Arc<Queue<Key>>,
    ) {
        self.tasks.spawn(resync(store.clone(), queue.clone(), period, self.token.clone()));
    }
}
