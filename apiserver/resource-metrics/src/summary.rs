//! What a kubelet says of its node and Pods: `/stats/summary`, of which CPU and memory are read
//! (`k8s.io/kubelet/pkg/apis/stats/v1alpha1` `Summary`).
//!
//! CPU is `usageNanoCores`, which the kubelet has computed from its last two samples, so that one question is enough; memory is
//! the working set, as the kubelet's evictions and metrics-server go by.

use crate::NodePods;
use freehold_machinery::time;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::HashMap};

/// The path at which a kubelet gives CPU and memory without disks and networks.
pub const PATH: &str = "/stats/summary?only_cpu_and_memory=true";

/// CPU and memory that a node or container uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// When the kubelet took it; never later than it was read.
    pub at: Timestamp,
    /// CPU in billionths of a core.
    pub cpu_nanocores: u64,
    /// The working set in bytes.
    pub memory_bytes: u64,
}

/// What one container of a Pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    /// The container's name, which the Pod has.
    pub name: String,
    /// CPU and memory of the container.
    pub usage: Usage,
}

/// What the containers of a Pod use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    /// The uid of the Pod that was bound to the node.
    pub uid: String,
    /// The usage of the Pod's running containers, at least one.
    pub containers: Vec<ContainerUsage>,
}

/// What a node and its Pods use, as its kubelet says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeUsage {
    /// The node's own usage; `None` where the kubelet does not know it yet.
    pub node: Option<Usage>,
    /// The usage of Pods by namespace and name.
    pub pods: HashMap<(String, String), PodUsage>,
}

/// An answer that is no summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

impl std::fmt::Display for Unreadable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the answer is no summary of a kubelet")
    }
}

impl std::error::Error for Unreadable {}

/// Parts stay text until one is wanted, so that an answer of many small ones does not become many large ones.
#[derive(Deserialize)]
struct Summary<'a> {
    #[serde(borrow)]
    node: &'a RawValue,
    #[serde(borrow, default)]
    pods: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct PodStats<'a> {
    #[serde(borrow, rename = "podRef")]
    reference: PodReference<'a>,
    #[serde(borrow, default)]
    containers: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct PodReference<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    namespace: Cow<'a, str>,
}

#[derive(Deserialize)]
struct ContainerName<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Stats<'a> {
    #[serde(borrow)]
    cpu: Option<Cpu<'a>>,
    memory: Option<Memory>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cpu<'a> {
    #[serde(borrow, default)]
    time: Cow<'a, str>,
    usage_nano_cores: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Memory {
    working_set_bytes: Option<u64>,
}

/// Reads the summary of the node on which `pods` run. What it says of other Pods, or of containers that they do not have, is
/// left out, and so is a Pod with a container of which CPU or memory is not known yet: a part would pass for the whole.
///
/// # Errors
/// The answer is no summary.
pub fn read(json: &[u8], pods: NodePods, now: Timestamp) -> Result<NodeUsage, Unreadable> {
    let summary: Summary<'_> = serde_json::from_slice(json).map_err(|_| Unreadable)?;
    let mut known = pods.0;
    let mut usage = NodeUsage { node: of_stats(summary.node, now), pods: HashMap::new() };
    for text in summary.pods.unwrap_or_default() {
        let Ok(stats) = serde_json::from_str::<PodStats<'_>>(text.get()) else { continue };
        let name = (stats.reference.namespace.into_owned(), stats.reference.name.into_owned());
        // Whatever is said of a Pod again is not heard.
        let Some(placed) = known.remove(&name) else { continue };
        let containers = of_containers(&stats.containers.unwrap_or_default(), &placed.containers, now);
        if let Some(containers) = containers.filter(|containers| !containers.is_empty()) {
            usage.pods.insert(name, PodUsage { uid: placed.uid, containers });
        }
    }
    Ok(usage)
}

/// The usage of those containers that the Pod has; `None` where that of one is not known.
fn of_containers(stats: &[&RawValue], names: &[String], now: Timestamp) -> Option<Vec<ContainerUsage>> {
    let mut found: Vec<ContainerUsage> = Vec::new();
    for text in stats {
        let Ok(ContainerName { name }) = serde_json::from_str(text.get()) else { continue };
        let is_new = !found.iter().any(|other| other.name == name);
        if is_new && names.iter().any(|known| *known == name) {
            found.push(ContainerUsage { name: name.into_owned(), usage: of_stats(text, now)? });
        }
    }
    Some(found)
}

