//! ResourceQuotas: `status.used`, counted from what is there
//! (<https://kubernetes.io/docs/concepts/policy/resource-quotas/>).
//!
//! Admission adds to it with each creation; this controller counts again when quotas change, when pods end or something
//! that is counted is deleted, when the name changes under which a class of devices counts, and from time to time.

mod deletions;

use deletions::{Deletions, Names};
use freehold_client::{Client, Error, ListOptions, Patch, PatchOptions, Resource};
use freehold_controllers_context::discovery::{Discovered, discover};
use freehold_controllers_context::kinds::{DEVICE_CLASSES, RESOURCE_QUOTAS};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{GroupResource, Map, Value, meta, quantity::Quantity};
use freehold_machinery_quota::{Surroundings, Usage, counted_types, matches, resources, usage};
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store};
use jiff::Timestamp;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often each quota is counted again without a cause.
const RECOUNT: Duration = Duration::from_secs(120);
/// When it is counted again after a watch has begun, which did not see what went before.
const FIRST: Duration = Duration::from_secs(2);

/// Types of which more than the number counts.
const WHOLE: [&str; 4] = ["persistentvolumeclaims", "pods", DEVICE_CLAIMS, "services"];
/// Claims for devices, of which classes decide what they count.
const DEVICE_CLAIMS: &str = "resourceclaims.resource.k8s.io";

/// Objects of a namespace that quotas count, by `resource.group`, and the classes of devices, if any are claimed.
#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, Vec<Value>>,
    classes: Vec<Value>,
}

/// The status of a quota; `None` where it has it.
fn decide(quota: &Value, contents: &Contents, now: Timestamp) -> Option<Value> {
    let hard = quota.pointer("/spec/hard").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
    let sums = contents.used(quota, now);
    let counted = hard.keys().filter(|name| counted_types(name).next().is_some());
    let used: Map = counted
        .map(|name| (name.clone(), sums.get(name).map_or_else(|| "0".to_owned(), Quantity::to_string).into()))
        .collect();
    let status = json!({"hard": hard, "used": used});
    let same = |field: &str| quota.pointer(&format!("/status/{field}")) == Some(&status[field]);
    (!(same("hard") && same("used"))).then_some(status)
}

impl Contents {
    /// What all that a quota is about uses together.
    fn used(&self, quota: &Value, now: Timestamp) -> Usage {
        let of = |name: &str| self.objects.get(name).map_or(&[][..], Vec::as_slice);
        let around = Surroundings::at(now).with_devices(&self.classes, of(DEVICE_CLAIMS), of("pods"));
        let mut sums = Usage::new();
        for (name, objects) in &self.objects {
            let (resource, group) = name.split_once('.').unwrap_or((name, ""));
            let ty = GroupResource::new(group, resource);
            for object in objects.iter().filter(|object| matches(quota, &ty, object)) {
                resources::add(&mut sums, &usage(&ty, object, &around));
            }
        }
        sums
    }
}

/// The types that quotas of a namespace count.
fn needed(quotas: &[Value]) -> Vec<String> {
    let names = quotas.iter().filter_map(|q| q.pointer("/spec/hard")?.as_object()).flat_map(Map::keys);
    let mut types: Vec<String> = names.flat_map(|name| counted_types(name)).map(str::to_owned).collect();
    types.sort();
    types.dedup();
    types
}

