//! Endpoints and EndpointSlices of Services, from the pods that they select.
//!
//! A Service has one slice for each address family, with at most 1000 endpoints. Services without a selector, or of
//! type `ExternalName`, are left to whoever made them.

use crate::context::{Context, Reconcile};
use crate::kinds::{ENDPOINT_SLICES, ENDPOINTS, SERVICES};
use crate::object::{controller_reference, items, selects, text};
use crate::pods::PodView;
use freehold_client::{Client, DeleteOptions, Error, Resource};
use freehold_controller_manager_runtime::{
    Change, Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store,
};
use freehold_machinery::{Map, Value, meta, selector::Labels};
use serde_json::json;
use std::sync::Arc;

/// Endpoints that a Service has at most.
const MAX: usize = 1000;
/// The label of what belongs to a Service without an address.
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Who made Endpoints: nobody mirrors them into slices.
const ENDPOINTS_MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const ENDPOINTS_MANAGER: &str = "endpoint-controller";
/// Who made a slice.
const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGER: &str = "endpointslice-controller.k8s.io";

type Pod = (Key, Arc<PodView>);

/// The selector of a Service; `None` where it has none.
fn service_selector(service: &Value) -> Option<Labels> {
    let selector =
        service.pointer("/spec/selector").filter(|s| s.as_object().is_some_and(|m| !m.is_empty()))?;
    if text(service, "/spec/type") == "ExternalName" {
        return None;
    }
    Labels::from_value(&json!({"matchLabels": selector})).ok()
}

/// The Endpoints and the slice that a Service should have.
fn decide(service: &Value, mut pods: Vec<Pod>) -> [(Resource, Value); 2] {
    pods.retain(|(_, pod)| !pod.ips.is_empty() && (pod.is_active() || pod.deleting));
    pods.sort_by(|(a, _), (b, _)| a.cmp(b));
    pods.truncate(MAX);
    [(ENDPOINTS, endpoints(service, &pods)), (ENDPOINT_SLICES, slice(service, &pods))]
}

fn metadata(service: &Value, name: String, extra: &[(&str, &str)]) -> Value {
    let mut labels = crate::object::labels(service).cloned().unwrap_or_else(Map::new);
    for (key, value) in extra {
        labels.insert((*key).to_owned(), (*value).into());
    }
    if text(service, "/spec/clusterIP") == "None" {
        labels.insert(HEADLESS.to_owned(), "".into());
    }
    json!({"name": name, "namespace": meta::namespace(service), "labels": labels})
}

fn target(key: &Key, pod: &PodView) -> Value {
    json!({"kind": "Pod", "namespace": key.namespace, "name": key.name, "uid": pod.uid})
}

/// The ports of a Service as its pods have them. Pods of one Service are taken to name their ports alike.
fn ports(service: &Value, pods: &[Pod]) -> Vec<Value> {
    let resolve = |port: &Value| match &port["targetPort"] {
        Value::Number(n) if n.as_i64() != Some(0) => n.as_i64(),
        Value::String(name) => {
            pods.iter().flat_map(|(_, pod)| &pod.ports).find(|(n, _)| n == name).map(|(_, number)| *number)
        }
        _ => port["port"].as_i64(),
    };
    let one = |port: &Value| {
        let mut made =
            json!({"port": resolve(port)?, "protocol": port["protocol"].as_str().unwrap_or("TCP")});
        for field in ["name", "appProtocol"] {
            if let Some(value) = port.get(field).filter(|v| !v.is_null()) {
                made[field] = value.clone();
            }
        }
        Some(made)
    };
    items(service, "/spec/ports").iter().filter_map(one).collect()
}

fn is_ready(service: &Value, pod: &PodView) -> bool {
    (pod.ready && !pod.deleting) || service["spec"]["publishNotReadyAddresses"] == true
}

