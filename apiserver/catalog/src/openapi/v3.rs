//! Writing OpenAPI 3.

use super::{
    operations::{self, Operation, Parameter, Path},
    schemas::Schemas,
};
use crate::definitions::REF_PREFIX;
use freehold_machinery::{Map, ResourceType, Value};
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc};

pub(super) fn document(types: &[Arc<ResourceType>], schemas: Schemas, server_version: &str) -> Value {
    let mut paths = BTreeMap::new();
    types.iter().for_each(|ty| operations::paths(ty, &mut paths));
    let paths: Map = paths.into_iter().map(|(name, path)| (name, self::path(path))).collect();
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": server_version},
        "paths": paths,
        "components": {
            "schemas": schemas.map.into_iter().collect::<Map>(),
            "securitySchemes": {
                "BearerToken": {
                    "type": "apiKey",
                    "name": "authorization",
                    "in": "header",
                    "description": "Bearer Token authentication",
                },
            },
        },
    })
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
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {
            "group": operation.kind.group, "version": operation.kind.version, "kind": operation.kind.kind,
        },
    });
    if !operation.parameters.is_empty() {
        out["parameters"] = operation.parameters.into_iter().map(parameter).collect();
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
