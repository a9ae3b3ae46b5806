//! A shared cluster: what the syncer keeps of its objects there, one watch a kind whatever the number of projects.

use crate::kinds::{EVENTS, KINDS, Kind, NODES, PODS};
use crate::world::{Object, Queues};
use freehold_client::{Client, DeleteOptions, Error};
use freehold_machinery::{PlaneId, Value, meta, quantity::Quantity};
use freehold_runtime::{Informer, Interest, Key, Planes, Store, conditions};
use freehold_workloads_decide::names::{self, HASH, NAME, NAMESPACE, PROJECT, UID};
use freehold_workloads_decide::pod::ServiceAddress;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The field manager of everything that the syncer applies.
const FIELD_MANAGER: &str = "freehold-syncer";
/// For how long a write of the syncer's own is remembered that its watch has not brought.
const RECENT: Duration = Duration::from_secs(60);

/// What is kept of a host Pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostPod {
    /// The project's Pod.
    pub(crate) of: Key,
    /// Its uid.
    pub(crate) uid: Box<str>,
    pub(crate) version: u64,
}

/// What is kept of another host object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// The project's object; of a namespace and what guards it the project's namespace.
    of: Key,
    hash: Box<str>,
    fingerprint: u64,
    version: u64,
    /// For a Service: its address.
    ip: Option<Box<str>>,
    /// For a claim or a Service: a number for its status.
    status: u64,
}

/// What is kept of a node of the host.
#[derive(Clone, Debug, PartialEq)]
struct HostNode {
    is_ready: bool,
    allocatable: Vec<(String, Quantity)>,
}

/// A write of the syncer's own.
struct Recent {
    hash: String,
    version: String,
    at: Instant,
}

/// A shared cluster that is connected.
pub(crate) struct Cluster {
    pub(crate) name: String,
    /// A number for what it was connected with.
    pub(crate) credentials: u64,
    pub(crate) client: Client,
    /// The WorkloadCluster.
    pub(crate) object: Mutex<Arc<Value>>,
    pub(crate) pods: Store<HostPod>,
    objects: BTreeMap<Kind, Store<Seen>>,
    nodes: Store<HostNode>,
    recent: Mutex<HashMap<(Kind, Key), Recent>>,
    drifted: Arc<Mutex<HashSet<(Kind, Key)>>>,
    pub(crate) ready: AtomicBool,
    pub(crate) token: CancellationToken,
}

/// The plane that keys of host objects have.
pub(crate) fn host_plane() -> PlaneId {
    PlaneId::infra()
}

/// The project's object that a host object is of; `None` for what only looks like one of the syncer's.
fn origin(object: &Value, is_guard: bool) -> Option<Key> {
    let project: PlaneId = meta::label(object, PROJECT)?.parse().ok()?;
    let namespace = meta::annotation(object, NAMESPACE)?;
    let name = if is_guard { namespace } else { meta::annotation(object, NAME)? };
    let expected = names::host_namespace(project.as_str(), namespace);
    let stands_in =
        if meta::namespace(object).is_empty() { meta::name(object) } else { meta::namespace(object) };
    (stands_in == expected).then(|| Key::new(project, if is_guard { "" } else { namespace }, name))
}

fn version(object: &Value) -> u64 {
    meta::resource_version(object).parse().unwrap_or_default()
}

fn number(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.to_string().hash(&mut hasher);
    hasher.finish()
}

/// A number for everything of an object that a controller or person could change, but its status.
fn fingerprint(object: &Value) -> u64 {
    let mut object = object.clone();
    for field in ["status", "apiVersion", "kind"] {
        object.as_object_mut().map(|fields| fields.remove(field));
    }
    for field in ["resourceVersion", "managedFields", "generation", "creationTimestamp", "uid", "finalizers"]
    {
        meta::remove(&mut object, field);
    }
    number(&object)
}

fn host_pod(pod: &Value) -> Option<HostPod> {
    let uid = meta::annotation(pod, UID)?.into();
    Some(HostPod { of: origin(pod, false)?, uid, version: version(pod) })
}

fn seen(kind: Kind, object: &Value) -> Option<Seen> {
    let ip = object["spec"]["clusterIP"].as_str().filter(|ip| kind == Kind::Service && *ip != "None");
    Some(Seen {
        of: origin(object, kind.is_guard())?,
        hash: meta::annotation(object, HASH).unwrap_or_default().into(),
        fingerprint: fingerprint(object),
        version: version(object),
        ip: ip.map(Into::into),
        status: number(&object["status"]),
    })
}

