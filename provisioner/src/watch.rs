//! The provisioner's watches, and the few fields that it keeps of each object.

use crate::plan::{COMPONENT, args::PORT};
use crate::reconcile::{DEPLOYMENTS, NAMESPACES, PROJECT_CONTROL_PLANES, SECRETS};
use freehold_api::keys;
use freehold_client::Resource;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Informer, Interest, Key, Planes, Queue, Store, conditions};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const PODS: Resource = Resource::namespaced("", "v1", "pods");

/// What is kept of a Pod of a pair.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Member {
    plane: String,
    component: String,
    address: Option<IpAddr>,
    ready: bool,
}

/// What is kept of a Deployment of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Workload {
    /// Whether it runs as it was last applied.
    pub(crate) available: bool,
}

/// What was seen.
pub(crate) struct Stores {
    infra: PlaneId,
    pub(crate) planes: Store<Value>,
    secrets: Store<Value>,
    deployments: Store<Workload>,
    pods: Store<Member>,
}

impl Stores {
    /// A Secret of a pair.
    pub(crate) fn secret(&self, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.secrets.get(&Key::new(self.infra.clone(), namespace, name))
    }

    /// A Deployment of a pair, by the uid of its project.
    pub(crate) fn workload(&self, plane: &str, name: &str) -> Option<Workload> {
        let key = Key::new(self.infra.clone(), &keys::pair_namespace(plane), name);
        self.deployments.get(&key).as_deref().copied()
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

    /// Waits until everything has been seen once. `false`: the token was cancelled before.
    pub(crate) async fn synced(&self, token: &CancellationToken) -> bool {
        self.planes.synced(token).await
            && self.secrets.synced(token).await
            && self.deployments.synced(token).await
            && self.pods.synced(token).await
    }
}

/// Starts all watches. Whatever changes, it is the ProjectControlPlane of the project that comes into the queue.
pub(crate) fn start(
    planes: &Planes,
    infra: &PlaneId,
    queue: &Arc<Queue<Key>>,
    tasks: &mut JoinSet<()>,
    token: &CancellationToken,
) -> Stores {
    let mut informer = Informer::new(planes, Interest::objects(PROJECT_CONTROL_PLANES));
    informer.enqueue_into(queue);
    let own = informer.store();
    tasks.spawn(informer.run(token.clone()));
    let mut watch = Watch { planes, infra, queue, tasks, token };
    watch.owned(NAMESPACES, |namespace| Some(meta::is_deleting(&namespace)));
    Stores {
        infra: infra.clone(),
        planes: own,
        secrets: watch.owned(SECRETS, Some),
        deployments: watch.owned(DEPLOYMENTS, |deployment| Some(workload(&deployment))),
        pods: watch.owned(PODS, |pod| Some(member(&pod))),
    }
}

struct Watch<'a> {
    planes: &'a Planes,
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
            Informer::new(self.planes, Interest::projected(resource, keep).labels(keys::PROJECT_UID));
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

fn workload(deployment: &Value) -> Workload {
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let (status, wanted) = (&deployment["status"], number(&deployment["spec"]["replicas"]));
    let seen = number(&status["observedGeneration"]) >= number(&deployment["metadata"]["generation"]);
    let current =
        number(&status["updatedReplicas"]) >= wanted && number(&status["availableReplicas"]) >= wanted;
    Workload { available: seen && current && wanted > 0 }
}

fn member(pod: &Value) -> Member {
    let label = |key: &str| meta::label(pod, key).unwrap_or_default().to_owned();
    let ready = conditions::is_true(&pod["status"]["conditions"], "Ready") && !meta::is_deleting(pod);
    let address = pod["status"]["podIP"].as_str().and_then(|ip| ip.parse().ok());
    Member { plane: label(keys::PROJECT_UID), component: label(COMPONENT), address, ready }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_deployment_is_available_when_its_last_change_runs() {
        let deployment = |generation: i64, updated: i64, available: i64| {
            json!({
                "metadata": {"generation": 2}, "spec": {"replicas": 1},
                "status": {"observedGeneration": generation, "updatedReplicas": updated, "availableReplicas": available},
            })
        };
        assert!(workload(&deployment(2, 1, 1)).available);
        for (generation, updated, available) in [(1, 1, 1), (2, 0, 1), (2, 1, 0)] {
            assert!(!workload(&deployment(generation, updated, available)).available);
        }
        assert!(!workload(&json!({})).available);
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
}
