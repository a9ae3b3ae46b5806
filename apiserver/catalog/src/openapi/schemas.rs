//! The schemas that a document needs: its types', their lists', and all that these refer to.

use super::{crd, names};
use crate::{
    builtin::PACKAGES,
    definitions::{Definitions, REF_PREFIX, parse},
    set::TypeSet,
};
use freehold_machinery::{ResourceType, Value, resource::Documentation};
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// What each document has, whatever its types: the kinds of requests and answers.
const COMMON: [&str; 4] = ["DeleteOptions", "Patch", "Status", "WatchEvent"];
/// Kinds of meta/v1 that each group and version knows as its own.
const EVERYWHERE: [&str; 2] = ["DeleteOptions", "WatchEvent"];
const GVK: &str = "x-kubernetes-group-version-kind";

/// Schemas by the names of their definitions, in the form of OpenAPI 3. References are whole.
pub(super) struct Schemas {
    pub(super) map: BTreeMap<String, Value>,
    /// Those that come from CRDs.
    pub(super) custom: Vec<String>,
}

impl Schemas {
    /// The schemas for documents about `types` of a set.
    pub(super) fn of(set: &TypeSet, types: &[Arc<ResourceType>], definitions: &Definitions) -> Self {
        let index = definitions.index();
        let mut schemas = Self { map: BTreeMap::new(), custom: Vec::new() };
        for name in COMMON.iter().chain(&["ListMeta", "ObjectMeta"]) {
            schemas.add(&format!("{}{name}", names::META), &index);
        }
        for ty in types {
            schemas.add_type(ty, &index);
        }
        let everywhere = group_versions(set);
        for name in EVERYWHERE {
            let gvks: Vec<_> = everywhere.iter().map(|(g, v)| gvk(g, v, name)).collect();
            if let Some(schema) = schemas.map.get_mut(&format!("{}{name}", names::META)) {
                schema[GVK] = gvks.into();
            }
        }
        schemas
    }

    fn add_type(&mut self, ty: &ResourceType, index: &HashMap<&str, &str>) {
        let name = names::definition(ty);
        if let Documentation::BuiltIn(name) = &ty.openapi {
            self.add(name, index);
        } else {
            let mut schema = crd::published(ty);
            schema[GVK] = json!([gvk(&ty.group, &ty.version, &ty.kind)]);
            self.map.insert(name.clone(), schema);
            self.custom.push(name.clone());
        }
        for sub in &ty.subresources {
            self.add(&names::kind_definition(ty, &sub.kind), index);
        }
        if ty.verbs.contains(&"list") {
            self.map.insert(names::list_definition(ty), list(ty, &name));
        }
    }

    /// Adds a built-in definition and all that it refers to.
    fn add(&mut self, name: &str, index: &HashMap<&str, &str>) {
        let mut wanted = vec![name.to_owned()];
        while let Some(name) = wanted.pop() {
            let Some(text) = index.get(name.as_str()).filter(|_| !self.map.contains_key(&name)) else {
                continue;
            };
            let schema = published(&name, parse(text));
            references(&schema, &mut wanted);
            self.map.insert(name, schema);
        }
    }
}

/// Groups and versions that are served, in the order of their names.
fn group_versions(set: &TypeSet) -> Vec<(String, String)> {
    let mut all: Vec<_> = set
        .groups()
        .iter()
        .flat_map(|group| group.versions.iter().map(|served| (group.name.clone(), served.version.clone())))
        .collect();
    all.sort();
    all
}

fn gvk(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

/// Definitions that a schema refers to.
fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(map) => {
            let name = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(REF_PREFIX));
            found.extend(name.map(str::to_owned));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// A built-in definition as Kubernetes publishes it: without what only our own compiler reads, and with its kind.
fn published(name: &str, mut schema: Value) -> Value {
    if let Some(map) = schema.as_object_mut() {
        map.remove("x-kubernetes-preserve-unknown-fields");
        if map.remove("x-kubernetes-int-or-string").is_some() {
            let quantity = map.remove("format").is_some();
            let (first, second) = if quantity { ("string", "number") } else { ("integer", "string") };
            map.insert("oneOf".to_owned(), json!([{"type": first}, {"type": second}]));
            if !quantity {
                map.insert("format".to_owned(), "int-or-string".into());
            }
        }
    }
    if let Some((group, version, kind)) = kind_of(name, &schema) {
        schema[GVK] = json!([gvk(group, version, kind)]);
    }
    schema
}

/// The kind that a definition is of; most are parts of one.
fn kind_of<'a>(name: &'a str, schema: &Value) -> Option<(&'static str, &'a str, &'a str)> {
    let has = |field: &str| schema.pointer("/properties").is_some_and(|p| p.get(field).is_some());
    if !has("kind") || !has("apiVersion") {
        return None;
    }
    if let Some(kind) = name.strip_prefix(names::META) {
        return COMMON.contains(&kind).then_some(("", "v1", kind));
    }
    let (package, kind) = name.rsplit_once('.')?;
    let (package, version) = package.rsplit_once('.')?;
    let (group, _) = PACKAGES.iter().find(|(_, known)| *known == package).filter(|_| has("metadata"))?;
    Some((group, version, kind))
}

/// The definition of a list of a type.
fn list(ty: &ResourceType, item: &str) -> Value {
    json!({
        "description": format!("{} is a list of {}", ty.list_kind, ty.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": crd::API_VERSION},
            "kind": {"type": "string", "description": crd::KIND},
            "items": {
                "type": "array",
                "description": format!("List of {}.", ty.plural),
                "items": {"$ref": format!("{REF_PREFIX}{item}")},
            },
            "metadata": {
                "description": "Standard list metadata.",
                "allOf": [{"$ref": format!("{REF_PREFIX}{}ListMeta", names::META)}],
            },
        },
        GVK: [gvk(&ty.group, &ty.version, &ty.list_kind)],
    })
}
