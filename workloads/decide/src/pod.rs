//! The host Pod of a project's Pod.

use crate::names::{ACCOUNT, NAME, NAMESPACE, PROJECT, UID, host_name, host_namespace, is_tenants};
use crate::tokens::TokenSource;
use crate::volumes::Volumes;
use crate::{Refusal, scheduling};
use freehold_api::{ClassWorkloads, PodSecurityLevel};
use freehold_machinery::{Map, Value, meta};
use serde_json::json;
use std::collections::BTreeSet;

/// Annotations of tenants that are kept on host Pods: nothing on a host acts on them but what reads logs and metrics.
const ANNOTATIONS: [&str; 4] = [
    "kubectl.kubernetes.io/default-container",
    "prometheus.io/scrape",
    "prometheus.io/port",
    "prometheus.io/path",
];
/// Fields of a Pod's spec that are passed on as they are.
const KEPT: [&str; 16] = [
    "activeDeadlineSeconds",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostname",
    "hostUsers",
    "os",
    "resources",
    "restartPolicy",
    "securityContext",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "subdomain",
    "terminationGracePeriodSeconds",
    "topologySpreadConstraints",
    "hostAliases",
];
/// Fields of a Pod's spec that lead to the node.
const HOST: [&str; 3] = ["hostNetwork", "hostPID", "hostIPC"];
/// Largest number of Services whose full names a Pod's hosts file has.
const MAX_ALIASES: usize = 256;

/// A kind of object that Pods refer to by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Referent {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
    /// A PersistentVolumeClaim.
    Claim,
}

/// A Service that Pods of a project find by its full name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAddress {
    /// Its namespace in the project.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its address on the host.
    pub ip: String,
}

/// What a Pod is translated with.
#[derive(Clone, Debug)]
pub struct Terms<'a> {
    /// The identifier of the project's plane.
    pub project: &'a str,
    /// The name of the WorkloadCluster, which is also that of the project's Node.
    pub cluster: &'a str,
    /// The cluster's DNS domain.
    pub dns_domain: &'a str,
    /// What the class says.
    pub class: &'a ClassWorkloads,
    /// Host and port at whose root the project's API is for tokens of its service accounts.
    pub api: (&'a str, u16),
    /// Services of the project.
    pub services: &'a [ServiceAddress],
}

impl Terms<'_> {
    /// Whether the class trusts the project with nodes.
    pub(crate) fn is_privileged(&self) -> bool {
        self.class.pod_security == PodSecurityLevel::Privileged
    }
}

/// A host Pod with what it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Translated {
    /// The Pod.
    pub pod: Value,
    /// Its ephemeral containers, which are added to a Pod that is there.
    pub ephemeral: Vec<Value>,
    /// Objects of the project's namespace that have to be on the host too, by their names in the project.
    pub references: BTreeSet<(Referent, String)>,
    /// Tokens of the project's issuer that its Secret has to hold.
    pub tokens: Vec<TokenSource>,
}

/// Translates a Pod of a project.
///
/// # Errors
/// The Pod asks for what its class does not give, or for what has no meaning on another cluster.
pub fn translate(pod: &Value, terms: &Terms<'_>) -> Result<Translated, Refusal> {
    let spec = pod["spec"].as_object().ok_or_else(|| Refusal("the Pod has no spec".into()))?;
    refuse_host(spec, terms)?;
    let mut volumes = Volumes::new(meta::name(pod), terms);
    let mut host = Map::new();
    for field in KEPT {
        if let Some(value) = spec.get(field) {
            host.insert(field.into(), value.clone());
        }
    }
    if terms.is_privileged() {
        host.extend(HOST.iter().filter_map(|field| Some(((*field).to_owned(), spec.get(*field)?.clone()))));
    }
    host.insert("volumes".into(), volumes.translate(spec.get("volumes"))?);
    for field in ["initContainers", "containers"] {
        if let Some(list) = spec.get(field).and_then(Value::as_array) {
            let containers = list.iter().map(|one| container(one, pod, terms, &mut volumes));
            host.insert(field.into(), containers.collect::<Result<Value, _>>()?);
        }
    }
    let ephemeral = spec.get("ephemeralContainers").and_then(Value::as_array).into_iter().flatten();
    let ephemeral =
        ephemeral.map(|one| container(one, pod, terms, &mut volumes)).collect::<Result<_, _>>()?;
    host.insert("imagePullSecrets".into(), pull_secrets(spec.get("imagePullSecrets"), &mut volumes));
    scheduling::translate(spec, terms, &mut host)?;
    host.insert("serviceAccountName".into(), ACCOUNT.into());
    host.insert("automountServiceAccountToken".into(), false.into());
    aliases(&mut host, terms);
    let (references, tokens, asked) = volumes.finish();
    let namespace = host_namespace(terms.project, meta::namespace(pod));
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": host_name(meta::name(pod)),
            "namespace": namespace,
            "labels": labels(pod, terms.project),
            "annotations": annotations(pod, &asked),
        },
        "spec": host,
    });
    Ok(Translated { pod, ephemeral, references, tokens })
}

