//! What controllers keep of each pod: a small part of it.

use crate::job_pod::{JobPod, is_tracked};
use crate::object::{controller_of, controller_reference, items, orphan_entry, text};
use freehold_client::Error;
use freehold_machinery::{Map, Value, meta, time};
use freehold_runtime::Key;
use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use serde_json::json;
use std::cmp::Ordering;
use std::time::Duration;

/// The index entry of pods that ended.
pub const ENDED: &str = "ended";
/// Requests of one reconcile at once.
const CONCURRENT: usize = 16;
/// What it costs to delete a pod, for who has the choice.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// What is kept of a pod.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodView {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.labels`.
    pub labels: Option<Map>,
    /// The uid of its controller; empty where it has none.
    pub owner: String,
    /// Whether its deletion has begun.
    pub deleting: bool,
    /// `status.phase`.
    pub phase: Phase,
    /// Whether its condition `Ready` is true.
    pub ready: bool,
    /// When it became ready, RFC 3339; empty where it is not.
    pub ready_since: String,
    /// When it ceased to be ready, RFC 3339; empty where it is ready or never said.
    pub unready_since: String,
    /// Whether it has a node.
    pub scheduled: bool,
    /// When it was created, RFC 3339.
    pub created: String,
    /// The node that it is on; empty where it has none.
    pub node: String,
    /// Its addresses, the first one first.
    pub ips: Vec<String>,
    /// `spec.hostname` and `spec.subdomain`, each empty where it has none.
    pub host: (Box<str>, Box<str>),
    /// Named ports of containers, then of sidecars.
    pub ports: Vec<NamedPort>,
    /// Most restarts of an ordinary container, and of a sidecar.
    pub restarts: (i64, i64),
    /// What deleting it costs, for controllers that have the choice.
    pub deletion_cost: i32,
    /// The node that its affinity alone names, for one that no node has yet; empty otherwise.
    pub target: Box<str>,
    /// Its volumes that are claims, with the claims' names; for pods of StatefulSets and those without a controller.
    pub claims: Box<[(Box<str>, Box<str>)]>,
    /// It has volumes that come with claims of their own.
    pub has_ephemeral: bool,
    /// What Jobs read, for their pods and those that wait for one.
    pub job: Option<Box<JobPod>>,
    /// Its controller is no Job.
    pub of_other: bool,
    /// Whether its node evicted it.
    pub evicted: bool,
    /// When it was told that it is about to be evicted, RFC 3339, unless the node told so; empty where it was not.
    pub disrupted_since: String,
}

/// A port of a container that has a name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedPort {
    /// Its name.
    pub name: Box<str>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Box<str>,
    /// Its number in the container.
    pub number: i64,
}

/// `status.phase`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not all of its containers have started.
    #[default]
    Pending,
    /// Its node has not reported.
    Unknown,
    /// A container runs, or is about to.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
}

