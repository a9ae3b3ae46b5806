//! The base layer that planes start from: the objects that kube-apiserver and its controllers create in an empty
//! cluster.
//!
//! It is made from data at start and held once. The store keeps only which content was installed when, so that every
//! server gives the same resource versions and times.

use freehold_api::{
    core_crds, infra_crds,
    keys::{SYSTEM_NAMESPACE, aggregator_name},
};
use freehold_apiserver_cache::{
    EXTENSION_AUTHENTICATION, Entry, Layer, LayerKind, PLANE, Stack, StackInfo, Texts,
};
use freehold_apiserver_catalog::{ServedVersion, TypeSet};
use freehold_apiserver_fairness::bootstrap;
use freehold_apiserver_storage::{Change, Commit, Committed, Expect, Key, ObjectPath, Store, StoreError};
use freehold_machinery::{
    PlaneId, Value,
    api_service::{self, Managed},
    crd, meta,
};
use serde_json::json;
use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};
use uuid::Uuid;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// The address of the `kubernetes` service in each plane.
const SERVICE_ADDRESS: &str = "10.96.0.1";
/// The range that it is in.
const SERVICE_RANGE: &str = "10.96.0.0/16";

/// The base of the core plane, the infra plane and project planes.
pub(crate) struct Base {
    core: BaseLayer,
    infra: BaseLayer,
    project: BaseLayer,
}

/// A base layer, and the stack of planes that have no other.
pub(crate) struct BaseLayer {
    pub(crate) layer: Arc<Layer>,
    pub(crate) stack: Arc<Stack>,
}

/// An object with the resource that it is stored under.
pub(crate) type LayerObject = (String, String, Value);

impl Base {
    /// The base of a plane.
    pub(crate) fn of(&self, plane: &PlaneId) -> &BaseLayer {
        match plane.as_str() {
            "core" => &self.core,
            "infra" => &self.infra,
            _ => &self.project,
        }
    }

    /// The base of projects' planes.
    pub(crate) fn project(&self) -> &BaseLayer {
        &self.project
    }

    /// The base for a server with these authorities, as `store` has it installed. A `writer` installs it
    /// where the store has none or another.
    pub(crate) async fn install(
        store: &dyn Store,
        authorities: &Authorities<'_>,
        writer: bool,
        now: &str,
    ) -> Result<Self, InstallError> {
        let (crds, beside): (Vec<Value>, Vec<Value>) =
            authorities.project_objects.iter().cloned().partition(|object| object["kind"] == CRD_KIND);
        let beside = place(beside, &crds)?;
        let mut sets = [core_crds(), infra_crds(), crds].map(|crds| with_base(authorities, crds));
        publish_clients(&mut sets[2]);
        bring(&mut sets[2], beside);
        sets[0].extend(platform(authorities.serving));
        let mut hasher = DefaultHasher::new();
        for (group, resource, object) in sets.iter().flatten() {
            (group, resource, object.to_string()).hash(&mut hasher);
        }
        let (revision, time) = agree(store, &format!("{:016x}", hasher.finish()), writer, now).await?;
        let mut content = 0;
        let [core, infra, project] = sets.map(|objects| {
            content += 1;
            Unshared::new(objects, &time, StackInfo { revision, content, ..StackInfo::default() })
        });
        let clients = authorities.clients.clone();
        let texts = Texts(Arc::new(move |plane| vec![(CLIENTS, in_json(&clients(plane)))]));
        Ok(Self { core: core?.build(None), infra: infra?.build(None), project: project?.build(Some(texts)) })
    }
}

/// A base layer before it is shared.
struct Unshared(Layer, StackInfo);

impl Unshared {
    fn build(self, texts: Option<Texts>) -> BaseLayer {
        let Self(layer, info) = self;
        let layer = Arc::new(match texts {
            Some(texts) => layer.with_texts(texts),
            None => layer,
        });
        let stack = Arc::new(Stack::new(vec![(LayerKind::Base, layer.clone())], info));
        BaseLayer { layer, stack }
    }

    fn new(objects: Vec<LayerObject>, time: &str, info: StackInfo) -> Result<Self, InstallError> {
        let mut layer = Layer::default();
        for placed in objects {
            let (group, resource, object) = finish(placed, time);
            let entry = Entry::new(object.to_string().as_bytes(), info.revision, info.revision)
                .map_err(|error| InstallError::Object(error.to_string()))?;
            layer.put(&path_of(group, resource, &object), Some(Arc::new(entry)));
        }
        Ok(Self(layer, info))
    }
}

