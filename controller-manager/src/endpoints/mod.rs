//! Names and addresses: Endpoints and EndpointSlices of Services, as kube-controller-manager makes them
//! (<https://kubernetes.io/docs/concepts/services-networking/endpoint-slices/>).
//!
//! Three controllers: [`single`] writes the Endpoints of each Service that selects pods, [`sliced`] its slices, and
//! [`mirror`] slices of Endpoints that somebody wrote by hand. What each should write is decided by pure functions
//! ([`subsets`], [`slices`], [`hints`]); what is there is read from memory, where it is kept as text.

mod address;
mod hints;
pub(crate) mod mirror;
mod ports;
pub(crate) mod single;
pub(crate) mod sliced;
mod slices;
mod subsets;
mod trigger;

use freehold_controllers_context::object::{items, labels, text};
use freehold_controllers_context::pods::PodView;
use freehold_controllers_context::services::{Kept, MANAGED_BY, MIRROR, SERVICE_NAME, SLICES, slices_of};
use freehold_machinery::{Map, PlaneId, Value, meta};
use freehold_runtime::{Change, Key, Queue, Store};
use std::sync::Arc;

/// The label of what belongs to a Service without an address of its own.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// The annotation that says when what led to the last change happened.
const TRIGGER: &str = "endpoints.kubernetes.io/last-change-trigger-time";
/// The annotation of Endpoints that are a lock and no addresses.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

type Pod = (Key, Arc<PodView>);

/// The slices of a Service that one of the controllers writes, but for those that are being deleted.
fn known_slices(store: &Store<Kept>, manager: &str, service: &Key) -> Vec<Value> {
    let entry = slices_of(manager, &service.namespace, &service.name);
    let known = store.by_index(&service.plane, &entry).into_iter().map(|(_, kept)| kept.object());
    known.filter(|slice| !meta::is_deleting(slice)).collect()
}

/// Adds the Service of a slice that changed to a queue, if `manager` writes it or did.
fn enqueue_service_of_slice(queue: &Queue<Key>, manager: &str, change: &Change<Kept>) {
    for (by, service) in [&change.old, &change.new].into_iter().flatten().filter_map(|k| k.slice_of.as_ref())
    {
        if *by == manager && !service.is_empty() {
            queue.add(Key::new(change.key.plane.clone(), &change.key.namespace, service));
        }
    }
}

/// The selector of a Service; `None` where it has none, or leads to a name.
fn selector(service: &Value) -> Option<&Map> {
    let selector = service.pointer("/spec/selector")?.as_object().filter(|map| !map.is_empty())?;
    (text(service, "/spec/type") != "ExternalName").then_some(selector)
}

/// Whether a Service selects what has these labels.
fn selects(service: &Value, labels: Option<&Map>) -> bool {
    let has = |(key, value): (&String, &Value)| labels.and_then(|all| all.get(key)) == Some(value);
    selector(service).is_some_and(|selector| selector.iter().all(has))
}

/// The pods that a Service selects.
fn selected(service: &Value, key: &Key, pods: &Store<PodView>) -> Vec<Pod> {
    let mut all = pods.in_namespace(&key.plane, &key.namespace);
    all.retain(|(_, pod)| selects(service, pod.labels.as_ref()));
    all
}

/// Whether a Service has no address of its own.
fn is_headless(service: &Value) -> bool {
    matches!(text(service, "/spec/clusterIP"), "" | "None")
}

/// Whether a pod's address may be among those of Services.
fn has_address(pod: &PodView, terminating_too: bool) -> bool {
    !pod.has_ended() && !pod.ips.is_empty() && (terminating_too || !pod.deleting)
}

/// The name by which a pod is found below its Service.
fn hostname<'a>(service: &Value, pod: &'a PodView) -> Option<&'a str> {
    let (hostname, subdomain) = &pod.host;
    (!hostname.is_empty() && **subdomain == *meta::name(service)).then_some(hostname)
}

fn target(key: &Key, pod: &PodView) -> Value {
    serde_json::json!({"kind": "Pod", "namespace": key.namespace, "name": key.name, "uid": pod.uid})
}

/// Address families of a Service, `IPv4` and `IPv6`, the first one first.
fn families(service: &Value) -> Vec<&'static str> {
    let named = items(service, "/spec/ipFamilies").iter().filter_map(Value::as_str);
    let known: Vec<_> =
        named.filter_map(|family| address::FAMILIES.into_iter().find(|f| *f == family)).collect();
    let own = text(service, "/spec/clusterIP");
    match known.is_empty() {
        false => known,
        true if is_headless(service) => address::FAMILIES.to_vec(),
        true => vec![if own.contains(':') { "IPv6" } else { "IPv4" }],
    }
}

/// Whether a pod's entry in Endpoints and slices may be another one now, or in those of other Services.
fn concerns_services(change: &Change<PodView>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    let seen = |pod: &'_ PodView| (pod.deleting, pod.ready, pod.has_ended());
    seen(old) != seen(new)
        || old.labels != new.labels
        || old.ips != new.ips
        || old.host != new.host
        || old.node != new.node
}

/// Adds the Services that select a pod, or did, to a queue.
fn enqueue_services_of_pod(queue: &Queue<Key>, services: &Store<Value>, change: &Change<PodView>) {
    if !concerns_services(change) {
        return;
    }
    let pods = || [&change.old, &change.new].into_iter().flatten();
    for (key, service) in services.in_namespace(&change.key.plane, &change.key.namespace) {
        if pods().any(|pod| selects(&service, pod.labels.as_ref())) {
            queue.add(key);
        }
    }
}

/// Adds the Services that select any pod of a node to a queue.
fn enqueue_services_on_node(
    queue: &Queue<Key>,
    services: &Store<Value>,
    pods: &Store<PodView>,
    plane: &PlaneId,
    node: &str,
) {
    for (pod, view) in pods.by_index(plane, &PodView::on_node(node)) {
        for (key, service) in services.in_namespace(plane, &pod.namespace) {
            if selects(&service, view.labels.as_ref()) {
                queue.add(key);
            }
        }
    }
}

/// The labels of a Service, without `reserved` ones, and with [`HEADLESS`] where that is so.
fn service_labels(service: &Value, reserved: &[&str]) -> Map {
    let mut all = labels(service).cloned().unwrap_or_default();
    all.retain(|key, _| *key != HEADLESS && !reserved.contains(&key.as_str()));
    if is_headless(service) {
        all.insert(HEADLESS.to_owned(), "".into());
    }
    all
}

/// Sets or takes away an annotation.
fn annotate(object: &mut Value, key: &str, value: Option<String>) {
    let metadata = meta::metadata_mut(object);
    let annotations = metadata.entry("annotations").or_insert_with(|| Value::Object(Map::new()));
    if !annotations.is_object() {
        *annotations = Value::Object(Map::new());
    }
    let Some(annotations) = annotations.as_object_mut() else { return };
    match value {
        Some(value) => drop(annotations.insert(key.to_owned(), value.into())),
        None => drop(annotations.remove(key)),
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

#[cfg(test)]
mod tests;
