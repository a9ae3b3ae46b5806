//! The schemas that a document needs: its types', their lists', and all that these refer to.

use super::{crd, names, operations::Path};
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

/// Kinds of meta/v1 that documents say to be kinds; the others are parts.
const KINDS: [&str; 8] = [
    "APIGroup",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "DeleteOptions",
    "Patch",
    "Status",
    "WatchEvent",
];
/// Kinds of meta/v1 that each group and version knows as its own.
const EVERYWHERE: [&str; 2] = ["DeleteOptions", "WatchEvent"];
const GVK: &str = "x-kubernetes-group-version-kind";
/// Where the build put what documents say of a type, and of lists of it.
const DOCUMENTS: &str = "x-freehold-documents";
const LIST: &str = "x-freehold-list";
/// What documents say to be required, among what they say of a type, where that is not what the server wants.
const REQUIRED: &str = "!required";

/// Schemas by the names of their definitions, in the form of OpenAPI 3. References are whole.
pub(super) struct Schemas {
    pub(super) map: BTreeMap<String, Value>,
    /// Those that come from CRDs.
    pub(super) custom: Vec<String>,
}

impl Schemas {
    /// The schemas for a document of `types` and `paths`. `everywhere` are the groups and versions whose own some kinds
    /// of meta/v1 are said to be.
    pub(super) fn of(
        types: &[Arc<ResourceType>],
        paths: &BTreeMap<String, Path>,
        everywhere: &[(String, String)],
        definitions: &Definitions,
    ) -> Self {
        let index = definitions.index();
        let mut schemas = Self { map: BTreeMap::new(), custom: Vec::new() };
        for ty in types {
            schemas.add_type(ty, &index);
        }
        for operation in paths.values().flat_map(|path| path.operations.values()) {
            for name in operation.answer.iter().chain(operation.body.iter().map(|(name, _)| name)) {
                schemas.add(name, &index);
            }
        }
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
            self.add(&format!("{}ObjectMeta", names::META), index);
        }
        if ty.verbs.contains(&"list") {
            let said = index.get(name.as_str()).and_then(|text| parse(text).get_mut(LIST).map(Value::take));
            let mut list = list(ty, &name, said.as_ref());
            if ty.custom && !ty.selectable_fields.is_empty() {
                list[crd::SELECTABLE] = crd::selectable(ty);
            }
            self.map.insert(names::list_definition(ty), list);
            self.add(&format!("{}ListMeta", names::META), index);
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
pub(super) fn group_versions(set: &TypeSet) -> Vec<(String, String)> {
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
    let said = schema.get_mut(DOCUMENTS).map(Value::take);
    let fields = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (field, property) in fields.into_iter().flatten() {
        say(property, said.as_ref().and_then(|said| said.get(field)));
    }
    if let Some(required) = said.as_ref().and_then(|said| said.get(REQUIRED)) {
        schema["required"] = required.clone();
    }
    if let Some(map) = schema.as_object_mut() {
        map.retain(|key, value| key != "required" || value != &json!([]));
        map.retain(|key, _| {
            ![DOCUMENTS, LIST, "x-kubernetes-preserve-unknown-fields"].contains(&key.as_str())
        });
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
        return KINDS.contains(&kind).then_some(("", "v1", kind));
    }
    let (package, kind) = name.rsplit_once('.')?;
    let (package, version) = package.rsplit_once('.')?;
    let (group, _) = PACKAGES.iter().find(|(_, known)| *known == package).filter(|_| has("metadata"))?;
    Some((group, version, kind))
}

/// Says of a field what documents do: its default, the values that it may have, what each of them means. The defaults
/// of which only the server knows are left out.
fn say(schema: &mut Value, said: Option<&Value>) {
    let Some(map) = schema.as_object_mut() else { return };
    let of = |key: &str| said.and_then(|said| said.get(key));
    map.remove("default");
    if let Some(default) = of("default") {
        if let Some(reference) = map.remove("$ref") {
            map.insert("allOf".to_owned(), json!([{"$ref": reference}]));
        }
        map.insert("default".to_owned(), default.clone());
    }
    if let Some(values) = of("enum") {
        map.insert("enum".to_owned(), values.clone());
    }
    if let (Some(more), Some(Value::String(text))) =
        (of("values").and_then(Value::as_str), map.get_mut("description"))
    {
        text.push_str(more);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(child) = map.get_mut(key) {
            say(child, of(key));
        }
    }
}

const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";

/// The definition of a list of a type, with what documents say of lists of a built-in one.
fn list(ty: &ResourceType, item: &str, said: Option<&Value>) -> Value {
    let described = |field: &str, otherwise: String| {
        let text = said.and_then(|said| said.pointer(field)).and_then(Value::as_str);
        text.map_or(otherwise, str::to_owned)
    };
    let mut items = json!({"$ref": format!("{REF_PREFIX}{item}")});
    let mut metadata = json!({
        "description": described(
            "/metadata/description",
            format!("Standard list metadata. More info: {CONVENTIONS}#types-kinds"),
        ),
        "allOf": [{"$ref": format!("{REF_PREFIX}{}ListMeta", names::META)}],
    });
    if !ty.custom {
        items = json!({"allOf": [items], "default": {}});
        metadata["default"] = json!({});
    }
    json!({
        "description": described("/.", format!("{} is a list of {}", ty.list_kind, ty.kind)),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": crd::API_VERSION},
            "kind": {"type": "string", "description": crd::KIND},
            "items": {
                "type": "array",
                "description": described(
                    "/items/description",
                    format!("List of {}. More info: {CONVENTIONS}", ty.plural),
                ),
                "items": items,
            },
            "metadata": metadata,
        },
        GVK: [gvk(&ty.group, &ty.version, &ty.list_kind)],
    })
}
