//! Claims of a Pod: on which nodes their volumes are, or can be.

use super::pod::Pod;
use super::read::{Amounts, LabelMap, amounts, items, list, selector, selects, strings, text};
use super::refusal::Refusal;
use super::snapshot::{Node, Snapshot};
use super::terms::NodeTerm;
use freehold_machinery::selector::Labels;
use freehold_machinery::{Value, meta};
use std::collections::HashMap;

/// Where the choice of a node for a claim is recorded, for whoever makes its volume.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";
/// Labels of volumes that say where they are, and the present name of each.
const ZONES: [(&str, &str); 4] = [
    ("topology.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("topology.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
];

/// A PersistentVolumeClaim.
#[derive(Clone, Debug)]
pub struct Claim {
    volume: Box<str>,
    class: Box<str>,
    is_bound: bool,
    is_lost: bool,
    is_deleting: bool,
    /// The node that was chosen for it; empty before.
    pub selected_node: Box<str>,
    modes: Vec<Box<str>>,
    volume_mode: Box<str>,
    request: Amounts,
    selector: Option<Labels>,
}

/// A PersistentVolume.
#[derive(Clone, Debug)]
pub struct Volume {
    labels: LabelMap,
    class: Box<str>,
    terms: Option<Vec<NodeTerm>>,
    capacity: Amounts,
    modes: Vec<Box<str>>,
    volume_mode: Box<str>,
    is_available: bool,
    /// The claim that it is kept for, as namespace and name.
    claim: Option<(Box<str>, Box<str>)>,
}

/// A label of nodes, and the values that it may have.
type Values = (Box<str>, Vec<Box<str>>);

/// A StorageClass.
#[derive(Clone, Debug)]
pub struct Class {
    waits: bool,
    provisions: bool,
    topologies: Vec<Vec<Values>>,
}

/// Claims, volumes and classes of a plane.
#[derive(Clone, Debug, Default)]
pub struct Volumes {
    /// Claims, by namespace and name.
    pub claims: HashMap<(Box<str>, Box<str>), Claim>,
    volumes: HashMap<Box<str>, Volume>,
    classes: HashMap<Box<str>, Class>,
}

fn mode(object: &Value) -> Box<str> {
    match text(object, "/spec/volumeMode") {
        "" => "Filesystem".into(),
        other => other.into(),
    }
}

impl Claim {
    fn read(claim: &Value) -> Self {
        let volume = text(claim, "/spec/volumeName");
        let is_bound =
            !volume.is_empty() && meta::annotation(claim, "pv.kubernetes.io/bind-completed").is_some();
        Self {
            volume: volume.into(),
            class: text(claim, "/spec/storageClassName").into(),
            is_bound,
            is_lost: text(claim, "/status/phase") == "Lost",
            is_deleting: meta::is_deleting(claim),
            selected_node: meta::annotation(claim, SELECTED_NODE).unwrap_or_default().into(),
            modes: list(claim, "/spec/accessModes"),
            volume_mode: mode(claim),
            request: amounts(claim, "/spec/resources/requests"),
            selector: selector(claim, "/spec/selector"),
        }
    }
}

impl Volume {
    fn read(volume: &Value) -> Self {
        let claim = (text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"));
        Self {
            labels: strings(volume, "/metadata/labels"),
            class: text(volume, "/spec/storageClassName").into(),
            terms: NodeTerm::read_selector(volume, "/spec/nodeAffinity/required"),
            capacity: amounts(volume, "/spec/capacity"),
            modes: list(volume, "/spec/accessModes"),
            volume_mode: mode(volume),
            is_available: !meta::is_deleting(volume) && text(volume, "/status/phase") == "Available",
            claim: (!claim.1.is_empty()).then(|| (claim.0.into(), claim.1.into())),
        }
    }

    fn is_on(&self, node: &Node) -> bool {
        self.terms.as_ref().is_none_or(|terms| terms.iter().any(|term| term.holds(&node.name, &node.labels)))
    }

    /// Whether a claim without a volume can have this one.
    fn satisfies(&self, claim: &Claim, namespace: &str, name: &str) -> bool {
        let storage = |amounts: &Amounts| amounts.get("storage").copied().unwrap_or(0);
        let is_free = match &self.claim {
            Some((by_namespace, by_name)) => **by_namespace == *namespace && **by_name == *name,
            None => {
                self.is_available
                    && claim.selector.as_ref().is_none_or(|one| selects(Some(one), &self.labels))
            }
        };
        is_free
            && self.class == claim.class
            && self.volume_mode == claim.volume_mode
            && storage(&self.capacity) >= storage(&claim.request)
            && claim.modes.iter().all(|mode| self.modes.contains(mode))
    }
}

impl Class {
    fn read(class: &Value) -> Self {
        let expression = |one: &Value| (text(one, "/key").into(), list(one, "/values"));
        let term =
            |term: &Value| items(term, "/matchLabelExpressions").iter().map(expression).collect::<Vec<_>>();
        Self {
            waits: text(class, "/volumeBindingMode") == "WaitForFirstConsumer",
            provisions: text(class, "/provisioner") != NO_PROVISIONER,
            topologies: items(class, "/allowedTopologies").iter().map(term).collect(),
        }
    }

    fn reaches(&self, node: &Node) -> bool {
        let holds = |(key, values): &Values| {
            node.label(key).is_some_and(|own| values.iter().any(|value| **value == *own))
        };
        self.topologies.is_empty()
            || self.topologies.iter().any(|term| !term.is_empty() && term.iter().all(holds))
    }
}

impl Volumes {
    /// Reads claims, volumes and classes.
    pub fn new(claims: &[Value], volumes: &[Value], classes: &[Value]) -> Self {
        let key = |one: &Value| (meta::namespace(one).into(), meta::name(one).into());
        Self {
            claims: claims.iter().map(|one| (key(one), Claim::read(one))).collect(),
            volumes: volumes.iter().map(|one| (meta::name(one).into(), Volume::read(one))).collect(),
            classes: classes.iter().map(|one| (meta::name(one).into(), Class::read(one))).collect(),
        }
    }
}

/// A claim of a Pod that has no volume yet and waits for a node.
#[derive(Clone, Debug)]
struct Open<'a> {
    name: &'a str,
    claim: &'a Claim,
    class: &'a Class,
}

/// The claims of one Pod.
pub(super) struct Claims<'a> {
    volumes: &'a Volumes,
    namespace: &'a str,
    bound: Vec<&'a Claim>,
    open: Vec<Open<'a>>,
    /// Whether another Pod has a claim that one Pod alone may have.
    is_taken: bool,
}

