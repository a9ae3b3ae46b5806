//! ResourceQuotas: `status.used`, counted from what is there
//! (<https://kubernetes.io/docs/concepts/policy/resource-quotas/>).
//!
//! Admission adds to it with each creation; this controller counts again when quotas change, when pods end or something
//! that is counted is deleted, and from time to time.

mod deletions;

use crate::context::{Context, Reconcile};
use crate::discovery::{Discovered, discover};
use crate::kinds::RESOURCE_QUOTAS;
use crate::object::{items, text};
use deletions::{Deletions, Names};
use freehold_client::{Client, Error, ListOptions, Patch, PatchOptions, Resource};
use freehold_controller_manager_runtime::{
    Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store,
};
use freehold_machinery::{Map, Value, meta, quantity::Quantity};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// How often each quota is counted again without a cause.
const RECOUNT: Duration = Duration::from_secs(120);
/// When it is counted again after a watch has begun, which did not see what went before.
const FIRST: Duration = Duration::from_secs(2);

/// What a name in `spec.hard` counts.
#[derive(Debug, PartialEq)]
enum Counted<'a> {
    /// Objects of a type: `count/deployments.apps`, `configmaps`.
    Objects(&'a str),
    /// A sum over pods: the field of `resources`, and the resource in it.
    Pods(&'a str, &'a str),
    /// A sum over claims.
    Storage,
    /// Services of a type.
    Services(&'a str),
    Unknown,
}

fn counted(name: &str) -> Counted<'_> {
    const PLAIN: &[&str] = &[
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
    ];
    if let Some(resource) = name.strip_prefix("count/") {
        return Counted::Objects(resource);
    }
    if let Some(resource) = name.strip_prefix("limits.") {
        return Counted::Pods("limits", resource);
    }
    match name {
        "requests.storage" => Counted::Storage,
        "services.loadbalancers" => Counted::Services("LoadBalancer"),
        "services.nodeports" => Counted::Services("NodePort"),
        "cpu" | "memory" | "ephemeral-storage" => Counted::Pods("requests", name),
        plain if PLAIN.contains(&plain) => Counted::Objects(plain),
        other => other.strip_prefix("requests.").map_or(Counted::Unknown, |r| Counted::Pods("requests", r)),
    }
}

/// Objects of a namespace that quotas count, by `resource.group`.
#[derive(Default)]
struct Contents {
    objects: BTreeMap<String, Vec<Value>>,
}

/// The status of a quota; `None` where it has it.
fn decide(quota: &Value, contents: &Contents) -> Option<Value> {
    let hard = quota.pointer("/spec/hard").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
    let mut used = Map::new();
    for name in hard.keys() {
        if let Some(sum) = use_of(name, quota, contents) {
            used.insert(name.clone(), sum.into());
        }
    }
    let status = json!({"hard": hard, "used": used});
    let same = |field: &str| quota.pointer(&format!("/status/{field}")) == Some(&status[field]);
    (!(same("hard") && same("used"))).then_some(status)
}

fn use_of(name: &str, quota: &Value, contents: &Contents) -> Option<String> {
    let pods = || contents.of("pods").filter(|pod| counts(quota, pod));
    match counted(name) {
        Counted::Objects("pods") if !name.starts_with("count/") => Some(pods().count().to_string()),
        Counted::Objects(resource) => Some(contents.of(resource).count().to_string()),
        Counted::Services(kind) => {
            let of_kind = |s: &&Value| {
                let this = text(s, "/spec/type");
                this == kind || (kind == "NodePort" && this == "LoadBalancer")
            };
            Some(contents.of("services").filter(of_kind).count().to_string())
        }
        Counted::Storage => {
            let asked = |claim: &Value| quantity(&claim["spec"]["resources"]["requests"]["storage"]);
            Some(sum(contents.of("persistentvolumeclaims").filter_map(asked)))
        }
        Counted::Pods(field, resource) => Some(sum(pods().filter_map(|pod| pod_sum(pod, field, resource)))),
        Counted::Unknown => None,
    }
}

