//! One namespace: the wish of its supervisors, and the steps that lead there.

use super::world::{NAMESPACES, NamespaceView, World};
use super::{GATHERING, RECORDS, Settled, Shared};
use crate::running::Reconcile;
use freehold_client::{Client, DeleteOptions, Error, Patch, PatchOptions, Resource};
use freehold_machinery::{Value, meta};
use freehold_runtime::{Key, Outcome, Reconciled};
use freehold_tenancy_api::supervisor::{ASLEEP_ANNOTATION, Original};
use freehold_tenancy_api::{GROUP, VERSION};
use freehold_tenancy_decide::sleep::{
    self, Chunk, ChunkWrite, Observed, Plan, Rule, Settings, Step, Wish, Wisher, choose, pack,
};
use freehold_tenancy_decide::target::is_protected;
use futures_util::{FutureExt as _, StreamExt as _};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How many objects of one namespace are written at once.
const WRITES: usize = 8;
/// How soon a namespace is looked at again whose objects changed meanwhile, or are not all known yet.
const SOON: Duration = Duration::from_millis(100);
/// The longest time until a namespace with an end of life or a state by hand is looked at again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The controller of namespaces.
pub(super) struct Sleeping(pub(super) Arc<Shared>);

/// What the supervisors of a namespace decided.
struct Decision {
    wish: Wish,
    by: Option<String>,
    settings: Settings,
    /// When it may change without a change of any object.
    again: Option<Timestamp>,
}

/// How far the steps of a plan were taken.
#[derive(Default)]
struct Progress {
    /// An object changed since it was observed.
    outdated: bool,
    error: Option<String>,
}

impl Reconcile for Sleeping {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let shared = &self.0;
        let Some(world) = shared.worlds.get(&key.plane) else { return Ok(Outcome::Done) };
        if !world.is_complete() {
            return Ok(Outcome::After(SOON));
        }
        let Some(view) = world.namespaces.get(&key).filter(|view| !view.terminating) else {
            shared.results.lock().remove(&key);
            return Ok(Outcome::Done);
        };
        let chunks: Vec<Arc<Chunk>> =
            shared.records.in_namespace(&key.plane, &key.name).into_iter().map(|(_, chunk)| chunk).collect();
        let record: Vec<Original> = chunks.iter().flat_map(|chunk| chunk.entries.iter().cloned()).collect();
        world.watch_recorded(&record).await?;
        if !world.is_complete() {
            return Ok(Outcome::After(SOON));
        }
        let decision = self.decide(&key, &view);
        if decision.wish == Wish::Deleted {
            return self.delete(&world, &key, &view).await;
        }
        let objects = world.observe(&key.name);
        let plan = plan(decision.wish, &objects, &record, &decision.settings);
        let progress = carry_out(world.client(), &key.name, &plan, &chunks).await;
        let refused = plan.refused.first().cloned();
        let result = Settled { by: decision.by, error: progress.error.clone().or(refused) };
        self.note(&key, &decision.settings, result);
        match progress.error {
            Some(error) => Err(error.into()),
            None if progress.outdated => Ok(Outcome::After(SOON)),
            None => {
                if plan.finish {
                    shared.end_unused(&key.plane);
                }
                let now = Timestamp::now();
                let wait = decision.again.and_then(|at| Duration::try_from(at.duration_since(now)).ok());
                Ok(wait.map_or(Outcome::Done, |wait| {
                    Outcome::After((wait + Duration::from_millis(5)).min(LONGEST_WAIT))
                }))
            }
        }
    }
}

fn plan(
    wish: Wish,
    objects: &[(Arc<Rule>, Arc<Observed>)],
    record: &[Original],
    settings: &Settings,
) -> Plan {
    let objects: Vec<(&Rule, Observed)> =
        objects.iter().map(|(rule, object)| (&**rule, (**object).clone())).collect();
    match wish {
        Wish::Asleep => sleep::sleep(&objects, record, settings),
        Wish::Awake => sleep::wake(&objects, record),
        Wish::Unchanged | Wish::Deleted => Plan::default(),
    }
}

impl Sleeping {
    fn decide(&self, key: &Key, view: &NamespaceView) -> Decision {
        let now = Timestamp::now();
        let selecting = self.0.selecting(&key.plane, &key.name, view);
        let mut wishers: Vec<Wisher<'_>> = selecting
            .iter()
            .map(|(name, compiled)| Wisher { name, supervisor: &compiled.supervisor })
            .collect();
        let expiries = wishers.iter().filter_map(|w| w.supervisor.expiry(view.created, view.expires));
        let until = view.by_hand.and_then(|(_, until)| until);
        let again = expiries.chain(until).filter(|at| *at > now).min();
        let (wish, by) = choose(&mut wishers, view.created, view.expires, view.by_hand(now), now);
        let of = |name: &str| selecting.iter().find(|(n, _)| n == name);
        let settings = by.and_then(of).map(|(_, c)| c.supervisor.settings.clone()).unwrap_or_default();
        Decision { wish, by: by.map(str::to_owned), settings, again }
    }

    async fn delete(&self, world: &World, key: &Key, view: &NamespaceView) -> Reconciled {
        if is_protected(&key.name) {
            return Ok(Outcome::Done);
        }
        tracing::info!(namespace = %key, "namespace reached its end of life; deleting it");
        match world.client().delete(&NAMESPACES, None, &key.name, &DeleteOptions::uid(&*view.uid)).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }

