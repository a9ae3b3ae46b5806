//! Pod security standards by labels of namespaces (<https://kubernetes.io/docs/concepts/security/pod-security-admission/>):
//! `enforce` refuses Pods, `warn` and `audit` say what is wrong about them, and about what makes Pods.

mod checks;

use crate::{Attributes, Lookup, Plugin, Verb, json::text};
use checks::Violations;
use freehold_machinery::{Result, Status, Value, meta, status::FieldError};
use std::{collections::BTreeMap, fmt};

const PREFIX: &str = "pod-security.kubernetes.io/";
/// Pods of a namespace that are looked at when it gets a stricter level.
const MAX_PODS: usize = 3000;

/// The plugin.
pub struct PodSecurity;

/// How strict a policy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// A level as some minor version of Kubernetes defines it; `None` is the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standard {
    level: Level,
    version: Option<u32>,
}

/// The three modes of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy {
    enforce: Standard,
    audit: Standard,
    warn: Standard,
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            None => write!(f, "{level}:latest"),
            Some(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

fn level(text: &str) -> Option<Level> {
    match text {
        "privileged" => Some(Level::Privileged),
        "baseline" => Some(Level::Baseline),
        "restricted" => Some(Level::Restricted),
        _ => None,
    }
}

fn version(text: &str) -> Option<Option<u32>> {
    if text == "latest" {
        return Some(None);
    }
    let digits = text.strip_prefix("v1.")?;
    let plain = digits == "0" || !digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten().map(Some)
}

impl Policy {
    /// What a namespace's labels say, and what is wrong about them. What can't be read is as strict as can be for
    /// `enforce`, and not at all for the others.
    fn of(namespace: &Value) -> (Self, Vec<FieldError>) {
        let free = Standard { level: Level::Privileged, version: None };
        let mut policy = Self { enforce: free, audit: free, warn: free };
        let (mut errors, mut enforced) = (Vec::new(), false);
        for (mode, standard) in
            [("enforce", &mut policy.enforce), ("audit", &mut policy.audit), ("warn", &mut policy.warn)]
        {
            let mut wrong = |label: &str, given: &str, detail: &str| {
                let path = format!("metadata.labels[{PREFIX}{label}]");
                errors.push(FieldError::invalid(path, given.into(), detail));
            };
            if let Some(given) = meta::label(namespace, &format!("{PREFIX}{mode}")) {
                let strictest = if mode == "enforce" { Level::Restricted } else { Level::Privileged };
                standard.level = level(given).unwrap_or(strictest);
                enforced |= mode == "enforce" && level(given).is_some();
                if level(given).is_none() {
                    wrong(mode, given, "must be one of privileged, baseline, restricted");
                }
            }
            let label = format!("{mode}-version");
            if let Some(given) = meta::label(namespace, &format!("{PREFIX}{label}")) {
                standard.version = version(given).unwrap_or_default();
                if version(given).is_none() {
                    wrong(&label, given, "must be \"latest\" or \"v1.x\"");
                }
            }
        }
        let has = |label: &str| meta::label(namespace, &format!("{PREFIX}{label}")).is_some();
        if !has("warn") && enforced && policy.enforce.level > policy.warn.level {
            policy.warn.level = policy.enforce.level;
            if !has("warn-version") {
                policy.warn.version = policy.enforce.version;
            }
        }
        (policy, errors)
    }

    fn is_free(&self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|standard| standard.level == Level::Privileged)
    }
}

/// Where a kind has the template of its Pods: metadata and spec, as JSON pointers.
fn template(attributes: &Attributes<'_>) -> Option<&'static str> {
    match (attributes.ty.group.as_str(), attributes.ty.plural.as_str()) {
        ("", "podtemplates") => Some("/template"),
        ("", "replicationcontrollers")
        | ("apps", "replicasets" | "deployments" | "daemonsets" | "statefulsets")
        | ("batch", "jobs") => Some("/spec/template"),
        ("batch", "cronjobs") => Some("/spec/jobTemplate/spec/template"),
        _ => None,
    }
}

const IGNORED: [&str; 8] = ["exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"];

impl Plugin for PodSecurity {
    fn name(&self) -> &'static str {
        "PodSecurity"
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        if !matches!(attributes.verb, Verb::Create | Verb::Update) {
            return Ok(());
        }
        let Some(object) = attributes.object() else { return Ok(()) };
        if attributes.is("", "namespaces") {
            return namespace(attributes, object, lookup);
        }
        let pods = attributes.ty.group.is_empty() && attributes.ty.plural == "pods";
        let pod = match template(attributes) {
            _ if pods && !IGNORED.contains(&attributes.subresource) => Some(object),
            Some(pointer) if attributes.subresource.is_empty() => object.pointer(pointer),
            _ => None,
        };
        let Some(pod) = pod.filter(|pod| pod["spec"].is_object()) else { return Ok(()) };
        let Some(namespace) = lookup.get(attributes.plane, "", "namespaces", "", attributes.namespace) else {
            return Ok(());
        };
        let (policy, errors) = Policy::of(&namespace);
        if errors.is_empty() && policy.is_free() || pods && !is_significant(object, attributes.old) {
            return Ok(());
        }
        evaluate(attributes, &policy, &errors, pod, pods)
    }
}

