//! What clients see of Kubernetes' Go structs: the types that messages about wrong JSON name, and the structs that messages
//! of validation print. `tools/kubernetes/structs` makes the table.

use crate::definition_name;
use freehold_machinery::{GroupVersionKind, Map, Value, go::Structs};
use serde::Deserialize;
use std::{collections::BTreeMap, sync::LazyLock};

static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/structs.zst"));

/// Unpacked when a message needs it first, and kept.
static STRUCTS: LazyLock<Structs> = LazyLock::new(|| Structs::read(&unpack()).expect("a test reads it"));

fn unpack() -> String {
    let bytes = zstd::decode_all(PACKED).expect("the build packed it");
    String::from_utf8(bytes).expect("the build packed text")
}

/// Types of fields that their schemas don't tell, by definition and field.
pub(crate) fn field_types() -> BTreeMap<String, Map> {
    #[derive(Deserialize)]
    struct Types {
        types: BTreeMap<String, Map>,
    }
    serde_json::from_str::<Types>(&unpack()).expect("a test reads it").types
}

fn name(gvk: &GroupVersionKind) -> Option<String> {
    let name = definition_name(gvk)?;
    Some(name.strip_prefix("io.k8s.api.").map_or(name.clone(), str::to_owned))
}

/// A part of an object of a built-in kind as messages show it. `None` where no struct is known at that field.
pub fn shown(gvk: &GroupVersionKind, field: &str, value: &Value) -> Option<String> {
    STRUCTS.show(&name(gvk)?, field, value)
}

/// What an update changes in a field of a built-in kind, as messages show it: a unified diff.
pub fn difference(gvk: &GroupVersionKind, field: &str, old: &Value, new: &Value) -> Option<String> {
    STRUCTS.diff(&name(gvk)?, field, old, new)
}

/// The struct of a built-in kind inside of kube-apiserver (`core.ConfigMap`).
pub fn internal_name(gvk: &GroupVersionKind) -> Option<&'static str> {
    // Versions of one kind have structs of their own in the table.
    STRUCTS.root(&name(gvk)?).map(|name| name.split('@').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gvk(group: &str, kind: &str) -> GroupVersionKind {
        GroupVersionKind { group: group.into(), version: "v1".into(), kind: kind.into() }
    }

    #[test]
    fn parts_of_built_in_kinds_are_shown_as_their_structs() {
        let role = json!({"apiGroup": "g", "kind": "Role", "name": "r"});
        assert_eq!(
            shown(&gvk("rbac.authorization.k8s.io", "RoleBinding"), "roleRef", &role).unwrap(),
            r#"{"APIGroup":"g","Kind":"Role","Name":"r"}"#
        );
        let strategy = json!({"type": "Sideways"});
        assert_eq!(
            shown(&gvk("apps", "Deployment"), "spec.strategy", &strategy).unwrap(),
            r#"{"Type":"Sideways","RollingUpdate":null}"#
        );
        assert_eq!(internal_name(&gvk("", "ConfigMap")), Some("core.ConfigMap"));
    }

    #[test]
    fn values_that_do_not_fit_are_told_with_the_types_of_kubernetes() {
        let mismatch = |kind: &str, value: Value| {
            let schema = crate::schema_of_kind(&gvk("", kind)).unwrap();
            freehold_machinery::go::mismatch(&value, schema).unwrap()
        };
        let rows = [
            (
                "ConfigMap",
                json!({"data": 3}),
                "number into Go struct field ConfigMap.data of type map[string]string",
            ),
            (
                "ConfigMap",
                json!({"metadata": {"name": 3}}),
                "number into Go struct field ObjectMeta.metadata.name of type string",
            ),
            (
                "Service",
                json!({"spec": {"type": 5}}),
                "number into Go struct field ServiceSpec.spec.type of type v1.ServiceType",
            ),
            (
                "Service",
                json!({"spec": {"ports": {}}}),
                "object into Go struct field ServiceSpec.spec.ports of type []v1.ServicePort",
            ),
            (
                "Pod",
                json!({"spec": {"containers": [{"resources": {"limits": "x"}}]}}),
                "string into Go struct field ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList",
            ),
        ];
        for (kind, value, expected) in rows {
            assert_eq!(mismatch(kind, value), format!("json: cannot unmarshal {expected}"));
        }
        assert_eq!(
            mismatch("ConfigMap", json!({"binaryData": {"a": "%%"}})),
            "illegal base64 data at input byte 0"
        );
    }
}
