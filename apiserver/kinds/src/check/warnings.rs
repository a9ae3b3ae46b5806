//! What is accepted and probably not meant: Kubernetes answers with a warning.

use super::{containers::all_containers, field::Field, rules};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::{ResourceType, Value, names};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

type Warnings = Vec<String>;

/// Kinds with a pod template, and where it is.
const TEMPLATES: [(&str, &str, &str); 8] = [
    ("", "podtemplates", "template"),
    ("", "replicationcontrollers", "spec.template"),
    ("apps", "deployments", "spec.template"),
    ("apps", "replicasets", "spec.template"),
    ("apps", "statefulsets", "spec.template"),
    ("apps", "daemonsets", "spec.template"),
    ("batch", "jobs", "spec.template"),
    ("batch", "cronjobs", "spec.jobTemplate.spec.template"),
];
/// Kinds whose names become names of pods, and with that of hosts.
const NAMES_OF_PODS: [(&str, &str); 6] = [
    ("", "pods"),
    ("", "replicationcontrollers"),
    ("apps", "replicasets"),
    ("apps", "deployments"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
];
/// Volumes that nothing mounts any more, with what is said of them.
const OLD_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
const OLD_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    ("security.alpha.kubernetes.io/sysctls", "non-functional in v1.11+; use the \"sysctls\" field instead"),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];
const OLD_LABELS: [(&str, &str); 6] = [
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    (
        "failure-domain.beta.kubernetes.io/zone",
        "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead",
    ),
    (
        "beta.kubernetes.io/instance-type",
        "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead",
    ),
];
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";

/// Returns the warnings about a valid object of a built-in kind, and about what it was before an update.
pub fn of(ty: &ResourceType, object: &Value, old: Option<&Value>) -> Warnings {
    let mut warnings = Warnings::new();
    let root = Field::root(object);
    let is = |(group, plural): &(&str, &str)| *group == ty.group && *plural == ty.plural;
    if old.is_none() && NAMES_OF_PODS.iter().any(is) {
        let wrong = names::dns1123_label(root.get("metadata.name").text());
        if !wrong.is_empty() {
            let head = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; \
                        a DNS label is recommended";
            warnings.push(format!("{head}: [{}]", wrong.join(" ")));
        }
    }
    match (ty.group.as_str(), ty.plural.as_str()) {
        ("", "pods") if old.is_none() => pod(&root, &mut warnings),
        ("", "services") => service(&root, &mut warnings),
        ("", "secrets") => key_pair(&root, &mut warnings),
        ("", "persistentvolumeclaims") => storage(&root.get("spec.resources"), &mut warnings),
        ("apps", "statefulsets") if old.is_none() => claims(&root, &mut warnings),
        ("storage.k8s.io", "csidrivers") => csi_driver(&root, old, &mut warnings),
        ("", "endpoints") => endpoints(&root, &mut warnings),
        ("discovery.k8s.io", "endpointslices") => endpoint_slice(&root, &mut warnings),
        _ => {}
    }
    let template = TEMPLATES.iter().find(|(group, plural, _)| is(&(*group, *plural)));
    if let Some((.., path)) = template {
        let before = old.map(|old| crate::access::at(old, path));
        let template = root.get(path);
        if before.is_none_or(|before| before != template.value) {
            pod(&template, &mut warnings);
            let noted = crate::profiles::of_template(template.value);
            warnings.extend(noted.iter().map(|warning| format!("{}.metadata.{warning}", template.path())));
        }
    }
    warnings
}

/// Tokens that a driver gets beside what everybody may read are found in its logs.
fn csi_driver(driver: &Field<'_>, old: Option<&Value>, warnings: &mut Warnings) {
    let (requests, secret) =
        (driver.get("spec.tokenRequests"), driver.get("spec.serviceAccountTokenInSecrets"));
    let changed = old.is_none_or(|old| old["spec"]["tokenRequests"] != *requests.value);
    if changed && !requests.is_empty() && !secret.is_set() {
        let why = "is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in \
                   volume attributes";
        warnings.push(format!("{} {why}", secret.path()));
    }
}

fn warn(warnings: &mut Warnings, field: &Field<'_>, why: impl AsRef<str>) {
    warnings.push(format!("{}: {}", field.path(), why.as_ref()));
}

fn old_label(label: &str) -> Option<&'static str> {
    OLD_LABELS.iter().find(|(old, _)| *old == label).map(|(_, why)| *why)
}

