//! Exported types: what an `APIResourceSchema` says, as the definition that it stands for.

use super::{compile, default, parts::text, set_status};
use crate::{ResourceType, Value, status::FieldError};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;

/// The CustomResourceDefinition that the spec of an `APIResourceSchema` stands for, established.
pub fn definition_of(spec: &Value) -> Value {
    let name = format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group"));
    let mut crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {
            "group": spec["group"], "names": spec["names"], "scope": spec["scope"], "versions": spec["versions"],
        },
    });
    default(&mut crd);
    set_status(&mut crd, None, Timestamp::UNIX_EPOCH);
    crd
}

/// The types that an export serves of a schema since a revision. Objects are stored under the resource and `identity`, so
/// that no other type of that name reads them.
///
/// # Errors
/// What [`compile`] finds wrong with the schema.
pub fn exported(spec: &Value, identity: &str, since: u64) -> Result<Vec<Arc<ResourceType>>, Vec<FieldError>> {
    let types = compile(&definition_of(spec))?.into_iter();
    let marked = types.filter_map(Arc::into_inner).map(|mut ty| {
        ty.storage.resource = format!("{}:{identity}", ty.plural);
        ty.hash = format!("{}:{identity}:{since}", ty.hash);
        ty.since = since;
        Arc::new(ty)
    });
    Ok(marked.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn widgets() -> Value {
        json!({
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
            }}}],
        })
    }

    #[test]
    fn types_of_two_exports_are_stored_apart() {
        let of = |identity: &str| exported(&widgets(), identity, 7).unwrap().remove(0);
        let (a, b) = (of("a"), of("b"));
        assert_eq!((&*a.group, &*a.plural, &*a.version), ("example.com", "widgets", "v1"));
        assert_eq!(a.storage.resource, "widgets:a");
        assert_eq!((&*a.list_kind, &*a.singular, a.since), ("WidgetList", "widget", 7));
        assert_ne!((&a.storage, &a.hash), (&b.storage, &b.hash));
        assert_eq!(definition_of(&widgets())["metadata"]["name"], "widgets.example.com");
    }

    #[test]
    fn a_schema_that_is_none_is_refused() {
        let mut spec = widgets();
        spec["versions"][0]["schema"]["openAPIV3Schema"]["type"] = "nonsense".into();
        assert!(exported(&spec, "a", 1).is_err());
    }
}