struct Quotas {
    planes: Planes,
    quotas: Store<Names>,
    queue: Arc<Queue<Key>>,
    deletions: Deletions,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let named = |quota| Some(needed(std::slice::from_ref(&quota)));
    let mut informer = Informer::new(&context.planes, Interest::projected(RESOURCE_QUOTAS, named));
    let on_quotas = queue.clone();
    informer.on_change(move |change| on_quotas.add(change.key.clone()));
    let quotas = context.run_informer(informer);
    let (on_pods, counting) = (queue.clone(), quotas.clone());
    context.pods().on_change(move |change| {
        let ended = |pod: &freehold_controllers_context::pods::PodView| !pod.is_active();
        let matters = match (&change.old, &change.new) {
            (Some(old), Some(new)) => ended(old) != ended(new),
            _ => true,
        };
        if matters {
            // Several pods that go together are counted once.
            for (key, _) in counting.in_namespace(&change.key.plane, &change.key.namespace) {
                on_pods.add_after(key, Duration::from_millis(100));
            }
        }
    });
    let extended = |class: Value| class.pointer("/spec/extendedResourceName")?.as_str().map(str::to_owned);
    let mut classes = Informer::new(&context.planes, Interest::projected(DEVICE_CLASSES, extended));
    let (on_classes, counting) = (queue.clone(), quotas.clone());
    classes.on_change(move |change| {
        let count = |names: &Names| names.iter().any(|name| name == DEVICE_CLAIMS);
        let quotas = counting.in_plane(&change.key.plane).into_iter();
        quotas.filter(|(_, names)| count(names)).for_each(|(quota, _)| on_classes.add(quota));
    });
    context.run_informer(classes);
    context.resync_every(RECOUNT, &quotas, &queue);
    let deletions = Deletions::new(context, quotas.clone(), queue.clone());
    let (planes, waits) = (context.planes.clone(), quotas.clone());
    let controller = Quotas { planes, quotas, queue: queue.clone(), deletions };
    context.control("resource-quota", 2, &queue, &[&waits], controller);
}

impl Reconcile for Quotas {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if self.quotas.get(&key).is_none() {
            self.deletions.retain();
            return Ok(Outcome::Done);
        }
        let client = self.planes.client(&key.plane);
        let Some(quota) = client.get_opt(&RESOURCE_QUOTAS, key.ns(), &key.name).await? else {
            return Ok(Outcome::Done);
        };
        let types = resolve(&client, &needed(std::slice::from_ref(&quota))).await?;
        // Pods are watched by more than this controller, which is told when they end too.
        for (name, resource) in types.iter().filter(|(name, _)| name != "pods") {
            if self.deletions.watch(name, resource) {
                self.queue.add_after(key.clone(), FIRST);
            }
        }
        let contents = read(&client, &key.namespace, &types).await?;
        let Some(status) = decide(&quota, &contents, Timestamp::now()) else { return Ok(Outcome::Done) };
        // Replaced as a whole: a name that is no longer limited must go.
        let version = meta::resource_version(&quota);
        let patch = Patch::Json(json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/status", "value": status},
        ]));
        client.patch(&RESOURCE_QUOTAS, key.ns(), &key.name, &patch, &PatchOptions::status()).await?;
        Ok(Outcome::Done)
    }
}

/// The types that there are of those named.
async fn resolve(client: &Client, names: &[String]) -> Result<Vec<(String, Resource)>, Error> {
    // Only types of named groups have to be looked up.
    let discovered = match names.iter().any(|name| name.contains('.')) {
        true => discover(client).await?.types,
        false => Vec::new(),
    };
    let found = |name: &String| Some((name.clone(), resource_of(name, &discovered)?));
    Ok(names.iter().filter_map(found).collect())
}

