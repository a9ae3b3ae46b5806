//! Defaults of pods and of the templates of pods, for every kind that has one.

use crate::access::{at, fill, is_empty, list, list_mut, text};
use freehold_machinery::{Map, Value, quantity::Quantity};
use serde_json::json;
use std::collections::BTreeMap;

const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

/// Fills in a pod spec, in a pod or in a template.
pub fn pod_spec(spec: &mut Value) {
    for list in CONTAINERS {
        list_mut(spec, list).filter(|container| container.is_object()).for_each(container);
    }
    list_mut(spec, "volumes").for_each(volume);
    account(spec);
}

/// The old name of the service account's field always says what the new one says.
fn account(spec: &mut Value) {
    let Some(map) = spec.as_object_mut() else { return };
    let given = |field: &str| map.get(field).and_then(Value::as_str).filter(|name| !name.is_empty());
    let Some(name) = given("serviceAccountName").or(given("serviceAccount")).map(str::to_owned) else {
        return;
    };
    for field in ["serviceAccountName", "serviceAccount"] {
        map.insert(field.to_owned(), name.clone().into());
    }
}

fn container(container: &mut Value) {
    if is_empty(at(container, "imagePullPolicy")) {
        container["imagePullPolicy"] = pull_policy(text(container, "image")).into();
    }
    for probe in PROBES {
        if container.get(probe).is_some_and(Value::is_object) {
            positive(&mut container[probe]);
        }
    }
}

/// Zero counts as absent in a probe.
fn positive(probe: &mut Value) {
    for (field, default) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if probe.get(field).is_none_or(|value| *value == 0) {
            probe[field] = default.into();
        }
    }
}

/// An image that has neither a tag nor a digest is the newest, and is pulled each time.
fn pull_policy(image: &str) -> &'static str {
    if !is_reference(image) {
        return "IfNotPresent";
    }
    let (reference, digest) = image.split_once('@').map_or((image, ""), |(name, digest)| (name, digest));
    let last = reference.rsplit('/').next().unwrap_or_default();
    let tag = last.split_once(':').map_or("", |(_, tag)| tag);
    let latest = tag == "latest" || (tag.is_empty() && digest.is_empty());
    if latest && !image.is_empty() { "Always" } else { "IfNotPresent" }
}

/// Whether a string names an image (<https://pkg.go.dev/github.com/distribution/reference>).
fn is_reference(image: &str) -> bool {
    const LONGEST: usize = 255;
    let (name, _) = image.split_once('@').unwrap_or((image, ""));
    let slash = name.rfind('/').map_or(0, |at| at + 1);
    let end = name[slash..].find(':').map_or(name.len(), |at| slash + at);
    let (repository, tag) = (&name[..end], name[end..].strip_prefix(':'));
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.' || c == '-';
    let good_tag = tag.is_none_or(|tag| {
        (1..=128).contains(&tag.len()) && tag.chars().all(word) && !tag.starts_with(['.', '-'])
    });
    let mut parts = repository.split('/').enumerate();
    let many = repository.contains('/');
    let good = |(index, part): (usize, &str)| {
        let host = index == 0 && many;
        let inner = |c: char| word(c) && (host || !c.is_ascii_uppercase()) || (host && c == ':');
        !part.is_empty()
            && part.chars().all(inner)
            && !part.starts_with(['.', '-', '_'])
            && !part.ends_with(['.', '-', '_'])
    };
    good_tag && repository.len() <= LONGEST && parts.all(good)
}

fn volume(volume: &mut Value) {
    let Some(map) = volume.as_object_mut() else { return };
    if map.iter().all(|(field, source)| field == "name" || source.is_null()) {
        map.insert("emptyDir".into(), json!({}));
    }
    if let Some(Value::Object(image)) = map.get_mut("image")
        && image.get("pullPolicy").is_none_or(is_empty)
    {
        let reference = image.get("reference").and_then(Value::as_str).unwrap_or_default();
        let policy = pull_policy(reference);
        image.insert("pullPolicy".into(), policy.into());
    }
}

