//! The layers that planes start from: what kube-apiserver and its controllers make in an empty cluster.
//!
//! They are made from data at start and held once. The store keeps only which content was installed when, so that every
//! server gives the same resource versions and times.

use freehold_api::{core_crds, infra_crds};
use freehold_apiserver_cache::{Layer, LayerSource};
use freehold_apiserver_storage::{Change, Commit, Committed, Expect, Key, Store, StoreError};
use freehold_machinery::{PlaneId, Value, crd, meta};
use serde_json::json;
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};
use uuid::Uuid;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// The address of the `kubernetes` service in each plane.
const SERVICE_ADDRESS: &str = "10.96.0.1";
/// The range that it is in.
const SERVICE_RANGE: &str = "10.96.0.0/16";

/// The layers of the core plane, the infra plane and project planes.
pub struct Layers {
    core: Arc<Layer>,
    infra: Arc<Layer>,
    project: Arc<Layer>,
}

impl LayerSource for Layers {
    fn layer(&self, plane: &PlaneId) -> Arc<Layer> {
        match plane.as_str() {
            "core" => self.core.clone(),
            "infra" => self.infra.clone(),
            _ => self.project.clone(),
        }
    }
}

/// An object with the resource that it is stored under.
type Placed = (String, String, Value);

impl Layers {
    /// The layers for a server whose certificates `ca_pem` vouches for, as `store` has them installed. A `writer` installs
    /// them where the store has none or others.
    pub async fn install(
        store: &dyn Store,
        ca_pem: &str,
        writer: bool,
        now: &str,
    ) -> Result<Self, InstallError> {
        let sets =
            [with_base(ca_pem, core_crds()), with_base(ca_pem, infra_crds()), with_base(ca_pem, Vec::new())];
        let mut hasher = DefaultHasher::new();
        for (group, resource, object) in sets.iter().flatten() {
            (group, resource, object.to_string()).hash(&mut hasher);
        }
        let (revision, time) = agree(store, &format!("{:016x}", hasher.finish()), writer, now).await?;
        let [core, infra, project] = sets.map(|objects| {
            let finished = objects.into_iter().map(|placed| finish(placed, &time)).collect();
            Layer::new(finished, revision)
                .map(Arc::new)
                .map_err(|error| InstallError::Object(error.to_string()))
        });
        Ok(Self { core: core?, infra: infra?, project: project? })
    }
}

/// Why layers can't be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The store does not answer.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// An object of a layer is broken.
    #[error("an object of the base layer can't be read: {0}")]
    Object(String),
    /// Nothing is installed and this server may not do it.
    #[error("the store has no base layer yet: start the core server first")]
    Absent,
}

/// The revision and time at which content of this hash was installed.
async fn agree(
    store: &dyn Store,
    hash: &str,
    writer: bool,
    now: &str,
) -> Result<(u64, String), InstallError> {
    let key = Key::system("layers/base");
    loop {
        let found = store.get(&key).await?;
        let record =
            found.as_ref().and_then(|kv| serde_json::from_slice::<Value>(&kv.value).ok()).unwrap_or_default();
        let current = record["hash"].as_str() == Some(hash);
        match &found {
            Some(kv) if current || !writer => {
                return Ok((kv.modified, record["installed"].as_str().unwrap_or(now).to_owned()));
            }
            None if !writer => return Err(InstallError::Absent),
            _ => {}
        }
        let value = json!({"hash": hash, "installed": now}).to_string();
        let commit = Commit {
            expect: vec![Expect { key: key.clone(), modified: found.map_or(0, |kv| kv.modified) }],
            changes: vec![Change::Put(key.clone(), value.into())],
        };
        if let Committed::Done(revision) = store.commit(commit).await? {
            return Ok((revision, now.to_owned()));
        }
    }
}

/// Gives an object of a layer its identity.
fn finish((group, resource, mut object): Placed, time: &str) -> Placed {
    let seed = format!("{group}/{resource}/{}/{}", meta::namespace(&object), meta::name(&object));
    meta::set(&mut object, "uid", Uuid::new_v5(&Uuid::NAMESPACE_OID, seed.as_bytes()).to_string());
    meta::set(&mut object, "creationTimestamp", time);
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        condition["lastTransitionTime"] = time.into();
    }
    if resource == "customresourcedefinitions" {
        crd::default(&mut object);
        let at = freehold_machinery::time::parse(time).unwrap_or_default();
        crd::set_status(&mut object, None, at);
        meta::set(&mut object, "generation", 1);
    }
    (group, resource, object)
}

fn with_base(ca_pem: &str, crds: Vec<Value>) -> Vec<Placed> {
    let core = |resource: &str, object: Value| (String::new(), resource.to_owned(), object);
    let mut objects = Vec::new();
    for namespace in NAMESPACES {
        let named = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}});
        objects.push(core(
            "namespaces",
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": namespace, "labels": {"kubernetes.io/metadata.name": namespace}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            }),
        ));
        objects.push(core("serviceaccounts", named("ServiceAccount", "default")));
        let mut root_ca = named("ConfigMap", "kube-root-ca.crt");
        let about = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such \
                     as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
                     distributions of Kubernetes clusters.";
        root_ca["metadata"]["annotations"] = json!({"kubernetes.io/description": about});
        root_ca["data"] = json!({"ca.crt": ca_pem});
        objects.push(core("configmaps", root_ca));
    }
    objects.push(core("services", kubernetes_service()));
    objects.push(("networking.k8s.io".into(), "servicecidrs".into(), service_range()));
    objects.extend(priority_classes());
    objects.extend(freehold_apiserver_authz::bootstrap_objects().into_iter().map(rbac));
    objects.extend(
        crds.into_iter().map(|crd| ("apiextensions.k8s.io".into(), "customresourcedefinitions".into(), crd)),
    );
    objects
}

fn rbac(object: Value) -> Placed {
    let resource = format!("{}s", object["kind"].as_str().unwrap_or_default().to_lowercase());
    ("rbac.authorization.k8s.io".into(), resource, object)
}

fn kubernetes_service() -> Value {
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": labels},
        "spec": {
            "type": "ClusterIP", "clusterIP": SERVICE_ADDRESS, "clusterIPs": [SERVICE_ADDRESS],
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    })
}

/// The range that addresses of services are taken from.
fn service_range() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes", "generation": 1},
        "spec": {"cidrs": [SERVICE_RANGE]},
        "status": {"conditions": [{
            "type": "Ready", "status": "True", "reason": "", "message": "Kubernetes default Service CIDR is ready",
        }]},
    })
}

fn priority_classes() -> Vec<Placed> {
    let class = |name: &str, value: i64, about: &str| {
        let object = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name, "generation": 1},
            "value": value, "description": about, "preemptionPolicy": "PreemptLowerPriority",
        });
        ("scheduling.k8s.io".to_owned(), "priorityclasses".to_owned(), object)
    };
    vec![
        class(
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        class(
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ]
}
