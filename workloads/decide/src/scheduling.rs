//! Where a host Pod may run. A tenant says what it needs of a node in general; which nodes those are the platform decides.

use crate::Refusal;
use crate::names::{PROJECT, host_namespace};
use crate::pod::Terms;
use freehold_machinery::{Map, Value};
use serde_json::json;

/// Labels of nodes that tenants may ask for.
const NODE_LABELS: [&str; 4] = [
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// The label with the name of a node: in a project that of its one Node.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Taints that tenants may tolerate: those of nodes that are in trouble, for a time.
const TOLERATED: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// Kinds of affinity between Pods, and of terms in them.
const POD_AFFINITIES: [&str; 2] = ["podAffinity", "podAntiAffinity"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Adds what concerns scheduling to the spec of a host Pod.
pub(crate) fn translate(spec: &Map, terms: &Terms<'_>, host: &mut Map) -> Result<(), Refusal> {
    host.insert("nodeSelector".into(), node_selector(spec.get("nodeSelector"), terms)?);
    if let Some(affinity) = spec.get("affinity").filter(|affinity| affinity.is_object()) {
        host.insert("affinity".into(), affinity_of(affinity, terms)?);
    }
    let tolerations = spec.get("tolerations").and_then(Value::as_array).into_iter().flatten();
    let kept = tolerations.filter(|t| t["key"].as_str().is_some_and(|key| TOLERATED.contains(&key)));
    host.insert("tolerations".into(), kept.cloned().collect());
    for (field, value) in
        [("runtimeClassName", &terms.class.runtime_class), ("priorityClassName", &terms.class.priority_class)]
    {
        if !value.is_empty() {
            host.insert(field.into(), value.clone().into());
        }
    }
    Ok(())
}

fn node_selector(asked: Option<&Value>, terms: &Terms<'_>) -> Result<Value, Refusal> {
    let mut selector = Map::new();
    for (key, value) in asked.and_then(Value::as_object).into_iter().flatten() {
        match key.as_str() {
            HOSTNAME if value == terms.cluster => {}
            key if NODE_LABELS.contains(&key) => {
                selector.insert(key.to_owned(), value.clone());
            }
            key => return Err(unknown_label("spec.nodeSelector", key)),
        }
    }
    // What the class says goes before what the tenant does.
    selector.extend(terms.class.node_selector.iter().map(|(key, value)| (key.clone(), value.clone().into())));
    Ok(selector.into())
}

fn unknown_label(field: &str, key: &str) -> Refusal {
    let known = NODE_LABELS.join(", ");
    Refusal::field(field, &format!("Pods may ask for nodes by {known} alone, not by {key}"))
}

fn affinity_of(affinity: &Value, terms: &Terms<'_>) -> Result<Value, Refusal> {
    let mut host = Map::new();
    if let Some(node) = affinity.get("nodeAffinity").filter(|node| node.is_object()) {
        host.insert("nodeAffinity".into(), node_affinity(node, terms)?);
    }
    for kind in POD_AFFINITIES {
        let Some(given) = affinity.get(kind).filter(|given| given.is_object()) else { continue };
        let mut given = given.clone();
        for term in terms_of(&mut given, REQUIRED) {
            pod_term(term, terms)?;
        }
        for weighted in terms_of(&mut given, PREFERRED) {
            pod_term(&mut weighted["podAffinityTerm"], terms)?;
        }
        host.insert(kind.into(), given);
    }
    Ok(host.into())
}

fn terms_of<'a>(affinity: &'a mut Value, field: &str) -> impl Iterator<Item = &'a mut Value> + use<'a> {
    affinity.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten()
}

fn node_affinity(node: &Value, terms: &Terms<'_>) -> Result<Value, Refusal> {
    let mut host = Map::new();
    let listed = node[REQUIRED]["nodeSelectorTerms"].as_array().map(Vec::as_slice).unwrap_or_default();
    let required: Vec<Value> = listed.iter().map(|term| node_term(term, terms)).collect::<Result<_, _>>()?;
    // Terms are alternatives: with one that asks for nothing, any node will do.
    if !required.is_empty() && required.iter().all(|term| *term != json!({})) {
        host.insert(REQUIRED.into(), json!({"nodeSelectorTerms": required}));
    }
    let preferred = node[PREFERRED].as_array().into_iter().flatten();
    let preferred = preferred.map(|weighted| {
        Ok(json!({"weight": weighted["weight"], "preference": node_term(&weighted["preference"], terms)?}))
    });
    let mut preferred: Vec<Value> = preferred.collect::<Result<_, Refusal>>()?;
    preferred.retain(|weighted| weighted["preference"] != json!({}));
    if !preferred.is_empty() {
        host.insert(PREFERRED.into(), preferred.into());
    }
    Ok(host.into())
}

/// A term without what every node of the cluster is in the project: its one Node.
fn node_term(term: &Value, terms: &Terms<'_>) -> Result<Value, Refusal> {
    let names_node = |one: &Value| {
        let values = one["values"].as_array().map(Vec::as_slice).unwrap_or_default();
        one["operator"] == "In" && values.iter().any(|value| value == terms.cluster)
    };
    let mut fields = term["matchFields"].as_array().into_iter().flatten();
    if fields.any(|field| !names_node(field)) {
        return Err(Refusal::field("nodeAffinity.matchFields", "the project has one Node on this cluster"));
    }
    let mut kept = Vec::new();
    for one in term["matchExpressions"].as_array().into_iter().flatten() {
        match one["key"].as_str().unwrap_or_default() {
            HOSTNAME if names_node(one) => {}
            key if NODE_LABELS.contains(&key) => kept.push(one.clone()),
            key => return Err(unknown_label("nodeAffinity.matchExpressions", key)),
        }
    }
    Ok(if kept.is_empty() { json!({}) } else { json!({"matchExpressions": kept}) })
}

/// Leads a term about other Pods to namespaces of the same project.
fn pod_term(term: &mut Value, terms: &Terms<'_>) -> Result<(), Refusal> {
    if let Some(names) = term["namespaces"].as_array_mut() {
        for name in names.iter_mut() {
            *name = host_namespace(terms.project, name.as_str().unwrap_or_default()).into();
        }
    }
    match term.get("namespaceSelector") {
        None | Some(Value::Null) => Ok(()),
        Some(all) if *all == json!({}) => {
            term["namespaceSelector"] = json!({"matchLabels": {PROJECT: terms.project}});
            Ok(())
        }
        Some(_) => Err(Refusal::field(
            "podAffinity.namespaceSelector",
            "labels of the project's namespaces are not known to the cluster; name the namespaces",
        )),
    }
}