impl PodView {
    /// Returns what is kept of a pod.
    pub fn of(pod: Value) -> Option<Self> {
        let readiness = items(&pod, "/status/conditions").iter().find(|c| c["type"] == "Ready");
        let (ready, unready) = match readiness {
            Some(said) if said["status"] == "True" => (Some(said), None),
            said => (None, said),
        };
        let since = |said: Option<&Value>| said.map(|c| text(c, "/lastTransitionTime").to_owned());
        let controller = controller_of(&pod);
        let of_job =
            controller.is_some_and(|o| o["kind"] == "Job" && text(o, "/apiVersion").starts_with("batch/"));
        let of_set = controller.is_none_or(|o| o["kind"] == "StatefulSet");
        let ips: Vec<String> =
            items(&pod, "/status/podIPs").iter().map(|ip| text(ip, "/ip").to_owned()).collect();
        Some(Self {
            uid: meta::uid(&pod).to_owned(),
            resource_version: meta::resource_version(&pod).to_owned(),
            labels: crate::object::labels(&pod).cloned(),
            owner: controller.and_then(|o| o["uid"].as_str()).unwrap_or_default().to_owned(),
            of_other: controller.is_some() && !of_job,
            evicted: text(&pod, "/status/reason") == "Evicted",
            disrupted_since: disrupted_since(&pod),
            has_ephemeral: items(&pod, "/spec/volumes").iter().any(|v| v["ephemeral"].is_object()),
            target: target(&pod),
            claims: if of_set { claims(&pod) } else { Box::default() },
            job: (of_job || is_tracked(&pod)).then(|| Box::new(JobPod::of(&pod))),
            deleting: meta::is_deleting(&pod),
            phase: Phase::of(text(&pod, "/status/phase")),
            ready: ready.is_some(),
            ready_since: since(ready).unwrap_or_default(),
            unready_since: since(unready).unwrap_or_default(),
            host: (text(&pod, "/spec/hostname").into(), text(&pod, "/spec/subdomain").into()),
            scheduled: !text(&pod, "/spec/nodeName").is_empty(),
            created: meta::text(&pod, "creationTimestamp").to_owned(),
            node: text(&pod, "/spec/nodeName").to_owned(),
            ips: if ips.is_empty() { single(text(&pod, "/status/podIP")) } else { ips },
            ports: named_ports(&pod),
            restarts: restarts(&pod),
            deletion_cost: meta::annotation(&pod, DELETION_COST).and_then(|c| c.parse().ok()).unwrap_or(0),
        })
    }

    /// Index entries: the controller's uid or the namespace's orphans, the node, and [`ENDED`].
    pub fn index(key: &Key, pod: &Self) -> Vec<String> {
        let mut entries =
            vec![if pod.owner.is_empty() { orphan_entry(&key.namespace) } else { pod.owner.clone() }];
        if !pod.node.is_empty() {
            entries.push(Self::on_node(&pod.node));
        }
        if pod.has_ended() {
            entries.push(ENDED.to_owned());
        }
        entries
    }

    /// The index entry of pods on a node.
    pub fn on_node(node: &str) -> String {
        format!("on {node}")
    }

    /// Whether it will not run any more.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// The node that it is on or waits for; empty where that is open.
    pub fn node_or_target(&self) -> &str {
        if self.node.is_empty() { &self.target } else { &self.node }
    }

    /// How long it still has to stay ready to be available; `None` where it is not ready.
    pub fn available_in(&self, wait: Duration, now: Timestamp) -> Option<Duration> {
        let since = time::parse(&self.ready_since).unwrap_or(now);
        self.ready.then(|| wait.saturating_sub(now.duration_since(since).unsigned_abs()))
    }

    /// Whether it has been ready for long enough.
    pub fn is_available(&self, wait: Duration, now: Timestamp) -> bool {
        self.available_in(wait, now).is_some_and(|left| left.is_zero())
    }

    /// One of its labels; empty where it has none.
    pub fn label(&self, name: &str) -> &str {
        self.labels.as_ref().and_then(|labels| labels.get(name)).and_then(Value::as_str).unwrap_or("")
    }

