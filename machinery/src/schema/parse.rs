//! From OpenAPI v3 JSON to [`Schema`].
//!
//! Two dialects: [`parse`] reads the schema of a CRD, which is structural and has no references; [`Definitions`] reads
//! the schemas of built-in kinds, which refer to each other. In the latter an object without declared fields is free
//! (Kubernetes writes `RawExtension` so), and a definition that contains itself is cut off where it does.

use super::{Checks, GO, Kind, ListType, POINTERS, PatchStrategies, Rule, Schema, ZEROS, meta};
use crate::{Map, Value, status::FieldError};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write,
    sync::{Arc, LazyLock},
};

/// Levels of nesting that a schema may have.
const DEPTH: usize = 100;

/// Reads `openAPIV3Schema` of a CRD. `apiVersion`, `kind` and `metadata` are added at the root and in embedded
/// resources, as Kubernetes does.
///
/// # Errors
/// What has the wrong JSON type, is nested too deep, or is a reference is named, with paths relative to the schema.
/// Whether the schema is structural is checked by [`structural`](super::structural), not here.
pub fn parse(schema: &Value) -> Result<Arc<Schema>, Vec<FieldError>> {
    let mut root = node(schema)?;
    meta::complete(Arc::make_mut(&mut root));
    Ok(root)
}

/// Reads a part of a CRD's schema: [`parse`] without the additions at the root.
///
/// # Errors
/// See [`parse`].
pub fn node(schema: &Value) -> Result<Arc<Schema>, Vec<FieldError>> {
    Parser::default().finish(schema)
}

/// Schemas that refer to each other by name, compiled as they are asked for and shared.
#[derive(Debug, Default)]
pub struct Definitions {
    sources: BTreeMap<String, Value>,
    compiled: Mutex<HashMap<String, Arc<Schema>>>,
}

impl Definitions {
    /// Definitions by the names under which references know them (what follows the last `/` of a `$ref`).
    pub fn new(sources: BTreeMap<String, Value>) -> Self {
        Self { sources, compiled: Mutex::default() }
    }

    /// The schema of a definition.
    ///
    /// # Errors
    /// An unknown name, here or in a reference, and whatever [`parse`] refuses.
    pub fn get(&self, name: &str) -> Result<Arc<Schema>, Vec<FieldError>> {
        let mut parser = Parser { definitions: Some(self), ..Parser::default() };
        let schema = parser.definition(name);
        parser.result(schema)
    }

    /// The compiled form of a schema that refers to these definitions.
    ///
    /// # Errors
    /// See [`get`](Self::get).
    pub fn compile(&self, schema: &Value) -> Result<Arc<Schema>, Vec<FieldError>> {
        Parser { definitions: Some(self), ..Parser::default() }.finish(schema)
    }

    /// The names of all definitions.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.sources.keys().map(String::as_str)
    }
}

/// Schemas without anything but a type, shared by everyone.
static PLAIN: LazyLock<[Arc<Schema>; 3]> = LazyLock::new(|| {
    [Kind::String, Kind::Integer, Kind::Boolean]
        .map(|kind| Arc::new(Schema { kind: Some(kind), ..Schema::default() }))
});

fn zeros(map: &Map) -> Vec<(Box<str>, Value)> {
    let fields = map.get(ZEROS).and_then(Value::as_object);
    fields.into_iter().flatten().map(|(name, zero)| (name.as_str().into(), zero.clone())).collect()
}

fn share(schema: Schema) -> Arc<Schema> {
    PLAIN.iter().find(|p| ***p == schema).cloned().unwrap_or_else(|| Arc::new(schema))
}

#[derive(Default)]
struct Parser<'a> {
    definitions: Option<&'a Definitions>,
    /// Definitions that are being compiled, outermost first.
    open: Vec<String>,
    path: String,
    depth: usize,
    errors: Vec<FieldError>,
}

