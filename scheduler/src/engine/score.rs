//! Which of the nodes that a Pod may be on is the best: the scores of kube-scheduler's default profile, with its weights.

use super::near::preferences;
use super::pod::Pod;
use super::read::selects;
use super::snapshot::{Node, Snapshot};
use super::spread::{count, has_keys, includes};
use super::terms::Spread;
use freehold_machinery::selector::Labels;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

const MAX: i64 = 100;
const HOSTNAME: &str = "kubernetes.io/hostname";
const ZONE: &str = "topology.kubernetes.io/zone";
const MIB: i64 = 1 << 20;

/// Scores of nodes for a Pod, in the order of the places that are given.
pub fn scores(pod: &Pod, snapshot: &Snapshot, feasible: &[usize]) -> Vec<i64> {
    let nodes: Vec<&Node> = feasible.iter().filter_map(|place| snapshot.nodes.get(*place)).collect();
    let each =
        |score: fn(&Pod, &Node) -> i64| -> Vec<i64> { nodes.iter().map(|node| score(pod, node)).collect() };
    let weighted = [
        (3, normalized(each(intolerable), true)),
        (2, normalized(each(preferred), false)),
        (2, spread(pod, snapshot, &nodes)),
        (2, near(pod, snapshot, &nodes)),
        (1, each(least_allocated)),
        (1, each(balanced)),
        (1, images(pod, snapshot, &nodes)),
    ];
    let sum = |nth: usize| weighted.iter().map(|(weight, scores)| weight * scores[nth]).sum();
    (0..nodes.len()).map(sum).collect()
}

/// The place of the best node. Of several that are equally good, one that follows from the Pod's uid.
pub fn best(pod: &Pod, snapshot: &Snapshot, feasible: &[usize]) -> Option<usize> {
    let scores = scores(pod, snapshot, feasible);
    let highest = scores.iter().max()?;
    let equal: Vec<usize> = feasible
        .iter()
        .zip(&scores)
        .filter(|(_, score)| *score == highest)
        .map(|(place, _)| *place)
        .collect();
    let mut hasher = DefaultHasher::new();
    pod.uid.hash(&mut hasher);
    let nth = usize::try_from(hasher.finish() % equal.len().max(1) as u64).unwrap_or(0);
    equal.get(nth).copied()
}

/// Scores as shares of the highest; turned round where less is better.
fn normalized(scores: Vec<i64>, less_is_better: bool) -> Vec<i64> {
    let highest = scores.iter().copied().max().unwrap_or(0);
    let one = |score: i64| {
        let share = if highest == 0 { 0 } else { score.saturating_mul(MAX) / highest };
        if less_is_better { MAX - share } else { share }
    };
    scores.into_iter().map(one).collect()
}

/// How many taints that make a node less wanted a Pod does not tolerate.
fn intolerable(pod: &Pod, node: &Node) -> i64 {
    let soft: Vec<_> = pod.tolerations.iter().filter(|toleration| toleration.is_soft()).collect();
    let counts = |taint: &&super::terms::Taint| {
        *taint.effect == *"PreferNoSchedule" && !soft.iter().any(|toleration| toleration.covers(taint))
    };
    i64::try_from(node.taints.iter().filter(counts).count()).unwrap_or(i64::MAX)
}

fn preferred(pod: &Pod, node: &Node) -> i64 {
    let holds = |(_, term): &&(i64, super::terms::NodeTerm)| term.holds(&node.name, &node.labels);
    pod.preferred_nodes.iter().filter(holds).map(|(weight, _)| weight).sum()
}

fn least_allocated(pod: &Pod, node: &Node) -> i64 {
    let (cpu, memory) = (node.capacity("cpu"), node.capacity("memory"));
    let rows = [
        (cpu, node.scored.0.saturating_add(pod.scored.0)),
        (memory, node.scored.1.saturating_add(pod.scored.1)),
    ];
    let counted: Vec<i64> = rows
        .into_iter()
        .filter(|(capacity, _)| *capacity > 0)
        .map(|(capacity, used)| {
            if used > capacity {
                0
            } else {
                (i128::from(capacity - used) * 100 / i128::from(capacity)) as i64
            }
        })
        .collect();
    if counted.is_empty() { 0 } else { counted.iter().sum::<i64>() / counted.len() as i64 }
}

fn balanced(pod: &Pod, node: &Node) -> i64 {
    const NAMES: [&str; 2] = ["cpu", "memory"];
    if NAMES.iter().all(|name| pod.request(name) == 0) {
        return 0;
    }
    let evenness = |with: bool| {
        let share = |name: &str| {
            let capacity = node.capacity(name);
            let own = if with { pod.request(name) } else { 0 };
            let used = node.used(name).saturating_add(own);
            (capacity > 0).then(|| (used as f64 / capacity as f64).min(1.0))
        };
        let deviation = match (share(NAMES[0]), share(NAMES[1])) {
            (Some(one), Some(other)) => ((one - other) / 2.0).abs(),
            _ => 0.0,
        };
        ((1.0 - deviation) * MAX as f64) as i64
    };
    MAX / 2 + (MAX / 2 + evenness(true) - evenness(false)) / 2
}

fn near(pod: &Pod, snapshot: &Snapshot, nodes: &[&Node]) -> Vec<i64> {
    let weights = preferences(pod, snapshot);
    let mut by_key: HashMap<&str, Vec<(&str, i64)>> = HashMap::new();
    for ((key, value), weight) in &weights {
        by_key.entry(key).or_default().push((value, *weight));
    }
    let sum = |node: &&Node| -> i64 {
        let of_key = |key: &&str| {
            let value = node.label(key)?;
            weights.get(&(*key, value)).copied()
        };
        by_key.keys().filter_map(of_key).sum()
    };
    let sums: Vec<i64> = nodes.iter().map(sum).collect();
    let (least, most) = (sums.iter().min().copied().unwrap_or(0), sums.iter().max().copied().unwrap_or(0));
    let one = |sum: i64| {
        if most == least { 0 } else { (MAX as f64 * ((sum - least) as f64 / (most - least) as f64)) as i64 }
    };
    sums.into_iter().map(one).collect()
}

