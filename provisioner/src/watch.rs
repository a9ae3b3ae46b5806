//! The provisioner's watches, and the few fields that it keeps of each object.

use crate::plan::{COMPONENT, args::PORT};
use crate::problem::{self, Problem};
use crate::rollout::Deployed;
use freehold_api::keys;
use freehold_client::Resource;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Informer, Interest, Key, Planes, Queue, Store, conditions};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(crate) const PROJECT_CONTROL_PLANES: Resource =
    Resource::cluster("infrastructure.freehold.dev", "v1alpha1", "projectcontrolplanes");
pub(crate) const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
pub(crate) const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
const PODS: Resource = Resource::namespaced("", "v1", "pods");
/// What Kubernetes' Deployment controller writes itself.
const REVISION: &str = "deployment.kubernetes.io/revision";

/// A kind of a plan.
pub(crate) struct Kind {
    /// `Deployment`.
    pub(crate) name: &'static str,
    pub(crate) resource: Resource,
    /// Objects of a lower stage are applied before those of a higher one, which need them.
    pub(crate) stage: usize,
}

const fn kind(name: &'static str, resource: Resource, stage: usize) -> Kind {
    Kind { name, resource, stage }
}

/// The kinds of a plan.
pub(crate) static KINDS: [Kind; 7] = [
    kind("Namespace", NAMESPACES, 0),
    kind("ServiceAccount", Resource::namespaced("", "v1", "serviceaccounts"), 1),
    kind("Secret", SECRETS, 1),
    kind("NetworkPolicy", Resource::namespaced("networking.k8s.io", "v1", "networkpolicies"), 1),
    kind("Service", Resource::namespaced("", "v1", "services"), 2),
    kind("PodDisruptionBudget", Resource::namespaced("policy", "v1", "poddisruptionbudgets"), 2),
    kind("Deployment", Resource::namespaced("apps", "v1", "deployments"), 2),
];
/// The last stage.
pub(crate) const LAST_STAGE: usize = 2;

/// What is kept of a Pod of a pair.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    plane: String,
    component: String,
    address: Option<IpAddr>,
    ready: bool,
    problem: Option<Problem>,
}

/// What is kept of a Deployment of a pair.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Workload {
    /// Its image, and whether it runs as it was last applied.
    pub(crate) deployed: Deployed,
    problem: Option<Problem>,
}

/// What is kept of an object that the provisioner made.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    /// Hash of everything but the status and what servers count: another one means that somebody changed it.
    pub(crate) fingerprint: u64,
    /// Whether the provisioner may remove it.
    pub(crate) removable: bool,
    /// The whole object, for a Secret.
    secret: Option<Arc<Value>>,
    /// For a Deployment.
    workload: Option<Workload>,
}

/// What was seen.
pub(crate) struct Stores {
    infra: PlaneId,
    pub(crate) planes: Store<Value>,
    objects: BTreeMap<&'static str, Store<Seen>>,
    pods: Store<Member>,
}

impl Stores {
    fn key(&self, plane: &str, name: &str) -> Key {
        Key::new(self.infra.clone(), &keys::pair_namespace(plane), name)
    }

    /// An object of a pair, by its kind and name; a namespace by its kind alone.
    pub(crate) fn object(&self, plane: &str, kind: &str, name: &str) -> Option<Arc<Seen>> {
        let key = match kind {
            "Namespace" => Key::new(self.infra.clone(), "", &keys::pair_namespace(plane)),
            _ => self.key(plane, name),
        };
        self.objects.get(kind)?.get(&key)
    }

    /// Names of the objects of a kind in a pair's namespace that the provisioner made, and may remove.
    pub(crate) fn removable(&self, plane: &str, kind: &str) -> Vec<String> {
        let Some(store) = self.objects.get(kind) else { return Vec::new() };
        let all = store.in_namespace(&self.infra, &keys::pair_namespace(plane)).into_iter();
        all.filter(|(_, seen)| seen.removable).map(|(key, _)| key.name.to_string()).collect()
    }

    /// Whether objects of a kind were seen up to a resource version.
    pub(crate) fn has_seen(&self, kind: &str, resource_version: &str) -> bool {
        self.objects.get(kind).is_none_or(|store| store.has_seen(resource_version))
    }

    /// A Secret of a pair.
    pub(crate) fn secret(&self, plane: &str, name: &str) -> Option<Arc<Value>> {
        self.object(plane, "Secret", name)?.secret.clone()
    }

    /// A Deployment of a pair, by the uid of its project.
    pub(crate) fn workload(&self, plane: &str, name: &str) -> Option<Workload> {
        self.object(plane, "Deployment", name)?.workload.clone()
    }

