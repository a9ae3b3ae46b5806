//! Slices of Endpoints that somebody wrote by hand for a Service without a selector, so that who reads slices alone sees
//! those addresses too. Each subset has one slice for each address family, of at most 1,000 addresses.

use super::ports::Port;
use super::slices::{self, Endpoints, Plan};
use super::subsets::repack;
use super::{Kept, LEADER, MANAGED_BY, MIRROR, SERVICE_NAME, TRIGGER, address};
use super::{enqueue_service_of_slice, known_slices, sliced::carry_out};
use freehold_client::Client;
use freehold_controllers_context::expectations::{Expectations, NOT_YET};
use freehold_controllers_context::object::{controller_reference, items, labels, namespace_terminates};
use freehold_controllers_context::{Context, Reconcile, Synced};
use freehold_machinery::{Map, Value, meta};
use freehold_runtime::{EventType, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store};
use serde_json::json;
use std::collections::BTreeMap;

/// Addresses of a subset that are mirrored.
const MAX: usize = 1000;
/// The label of Endpoints that are not to be mirrored.
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
/// The annotation in which kubectl keeps what was applied.
const APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Endpoints by address family and ports.
type Groups = BTreeMap<(&'static str, Vec<Port>), Endpoints>;

/// What was left out, and why.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Skipped {
    pub(super) invalid: usize,
    pub(super) too_many: usize,
}

/// Whether Endpoints are to be mirrored.
fn is_mirrored(endpoints: &Value) -> bool {
    let skip = labels(endpoints).and_then(|all| all.get(SKIP));
    skip.is_none_or(|value| value != "true") && meta::annotation(endpoints, LEADER).is_none()
}

fn wanted(endpoints: &Value) -> (Groups, Skipped) {
    let (mut groups, mut skipped) = (Groups::new(), Skipped::default());
    for subset in repack(items(endpoints, "/subsets")) {
        let ports: Vec<Port> = slices::ports_of(&subset);
        for family in address::FAMILIES {
            groups.entry((family, ports.clone())).or_default();
        }
        let mut added = 0;
        for (field, ready) in [("/addresses", true), ("/notReadyAddresses", false)] {
            for found in items(&subset, field) {
                let Some(ip) = address::parse(found["ip"].as_str().unwrap_or_default()) else {
                    skipped.invalid += 1;
                    continue;
                };
                if added >= MAX {
                    skipped.too_many += 1;
                    continue;
                }
                added += 1;
                let mut endpoint = json!({"addresses": [ip.to_string()], "conditions": {"ready": ready}});
                for field in ["targetRef", "nodeName", "hostname"] {
                    if let Some(value) = found.get(field).filter(|v| !v.is_null() && *v != "") {
                        endpoint[field] = value.clone();
                    }
                }
                let group = groups.entry((address::family(&ip), ports.clone())).or_default();
                group.insert(slices::identity(&endpoint), endpoint);
            }
        }
    }
    (groups, skipped)
}

/// What to do so that Endpoints are mirrored.
pub(super) fn decide(endpoints: &Value, existing: &[Value]) -> (Plan, Skipped) {
    let (groups, skipped) = wanted(endpoints);
    let mut plan = Plan::default();
    let family = |slice: &Value| address::FAMILIES.into_iter().find(|f| slice["addressType"] == *f);
    let mut by_group: BTreeMap<_, Vec<&Value>> = BTreeMap::new();
    for slice in existing {
        match family(slice) {
            Some(family) => by_group.entry((family, slices::ports_of(slice))).or_default().push(slice),
            None => plan.delete.push(slice.clone()),
        }
    }
    for (group, endpoints_of) in groups {
        let found = by_group.remove(&group).unwrap_or_default();
        if endpoints_of.is_empty() {
            plan.delete.extend(found.into_iter().cloned());
            continue;
        }
        let slice = slice(endpoints, group.0, &group.1, endpoints_of);
        let Some((first, others)) = found.split_first() else {
            plan.create.push(slice);
            continue;
        };
        plan.delete.extend(others.iter().map(|other| (*other).clone()));
        if !is_as(first, &slice) {
            let mut slice = slice;
            slices::rename(&mut slice, first);
            plan.update.push(slice);
        }
    }
    plan.delete.extend(by_group.into_values().flatten().cloned());
    plan.recycle(|_| true);
    (plan, skipped)
}