/// The constraints that a Pod without any of its own has: Pods of its Services and controllers over nodes and zones.
fn defaults(pod: &Pod, snapshot: &Snapshot) -> Vec<(Spread, Vec<Labels>)> {
    let of = |group: &&super::snapshot::Group| {
        group.namespace == pod.namespace
            && !group.selector.is_empty()
            && selects(Some(&group.selector), &pod.labels)
    };
    let selectors: Vec<Labels> = snapshot.groups.iter().filter(of).map(|one| one.selector.clone()).collect();
    if selectors.is_empty() {
        return Vec::new();
    }
    let one = |topology_key: &str, max_skew| Spread {
        max_skew,
        topology_key: topology_key.into(),
        selector: None,
        min_domains: 1,
        honors_affinity: true,
        honors_taints: false,
        is_required: false,
    };
    vec![(one(HOSTNAME, 3), selectors.clone()), (one(ZONE, 5), selectors)]
}

fn counted(node: &Node, spread: &Spread, all: &[Labels], namespace: &str) -> i64 {
    if all.is_empty() {
        return count(node, spread, namespace);
    }
    let is_counted = |other: &&std::sync::Arc<Pod>| {
        !other.is_deleting
            && *other.namespace == *namespace
            && all.iter().all(|selector| selects(Some(selector), &other.labels))
    };
    i64::try_from(node.pods.iter().filter(is_counted).count()).unwrap_or(i64::MAX)
}

fn spread(pod: &Pod, snapshot: &Snapshot, nodes: &[&Node]) -> Vec<i64> {
    let own = !pod.spread.is_empty();
    let constraints: Vec<(Spread, Vec<Labels>)> = match own {
        true => pod.spread.iter().filter(|one| !one.is_required).map(|s| (s.clone(), Vec::new())).collect(),
        false => defaults(pod, snapshot),
    };
    if constraints.is_empty() {
        return vec![0; nodes.len()];
    }
    let is_ignored = |node: &Node| own && !has_keys(node, constraints.iter().map(|(spread, _)| spread));
    let ignored: Vec<bool> = nodes.iter().map(|node| is_ignored(node)).collect();
    let mut domains: Vec<HashMap<&str, i64>> = vec![HashMap::new(); constraints.len()];
    for (nth, (spread, _)) in constraints.iter().enumerate() {
        for (node, _) in nodes.iter().zip(&ignored).filter(|(_, ignored)| !**ignored) {
            domains[nth].entry(node.label(&spread.topology_key).unwrap_or_default()).or_insert(0);
        }
    }
    for node in snapshot.nodes.iter().filter(|node| !is_ignored(node)) {
        for ((spread, all), domains) in constraints.iter().zip(&mut domains) {
            let value = node.label(&spread.topology_key).unwrap_or_default();
            if includes(spread, pod, node)
                && let Some(sum) = domains.get_mut(value)
            {
                *sum += counted(node, spread, all, &pod.namespace);
            }
        }
    }
    let candidates = ignored.iter().filter(|ignored| !**ignored).count();
    let score = |node: &Node| {
        let mut score = 0.0;
        for ((spread, all), domains) in constraints.iter().zip(&domains) {
            let Some(value) = node.label(&spread.topology_key) else { continue };
            let is_host = *spread.topology_key == *HOSTNAME;
            let count = match is_host {
                true => counted(node, spread, all, &pod.namespace),
                false => domains.get(value).copied().unwrap_or(0),
            };
            let size = if is_host { candidates } else { domains.len() };
            score += count as f64 * ((size + 2) as f64).ln() + (spread.max_skew - 1) as f64;
        }
        score.round() as i64
    };
    let raw: Vec<Option<i64>> =
        nodes.iter().zip(&ignored).map(|(node, ignored)| (!ignored).then(|| score(node))).collect();
    let least = raw.iter().flatten().min().copied().unwrap_or(0);
    let most = raw.iter().flatten().max().copied().unwrap_or(0);
    let one = |score: Option<i64>| match score {
        None => 0,
        Some(_) if most == 0 => MAX,
        Some(score) => MAX * (most + least - score) / most,
    };
    raw.into_iter().map(one).collect()
}

fn images(pod: &Pod, snapshot: &Snapshot, nodes: &[&Node]) -> Vec<i64> {
    let (low, high) = (23 * MIB, 1000 * MIB * i64::try_from(pod.images.len().max(1)).unwrap_or(1));
    let total = snapshot.nodes.len().max(1);
    let name = |image: &str| -> Box<str> {
        let last = image.rsplit('/').next().unwrap_or(image);
        if last.contains([':', '@']) { image.into() } else { format!("{image}:latest").into() }
    };
    let wanted: Vec<(Box<str>, usize)> = pod
        .images
        .iter()
        .map(|image| name(image))
        .map(|image| {
            let having = snapshot.nodes.iter().filter(|node| node.images.contains_key(&image)).count();
            (image, having)
        })
        .collect();
    let one = |node: &&Node| {
        let scaled = |(image, having): &(Box<str>, usize)| {
            let size = node.images.get(image).copied().unwrap_or(0);
            (size as f64 * (*having as f64 / total as f64)) as i64
        };
        let sum: i64 = wanted.iter().map(scaled).sum();
        MAX * (sum.clamp(low, high) - low) / (high - low)
    };
    nodes.iter().map(one).collect()
}