/// Fills in what pods have and their templates don't.
pub fn pod(object: &mut Value) {
    first_address(object);
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    let shares_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
    for list in &CONTAINERS[..2] {
        for container in list_mut(spec, list).filter(|container| container.is_object()) {
            requests_from_limits(container);
            if shares_network {
                list_mut(container, "ports").for_each(host_port);
            }
        }
    }
    whole_pod(spec);
    fill(object, "spec", "enableServiceLinks", true);
}

/// The first address of a pod stands in a field of its own as well, which is the older one and counts where they differ.
fn first_address(pod: &mut Value) {
    let Some(status) = pod.get_mut("status").filter(|status| status.is_object()) else { return };
    let (one, first) = (text(status, "podIP").to_owned(), at(status, "podIPs").get(0).cloned());
    match first {
        Some(first) if one.is_empty() => status["podIP"] = first["ip"].clone(),
        Some(first) if first["ip"] == one.as_str() => {}
        None if one.is_empty() => {}
        _ => status["podIPs"] = json!([{"ip": one}]),
    }
}

fn requests_from_limits(container: &mut Value) {
    let limits: Option<Map> = at(container, "resources.limits").as_object().cloned();
    for (resource, amount) in limits.into_iter().flatten() {
        fill(container, "resources.requests", &resource, amount);
    }
}

const HUGE_PAGES: &str = "hugepages-";

/// What a pod asks for as a whole, where it says a part of that: its limits of huge pages are its containers'; its requests
/// are the containers' too, or else its limits.
fn whole_pod(spec: &mut Value) {
    const LIMITS: &str = "resources.limits";
    const REQUESTS: &str = "resources.requests";
    if is_empty(at(spec, LIMITS)) && is_empty(at(spec, REQUESTS)) {
        return;
    }
    for (name, limit) in of_containers(spec, LIMITS) {
        if name.starts_with(HUGE_PAGES) && at(spec, REQUESTS).get(&name).is_none() {
            fill(spec, LIMITS, &name, limit.to_string());
        }
    }
    let limits = at(spec, LIMITS).as_object().cloned().unwrap_or_default();
    if limits.is_empty() {
        return;
    }
    for (name, request) in of_containers(spec, REQUESTS) {
        if matches!(name.as_str(), "cpu" | "memory") {
            fill(spec, REQUESTS, &name, request.to_string());
        }
    }
    for (name, limit) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with(HUGE_PAGES) {
            fill(spec, REQUESTS, &name, limit);
        }
    }
}

type Amounts = BTreeMap<String, Quantity>;

/// What containers need at a time at most: all of them and the sidecars together, or one that prepares the pod with those
/// sidecars that are there by then.
fn of_containers(spec: &Value, part: &str) -> Amounts {
    let (mut all, mut sidecars, mut most) = (Amounts::new(), Amounts::new(), Amounts::new());
    list(spec, "containers").iter().for_each(|container| add(&mut all, &amounts(container, part)));
    for container in list(spec, "initContainers") {
        let own = amounts(container, part);
        let mut at_once = sidecars.clone();
        add(&mut at_once, &own);
        if text(container, "restartPolicy") == "Always" {
            add(&mut all, &own);
            sidecars = at_once.clone();
        }
        raise(&mut most, at_once);
    }
    raise(&mut all, most);
    all
}

fn amounts(container: &Value, part: &str) -> Amounts {
    let given = at(container, part).as_object().into_iter().flatten();
    given.filter_map(|(name, amount)| Some((name.clone(), amount.as_str()?.parse().ok()?))).collect()
}

fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        sum.entry(name.clone()).and_modify(|sum| *sum = sum.plus(amount)).or_insert(*amount);
    }
}

fn raise(least: &mut Amounts, to: Amounts) {
    for (name, amount) in to {
        least.entry(name).and_modify(|least| *least = (*least).max(amount)).or_insert(amount);
    }
}

fn host_port(port: &mut Value) {
    if port.is_object() && is_empty(&port["hostPort"]) {
        port["hostPort"] = port["containerPort"].clone();
    }
}