    /// The apiservers of all pairs, by the uids of their projects.
    pub(crate) fn apiservers(&self) -> BTreeMap<String, Deployed> {
        let planes = self.planes.keys();
        let found = planes.iter().filter_map(|key| {
            Some((key.name.to_string(), self.workload(&key.name, crate::plan::APISERVER)?.deployed))
        });
        found.collect()
    }

    /// `https://ADDRESS:PORT` of a ready apiserver of a pair; of several the first by name, so that it stays.
    pub(crate) fn endpoint(&self, plane: &str) -> Option<String> {
        let pods = self.pods.in_namespace(&self.infra, &keys::pair_namespace(plane));
        let ready = pods.iter().find_map(|(_, pod)| {
            let usable = pod.ready && pod.component == crate::plan::APISERVER && pod.plane == plane;
            pod.address.filter(|_| usable)
        });
        ready.map(|address| format!("https://{}", std::net::SocketAddr::new(address, PORT)))
    }

    /// What keeps a program of a pair from running.
    pub(crate) fn problem(&self, plane: &str, component: &str) -> Option<Problem> {
        let pods = self.pods.in_namespace(&self.infra, &keys::pair_namespace(plane));
        let own = pods.iter().filter(|(_, pod)| pod.component == component && pod.plane == plane);
        own.clone()
            .find_map(|(_, pod)| pod.problem.clone())
            .or_else(|| self.workload(plane, component).and_then(|workload| workload.problem))
    }

    /// Waits until everything has been seen once. `false`: the token was cancelled before.
    pub(crate) async fn synced(&self, token: &CancellationToken) -> bool {
        for store in self.objects.values() {
            if !store.synced(token).await {
                return false;
            }
        }
        self.planes.synced(token).await && self.pods.synced(token).await
    }
}

/// Starts all watches: of ProjectControlPlanes in `planes`, and of what is made for them in `cluster`. Whatever changes,
/// it is the ProjectControlPlane of the project that comes into the queue.
pub(crate) fn start(
    planes: &Planes,
    cluster: &Planes,
    infra: &PlaneId,
    queue: &Arc<Queue<Key>>,
    tasks: &mut JoinSet<()>,
    token: &CancellationToken,
) -> Stores {
    let mut informer = Informer::new(planes, Interest::objects(PROJECT_CONTROL_PLANES));
    informer.enqueue_into(queue);
    let own = informer.store();
    tasks.spawn(informer.run(token.clone()));
    let mut watch = Watch { cluster, infra, queue, tasks, token };
    let objects = KINDS.iter().map(|kind| {
        let name = kind.name;
        (name, watch.owned(kind.resource.clone(), move |object| Some(seen(name, object))))
    });
    let objects = objects.collect();
    Stores { infra: infra.clone(), planes: own, objects, pods: watch.owned(PODS, |pod| Some(member(&pod))) }
}

struct Watch<'a> {
    cluster: &'a Planes,
    infra: &'a PlaneId,
    queue: &'a Arc<Queue<Key>>,
    tasks: &'a mut JoinSet<()>,
    token: &'a CancellationToken,
}

impl Watch<'_> {
    /// Watches what the provisioner made of one type. A change that leaves what is kept as it was wakes nobody.
    fn owned<T>(
        &mut self,
        resource: Resource,
        keep: impl Fn(Value) -> Option<T> + Send + Sync + 'static,
    ) -> Store<T>
    where
        T: PartialEq + Send + Sync + 'static,
    {
        let cluster_scoped = !resource.namespaced;
        let mut informer =
            Informer::new(self.cluster, Interest::projected(resource, keep).labels(keys::PROJECT_UID));
        let (queue, infra) = (self.queue.clone(), self.infra.clone());
        informer.on_change(move |change| {
            let namespace = if cluster_scoped { &change.key.name } else { &change.key.namespace };
            if change.old == change.new {
                return;
            }
            if let Some(plane) = namespace.strip_prefix(&keys::pair_namespace("")) {
                queue.add(Key::new(infra.clone(), "", plane));
            }
        });
        let store = informer.store();
        self.tasks.spawn(informer.run(self.token.clone()));
        store
    }
}

fn seen(kind: &str, object: Value) -> Seen {
    let ours = meta::label(&object, "app.kubernetes.io/managed-by") == Some(crate::FIELD_MANAGER);
    Seen {
        fingerprint: fingerprint(&object),
        removable: ours && !meta::is_deleting(&object),
        workload: (kind == "Deployment").then(|| workload(&object)),
        secret: (kind == "Secret").then(|| Arc::new(object)),
    }
}

