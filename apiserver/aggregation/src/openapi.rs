//! OpenAPI documents of servers: version 3 is forwarded by its hash, version 2 is reduced to the server's own paths.

use crate::{Aggregator, Server};
use bytes::Bytes;
use freehold_machinery::{Map, PlaneId, Value};
use http::header;
use serde_json::json;
use std::collections::BTreeSet;

/// Bytes of the index of version 3.
const MAX_INDEX: usize = 1024 * 1024;
/// Bytes of a document of version 2.
const MAX_DOCUMENT: usize = 8 * 1024 * 1024;
const DEFINITIONS: &str = "#/definitions/";

/// The hash of a server's document of its version; empty where it has none.
pub(crate) async fn hash(aggregator: &Aggregator, server: &Server) -> String {
    let found = async {
        let headers = [(header::ACCEPT, "application/json")];
        let answer = aggregator.get(server, "/openapi/v3", &headers, MAX_INDEX).await.ok()?;
        let index: Value = serde_json::from_slice(&answer.body).ok().filter(|_| answer.status == 200)?;
        let url = index["paths"].get(&server.base_path()[1..])?["serverRelativeURL"].as_str()?;
        let hash = url.split_once("hash=").map_or(url, |(_, hash)| hash);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_=%".contains(c);
        (hash.len() <= 256 && hash.chars().all(plain)).then(|| hash.to_owned())
    };
    found.await.unwrap_or_default()
}

impl Aggregator {
    /// The OpenAPI 2 documents of a plane's servers that answer, each with the paths of its group and version and the
    /// definitions that they need. Those are left out that have none which can be read within the limits.
    pub async fn openapi_v2_of(&self, plane: &PlaneId) -> Vec<Bytes> {
        let servers = self.servers(plane).into_iter().filter(|server| server.is_available());
        let documents = servers.map(async |server| self.openapi_v2(&server).await);
        futures_util::future::join_all(documents).await.into_iter().flatten().collect()
    }

    async fn openapi_v2(&self, server: &Server) -> Option<Bytes> {
        let hash = server.with_state(|state| state.openapi.clone());
        let known = server.with_state(|state| state.openapi_v2.clone());
        if let Some((_, document)) = known.filter(|(of, _)| *of == hash && !hash.is_empty()) {
            return Some(document);
        }
        let headers = [(header::ACCEPT, "application/json")];
        let answer = self.get(server, "/openapi/v2", &headers, MAX_DOCUMENT).await.ok()?;
        let document: Value = serde_json::from_slice(&answer.body).ok().filter(|_| answer.status == 200)?;
        let cut = Bytes::from(cut(&document, &server.base_path()).to_string());
        server.with_state(|state| state.openapi_v2 = Some((hash, cut.clone())));
        Some(cut)
    }
}

/// The paths below `base`, and the definitions that they refer to.
fn cut(document: &Value, base: &str) -> Value {
    let all = document["paths"].as_object();
    let below =
        |path: &str| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let paths: Map = all
        .into_iter()
        .flatten()
        .filter(|(path, _)| below(path))
        .map(|(p, v)| (p.clone(), v.clone()))
        .collect();
    let mut definitions = Map::new();
    let mut wanted = BTreeSet::new();
    paths.values().for_each(|path| references(path, &mut wanted));
    while let Some(name) = wanted.pop_first() {
        if definitions.contains_key(&name) {
            continue;
        }
        if let Some(found) = document["definitions"].get(&name) {
            references(found, &mut wanted);
            definitions.insert(name, found.clone());
        }
    }
    json!({"paths": paths, "definitions": definitions})
}

/// The names of definitions that a value refers to.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            let name = map.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix(DEFINITIONS));
            found.extend(name.map(str::to_owned));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_cut_to_one_version() {
        let reference = |name: &str| json!({"$ref": format!("{DEFINITIONS}{name}")});
        let document = json!({
            "paths": {"/apis/g/v1/": {}, "/apis/g/v1/a": {"get": reference("A")}, "/apis/g/v1beta1/a": {"get": reference("C")}},
            "definitions": {"A": {"x": [reference("B")]}, "B": {"y": reference("A")}, "C": {}},
        });
        let cut = cut(&document, "/apis/g/v1");
        assert_eq!(cut["paths"].as_object().unwrap().len(), 2);
        let names: Vec<_> = cut["definitions"].as_object().unwrap().keys().collect();
        assert_eq!(names, ["A", "B"]);
    }
}
