//! Discovery documents of a server, validated piece by piece.

use freehold_machinery::{Map, Value};
use serde_json::json;

/// Bytes of a discovery document.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Resources of one version.
const MAX_RESOURCES: usize = 1_000;
/// What is asked for: all of it in one document (KEP-3352), as version 2 or its predecessor.
pub(crate) const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
    application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// The resources of a group and version in an `APIGroupDiscoveryList`; none where the server does not list it. `None` for
/// another document.
pub(crate) fn aggregated(document: &Value, group: &str, version: &str) -> Option<Vec<Value>> {
    if document["kind"] != "APIGroupDiscoveryList" {
        return None;
    }
    let named = |item: &&Value| item["metadata"]["name"].as_str().unwrap_or_default() == group;
    let items = document["items"].as_array()?.iter().filter(named);
    let versions = items.filter_map(|item| item["versions"].as_array()).flatten();
    let found =
        versions.filter(|v| v["version"] == version).filter_map(|v| v["resources"].as_array()).flatten();
    Some(found.take(MAX_RESOURCES).filter_map(resource_of).collect())
}

/// The resources of an `APIResourceList`, as aggregated discovery has them.
pub(crate) fn legacy(document: &Value, group: &str, version: &str) -> Option<Vec<Value>> {
    let listed = document["resources"].as_array()?.iter().take(MAX_RESOURCES);
    let kind = |resource: &Value| {
        let or = |field: &str, own: &str| resource[field].as_str().unwrap_or(own).to_owned();
        json!({"group": or("group", group), "version": or("version", version), "kind": or("kind", "")})
    };
    let mut resources: Vec<Value> = Vec::new();
    for item in listed {
        let name = item["name"].as_str().unwrap_or_default();
        match name.split_once('/') {
            None => resources.extend(resource_of(&json!({
                "resource": name,
                "responseKind": kind(item),
                "scope": if item["namespaced"] == true { "Namespaced" } else { "Cluster" },
                "singularResource": item["singularName"],
                "verbs": item["verbs"],
                "shortNames": item["shortNames"],
                "categories": item["categories"],
            }))),
            Some((parent, subresource)) => {
                let parent = resources.iter_mut().find(|r| r["resource"] == parent);
                let sub =
                    json!({"subresource": subresource, "responseKind": kind(item), "verbs": item["verbs"]});
                if let (Some(parent), Some(sub)) = (parent, subresource_of(&sub)) {
                    match parent["subresources"].as_array_mut() {
                        Some(subresources) => subresources.push(sub),
                        None => parent["subresources"] = json!([sub]),
                    }
                }
            }
        }
    }
    Some(resources)
}

/// A name that can stand in a URL.
fn name(value: &Value) -> Option<&str> {
    value
        .as_str()
        .filter(|name| !name.is_empty() && name.len() <= 253 && !name.contains(['/', '%', '?', '#']))
}

fn texts(value: &Value) -> Vec<&str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .filter(|t| t.len() <= 253)
        .take(100)
        .collect()
}

fn kind(value: &Value) -> Value {
    let text = |field: &str| value[field].as_str().filter(|t| t.len() <= 253).unwrap_or_default();
    json!({"group": text("group"), "version": text("version"), "kind": text("kind")})
}

fn resource_of(given: &Value) -> Option<Value> {
    let scope = if given["scope"] == "Namespaced" { "Namespaced" } else { "Cluster" };
    let mut resource = Map::new();
    resource.insert("resource".into(), name(&given["resource"])?.into());
    resource.insert("responseKind".into(), kind(&given["responseKind"]));
    resource.insert("scope".into(), scope.into());
    resource.insert("singularResource".into(), name(&given["singularResource"]).unwrap_or_default().into());
    resource.insert("verbs".into(), texts(&given["verbs"]).into());
    for field in ["shortNames", "categories"] {
        let names = texts(&given[field]);
        if !names.is_empty() {
            resource.insert(field.into(), names.into());
        }
    }
    let subresources = given["subresources"].as_array().into_iter().flatten().take(100);
    let subresources: Vec<Value> = subresources.filter_map(subresource_of).collect();
    if !subresources.is_empty() {
        resource.insert("subresources".into(), subresources.into());
    }
    Some(resource.into())
}

fn subresource_of(given: &Value) -> Option<Value> {
    let verbs = texts(&given["verbs"]);
    Some(
        json!({"subresource": name(&given["subresource"])?, "responseKind": kind(&given["responseKind"]), "verbs": verbs}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_discovery_say_the_same() {
        let new = json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {"name": "other"}, "versions": [{"version": "v1", "resources": [{"resource": "x"}]}]},
            {"metadata": {"name": "g.io"}, "versions": [{"version": "v1", "resources": [{
                "resource": "flunders", "scope": "Namespaced", "singularResource": "flunder",
                "responseKind": {"group": "g.io", "version": "v1", "kind": "Flunder"}, "verbs": ["get"],
                "subresources": [{"subresource": "status", "responseKind": {"group": "g.io", "version": "v1", "kind": "Flunder"}, "verbs": ["get"]}],
            }]}]},
        ]});
        let old = json!({"kind": "APIResourceList", "resources": [
            {"name": "flunders", "singularName": "flunder", "namespaced": true, "kind": "Flunder", "verbs": ["get"]},
            {"name": "flunders/status", "namespaced": true, "kind": "Flunder", "verbs": ["get"]},
        ]});
        let found = aggregated(&new, "g.io", "v1").unwrap();
        assert_eq!(found, legacy(&old, "g.io", "v1").unwrap());
        assert_eq!(found.len(), 1);
        assert_eq!(aggregated(&new, "g.io", "v2"), Some(vec![]));
        assert_eq!(aggregated(&old, "g.io", "v1"), None);
    }

    #[test]
    fn lies_are_left_out() {
        let resources: Vec<Value> =
            (0..5000).map(|n| json!({"resource": format!("r{n}"), "verbs": "all"})).collect();
        let mut document = json!({"kind": "APIGroupDiscoveryList",
            "items": [{"metadata": {"name": "g"}, "versions": [{"version": "v1", "resources": resources}]}]});
        assert_eq!(aggregated(&document, "g", "v1").unwrap().len(), MAX_RESOURCES);
        document["items"][0]["versions"][0]["resources"] =
            json!([7, {"resource": "../../x"}, {"resource": 3}, null]);
        assert_eq!(aggregated(&document, "g", "v1"), Some(vec![]));
        assert_eq!(
            legacy(&json!({"resources": [{"name": "a/b"}, {"name": ["x"]}]}), "g", "v1"),
            Some(vec![])
        );
    }
}