/// A number for the content of an object, without its status and without what servers and their controllers count.
pub(crate) fn fingerprint(object: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (field, value) in object.as_object().into_iter().flatten() {
        if !matches!(field.as_str(), "metadata" | "status" | "apiVersion" | "kind") {
            (field.as_str(), value.to_string()).hash(&mut hasher);
        }
    }
    let metadata = &object["metadata"];
    for (key, value) in metadata["annotations"].as_object().into_iter().flatten() {
        if key.as_str() != REVISION {
            (key.as_str(), value.to_string()).hash(&mut hasher);
        }
    }
    for field in ["labels", "ownerReferences", "deletionTimestamp"] {
        metadata[field].to_string().hash(&mut hasher);
    }
    hasher.finish()
}

fn workload(deployment: &Value) -> Workload {
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let (status, wanted) = (&deployment["status"], number(&deployment["spec"]["replicas"]));
    let seen = number(&status["observedGeneration"]) >= number(&deployment["metadata"]["generation"]);
    // Old Pods that are still there count among `replicas`.
    let current = number(&status["updatedReplicas"]) >= wanted
        && number(&status["availableReplicas"]) >= wanted
        && number(&status["replicas"]) <= number(&status["updatedReplicas"]);
    let image = deployment["spec"]["template"]["spec"]["containers"][0]["image"].as_str();
    let revision = meta::annotation(deployment, REVISION).unwrap_or("1");
    let deployed = Deployed {
        image: image.unwrap_or_default().to_owned(),
        available: seen && current && wanted > 0,
        first: revision == "1",
        asleep: deployment["spec"]["replicas"] == 0,
    };
    Workload { deployed, problem: problem::of_deployment(deployment) }
}

fn member(pod: &Value) -> Member {
    let label = |key: &str| meta::label(pod, key).unwrap_or_default().to_owned();
    let going = meta::is_deleting(pod);
    let ready = conditions::is_true(&pod["status"]["conditions"], "Ready") && !going;
    let address = pod["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok());
    let problem = if ready || going { None } else { problem::of_pod(pod) };
    Member { plane: label(keys::PROJECT_UID), component: label(COMPONENT), address, ready, problem }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deployment_is_available_when_its_last_change_runs_alone() {
        let deployment = |generation: i64, updated: i64, available: i64, all: i64| {
            json!({
                "metadata": {"generation": 2}, "spec": {"replicas": 1},
                "status": {
                    "observedGeneration": generation, "updatedReplicas": updated,
                    "availableReplicas": available, "replicas": all,
                },
            })
        };
        assert!(workload(&deployment(2, 1, 1, 1)).deployed.available);
        for (generation, updated, available, all) in [(1, 1, 1, 1), (2, 0, 1, 1), (2, 1, 0, 1), (2, 1, 1, 2)]
        {
            assert!(!workload(&deployment(generation, updated, available, all)).deployed.available);
        }
        assert!(!workload(&json!({})).deployed.available);
    }

    #[test]
    fn a_pod_on_its_way_out_is_not_ready() {
        let mut pod = json!({
            "metadata": {"labels": {COMPONENT: "apiserver"}},
            "status": {"podIP": "127.64.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
        });
        assert!(member(&pod).ready);
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(!member(&pod).ready);
    }

    #[test]
    fn what_others_change_has_another_fingerprint_and_what_servers_count_has_not() {
        let object = json!({
            "kind": "Deployment", "spec": {"replicas": 1}, "status": {"replicas": 0},
            "metadata": {"labels": {"a": "b"}, "resourceVersion": "1", "annotations": {}},
        });
        let changed = |change: &dyn Fn(&mut Value)| {
            let mut other = object.clone();
            change(&mut other);
            fingerprint(&other) != fingerprint(&object)
        };
        assert!(!changed(&|o| o["status"]["replicas"] = 1.into()));
        assert!(!changed(&|o| o["metadata"]["resourceVersion"] = "2".into()));
        assert!(!changed(&|o| o["metadata"]["annotations"][REVISION] = "2".into()));
        assert!(changed(&|o| o["spec"]["replicas"] = 2.into()));
        assert!(changed(&|o| o["metadata"]["labels"]["a"] = "c".into()));
        assert!(changed(&|o| o["data"] = json!({"a": "b"})));
    }

    #[test]
    fn every_kind_of_a_plan_has_its_type_and_its_stage() {
        for kind in &KINDS {
            assert!(kind.resource.namespaced != (kind.name == "Namespace"), "{}", kind.name);
            assert!(
                kind.stage <= LAST_STAGE && (kind.stage == 0) == (kind.name == "Namespace"),
                "{}",
                kind.name
            );
        }
    }
}