fn endpoints(service: &Value, pods: &[Pod]) -> Value {
    let address = |(key, pod): &Pod| {
        let mut address = json!({"ip": pod.ips[0], "targetRef": target(key, pod)});
        if !pod.node.is_empty() {
            address["nodeName"] = pod.node.clone().into();
        }
        address
    };
    let (ready, not_ready): (Vec<&Pod>, Vec<&Pod>) = pods.iter().partition(|(_, pod)| is_ready(service, pod));
    let mut subset = json!({});
    for (field, part) in [("addresses", ready), ("notReadyAddresses", not_ready)] {
        if !part.is_empty() {
            subset[field] = part.into_iter().map(address).collect();
        }
    }
    let ports = ports(service, pods);
    let subsets = if subset == json!({}) { json!([]) } else { json!([subset]) };
    let mut made = json!({
        "apiVersion": "v1", "kind": "Endpoints", "metadata": metadata(service, meta::name(service).into(), &[(ENDPOINTS_MANAGED_BY, ENDPOINTS_MANAGER)]),
        "subsets": subsets,
    });
    if !ports.is_empty() && !pods.is_empty() {
        made["subsets"][0]["ports"] = ports.into();
    }
    made
}

fn slice(service: &Value, pods: &[Pod]) -> Value {
    let family = items(service, "/spec/ipFamilies").first().and_then(Value::as_str).unwrap_or("IPv4");
    let of_family = |ip: &&String| ip.contains(':') == (family == "IPv6");
    let endpoint = |(key, pod): &Pod| {
        let ready = is_ready(service, pod);
        let mut endpoint = json!({
            "addresses": [pod.ips.iter().find(of_family)?],
            "conditions": {"ready": ready, "serving": pod.ready, "terminating": pod.deleting},
            "targetRef": target(key, pod),
        });
        if !pod.node.is_empty() {
            endpoint["nodeName"] = pod.node.clone().into();
        }
        Some(endpoint)
    };
    let name = meta::name(service);
    let labels = [("kubernetes.io/service-name", name), (MANAGED_BY, MANAGER)];
    let mut metadata = metadata(service, format!("{name}-{}", family.to_lowercase()), &labels);
    metadata["ownerReferences"] = json!([controller_reference(service)]);
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
        "addressType": family,
        "endpoints": pods.iter().filter_map(endpoint).collect::<Vec<_>>(),
        "ports": ports(service, pods),
    })
}

struct Services {
    planes: Planes,
    services: Store<Value>,
    pods: Store<PodView>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let mut informer = Informer::new(&context.planes, Interest::objects(SERVICES));
    informer.enqueue_into(&queue);
    let services = context.run_informer(informer);
    let (on_pods, selecting) = (queue.clone(), services.clone());
    context.pods().on_change(move |change| enqueue_services(&on_pods, &selecting, change));
    let pods = context.pods().store();
    context.resync(&services, &queue);
    let (planes, waits, more) = (context.planes.clone(), services.clone(), pods.clone());
    context.control("endpoints", 4, &queue, &[&waits, &more], Services { planes, services, pods });
}

fn enqueue_services(queue: &Arc<Queue<Key>>, services: &Store<Value>, change: &Change<PodView>) {
    for (key, service) in services.in_namespace(&change.key.plane, &change.key.namespace) {
        let Some(selector) = service_selector(&service) else { continue };
        let mut pods = [&change.old, &change.new].into_iter().flatten();
        if pods.any(|pod| selects(&selector, pod.labels.as_ref())) {
            queue.add(key);
        }
    }
}

impl Reconcile for Services {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(service) = self.services.get(&key) else { return self.remove(&key).await };
        let Some(selector) = service_selector(&service).filter(|_| !meta::is_deleting(&service)) else {
            return Ok(Outcome::Done);
        };
        let mut pods = self.pods.in_namespace(&key.plane, &key.namespace);
        pods.retain(|(_, pod)| selects(&selector, pod.labels.as_ref()));
        let client = self.planes.client(&key.plane);
        for (resource, wanted) in decide(&service, pods) {
            write(&client, &resource, wanted).await?;
        }
        Ok(Outcome::Done)
    }
}