    /// Whether it has neither ended nor been told to.
    pub fn is_active(&self) -> bool {
        !self.deleting && !matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}

fn named_ports(pod: &Value) -> Vec<NamedPort> {
    let sidecars = items(pod, "/spec/initContainers").iter().filter(|c| c["restartPolicy"] == "Always");
    let ports = items(pod, "/spec/containers").iter().chain(sidecars).flat_map(|c| items(c, "/ports"));
    let named = ports.filter_map(|port| {
        Some(NamedPort {
            name: port["name"].as_str().filter(|name| !name.is_empty())?.into(),
            protocol: port["protocol"].as_str().unwrap_or("TCP").into(),
            number: port["containerPort"].as_i64()?,
        })
    });
    named.collect()
}

/// The node that a pod's required affinity names by its `metadata.name`.
fn target(pod: &Value) -> Box<str> {
    const TERMS: &str =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    if !text(pod, "/spec/nodeName").is_empty() {
        return Box::default();
    }
    let fields = items(pod, TERMS).iter().flat_map(|term| items(term, "/matchFields"));
    let mut named = fields.filter(|f| f["key"] == "metadata.name" && f["operator"] == "In");
    let values = named.next().map_or(&[][..], |field| items(field, "/values"));
    match values {
        [Value::String(name)] => name.as_str().into(),
        _ => Box::default(),
    }
}

fn claims(pod: &Value) -> Box<[(Box<str>, Box<str>)]> {
    let volumes = items(pod, "/spec/volumes").iter().filter(|v| v["persistentVolumeClaim"].is_object());
    volumes.map(|v| (text(v, "/name").into(), text(v, "/persistentVolumeClaim/claimName").into())).collect()
}

fn disrupted_since(pod: &Value) -> String {
    let target = items(pod, "/status/conditions").iter().find(|c| c["type"] == "DisruptionTarget");
    let target = target.filter(|c| c["status"] == "True" && c["reason"] != "TerminationByKubelet");
    target.map(|c| text(c, "/lastTransitionTime").to_owned()).unwrap_or_default()
}

/// Most restarts of an ordinary container and of a sidecar.
fn restarts(pod: &Value) -> (i64, i64) {
    let sidecar = |status: &&Value| {
        let same = |c: &&Value| c["name"] == status["name"];
        let container = items(pod, "/spec/initContainers").iter().find(same);
        container.is_some_and(|c| c["restartPolicy"] == "Always")
    };
    let count = |status: &Value| status["restartCount"].as_i64();
    let ordinary = items(pod, "/status/containerStatuses").iter().filter_map(count);
    let sidecars = items(pod, "/status/initContainerStatuses").iter().filter(sidecar).filter_map(count);
    (ordinary.max().unwrap_or(0), sidecars.max().unwrap_or(0))
}

/// Which of two pods is missed less: unscheduled, pending, not ready, not ready for long, restarted, young ones.
pub fn worth(a: &PodView, b: &PodView) -> Ordering {
    let ranks = |pod: &PodView| (pod.scheduled, pod.phase, pod.ready);
    ranks(a)
        .cmp(&ranks(b))
        .then_with(|| b.ready_since.cmp(&a.ready_since))
        .then_with(|| b.restarts.cmp(&a.restarts))
        .then_with(|| b.created.cmp(&a.created))
}

/// Does something for each item: for one, then for twice as many each time. After a failure those that were begun end, and
/// no others begin. Gives how many succeeded, and the first failure.
pub async fn burst<T, F>(items: Vec<T>, act: impl Fn(T) -> F) -> (usize, Result<(), Error>)
where
    F: Future<Output = Result<(), Error>>,
{
    let (mut done, mut size) = (0, 1);
    let mut items = items.into_iter();
    while items.len() > 0 {
        let batch = stream::iter(items.by_ref().take(size)).map(&act);
        let results: Vec<_> = batch.buffer_unordered(CONCURRENT).collect().await;
        done += results.iter().filter(|result| result.is_ok()).count();
        if let Some(error) = results.into_iter().find_map(Result::err) {
            return (done, Err(error));
        }
        size *= 2;
    }
    (done, Ok(()))
}

/// A pod from a template, controlled by `owner` and named after it.
pub fn new_pod(owner: &Value, template: &Value) -> Value {
    let mut metadata = json!({
        "generateName": format!("{}-", meta::name(owner)),
        "namespace": meta::namespace(owner),
        "ownerReferences": [controller_reference(owner)],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template.pointer("/metadata").and_then(|m| m.get(field)) {
            metadata[field] = value.clone();
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

fn single(ip: &str) -> Vec<String> {
    if ip.is_empty() { Vec::new() } else { vec![ip.to_owned()] }
}

impl Phase {
    fn of(phase: &str) -> Self {
        match phase {
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            "Unknown" => Self::Unknown,
            _ => Self::Pending,
        }
    }
}
