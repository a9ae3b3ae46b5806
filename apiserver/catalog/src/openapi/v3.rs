//! Writing OpenAPI 3.

use super::{
    operations::{Operation, Path},
    parameters::Parameter,
    schemas::Schemas,
};
use crate::definitions::REF_PREFIX;
use freehold_machinery::{Map, Value};
use serde_json::json;
use std::collections::BTreeMap;

pub(super) fn document(paths: BTreeMap<String, Path>, schemas: Schemas, server_version: &str) -> Value {
    let paths: Map = paths.into_iter().map(|(name, path)| (name, self::path(path))).collect();
    let mut components = json!({
        "securitySchemes": {
            "BearerToken": {
                "type": "apiKey",
                "name": "authorization",
                "in": "header",
                "description": "Bearer Token authentication",
            },
        },
    });
    if !schemas.map.is_empty() {
        components["schemas"] = schemas.map.into_iter().collect::<Map>().into();
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": paths,
        "components": components,
    })
}

fn path(path: Path) -> Value {
    let mut out = Map::new();
    if !path.parameters.is_empty() {
        let parameters = path.parameters.iter().map(|parameter| self::parameter(parameter));
        out.insert("parameters".to_owned(), parameters.collect());
    }
    out.extend(path.operations.into_iter().map(|(method, op)| (method.to_owned(), operation(op))));
    out.into()
}

fn parameter(parameter: &Parameter) -> Value {
    let mut out = json!({
        "name": parameter.name(),
        "in": parameter.place,
        "description": parameter.description,
        "schema": {"type": parameter.kind, "uniqueItems": true},
    });
    if parameter.place == "path" {
        out["required"] = true.into();
    }
    out
}

fn reference(definition: &str) -> Value {
    json!({"schema": {"$ref": format!("{REF_PREFIX}{definition}")}})
}

fn operation(operation: Operation) -> Value {
    let content = |kinds: &[&str], definition: &str| -> Map {
        kinds.iter().map(|kind| ((*kind).to_owned(), reference(definition))).collect()
    };
    let answers = operation.codes.iter().map(|(code, description)| {
        let content = match &operation.answer {
            Some(definition) => content(operation.produces, definition),
            None => operation
                .produces
                .iter()
                .map(|kind| ((*kind).to_owned(), json!({"schema": {"type": "string"}})))
                .collect(),
        };
        ((*code).to_owned(), json!({"description": description, "content": content}))
    });
    let mut responses: Map = answers.collect();
    responses.insert("401".to_owned(), json!({"description": "Unauthorized"}));
    let mut out = json!({
        "operationId": operation.id,
        "description": operation.description,
        "tags": [operation.tag],
        "responses": responses,
    });
    if let Some(kind) = &operation.kind {
        out["x-kubernetes-action"] = operation.action.into();
        out["x-kubernetes-group-version-kind"] =
            json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    }
    if !operation.parameters.is_empty() {
        out["parameters"] = operation.parameters.iter().map(|parameter| self::parameter(parameter)).collect();
    }
    if let Some((definition, required)) = operation.body {
        let mut body = json!({"content": content(operation.consumes, &definition)});
        if required {
            body["required"] = true.into();
        }
        out["requestBody"] = body;
    }
    out
}