/// A pod or a template of pods.
fn pod(pod: &Field<'_>, warnings: &mut Warnings) {
    let spec = pod.get("spec");
    labels(&spec, warnings);
    let noted = pod.get("metadata.annotations");
    for (key, why) in OLD_ANNOTATIONS {
        if noted.key(key).is_set() {
            warn(warnings, &noted.key(key), why);
        }
    }
    for volume in spec.get("volumes").items() {
        for (kind, named, why) in OLD_VOLUMES {
            if volume.get(kind).is_set() {
                warn(warnings, &volume.get(named), why);
            }
        }
    }
    spec.get("volumes").items().for_each(|volume| {
        let claim = volume.get("ephemeral.volumeClaimTemplate.spec.resources");
        storage(&claim, warnings);
    });
    spec.get("volumes").items().for_each(|volume| overlaps(&volume, warnings));
    repeated(&spec.get("hostAliases"), "ip", warnings);
    let secrets = spec.get("imagePullSecrets");
    repeated(&secrets, "name", warnings);
    for name in secrets.items().map(|secret| secret.get("name")).filter(Field::is_empty) {
        warn(warnings, &name, "invalid empty name \"\"");
    }
    if !spec.get("securityContext.seccompProfile").is_set() && noted.key(SECCOMP_POD).is_set() {
        let why = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
        warn(warnings, &noted.key(SECCOMP_POD), why);
    }
    whole_bytes(&spec.get("overhead"), warnings);
    for container in all_containers(&spec) {
        of_container(&container, &noted, warnings);
    }
    ports(&spec, warnings);
    let grace = spec.get("terminationGracePeriodSeconds");
    if grace.number() < 0 {
        warn(warnings, &grace, "must be >= 0; negative values are invalid and will be treated as 1");
    }
    terms(&spec.get("affinity"), warnings);
    for server in spec.get("dnsConfig.nameservers").items() {
        address(&server, warnings);
    }
    spec.get("hostAliases").items().for_each(|alias| address(&alias.get("ip"), warnings));
}

fn labels(spec: &Field<'_>, warnings: &mut Warnings) {
    for (key, value) in spec.get("nodeSelector").entries() {
        if let Some(why) = old_label(key) {
            warn(warnings, &value, why);
        }
    }
    let node = spec.get("affinity.nodeAffinity");
    let required = node.get("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    let preferred = node.get("preferredDuringSchedulingIgnoredDuringExecution");
    let preferred = preferred.items().map(|term| (term.get("preference"), true));
    for (term, values) in required.items().map(|term| (term, false)).chain(preferred) {
        for expression in term.get("matchExpressions").items() {
            let key = expression.get("key");
            if let Some(why) = old_label(key.text()) {
                warn(warnings, &key, format!("{} is {why}", key.text()));
            }
            for value in expression.get("values").items().filter(|_| values) {
                for why in names::label_value(value.text()) {
                    warn(warnings, &value, format!("{} is invalid, {why}", value.text()));
                }
            }
        }
    }
    for constraint in spec.get("topologySpreadConstraints").items() {
        let key = constraint.get("topologyKey");
        if let Some(why) = old_label(key.text()) {
            warn(warnings, &key, format!("{} is {why}", key.text()));
        }
        if !constraint.get("labelSelector").is_set() {
            warn(
                warnings,
                &constraint.get("labelSelector"),
                "a null labelSelector results in matching no pod",
            );
        }
    }
}

/// A certificate and its key are PEM.
fn key_pair(secret: &Field<'_>, warnings: &mut Warnings) {
    if secret.get("type").text() != "kubernetes.io/tls" {
        return;
    }
    let parts = [("tls.crt", "certificate"), ("tls.key", "key")];
    let missing = parts.iter().find(|(key, _)| {
        let bytes = BASE64_STANDARD.decode(secret.get("data").key(key).text()).unwrap_or_default();
        !String::from_utf8_lossy(&bytes).contains("-----BEGIN ")
    });
    if let Some((_, what)) = missing {
        warnings.push(format!("tls: failed to find any PEM data in {what} input"));
    }
}

/// What a StatefulSet asks for each of its pods.
fn claims(set: &Field<'_>, warnings: &mut Warnings) {
    for claim in set.get("spec.volumeClaimTemplates").items() {
        let at = claim.get("resources");
        storage(&claim.get("spec.resources").named(at.path()), warnings);
    }
    let limit = set.get("spec.revisionHistoryLimit");
    if limit.number() < 0 {
        warn(
            warnings,
            &limit,
            "a negative value retains all historical revisions; a value >= 0 is recommended",
        );
    }
}

/// Storage is counted in whole bytes.
fn storage(resources: &Field<'_>, warnings: &mut Warnings) {
    for part in ["requests", "limits"] {
        let amount = resources.get(part).key("storage");
        if let Some(bytes) = rules::amount(&amount).filter(|bytes| bytes.milli() % 1000 != 0) {
            let why = format!("fractional byte value \"{bytes}\" is invalid, must be an integer");
            warn(warnings, &amount, why);
        }
    }
}

/// Files of a volume that hide each other.
fn overlaps(volume: &Field<'_>, warnings: &mut Warnings) {
    let name = volume.get("name").text();
    let of = |items: &Field<'_>, source: &str| -> Vec<(String, String)> {
        let path = |item: Field<'_>| item.get("path").text().trim_end_matches('/').to_owned();
        items.get("items").items().map(|item| (path(item), source.to_owned())).collect()
    };
    for (kind, title, named) in [
        ("configMap", "ConfigMap", "name"),
        ("secret", "Secret", "secretName"),
        ("downwardAPI", "DownwardAPI", ""),
    ] {
        let source = volume.get(kind);
        let title = if named.is_empty() {
            title.to_owned()
        } else {
            format!("{title} {:?}", source.get(named).text())
        };
        told(name, &title, &of(&source, ""), warnings);
    }
    let mut all = Vec::new();
    for part in volume.get("projected.sources").items() {
        if part.is_empty() {
            warnings.push(format!("volume {name:?} (Projected) has no sources provided"));
        }
        let [map, secret, downward, token] =
            ["configMap", "secret", "downwardAPI", "serviceAccountToken"].map(|kind| part.get(kind));
        all.extend(of(&map, &format!("ConfigMap {:?}", map.get("name").text())));
        all.extend(of(&secret, &format!("Secret {:?}", secret.get("name").text())));
        all.extend(of(&downward, "DownwardAPI"));
        if token.is_set() {
            all.push((token.get("path").text().to_owned(), "ServiceAccountToken".to_owned()));
        }
    }
    told(name, "Projected", &all, warnings);
}

