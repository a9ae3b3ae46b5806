//! LimitRanges: defaults for containers, and bounds for containers, Pods and claims
//! (<https://kubernetes.io/docs/concepts/policy/limit-range/>).

use crate::{
    Attributes, Lookup, Plugin, Verb,
    json::{aggregate, items, map_mut, text},
    resources::{Amounts, amounts, of_container, of_pod},
};
use freehold_machinery::{Result, Value, meta, quantity::Quantity};
use std::sync::Arc;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// The two lists of containers, with the words for one of them.
const CONTAINERS: [(&str, &str); 2] = [("containers", "container"), ("initContainers", "init container")];

/// The plugin.
pub struct LimitRanger;

impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn admit(&self, attributes: &mut Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let ranges = ranges(attributes, lookup);
        if let (true, Some(pod)) = (attributes.is("", "pods"), attributes.object.as_deref_mut()) {
            ranges.iter().for_each(|range| set_defaults(pod, range));
        }
        Ok(())
    }

    fn validate(&self, attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Result<()> {
        let Some(object) = attributes.object() else { return Ok(()) };
        for range in ranges(attributes, lookup) {
            let errors: Vec<String> =
                items(&range, "/spec/limits").flat_map(|limit| violations(object, limit)).collect();
            if let Some(why) = aggregate(errors) {
                return Err(attributes.forbidden(&why));
            }
        }
        Ok(())
    }
}

/// The LimitRanges that apply, by name. A Pod's resources are checked once: they hardly change afterwards.
fn ranges(attributes: &Attributes<'_>, lookup: &dyn Lookup) -> Vec<Arc<Value>> {
    let pod = attributes.is("", "pods") && attributes.verb == Verb::Create;
    let claim =
        attributes.is("", "persistentvolumeclaims") && matches!(attributes.verb, Verb::Create | Verb::Update);
    if !(pod || claim) || attributes.old.is_some_and(meta::is_deleting) {
        return Vec::new();
    }
    let mut ranges = lookup.list(attributes.plane, "", "limitranges", attributes.namespace);
    ranges.sort_by(|a, b| meta::name(a).cmp(meta::name(b)));
    ranges
}

/// What a container gets where it says nothing: requests and limits.
fn container_defaults(range: &Value) -> [(&'static str, Amounts); 2] {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    for limit in items(range, "/spec/limits").filter(|limit| limit["type"] == "Container") {
        // As the API's own defaults have it: the most, where no default limit is given; the default limit, then the
        // least, where no default request is.
        let mut own = amounts(limit.get("max"));
        own.extend(amounts(limit.get("default")));
        let mut request = amounts(limit.get("min"));
        request.extend(own.clone());
        request.extend(amounts(limit.get("defaultRequest")));
        limits.extend(own);
        requests.extend(request);
    }
    [("requests", requests), ("limits", limits)]
}

fn set_defaults(pod: &mut Value, range: &Value) {
    let defaults = container_defaults(range);
    let mut notes = Vec::new();
    for (list, word) in CONTAINERS {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let name = text(container, "/name").to_owned();
            for (field, wanted) in &defaults {
                let set = fill(container, field, wanted);
                if !set.is_empty() {
                    notes.push(format!(
                        "{} {} for {word} {name}",
                        set.join(", "),
                        field.trim_end_matches('s')
                    ));
                }
            }
        }
    }
    if let (false, Some(annotations)) = (notes.is_empty(), map_mut(&mut pod["metadata"], "annotations")) {
        annotations.insert(ANNOTATION.into(), format!("LimitRanger plugin set: {}", notes.join("; ")).into());
    }
}

/// Fills in what a container does not say, and gives the names of what was set.
fn fill(container: &mut Value, field: &str, wanted: &Amounts) -> Vec<String> {
    let present = of_container(container, field);
    let missing: Vec<_> = wanted.iter().filter(|(name, _)| !present.contains_key(*name)).collect();
    if missing.is_empty() || map_mut(container, "resources").is_none() {
        return Vec::new();
    }
    let Some(list) = map_mut(&mut container["resources"], field) else { return Vec::new() };
    list.extend(missing.iter().map(|(name, amount)| ((*name).clone(), amount.to_string().into())));
    missing.into_iter().map(|(name, _)| name.clone()).collect()
}