impl<'a> Claims<'a> {
    /// The claims of a Pod; why it can be nowhere, as kube-scheduler says it.
    pub(super) fn of(pod: &'a Pod, snapshot: &'a Snapshot) -> Result<Self, String> {
        let volumes = &snapshot.volumes;
        let mut all =
            Self { volumes, namespace: &pod.namespace, bound: Vec::new(), open: Vec::new(), is_taken: false };
        let mut unbound = false;
        for name in &pod.claims {
            let Some(claim) = volumes.claims.get(&(pod.namespace.clone(), name.clone())) else {
                return Err(format!("persistentvolumeclaim \"{name}\" not found"));
            };
            if claim.is_lost {
                let volume = &claim.volume;
                return Err(format!(
                    "persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume}\""
                ));
            }
            if claim.is_deleting {
                return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
            }
            if claim.is_bound && !volumes.volumes.contains_key(&claim.volume) {
                return Err(format!("persistentvolume \"{}\" not found", claim.volume));
            }
            let class = volumes.classes.get(&claim.class).filter(|class| class.waits);
            match class {
                _ if claim.is_bound => all.bound.push(claim),
                Some(class) => all.open.push(Open { name, claim, class }),
                None => unbound = true,
            }
            if claim.modes.iter().any(|mode| **mode == *READ_WRITE_ONCE_POD) {
                let has = |other: &Pod| other.namespace == pod.namespace && other.claims.contains(name);
                all.is_taken |= snapshot.placed().any(|(_, other)| other.uid != pod.uid && has(other));
            }
        }
        if unbound {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        Ok(all)
    }

    /// Claims that are to be told which node was chosen.
    pub(super) fn waiting(&self) -> Vec<&'a str> {
        self.open.iter().map(|open| open.name).collect()
    }

    /// Why a node can't have the volumes.
    pub(super) fn refuse(&self, node: &Node) -> Vec<Refusal> {
        if self.is_taken {
            return vec![Refusal::resolvable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
            )];
        }
        let mut refusals = Vec::new();
        for claim in &self.bound {
            match self.volumes.volumes.get(&claim.volume) {
                None => refusals.push(Refusal::fixed(
                    "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
                )),
                Some(volume) if !volume.is_on(node) => {
                    refusals.push(Refusal::fixed("node(s) didn't match PersistentVolume's node affinity"))
                }
                Some(volume) if !is_in_zone(volume, node) => {
                    refusals.push(Refusal::fixed("node(s) had no available volume zone"));
                }
                Some(_) => {}
            }
        }
        if !self.finds(node) {
            refusals.push(Refusal::fixed("node(s) didn't find available persistent volumes to bind"));
        }
        refusals.dedup();
        refusals.truncate(1);
        refusals
    }

    /// Whether each open claim can have a volume on a node, of its own.
    fn finds(&self, node: &Node) -> bool {
        let mut taken: Vec<&str> = Vec::new();
        self.open.iter().all(|open| {
            if !open.claim.selected_node.is_empty() && *open.claim.selected_node != *node.name {
                return false;
            }
            let fits = |(name, volume): &(&str, &Volume)| {
                !taken.contains(name)
                    && volume.is_on(node)
                    && volume.satisfies(open.claim, self.namespace, open.name)
            };
            match self.volumes.volumes.iter().map(|(name, volume)| (&**name, volume)).find(fits) {
                Some((name, _)) => {
                    taken.push(name);
                    true
                }
                None => open.class.provisions && open.class.reaches(node),
            }
        })
    }
}

fn is_in_zone(volume: &Volume, node: &Node) -> bool {
    let wanted = ZONES.iter().filter_map(|(label, now)| Some((*label, *now, &**volume.labels.get(*label)?)));
    let has_zone = ZONES.iter().any(|(label, _)| node.label(label).is_some());
    let holds = |(label, now, value): (&str, &str, &str)| {
        let own = node.label(label).or_else(|| node.label(now));
        own.is_some_and(|own| value.split("__").any(|one| one == own))
    };
    !has_zone || wanted.into_iter().all(holds)
}
