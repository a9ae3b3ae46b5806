//! Exported types: what an `APIResourceSchema` says, as the definition that it stands for.

use super::{compile, default, parts::text, set_status};
use crate::{
    PlaneId, ResourceType, Value,
    resource::{Conversion, ConversionWebhook},
    status::FieldError,
};
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
            "conversion": spec["conversion"],
        },
    });
    default(&mut crd);
    set_status(&mut crd, None, Timestamp::UNIX_EPOCH);
    crd
}

/// An export, as its types need it.
#[derive(Clone, Copy, Debug)]
pub struct Exporter<'a> {
    /// The provider's plane.
    pub home: &'a PlaneId,
    /// What objects are stored under beside their resource, so that no other type of that name reads them.
    pub identity: &'a str,
    /// The revision since which the export has the schema.
    pub since: u64,
}

/// The types that an export serves of a schema. A webhook for conversions is called on behalf of the provider's plane.
///
/// # Errors
/// What [`compile`] finds wrong with the schema.
pub fn exported(spec: &Value, by: Exporter<'_>) -> Result<Vec<Arc<ResourceType>>, Vec<FieldError>> {
    let Exporter { home, identity, since } = by;
    let types = compile(&definition_of(spec))?.into_iter();
    let marked = types.filter_map(Arc::into_inner).map(|mut ty| {
        ty.storage.resource = format!("{}:{identity}", ty.plural);
        if let Conversion::Webhook(webhook) = &ty.storage.conversion {
            let config = webhook.config.clone();
            let webhook = ConversionWebhook { config, home: Some(home.clone()) };
            ty.storage.conversion = Conversion::Webhook(Arc::new(webhook));
        }
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
        let home = PlaneId::core();
        let of =
            |identity| exported(&widgets(), Exporter { home: &home, identity, since: 7 }).unwrap().remove(0);
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
        assert!(exported(&spec, Exporter { home: &PlaneId::core(), identity: "a", since: 1 }).is_err());
    }

    #[test]
    fn a_webhook_for_conversions_is_called_on_behalf_of_the_provider() {
        let mut spec = widgets();
        let config =
            json!({"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://a.example"}});
        spec["conversion"] = json!({"strategy": "Webhook", "webhook": config});
        let home: PlaneId = "provider".parse().unwrap();
        let types = exported(&spec, Exporter { home: &home, identity: "a", since: 1 }).unwrap();
        let webhook = types[0].storage.conversion.of_provider().unwrap();
        assert_eq!((&webhook.config, &webhook.home), (&config, &Some(home)));
        let own = compile(&definition_of(&spec)).unwrap().remove(0);
        assert!(own.storage.conversion.of_provider().is_none(), "a definition's own is its plane's");
    }
}
