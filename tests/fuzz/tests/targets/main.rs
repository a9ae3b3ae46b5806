//! What must hold for whatever clients send: decoders, patches, apply, selectors, tables, certificates, and the store as pairs
//! reach it.
//!
//! The decoder of bodies (with YAML) and continue tokens are tried where they are private: `apiserver/server/src/fuzz.rs`,
//! `apiserver/registry/src/fuzz.rs`.

mod apply;
mod certificates;
mod decode;
mod facade;
mod patch;
mod select;
mod table;

use freehold_machinery::{GroupVersion, GroupVersionKind, Value, schema::Schema};
use std::{path::Path, sync::Arc};

/// Whole objects of the built-in kinds: those of the differential tests, with their status.
fn objects() -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../differential/rules");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the differential tests' folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a file");
        let rows: Vec<Value> = serde_saphyr::from_str(&text).expect("rows of YAML");
        found.extend(rows.into_iter().map(|mut row| {
            let mut object = row["object"].take();
            if row["status"].is_object() {
                object["status"] = row["status"].take();
            }
            object
        }));
    }
    found.retain(|object| object["kind"].is_string());
    found.sort_by_key(ToString::to_string);
    assert!(found.len() > 50, "{} objects", found.len());
    found
}

/// The schema of an object of a built-in kind.
fn schema(object: &Value) -> Option<&'static Arc<Schema>> {
    let GroupVersion { group, version } = GroupVersion::parse(object["apiVersion"].as_str()?)?;
    let kind = object["kind"].as_str()?.to_owned();
    freehold_apiserver_catalog::schema_of_kind(&GroupVersionKind { group, version, kind })
}

/// Fields, directives and values that objects and patches are made of.
const WORDS: &[&str] = &[
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$setElementOrder/ports",
    "$setElementOrder/finalizers",
    "$deleteFromPrimitiveList/finalizers",
    "delete",
    "replace",
    "merge",
    "metadata",
    "name",
    "namespace",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "managedFields",
    "creationTimestamp",
    "deletionTimestamp",
    "uid",
    "spec",
    "status",
    "containers",
    "initContainers",
    "containerStatuses",
    "ports",
    "containerPort",
    "protocol",
    "env",
    "value",
    "volumes",
    "template",
    "replicas",
    "conditions",
    "type",
    "key",
    "strategy",
    "rollingUpdate",
    "apiVersion",
    "kind",
    "v1",
    "2026-01-02T03:04:05Z",
    "100m",
    "1Gi",
    "50%",
];
