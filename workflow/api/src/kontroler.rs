//! Kontroler's kinds, `kontroler.greedykomodo/v1alpha1`, so that its definitions are applied as they are. What becomes of them is
//! said by the conversion: their schemas let everything in, and what cannot be converted is told in the status.

use freehold_machinery::Value;
use serde_json::json;

/// The API group.
pub const GROUP: &str = "kontroler.greedykomodo";
/// The version of all its kinds.
pub const VERSION: &str = "v1alpha1";
/// Kinds with their plurals.
pub const KINDS: [(&str, &str); 3] = [("DAG", "dags"), ("DagRun", "dagruns"), ("DagTask", "dagtasks")];

/// The CustomResourceDefinitions of Kontroler's kinds.
pub fn crds() -> Vec<Value> {
    KINDS.iter().map(|(kind, plural)| crd(kind, plural)).collect()
}

fn crd(kind: &str, plural: &str) -> Value {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let column = |name: &str, path: &str| json!({"name": name, "type": "string", "jsonPath": path});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "versions": [{
                "name": VERSION, "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [column("Phase", ".status.phase"), column("Message", ".status.message")],
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "A definition of Kontroler, which is converted to the kind of the same name in workflow.freehold.dev.",
                    "properties": {"spec": any, "status": any},
                }},
            }],
        },
    })
}
