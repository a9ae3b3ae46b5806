//! OpenAPI documents of a plane: version 3 for each group and version, and version 2 for all of them together.
//!
//! Pure functions of a [`TypeSet`]: made when asked for, kept by nobody here. The hashes change when the documents
//! do, without the documents being made.

mod crd;
mod names;
mod operations;
mod protobuf;
mod schemas;
mod v2;
mod v3;

use crate::{
    definitions::{Definitions, HASH},
    set::{ServedVersion, TypeSet},
};
use freehold_machinery::Value;
use serde_json::{Map, json};
use sha2::{Digest, Sha256};

/// Changes with the code that makes documents, so that clients do not keep what an older one made.
const EDITION: &str = "1";

/// `/openapi/v3`: where the document of each group and version is. `prefix` is what stands before `/openapi` in the
/// plane's URLs, empty for the root.
pub fn v3_index(set: &TypeSet, prefix: &str) -> Value {
    let mut paths = Map::new();
    for group in set.groups() {
        for served in &group.versions {
            let path = names::base_path(&group.name, &served.version);
            let hash = match &served.remote {
                Some(remote) => remote.openapi.clone(),
                None => version_hash(served),
            };
            if hash.is_empty() || served.remote.is_none() && served.types.is_empty() {
                continue;
            }
            let url = format!("{prefix}/openapi/v3{path}?hash={hash}");
            paths.insert(path[1..].to_owned(), json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// Names the content of `/openapi/v3/apis/<group>/<version>`: its `hash` parameter and ETag. `None` where nothing
/// is served there.
pub fn v3_hash(set: &TypeSet, group: &str, version: &str) -> Option<String> {
    set.version(group, version).filter(|served| !served.types.is_empty()).map(version_hash)
}

fn version_hash(served: &ServedVersion) -> String {
    let mut digest = Sha256::new_with_prefix(format!("{EDITION} {}", *HASH));
    served.types.iter().for_each(|ty| digest.update(&ty.hash));
    hex::encode_upper(digest.finalize())
}

/// `/openapi/v3/api/v1`, `/openapi/v3/apis/<group>/<version>`: schemas and paths of one group and version. `version`
/// of the server goes into `info`.
pub fn v3(set: &TypeSet, group: &str, version: &str, server_version: &str) -> Option<Value> {
    let served = set.version(group, version).filter(|served| !served.types.is_empty())?;
    let definitions = Definitions::unpack();
    let schemas = schemas::Schemas::of(set, &served.types, &definitions);
    Some(v3::document(&served.types, schemas, server_version))
}

/// Names the content of `/openapi/v2`.
pub fn v2_hash(set: &TypeSet) -> String {
    hex::encode_upper(Sha256::digest(format!("{EDITION} {}", set.hash())))
}

/// `/openapi/v2`: all definitions and paths in one document.
pub fn v2(set: &TypeSet, server_version: &str) -> Value {
    let types: Vec<_> = set.iter().cloned().collect();
    let definitions = Definitions::unpack();
    let schemas = schemas::Schemas::of(set, &types, &definitions);
    v2::document(&types, schemas, server_version)
}

/// Adds the paths of another server to a document of version 2, with the definitions that they need. What is there
/// already stays: a definition of the same name and another content gets another name.
pub fn merge(document: &mut Value, mut other: Value) {
    let Value::Object(definitions) = other["definitions"].take() else { return };
    let mut renamed = Vec::new();
    for (name, definition) in &definitions {
        // Kubernetes' own definitions are the same but for what descriptions and references say.
        let shared = name.starts_with("io.k8s.apimachinery.");
        let there = document["definitions"].get(name);
        if there.is_some_and(|there| there != definition) && !shared {
            renamed.push((format!("#/definitions/{name}"), format!("#/definitions/{name}_v2")));
        }
    }
    let rename = |value: &mut Value| names::rename(value, &renamed);
    let Value::Object(mut paths) = other["paths"].take() else { return };
    for (name, mut definition) in definitions {
        rename(&mut definition);
        let own = format!("#/definitions/{name}");
        let name = if renamed.iter().any(|(from, _)| *from == own) { format!("{name}_v2") } else { name };
        if document["definitions"].get(&name).is_none() {
            document["definitions"][name] = definition;
        }
    }
    for (path, item) in &mut paths {
        rename(item);
        if document["paths"].get(path).is_none() {
            document["paths"][path.as_str()] = item.take();
        }
    }
}

/// A document of version 2 as `application/com.github.proto-openapi.spec.v2.v1.0+protobuf`: gnostic's
/// `openapi.v2.Document`.
pub fn to_protobuf(document: &Value) -> Vec<u8> {
    protobuf::document(document)
}