impl Services {
    /// Endpoints go with their Service, which does not own them, also those that somebody wrote by hand.
    async fn remove(&self, key: &Key) -> Reconciled {
        let client = self.planes.client(&key.plane);
        match client.delete(&ENDPOINTS, key.ns(), &key.name, &DeleteOptions::default()).await {
            Err(error) if !matches!(error.code(), 404 | 409) => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }
}

/// Creates or replaces an object, unless it is as wanted.
async fn write(client: &Client, resource: &Resource, mut wanted: Value) -> Result<(), Error> {
    let Some(found) = client.get_opt(resource, Some(meta::namespace(&wanted)), meta::name(&wanted)).await?
    else {
        return match client.create(resource, &wanted).await {
            // Its namespace is gone or going.
            Err(error) if !matches!(error.code(), 403 | 404) => Err(error),
            _ => Ok(()),
        };
    };
    if !differs(&found, &wanted) {
        return Ok(());
    }
    meta::set(&mut wanted, "resourceVersion", meta::resource_version(&found));
    client.update(resource, &wanted).await.map(drop)
}

/// Whether anything that is wanted is otherwise. Absent and empty are the same.
fn differs(found: &Value, wanted: &Value) -> bool {
    let same = |a: Option<&Value>, b: &Value| {
        a.is_some_and(|a| a == b)
            || (a.is_none_or(|a| a.is_null() || *a == json!([]) || *a == json!({}))
                && (*b == json!([]) || *b == json!({})))
    };
    ["subsets", "endpoints", "ports", "addressType"]
        .iter()
        .any(|field| wanted.get(field).is_some_and(|w| !same(found.get(field), w)))
        || !same(found.pointer("/metadata/labels"), &wanted["metadata"]["labels"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::Phase;
    use freehold_machinery::PlaneId;

    fn service() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "n", "uid": "s"},
            "spec": {"selector": {"app": "web"}, "ports": [
                {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"},
                {"name": "admin", "port": 81, "targetPort": 9000},
                {"name": "unknown", "port": 82, "targetPort": "none"},
            ]},
        })
    }

    fn pod(name: &str, ip: &str, ready: bool) -> Pod {
        let view = PodView {
            uid: name.into(),
            ips: vec![ip.to_owned()],
            ready,
            phase: Phase::Running,
            ports: vec![("web".into(), 8080)],
            ..PodView::default()
        };
        (Key::new(PlaneId::core(), "n", name), Arc::new(view))
    }

    #[test]
    fn ready_pods_are_addresses_and_others_are_told_apart() {
        let pods = vec![pod("b", "10.0.0.2", false), pod("a", "10.0.0.1", true), pod("six", "fd00::1", true)];
        let [(_, endpoints), (_, slice)] = decide(&service(), pods);
        let subset = &endpoints["subsets"][0];
        assert_eq!(subset["addresses"][0]["ip"], "10.0.0.1");
        assert_eq!(subset["notReadyAddresses"][0]["targetRef"]["name"], "b");
        let numbers: Vec<i64> = items(subset, "/ports").iter().filter_map(|p| p["port"].as_i64()).collect();
        assert_eq!(numbers, [8080, 9000]);
        assert_eq!(slice["endpoints"].as_array().map(Vec::len), Some(2), "an IPv4 slice has no IPv6 address");
        assert_eq!(slice["endpoints"][1]["conditions"]["ready"], false);
        assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "web");
    }

    #[test]
    fn a_service_without_pods_has_empty_endpoints() {
        let [(_, endpoints), (_, slice)] = decide(&service(), Vec::new());
        assert_eq!((&endpoints["subsets"], &slice["endpoints"]), (&json!([]), &json!([])));
        assert!(!differs(&json!({"metadata": {}}), &json!({"subsets": [], "metadata": {"labels": {}}})));
        assert!(differs(&json!({"subsets": [1]}), &json!({"subsets": [], "metadata": {"labels": {}}})));
    }

    #[test]
    fn services_without_a_selector_are_somebody_elses() {
        for spec in
            [json!({}), json!({"selector": {}}), json!({"selector": {"a": "b"}, "type": "ExternalName"})]
        {
            assert!(service_selector(&json!({ "spec": spec })).is_none());
        }
        assert!(service_selector(&service()).is_some());
    }
}
