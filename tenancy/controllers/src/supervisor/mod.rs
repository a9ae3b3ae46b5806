//! The resource supervisor: sleep, waking, and the end of namespaces' lives.
//!
//! ```text
//!  ResourceSupervisor --> compiled, watches of its plane (world), its namespaces queued, status   (this module)
//!  namespace          --> wish, plan, record first, then patches                                (namespace)
//! ```

mod namespace;
mod world;

use crate::running::{Reconcile, control};
use freehold_client::{Patch, PatchOptions, Resource};
use freehold_machinery::{PlaneId, Value, meta, time};
use freehold_runtime::{
    Change, Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Scope, Store, conditions,
};
use freehold_tenancy_api::supervisor::{ResourceSupervisorSpec, SleepRecordSpec, SleepState};
use freehold_tenancy_api::{GROUP, TENANT_LABEL, VERSION};
use freehold_tenancy_decide::sleep::{Chunk, Supervisor};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use world::{NamespaceView, World, Worlds};

/// ResourceSupervisors.
pub(crate) const SUPERVISORS: Resource = Resource::cluster(GROUP, VERSION, "resourcesupervisors");
/// SleepRecords.
pub(crate) const RECORDS: Resource = Resource::namespaced(GROUP, VERSION, "sleeprecords");
/// How many namespaces of one plane are worked on at once.
const WORKERS: usize = 32;
/// The longest time between two looks at a schedule: a clock that jumps is noticed after it.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long results of namespaces are gathered before a status tells of them.
const GATHERING: Duration = Duration::from_millis(500);

/// A ResourceSupervisor as the store keeps it.
#[derive(Clone, Debug)]
struct Compiled {
    supervisor: Supervisor,
    /// Why the spec cannot be read.
    invalid: Option<String>,
    generation: i64,
    status: Value,
    tenants: Vec<String>,
    namespaces: Vec<String>,
    by_label: bool,
}

/// The result of the last look at a namespace.
#[derive(Clone, Debug, Default, PartialEq)]
struct Settled {
    by: Option<String>,
    error: Option<String>,
}

/// What the controllers of supervisors and of namespaces share.
struct Shared {
    planes: Planes,
    supervisors: Store<Compiled>,
    records: Store<Chunk>,
    worlds: Worlds,
    supervisor_queue: Arc<Queue<Key>>,
    namespace_queue: Arc<Queue<Key>>,
    results: Mutex<HashMap<Key, Settled>>,
    /// Generation and state with which namespaces of a supervisor were last queued.
    queued: Mutex<HashMap<Key, (i64, Option<SleepState>)>>,
}

struct Supervising(Arc<Shared>);

/// Starts the resource supervisor.
pub fn start_supervisor(scope: &Scope) {
    let (supervisor_queue, namespace_queue) = (Queue::<Key>::new(), Queue::<Key>::new());
    let interest =
        Interest::projected(SUPERVISORS, Compiled::of).index(|_, compiled: &Compiled| compiled.index());
    let mut supervisors = Informer::new(&scope.planes, interest);
    supervisors.enqueue_into(&supervisor_queue);
    let mut records = Informer::new(&scope.planes, Interest::projected(RECORDS, chunk));
    let queue = namespace_queue.clone();
    let for_planes = supervisor_queue.clone();
    records.on_change(move |change: &Change<Chunk>| {
        queue.add(Key::new(change.key.plane.clone(), "", &change.key.namespace));
        if change.initial {
            // Namespaces that sleep keep a plane watched after its last supervisor is gone.
            for_planes.add(Key::new(change.key.plane.clone(), "", ""));
        }
    });
    let (supervisor_store, record_store) = (supervisors.store(), records.store());
    let shared = Arc::new(Shared {
        planes: scope.planes.clone(),
        worlds: Worlds::new(scope, &namespace_queue, &record_store),
        supervisors: supervisor_store.clone(),
        records: record_store.clone(),
        supervisor_queue: supervisor_queue.clone(),
        namespace_queue: namespace_queue.clone(),
        results: Mutex::default(),
        queued: Mutex::default(),
    });
    scope.tasks.spawn(supervisors.run(scope.token.clone()));
    scope.tasks.spawn(records.run(scope.token.clone()));
    let ready = || {
        let (supervisors, records, token) =
            (supervisor_store.clone(), record_store.clone(), scope.token.clone());
        Box::pin(async move { supervisors.synced(&token).await && records.synced(&token).await })
    };
    control(
        scope,
        "tenancy-supervisor",
        4,
        &supervisor_queue,
        ready(),
        Arc::new(Supervising(shared.clone())),
    );
    let namespaces = Arc::new(namespace::Sleeping(shared));
    control(scope, "tenancy-sleep", WORKERS, &namespace_queue, ready(), namespaces);
}

