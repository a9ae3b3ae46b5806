//! Discovery documents as JSON with their fields in the order of Kubernetes' Go types.
//!
//! Programs that search the text for a row (`"name":"pods","singularName":...`), as Kubernetes' own `test/cmd` does, depend on
//! the order, which JSON itself leaves open.

use freehold_machinery::{Map, Value};
use serde::{Serialize, Serializer, ser::SerializeMap};

/// Fields of the documents themselves, which come first.
const DOCUMENT: [&str; 2] = ["kind", "apiVersion"];

/// Fields in the order of `APIResourceList`, `APIGroupList`, `APIVersions` (`meta/v1`) and `APIGroupDiscoveryList`
/// (`apidiscovery/v2`), and of all types below them.
const FIELDS: [&str; 25] = [
    "metadata",
    "name",
    "groupVersion",
    "resource",
    "subresource",
    "responseKind",
    "scope",
    "singularResource",
    "singularName",
    "namespaced",
    "group",
    "version",
    "kind",
    "verbs",
    "shortNames",
    "categories",
    "subresources",
    "storageVersionHash",
    "resources",
    "freshness",
    "versions",
    "preferredVersion",
    "serverAddressByClientCIDRs",
    "groups",
    "items",
];

/// A discovery document that serializes its fields in the order of Kubernetes' Go types; others follow by name.
#[derive(Debug)]
pub struct Ordered<'a>(pub &'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Part { value: self.0, first: &DOCUMENT }.serialize(serializer)
    }
}

/// A value within a document, and the fields that come before [`FIELDS`] in it.
struct Part<'a> {
    value: &'a Value,
    first: &'static [&'static str],
}

fn fields<'a>(map: &'a Map, first: &'static [&'static str]) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let known = move |name: &str| first.iter().chain(FIELDS.iter()).any(|field| *field == name);
    let rest = FIELDS.iter().filter(|field| !first.contains(field));
    let ordered = first.iter().chain(rest).filter_map(|field| map.get_key_value(*field));
    ordered.chain(map.iter().filter(move |(name, _)| !known(name)))
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.value {
            Value::Object(map) => {
                let mut out = serializer.serialize_map(Some(map.len()))?;
                for (name, value) in fields(map, self.first) {
                    out.serialize_entry(name, &Part { value, first: &[] })?;
                }
                out.end()
            }
            Value::Array(list) => serializer.collect_seq(list.iter().map(|value| Part { value, first: &[] })),
            other => other.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_have_the_order_of_go_types_and_unknown_ones_follow() {
        let document = json!({"resources": [{"verbs": ["get"], "kind": "Pod", "zone": 1, "name": "pods", "namespaced": true,
            "singularName": "pod"}], "groupVersion": "v1", "kind": "APIResourceList"});
        let text = serde_json::to_string(&Ordered(&document)).unwrap();
        let expected = r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get"],"zone":1}]}"#;
        assert_eq!(text, expected);
    }
}
