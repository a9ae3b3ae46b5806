//! What supervisors watch in one plane: its namespaces and workloads. A plane without supervisors and sleeping namespaces
//! has none of it.

use crate::discovery::Discovery;
use freehold_client::{Client, Resource};
use freehold_machinery::{PlaneId, Value, meta, time};
use freehold_runtime::{Change, Error, Informer, Interest, Key, Planes, Queue, Scope, Store};
use freehold_tenancy_api::TENANT_LABEL;
use freehold_tenancy_api::supervisor::{
    EXPIRES_AT_ANNOTATION, Original, SLEEP_ANNOTATION, SLEEP_UNTIL_ANNOTATION, ScalableKind, SleepState,
};
use freehold_tenancy_decide::sleep::{Chunk, Observed, Rule, builtin_rules, scalable_rule};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;

/// Namespaces.
pub(crate) const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
const CRDS: Resource = Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");
/// Groups that every Kubernetes API serves.
const ALWAYS_SERVED: [&str; 4] = ["", "apps", "batch", "autoscaling"];

/// A namespace, as far as supervisors are concerned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamespaceView {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) uid: String,
    pub(crate) created: Timestamp,
    pub(crate) expires: Option<Timestamp>,
    pub(crate) by_hand: Option<(SleepState, Option<Timestamp>)>,
    pub(crate) terminating: bool,
}

impl NamespaceView {
    fn of(object: Value) -> Option<Self> {
        let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
        let time_in = |key: &str| meta::annotation(&object, key).and_then(time::parse);
        let state = match meta::annotation(&object, SLEEP_ANNOTATION) {
            Some("asleep") => Some(SleepState::Asleep),
            Some("awake") => Some(SleepState::Awake),
            _ => None,
        };
        Some(Self {
            labels: labels
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            uid: meta::uid(&object).to_owned(),
            created: time::parse(meta::text(&object, "creationTimestamp")).unwrap_or_default(),
            expires: time_in(EXPIRES_AT_ANNOTATION),
            by_hand: state.map(|state| (state, time_in(SLEEP_UNTIL_ANNOTATION))),
            terminating: meta::is_deleting(&object),
        })
    }

    /// The state by hand, while it holds.
    pub(crate) fn by_hand(&self, now: Timestamp) -> Option<SleepState> {
        self.by_hand.filter(|(_, until)| until.is_none_or(|until| now < until)).map(|(state, _)| state)
    }
}

/// Workloads of one kind.
#[derive(Clone)]
struct Watched {
    rule: Arc<Rule>,
    objects: Store<Observed>,
}

/// The watches of one plane.
pub(crate) struct World {
    plane: PlaneId,
    planes: Planes,
    client: Client,
    token: CancellationToken,
    scope: Scope,
    queue: Arc<Queue<Key>>,
    records: Store<Chunk>,
    pub(crate) namespaces: Store<NamespaceView>,
    watched: RwLock<Vec<Watched>>,
    discovery: Discovery,
    starting: tokio::sync::Mutex<()>,
    complete: AtomicBool,
}

/// The worlds by plane.
pub(crate) struct Worlds {
    scope: Scope,
    queue: Arc<Queue<Key>>,
    records: Store<Chunk>,
    worlds: Mutex<HashMap<PlaneId, Arc<World>>>,
}

impl Worlds {
    pub(crate) fn new(scope: &Scope, queue: &Arc<Queue<Key>>, records: &Store<Chunk>) -> Self {
        Self {
            scope: scope.clone(),
            queue: queue.clone(),
            records: records.clone(),
            worlds: Mutex::default(),
        }
    }

    pub(crate) fn get(&self, plane: &PlaneId) -> Option<Arc<World>> {
        self.worlds.lock().get(plane).cloned()
    }

    /// The world of a plane, begun where it is new.
    pub(crate) fn get_or_begin(&self, plane: &PlaneId) -> Arc<World> {
        let mut worlds = self.worlds.lock();
        worlds.entry(plane.clone()).or_insert_with(|| Arc::new(World::begin(self, plane))).clone()
    }

    /// Ends the watches of a plane.
    pub(crate) fn end(&self, plane: &PlaneId) {
        if let Some(world) = self.worlds.lock().remove(plane) {
            world.token.cancel();
        }
    }
}

