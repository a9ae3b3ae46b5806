//! Endpoints of Services: all addresses in one object, at most 1,000.

use super::subsets::{MAX, OVER_CAPACITY, Packing, repack, truncate};
use super::trigger::Triggers;
use super::{
    Kept, LEADER, Pod, TRIGGER, address, annotate, families, has_address, hostname, selected, service_labels,
    target,
};
use super::{enqueue_services_of_pod, ports};
use freehold_client::{Client, DeleteOptions, Error};
use freehold_controllers_context::expectations::{Expectations, NOT_YET};
use freehold_controllers_context::kinds::ENDPOINTS;
use freehold_controllers_context::object::{items, labels, namespace_terminates, text};
use freehold_controllers_context::pods::PodView;
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta};
use freehold_runtime::{Change, EventType, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store};
use serde_json::json;

/// The label of who writes Endpoints.
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const MANAGER: &str = "endpoint-controller";

/// The subsets of a Service's Endpoints, all of them.
fn subsets(service: &Value, pods: &[Pod]) -> Vec<Value> {
    let all = service["spec"]["publishNotReadyAddresses"] == true;
    let declared = items(service, "/spec/ports");
    let mut packing = Packing::default();
    for (key, pod) in pods.iter().filter(|(_, pod)| has_address(pod, all)) {
        let Some(ip) = own_address(service, pod) else { continue };
        let mut address = json!({"ip": ip, "nodeName": pod.node, "targetRef": target(key, pod)});
        if let Some(hostname) = hostname(service, pod) {
            address["hostname"] = hostname.into();
        }
        let ready = all || pod.ready;
        // Without ports only a Service without an address makes sense.
        if declared.is_empty() && text(service, "/spec/clusterIP") == "None" {
            packing.add(&address, None, ready);
        }
        for port in ports::resolved(service, pod) {
            packing.add(&address, Some(port), ready);
        }
    }
    packing.finish()
}

/// The address of a pod in the first family of a Service.
fn own_address(service: &Value, pod: &PodView) -> Option<String> {
    let says = !items(service, "/spec/ipFamilies").is_empty() || !super::is_headless(service);
    match families(service).first() {
        Some(family) if says => address::of_family(&pod.ips, family),
        _ => address::parse(pod.ips.first()?).map(|address| address.to_string()),
    }
}

/// The Endpoints that a Service should have; `None` where they are so already. Without a time nothing is said of when it
/// began.
pub(super) fn decide(
    service: &Value,
    pods: &[Pod],
    found: Option<&Value>,
    since: Option<String>,
) -> Option<Value> {
    let mut wanted = subsets(service, pods);
    let truncated = truncate(&mut wanted);
    let mut named = service_labels(service, &[MANAGED_BY]);
    named.insert(MANAGED_BY.to_owned(), MANAGER.into());
    if let Some(found) = found
        && repack(items(found, "/subsets")) == repack(&wanted)
        && labels(found) == Some(&named)
        && meta::annotation(found, OVER_CAPACITY).is_some() == truncated
    {
        return None;
    }
    let fresh = || {
        let metadata = json!({"name": meta::name(service), "namespace": meta::namespace(service)});
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata})
    };
    let mut endpoints = found.cloned().unwrap_or_else(fresh);
    endpoints["subsets"] = wanted.into();
    meta::set(&mut endpoints, "labels", named);
    annotate(&mut endpoints, TRIGGER, since);
    annotate(&mut endpoints, OVER_CAPACITY, truncated.then(|| "truncated".to_owned()));
    Some(endpoints)
}

struct Single {
    planes: Planes,
    services: Store<Value>,
    pods: Store<PodView>,
    endpoints: Store<Kept>,
    triggers: Triggers,
    written: Expectations<Key>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    context.services().enqueue_into(&queue);
    let services = context.services().store();
    let (on_pods, known) = (queue.clone(), services.clone());
    context.pods().on_change(move |change| enqueue_services_of_pod(&on_pods, &known, change));
    let (on_endpoints, known) = (queue.clone(), services.clone());
    context.endpoints().on_change(move |change| {
        if known.get(&change.key).is_some() || is_leftover(change) {
            on_endpoints.add(change.key.clone());
        }
    });
    let (pods, endpoints) = (context.pods().store(), context.endpoints().store());
    context.resync(&services, &queue);
    let waits: [&dyn freehold_controllers_context::Synced; 3] =
        [&services.clone(), &pods.clone(), &endpoints.clone()];
    let controller = Single {
        planes: context.planes.clone(),
        services,
        pods,
        endpoints,
        triggers: Triggers::default(),
        written: Expectations::default(),
        recorder: Recorder::new("endpoint-controller"),
    };
    context.control("endpoints", 4, &queue, &waits, controller);
}

/// Whether Endpoints that this controller wrote were there at the start, maybe without their Service.
fn is_leftover(change: &Change<Kept>) -> bool {
    let Some(kept) = change.new.as_ref().filter(|_| change.initial) else { return false };
    let endpoints = kept.object();
    let ours = labels(&endpoints).is_some_and(|l| l.get(MANAGED_BY).is_some_and(|by| by == MANAGER));
    ours && meta::annotation(&endpoints, LEADER).is_none()
}

impl Reconcile for Single {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.written.are_met(&key, &self.endpoints) {
            return Ok(NOT_YET);
        }
        let client = self.planes.client(&key.plane);
        let Some(service) = self.services.get(&key) else { return self.remove(&client, &key).await };
        if super::selector(&service).is_none() {
            return Ok(Outcome::Done);
        }
        let pods = selected(&service, &key, &self.pods);
        let since = self.triggers.look(&key, &service, &pods);
        let found = self.endpoints.get(&key).map(|kept| kept.object());
        let Some(wanted) = decide(&service, &pods, found.as_ref(), since) else { return Ok(Outcome::Done) };
        let written = match &found {
            Some(_) => client.update(&ENDPOINTS, &wanted).await,
            None if meta::is_deleting(&service) => return Ok(Outcome::Done),
            None => client.create(&ENDPOINTS, &wanted).await,
        };
        match written {
            Ok(answer) => {
                self.written.expect(&key, &answer);
                Ok(Outcome::Done)
            }
            // Its namespace, its plane or itself is gone or going, or has changed: what is seen then counts.
            Err(error) if namespace_terminates(&error) || error.is_not_found() => Ok(Outcome::Done),
            Err(error) if error.is_conflict() || error.is_already_exists() => Err(error.into()),
            Err(error) => self.failed(&client, &service, found.is_some(), error).await,
        }
    }
}

impl Single {
    /// Endpoints go with their Service, which does not own them, also those that somebody wrote by hand.
    async fn remove(&self, client: &Client, key: &Key) -> Reconciled {
        self.triggers.forget(key);
        if self.endpoints.get(key).is_none() {
            return Ok(Outcome::Done);
        }
        match client.delete(&ENDPOINTS, key.ns(), &key.name, &DeleteOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }

    async fn failed(&self, client: &Client, service: &Value, was_there: bool, error: Error) -> Reconciled {
        let (reason, what) = match was_there {
            true => ("FailedToUpdateEndpoint", "update"),
            false => ("FailedToCreateEndpoint", "create"),
        };
        let message = format!("can't {what} the Endpoints (of at most {MAX} addresses): {error}");
        self.recorder.event(client, service, EventType::Warning, reason, &message).await;
        Err(error.into())
    }
}
