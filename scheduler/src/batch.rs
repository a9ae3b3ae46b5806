//! What becomes of the Pods that are tried together: pure, and bounded in time by whoever asks.

use crate::engine::{Pod, SELECTED_NODE, Snapshot, best, filter, preempt};
use freehold_machinery::{Value, meta};
use freehold_runtime::Key;
use serde_json::{Value as Json, json};
use std::sync::Arc;

/// What is to be done for one Pod.
#[derive(Debug)]
pub(crate) enum Step {
    /// It goes to a node.
    Bind(String),
    /// Its claims are told a node, and it waits for their volumes.
    Select {
        /// The node.
        node: String,
        /// The claims.
        claims: Vec<String>,
    },
    /// It fits nowhere.
    Fail {
        /// Why, in kube-scheduler's words.
        message: String,
        /// The node that is made free for it; empty where there is none.
        nominated: String,
        /// Pods that have to leave, each by namespace, name and uid.
        victims: Vec<[String; 3]>,
    },
}

/// A Pod that is tried.
pub(crate) struct Candidate {
    pub(crate) key: Key,
    pub(crate) object: Arc<Value>,
}

/// Orders Pods as kube-scheduler's queue does: by priority, and by age among equals.
pub(crate) fn order(candidates: &mut [Candidate]) {
    let created = |one: &Candidate| meta::text(&one.object, "creationTimestamp").to_owned();
    let priority = |one: &Candidate| one.object["spec"]["priority"].as_i64().unwrap_or(0);
    candidates.sort_by_cached_key(|one| (std::cmp::Reverse(priority(one)), created(one), one.key.clone()));
}

/// Decides on one Pod, and puts it into the snapshot as if it were done.
pub(crate) fn decide(object: &Value, snapshot: &mut Snapshot) -> Step {
    let mut pod = Pod::read(object);
    let verdict = filter(&pod, snapshot);
    if let Some(place) = best(&pod, snapshot, &verdict.feasible) {
        let node = snapshot.nodes[place].name.clone();
        snapshot.nominated.retain(|other| other.uid != pod.uid);
        pod.node = node.clone();
        snapshot.put(Arc::new(pod));
        let node = node.into_string();
        return match verdict.claims.is_empty() {
            true => Step::Bind(node),
            false => Step::Select { node, claims: verdict.claims },
        };
    }
    let message = verdict.message();
    if verdict.nodes == 0 {
        return Step::Fail { message, nominated: String::new(), victims: Vec::new() };
    }
    match preempt(&pod, snapshot, &verdict) {
        Ok(eviction) => {
            let node = snapshot.nodes[eviction.node].name.clone();
            snapshot.nominated.retain(|other| other.uid != pod.uid);
            pod.nominated = node.clone();
            let leaving = |own: &Arc<Pod>| eviction.victims.iter().any(|victim| victim.uid == own.uid);
            let staying = snapshot.nodes[eviction.node].pods.iter().filter(|own| !leaving(own)).cloned();
            let staying: Vec<_> = staying.collect();
            snapshot.nodes[eviction.node].set_pods(staying);
            snapshot.nominated.push(Arc::new(pod));
            let name = |victim: &Arc<Pod>| {
                [&victim.namespace, &victim.name, &victim.uid].map(|part| part.clone().into_string())
            };
            let victims = eviction.victims.iter().map(name).collect();
            Step::Fail { message, nominated: node.into_string(), victims }
        }
        Err(why) => {
            let is_waiting = why.contains("terminating pod");
            let nominated = if is_waiting { pod.nominated.into_string() } else { String::new() };
            Step::Fail { message: format!("{message} preemption: {why}"), nominated, victims: Vec::new() }
        }
    }
}

/// A Binding of a Pod to a node.
pub(crate) fn binding(pod: &Value, node: &str) -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": meta::name(pod), "namespace": meta::namespace(pod), "uid": meta::uid(pod)},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    })
}

/// A patch that tells a claim which node was chosen.
pub(crate) fn selection(node: &str) -> Json {
    json!({"metadata": {"annotations": {SELECTED_NODE: node}}})
}