fn of_stats(text: &RawValue, now: Timestamp) -> Option<Usage> {
    let stats: Stats<'_> = serde_json::from_str(text.get()).ok()?;
    let cpu = stats.cpu?;
    Some(Usage {
        at: time::parse(&cpu.time).unwrap_or(now).min(now),
        cpu_nanocores: cpu.usage_nano_cores?,
        memory_bytes: stats.memory?.working_set_bytes?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PlacedPods;
    use serde_json::{Value, json};

    const NOW: &str = "2026-01-01T00:01:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn pods(all: &[(&str, &[&str])]) -> NodePods {
        let mut placed = PlacedPods::default();
        for (name, containers) in all {
            let containers: Vec<_> = containers.iter().map(|name| json!({"name": name})).collect();
            let pod = json!({
                "metadata": {"namespace": "a", "name": name, "uid": "u"},
                "spec": {"nodeName": "n", "containers": containers}, "status": {"phase": "Running"},
            });
            placed.add(pod.to_string().as_bytes());
        }
        placed.take("n")
    }

    fn stats(name: &str, cpu: Value, memory: Value) -> Value {
        json!({
            "name": name, "startTime": NOW, "rootfs": {"usedBytes": 1},
            "cpu": {"time": "2026-01-01T00:00:50Z", "usageNanoCores": cpu, "usageCoreNanoSeconds": 1},
            "memory": {"time": "2026-01-01T00:00:50Z", "workingSetBytes": memory, "rssBytes": 7},
        })
    }

    fn summary(pods: &[(&str, Vec<Value>)]) -> Vec<u8> {
        let pod = |(name, containers): &(&str, Vec<Value>)| json!({"podRef": {"namespace": "a", "name": name, "uid": "v"}, "containers": containers});
        let pods: Vec<Value> = pods.iter().map(pod).collect();
        json!({"node": stats("n", json!(1_500_000_000_u64), json!(1 << 30)), "pods": pods})
            .to_string()
            .into_bytes()
    }

    fn names(usage: &NodeUsage) -> Vec<&str> {
        let mut names: Vec<&str> = usage.pods.keys().map(|(_, name)| &**name).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn nodes_pods_and_containers_are_read() {
        let answer = summary(&[("p", vec![stats("x", json!(5), json!(6)), stats("y", json!(0), json!(8))])]);
        let usage = read(&answer, pods(&[("p", &["x", "y"])]), now()).unwrap();
        let at = "2026-01-01T00:00:50Z".parse().unwrap();
        assert_eq!(usage.node, Some(Usage { at, cpu_nanocores: 1_500_000_000, memory_bytes: 1 << 30 }));
        let pod = &usage.pods[&("a".to_owned(), "p".to_owned())];
        let found: Vec<_> =
            pod.containers.iter().map(|c| (&*c.name, c.usage.cpu_nanocores, c.usage.memory_bytes)).collect();
        assert_eq!((&*pod.uid, &found[..]), ("u", &[("x", 5, 6), ("y", 0, 8)][..]));
    }

    #[test]
    fn a_node_speaks_of_its_own_pods_and_their_containers_alone() {
        let one = |name: &str| vec![stats(name, json!(1), json!(1))];
        let mut both = one("x");
        both.extend(one("POD"));
        let answer = summary(&[("own", both), ("other", one("x")), ("own", one("x"))]);
        let usage = read(&answer, pods(&[("own", &["x"])]), now()).unwrap();
        assert_eq!(names(&usage), ["own"]);
        assert_eq!(usage.pods[&("a".to_owned(), "own".to_owned())].containers.len(), 1);
    }

    #[test]
    fn a_pod_of_which_a_part_is_unknown_is_left_out() {
        let good = || stats("x", json!(1), json!(1));
        for bad in [
            stats("y", Value::Null, json!(1)),
            stats("y", json!(1), Value::Null),
            stats("y", json!(-1), json!(1)),
            stats("y", json!(1.5), json!(1)),
            stats("y", json!("1"), json!(1)),
            json!({"name": "y"}),
        ] {
            let answer = summary(&[("p", vec![good(), bad.clone()]), ("q", vec![good()]), ("r", vec![])]);
            let usage =
                read(&answer, pods(&[("p", &["x", "y"]), ("q", &["x"]), ("r", &["x"])]), now()).unwrap();
            assert_eq!(names(&usage), ["q"], "{bad}");
        }
    }

    #[test]
    fn times_of_a_kubelet_are_not_of_the_future() {
        for (time, expected) in [
            ("2030-01-01T00:00:00Z", NOW),
            ("nonsense", NOW),
            ("2026-01-01T00:00:30Z", "2026-01-01T00:00:30Z"),
        ] {
            let node = json!({"node": {"cpu": {"time": time, "usageNanoCores": 1}, "memory": {"workingSetBytes": 1}}});
            let usage = read(node.to_string().as_bytes(), NodePods::default(), now()).unwrap();
            assert_eq!(usage.node.unwrap().at, expected.parse::<Timestamp>().unwrap(), "{time}");
        }
    }

    #[test]
    fn what_is_no_summary_is_refused_and_odd_parts_are_passed_over() {
        for bad in ["", "[]", "null", "{}", "{\"node\":", "<html>", r#"{"node": {}, "pods": {}}"#] {
            assert_eq!(read(bad.as_bytes(), NodePods::default(), now()), Err(Unreadable), "{bad}");
        }
        let deep = format!(r#"{{"node": {}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        let _ = read(deep.as_bytes(), NodePods::default(), now());
        let odd = r#"{"node": 7, "pods": [null, 1, "x", {}, {"podRef": 3}, {"podRef": {"name": "p", "namespace": "a"}, "containers": [1, {"name": 2}]}]}"#;
        let usage = read(odd.as_bytes(), pods(&[("p", &["x"])]), now()).unwrap();
        assert_eq!(usage, NodeUsage::default());
    }
}