fn refuse_host(spec: &Map, terms: &Terms<'_>) -> Result<(), Refusal> {
    if let Some(field) = HOST.iter().find(|field| spec.get(**field) == Some(&true.into()))
        && !terms.is_privileged()
    {
        return Err(Refusal::field(&format!("spec.{field}"), "the project's class does not allow it"));
    }
    if spec.get("resourceClaims").and_then(Value::as_array).is_some_and(|claims| !claims.is_empty()) {
        return Err(Refusal::field("spec.resourceClaims", "shared clusters have no devices for projects"));
    }
    Ok(())
}

/// The labels of a host object: the tenant's, which Services select by, and the project's.
pub(crate) fn labels(object: &Value, project: &str) -> Value {
    let own = object["metadata"]["labels"].as_object();
    let mut labels: Map = own
        .into_iter()
        .flatten()
        .filter(|(key, _)| is_tenants(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    labels.insert(PROJECT.into(), project.into());
    labels.into()
}

/// The annotations of a host Pod. `asked` are those that the downward API is asked for.
fn annotations(pod: &Value, asked: &BTreeSet<Downward>) -> Value {
    let kept = ANNOTATIONS.iter().filter_map(|key| Some((*key, meta::annotation(pod, key)?)));
    let mut all: Map = kept.map(|(key, value)| (key.to_owned(), value.into())).collect();
    all.extend(origin(pod));
    for field in asked {
        all.insert(field.key(), field.value(pod).into());
    }
    all.into()
}

/// The annotations by which the syncer knows of what a host object is made.
pub(crate) fn origin(object: &Value) -> [(String, Value); 3] {
    [
        (NAMESPACE.to_owned(), meta::namespace(object).into()),
        (NAME.to_owned(), meta::name(object).into()),
        (UID.to_owned(), meta::uid(object).into()),
    ]
}

/// A field of a Pod that a volume of the downward API shows, and that is another on the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Downward {
    /// All labels.
    Labels,
    /// All annotations.
    Annotations,
    /// One annotation.
    Annotation(String),
}

impl Downward {
    /// The annotation of the host Pod that has its value.
    pub(crate) fn key(&self) -> String {
        match self {
            Self::Labels => crate::names::LABELS.to_owned(),
            Self::Annotations => crate::names::ANNOTATIONS.to_owned(),
            Self::Annotation(key) => {
                format!("{}{}", crate::names::ANNOTATION, crate::names::short_hash(&[key]))
            }
        }
    }

    fn value(&self, pod: &Value) -> String {
        match self {
            Self::Labels => format_map(&pod["metadata"]["labels"]),
            Self::Annotations => format_map(&pod["metadata"]["annotations"]),
            Self::Annotation(key) => meta::annotation(pod, key).unwrap_or_default().to_owned(),
        }
    }
}

/// Lines of `key="value"` in order, as kubelet's `FormatMap` writes labels and annotations.
fn format_map(map: &Value) -> String {
    let pairs = map.as_object().into_iter().flatten();
    let lines =
        pairs.map(|(key, value)| format!("{key}={}", Value::from(value.as_str().unwrap_or_default())));
    lines.collect::<Vec<_>>().join("\n")
}

fn pull_secrets(secrets: Option<&Value>, volumes: &mut Volumes<'_>) -> Value {
    let names = secrets.and_then(Value::as_array).into_iter().flatten().filter_map(|s| s["name"].as_str());
    let names = names.filter(|name| !name.is_empty());
    names.map(|name| json!({"name": volumes.refer(Referent::Secret, name)})).collect()
}

fn container(
    container: &Value,
    pod: &Value,
    terms: &Terms<'_>,
    volumes: &mut Volumes<'_>,
) -> Result<Value, Refusal> {
    let mut host = container.clone();
    let at = |field: &str| format!("container {}: {field}", container["name"].as_str().unwrap_or_default());
    let refuse = |field: &str, why: &str| Err(Refusal::field(&at(field), why));
    if !terms.is_privileged() {
        if container["securityContext"]["privileged"] == true {
            return refuse("securityContext.privileged", "the project's class does not allow it");
        }
        if reaches_elsewhere(container) {
            return refuse("probes and hooks", "the node would reach another host than the Pod");
        }
        let mut ports = container["ports"].as_array().into_iter().flatten();
        if ports.any(|port| port["hostPort"].as_u64().is_some_and(|port| port != 0)) {
            return refuse("ports.hostPort", "the project's class does not allow it");
        }
        // Otherwise a private image that another project's Pod has brought to the node would start without its pull secret.
        host["imagePullPolicy"] = "Always".into();
    }
    if container["resources"]["claims"].as_array().is_some_and(|claims| !claims.is_empty()) {
        return refuse("resources.claims", "shared clusters have no devices for projects");
    }
    let from = container["envFrom"].as_array().into_iter().flatten();
    let from: Vec<Value> = from.map(|source| env_from(source, volumes)).collect();
    if !from.is_empty() {
        host["envFrom"] = from.into();
    }
    let own = container["env"].as_array().map(Vec::as_slice).unwrap_or_default();
    let own = own.iter().map(|variable| variable_of(variable, pod, terms, volumes));
    let own: Vec<Value> = own.collect::<Result<_, _>>()?;
    let mut env = api_variables(terms, &own);
    env.extend(own);
    host["env"] = env.into();
    Ok(host)
}

/// Whether a probe or hook makes the node send requests to a host that the tenant names.
fn reaches_elsewhere(container: &Value) -> bool {
    let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|probe| &container[probe]);
    let hooks = ["postStart", "preStop"].map(|hook| &container["lifecycle"][hook]);
    let mut handlers = probes.into_iter().chain(hooks).flat_map(|h| [&h["httpGet"], &h["tcpSocket"]]);
    handlers.any(|handler| handler["host"].as_str().is_some_and(|host| !host.is_empty()))
}