fn slice(endpoints: &Value, family: &str, ports: &[Port], wanted: Endpoints) -> Value {
    let mut named = labels(endpoints).cloned().unwrap_or_default();
    named.insert(SERVICE_NAME.to_owned(), meta::name(endpoints).into());
    named.insert(MANAGED_BY.to_owned(), MIRROR.into());
    let mut metadata = json!({
        "generateName": slices::prefix(meta::name(endpoints)), "namespace": meta::namespace(endpoints),
        "labels": named, "ownerReferences": [controller_reference(endpoints)],
    });
    let mut said = annotations(endpoints);
    said.retain(|key, _| key != TRIGGER && key != APPLIED);
    if !said.is_empty() {
        metadata["annotations"] = said.into();
    }
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
        "addressType": family, "endpoints": wanted.into_values().take(MAX).collect::<Vec<_>>(),
        "ports": ports.iter().map(Port::in_slice).collect::<Vec<_>>(),
    })
}

fn annotations(object: &Value) -> Map {
    object.pointer("/metadata/annotations").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Whether a slice is as it should be.
fn is_as(found: &Value, wanted: &Value) -> bool {
    let endpoints = |slice: &Value| -> Endpoints {
        items(slice, "/endpoints").iter().map(|e| (slices::identity(e), e.clone())).collect()
    };
    let (have, want) = (endpoints(found), endpoints(wanted));
    let owner = |slice: &Value| items(slice, "/metadata/ownerReferences").first().map(|o| o["uid"].clone());
    labels(found) == labels(wanted)
        && annotations(found) == annotations(wanted)
        && owner(found) == owner(wanted)
        && have.len() == want.len()
        && have.iter().zip(&want).all(|((a, old), (b, new))| a == b && slices::same(old, new))
}

struct Mirror {
    planes: Planes,
    services: Store<Value>,
    endpoints: Store<Kept>,
    slices: Store<Kept>,
    written: Expectations<Key>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let on_services = queue.clone();
    context.services().on_change(move |change| {
        let has = |service: &Option<std::sync::Arc<Value>>| {
            service.as_ref().is_some_and(|service| service.pointer("/spec/selector").is_none_or(is_empty))
        };
        if has(&change.old) != has(&change.new) {
            on_services.add(change.key.clone());
        }
    });
    context.endpoints().enqueue_into(&queue);
    let on_slices = queue.clone();
    context.endpoint_slices().on_change(move |change| enqueue_service_of_slice(&on_slices, MIRROR, change));
    let (services, endpoints) = (context.services().store(), context.endpoints().store());
    let slices = context.endpoint_slices().store();
    let waits: [&dyn Synced; 3] = [&services.clone(), &endpoints.clone(), &slices.clone()];
    let controller = Mirror {
        planes: context.planes.clone(),
        services,
        endpoints,
        slices,
        written: Expectations::default(),
        recorder: Recorder::new("endpoint-slice-mirroring-controller"),
    };
    context.control("endpoint-slice-mirroring", 2, &queue, &waits, controller);
}

fn is_empty(selector: &Value) -> bool {
    selector.as_object().is_none_or(Map::is_empty)
}

impl Reconcile for Mirror {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.written.are_met(&key, &self.slices) {
            return Ok(NOT_YET);
        }
        let existing = known_slices(&self.slices, MIRROR, &key);
        let service = self.services.get(&key);
        let by_hand = service.is_some_and(|service| service.pointer("/spec/selector").is_none_or(is_empty));
        // Most Endpoints belong to a Service that selects pods: those need not be read.
        let endpoints = self.endpoints.get(&key).filter(|_| by_hand).map(|kept| kept.object());
        let client = self.planes.client(&key.plane);
        let plan = match endpoints.filter(is_mirrored) {
            None => Plan { delete: existing, ..Plan::default() },
            Some(endpoints) => {
                let (mut plan, skipped) = decide(&endpoints, &existing);
                self.tell(&client, &endpoints, &skipped).await;
                if meta::is_deleting(&endpoints) {
                    plan.create.clear();
                }
                plan
            }
        };
        match carry_out(&client, &key, plan, &self.written).await {
            Err(error) if !namespace_terminates(&error) && !error.is_not_found() => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }
}

impl Mirror {
    async fn tell(&self, client: &Client, endpoints: &Value, skipped: &Skipped) {
        let invalid = format!("{} addresses are no IP addresses, and are not in slices", skipped.invalid);
        let too_many = format!("of a subset {MAX} addresses are in slices; {} are not", skipped.too_many);
        for (count, reason, message) in [
            (skipped.invalid, "InvalidIPAddress", invalid),
            (skipped.too_many, "TooManyAddressesToMirror", too_many),
        ] {
            if count > 0 {
                self.recorder.event(client, endpoints, EventType::Warning, reason, &message).await;
            }
        }
    }
}