fn told(volume: &str, title: &str, paths: &[(String, String)], warnings: &mut Warnings) {
    let shown = |(path, source): &(String, String)| {
        if source.is_empty() { format!("{path:?}") } else { format!("{path:?} ({source})") }
    };
    for (index, this) in paths.iter().enumerate() {
        let below = |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'));
        for other in paths.iter().take(index).filter(|o| below(&o.0, &this.0) || below(&this.0, &o.0)) {
            let pair = format!("{} with {}", shown(this), shown(other));
            warnings.push(format!("volume {volume:?} ({title}): overlapping paths: {pair}"));
        }
    }
}

fn repeated(list: &Field<'_>, field: &str, warnings: &mut Warnings) {
    let mut seen = BTreeSet::new();
    for value in list.items().map(|item| item.get(field)) {
        if !seen.insert(value.text()) {
            warn(warnings, &value, format!("duplicate {field} {:?}", value.text()));
        }
    }
}

fn whole_bytes(amounts: &Field<'_>, warnings: &mut Warnings) {
    for resource in ["memory", "ephemeral-storage"] {
        let amount = amounts.key(resource);
        if let Some(bytes) = rules::amount(&amount).filter(|bytes| bytes.milli() % 1000 != 0) {
            let why = format!("fractional byte value \"{bytes}\" is invalid, must be an integer");
            warn(warnings, &amount, why);
        }
    }
}

fn of_container(container: &Field<'_>, noted: &Field<'_>, warnings: &mut Warnings) {
    let key = format!("{SECCOMP_CONTAINER}{}", container.get("name").text());
    if !container.get("securityContext.seccompProfile").is_set() && noted.key(&key).is_set() {
        let why = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
        warn(warnings, &noted.key(&key), why);
    }
    for resource in ["memory", "ephemeral-storage"] {
        for part in ["resources.limits", "resources.requests"] {
            let amount = container.get(part).key(resource);
            if let Some(bytes) = rules::amount(&amount).filter(|bytes| bytes.milli() % 1000 != 0) {
                let why = format!("fractional byte value \"{bytes}\" is invalid, must be an integer");
                warn(warnings, &amount, why);
            }
        }
    }
    let mut seen = BTreeSet::new();
    for variable in container.get("env").items() {
        let name = variable.get("name").text();
        if seen.insert(name) {
            continue;
        }
        let (value, own) = (variable.get("value"), format!("$({name})"));
        if variable.get("valueFrom").is_set() || value.text() == own || !value.text().contains(&own) {
            let why = format!("hides previous definition of {name:?}, which may be dropped when using apply");
            warn(warnings, &variable, why);
        }
    }
}