/// Where the project's API is: kubelet would name that of the host.
fn api_variables(terms: &Terms<'_>, own: &[Value]) -> Vec<Value> {
    let (host, port) = terms.api;
    let url_host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let url = format!("tcp://{url_host}:{port}");
    let port = port.to_string();
    let variables = [
        ("KUBERNETES_SERVICE_HOST", host),
        ("KUBERNETES_SERVICE_PORT", &port),
        ("KUBERNETES_SERVICE_PORT_HTTPS", &port),
        ("KUBERNETES_PORT", &url),
        ("KUBERNETES_PORT_443_TCP", &url),
        ("KUBERNETES_PORT_443_TCP_PROTO", "tcp"),
        ("KUBERNETES_PORT_443_TCP_ADDR", host),
        ("KUBERNETES_PORT_443_TCP_PORT", &port),
    ];
    let is_set = |name: &str| own.iter().any(|variable| variable["name"] == name);
    let missing = variables.into_iter().filter(|(name, _)| !is_set(name));
    missing.map(|(name, value)| json!({"name": name, "value": value})).collect()
}

fn env_from(source: &Value, volumes: &mut Volumes<'_>) -> Value {
    let mut host = source.clone();
    for (field, kind) in [("configMapRef", Referent::ConfigMap), ("secretRef", Referent::Secret)] {
        if let Some(name) = source[field]["name"].as_str() {
            host[field]["name"] = volumes.refer(kind, name).into();
        }
    }
    host
}

fn variable_of(
    variable: &Value,
    pod: &Value,
    terms: &Terms<'_>,
    volumes: &mut Volumes<'_>,
) -> Result<Value, Refusal> {
    let from = &variable["valueFrom"];
    let mut host = variable.clone();
    for (field, kind) in [("configMapKeyRef", Referent::ConfigMap), ("secretKeyRef", Referent::Secret)] {
        if let Some(name) = from[field]["name"].as_str() {
            host["valueFrom"][field]["name"] = volumes.refer(kind, name).into();
            return Ok(host);
        }
    }
    let Some(path) = from["fieldRef"]["fieldPath"].as_str() else { return Ok(host) };
    match field_value(path, pod, terms) {
        // `$(` would begin a reference to another variable.
        Some(value) => Ok(json!({"name": variable["name"], "value": value.replace("$(", "$$(")})),
        None => Ok(host),
    }
}

/// A field of the project's Pod that is another on the host; `None` where kubelet knows it right.
fn field_value(path: &str, pod: &Value, terms: &Terms<'_>) -> Option<String> {
    let keyed = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']");
    let text = match path {
        "metadata.name" => meta::name(pod),
        "metadata.namespace" => meta::namespace(pod),
        "metadata.uid" => meta::uid(pod),
        "spec.nodeName" => terms.cluster,
        "spec.serviceAccountName" => pod["spec"]["serviceAccountName"].as_str().unwrap_or_default(),
        _ => match (keyed("metadata.labels['"), keyed("metadata.annotations['")) {
            (Some(key), _) => meta::label(pod, key).unwrap_or_default(),
            (_, Some(key)) => meta::annotation(pod, key).unwrap_or_default(),
            _ => return None,
        },
    };
    Some(text.to_owned())
}

/// Full names of the project's Services, which the host's DNS knows under another namespace. Names without a namespace are
/// found by DNS itself.
fn aliases(host: &mut Map, terms: &Terms<'_>) {
    let mut all: Vec<Value> = host.get("hostAliases").and_then(Value::as_array).cloned().unwrap_or_default();
    let names = |name: &str, namespace: &str| {
        let short = format!("{name}.{namespace}");
        json!([short, format!("{short}.svc"), format!("{short}.svc.{}", terms.dns_domain)])
    };
    if terms.api.0.parse::<std::net::IpAddr>().is_ok() {
        let mut hostnames = names("kubernetes", "default");
        if let Some(list) = hostnames.as_array_mut() {
            list.insert(0, "kubernetes".into());
        }
        all.push(json!({"ip": terms.api.0, "hostnames": hostnames}));
    }
    let services = terms.services.iter().take(MAX_ALIASES);
    all.extend(services.map(|s| json!({"ip": s.ip, "hostnames": names(&s.name, &s.namespace)})));
    if !all.is_empty() {
        host.insert("hostAliases".into(), all.into());
    }
}

#[cfg(test)]
#[path = "pod_tests.rs"]
mod tests;
