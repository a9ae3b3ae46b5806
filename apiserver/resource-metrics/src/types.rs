//! `NodeMetrics` and `PodMetrics` as types that a plane serves.
//!
//! They are made of definitions, as custom resources are, so that discovery, OpenAPI and Tables follow from data. Unlike these
//! they can be read and nothing else, since nothing of them is stored.

use freehold_machinery::{
    ResourceType, Value, crd,
    resource::{Cell, Column},
};
use serde_json::json;
use std::sync::{Arc, LazyLock};

/// The API group of resource metrics.
pub const GROUP: &str = "metrics.k8s.io";
/// The version of the resource metrics API.
pub const VERSION: &str = "v1beta1";

/// The sum over a Pod's containers, as `machinery`'s tables print it; and the node's own figure.
const POD_CELLS: [&str; 2] = ["containers-usage cpu", "containers-usage memory"];
const NODE_CELLS: [&str; 2] = ["text .usage.cpu", "text .usage.memory"];

/// Returns the types of nodes' and Pods' metrics: readable, without a stored form.
pub fn types() -> &'static [Arc<ResourceType>] {
    static TYPES: LazyLock<Vec<Arc<ResourceType>>> = LazyLock::new(|| {
        let usage = json!({
            "type": "object",
            "description": "The memory usage is the memory working set.",
            "additionalProperties": {
                "x-kubernetes-int-or-string": true,
                "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            },
        });
        let containers = json!({
            "type": "array",
            "description": "Metrics for all containers are collected within the same time window.",
            "items": {
                "type": "object",
                "description": "Resource usage metrics of a container.",
                "required": ["name", "usage"],
                "properties": {
                    "name": {"type": "string", "description": "Container name corresponding to the one from pod.spec.containers."},
                    "usage": usage,
                },
            },
        });
        let node = definition("nodes", "NodeMetrics", "Cluster", ("usage", &usage));
        let pod = definition("pods", "PodMetrics", "Namespaced", ("containers", &containers));
        [(node, NODE_CELLS), (pod, POD_CELLS)]
            .into_iter()
            .flat_map(|(crd, cells)| read_only(&crd, cells))
            .collect()
    });
    &TYPES
}

/// Whether a type is one of these, and not one that a plane defines under the same name.
pub fn is_served(ty: &ResourceType) -> bool {
    ty.group == GROUP && types().iter().any(|own| std::ptr::eq(&**own, ty))
}

fn definition(plural: &str, kind: &str, scope: &str, (field, schema): (&str, &Value)) -> Value {
    let what = if scope == "Cluster" { "a node" } else { "a pod" };
    let schema = json!({
        "type": "object",
        "description": format!("{kind} sets resource usage metrics of {what}."),
        "required": ["timestamp", "window", field],
        "properties": {
            "timestamp": {
                "type": "string", "format": "date-time",
                "description": "The following fields define time interval from which metrics were collected from the interval \
                    [Timestamp-Window, Timestamp].",
            },
            "window": {"type": "string"},
            (field): schema,
        },
    });
    crd::definition_of(&json!({
        "group": GROUP,
        "scope": scope,
        "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
        "versions": [{"name": VERSION, "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
    }))
}

/// The types of a definition, with the verbs and columns of metrics-server. As nobody else has them yet they can be changed.
fn read_only(definition: &Value, cells: [&'static str; 2]) -> Vec<Arc<ResourceType>> {
    let mut types = crd::compile(definition).unwrap_or_default();
    for ty in types.iter_mut().filter_map(Arc::get_mut) {
        ty.verbs = vec!["get", "list"];
        ty.singular = String::new();
        ty.generation = false;
        let [cpu, memory] = cells;
        ty.columns = vec![
            column("cpu", "quantity", cpu),
            column("memory", "quantity", memory),
            column("Window", "duration", "text .window"),
        ];
        ty.hash.push_str(":read-only");
    }
    types
}

fn column(name: &str, format: &str, cell: &'static str) -> Column {
    Column {
        name: name.to_owned(),
        kind: "string".to_owned(),
        format: format.to_owned(),
        description: String::new(),
        priority: 0,
        cell: Cell::Function(cell),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery_table as table;

    #[test]
    fn both_kinds_compile_and_can_only_be_read() {
        let all: Vec<_> = types().iter().map(|ty| (&*ty.plural, &*ty.kind, ty.namespaced)).collect();
        assert_eq!(all, [("nodes", "NodeMetrics", false), ("pods", "PodMetrics", true)]);
        for ty in types() {
            assert_eq!((&*ty.verbs, &*ty.api_version()), (&["get", "list"][..], "metrics.k8s.io/v1beta1"));
            assert!(is_served(ty));
            for column in &ty.columns {
                let Cell::Function(cell) = column.cell else { panic!("{column:?}") };
                assert!(table::is_function(cell), "{cell}");
            }
        }
    }

    #[test]
    fn a_definition_of_the_same_name_is_another_type() {
        let crd = definition("pods", "PodMetrics", "Namespaced", ("x", &json!({"type": "string"})));
        let defined = crd::compile(&crd).unwrap();
        assert!(!is_served(&defined[0]));
    }
}
