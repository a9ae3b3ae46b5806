//! What the syncer's controllers share: where projects are placed, what their Pods refer to, and the queues.

use crate::cluster::Cluster;
use crate::kinds::{CLASSES, CLUSTERS, Kind, PODS, PROJECTS, SERVICES};
use crate::references::References;
use freehold_api::{ClassWorkloads, keys::DEFAULT_CLASS};
use freehold_client::{Client, Error, Patch, PatchOptions};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Informer, Interest, Key, Planes, Queue, QueueKey, Recorder, Store};
use freehold_workloads_decide::placement::{self, Candidate};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// An object of a project that is to be on its cluster too; a namespace by its name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) key: Key,
}

impl QueueKey for Object {
    fn plane(&self) -> &PlaneId {
        &self.key.plane
    }
}

/// The queues of the syncer.
#[derive(Clone)]
pub(crate) struct Queues {
    /// Pods of projects.
    pub(crate) pods: Arc<Queue<Key>>,
    /// Everything else of projects.
    pub(crate) objects: Arc<Queue<Object>>,
    /// WorkloadClusters.
    pub(crate) clusters: Arc<Queue<Key>>,
}

/// What is kept of a project.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProjectView {
    plane: PlaneId,
    class: Box<str>,
    cluster: Box<str>,
}

/// What is kept of a project's Pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodView {
    pub(crate) uid: Box<str>,
    pub(crate) node: Box<str>,
    pub(crate) version: u64,
}

/// What the syncer is told at its start.
pub(crate) struct Terms {
    /// Host and port of the projects' API for Pods.
    pub(crate) api: (String, u16),
    /// Where the server reaches the syncer.
    pub(crate) address: SocketAddr,
}

/// A project's place.
pub(crate) struct Placed {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) class: Arc<ClassWorkloads>,
}

/// Where a project's Pods go.
pub(crate) enum Place {
    /// To a cluster.
    On(Placed),
    /// To a cluster that is not connected now, or to none that has room.
    Waiting,
    /// Nowhere: the project has nodes of its own, or is no more.
    Nowhere,
}

/// What the syncer's controllers share.
pub(crate) struct World {
    pub(crate) planes: Planes,
    pub(crate) core: Client,
    pub(crate) terms: Terms,
    pub(crate) queues: Queues,
    pub(crate) pods: Store<PodView>,
    /// Services of projects: which there are.
    pub(crate) services: Store<()>,
    pub(crate) cluster_objects: Store<Value>,
    projects: Store<ProjectView>,
    classes: Store<Option<Arc<ClassWorkloads>>>,
    pub(crate) clusters: Mutex<BTreeMap<String, Arc<Cluster>>>,
    /// Clusters that were chosen, until watches bring that.
    chosen: Mutex<HashMap<PlaneId, String>>,
    pub(crate) references: References,
    /// Resource versions of a Pod and its host Pod when nothing was left to do.
    pub(crate) settled: Mutex<HashMap<Key, (u64, u64)>>,
    /// When tokens of Pods have to be made anew, in seconds since 1970, with the uid of the Pod.
    pub(crate) renewals: Mutex<HashMap<Key, (Box<str>, i64)>>,
    /// Planes that have a Node for their cluster.
    pub(crate) nodes: Mutex<HashMap<PlaneId, bool>>,
    pub(crate) recorder: Recorder,
}

fn project_view(project: &Value) -> Option<ProjectView> {
    let text = |path: &str| project.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let class =
        Some(text("/spec/controlPlane/class")).filter(|class| !class.is_empty()).unwrap_or(DEFAULT_CLASS);
    Some(ProjectView {
        plane: meta::uid(project).parse().ok()?,
        class: class.into(),
        cluster: text("/status/workloads/cluster").into(),
    })
}

fn pod_view(pod: &Value) -> PodView {
    PodView {
        uid: meta::uid(pod).into(),
        node: pod["spec"]["nodeName"].as_str().unwrap_or_default().into(),
        version: meta::resource_version(pod).parse().unwrap_or_default(),
    }
}