async fn read(client: &Client, namespace: &str, types: &[(String, Resource)]) -> Result<Contents, Error> {
    let mut contents = Contents::default();
    for (ty, resource) in types {
        let whole = WHOLE.contains(&ty.as_str());
        let options = ListOptions { metadata_only: !whole, ..ListOptions::default() };
        match client.list_all(resource, Some(namespace), &options).await {
            Ok(list) => drop(contents.objects.insert(ty.clone(), list.items)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    if contents.objects.get(DEVICE_CLAIMS).is_some_and(|claims| !claims.is_empty()) {
        contents.classes = client.list_all(&DEVICE_CLASSES, None, &ListOptions::default()).await?.items;
    }
    Ok(contents)
}

fn resource_of(name: &str, discovered: &[Discovered]) -> Option<Resource> {
    match name.split_once('.') {
        None => Some(Resource::dynamic("", "v1", name, true)),
        Some((plural, group)) => {
            let found = discovered.iter().find(|d| d.resource.plural == plural && d.resource.group == group);
            found.map(|d| d.resource.clone()).filter(|r| r.namespaced)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cpu: &str, phase: &str) -> Value {
        json!({
            "spec": {
                "containers": [{"resources": {"requests": {"cpu": cpu}}}, {"resources": {"requests": {"cpu": "100m"}}}],
                "initContainers": [{"resources": {"requests": {"cpu": "250m"}}}],
            },
            "status": {"phase": phase},
        })
    }

    fn contents() -> Contents {
        let objects = [
            ("pods", vec![pod("100m", "Running"), pod("1", "Running"), pod("8", "Succeeded")]),
            ("configmaps", vec![json!({}), json!({})]),
            (
                "services",
                vec![
                    json!({"spec": {"type": "LoadBalancer", "ports": [{}]}}),
                    json!({"spec": {"type": "NodePort", "ports": [{}]}}),
                ],
            ),
            ("deployments.apps", vec![json!({})]),
            (
                "resourceclaims.resource.k8s.io",
                vec![json!({"spec": {"devices": {"requests": [{"exactly": {
                    "deviceClassName": "gold", "allocationMode": "ExactCount", "count": 2}}]}}})],
            ),
        ];
        let class =
            json!({"metadata": {"name": "gold"}, "spec": {"extendedResourceName": "example.com/gold"}});
        let objects = objects.into_iter().map(|(name, list)| (name.to_owned(), list)).collect();
        Contents { objects, classes: vec![class] }
    }

    /// The status that follows for a quota of a namespace with these contents, at the beginning of time.
    fn at(quota: &Value) -> Option<Value> {
        decide(quota, &contents(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn each_limit_is_counted_by_its_own_rule() {
        let rows = [
            ("requests.cpu", "1350m"),
            ("cpu", "1350m"),
            ("limits.cpu", "0"),
            ("pods", "2"),
            ("count/pods", "3"),
            ("configmaps", "2"),
            ("secrets", "0"),
            ("services.loadbalancers", "1"),
            ("services.nodeports", "2"),
            ("count/deployments.apps", "1"),
            ("gold.deviceclass.resource.k8s.io/devices", "2"),
            ("silver.deviceclass.resource.k8s.io/devices", "0"),
            ("requests.example.com/gold", "2"),
            ("requests.deviceclass.resource.kubernetes.io/gold", "2"),
            ("requests.example.com/silver", "0"),
        ];
        for (name, used) in rows {
            let quota = json!({"spec": {"hard": {name: "10"}}});
            assert_eq!(at(&quota).unwrap()["used"][name], used, "{name}");
        }
    }

    #[test]
    fn scopes_narrow_the_pods_that_count() {
        let quota = |scope: &str| json!({"spec": {"hard": {"pods": "10"}, "scopes": [scope]}});
        for (scope, used) in
            [("BestEffort", "0"), ("NotBestEffort", "2"), ("Terminating", "0"), ("NotTerminating", "2")]
        {
            assert_eq!(at(&quota(scope)).unwrap()["used"]["pods"], used, "{scope}");
        }
    }

    #[test]
    fn a_status_that_is_right_is_left_alone() {
        let mut quota = json!({"spec": {"hard": {"configmaps": "5"}}});
        quota["status"] = at(&quota).unwrap();
        assert_eq!(at(&quota), None);
        assert!(at(&Value::Null).is_some(), "an empty object is tolerated");
    }

    #[test]
    fn only_what_is_limited_is_read() {
        let quotas = [json!({"spec": {"hard": {"cpu": 1, "pods": 1, "count/jobs.batch": 1, "nonsense": 1}}})];
        assert_eq!(needed(&quotas), ["jobs.batch", "pods"]);
        let extended = [json!({"spec": {"hard": {"requests.example.com/gold": 1}}})];
        assert_eq!(needed(&extended), ["pods", DEVICE_CLAIMS], "either may use it");
    }
}
