//! The Node of a project that stands for a shared cluster: its kubelet is the syncer.

use crate::names::CLUSTER;
use freehold_machinery::{Value, time};
use jiff::Timestamp;
use serde_json::json;
use std::net::SocketAddr;

/// The Node, without its status.
pub fn node(cluster: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": cluster,
            "labels": {CLUSTER: cluster, "kubernetes.io/hostname": cluster, "type": "virtual-kubelet"},
        },
    })
}

/// The status of the Node: what the cluster has, and where its kubelet answers.
pub fn status(cluster: &Value, syncer: SocketAddr, is_ready: bool, now: Timestamp) -> Value {
    let name = freehold_machinery::meta::name(cluster);
    let allocatable = &cluster["status"]["allocatable"];
    let allocatable = if allocatable.is_object() { allocatable.clone() } else { json!({"pods": "110"}) };
    let now = time::format_seconds(now);
    let (status, reason, message) = match is_ready {
        true => ("True", "ClusterReady", "the cluster answers"),
        false => ("Unknown", "ClusterUnreachable", "the cluster does not answer"),
    };
    let version = cluster["status"]["version"].as_str().unwrap_or_default();
    json!({
        "addresses": [
            {"type": "InternalIP", "address": syncer.ip().to_string()},
            {"type": "Hostname", "address": name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": syncer.port()}},
        "capacity": allocatable,
        "allocatable": allocatable,
        "conditions": [{
            "type": "Ready", "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }],
        "nodeInfo": {
            "architecture": "", "bootID": "", "containerRuntimeVersion": "", "kernelVersion": "", "kubeProxyVersion": "",
            "kubeletVersion": version, "machineID": "", "operatingSystem": "linux", "osImage": "", "systemUUID": "",
        },
    })
}