fn class_view(class: &Value) -> Option<Arc<ClassWorkloads>> {
    let workloads = class["spec"].get("workloads").filter(|workloads| workloads.is_object())?;
    serde_json::from_value(workloads.clone()).ok().map(Arc::new)
}

impl World {
    /// Starts the watches of Freehold's side.
    pub(crate) fn start(
        planes: Planes,
        terms: Terms,
        tasks: &mut JoinSet<()>,
        token: &CancellationToken,
    ) -> Arc<Self> {
        let queues = Queues { pods: Queue::new(), objects: Queue::new(), clusters: Queue::new() };
        let core = planes.within(&PlaneId::core());
        let mut pods = Informer::new(&planes, Interest::projected(PODS, |pod| Some(pod_view(&pod))));
        pods.enqueue_into(&queues.pods);
        // Each project has one of the API, which no cluster gets.
        let is_own = |key: &Key| &*key.name == "kubernetes" && &*key.namespace == "default";
        let services = Interest::projected(SERVICES, move |service| {
            (!is_own(&Key::of(PlaneId::core(), &service))).then_some(())
        });
        let mut services = Informer::new(&planes, services);
        let on_services = queues.objects.clone();
        services.on_object(move |key, _, _| {
            if !is_own(key) {
                on_services.add(Object { kind: Kind::Service, key: key.clone() });
            }
        });
        let projects = Interest::projected(PROJECTS, |project| project_view(&project))
            .index(|_, project| vec![project.plane.to_string()]);
        let projects = Informer::new(&core, projects);
        let classes = Informer::new(&core, Interest::projected(CLASSES, |class| Some(class_view(&class))));
        let mut clusters = Informer::new(&core, Interest::objects(CLUSTERS));
        clusters.enqueue_into(&queues.clusters);
        let world = Arc::new(Self {
            core: core.everywhere(),
            planes,
            terms,
            queues,
            pods: pods.store(),
            services: services.store(),
            cluster_objects: clusters.store(),
            projects: projects.store(),
            classes: classes.store(),
            clusters: Mutex::default(),
            chosen: Mutex::default(),
            references: References::default(),
            settled: Mutex::default(),
            renewals: Mutex::default(),
            nodes: Mutex::default(),
            recorder: Recorder::new("freehold-syncer"),
        });
        let (mut projects, mut classes) = (projects, classes);
        world.follow(&mut projects, &mut classes);
        crate::references::watch(&world, tasks, token);
        tasks.spawn(pods.run(token.clone()));
        tasks.spawn(services.run(token.clone()));
        tasks.spawn(projects.run(token.clone()));
        tasks.spawn(classes.run(token.clone()));
        tasks.spawn(clusters.run(token.clone()));
        world
    }

    /// Makes Pods come again when their project or its class changes, and host namespaces when a project goes.
    fn follow(
        self: &Arc<Self>,
        projects: &mut Informer<ProjectView>,
        classes: &mut Informer<Option<Arc<ClassWorkloads>>>,
    ) {
        let world = Arc::downgrade(self);
        projects.on_change(move |change| {
            let Some(world) = world.upgrade() else { return };
            match (&change.old, &change.new) {
                (_, Some(new)) if !change.initial => world.again(&new.plane),
                (Some(old), None) => world.leave(&old.plane),
                _ => {}
            }
        });
        let world = Arc::downgrade(self);
        classes.on_change(move |change| {
            let Some(world) = world.upgrade().filter(|_| !change.initial) else { return };
            for key in world.projects.keys() {
                let project = world.projects.get(&key).filter(|project| *project.class == *change.key.name);
                project.iter().for_each(|project| world.again(&project.plane));
            }
        });
    }

    fn again(&self, plane: &PlaneId) {
        for (key, _) in self.pods.in_plane(plane) {
            self.settled.lock().remove(&key);
            self.queues.pods.add(key);
        }
        for namespace in self.namespaces_of(plane) {
            self.queues.objects.add(Object { kind: Kind::Namespace, key: namespace });
        }
    }