    /// Keeps the result for the status of each supervisor that selects the namespace.
    fn note(&self, key: &Key, _settings: &Settings, result: Settled) {
        let shared = &self.0;
        let by = result.by.clone();
        let before = shared.results.lock().insert(key.clone(), result.clone());
        if before.as_ref() == Some(&result) {
            return;
        }
        let before = before.and_then(|result| result.by);
        for name in by.into_iter().chain(before) {
            shared.supervisor_queue.add_after(Key::new(key.plane.clone(), "", &name), GATHERING);
        }
    }
}

/// Writes the record, takes the steps, and deletes the record when they are done.
async fn carry_out(client: &Client, namespace: &str, plan: &Plan, chunks: &[Arc<Chunk>]) -> Progress {
    let mut progress = Progress::default();
    if let Some(wanted) = &plan.record {
        let stored: Vec<Chunk> = chunks.iter().map(|chunk| (**chunk).clone()).collect();
        for write in pack(&stored, wanted) {
            progress.take(write_record(client, namespace, write).await);
        }
    }
    for group in &plan.steps {
        if progress.is_stopped() {
            return progress;
        }
        let steps: Vec<_> = group.iter().map(|step| take(client, step).boxed()).collect();
        let results: Vec<Result<(), Error>> =
            futures_util::stream::iter(steps).buffer_unordered(WRITES).collect().await;
        results.into_iter().for_each(|result| progress.take(result));
    }
    for entry in &plan.verify {
        if progress.is_stopped() {
            return progress;
        }
        progress.verify(client, namespace, entry).await;
    }
    if plan.finish && !progress.is_stopped() {
        for chunk in chunks {
            let options = DeleteOptions {
                resource_version: chunk.resource_version.clone(),
                ..DeleteOptions::default()
            };
            let deleted = client.delete(&RECORDS, Some(namespace), &chunk.name, &options).await;
            progress.take(unless_gone(deleted));
        }
    }
    progress
}

impl Progress {
    fn is_stopped(&self) -> bool {
        self.outdated || self.error.is_some()
    }

    fn take(&mut self, result: Result<(), Error>) {
        match result {
            Ok(()) => {}
            Err(error) if error.is_conflict() || error.is_already_exists() => self.outdated = true,
            Err(error) => self.error = self.error.take().or(Some(error.to_string())),
        }
    }

    /// Reads an object that seems to need no restoring. One that is marked after all is not known yet as it is.
    async fn verify(&mut self, client: &Client, namespace: &str, entry: &Original) {
        let resource =
            Resource::dynamic(entry.group.clone(), entry.version.clone(), entry.resource.clone(), true);
        let namespace = if entry.namespace.is_empty() { namespace } else { &entry.namespace };
        match client.get_opt(&resource, Some(namespace), &entry.name).await {
            Ok(Some(object)) if meta::annotation(&object, ASLEEP_ANNOTATION).is_some() => {
                self.outdated = true
            }
            Ok(_) => {}
            Err(error) => self.take(Err(error)),
        }
    }
}

async fn write_record(client: &Client, namespace: &str, write: ChunkWrite) -> Result<(), Error> {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "SleepRecord",
        "metadata": {"name": write.name, "namespace": namespace},
        "spec": {"entries": write.entries},
    });
    match write.resource_version {
        None => client.create(&RECORDS, &object).await?,
        Some(version) => {
            meta::set(&mut object, "resourceVersion", version);
            client.update(&RECORDS, &object).await?
        }
    };
    Ok(())
}

async fn take(client: &Client, step: &Step) -> Result<(), Error> {
    let resource_of = |object: &sleep::ObjectRef| {
        Resource::dynamic(object.group.clone(), object.version.clone(), object.resource.clone(), true)
    };
    match step {
        Step::Patch { object, operations } => {
            let patch = Patch::Json(operations.clone());
            let options = PatchOptions::default();
            unless_gone(
                client
                    .patch(&resource_of(object), Some(&object.namespace), &object.name, &patch, &options)
                    .await,
            )
        }
        Step::Delete { object, uid, resource_version } => {
            let options = DeleteOptions {
                uid: uid.clone(),
                resource_version: resource_version.clone(),
                ..DeleteOptions::default()
            };
            unless_gone(
                client.delete(&resource_of(object), Some(&object.namespace), &object.name, &options).await,
            )
        }
        Step::Create { object, body } => match client.create(&resource_of(object), body).await {
            Err(error) if error.is_already_exists() => Ok(()),
            // Its addresses or ports were given to others meanwhile.
            Err(error) if error.code() == 422 => {
                let created = client.create(&resource_of(object), &without_allocations(body)).await;
                created.map(drop)
            }
            created => created.map(drop),
        },
    }
}

/// A Service without what the cluster allocated for it.
fn without_allocations(service: &Value) -> Value {
    let mut copy = service.clone();
    if let Some(spec) = copy["spec"].as_object_mut() {
        for field in ["clusterIP", "clusterIPs", "healthCheckNodePort"] {
            spec.remove(field);
        }
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(port) = port.as_object_mut() {
                port.remove("nodePort");
            }
        }
    }
    copy
}

fn unless_gone(result: Result<Value, Error>) -> Result<(), Error> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
