//! CustomResourceDefinitions from the Rust types.
//!
//! schemars describes a type in JSON Schema; a CRD wants a structural schema: no references, no `null` among the
//! types, no `title`. [`structural`] is that step.

use crate::apis::{ApiBindingSpec, ApiExportSpec, ApiResourceSchemaSpec};
use crate::classes::ControlPlaneClassSpec;
use crate::iam;
use crate::identity::IdentityProviderSpec;
use crate::infrastructure::ProjectControlPlaneSpec;
use crate::object::{Definition, KindSpec, PrinterColumn};
use crate::quota::{
    AllowanceBucketSpec, ClaimCreationPolicySpec, GrantCreationPolicySpec, ResourceClaimSpec,
    ResourceGrantSpec, ResourceRegistrationSpec,
};
use crate::resourcemanager::{
    OrganizationMembershipSpec, OrganizationSpec, ProjectRestoreSpec, ProjectSnapshotSpec, ProjectSpec,
};
use crate::rollouts::ApiRolloutSpec;
use crate::workloads::WorkloadClusterSpec;
use freehold_machinery::{Map, Value};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::json;

/// The types of the core plane, as `apiextensions.k8s.io/v1` objects.
pub fn core_crds() -> Vec<Value> {
    vec![
        crd::<OrganizationSpec>(),
        crd::<ProjectSpec>(),
        crd::<OrganizationMembershipSpec>(),
        crd::<ControlPlaneClassSpec>(),
        crd::<ProjectSnapshotSpec>(),
        crd::<ProjectRestoreSpec>(),
        crd::<WorkloadClusterSpec>(),
        crd::<IdentityProviderSpec>(),
        crd::<ResourceRegistrationSpec>(),
        crd::<ResourceGrantSpec>(),
        crd::<AllowanceBucketSpec>(),
        crd::<ResourceClaimSpec>(),
        crd::<ClaimCreationPolicySpec>(),
        crd::<GrantCreationPolicySpec>(),
        crd::<iam::RoleSpec>(),
        crd::<iam::PolicyBindingSpec>(),
        crd::<iam::UserSpec>(),
        crd::<iam::GroupSpec>(),
        crd::<iam::GroupMembershipSpec>(),
        crd::<iam::UserInvitationSpec>(),
        crd::<iam::UserDeactivationSpec>(),
        crd::<iam::ServiceAccountSpec>(),
        crd::<iam::ServiceAccountKeySpec>(),
    ]
}

/// The types of the infra plane, as `apiextensions.k8s.io/v1` objects.
pub fn infra_crds() -> Vec<Value> {
    vec![crd::<ProjectControlPlaneSpec>()]
}

/// The types with which projects publish and consume APIs, as `apiextensions.k8s.io/v1` objects. The core plane and every
/// project serve them.
pub fn api_crds() -> Vec<Value> {
    vec![
        crd::<ApiResourceSchemaSpec>(),
        crd::<ApiExportSpec>(),
        crd::<ApiBindingSpec>(),
        crd::<ApiRolloutSpec>(),
    ]
}

/// The CustomResourceDefinition of a kind, as an `apiextensions.k8s.io/v1` object with a structural schema.
pub fn crd<S: KindSpec>() -> Value {
    let Definition { group, version, kind, plural, short_names, namespaced, description, columns } =
        S::DEFINITION;
    let singular = kind.to_lowercase();
    let mut printer: Vec<Value> = columns.iter().map(printer_column).collect();
    printer.push(json!({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}));
    let mut spec = structural::<S>();
    // A spec that needs nothing need not be given; what it defaults to is filled in below it.
    let required = if spec.get("required").is_some() { json!(["spec"]) } else { json!([]) };
    if spec.get("required").is_none() {
        spec["default"] = json!({});
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {
                "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular,
                "shortNames": short_names, "categories": ["freehold"],
            },
            "scope": if namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": printer,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "description": description,
                    "type": "object",
                    "required": required,
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "spec": spec,
                        "status": structural::<S::Status>(),
                    },
                }},
            }],
        },
    })
}

fn printer_column(column: &PrinterColumn) -> Value {
    let PrinterColumn { name, kind, json_path, priority } = *column;
    let mut value = json!({"name": name, "type": kind, "jsonPath": json_path});
    if priority != 0 {
        value["priority"] = priority.into();
    }
    value
}

fn structural<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|s| s.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    clean(&mut schema);
    schema
}