/// A text as it stands in a JSON string.
fn in_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.trim_matches('"').to_owned()
}

/// Gives the authority of a plane's clients, PEM.
pub type ClientsOf = Arc<dyn Fn(&PlaneId) -> String + Send + Sync>;

/// What planes publish of the authorities of their server, PEM, and what projects get beside that.
#[derive(Clone)]
pub struct Authorities<'a> {
    /// Definitions and other objects that every project plane has, as subsystems bring them: they cost no keys.
    pub project_objects: &'a [Value],
    /// The authority of its serving certificate: `kube-root-ca.crt` of each namespace.
    pub serving: &'a str,
    /// The authority of the certificates with which it speaks for its users to aggregated servers.
    pub front_proxy: Option<&'a str>,
    /// The authorities of the clients of project planes, one for each plane.
    pub clients: ClientsOf,
}

/// The kind of definitions.
const CRD_KIND: &str = "CustomResourceDefinition";

/// Finds the resource that each object is stored under, among the built-in types and those of definitions. Objects of
/// built-in types get the defaults that a write would have given them: clients rely on them, as servers that evaluate policies.
fn place(objects: Vec<Value>, crds: &[Value]) -> Result<Vec<LayerObject>, InstallError> {
    let placed = objects.into_iter().map(|mut object| {
        let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let own = |crd: &&Value| crd["spec"]["group"] == group && crd["spec"]["names"]["kind"] == *kind;
        let plural = match TypeSet::builtin().by_kind(group, version, &kind) {
            Some(ty) => {
                freehold_apiserver_kinds::default(ty, &mut object);
                ty.plural.clone()
            }
            None => {
                let found = crds.iter().find(own).and_then(|crd| crd["spec"]["names"]["plural"].as_str());
                let unknown = || format!("{kind} {:?} is of no known kind", meta::name(&object));
                found.map(str::to_owned).ok_or_else(|| InstallError::Object(unknown()))?
            }
        };
        Ok((group.to_owned(), plural, object))
    });
    placed.collect()
}

/// Adds objects to a base. ClusterRoles among them join the roles that aggregate them.
fn bring(base: &mut Vec<LayerObject>, objects: Vec<LayerObject>) {
    if objects.is_empty() {
        return;
    }
    base.extend(objects);
    let is_role = |placed: &LayerObject| placed.1 == "clusterroles";
    let mut roles: Vec<Value> =
        base.iter().filter(|placed| is_role(placed)).map(|placed| placed.2.clone()).collect();
    freehold_apiserver_authz::settle(&mut roles);
    for (settled, placed) in roles.into_iter().zip(base.iter_mut().filter(|placed| is_role(placed))) {
        placed.2 = settled;
    }
}

/// Where an object is within its plane.
pub(crate) fn path_of(group: String, resource: String, object: &Value) -> ObjectPath {
    let namespace = Some(meta::namespace(object).to_owned()).filter(|n| !n.is_empty());
    ObjectPath { group, resource, namespace, name: meta::name(object).to_owned() }
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
pub(crate) fn finish((group, resource, mut object): LayerObject, time: &str) -> LayerObject {
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

fn with_base(authorities: &Authorities<'_>, crds: Vec<Value>) -> Vec<LayerObject> {
    let core = |resource: &str, object: Value| (String::new(), resource.to_owned(), object);
    let mut objects = Vec::new();
    for name in NAMESPACES {
        objects.push(namespace(name));
        objects.extend(namespace_objects(name, authorities.serving));
    }
    objects.push(core("services", kubernetes_service()));
    objects.push(("networking.k8s.io".into(), "servicecidrs".into(), service_range()));
    objects.extend(priority_classes());
    let flow_control = |resource: &'static str| {
        move |object| ("flowcontrol.apiserver.k8s.io".to_owned(), resource.to_owned(), object)
    };
    objects.extend(bootstrap::flow_schemas().into_iter().map(flow_control("flowschemas")));
    let levels = bootstrap::priority_levels();
    objects.extend(levels.into_iter().map(flow_control("prioritylevelconfigurations")));
    objects.extend(freehold_apiserver_authz::bootstrap_objects().into_iter().map(rbac));
    objects.extend(authorities.front_proxy.map(|ca| core("configmaps", extension_authentication(ca))));
    objects.extend(registrations());
    objects.extend(custom_registrations(crds.iter()));
    objects.extend(
        crds.into_iter().map(|crd| ("apiextensions.k8s.io".into(), "customresourcedefinitions".into(), crd)),
    );
    objects
}

fn namespace(name: &str) -> LayerObject {
    let object = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    });
    (String::new(), "namespaces".to_owned(), object)
}

