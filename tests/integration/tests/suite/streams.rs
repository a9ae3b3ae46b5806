//! Streams to Pods: logs through the node of a project, and what no address of a Node reaches.

use crate::PATIENCE;
use freehold_tests_integration::{Kubectl, World, facts, freehold_binary, until};
use serde_json::json;
use std::process::{Child, Command, Stdio};

facts!(world:
    logs_of_a_project_are_read_from_its_node_and_not_by_another_project,
);

/// `freehold node`, for as long as this is kept.
struct Node(Child);

impl Node {
    fn start(world: &World, kubectl: &Kubectl) -> Self {
        let node = Command::new(freehold_binary())
            .arg("node")
            .arg("--kubeconfig")
            .arg(kubectl.kubeconfig())
            .arg("--data-dir")
            .arg(world.server().folder().join("node-of-a-project"))
            .args(["--image", "shell=/bin/sh"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(node.expect("the program starts"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const POD: &str = "
apiVersion: v1
kind: Pod
metadata: {name: talker}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: c, image: shell, command: [sh, -c, 'echo first; sleep 1000']}
";

fn logs_of_a_project_are_read_from_its_node_and_not_by_another_project(world: &World) {
    world.organization("streams", &["streams-a", "streams-b"]);
    let (owner, stranger) = (world.server().project("streams-a"), world.server().project("streams-b"));
    let _node = Node::start(world, &owner);
    owner.apply(POD);
    until("the log is read through the server", PATIENCE, || {
        let read = owner.run(&["logs", "talker"]);
        (read.success && read.stdout == "first\n").then_some(())
    });
    let follower = owner.background(&["logs", "--follow", "talker"]);
    follower.wait_for("first");
    let own = "/projects/streams-a/api/v1/nodes/local/proxy/containerLogs/default/talker/c";
    assert_eq!(owner.ok(&["get", "--raw", own]), "first\n");

    // The other project names the same address as its own node's.
    let node = owner.json(&["get", "node", "local"]);
    let status = json!({"addresses": node["status"]["addresses"], "daemonEndpoints": node["status"]["daemonEndpoints"]});
    let imitation =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local"}, "status": status});
    stranger.apply(&imitation.to_string());
    let pod = POD.replace("spec:\n", "spec:\n  nodeName: local\n");
    stranger.apply(&pod);
    let patch = json!({"status": status}).to_string();
    stranger.ok(&["patch", "node", "local", "--subresource=status", "--type=merge", "--patch", &patch]);
    let refused = stranger.fails(&["logs", "talker"]);
    assert!(refused.contains("failed to verify certificate"), "{refused}");
    let theirs = "/projects/streams-b/api/v1/nodes/local/proxy/containerLogs/default/talker/c";
    let refused = stranger.fails(&["get", "--raw", theirs]);
    assert!(refused.contains("failed to verify certificate"), "{refused}");

    // Nor is anything dialled outside of the networks of nodes.
    let elsewhere = json!({"status": {"addresses": [{"type": "InternalIP", "address": "169.254.169.254"}]}});
    let elsewhere = elsewhere.to_string();
    stranger.ok(&["patch", "node", "local", "--subresource=status", "--type=merge", "--patch", &elsewhere]);
    let refused = stranger.fails(&["logs", "talker"]);
    assert!(refused.contains("--node-networks"), "{refused}");
    owner.ok(&["delete", "pod", "talker", "--wait=false"]);
}
