//! The schema of `ObjectMeta`, which every custom resource has without declaring it.

use super::{Kind, Schema, parse};
use std::sync::{Arc, LazyLock};

static OBJECT_META: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let json: crate::Value = serde_json::from_str(OBJECT_META_JSON).expect("the text below is JSON");
    parse::node(&json).expect("the text below is a schema")
});

/// The schema of `metav1.ObjectMeta`, with the list types and merge keys of Kubernetes' OpenAPI.
pub fn object_meta() -> Arc<Schema> {
    OBJECT_META.clone()
}

/// Adds what every object has to the schema of a custom or embedded resource: `apiVersion`, `kind` and `metadata`.
/// Checks that the schema has for `metadata.name` and `metadata.generateName` stay.
pub(super) fn complete(schema: &mut Schema) {
    let text = || Arc::new(Schema { kind: Some(Kind::String), ..Schema::default() });
    for field in ["apiVersion", "kind"] {
        schema.properties.entry(field.into()).or_insert_with(text);
    }
    let declared = schema.properties.remove("metadata");
    let mut meta = object_meta();
    for name in ["name", "generateName"] {
        if let Some(own) = declared.as_ref().and_then(|d| d.properties.get(name)) {
            Arc::make_mut(&mut meta).properties.insert(name.into(), own.clone());
        }
    }
    schema.properties.insert("metadata".into(), meta);
}

const OBJECT_META_JSON: &str = r#"{
  "type": "object", "x-freehold-go": "v1.ObjectMeta",
  "properties": {
    "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
    "creationTimestamp": {"type": "string", "format": "date-time"},
    "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
    "deletionTimestamp": {"type": "string", "format": "date-time"},
    "finalizers": {
      "type": "array", "items": {"type": "string"},
      "x-kubernetes-list-type": "set", "x-kubernetes-patch-strategy": "merge"
    },
    "generateName": {"type": "string"},
    "generation": {"type": "integer", "format": "int64"},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
    "managedFields": {
      "type": "array", "x-kubernetes-list-type": "atomic",
      "items": {
        "type": "object", "x-freehold-go": "v1.ManagedFieldsEntry",
        "properties": {
          "apiVersion": {"type": "string"},
          "fieldsType": {"type": "string"},
          "fieldsV1": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
          "manager": {"type": "string"},
          "operation": {"type": "string", "x-freehold-go": "v1.ManagedFieldsOperationType"},
          "subresource": {"type": "string"},
          "time": {"type": "string", "format": "date-time"}
        }
      }
    },
    "name": {"type": "string"},
    "namespace": {"type": "string"},
    "ownerReferences": {
      "type": "array",
      "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"],
      "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "uid",
      "items": {
        "type": "object", "x-kubernetes-map-type": "atomic", "x-freehold-go": "v1.OwnerReference",
        "properties": {
          "apiVersion": {"type": "string"},
          "blockOwnerDeletion": {"type": "boolean"},
          "controller": {"type": "boolean"},
          "kind": {"type": "string"},
          "name": {"type": "string"},
          "uid": {"type": "string", "x-freehold-go": "types.UID"}
        }
      }
    },
    "resourceVersion": {"type": "string"},
    "selfLink": {"type": "string"},
    "uid": {"type": "string", "x-freehold-go": "types.UID"}
  }
}"#;