/// A SleepRecord as the store keeps it.
fn chunk(object: Value) -> Option<Chunk> {
    let spec: SleepRecordSpec = serde_json::from_value(object["spec"].clone()).ok()?;
    Some(Chunk {
        name: meta::name(&object).to_owned(),
        resource_version: meta::resource_version(&object).to_owned(),
        entries: spec.entries,
    })
}

impl Compiled {
    fn of(object: Value) -> Option<Self> {
        let read = serde_json::from_value::<ResourceSupervisorSpec>(object["spec"].clone());
        let (spec, unreadable) = match read {
            Ok(spec) => (spec, None),
            Err(error) => (ResourceSupervisorSpec::default(), Some(format!("spec: {error}"))),
        };
        let (supervisor, invalid) = match Supervisor::new(&spec) {
            Ok(supervisor) => (supervisor, unreadable),
            Err(error) => (Supervisor::held(&spec), Some(error)),
        };
        Some(Self {
            tenants: spec.target.tenants.clone(),
            namespaces: spec.target.namespaces.clone(),
            by_label: spec.target.selector.is_some(),
            supervisor,
            invalid,
            generation: object["metadata"]["generation"].as_i64().unwrap_or_default(),
            status: object["status"].clone(),
        })
    }

    fn index(&self) -> Vec<String> {
        let tenants = self.tenants.iter().map(|tenant| format!("t/{tenant}"));
        let namespaces = self.namespaces.iter().map(|namespace| format!("n/{namespace}"));
        tenants.chain(namespaces).chain(self.by_label.then(|| "s".to_owned())).collect()
    }
}

impl Shared {
    /// The supervisors that select a namespace, by name.
    fn selecting(&self, plane: &PlaneId, name: &str, view: &NamespaceView) -> Vec<(String, Arc<Compiled>)> {
        let mut entries = vec!["s".to_owned(), format!("n/{name}")];
        entries.extend(view.labels.get(TENANT_LABEL).map(|tenant| format!("t/{tenant}")));
        let found = entries.iter().flat_map(|entry| self.supervisors.by_index(plane, entry));
        let mut found: Vec<_> = found
            .filter(|(_, compiled)| compiled.supervisor.targets.matches(name, &view.labels))
            .map(|(key, compiled)| (key.name.to_string(), compiled))
            .collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found.dedup_by(|a, b| a.0 == b.0);
        found
    }

    /// The namespaces that a supervisor selects.
    fn selected(&self, world: &World, plane: &PlaneId, compiled: &Compiled) -> Vec<String> {
        let candidates: Vec<(Key, Arc<NamespaceView>)> = if compiled.by_label {
            world.namespaces.in_plane(plane)
        } else {
            let tenants = compiled.tenants.iter().flat_map(|tenant| world.namespaces.by_index(plane, tenant));
            let named = compiled.namespaces.iter().filter_map(|name| {
                let key = Key::new(plane.clone(), "", name);
                world.namespaces.get(&key).map(|view| (key, view))
            });
            tenants.chain(named).collect()
        };
        let matching = candidates.into_iter().filter(|(key, view)| {
            !view.terminating && compiled.supervisor.targets.matches(&key.name, &view.labels)
        });
        let names: BTreeSet<String> = matching.map(|(key, _)| key.name.to_string()).collect();
        names.into_iter().collect()
    }

    /// Namespaces with records.
    fn recorded(&self, plane: &PlaneId) -> BTreeSet<String> {
        self.records.in_plane(plane).into_iter().map(|(key, _)| key.namespace.to_string()).collect()
    }

    fn queue_namespaces(&self, plane: &PlaneId, names: impl IntoIterator<Item = String>) {
        for name in names {
            self.namespace_queue.add(Key::new(plane.clone(), "", &name));
        }
    }

    /// Ends the watches of a plane that has neither supervisors nor records.
    fn end_unused(&self, plane: &PlaneId) {
        if self.supervisors.in_plane(plane).is_empty() && self.records.in_plane(plane).is_empty() {
            self.worlds.end(plane);
            self.results.lock().retain(|key, _| key.plane != *plane);
        }
    }

    /// Watches what the supervisors of a plane ask for. Gives what is wrong with a kind that one of them names.
    async fn watch(&self, world: &World, plane: &PlaneId) -> Result<Option<String>, freehold_runtime::Error> {
        let all = self.supervisors.in_plane(plane);
        let services = all.iter().any(|(_, compiled)| compiled.supervisor.settings.delete_load_balancers);
        let scalable: BTreeSet<_> =
            all.iter().flat_map(|(_, compiled)| compiled.supervisor.settings.scalable.clone()).collect();
        world.watch_kinds(&scalable.into_iter().collect::<Vec<_>>(), services).await
    }
}