/// How an object breaks one entry of a LimitRange.
fn violations(object: &Value, limit: &Value) -> Vec<String> {
    let kind = limit["type"].as_str().unwrap_or_default();
    match (kind, object.pointer("/spec/containers").is_some()) {
        ("Container", true) => CONTAINERS
            .iter()
            .flat_map(|(list, _)| items(object, &format!("/spec/{list}")).collect::<Vec<_>>())
            .flat_map(|c| Check { kind, limit }.all(&of_container(c, "requests"), &of_container(c, "limits")))
            .collect(),
        ("Pod", true) => Check { kind, limit }.all(&of_pod(object, "requests"), &of_pod(object, "limits")),
        ("PersistentVolumeClaim", false) => Check { kind, limit }.claim(&of_claim(object)),
        _ => Vec::new(),
    }
}

fn of_claim(claim: &Value) -> Amounts {
    amounts(claim.pointer("/spec/resources/requests"))
}

/// One entry of a LimitRange, with the word for what it limits.
struct Check<'a> {
    kind: &'a str,
    limit: &'a Value,
}

impl Check<'_> {
    fn all(&self, requests: &Amounts, limits: &Amounts) -> Vec<String> {
        let of = |field: &str| amounts(self.limit.get(field));
        let min = of("min").into_iter().filter_map(|(name, q)| self.min(&name, &q, requests, limits));
        let max = of("max").into_iter().filter_map(|(name, q)| self.max(&name, &q, requests, limits));
        let ratio = of("maxLimitRequestRatio")
            .into_iter()
            .filter_map(|(name, q)| self.ratio(&name, &q, requests, limits));
        min.chain(max).chain(ratio).collect()
    }

    /// Claims have requests only.
    fn claim(&self, requests: &Amounts) -> Vec<String> {
        let min = amounts(self.limit.get("min")).into_iter();
        let min = min.filter_map(|(name, q)| self.min(&name, &q, requests, &Amounts::new()));
        let max = amounts(self.limit.get("max")).into_iter().filter_map(|(name, most)| {
            let head = format!("maximum {name} usage per {} is {most}", self.kind);
            match requests.get(&name) {
                None => Some(format!("{head}.  No request is specified")),
                Some(request) => (*request > most).then(|| format!("{head}, but request is {request}")),
            }
        });
        min.chain(max).collect()
    }

    fn min(&self, name: &str, least: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
        let head = format!("minimum {name} usage per {} is {least}", self.kind);
        match (requests.get(name), limits.get(name)) {
            (None, _) => Some(format!("{head}.  No request is specified")),
            (Some(request), _) if request < least => Some(format!("{head}, but request is {request}")),
            (_, Some(limit)) if limit < least => Some(format!("{head}, but limit is {limit}")),
            _ => None,
        }
    }

    fn max(&self, name: &str, most: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
        let head = format!("maximum {name} usage per {} is {most}", self.kind);
        match (requests.get(name), limits.get(name)) {
            (_, None) => Some(format!("{head}.  No limit is specified")),
            (_, Some(limit)) if limit > most => Some(format!("{head}, but limit is {limit}")),
            (Some(request), _) if request > most => Some(format!("{head}, but request is {request}")),
            _ => None,
        }
    }

    fn ratio(&self, name: &str, most: &Quantity, requests: &Amounts, limits: &Amounts) -> Option<String> {
        let head = format!("{name} max limit to request ratio per {} is {most}", self.kind);
        let given =
            |amounts: &Amounts| amounts.get(name).filter(|amount| !amount.is_zero()).map(Quantity::as_f64);
        match (given(requests), given(limits)) {
            (None, _) => Some(format!("{head}, but no request is specified or request is 0")),
            (_, None) => Some(format!("{head}, but no limit is specified or limit is 0")),
            (Some(request), Some(limit)) => {
                let ratio = limit / request;
                (ratio > most.as_f64()).then(|| format!("{head}, but provided ratio is {ratio:.6}"))
            }
        }
    }
}