fn ports(spec: &Field<'_>, warnings: &mut Warnings) {
    let mut by_number: BTreeMap<(i64, &str), Vec<Field<'_>>> = BTreeMap::new();
    for port in all_containers(spec).flat_map(|container| container.get("ports").items()) {
        let host = |port: &Field<'_>| (port.get("hostIP").text().to_owned(), port.get("hostPort").number());
        let (address, number) = host(&port);
        if !address.is_empty() && number == 0 {
            let [name, container, protocol] = ["name", "containerPort", "protocol"].map(|f| port.get(f));
            let (name, protocol, container) = (name.text(), protocol.text(), container.number());
            let shown = format!(
                "{{Name:{name} HostPort:0 ContainerPort:{container} Protocol:{protocol} HostIP:{address}}}"
            );
            warn(warnings, &port, format!("hostIP set without hostPort: {shown}"));
        }
        let key = (port.get("containerPort").number(), port.get("protocol").text());
        let others = by_number.entry(key).or_default();
        for other in others.iter() {
            let (their_address, theirs) = host(other);
            let what = if address == their_address && number == theirs {
                "duplicate"
            } else if number == 0 || theirs == 0 {
                "overlapping"
            } else if number == theirs && (address.is_empty() != their_address.is_empty()) {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warn(warnings, &port, format!("{what} port definition with {}", other.path()));
        }
        others.push(port);
    }
    let mut by_name: BTreeMap<&str, Field<'_>> = BTreeMap::new();
    for port in all_containers(spec).flat_map(|container| container.get("ports").items()) {
        let name = port.get("name").text();
        if name.is_empty() {
            continue;
        }
        match by_name.get(name) {
            Some(other) => {
                let first = other.path();
                let why = format!(
                    "duplicate port name {name:?} with {first}, services and probes that select ports by name will use {first}"
                );
                warn(warnings, &port, why);
            }
            None => drop(by_name.insert(name, port)),
        }
    }
}

fn terms(affinity: &Field<'_>, warnings: &mut Warnings) {
    for kind in ["podAffinity", "podAntiAffinity"].map(|kind| affinity.get(kind)) {
        let required = kind.get("requiredDuringSchedulingIgnoredDuringExecution").items();
        let preferred = kind.get("preferredDuringSchedulingIgnoredDuringExecution").items();
        for term in required.chain(preferred.map(|term| term.get("podAffinityTerm"))) {
            if !term.get("labelSelector").is_set() {
                warn(warnings, &term.get("labelSelector"), "a null labelSelector results in matching no pod");
            }
        }
    }
}

/// An address that is not written as it should be.
fn address(field: &Field<'_>, warnings: &mut Warnings) {
    let text = field.text();
    if text.is_empty() {
        return;
    }
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            warn(
                warnings,
                field,
                format!(
                    "IPv4-mapped IPv6 address {text:?} will not be accepted in a future Kubernetes release"
                ),
            );
        }
        Ok(ip) if ip.is_ipv6() && ip.to_string() != text => {
            warn(
                warnings,
                field,
                format!(
                    "IPv6 address {text:?} should be in RFC 5952 canonical format ({:?})",
                    ip.to_string()
                ),
            );
        }
        Err(_) if rules::is_address(text) => {
            let plain: Vec<String> = text
                .split('.')
                .map(|part| part.trim_start_matches('0'))
                .map(|p| if p.is_empty() { "0".into() } else { p.to_owned() })
                .collect();
            warn(
                warnings,
                field,
                format!(
                    "non-standard IP address {text:?} will be considered invalid in a future Kubernetes release: use {:?}",
                    plain.join(".")
                ),
            );
        }
        _ => {}
    }
}

fn service(object: &Field<'_>, warnings: &mut Warnings) {
    let spec = object.get("spec");
    for ip in spec.get("clusterIPs").items().filter(|ip| ip.text() != "None") {
        address(&ip, warnings);
    }
    spec.get("externalIPs").items().for_each(|ip| address(&ip, warnings));
    let noted = object.get("metadata.annotations");
    if noted.key("service.kubernetes.io/topology-aware-hints").is_set() {
        warnings.push(
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use \
             service.kubernetes.io/topology-mode instead"
                .to_owned(),
        );
    }
    let (kind, name) = (spec.get("type"), spec.get("externalName"));
    if !name.is_empty() && kind.text() != "ExternalName" {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if !spec.get("externalIPs").is_empty() {
        warnings.push(
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned(),
        );
    }
    let distribution = spec.get("trafficDistribution");
    if distribution.text() == "PreferClose" {
        warn(warnings, &distribution, "\"PreferClose\" is deprecated; use \"PreferSameZone\"");
    }
}

fn endpoint_slice(object: &Field<'_>, warnings: &mut Warnings) {
    if object.get("addressType").text() == "FQDN" {
        warnings.push("spec.addressType: FQDN endpoints are deprecated".to_owned());
    }
}

fn endpoints(object: &Field<'_>, warnings: &mut Warnings) {
    for subset in object.get("subsets").items() {
        for list in ["addresses", "notReadyAddresses"] {
            subset.get(list).items().for_each(|entry| address(&entry.get("ip"), warnings));
        }
    }
}