impl Parser<'_> {
    fn finish(mut self, schema: &Value) -> Result<Arc<Schema>, Vec<FieldError>> {
        let schema = self.node(schema);
        self.result(schema)
    }

    fn result(self, schema: Arc<Schema>) -> Result<Arc<Schema>, Vec<FieldError>> {
        if self.errors.is_empty() { Ok(schema) } else { Err(self.errors) }
    }

    fn refuse(&mut self, field: &str, value: &Value, detail: &str) {
        let dot = if self.path.is_empty() || field.is_empty() { "" } else { "." };
        let path = format!("{}{dot}{field}", self.path);
        self.errors.push(FieldError::invalid(path, value.clone(), detail));
    }

    fn below<T>(&mut self, step: std::fmt::Arguments<'_>, inner: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        let dot = if length == 0 { "" } else { "." };
        write!(self.path, "{dot}{step}").expect("writing to a string does not fail");
        let result = inner(self);
        self.path.truncate(length);
        result
    }

    fn definition(&mut self, name: &str) -> Arc<Schema> {
        let Some(definitions) = self.definitions else {
            self.refuse("$ref", &name.into(), "$ref is not supported");
            return anything();
        };
        if let Some(known) = definitions.compiled.lock().get(name) {
            return known.clone();
        }
        let Some(source) = definitions.sources.get(name) else {
            self.refuse("$ref", &name.into(), "names no definition");
            return anything();
        };
        if self.open.iter().any(|open| open == name) {
            return Arc::new(Schema {
                kind: Some(Kind::Object),
                preserve_unknown: true,
                ..Schema::default()
            });
        }
        self.open.push(name.to_owned());
        let mut schema = self.node(source);
        self.open.pop();
        let (rest, last) = name.rsplit_once('.').unwrap_or(("", name));
        let package = rest.rsplit('.').next().unwrap_or_default();
        Arc::make_mut(&mut schema).go = Some(format!("{package}.{last}").into());
        if name.ends_with(".resource.Quantity") {
            Arc::make_mut(&mut schema).format = Some("quantity".into());
        }
        definitions.compiled.lock().insert(name.to_owned(), schema.clone());
        schema
    }

    fn node(&mut self, value: &Value) -> Arc<Schema> {
        let map = match value {
            Value::Object(map) => map,
            Value::Bool(true) => return self.free(),
            other => {
                self.refuse("", other, "must be a schema object");
                return anything();
            }
        };
        if self.depth >= DEPTH {
            self.refuse("", &Value::Null, &format!("must not be nested more than {DEPTH} deep"));
            return anything();
        }
        self.depth += 1;
        let schema = self.referring(map).unwrap_or_else(|| share(self.own(map)));
        self.depth -= 1;
        schema
    }

    /// What `true` and an empty schema stand for: built-in kinds keep everything there, custom ones no fields.
    fn free(&self) -> Arc<Schema> {
        if self.definitions.is_some() { anything() } else { Arc::new(Schema::default()) }
    }

    /// A node that is a reference, bare or as `allOf: [{$ref}]`, with what stands beside it laid over.
    fn referring(&mut self, map: &Map) -> Option<Arc<Schema>> {
        let of = |map: &Map| map.get("$ref").and_then(Value::as_str).map(str::to_owned);
        let wrapped = || match map.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            Some([Value::Object(one)]) if self.definitions.is_some() && !map.contains_key("type") => of(one),
            _ => None,
        };
        let target = of(map).or_else(wrapped)?;
        let name = target.rsplit('/').next().unwrap_or_default();
        let mut base = self.definition(name);
        let mut beside = map.clone();
        for noise in ["$ref", "allOf", "description", "title", "example"] {
            beside.remove(noise);
        }
        if !beside.is_empty() {
            let over = self.own(&beside);
            let schema = Arc::make_mut(&mut base);
            schema.nullable |= over.nullable;
            schema.default = over.default.or(schema.default.take());
            schema.list_type = over.list_type.or(schema.list_type);
            schema.atomic_map |= over.atomic_map;
            schema.patch_strategies.merge |= over.patch_strategies.merge;
            schema.patch_strategies.retain_keys |= over.patch_strategies.retain_keys;
            schema.patch_merge_key = over.patch_merge_key.or(schema.patch_merge_key.take());
            schema.go = over.go.or(schema.go.take());
        }
        Some(base)
    }

    fn own(&mut self, map: &Map) -> Schema {
        let mut schema = Schema {
            int_or_string: flag(map, "x-kubernetes-int-or-string"),
            preserve_unknown: flag(map, "x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag(map, "x-kubernetes-embedded-resource"),
            nullable: flag(map, "nullable"),
            properties: self.properties(map),
            additional: self.additional(map),
            items: self.items(map),
            required: self.names(map, "required"),
            default: map.get("default").filter(|d| !d.is_null()).cloned(),
            format: self.text(map, "format").filter(|f| !f.is_empty()),
            checks: self.checks(map),
            list_type: self.list_type(map),
            list_map_keys: self.names(map, "x-kubernetes-list-map-keys"),
            atomic_map: map.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            patch_strategies: patch_strategies(map),
            patch_merge_key: self.text(map, "x-kubernetes-patch-merge-key"),
            rules: self.rules(map),
            go: self.text(map, GO),
            zeros: zeros(map),
            pointers: map.contains_key(POINTERS).then(|| self.names(map, POINTERS)),
            ..Schema::default()
        };
        self.kind(map, &mut schema);
        self.built_in_habits(map, &mut schema);
        if schema.embedded_resource && self.definitions.is_none() {
            meta::complete(&mut schema);
        }
        schema
    }

    fn kind(&mut self, map: &Map, schema: &mut Schema) {
        let given = match map.get("type") {
            None | Some(Value::Null) => return,
            Some(Value::Array(list)) => {
                schema.nullable |= list.iter().any(|t| t == "null");
                let rest: Vec<&Value> = list.iter().filter(|t| *t != "null").collect();
                if rest.len() == 2 && rest.iter().all(|t| *t == "integer" || *t == "string") {
                    schema.int_or_string = true;
                    return;
                }
                rest.first().copied().cloned().unwrap_or_default()
            }
            Some(one) => one.clone(),
        };
        schema.kind = given.as_str().and_then(kind_named);
        if schema.kind.is_none() && given != "" {
            self.refuse("type", &given, "must be a JSON type");
        }
        if schema.int_or_string {
            schema.kind = None;
        }
    }

    /// How the OpenAPI of built-in kinds says what CRDs say with extensions.
    fn built_in_habits(&self, map: &Map, schema: &mut Schema) {
        if self.definitions.is_none() {
            return;
        }
        let both = |key: &str| {
            let of = |t: &str| {
                map.get(key)
                    .and_then(Value::as_array)
                    .is_some_and(|l| l.iter().any(|s| s.get("type") == Some(&t.into())))
            };
            of("string") && (of("integer") || of("number"))
        };
        if schema.format.as_deref() == Some("int-or-string") || both("oneOf") || both("anyOf") {
            (schema.int_or_string, schema.kind, schema.checks) = (true, None, None);
        }
        let undeclared = schema.properties.is_empty() && schema.additional.is_none();
        let open =
            matches!(schema.kind, Some(Kind::Object)) || (schema.kind.is_none() && !schema.int_or_string);
        schema.preserve_unknown |= undeclared && open;
    }

    fn properties(&mut self, map: &Map) -> BTreeMap<Box<str>, Arc<Schema>> {
        let Some(fields) = self.object(map, "properties") else { return BTreeMap::new() };
        fields
            .iter()
            .map(|(name, field)| {
                let schema = self.below(format_args!("properties[{name}]"), |p| p.node(field));
                (name.as_str().into(), schema)
            })
            .collect()
    }

    fn additional(&mut self, map: &Map) -> Option<Arc<Schema>> {
        match map.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => None,
            Some(schema) => Some(self.below(format_args!("additionalProperties"), |p| p.node(schema))),
        }
    }

    fn items(&mut self, map: &Map) -> Option<Arc<Schema>> {
        match map.get("items") {
            None | Some(Value::Null) => None,
            Some(list @ Value::Array(_)) => {
                self.refuse("items", list, "items must be a schema object and not an array");
                None
            }
            Some(schema) => Some(self.below(format_args!("items"), |p| p.node(schema))),
        }
    }

    fn checks(&mut self, map: &Map) -> Option<Box<Checks>> {
        let checks = Checks {
            allowed: self.list(map, "enum").to_vec(),
            pattern: self.text(map, "pattern").filter(|p| !p.is_empty()),
            minimum: self.float(map, "minimum"),
            exclusive_minimum: flag(map, "exclusiveMinimum"),
            maximum: self.float(map, "maximum"),
            exclusive_maximum: flag(map, "exclusiveMaximum"),
            multiple_of: self.float(map, "multipleOf"),
            min_length: self.count(map, "minLength"),
            max_length: self.count(map, "maxLength"),
            min_items: self.count(map, "minItems"),
            max_items: self.count(map, "maxItems"),
            unique_items: flag(map, "uniqueItems"),
            min_properties: self.count(map, "minProperties"),
            max_properties: self.count(map, "maxProperties"),
            all_of: self.junctor(map, "allOf"),
            any_of: self.junctor(map, "anyOf"),
            one_of: self.junctor(map, "oneOf"),
            not: match map.get("not") {
                None | Some(Value::Null) => None,
                Some(schema) => Some(self.below(format_args!("not"), |p| p.node(schema))),
            },
        };
        (checks != Checks::default()).then(|| Box::new(checks))
    }

    fn junctor(&mut self, map: &Map, key: &str) -> Vec<Arc<Schema>> {
        let list = self.list(map, key).to_vec();
        list.iter().enumerate().map(|(i, s)| self.below(format_args!("{key}[{i}]"), |p| p.node(s))).collect()
    }

    fn list_type(&mut self, map: &Map) -> Option<ListType> {
        match map.get("x-kubernetes-list-type")?.as_str() {
            Some("atomic") => Some(ListType::Atomic),
            Some("set") => Some(ListType::Set),
            Some("map") => Some(ListType::Map),
            _ => {
                let given = map.get("x-kubernetes-list-type").cloned().unwrap_or_default();
                self.refuse("x-kubernetes-list-type", &given, "must be atomic, set or map");
                None
            }
        }
    }

    fn rules(&mut self, map: &Map) -> Vec<Rule> {
        let list = self.list(map, "x-kubernetes-validations").to_vec();
        list.iter()
            .filter_map(Value::as_object)
            .map(|rule| Rule {
                rule: self.text(rule, "rule").unwrap_or_default(),
                message: self.text(rule, "message").filter(|m| !m.is_empty()),
                message_expression: self.text(rule, "messageExpression").filter(|m| !m.is_empty()),
                reason: self.text(rule, "reason").filter(|m| !m.is_empty()),
                field_path: self.text(rule, "fieldPath").filter(|m| !m.is_empty()),
                optional_old_self: rule.get("optionalOldSelf").and_then(Value::as_bool),
            })
            .collect()
    }

    fn object<'m>(&mut self, map: &'m Map, key: &str) -> Option<&'m Map> {
        match map.get(key)? {
            Value::Object(map) => Some(map),
            Value::Null => None,
            other => {
                self.refuse(key, other, "must be an object");
                None
            }
        }
    }

    fn list<'m>(&mut self, map: &'m Map, key: &str) -> &'m [Value] {
        match map.get(key) {
            Some(Value::Array(list)) => list,
            None | Some(Value::Null) => &[],
            Some(other) => {
                self.refuse(key, other, "must be an array");
                &[]
            }
        }
    }

    fn names(&mut self, map: &Map, key: &str) -> Vec<Box<str>> {
        self.list(map, key).iter().filter_map(Value::as_str).map(Box::from).collect()
    }

    fn text(&mut self, map: &Map, key: &str) -> Option<Box<str>> {
        match map.get(key)? {
            Value::String(text) => Some(text.as_str().into()),
            Value::Null => None,
            other => {
                self.refuse(key, other, "must be a string");
                None
            }
        }
    }

    fn float(&mut self, map: &Map, key: &str) -> Option<f64> {
        match map.get(key)? {
            Value::Null => None,
            other => other.as_f64().or_else(|| {
                self.refuse(key, other, "must be a number");
                None
            }),
        }
    }

    fn count(&mut self, map: &Map, key: &str) -> Option<u64> {
        match map.get(key)? {
            Value::Null => None,
            Value::Number(n) if n.as_i64().is_some_and(|n| n < 0) => None,
            other => other.as_u64().or_else(|| {
                self.refuse(key, other, "must be an integer");
                None
            }),
        }
    }
}