fn host_node(node: &Value) -> Option<HostNode> {
    let allocatable = node["status"]["allocatable"].as_object().into_iter().flatten();
    let allocatable =
        allocatable.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.parse().ok()?)));
    let is_ready =
        conditions::is_true(&node["status"]["conditions"], "Ready") && node["spec"]["unschedulable"] != true;
    Some(HostNode { is_ready, allocatable: allocatable.collect() })
}

impl Cluster {
    /// Starts the watches of a cluster. Events of its Pods go to `events`.
    pub(crate) fn start(
        object: Arc<Value>,
        (client, credentials): (Client, u64),
        queues: &Queues,
        (tasks, token): (&mut JoinSet<()>, CancellationToken),
        events: mpsc::Sender<(String, Value)>,
    ) -> Self {
        let planes = Planes::one(client.clone(), host_plane(), "");
        let drifted = Arc::new(Mutex::new(HashSet::new()));
        let mut pods =
            Informer::new(&planes, Interest::projected(PODS, |pod| host_pod(&pod)).labels(PROJECT));
        let on_pods = queues.pods.clone();
        pods.on_change(move |change| {
            if let Some(pod) = change.new.as_ref().or(change.old.as_ref()) {
                on_pods.add(pod.of.clone());
            }
        });
        let pods_store = pods.store();
        tasks.spawn(pods.run(token.clone()));
        let mut objects = BTreeMap::new();
        for (kind, _, resource) in &KINDS {
            let kind = *kind;
            let interest =
                Interest::projected(resource.clone(), move |object| seen(kind, &object)).labels(PROJECT);
            let interest = match kind {
                Kind::Service => interest.index(|_, seen| vec![seen.of.plane.to_string()]),
                _ => interest,
            };
            let mut informer = Informer::new(&planes, interest);
            let (queues, marks) = (queues.clone(), drifted.clone());
            informer.on_change(move |change| {
                changed(
                    kind,
                    change.old.as_deref(),
                    change.new.as_deref(),
                    change.initial,
                    (&change.key, &queues, &marks),
                );
            });
            objects.insert(kind, informer.store());
            tasks.spawn(informer.run(token.clone()));
        }
        let nodes = Informer::new(&planes, Interest::projected(NODES, |node| host_node(&node)));
        let nodes_store = nodes.store();
        tasks.spawn(nodes.run(token.clone()));
        let interest =
            Interest::projected(EVENTS, |_| None::<()>).fields("involvedObject.kind=Pod").from_now();
        let (mut informer, name) = (Informer::new(&planes, interest), meta::name(&object).to_owned());
        let from = name.clone();
        informer.on_object(move |key, event, _| {
            // Events are no part of anything's correctness: too many at once are left out.
            if key.namespace.starts_with("project-") {
                let _ = events.try_send((from.clone(), event.clone()));
            }
        });
        tasks.spawn(informer.run(token.clone()));
        Self {
            name,
            credentials,
            client,
            object: Mutex::new(object),
            pods: pods_store,
            objects,
            nodes: nodes_store,
            recent: Mutex::default(),
            drifted,
            ready: AtomicBool::new(false),
            token,
        }
    }

    /// Whether everything of the cluster has been seen once.
    pub(crate) fn is_synced(&self) -> bool {
        self.pods.is_synced() && self.objects.values().all(Store::is_synced)
    }

    /// Whether it answers and everything has been seen.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }

    pub(crate) fn object(&self) -> Arc<Value> {
        self.object.lock().clone()
    }

    /// The key on the host of an object of a project.
    pub(crate) fn key(&self, of: &Key) -> Key {
        let namespace = names::host_namespace(of.plane.as_str(), &of.namespace);
        Key::new(host_plane(), &namespace, &names::host_name(&of.name))
    }

    fn key_of(&self, kind: Kind, of: &Key) -> Key {
        match kind {
            Kind::Namespace => {
                Key::new(host_plane(), "", &names::host_namespace(of.plane.as_str(), &of.name))
            }
            _ => self.key(of),
        }
    }

    /// Whether the host has an object of a project.
    pub(crate) fn has(&self, kind: Kind, of: &Key) -> bool {
        self.has_named(kind, &self.key_of(kind, of))
    }