/// Makes a schema structural, from the root down.
fn clean(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    for absent in ["$schema", "title", "nullable", "components"] {
        map.remove(absent);
    }
    unit_variants_to_enum(map);
    if map.get("default").is_some_and(Value::is_null) {
        map.remove("default");
    }
    if map.get("type").is_some_and(|t| t == "array") {
        map.entry("x-kubernetes-list-type").or_insert("atomic".into());
    }
    if map.get("format").is_some_and(|f| f == "int64") {
        map.insert("type".into(), "integer".into());
    }
    conditions_by_type(map);
    for field in
        map.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Map::values_mut)
    {
        clean(field);
    }
    for below in ["items", "additionalProperties"] {
        if let Some(below) = map.get_mut(below) {
            clean(below);
        }
    }
}

/// `oneOf` of documented constants becomes one `enum`, which is what a structural schema may hold beside a type.
fn unit_variants_to_enum(map: &mut Map) {
    let constant = |v: &Value| v.get("const").or_else(|| v.get("enum")?.get(0)).cloned();
    let Some(values) = map.get("oneOf").and_then(Value::as_array) else { return };
    let Some(values) = values.iter().map(constant).collect::<Option<Vec<_>>>() else { return };
    map.remove("oneOf");
    map.insert("type".into(), "string".into());
    map.insert("enum".into(), values.into());
}

/// Conditions are a map by their type, so that several controllers can apply their own.
fn conditions_by_type(map: &mut Map) {
    let Some(conditions) = map.get_mut("properties").and_then(|p| p.get_mut("conditions")) else { return };
    conditions["x-kubernetes-list-type"] = "map".into();
    conditions["x-kubernetes-list-map-keys"] = json!(["type"]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Project;

    const ALLOWED: &[&str] = &[
        "type",
        "description",
        "properties",
        "required",
        "items",
        "enum",
        "default",
        "format",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "maxItems",
        "minItems",
        "maxProperties",
        "additionalProperties",
        "x-kubernetes-validations",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
    ];

    fn check_structural(path: &str, schema: &Value) {
        let map = schema.as_object().unwrap_or_else(|| panic!("{path}: {schema}"));
        assert!(map.contains_key("type"), "{path} has no type: {schema}");
        for key in map.keys() {
            assert!(ALLOWED.contains(&key.as_str()), "{path} has {key}: {schema}");
        }
        for (name, field) in map.get("properties").and_then(Value::as_object).into_iter().flatten() {
            check_structural(&format!("{path}.{name}"), field);
        }
        if let Some(items) = map.get("items") {
            check_structural(&format!("{path}[]"), items);
        }
    }

    fn schema_of(crd: &Value) -> &Value {
        &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    }

    #[test]
    fn every_schema_is_structural_and_typed_throughout() {
        for crd in core_crds().iter().chain(&infra_crds()).chain(&api_crds()) {
            check_structural(crd["metadata"]["name"].as_str().unwrap(), schema_of(crd));
        }
    }

    #[test]
    fn a_projects_schema_carries_defaults_bounds_and_rules() {
        let crds = core_crds();
        let spec = &schema_of(&crds[1])["properties"]["spec"]["properties"];
        assert_eq!(spec["controlPlane"]["default"], json!({"mode": "Shared", "class": "default"}));
        assert_eq!(spec["controlPlane"]["properties"]["mode"]["default"], "Shared");
        assert_eq!(spec["controlPlane"]["properties"]["mode"]["enum"], json!(["Shared", "Dedicated"]));
        assert_eq!(spec["ownerRef"]["required"], json!(["kind", "name"]));
        assert_eq!(spec["ownerRef"]["x-kubernetes-validations"][0]["rule"], "self == oldSelf");
        assert_eq!(schema_of(&crds[1])["properties"]["spec"]["required"], json!(["ownerRef"]));
    }

    #[test]
    fn a_spec_is_required_where_it_has_required_fields() {
        let crds = core_crds();
        assert_eq!(schema_of(&crds[0])["required"], json!([]));
        assert_eq!(schema_of(&crds[0])["properties"]["spec"]["default"], json!({}));
        assert_eq!(schema_of(&crds[1])["required"], json!(["spec"]));
        assert!(serde_json::from_value::<crate::Organization>(json!({"metadata": {"name": "acme"}})).is_ok());
    }

    #[test]
    fn printer_columns_end_with_the_age() {
        let crds = core_crds();
        let columns = crds[1]["spec"]["versions"][0]["additionalPrinterColumns"].as_array().unwrap();
        let names: Vec<&str> = columns.iter().filter_map(|c| c["name"].as_str()).collect();
        assert_eq!(names, ["Organization", "Mode", "Ready", "Reason", "URL", "Age"]);
    }

    #[test]
    fn a_project_without_a_control_plane_is_shared() {
        let given = json!({"metadata": {"name": "web"}, "spec": {"ownerRef": {"kind": "Organization", "name": "acme"}}});
        let project: Project = serde_json::from_value(given).unwrap();
        assert_eq!(project.spec.control_plane, crate::ControlPlaneSpec::default());
    }
}