fn anything() -> Arc<Schema> {
    static ANYTHING: LazyLock<Arc<Schema>> =
        LazyLock::new(|| Arc::new(Schema { preserve_unknown: true, ..Schema::default() }));
    ANYTHING.clone()
}

fn flag(map: &Map, key: &str) -> bool {
    map.get(key) == Some(&Value::Bool(true))
}

fn kind_named(name: &str) -> Option<Kind> {
    Some(match name {
        "object" => Kind::Object,
        "array" => Kind::Array,
        "string" => Kind::String,
        "integer" => Kind::Integer,
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        _ => return None,
    })
}

fn patch_strategies(map: &Map) -> PatchStrategies {
    let text = map.get("x-kubernetes-patch-strategy").and_then(Value::as_str).unwrap_or("");
    let has = |name: &str| text.split(',').any(|s| s.trim() == name);
    PatchStrategies { merge: has("merge"), retain_keys: has("retainKeys") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definitions() -> Definitions {
        let sources = json!({
            "Pod": {"type": "object", "properties": {
                "spec": {"$ref": "#/components/schemas/PodSpec", "description": "of the pod"},
                "wrapped": {"allOf": [{"$ref": "#/definitions/PodSpec"}], "default": {}, "description": "again"},
                "cpu": {"$ref": "#/$defs/io.k8s.apimachinery.pkg.api.resource.Quantity"},
                "raw": {"type": "object"},
                "port": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
                "maybe": {"type": ["string", "null"]},
            }},
            "PodSpec": {"type": "object", "properties": {"containers": {
                "type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "x-kubernetes-patch-strategy": "merge,retainKeys", "x-kubernetes-patch-merge-key": "name"}}},
            "Loop": {"type": "object", "properties": {"not": {"$ref": "#/components/schemas/Loop"}}},
            "Broken": {"$ref": "#/components/schemas/Nowhere"},
            "io.k8s.apimachinery.pkg.api.resource.Quantity": {"x-kubernetes-int-or-string": true},
        });
        let Value::Object(map) = sources else { unreachable!("an object stands above") };
        Definitions::new(map.into_iter().collect())
    }

    #[test]
    fn references_are_shared_and_what_stands_beside_them_counts() {
        let definitions = definitions();
        let pod = definitions.get("Pod").unwrap();
        let spec = definitions.get("PodSpec").unwrap();
        assert!(Arc::ptr_eq(&pod.properties["spec"], &spec));
        assert_eq!(pod.properties["wrapped"].default, Some(json!({})));
        assert_eq!(pod.properties["wrapped"].properties, spec.properties);
        let containers = &spec.properties["containers"];
        assert_eq!(containers.list_type, Some(ListType::Map));
        assert!(containers.patch_strategies.merge && containers.patch_strategies.retain_keys);
        assert!(pod.properties["raw"].preserve_unknown && pod.properties["port"].int_or_string);
        assert!(pod.properties["maybe"].nullable);
        let cpu = |value: Value| crate::schema::validate(&json!({ "cpu": value }), &pod, None).len();
        assert_eq!((cpu(json!("100m")), cpu(json!(0.5)), cpu(json!("1x")), cpu(json!(true))), (0, 0, 1, 1));
    }

    #[test]
    fn a_definition_within_itself_is_cut_off() {
        let outer = definitions().get("Loop").unwrap();
        assert!(!outer.preserve_unknown && outer.properties["not"].preserve_unknown);
    }

    #[test]
    fn a_reference_to_nothing_is_refused() {
        assert_eq!(definitions().get("Broken").unwrap_err().len(), 1);
        assert!(parse(&json!({"$ref": "#/components/schemas/Pod"})).is_err());
    }

    #[test]
    fn endless_nesting_is_refused() {
        let deep =
            (0..DEPTH).fold(json!({"type": "string"}), |inner, _| json!({"type": "array", "items": inner}));
        assert!(parse(&deep).is_err());
    }
}
