//! The objects, and the requests that make them as clients and controllers do.

use anyhow::{Context, Result};
use freehold_client::{Client, RawRequest};
use http::Method;
use serde_json::{Value, json};

/// Where they are.
pub(crate) const NAMESPACE: &str = "storefront-production";

/// A kind of objects.
pub(crate) struct Kind {
    /// As people call it.
    pub(crate) kind: &'static str,
    group: &'static str,
    version: &'static str,
    /// The plural.
    pub(crate) resource: &'static str,
    /// What its keys have behind kube-apiserver's prefix.
    pub(crate) in_kube: &'static str,
    /// Who makes it, and whether by server-side apply.
    manager: &'static str,
    apply: bool,
    /// Who writes its status.
    status_manager: Option<&'static str>,
}

const fn core(kind: &'static str, resource: &'static str, manager: &'static str) -> Kind {
    Kind {
        kind,
        group: "",
        version: "v1",
        resource,
        in_kube: resource,
        manager,
        apply: false,
        status_manager: None,
    }
}

/// All of them.
pub(crate) const KINDS: &[Kind] = &[
    core("ConfigMap", "configmaps", "kubectl-create"),
    core("Secret", "secrets", "external-secrets"),
    Kind {
        group: "apps",
        apply: true,
        status_manager: Some("kube-controller-manager"),
        ..core("Deployment", "deployments", "argocd-controller")
    },
    Kind { status_manager: Some("kubelet"), ..core("Pod", "pods", "kube-controller-manager") },
    Kind { group: "rbac.authorization.k8s.io", apply: true, ..core("RoleBinding", "rolebindings", "helm") },
    Kind {
        group: "databases.acme.io",
        in_kube: "databases.acme.io/postgresclusters",
        status_manager: Some("postgres-operator"),
        ..core("PostgresCluster", "postgresclusters", "kubectl-create")
    },
];

impl Kind {
    /// The group in Freehold's keys.
    pub(crate) fn group_segment(&self) -> &'static str {
        if self.group.is_empty() { "core" } else { self.group }
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    fn path(&self) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        format!("{root}/{}/namespaces/{NAMESPACE}/{}", self.api_version(), self.resource)
    }
}

/// The name of an object.
pub(crate) fn name(nth: usize) -> String {
    format!("checkout-{:05x}", nth * 40_503 % 0xf_ffff)
}

/// Words that differ from object to object, without order.
fn noise(nth: usize, length: usize) -> String {
    let mut state = nth as u64 + 1;
    let mut letter = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"[(state >> 58) as usize],
        )
    };
    (0..length).map(|_| letter()).collect()
}

/// The namespace and the type.
pub(crate) async fn prepare(client: &Client) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    send(client, Method::POST, "/api/v1/namespaces", &namespace).await?;
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "postgresclusters.databases.acme.io"},
        "spec": {
            "group": "databases.acme.io", "scope": "Namespaced",
            "names": {"kind": "PostgresCluster", "plural": "postgresclusters", "singular": "postgrescluster"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}}}]
        }
    });
    send(client, Method::POST, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd).await?;
    let kind = KINDS.last().context("there are kinds")?;
    // A CRD is served a moment after it was made.
    for _ in 0..200 {
        if client.json(RawRequest::get(kind.path())).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    anyhow::bail!("the custom resources are not served")
}

/// Bytes of what a client sends to make an object.
pub(crate) fn sent(kind: &Kind, nth: usize) -> usize {
    object(kind, nth).to_string().len()
}

/// Makes an object. Freehold's own controllers write the status of Deployments; beside kube-apiserver none runs, so it is
/// written for them.
pub(crate) async fn make(client: &Client, kind: &Kind, nth: usize, is_kube: bool) -> Result<()> {
    let object = object(kind, nth);
    let path = kind.path();
    if kind.apply {
        let path = format!("{path}/{}?fieldManager={}&force=true", name(nth), kind.manager);
        send(client, Method::PATCH, &path, &object).await?;
    } else {
        send(client, Method::POST, &format!("{path}?fieldManager={}", kind.manager), &object).await?;
    }
    if let Some(manager) = kind.status_manager.filter(|_| is_kube || kind.kind != "Deployment") {
        let path = format!("{path}/{}/status?fieldManager={manager}", name(nth));
        let mut request = RawRequest::new(Method::PATCH, path).json(&json!({"status": status(kind, nth)}));
        request.content_type = "application/merge-patch+json";
        client.json(request).await.with_context(|| format!("the status of {} {nth}", kind.kind))?;
    }
    Ok(())
}

async fn send(client: &Client, method: Method, path: &str, object: &Value) -> Result<()> {
    let apply = method == Method::PATCH;
    let mut request = RawRequest::new(method, path).json(object);
    if apply {
        request.content_type = "application/apply-patch+yaml";
    }
    client.json(request).await.with_context(|| path.to_owned())?;
    Ok(())
}