/// What the core plane has beside that: the roles that all organizations may use.
fn platform(serving: &str) -> Vec<LayerObject> {
    let role = |object| (freehold_apiserver_authz::iam::GROUP.to_owned(), "roles".to_owned(), object);
    let mut objects = vec![namespace(SYSTEM_NAMESPACE)];
    objects.extend(namespace_objects(SYSTEM_NAMESPACE, serving));
    objects.extend(freehold_apiserver_authz::predefined_roles().into_iter().map(role));
    objects
}

/// How an aggregated server knows requests of this plane's users: by certificates of the front proxies' authority that
/// are for this plane.
fn extension_authentication(front_proxy_ca: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": EXTENSION_AUTHENTICATION, "namespace": "kube-system"},
        "data": {
            "requestheader-allowed-names": format!("[\"{}\"]", aggregator_name(PLANE)),
            "requestheader-client-ca-file": front_proxy_ca,
            "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]",
            "requestheader-uid-headers": "[\"X-Remote-Uid\"]",
            "requestheader-username-headers": "[\"X-Remote-User\"]",
        },
    })
}

/// What stands for the authority of a plane's clients.
const CLIENTS: &str = "{clients}";

/// Adds how whoever serves for a project's plane knows its users who connect directly: by certificates of that plane's
/// authority, which vouches for nobody else. The core and infra planes have none of their own: the platform's authority
/// stands above those of all projects, and such a server could not tell their users apart.
fn publish_clients(objects: &mut [LayerObject]) {
    let published = objects.iter_mut().map(|(_, _, object)| object);
    for object in published.filter(|object| meta::name(object) == EXTENSION_AUTHENTICATION) {
        object["data"]["client-ca-file"] = CLIENTS.into();
    }
}

fn registered(object: Value) -> LayerObject {
    (api_service::GROUP.to_owned(), api_service::RESOURCE.to_owned(), object)
}

/// The registrations of the groups and versions that CRDs serve.
pub(crate) fn custom_registrations<'a>(crds: impl Iterator<Item = &'a Value>) -> Vec<LayerObject> {
    let served: BTreeSet<_> = crds.flat_map(api_service::of_crd).collect();
    let one = |(group, version)| api_service::local(group, version, api_service::CUSTOM, Managed::Always);
    served.into_iter().map(one).map(registered).collect()
}

/// The registrations of the groups that every plane serves.
fn registrations() -> Vec<LayerObject> {
    let types = TypeSet::builtin();
    let groups = types.groups().iter().filter(|group| group.name != api_service::GROUP);
    let built_in = groups.flat_map(|group| {
        let one = |v: &ServedVersion| {
            api_service::local(&group.name, &v.version, (group.priority, v.priority), Managed::OnStart)
        };
        group.versions.iter().map(one).collect::<Vec<_>>()
    });
    built_in.map(registered).collect()
}

/// What each namespace has from its beginning.
pub(crate) fn namespace_objects(namespace: &str, ca_pem: &str) -> [LayerObject; 2] {
    let named = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}});
    let mut root_ca = named("ConfigMap", "kube-root-ca.crt");
    let about = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such \
                 as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
                 distributions of Kubernetes clusters.";
    root_ca["metadata"]["annotations"] = json!({"kubernetes.io/description": about});
    root_ca["data"] = json!({"ca.crt": ca_pem});
    [
        (String::new(), "serviceaccounts".to_owned(), named("ServiceAccount", "default")),
        (String::new(), "configmaps".to_owned(), root_ca),
    ]
}

fn rbac(object: Value) -> LayerObject {
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

fn priority_classes() -> Vec<LayerObject> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_that_subsystems_bring_have_the_defaults_of_their_kinds() {
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
            "spec": {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]},
        });
        let placed = place(vec![policy], &[]).unwrap();
        let constraints = &placed[0].2["spec"]["matchConstraints"];
        assert_eq!(placed[0].1, "validatingadmissionpolicies");
        assert_eq!(constraints["objectSelector"], json!({}), "{constraints}");
        assert_eq!(constraints["namespaceSelector"], json!({}), "{constraints}");
        assert_eq!(constraints["matchPolicy"], "Equivalent");
        assert_eq!(placed[0].2["spec"]["failurePolicy"], "Fail");
    }
}