impl World {
    fn begin(worlds: &Worlds, plane: &PlaneId) -> Self {
        let (scope, token) = (worlds.scope.clone(), worlds.scope.token.child_token());
        let planes = scope.planes.within(plane);
        let interest = Interest::projected(NAMESPACES, NamespaceView::of)
            .index(|_, view: &NamespaceView| view.labels.get(TENANT_LABEL).cloned().into_iter().collect());
        let mut informer = Informer::new(&planes, interest);
        let (queue, key_plane) = (worlds.queue.clone(), plane.clone());
        informer.on_change(move |change: &Change<NamespaceView>| {
            if change.new.is_some() && change.new != change.old {
                queue.add(Key::new(key_plane.clone(), "", &change.key.name));
            }
        });
        let namespaces = informer.store();
        scope.tasks.spawn(informer.run(token.clone()));
        Self {
            plane: plane.clone(),
            client: planes.client(plane),
            planes,
            token,
            scope,
            queue: worlds.queue.clone(),
            records: worlds.records.clone(),
            namespaces,
            watched: RwLock::default(),
            discovery: Discovery::default(),
            starting: tokio::sync::Mutex::default(),
            complete: AtomicBool::new(false),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether namespaces and all kinds that supervisors ask for are known completely.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
            && self.namespaces.is_synced()
            && self.watched.read().iter().all(|watched| watched.objects.is_synced())
    }

    /// Watches the kinds that are known and served, and those custom resources that supervisors name. Gives what is wrong
    /// with one of the latter.
    pub(crate) async fn watch_kinds(
        &self,
        scalable: &[ScalableKind],
        services: bool,
    ) -> Result<Option<String>, Error> {
        let _one_at_a_time = self.starting.lock().await;
        for rule in builtin_rules() {
            let wanted = !rule.deletes() || services;
            if wanted && !self.has(&rule.group, &rule.resource) && self.is_served(&rule).await? {
                self.watch(rule);
            }
        }
        let mut wrong = None;
        for kind in scalable {
            if let Some(why) = self.watch_scalable(kind).await? {
                wrong.get_or_insert(why);
            }
        }
        self.namespaces.synced(&self.token).await;
        let stores: Vec<Store<Observed>> = self.watched.read().iter().map(|w| w.objects.clone()).collect();
        for store in stores {
            store.synced(&self.token).await;
        }
        self.complete.store(true, Ordering::Release);
        Ok(wrong)
    }

    /// Watches the kinds of recorded objects that no supervisor names any more.
    pub(crate) async fn watch_recorded(&self, record: &[Original]) -> Result<(), Error> {
        for entry in record {
            if self.has(&entry.group, &entry.resource) {
                continue;
            }
            let _one_at_a_time = self.starting.lock().await;
            let builtin =
                builtin_rules().into_iter().find(|r| r.group == entry.group && r.resource == entry.resource);
            match builtin {
                Some(rule) if self.is_served(&rule).await? => self.watch(rule),
                Some(_) => {}
                None => {
                    let kind = ScalableKind { group: entry.group.clone(), resource: entry.resource.clone() };
                    self.watch_scalable(&kind).await?;
                }
            }
        }
        Ok(())
    }

    async fn watch_scalable(&self, kind: &ScalableKind) -> Result<Option<String>, Error> {
        let ScalableKind { group, resource } = kind;
        if self.has(group, resource) {
            return Ok(None);
        }
        let name = format!("{resource}.{group}");
        let Some(crd) = self.client.get_opt(&CRDS, None, &name).await? else {
            return Ok(Some(format!("there is no CustomResourceDefinition {name}")));
        };
        let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
        let scale = versions.filter(|version| version["served"] == true).find_map(|version| {
            let path = version["subresources"]["scale"]["specReplicasPath"].as_str()?;
            Some((version["name"].as_str()?.to_owned(), path.to_owned()))
        });
        let Some((version, path)) = scale else {
            return Ok(Some(format!("{name} has no scale subresource")));
        };
        let kind_name = crd["spec"]["names"]["kind"].as_str().unwrap_or_default();
        self.watch(scalable_rule(kind, &version, kind_name, &path));
        Ok(None)
    }

    async fn is_served(&self, rule: &Rule) -> Result<bool, Error> {
        if ALWAYS_SERVED.contains(&rule.group.as_str()) {
            return Ok(true);
        }
        let api_version = format!("{}/{}", rule.group, rule.version);
        Ok(self.discovery.serves(&self.client, &api_version, &rule.resource).await?)
    }

    fn has(&self, group: &str, resource: &str) -> bool {
        self.watched
            .read()
            .iter()
            .any(|watched| watched.rule.group == group && watched.rule.resource == resource)
    }

    /// Begins to watch a kind.
    fn watch(&self, rule: Rule) {
        let rule = Arc::new(rule);
        let projecting = rule.clone();
        let resource =
            Resource::dynamic(rule.group.clone(), rule.version.clone(), rule.resource.clone(), true);
        let interest = Interest::projected(resource, move |object| projecting.observe(&object))
            .index(|_, object: &Observed| vec![object.about.clone()]);
        let mut informer = Informer::new(&self.planes, interest);
        let (queue, records, plane, of_rule) =
            (self.queue.clone(), self.records.clone(), self.plane.clone(), rule.clone());
        informer.on_change(move |change: &Change<Observed>| {
            let Some(object) = change.new.as_deref().or(change.old.as_deref()) else { return };
            let settled = change
                .new
                .as_deref()
                .is_some_and(|o| o.mark.is_some() && of_rule.is_asleep(o.state.as_ref()));
            // Awake in a namespace that sleeps, or still marked in one that does not.
            if settled == records.in_namespace(&plane, &object.about).is_empty() {
                queue.add(Key::new(plane.clone(), "", &object.about));
            }
        });
        let objects = informer.store();
        self.scope.tasks.spawn(informer.run(self.token.clone()));
        self.watched.write().push(Watched { rule, objects });
    }

    /// The workloads of a namespace with the rules for them.
    pub(crate) fn observe(&self, namespace: &str) -> Vec<(Arc<Rule>, Arc<Observed>)> {
        let watched = self.watched.read().clone();
        let objects = watched.into_iter().flat_map(|Watched { rule, objects }| {
            let found = objects.by_index(&self.plane, namespace);
            found.into_iter().map(move |(_, object)| (rule.clone(), object))
        });
        objects.collect()
    }
}