fn object(kind: &Kind, nth: usize) -> Value {
    let name = name(nth);
    let mut object = match kind.kind {
        "ConfigMap" => json!({"data": {
            "application.properties": format!("server.port={}\ncache.ttl={}s\nregion=eu-{}\nfeature.checkout={}\nupstream=https://{name}.internal.acme.io/v2\n", 8000 + nth % 100, nth % 600, nth % 5, nth.is_multiple_of(2)),
            "LOG_LEVEL": (["info", "debug", "warn"][nth % 3]),
        }}),
        "Secret" => json!({"type": "Opaque", "data": {
            "password": noise(nth, 32), "username": noise(nth + 7, 12), "token": noise(nth + 13, 64),
        }}),
        "Deployment" => json!({"spec": deployment(&name, nth)}),
        "Pod" => json!({"spec": pod(&name, nth)}),
        "RoleBinding" => json!({
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [
                {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE},
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": format!("acme:team-{}", nth % 40)},
            ],
        }),
        _ => json!({"spec": {
            "postgresVersion": 16, "instances": [{"name": "primary", "replicas": 1 + nth % 3,
                "dataVolumeClaimSpec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": format!("{}Gi", 10 + nth % 90)}}}}],
            "backups": {"schedule": format!("{} {} * * *", nth % 60, nth % 24), "retention": "14d", "bucket": format!("s3://acme-backups/{name}")},
            "users": [{"name": name, "databases": [name], "options": "LOGIN"}],
            "monitoring": {"exporter": {"image": "registry.acme.io/postgres-exporter:0.15.0"}},
        }}),
    };
    object["apiVersion"] = kind.api_version().into();
    object["kind"] = kind.kind.into();
    object["metadata"] = json!({"name": name, "namespace": NAMESPACE, "labels": {
        "app": "checkout", "instance": name, "tier": (["web", "api", "worker"][nth % 3]),
    }});
    if kind.kind == "Pod" {
        object["metadata"]["labels"]["pod-template-hash"] = format!("{:x}", nth * 7919).into();
    }
    object
}

fn container(name: &str, nth: usize) -> Value {
    json!({
        "name": "checkout", "image": format!("registry.acme.io/checkout:{}.{}.{}", nth % 4, nth % 30, nth % 11),
        "args": ["--listen=:8443", format!("--shard={nth}")],
        "env": [{"name": "REGION", "value": format!("eu-{}", nth % 5)}, {"name": "API_TOKEN", "valueFrom": {"secretKeyRef": {"name": name, "key": "token"}}}],
        "ports": [{"name": "https", "containerPort": 8443, "protocol": "TCP"}],
        "livenessProbe": {"httpGet": {"path": "/livez", "port": "https", "scheme": "HTTPS"}, "periodSeconds": 15},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "https", "scheme": "HTTPS"}, "failureThreshold": 2},
        "resources": {"requests": {"cpu": "200m", "memory": format!("{}Mi", 64 + nth % 512)}, "limits": {"memory": "1Gi"}},
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true},
        "volumeMounts": [{"name": "settings", "mountPath": "/etc/checkout", "readOnly": true}],
    })
}

fn pod(name: &str, nth: usize) -> Value {
    json!({
        "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 45,
        "nodeSelector": {"acme.io/pool": "web"},
        "containers": [container(name, nth)],
        "volumes": [{"name": "settings", "configMap": {"name": name}}],
    })
}

fn deployment(name: &str, nth: usize) -> Value {
    let labels = json!({"app": "checkout", "instance": name});
    json!({
        "replicas": 2 + nth % 5, "revisionHistoryLimit": 3,
        // So that no controller makes Pods of it.
        "paused": true,
        "selector": {"matchLabels": labels},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": {"labels": labels, "annotations": {"checksum/settings": noise(nth, 40)}}, "spec": pod(name, nth)},
    })
}

fn status(kind: &Kind, nth: usize) -> Value {
    let time = format!("2026-06-{:02}T{:02}:{:02}:00Z", 1 + nth % 28, nth % 24, nth % 60);
    let condition = |name: &str, reason: &str| json!({"type": name, "status": "True", "reason": reason, "message": format!("{name}: {reason}"), "lastTransitionTime": time});
    match kind.kind {
        "Deployment" => json!({"observedGeneration": 1, "unavailableReplicas": 2 + nth % 5, "conditions": [
            condition("Progressing", "DeploymentPaused"), condition("Available", "MinimumReplicasAvailable")]}),
        "Pod" => {
            let of = |name: &str| json!({"type": name, "status": "True", "lastTransitionTime": time});
            json!({
                "phase": "Running", "qosClass": "Burstable", "startTime": time,
                "hostIP": format!("10.20.{}.{}", nth % 8, nth % 250), "podIP": format!("10.64.{}.{}", nth % 200, nth % 250),
                "podIPs": [{"ip": format!("10.64.{}.{}", nth % 200, nth % 250)}],
                "conditions": (["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"].map(of)),
                "containerStatuses": [{"name": "checkout", "ready": true, "started": true, "restartCount": nth % 3,
                    "image": format!("registry.acme.io/checkout:{}.{}.{}", nth % 4, nth % 30, nth % 11),
                    "imageID": format!("registry.acme.io/checkout@sha256:{:064x}", nth * 7919),
                    "containerID": format!("containerd://{:064x}", nth * 104_729), "state": {"running": {"startedAt": time}}}],
            })
        }
        _ => {
            json!({"observedGeneration": 1, "instances": [{"name": "primary", "readyReplicas": 1 + nth % 3, "replicas": 1 + nth % 3}],
            "conditions": [condition("Ready", "ClusterReady"), condition("BackupsHealthy", "LastBackupSucceeded")]})
        }
    }
}
