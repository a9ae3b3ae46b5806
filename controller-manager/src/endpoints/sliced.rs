//! EndpointSlices of Services that select pods.

use super::trigger::Triggers;
use super::{Kept, SLICES, TRIGGER, annotate, families, hints, known_slices, selected, slices};
use super::{Pod, slices::Plan};
use super::{enqueue_service_of_slice, enqueue_services_of_pod, enqueue_services_on_node};
use freehold_client::{Client, DeleteOptions, Error};
use freehold_controllers_context::expectations::{Expectations, NOT_YET};
use freehold_controllers_context::kinds::{ENDPOINT_SLICES, NODES};
use freehold_controllers_context::object::{namespace_terminates, text, unless_gone};
use freehold_controllers_context::pods::PodView;
use freehold_controllers_context::{Context, Reconcile, Synced};
use freehold_machinery::{Value, meta};
use freehold_runtime::{
    EventType, Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store,
};

/// The label of a node that names its zone.
const ZONE: &str = "/metadata/labels/topology.kubernetes.io~1zone";

struct Sliced {
    planes: Planes,
    services: Store<Value>,
    pods: Store<PodView>,
    slices: Store<Kept>,
    /// The zone of each node.
    zones: Store<String>,
    max: usize,
    triggers: Triggers,
    written: Expectations<Key>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    context.services().enqueue_into(&queue);
    let (services, pods) = (context.services().store(), context.pods().store());
    let (on_pods, known) = (queue.clone(), services.clone());
    context.pods().on_change(move |change| enqueue_services_of_pod(&on_pods, &known, change));
    let on_slices = queue.clone();
    context.endpoint_slices().on_change(move |change| enqueue_service_of_slice(&on_slices, SLICES, change));
    let slices = context.endpoint_slices().store();
    let zone = |node: Value| Some(text(&node, ZONE).to_owned());
    let mut informer = Informer::new(&context.planes, Interest::projected(NODES, zone).metadata_only());
    let (on_nodes, known, bound) = (queue.clone(), services.clone(), pods.clone());
    informer.on_change(move |change| {
        if change.old != change.new {
            enqueue_services_on_node(&on_nodes, &known, &bound, &change.key.plane, &change.key.name);
        }
    });
    let zones = context.run_informer(informer);
    context.resync(&services, &queue);
    let waits: [&dyn Synced; 4] = [&services.clone(), &pods.clone(), &slices.clone(), &zones.clone()];
    let controller = Sliced {
        planes: context.planes.clone(),
        services,
        pods,
        slices,
        zones,
        max: context.config.max_endpoints_per_slice,
        triggers: Triggers::default(),
        written: Expectations::default(),
        recorder: Recorder::new("endpoint-slice-controller"),
    };
    context.control("endpoint-slice", 4, &queue, &waits, controller);
}

/// What to do so that a Service has the slices that it should.
pub(super) fn decide(
    service: &Value,
    pods: &[Pod],
    existing: &[Value],
    zone: impl Fn(&Pod) -> Option<String>,
    max: usize,
) -> Plan {
    let families = families(service);
    let mut all = Plan::default();
    for family in &families {
        let own: Vec<Value> = existing.iter().filter(|s| s["addressType"] == *family).cloned().collect();
        let wanted = slices::wanted(service, pods, family, &zone);
        let mut plan = slices::plan(service, family, &own, wanted, max);
        hints::complete(service, &mut plan, &own);
        plan.recycle(|slice| slices::is_owned(slice, "Service", meta::uid(service)));
        all.append(plan);
    }
    let strange = existing.iter().filter(|s| !families.iter().any(|family| s["addressType"] == *family));
    all.delete.extend(strange.cloned());
    all
}

impl Reconcile for Sliced {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.written.are_met(&key, &self.slices) {
            return Ok(NOT_YET);
        }
        let Some(service) = self.services.get(&key) else {
            self.triggers.forget(&key);
            return Ok(Outcome::Done);
        };
        if super::selector(&service).is_none() {
            return Ok(Outcome::Done);
        }
        let pods = selected(&service, &key, &self.pods);
        let since = self.triggers.look(&key, &service, &pods);
        let existing = known_slices(&self.slices, SLICES, &key);
        let zone = |pod: &Pod| {
            let node = Key::new(key.plane.clone(), "", &pod.1.node);
            self.zones.get(&node).map(|zone| (*zone).clone())
        };
        let mut plan = decide(&service, &pods, &existing, zone, self.max);
        if meta::is_deleting(&service) {
            plan.create.clear();
        }
        for slice in plan.create.iter_mut().chain(&mut plan.update) {
            annotate(slice, TRIGGER, since.clone());
        }
        let client = self.planes.client(&key.plane);
        match carry_out(&client, &key, plan, &self.written).await {
            Err(error) if namespace_terminates(&error) || error.is_not_found() => Ok(Outcome::Done),
            Err(error) if error.is_conflict() => Err(error.into()),
            Err(error) => {
                let message = format!("can't write its EndpointSlices: {error}");
                let (kind, reason) = (EventType::Warning, "FailedToUpdateEndpointSlices");
                self.recorder.event(&client, &service, kind, reason, &message).await;
                Err(error.into())
            }
            Ok(()) => Ok(Outcome::Done),
        }
    }
}

/// Writes what is planned for an object, and notes it.
pub(super) async fn carry_out(
    client: &Client,
    key: &Key,
    plan: Plan,
    written: &Expectations<Key>,
) -> Result<(), Error> {
    for slice in &plan.create {
        written.expect(key, &client.create(&ENDPOINT_SLICES, slice).await?);
    }
    for slice in &plan.update {
        written.expect(key, &client.update(&ENDPOINT_SLICES, slice).await?);
    }
    for slice in &plan.delete {
        let options = DeleteOptions::uid(meta::uid(slice));
        if let Err(error) = client.delete(&ENDPOINT_SLICES, key.ns(), meta::name(slice), &options).await {
            let this = (key.ns(), meta::name(slice), meta::uid(slice));
            unless_gone(client, &ENDPOINT_SLICES, this, error).await?;
        }
    }
    Ok(())
}