impl Reconcile for Supervising {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let shared = &self.0;
        let compiled = shared.supervisors.get(&key);
        if compiled.is_none() && shared.records.in_plane(&key.plane).is_empty() {
            shared.queued.lock().remove(&key);
            shared.end_unused(&key.plane);
            return Ok(Outcome::Done);
        }
        let world = shared.worlds.get_or_begin(&key.plane);
        let wrong = shared.watch(&world, &key.plane).await?;
        let Some(compiled) = compiled else {
            // Deleted: namespaces that it put to sleep wake, unless others want them asleep.
            shared.queued.lock().remove(&key);
            shared.queue_namespaces(&key.plane, shared.recorded(&key.plane));
            return Ok(Outcome::Done);
        };
        let now = Timestamp::now();
        let names = shared.selected(&world, &key.plane, &compiled);
        let state = compiled.supervisor.state(now);
        let before = shared.queued.lock().insert(key.clone(), (compiled.generation, state));
        if before != Some((compiled.generation, state)) {
            shared.queue_namespaces(&key.plane, names.iter().cloned());
            shared.queue_namespaces(&key.plane, shared.recorded(&key.plane));
        }
        self.report(&key, &compiled, &names, wrong, now).await?;
        let until_next = compiled.supervisor.next(now).and_then(|next| {
            // Timers may end a little early.
            Duration::try_from(next.at.duration_since(now)).ok().map(|d| d + Duration::from_millis(5))
        });
        Ok(Outcome::After(until_next.unwrap_or(LONGEST_WAIT).clamp(Duration::from_millis(50), LONGEST_WAIT)))
    }
}

impl Supervising {
    async fn report(
        &self,
        key: &Key,
        compiled: &Compiled,
        names: &[String],
        wrong: Option<String>,
        now: Timestamp,
    ) -> Result<(), freehold_runtime::Error> {
        let shared = &self.0;
        let recorded = shared.recorded(&key.plane);
        let asleep = names.iter().filter(|name| recorded.contains(*name)).count();
        let results = {
            let results = shared.results.lock();
            let of = |name: &String| results.get(&Key::new(key.plane.clone(), "", name)).cloned();
            names.iter().map(|name| (name, of(name))).collect::<Vec<_>>()
        };
        let failing: Vec<(&String, String)> = results
            .iter()
            .filter_map(|(name, result)| Some((*name, result.as_ref()?.error.clone()?)))
            .collect();
        let others = results.iter().find_map(|(name, result)| {
            let by = result.as_ref()?.by.as_deref().filter(|by| *by != &*key.name)?;
            Some(format!("namespace {name} follows {by}, which counts more"))
        });
        let waiting = results.iter().filter(|(_, result)| result.is_none()).count();
        let (status, reason, message) = match (&compiled.invalid, &wrong, failing.first()) {
            (Some(invalid), _, _) => ("False", "Invalid", invalid.clone()),
            (_, Some(wrong), _) => ("False", "KindNotScalable", wrong.clone()),
            (_, _, Some((name, error))) => ("False", "Failing", format!("namespace {name}: {error}")),
            _ if waiting > 0 => ("False", "Progressing", format!("{waiting} namespaces are left")),
            _ => ("True", "Settled", String::new()),
        };
        let mut new = json!({
            "namespaces": names.len(), "asleep": asleep, "failing": failing.len(),
            "observedGeneration": compiled.generation,
            "conditions": compiled.status["conditions"].clone(),
        });
        if let Some(state) = compiled.supervisor.state(now) {
            new["state"] = format!("{state:?}").into();
        }
        if let Some(next) = compiled.supervisor.next(now) {
            new["nextTransition"] = time::format_seconds(next.at).into();
        }
        let generation = Some(compiled.generation);
        let ready = conditions::Set { type_: "Ready", status, reason, message: &message, generation };
        conditions::set(&mut new["conditions"], ready, now);
        let (status, reason) = if others.is_some() { ("True", "Outranked") } else { ("False", "Alone") };
        let message = others.unwrap_or_default();
        let overlapping =
            conditions::Set { type_: "Overlapping", status, reason, message: &message, generation };
        conditions::set(&mut new["conditions"], overlapping, now);
        if new == compiled.status {
            return Ok(());
        }
        for gone in ["state", "nextTransition"] {
            if new.get(gone).is_none() {
                new[gone] = Value::Null;
            }
        }
        let client = shared.planes.client(&key.plane);
        let patch = Patch::Merge(json!({"status": new}));
        match client.patch(&SUPERVISORS, None, &key.name, &patch, &PatchOptions::status()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(()),
        }
    }
}
