//! Writing OpenAPI 2.

use super::{
    crd,
    operations::{Operation, Path},
    parameters::Parameter,
    schemas::Schemas,
};
use crate::definitions::REF_PREFIX;
use freehold_machinery::{Map, Value};
use serde_json::json;
use std::collections::BTreeMap;

pub(super) fn document(paths: BTreeMap<String, Path>, mut schemas: Schemas, server_version: &str) -> Value {
    for name in &schemas.custom {
        schemas.map.get_mut(name).into_iter().for_each(crd::root_for_v2);
    }
    schemas.map.values_mut().for_each(adapt);
    let mut shared = Map::new();
    let mut out = Map::new();
    for (name, path) in paths {
        out.insert(name, self::path(path, &mut shared));
    }
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": out,
        "parameters": shared,
        "definitions": schemas.map.into_iter().collect::<Map>(),
        "securityDefinitions": {
            "BearerToken": {
                "type": "apiKey",
                "name": "authorization",
                "in": "header",
                "description": "Bearer Token authentication",
            },
        },
        "security": [{"BearerToken": []}],
    })
}

/// Rewrites a schema in place: version 2 has no defaults here, and states otherwise references and what may be of two
/// types.
fn adapt(schema: &mut Value) {
    let Some(map) = schema.as_object_mut() else { return };
    map.remove("default");
    if let Some(reference) = map.get("allOf").and_then(|all| all.pointer("/0/$ref")).cloned() {
        map.remove("allOf");
        map.insert("$ref".to_owned(), reference);
    }
    if let Some(Value::String(reference)) = map.get_mut("$ref")
        && let Some(name) = reference.strip_prefix(REF_PREFIX)
    {
        *reference = format!("#/definitions/{name}");
    }
    if map.get("oneOf").is_some_and(|one| one.pointer("/0/type").is_some()) {
        map.remove("oneOf");
        map.insert("type".to_owned(), "string".into());
    }
    crd::each_child(schema, &mut adapt);
}

/// A path. What many operations share goes to `shared`, and is referred to.
fn path(path: Path, shared: &mut Map) -> Value {
    let mut out = Map::new();
    if !path.parameters.is_empty() {
        let parameters = path.parameters.iter().map(|parameter| self::parameter(parameter, shared));
        out.insert("parameters".to_owned(), parameters.collect());
    }
    for (method, operation) in path.operations {
        out.insert(method.to_owned(), self::operation(operation, shared));
    }
    out.into()
}

fn parameter(parameter: &Parameter, shared: &mut Map) -> Value {
    let mut out = json!({
        "name": parameter.name(),
        "in": parameter.place,
        "description": parameter.description,
        "type": parameter.kind,
        "uniqueItems": true,
    });
    if parameter.place == "path" {
        out["required"] = true.into();
    }
    share(out, parameter.shared(), shared)
}

/// A parameter as it is, or a reference to where it is for all operations.
fn share(parameter: Value, name: Option<String>, shared: &mut Map) -> Value {
    let Some(name) = name else { return parameter };
    let reference = json!({"$ref": format!("#/parameters/{name}")});
    shared.entry(name).or_insert(parameter);
    reference
}

/// The names under which bodies are shared, by the ends of their definitions' names.
const BODIES: [(&str, &str); 2] =
    [("meta.v1.DeleteOptions", "body-2Y1dVQaQ"), ("meta.v1.Patch", "body-78PwaGsr")];

fn body(definition: &str, required: bool, shared: &mut Map) -> Value {
    let mut body = json!({"name": "body", "in": "body", "schema": reference(definition)});
    if required {
        body["required"] = true.into();
    }
    let name = BODIES.iter().find(|(end, _)| definition.ends_with(end)).map(|(_, name)| (*name).to_owned());
    share(body, name, shared)
}

fn reference(definition: &str) -> Value {
    json!({"$ref": format!("#/definitions/{definition}")})
}

fn operation(operation: Operation, shared: &mut Map) -> Value {
    let answer = operation.answer.as_deref().map_or_else(|| json!({"type": "string"}), reference);
    let answers = operation.codes.iter();
    let answers =
        answers.map(|(code, text)| ((*code).to_owned(), json!({"description": text, "schema": answer})));
    let mut responses: Map = answers.collect();
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    let body = operation.body.map(|(definition, required)| body(&definition, required, shared));
    let own = operation.parameters.iter().map(|parameter| self::parameter(parameter, shared));
    let parameters: Vec<Value> = body.into_iter().chain(own.collect::<Vec<_>>()).collect();
    let mut out = json!({
        "operationId": operation.id,
        "description": operation.description,
        "tags": [operation.tag],
        "produces": operation.produces,
        "schemes": ["https"],
        "responses": responses,
    });
    if !operation.consumes.is_empty() {
        out["consumes"] = json!(operation.consumes);
    }
    if !parameters.is_empty() {
        out["parameters"] = parameters.into();
    }
    if let Some(kind) = operation.kind {
        out["x-kubernetes-action"] = operation.action.into();
        out["x-kubernetes-group-version-kind"] =
            json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    }
    out
}
