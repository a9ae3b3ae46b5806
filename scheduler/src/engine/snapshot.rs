//! What is there in one plane: nodes with the Pods on them, and what else decides where a Pod may be.

use super::pod::Pod;
use super::read::{Amounts, LabelMap, add, amounts, items, strings, text};
use super::terms::Taint;
use super::volumes::Volumes;
use freehold_machinery::selector::Labels;
use freehold_machinery::{Value, meta};
use std::collections::HashMap;
use std::sync::Arc;

/// A node, with the Pods on it.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its name.
    pub name: Box<str>,
    /// Its labels.
    pub labels: LabelMap,
    /// Its taints.
    pub taints: Vec<Taint>,
    /// Whether it is cordoned.
    pub is_unschedulable: bool,
    /// What its Pods may request together.
    pub allocatable: Amounts,
    /// Sizes in bytes of the images that it has, by name.
    pub images: HashMap<Box<str>, i64>,
    /// The Pods on it.
    pub pods: Vec<Arc<Pod>>,
    /// What those request together.
    pub requested: Amounts,
    /// CPU and memory that those count with in scores.
    pub scored: (i64, i64),
}

impl Node {
    /// Reads a Node, without any Pods.
    pub fn read(node: &Value) -> Self {
        let mut images = HashMap::new();
        for image in items(node, "/status/images") {
            for name in items(image, "/names").iter().filter_map(Value::as_str) {
                images.insert(name.into(), image["sizeBytes"].as_i64().unwrap_or(0));
            }
        }
        Self {
            name: meta::name(node).into(),
            labels: strings(node, "/metadata/labels"),
            taints: items(node, "/spec/taints").iter().map(Taint::read).collect(),
            is_unschedulable: node["spec"]["unschedulable"] == true,
            allocatable: amounts(node, "/status/allocatable"),
            images,
            ..Self::default()
        }
    }

    /// Puts a Pod on the node.
    pub fn put(&mut self, pod: Arc<Pod>) {
        add(&mut self.requested, &pod.requests);
        self.scored.0 = self.scored.0.saturating_add(pod.scored.0);
        self.scored.1 = self.scored.1.saturating_add(pod.scored.1);
        self.pods.push(pod);
    }

    /// Replaces the Pods on the node.
    pub fn set_pods(&mut self, pods: impl IntoIterator<Item = Arc<Pod>>) {
        (self.pods, self.requested, self.scored) = (Vec::new(), Amounts::new(), (0, 0));
        pods.into_iter().for_each(|pod| self.put(pod));
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(|value| &**value)
    }

    /// Amount of a resource that its Pods may request together.
    pub fn capacity(&self, name: &str) -> i64 {
        self.allocatable.get(name).copied().unwrap_or(0)
    }

    /// Amount of a resource that its Pods request together.
    pub fn used(&self, name: &str) -> i64 {
        self.requested.get(name).copied().unwrap_or(0)
    }
}

/// A disruption budget: how many of the Pods that it selects may still be evicted.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Its namespace.
    pub namespace: Box<str>,
    /// The Pods that it is about.
    pub selector: Option<Labels>,
    /// How many more may be evicted.
    pub allowed: i64,
    /// Pods whose eviction it counts already.
    pub disrupted: Vec<Box<str>>,
}

impl Budget {
    /// Reads a PodDisruptionBudget with its status; without one it allows no eviction.
    pub fn read(budget: &Value) -> Self {
        let disrupted = budget.pointer("/status/disruptedPods").and_then(Value::as_object);
        Self {
            namespace: meta::namespace(budget).into(),
            selector: super::read::selector(budget, "/spec/selector").filter(|all| !all.is_empty()),
            allowed: budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0),
            disrupted: disrupted.into_iter().flatten().map(|(name, _)| name.as_str().into()).collect(),
        }
    }
}

/// A Service or a controller of Pods, whose Pods are spread over zones and nodes where they say nothing themselves.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its Pods.
    pub selector: Labels,
}

/// Everything in one plane that decides where a Pod may be.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Labels of namespaces.
    pub namespaces: HashMap<Box<str>, LabelMap>,
    /// Claims, volumes and classes.
    pub volumes: Volumes,
    /// Disruption budgets.
    pub budgets: Vec<Budget>,
    /// Services and controllers of Pods, where they are wanted for scores.
    pub groups: Vec<Group>,
    /// Pods that wait for Pods of lower priority to end on the node that they name.
    pub nominated: Vec<Arc<Pod>>,
}

impl Snapshot {
    /// A snapshot of Nodes and Pods. Pods that have ended, or are on no node that is there, are left out.
    pub fn new<'a>(nodes: &[Value], pods: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut nodes: Vec<Node> = nodes.iter().map(Node::read).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let mut snapshot = Self { nodes, ..Self::default() };
        for pod in pods.into_iter().filter(|pod| !has_ended(pod)) {
            let pod = Arc::new(Pod::read(pod));
            if pod.node.is_empty() {
                if !pod.nominated.is_empty() {
                    snapshot.nominated.push(pod);
                }
            } else {
                snapshot.put(pod);
            }
        }
        snapshot
    }

    /// Reads the labels of Namespaces.
    pub fn with_namespaces(mut self, namespaces: &[Value]) -> Self {
        let entry = |one: &Value| (meta::name(one).into(), strings(one, "/metadata/labels"));
        self.namespaces = namespaces.iter().map(entry).collect();
        self
    }

    /// The place of a node.
    pub fn position(&self, node: &str) -> Option<usize> {
        self.nodes.binary_search_by(|own| (*own.name).cmp(node)).ok()
    }

    /// Puts a Pod on the node that it names.
    pub fn put(&mut self, pod: Arc<Pod>) {
        if let Some(position) = self.position(&pod.node) {
            self.nodes[position].put(pod);
        }
    }

    /// Whether a Pod on a node selects namespaces by their labels.
    pub fn selects_namespaces(&self) -> bool {
        let by_labels = |pod: &Arc<Pod>| {
            let terms = pod.affinity.iter().chain(&pod.anti_affinity).chain(&pod.preferred_pods);
            terms.into_iter().any(super::terms::PodTerm::selects_namespaces)
        };
        self.placed().any(|(_, pod)| by_labels(pod))
    }

    /// Labels of a namespace.
    pub fn namespace_labels(&self, namespace: &str) -> &LabelMap {
        static NONE: LabelMap = LabelMap::new();
        self.namespaces.get(namespace).unwrap_or(&NONE)
    }

    /// All Pods that are on nodes, each with its node.
    pub fn placed(&self) -> impl Iterator<Item = (&Node, &Arc<Pod>)> {
        self.nodes.iter().flat_map(|node| node.pods.iter().map(move |pod| (node, pod)))
    }
}

/// Whether a Pod's containers have ended for good.
pub(crate) fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}