    /// Whether the host has an object, by its name there.
    pub(crate) fn has_named(&self, kind: Kind, key: &Key) -> bool {
        self.objects.get(&kind).is_some_and(|store| store.get(key).is_some())
    }

    /// The projects' namespaces that are here.
    pub(crate) fn namespaces(&self) -> Vec<Key> {
        self.origins(Kind::Namespace)
    }

    /// The projects' objects of a kind that are here. Secrets with tokens are of Pods, and not among them.
    pub(crate) fn origins(&self, kind: Kind) -> Vec<Key> {
        let Some(store) = self.objects.get(&kind) else { return Vec::new() };
        let all = store.keys().into_iter().filter_map(|key| Some((store.get(&key)?.of.clone(), key)));
        all.filter(|(of, key)| *key.name != *names::token_secret(&of.name)).map(|(of, _)| of).collect()
    }

    /// Secrets with tokens, by their Pods.
    pub(crate) fn tokens(&self) -> Vec<(Key, Key)> {
        let Some(store) = self.objects.get(&Kind::Secret) else { return Vec::new() };
        let all = store.keys().into_iter().filter_map(|key| Some((store.get(&key)?.of.clone(), key)));
        all.filter(|(of, key)| *key.name == *names::token_secret(&of.name)).collect()
    }

    /// The Services of a project that have an address.
    pub(crate) fn services(&self, project: &PlaneId) -> Vec<ServiceAddress> {
        let Some(store) = self.objects.get(&Kind::Service) else { return Vec::new() };
        let all = store.by_index(&host_plane(), project.as_str()).into_iter();
        let addressed = all.filter_map(|(_, seen)| {
            let (namespace, name) = (seen.of.namespace.to_string(), seen.of.name.to_string());
            Some(ServiceAddress { namespace, name, ip: seen.ip.as_ref()?.to_string() })
        });
        addressed.collect()
    }

    /// Ready nodes, and what they have for Pods together.
    pub(crate) fn capacity(&self) -> (i64, BTreeMap<String, String>) {
        let (mut count, mut sums) = (0, BTreeMap::<String, Quantity>::new());
        let nodes = self.nodes.keys().into_iter().filter_map(|key| self.nodes.get(&key));
        for node in nodes.filter(|node| node.is_ready) {
            count += 1;
            for (name, value) in &node.allocatable {
                let sum = sums.get(name).map_or(*value, |sum| sum.plus(value));
                sums.insert(name.clone(), sum);
            }
        }
        (count, sums.into_iter().map(|(name, sum)| (name, sum.to_string())).collect())
    }

    /// Makes a host object what it is to be, unless it is.
    ///
    /// # Errors
    /// The cluster refuses it, or does not answer.
    pub(crate) async fn ensure(&self, mut desired: Value) -> Result<(), Error> {
        let kind = desired["kind"].as_str().and_then(Kind::of);
        let kind = kind.ok_or_else(|| Error::Config("the syncer makes no objects of this kind".into()))?;
        let key = Key::of(host_plane(), &desired);
        let hash = names::content_hash(&desired);
        desired["metadata"]["annotations"][HASH] = hash.clone().into();
        let drifted = self.drifted.lock().remove(&(kind, key.clone()));
        if !drifted && self.is_current(kind, &key, &hash) {
            return Ok(());
        }
        let answer = self.write(kind, &key, &desired).await?;
        let version = meta::resource_version(&answer).to_owned();
        self.recent.lock().insert((kind, key), Recent { hash, version, at: Instant::now() });
        Ok(())
    }

    fn is_current(&self, kind: Kind, key: &Key, hash: &str) -> bool {
        let Some(store) = self.objects.get(&kind) else { return false };
        let recent = self.recent.lock();
        match recent.get(&(kind, key.clone())) {
            // The watch has not brought the write yet.
            Some(recent) if !store.has_seen(&recent.version) => recent.hash == hash,
            _ => store.get(key).is_some_and(|seen| *seen.hash == *hash),
        }
    }