    /// Forgets a plane that is no more.
    fn leave(&self, plane: &PlaneId) {
        for namespace in self.namespaces_of(plane) {
            self.queues.objects.add(Object { kind: Kind::Namespace, key: namespace });
        }
        self.nodes.lock().remove(plane);
        self.chosen.lock().remove(plane);
        self.settled.lock().retain(|key, _| key.plane != *plane);
        self.renewals.lock().retain(|key, _| key.plane != *plane);
        self.references.forget(plane);
    }

    fn namespaces_of(&self, plane: &PlaneId) -> Vec<Key> {
        let clusters: Vec<Arc<Cluster>> = self.clusters.lock().values().cloned().collect();
        clusters.iter().flat_map(|cluster| cluster.namespaces()).filter(|key| key.plane == *plane).collect()
    }

    /// A client for a plane.
    pub(crate) fn client(&self, plane: &PlaneId) -> Client {
        self.planes.client(plane)
    }

    fn project(&self, plane: &PlaneId) -> Option<(Key, Arc<ProjectView>)> {
        self.projects.by_index(&PlaneId::core(), plane.as_str()).into_iter().next()
    }

    /// Whether a project is there.
    pub(crate) fn knows(&self, plane: &PlaneId) -> bool {
        self.project(plane).is_some()
    }

    /// Waits until everything on Freehold's side has been seen once.
    pub(crate) async fn synced(&self, token: &CancellationToken) -> bool {
        self.projects.synced(token).await
            && self.classes.synced(token).await
            && self.cluster_objects.synced(token).await
            && self.services.synced(token).await
            && self.pods.synced(token).await
    }

    /// Where a project's Pods are, without placing it.
    pub(crate) fn place(&self, plane: &PlaneId) -> Place {
        let Some((_, project)) = self.project(plane) else { return Place::Nowhere };
        let class = self.classes.get(&Key::new(PlaneId::core(), "", &project.class));
        let Some(class) = class.and_then(|class| (*class).clone()) else { return Place::Nowhere };
        let chosen = self.chosen.lock().get(plane).cloned();
        let name = Some(project.cluster.to_string()).filter(|name| !name.is_empty()).or(chosen);
        let Some(name) = name else { return Place::Waiting };
        match self.clusters.lock().get(&name).filter(|cluster| cluster.is_synced()) {
            Some(cluster) => Place::On(Placed { cluster: cluster.clone(), class }),
            None => Place::Waiting,
        }
    }

    /// Places a project that has no cluster yet, which is recorded before anything is made there.
    ///
    /// # Errors
    /// The record can't be written.
    pub(crate) async fn assign(&self, plane: &PlaneId) -> Result<Place, Error> {
        let Some((key, project)) = self.project(plane) else { return Ok(Place::Nowhere) };
        if !project.cluster.is_empty() || self.chosen.lock().contains_key(plane) {
            return Ok(self.place(plane));
        }
        let class = self.classes.get(&Key::new(PlaneId::core(), "", &project.class));
        let Some(class) = class.and_then(|class| (*class).clone()) else { return Ok(Place::Nowhere) };
        let candidates = self.candidates();
        let Some(found) = placement::choose(&candidates, &class, plane.as_str()) else {
            return Ok(Place::Waiting);
        };
        let patch = Patch::Merge(json!({"status": {"workloads": {"cluster": found.name}}}));
        self.core.patch(&PROJECTS, None, &key.name, &patch, &PatchOptions::status()).await?;
        self.chosen.lock().insert(plane.clone(), found.name.clone());
        Ok(self.place(plane))
    }

    fn candidates(&self) -> Vec<Candidate> {
        let clusters: Vec<Arc<Cluster>> = self.clusters.lock().values().cloned().collect();
        let candidate = |cluster: &Arc<Cluster>| Candidate {
            name: cluster.name.clone(),
            is_ready: cluster.is_ready(),
            projects: if cluster.object()["spec"]["maxProjects"].is_null() {
                0
            } else {
                cluster.project_count()
            },
            object: cluster.object(),
        };
        clusters.iter().map(candidate).collect()
    }
}