/// Whether a quota counts a pod: it has not ended, and it is in all of the quota's scopes.
fn counts(quota: &Value, pod: &Value) -> bool {
    let ended = matches!(text(pod, "/status/phase"), "Succeeded" | "Failed");
    let terminating = pod["spec"]["activeDeadlineSeconds"].is_number();
    let best_effort = items(pod, "/spec/containers").iter().all(|c| {
        let empty = |field: &str| c["resources"][field].as_object().is_none_or(Map::is_empty);
        empty("requests") && empty("limits")
    });
    let in_scope = |scope: &Value| match scope.as_str() {
        Some("Terminating") => terminating,
        Some("NotTerminating") => !terminating,
        Some("BestEffort") => best_effort,
        Some("NotBestEffort") => !best_effort,
        _ => true,
    };
    !ended && items(quota, "/spec/scopes").iter().all(in_scope)
}

/// What a pod asks for: the sum over its containers, or its largest init container where that is more.
fn pod_sum(pod: &Value, field: &str, resource: &str) -> Option<Quantity> {
    let of = |container: &Value| quantity(&container["resources"][field][resource]);
    let running = items(pod, "/spec/containers").iter().filter_map(of).reduce(|a, b| a.plus(&b));
    let initial = items(pod, "/spec/initContainers").iter().filter_map(of).reduce(larger);
    match (running, initial) {
        (Some(a), Some(b)) => Some(larger(a, b)),
        (a, b) => a.or(b),
    }
}

fn larger(a: Quantity, b: Quantity) -> Quantity {
    if a.minus(&b).sign() < 0 { b } else { a }
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

fn sum(quantities: impl Iterator<Item = Quantity>) -> String {
    quantities.reduce(|a, b| a.plus(&b)).map_or_else(|| "0".to_owned(), |sum| sum.to_string())
}

impl Contents {
    fn of<'a>(&'a self, resource: &str) -> impl Iterator<Item = &'a Value> {
        self.objects.get(resource).into_iter().flatten()
    }
}

/// The types that quotas of a namespace count.
fn needed(quotas: &[Value]) -> Vec<String> {
    let names = quotas.iter().filter_map(|q| q.pointer("/spec/hard")?.as_object()).flat_map(Map::keys);
    let mut types: Vec<String> = names
        .filter_map(|name| match counted(name) {
            Counted::Objects(resource) => Some(resource.to_owned()),
            Counted::Pods(..) => Some("pods".to_owned()),
            Counted::Storage => Some("persistentvolumeclaims".to_owned()),
            Counted::Services(_) => Some("services".to_owned()),
            Counted::Unknown => None,
        })
        .collect();
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
        let ended = |pod: &crate::pods::PodView| !pod.is_active();
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
        let Some(status) = decide(&quota, &contents) else { return Ok(Outcome::Done) };
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
        let whole = matches!(ty.as_str(), "pods" | "services" | "persistentvolumeclaims");
        let options = ListOptions { metadata_only: !whole, ..ListOptions::default() };
        match client.list_all(resource, Some(namespace), &options).await {
            Ok(list) => drop(contents.objects.insert(ty.clone(), list.items)),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
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
                vec![json!({"spec": {"type": "LoadBalancer"}}), json!({"spec": {"type": "NodePort"}})],
            ),
            ("deployments.apps", vec![json!({})]),
        ];
        Contents { objects: objects.into_iter().map(|(name, list)| (name.to_owned(), list)).collect() }
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
        ];
        for (name, used) in rows {
            let quota = json!({"spec": {"hard": {name: "10"}}});
            assert_eq!(decide(&quota, &contents()).unwrap()["used"][name], used, "{name}");
        }
    }

    #[test]
    fn scopes_narrow_the_pods_that_count() {
        let quota = |scope: &str| json!({"spec": {"hard": {"pods": "10"}, "scopes": [scope]}});
        for (scope, used) in
            [("BestEffort", "0"), ("NotBestEffort", "2"), ("Terminating", "0"), ("NotTerminating", "2")]
        {
            assert_eq!(decide(&quota(scope), &contents()).unwrap()["used"]["pods"], used, "{scope}");
        }
    }

    #[test]
    fn a_status_that_is_right_is_left_alone() {
        let mut quota = json!({"spec": {"hard": {"configmaps": "5"}}});
        quota["status"] = decide(&quota, &contents()).unwrap();
        assert_eq!(decide(&quota, &contents()), None);
        assert!(decide(&Value::Null, &contents()).is_some(), "an empty object is tolerated");
    }

    #[test]
    fn only_what_is_limited_is_read() {
        let quotas = [json!({"spec": {"hard": {"cpu": 1, "pods": 1, "count/jobs.batch": 1, "nonsense": 1}}})];
        assert_eq!(needed(&quotas), ["jobs.batch", "pods"]);
    }
}
