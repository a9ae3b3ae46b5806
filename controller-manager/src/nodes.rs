//! Nodes: taints that follow from their conditions, so that nothing is scheduled where it would not run
//! (<https://kubernetes.io/docs/concepts/architecture/nodes/#condition>).
//!
//! A new node has the taint `node.kubernetes.io/not-ready` from the admission plugin TaintNodesByCondition; it goes when
//! the node says that it is ready.

use freehold_client::{Patch, PatchOptions};
use freehold_controllers_context::kinds::NODES;
use freehold_controllers_context::node::NodeView;
use freehold_controllers_context::taints::decide;
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::meta;
use freehold_runtime::{Key, Outcome, Planes, Queue, Reconciled, Store};
use serde_json::json;

struct Nodes {
    planes: Planes,
    nodes: Store<NodeView>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let on_nodes = queue.clone();
    context.nodes().on_change(move |change| {
        if change.new.as_ref().is_some_and(|node| node.taints_are_wrong) {
            on_nodes.add(change.key.clone());
        }
    });
    let nodes = context.nodes().store();
    let (planes, waits) = (context.planes.clone(), nodes.clone());
    context.control("node-taints", 2, &queue, &[&waits], Nodes { planes, nodes });
}

impl Reconcile for Nodes {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.nodes.get(&key).is_some_and(|node| node.taints_are_wrong) {
            return Ok(Outcome::Done);
        }
        let client = self.planes.client(&key.plane);
        let Some(node) = client.get_opt(&NODES, None, &key.name).await? else { return Ok(Outcome::Done) };
        let Some(taints) = decide(&node) else { return Ok(Outcome::Done) };
        let version = meta::resource_version(&node);
        let patch =
            Patch::Merge(json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}}));
        match client.patch(&NODES, None, &key.name, &patch, &PatchOptions::default()).await {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Outcome::Done),
        }
    }
}
