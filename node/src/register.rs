//! The Node object and its Lease: the capacity and heartbeat of this machine.

use crate::shared::Shared;
use freehold_client::{Error, Patch, PatchOptions, Resource};
use freehold_machinery::{Value, time};
use jiff::Timestamp;
use serde_json::{Value as Json, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const NODES: Resource = Resource::cluster("", "v1", "nodes");
/// The taint of a node that nobody has found ready yet.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
const LEASES: Resource = Resource::namespaced("coordination.k8s.io", "v1", "leases");
/// The namespace of nodes' leases.
const LEASE_NAMESPACE: &str = "kube-node-lease";
/// For how long a lease is good.
const LEASE_SECONDS: u64 = 40;
/// How often a lease is renewed.
const RENEW: Duration = Duration::from_secs(10);
/// How long to wait before what failed is tried again, and the API may not be there at first.
const RETRY: Duration = Duration::from_millis(200);
/// How many Pods this node takes.
const MAX_PODS: u32 = 10_000;
/// The labels of this node, which nodeSelectors are checked against.
pub(crate) fn labels(name: &str) -> Vec<(&'static str, String)> {
    vec![
        ("kubernetes.io/hostname", name.to_owned()),
        ("kubernetes.io/os", std::env::consts::OS.to_owned()),
        ("kubernetes.io/arch", arch().to_owned()),
    ]
}

/// Registers the node, then renews its lease until the token is cancelled.
pub(crate) async fn run(node: &Shared, logs_at: SocketAddr, token: &CancellationToken) {
    let work = async {
        while let Err(error) = register(node, logs_at).await {
            tracing::debug!(%error, "failed to register the node; will retry");
            tokio::time::sleep(RETRY).await;
        }
        loop {
            let wait = match renew(node).await {
                Ok(()) => RENEW,
                Err(error) => {
                    tracing::debug!(%error, "failed to renew the node's lease; will retry");
                    RENEW / 5
                }
            };
            tokio::time::sleep(wait).await;
        }
    };
    tokio::select! {
        () = work => {}
        () = token.cancelled() => {}
    }
}

async fn register(node: &Shared, logs_at: SocketAddr) -> Result<(), Error> {
    let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {
        "name": node.name,
        "labels": labels(&node.name).into_iter().collect::<std::collections::BTreeMap<_, _>>(),
    }});
    if let Err(error) = node.client.create(&NODES, &object).await
        && !error.is_already_exists()
    {
        return Err(error);
    }
    let now = Timestamp::now();
    let status = status(node, logs_at, now);
    let patch = Patch::Merge(json!({"status": status}));
    let ready: Json = node.client.patch(&NODES, None, &node.name, &patch, &PatchOptions::status()).await?;
    take_pods(node, &ready).await
}

/// Takes away the taint that every new node has until somebody finds it ready: this one says itself that it is.
async fn take_pods(node: &Shared, ready: &Json) -> Result<(), Error> {
    let taints = ready["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rest: Vec<&Json> = taints.iter().filter(|taint| taint["key"] != NOT_READY).collect();
    if rest.len() == taints.len() {
        return Ok(());
    }
    // Fails if the taints have changed since: the next try reads them anew.
    let metadata = json!({"resourceVersion": ready["metadata"]["resourceVersion"]});
    let patch = Patch::Merge(json!({"metadata": metadata, "spec": {"taints": rest}}));
    node.client.patch(&NODES, None, &node.name, &patch, &PatchOptions::default()).await.map(drop)
}

async fn renew(node: &Shared) -> Result<(), Error> {
    let now = time::format_micro(Timestamp::now());
    let patch = Patch::Merge(json!({"spec": {"renewTime": now}}));
    let namespace = Some(LEASE_NAMESPACE);
    match node.client.patch(&LEASES, namespace, &node.name, &patch, &PatchOptions::default()).await {
        Err(error) if error.is_not_found() => {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": node.name, "namespace": LEASE_NAMESPACE},
                "spec": {"holderIdentity": node.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now},
            });
            node.client.create(&LEASES, &lease).await.map(drop)
        }
        other => other.map(drop),
    }
}

fn status(node: &Shared, logs_at: SocketAddr, now: Timestamp) -> Value {
    let capacity = capacity();
    let now = time::format_seconds(now);
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        })
    };
    json!({
        "addresses": [
            {"type": "InternalIP", "address": node.host_ip.to_string()},
            {"type": "Hostname", "address": node.name},
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": logs_at.port()}},
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "the machine has memory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "the machine has disk space"),
            condition("Ready", "True", "KubeletReady", "Pods are run as processes"),
        ],
        "images": node.images.names().map(|name| json!({"names": [name]})).collect::<Vec<_>>(),
        "nodeInfo": {
            "architecture": arch(), "operatingSystem": std::env::consts::OS,
            "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "+freehold"), "kubeProxyVersion": "",
            "containerRuntimeVersion": concat!("process://", env!("CARGO_PKG_VERSION")),
            "machineID": "", "systemUUID": "", "bootID": first_line("/proc/sys/kernel/random/boot_id"),
            "kernelVersion": first_line("/proc/sys/kernel/osrelease"), "osImage": std::env::consts::OS,
        },
    })
}

fn capacity() -> Json {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let memory =
        std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_kib(&text)).unwrap_or(1 << 20);
    json!({"cpu": cpus.to_string(), "memory": format!("{memory}Ki"), "pods": MAX_PODS.to_string()})
}

fn memory_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn first_line(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

/// The architecture in Go's words.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_meminfo() {
        assert_eq!(memory_kib("MemTotal:       24689724 kB\nMemFree: 1 kB\n"), Some(24_689_724));
        assert_eq!(memory_kib("MemFree: 1 kB\n"), None);
    }
}
