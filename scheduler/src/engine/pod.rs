//! What scheduling reads of a Pod.

use super::read::{Amounts, LabelMap, add, amounts, items, raise, strings, text};
use super::terms::{NodeTerm, PodTerm, Spread, Toleration};
use freehold_machinery::{Value, meta};

/// CPU, in thousandths, that a container without a request counts with in scores.
const SCORED_CPU: i64 = 100;
/// Memory, in bytes, that a container without a request counts with in scores.
const SCORED_MEMORY: i64 = 200 << 20;

/// A port of the node that a container takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    port: i64,
    protocol: Box<str>,
    address: Box<str>,
}

impl HostPort {
    /// Whether two Pods on one node can't have both ports.
    pub fn collides(&self, other: &Self) -> bool {
        const ALL: &str = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address == other.address || *self.address == *ALL || *other.address == *ALL)
    }
}

/// What scheduling reads of a Pod.
#[derive(Clone, Debug, Default)]
pub struct Pod {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// Its labels.
    pub labels: LabelMap,
    /// The node that it is bound to; empty while it waits.
    pub node: Box<str>,
    /// The node that Pods were evicted from for it; empty without one.
    pub nominated: Box<str>,
    /// Its priority.
    pub priority: i64,
    /// Whether it evicts Pods of lower priority.
    pub preempts: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// When it started, as text that sorts by time; empty before.
    pub started: Box<str>,
    /// What it requests.
    pub requests: Amounts,
    /// CPU and memory that it counts with in scores.
    pub scored: (i64, i64),
    /// Labels that its node has to have.
    pub node_selector: LabelMap,
    /// Terms of which its node has to satisfy one; `None` without any.
    pub node_terms: Option<Vec<NodeTerm>>,
    /// Terms that add to a node's score, with their weights.
    pub preferred_nodes: Vec<(i64, NodeTerm)>,
    /// What it tolerates.
    pub tolerations: Vec<Toleration>,
    /// Ports of its node that it takes.
    pub ports: Vec<HostPort>,
    /// Pods that it has to be near to.
    pub affinity: Vec<PodTerm>,
    /// Pods that it may not be near to.
    pub anti_affinity: Vec<PodTerm>,
    /// Pods that it rather is near to, or with a negative weight is not.
    pub preferred_pods: Vec<PodTerm>,
    /// How Pods like it are spread.
    pub spread: Vec<Spread>,
    /// The claims that it mounts.
    pub claims: Vec<Box<str>>,
    /// The images of its containers.
    pub images: Vec<Box<str>>,
}

const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";

impl Pod {
    /// Reads a Pod as the API has it; what is absent or of another type is empty.
    pub fn read(pod: &Value) -> Self {
        let spec = pod.get("spec").unwrap_or(&Value::Null);
        let namespace = meta::namespace(pod);
        let labels = strings(pod, "/metadata/labels");
        let required = |kind: &str| -> Vec<PodTerm> {
            let terms = items(spec, &format!("/affinity/{kind}/{REQUIRED}"));
            terms.iter().map(|term| PodTerm::read(term, namespace, 0)).collect()
        };
        let preferred = |kind: &str, sign: i64| -> Vec<PodTerm> {
            let terms = items(spec, &format!("/affinity/{kind}/{PREFERRED}"));
            let read = |term: &Value| {
                let weight = sign * term["weight"].as_i64().unwrap_or(0);
                PodTerm::read(&term["podAffinityTerm"], namespace, weight)
            };
            terms.iter().map(read).collect()
        };
        let mut preferred_pods = preferred("podAffinity", 1);
        preferred_pods.extend(preferred("podAntiAffinity", -1));
        let nodes = items(spec, &format!("/affinity/nodeAffinity/{PREFERRED}"));
        let node_term =
            |term: &Value| (term["weight"].as_i64().unwrap_or(0), NodeTerm::read(&term["preference"]));
        Self {
            namespace: namespace.into(),
            name: meta::name(pod).into(),
            uid: meta::uid(pod).into(),
            node: text(spec, "/nodeName").into(),
            nominated: text(pod, "/status/nominatedNodeName").into(),
            priority: spec["priority"].as_i64().unwrap_or(0),
            preempts: text(spec, "/preemptionPolicy") != "Never",
            is_deleting: meta::is_deleting(pod),
            started: text(pod, "/status/startTime").into(),
            requests: requests(pod, spec),
            scored: scored(spec),
            node_selector: strings(spec, "/nodeSelector"),
            node_terms: NodeTerm::read_selector(spec, &format!("/affinity/nodeAffinity/{REQUIRED}")),
            preferred_nodes: nodes.iter().map(node_term).collect(),
            tolerations: items(spec, "/tolerations").iter().map(Toleration::read).collect(),
            ports: ports(spec),
            affinity: required("podAffinity"),
            anti_affinity: required("podAntiAffinity"),
            preferred_pods,
            spread: items(spec, "/topologySpreadConstraints")
                .iter()
                .map(|constraint| Spread::read(constraint, &labels))
                .collect(),
            claims: claims(spec, meta::name(pod)),
            images: items(spec, "/containers").iter().map(|c| text(c, "/image").into()).collect(),
            labels,
        }
    }