    async fn write(&self, kind: Kind, key: &Key, desired: &Value) -> Result<Value, Error> {
        let resource = kind.resource();
        // A namespace may be somebody else's. Everything else is in one of the syncer's own, and applied: what is wanted no
        // more has to go.
        if kind == Kind::Namespace && !self.has_named(kind, key) {
            match self.client.create(resource, desired).await {
                Err(error) if error.is_already_exists() => self.check_owner(key, desired).await?,
                other => return other,
            }
        }
        match self.client.apply(resource, FIELD_MANAGER, desired).await {
            // A field that can't change has.
            Err(error) if error.code() == 422 && matches!(kind, Kind::Secret | Kind::Service) => {
                self.client.delete(resource, key.ns(), &key.name, &DeleteOptions::default()).await?;
                self.client.create(resource, desired).await
            }
            other => other,
        }
    }

    /// Refuses a namespace that is somebody else's, or another's of the project whose name has the same hash.
    async fn check_owner(&self, key: &Key, desired: &Value) -> Result<(), Error> {
        let has = self.client.get(Kind::Namespace.resource(), None, &key.name).await?;
        let is_same = meta::label(&has, PROJECT) == meta::label(desired, PROJECT)
            && meta::annotation(&has, NAMESPACE) == meta::annotation(desired, NAMESPACE);
        match is_same {
            true => Ok(()),
            false => Err(Error::Config(format!("namespace {} of the cluster is another's", key.name))),
        }
    }

    /// Removes a host object, if it is there.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer.
    pub(crate) async fn remove(&self, kind: Kind, of: &Key) -> Result<(), Error> {
        self.remove_named(kind, &self.key_of(kind, of)).await
    }

    /// Removes a host object by its name on the host, if it is there.
    ///
    /// # Errors
    /// The cluster refuses, or does not answer.
    pub(crate) async fn remove_named(&self, kind: Kind, key: &Key) -> Result<(), Error> {
        self.recent.lock().remove(&(kind, key.clone()));
        match self.client.delete(kind.resource(), key.ns(), &key.name, &DeleteOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    /// Forgets writes that the watch has brought long ago.
    pub(crate) fn tidy(&self) {
        self.recent.lock().retain(|_, recent| recent.at.elapsed() < RECENT);
    }

    /// The status of the WorkloadCluster.
    pub(crate) fn status(&self, version: &str, is_ready: bool) -> Value {
        let (nodes, allocatable) = self.capacity();
        let projects: HashSet<PlaneId> = self.namespaces().into_iter().map(|key| key.plane).collect();
        let mut status = self.object()["status"].clone();
        status["version"] = version.into();
        status["nodes"] = nodes.into();
        status["projects"] = projects.len().into();
        status["allocatable"] = json!(allocatable);
        let (value, reason, message) = match is_ready {
            true => ("True", "Connected", "the cluster answers"),
            false => {
                ("False", "Unreachable", "the cluster does not answer, or not everything has been read yet")
            }
        };
        let ready = conditions::Set { type_: "Ready", status: value, reason, message, generation: None };
        conditions::set(&mut status["conditions"], ready, jiff::Timestamp::now());
        status
    }

    /// Projects that are placed here, as far as they have namespaces.
    pub(crate) fn project_count(&self) -> usize {
        let projects: HashSet<PlaneId> = self.namespaces().into_iter().map(|key| key.plane).collect();
        projects.len()
    }
}

type Marks<'a> = (&'a Key, &'a Queues, &'a Mutex<HashSet<(Kind, Key)>>);

/// Brings what a change of a host object concerns into the queue.
fn changed(
    kind: Kind,
    old: Option<&Seen>,
    new: Option<&Seen>,
    initial: bool,
    (key, queues, marks): Marks<'_>,
) {
    let Some(seen) = new.or(old) else { return };
    let has_drifted = match (old, new) {
        (Some(old), Some(new)) => old.hash == new.hash && old.fingerprint != new.fingerprint,
        _ => false,
    };
    if has_drifted {
        marks.lock().insert((kind, key.clone()));
    }
    let comes_back =
        matches!(kind, Kind::Claim | Kind::Service) && old.map(|old| old.status) != new.map(|new| new.status);
    let is_news = has_drifted || new.is_none() || comes_back;
    let target = match kind {
        _ if kind.is_guard() => Object { kind: Kind::Namespace, key: seen.of.clone() },
        Kind::Secret if *key.name == *names::token_secret(&seen.of.name) => {
            if is_news {
                queues.pods.add(seen.of.clone());
            }
            return;
        }
        _ => Object { kind, key: seen.of.clone() },
    };
    match () {
        () if initial && kind == Kind::Namespace => queues.objects.add_routine(target),
        () if is_news && !initial => queues.objects.add(target),
        () => {}
    }
}
