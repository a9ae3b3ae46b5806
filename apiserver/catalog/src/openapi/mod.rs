//! OpenAPI documents of a plane: version 3 for each group and version, and version 2 for all of them together.
//!
//! Pure functions of a [`TypeSet`]: made when asked for, kept by nobody here. The hashes change when the documents
//! do, without the documents being made.

mod crd;
mod names;
mod operations;
mod parameters;
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
const EDITION: &str = "2";

/// `/openapi/v3`: where the document of each group and version is. `prefix` is what stands before `/openapi` in the
/// plane's URLs, empty for the root.
pub fn v3_index(set: &TypeSet, prefix: &str) -> Value {
    let mut paths = Map::new();
    for path in told_paths(set) {
        let hash = told_hash(&path);
        let url = format!("{prefix}/openapi/v3/{path}?hash={hash}");
        paths.insert(path, json!({"serverRelativeURL": url}));
    }
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
    let paths = operations::of(&served.types);
    let everywhere = [(String::new(), "v1".to_owned()), (group.to_owned(), version.to_owned())];
    let everywhere = if group.is_empty() { &everywhere[..1] } else { &everywhere };
    let schemas = schemas::Schemas::of(&served.types, &paths, everywhere, &Definitions::unpack());
    Some(v3::document(paths, schemas, server_version))
}

/// The paths of documents that are no group and version's: what is told of the server (`version`), of all groups
/// (`apis`), and of each that is built in (`apis/apps`).
fn told_paths(set: &TypeSet) -> Vec<String> {
    let builtin = |name: &str| !name.is_empty() && TypeSet::builtin().group(name).is_some();
    let groups = set.groups().iter().map(|group| &group.name).filter(|name| builtin(name));
    let groups = groups.map(|name| format!("apis/{name}"));
    ["api", "apis"].into_iter().chain(operations::server_paths()).map(str::to_owned).chain(groups).collect()
}

fn told_hash(path: &str) -> String {
    hex::encode_upper(Sha256::digest(format!("{EDITION} {} {path}", *HASH)))
}

/// Names the content of [`v3_told`]. `None` where there is no such document.
pub fn v3_told_hash(set: &TypeSet, path: &str) -> Option<String> {
    told_paths(set).iter().any(|told| told == path).then(|| told_hash(path))
}

/// `/openapi/v3/version`, `/openapi/v3/apis/<group>`: the document of a path at which something is told of the server or
/// a group.
pub fn v3_told(path: &str, server_version: &str) -> Value {
    let paths = operations::of_discovery(path);
    let schemas = schemas::Schemas::of(&[], &paths, &[], &Definitions::unpack());
    v3::document(paths, schemas, server_version)
}

/// Names the content of `/openapi/v2` with these documents of other servers in it.
pub fn v2_hash<D: AsRef<[u8]>>(set: &TypeSet, others: &[D]) -> String {
    let mut hash = Sha256::new_with_prefix(format!("{EDITION} {}", set.hash()));
    for other in others {
        hash.update(Sha256::digest(other));
    }
    hex::encode_upper(hash.finalize())
}

/// `/openapi/v2`: all definitions and paths in one document.
pub fn v2(set: &TypeSet, server_version: &str) -> Value {
    let types: Vec<_> = set.iter().cloned().collect();
    let mut paths = operations::of(&types);
    for path in told_paths(set) {
        paths.extend(operations::of_discovery(&path));
    }
    let everywhere = schemas::group_versions(set);
    let schemas = schemas::Schemas::of(&types, &paths, &everywhere, &Definitions::unpack());
    v2::document(paths, schemas, server_version)
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
    // Those that operations share are named by what they say.
    let parameters = other.get_mut("parameters").and_then(Value::as_object_mut).map(std::mem::take);
    for (name, mut parameter) in parameters.into_iter().flatten() {
        rename(&mut parameter);
        if document["parameters"].get(&name).is_none() {
            document["parameters"][name] = parameter;
        }
    }
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
    protobuf::v2(document)
}

/// A document of version 3 as `application/com.github.proto-openapi.spec.v3.v1.0+protobuf`: gnostic's
/// `openapi.v3.Document`.
pub fn v3_to_protobuf(document: &Value) -> Vec<u8> {
    protobuf::v3(document)
}