    /// Whether its node selector and required node affinity admit a node.
    pub fn admits(&self, name: &str, labels: &LabelMap) -> bool {
        self.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.node_terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.holds(name, labels)))
    }

    /// The only nodes that its affinity allows, by name; `None` where it names none.
    pub fn named_nodes(&self) -> Option<Vec<&str>> {
        let terms = self.node_terms.as_ref()?;
        let names: Option<Vec<_>> = terms.iter().map(NodeTerm::names).collect();
        Some(names?.into_iter().flatten().collect())
    }

    /// Amount of a resource that it requests.
    pub fn request(&self, name: &str) -> i64 {
        self.requests.get(name).copied().unwrap_or(0)
    }
}

fn is_sidecar(container: &Value) -> bool {
    text(container, "/restartPolicy") == "Always"
}

/// What a container requests: the larger of what is asked for and what its node has given it.
fn request(container: &Value, statuses: &[Value]) -> Amounts {
    let mut sum = amounts(container, "/resources/requests");
    let name = text(container, "/name");
    if let Some(status) = statuses.iter().find(|status| text(status, "/name") == name) {
        raise(&mut sum, &amounts(status, "/allocatedResources"));
        raise(&mut sum, &amounts(status, "/resources/requests"));
    }
    sum
}

/// What a Pod requests, by the rule of sidecar containers (KEP-753) and of requests of whole Pods (KEP-2837).
fn requests(pod: &Value, spec: &Value) -> Amounts {
    let mut total = Amounts::new();
    for container in items(spec, "/containers") {
        add(&mut total, &request(container, items(pod, "/status/containerStatuses")));
    }
    let (mut sidecars, mut largest) = (Amounts::new(), Amounts::new());
    for container in items(spec, "/initContainers") {
        let mut used = request(container, items(pod, "/status/initContainerStatuses"));
        if is_sidecar(container) {
            add(&mut sidecars, &used);
            used = sidecars.clone();
        } else {
            add(&mut used, &sidecars);
        }
        raise(&mut largest, &used);
    }
    add(&mut total, &sidecars);
    raise(&mut total, &largest);
    for (name, amount) in amounts(spec, "/resources/requests") {
        total.insert(name, amount);
    }
    add(&mut total, &amounts(spec, "/overhead"));
    total
}

/// CPU and memory that a Pod counts with in scores, where containers without requests count with something.
fn scored(spec: &Value) -> (i64, i64) {
    let of = |name: &str, default: i64| {
        let one = |container: &Value| {
            amounts(container, "/resources/requests").get(name).copied().unwrap_or(default)
        };
        let sum: i64 = items(spec, "/containers").iter().map(one).fold(0, i64::saturating_add);
        let (mut sidecars, mut largest) = (0i64, 0i64);
        for container in items(spec, "/initContainers") {
            if is_sidecar(container) {
                sidecars = sidecars.saturating_add(one(container));
                largest = largest.max(sidecars);
            } else {
                largest = largest.max(one(container).saturating_add(sidecars));
            }
        }
        let whole = amounts(spec, "/resources/requests").get(name).copied();
        let total = whole.unwrap_or_else(|| sum.saturating_add(sidecars).max(largest));
        total.saturating_add(amounts(spec, "/overhead").get(name).copied().unwrap_or(0))
    };
    (of("cpu", SCORED_CPU), of("memory", SCORED_MEMORY))
}

fn ports(spec: &Value) -> Vec<HostPort> {
    let sidecars = items(spec, "/initContainers").iter().filter(|container| is_sidecar(container));
    let containers = items(spec, "/containers").iter().chain(sidecars);
    let or = |text: &str, default: &str| if text.is_empty() { default.into() } else { text.into() };
    let read = |port: &Value| {
        let number = port["hostPort"].as_i64().filter(|number| *number > 0)?;
        let address = or(text(port, "/hostIP"), "0.0.0.0");
        Some(HostPort { port: number, protocol: or(text(port, "/protocol"), "TCP"), address })
    };
    containers.flat_map(|container| items(container, "/ports")).filter_map(read).collect()
}

fn claims(spec: &Value, pod: &str) -> Vec<Box<str>> {
    let claim = |volume: &Value| {
        if volume.get("ephemeral").is_some_and(|ephemeral| !ephemeral.is_null()) {
            return Some(format!("{pod}-{}", text(volume, "/name")).into());
        }
        Some(text(volume, "/persistentVolumeClaim/claimName")).filter(|name| !name.is_empty()).map(Into::into)
    };
    items(spec, "/volumes").iter().filter_map(claim).collect()
}