fn evaluate(
    attributes: &Attributes<'_>,
    policy: &Policy,
    errors: &[FieldError],
    pod: &Value,
    enforce: bool,
) -> Result<()> {
    let note = |key: &str, value: String| attributes.annotations.add(format!("{PREFIX}{key}"), value);
    if !errors.is_empty() {
        let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
        note("error", format!("Failed to parse policy: {}", all.join(", ")));
    }
    let found = |standard: &Standard| Violations::of(pod, standard);
    let audited = found(&policy.audit);
    if !audited.is_empty() {
        note("audit-violations", format!("would violate PodSecurity \"{}\": {audited}", policy.audit));
    }
    if enforce {
        note("enforce-policy", policy.enforce.to_string());
        let refused = found(&policy.enforce);
        if !refused.is_empty() {
            let why = format!("violates PodSecurity \"{}\": {refused}", policy.enforce);
            return Err(attributes.forbidden(&why));
        }
    }
    let warned = found(&policy.warn);
    if !warned.is_empty() {
        attributes.annotations.warn(format!("would violate PodSecurity \"{}\": {warned}", policy.warn));
    }
    Ok(())
}

/// An update of a Pod is looked at when it changes what runs in it.
fn is_significant(pod: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else { return true };
    let list = |pod: &Value, field: &str| pod["spec"][field].as_array().cloned().unwrap_or_default();
    let differ = |field: &str| {
        let (new, old) = (list(pod, field), list(old, field));
        new.len() != old.len() || new.iter().zip(&old).any(|(new, old)| new["image"] != old["image"])
    };
    let before = list(old, "ephemeralContainers");
    differ("containers")
        || differ("initContainers")
        || list(pod, "ephemeralContainers").iter().any(|new| {
            let old = before.iter().find(|old| old["name"] == new["name"]);
            old.is_none_or(|old| old["image"] != new["image"])
        })
}

/// Labels of a namespace must be right when they are written; a stricter level is compared with the Pods that are there.
fn namespace(attributes: &Attributes<'_>, object: &Value, lookup: &dyn Lookup) -> Result<()> {
    let (policy, errors) = Policy::of(object);
    let refuse = |errors: &[FieldError]| Err(Status::invalid("", "Namespace", meta::name(object), errors));
    let Some(old) = attributes.old else {
        return if errors.is_empty() { Ok(()) } else { refuse(&errors) };
    };
    let (before, earlier) = Policy::of(old);
    if !errors.is_empty() && errors != earlier {
        return refuse(&errors);
    }
    let (new, old) = (policy.enforce, before.enforce);
    let relaxed = new.version == old.version && new.level <= old.level;
    if new == old || new.level == Level::Privileged || relaxed {
        return Ok(());
    }
    let pods = lookup.list(attributes.plane, "", "pods", meta::name(object));
    let mut by_reason: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for pod in pods.iter().take(MAX_PODS) {
        let found = Violations::of(pod, &new);
        if !found.is_empty() {
            let name = text(pod, "/metadata/name").to_owned();
            let (first, count) = by_reason.entry(found.reasons()).or_insert_with(|| (name.clone(), 0));
            *first = name.min(std::mem::take(first));
            *count += 1;
        }
    }
    if pods.len() > MAX_PODS {
        let (checked, total) = (MAX_PODS, pods.len());
        attributes.annotations.warn(format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        ));
    }
    if !by_reason.is_empty() {
        let name = meta::name(object);
        attributes.annotations.warn(format!(
            "existing pods in namespace {name:?} violate the new PodSecurity enforce level \"{new}\""
        ));
    }
    let mut lines: Vec<String> = by_reason
        .into_iter()
        .map(|(reason, (name, count))| match count {
            1 => format!("{name}: {reason}"),
            2 => format!("{name} (and 1 other pod): {reason}"),
            _ => format!("{name} (and {} other pods): {reason}", count - 1),
        })
        .collect();
    lines.sort();
    lines.into_iter().for_each(|line| attributes.annotations.warn(line));
    Ok(())
}
