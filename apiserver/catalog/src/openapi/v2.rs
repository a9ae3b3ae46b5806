//! Writing OpenAPI 2.

use super::{
    crd,
    operations::{self, Operation, Parameter, Path},
    schemas::Schemas,
};
use crate::definitions::REF_PREFIX;
use freehold_machinery::{Map, ResourceType, Value};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};

pub(super) fn document(types: &[Arc<ResourceType>], mut schemas: Schemas, server_version: &str) -> Value {
    for name in &schemas.custom {
        schemas.map.get_mut(name).into_iter().for_each(crd::root_for_v2);
    }
    schemas.map.values_mut().for_each(adapt);
    let mut paths = BTreeMap::new();
    types.iter().for_each(|ty| operations::paths(ty, &mut paths));
    let paths: Map = paths.into_iter().map(|(name, path)| (name, self::path(path))).collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": paths,
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

/// Rewrites a schema in place: references and what may be of two types are stated otherwise in version 2.
fn adapt(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
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
            map.values_mut().for_each(adapt);
        }
        Value::Array(items) => items.iter_mut().for_each(adapt),
        _ => {}
    }
}

fn path(path: Path) -> Value {
    let mut out = Map::new();
    out.insert("parameters".to_owned(), path.parameters.into_iter().map(parameter).collect());
    out.extend(path.operations.into_iter().map(|(method, op)| (method.to_owned(), operation(op))));
    out.into()
}

fn parameter(parameter: &Parameter) -> Value {
    let mut out = json!({
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "type": parameter.kind,
        "uniqueItems": true,
    });
    if parameter.place == "path" {
        out["required"] = true.into();
    }
    out
}

fn reference(definition: &str) -> Value {
    json!({"$ref": format!("#/definitions/{definition}")})
}

fn operation(operation: Operation) -> Value {
    let answer = operation.answer.as_deref().map_or_else(|| json!({"type": "string"}), reference);
    let answers = operation.codes.iter();
    let answers =
        answers.map(|(code, text)| ((*code).to_owned(), json!({"description": text, "schema": answer})));
    let mut responses: Map = answers.collect();
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    let mut parameters: Vec<_> = operation.parameters.into_iter().map(parameter).collect();
    if let Some((definition, required)) = operation.body {
        let mut body = json!({"name": "body", "in": "body", "schema": reference(&definition)});
        if required {
            body["required"] = true.into();
        }
        parameters.insert(0, body);
    }
    json!({
        "operationId": operation.id,
        "description": operation.description,
        "tags": [operation.tag],
        "consumes": operation.consumes,
        "produces": operation.produces,
        "schemes": ["https"],
        "parameters": parameters,
        "responses": responses,
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {
            "group": operation.kind.group, "version": operation.kind.version, "kind": operation.kind.kind,
        },
    })
}
