//! OpenAPI documents of servers: version 3 is forwarded by its hash, version 2 is reduced to the server's own paths.

use crate::{Aggregator, Server};
use bytes::Bytes;
use freehold_machinery::{Map, PlaneId, Value};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::header;
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout_at},
};

/// Bytes of the index of version 3.
const MAX_INDEX: usize = 1024 * 1024;
/// Bytes of a document of version 2.
const MAX_DOCUMENT: usize = 8 * 1024 * 1024;
/// Bytes of the documents of one plane, and of all that are kept.
const MAX_OF_PLANE: usize = 16 * 1024 * 1024;
const ROOM: usize = 256 * 1024 * 1024;
/// Documents that are read at once: of all planes, and of one.
const READING: (usize, usize) = (64, 4);
/// Documents that are parsed at once.
const PARSING: usize = 2;
/// How long a plane's documents may take together; those that are not there then are left out.
const TIME: Duration = Duration::from_secs(20);
/// How long holds that a server has no document, and the document of one that gives no hash.
const FRESH: Duration = Duration::from_secs(10);
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

/// What is known of a server's document of version 2.
#[derive(Debug)]
pub(crate) struct Kept {
    /// The hash that it is of; empty where the server has none.
    hash: String,
    /// The document, cut to the server's version; `None` where it can't be had.
    document: Option<Bytes>,
    asked: Instant,
    /// Its part of what documents may take: of its plane, and of all.
    _room: Option<[OwnedSemaphorePermit; 2]>,
}

impl Kept {
    /// What is to be answered without asking the server; `None` where it has to be asked.
    fn answer(&self, hash: &str, now: Instant) -> Option<Option<Bytes>> {
        let lasting = self.document.is_some() && !hash.is_empty();
        let holds = self.hash == hash && (lasting || now.duration_since(self.asked) < FRESH);
        holds.then(|| self.document.clone())
    }
}

/// Places and room for documents of all planes.
pub(crate) struct Documents {
    reading: Semaphore,
    parsing: Semaphore,
    room: Room,
}

/// Bytes that may be kept, in kibibytes.
struct Room(Arc<Semaphore>);

impl Room {
    fn new(bytes: usize) -> Self {
        Self(Arc::new(Semaphore::new(bytes >> 10)))
    }

    /// Room for a document, as long as that is kept.
    fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let kibibytes = u32::try_from(bytes.div_ceil(1 << 10)).ok()?;
        self.0.clone().try_acquire_many_owned(kibibytes).ok()
    }
}

/// What the documents of one plane share.
pub(crate) struct OfPlane {
    /// Held by whoever asks: whoever comes meanwhile finds what that one has read.
    first: Mutex<()>,
    room: Room,
}

impl Default for OfPlane {
    fn default() -> Self {
        Self { first: Mutex::default(), room: Room::new(MAX_OF_PLANE) }
    }
}

impl Default for Documents {
    fn default() -> Self {
        Self { reading: Semaphore::new(READING.0), parsing: Semaphore::new(PARSING), room: Room::new(ROOM) }
    }
}

impl Aggregator {
    /// The OpenAPI 2 documents of a plane's servers that answer, each with the paths of its group and version and the
    /// definitions that they need. Those are left out that have none which can be read within the limits.
    pub async fn openapi_v2_of(&self, plane: &PlaneId) -> Vec<Bytes> {
        let Some(own) = self.documents_of(plane) else { return Vec::new() };
        let _first = own.first.lock().await;
        let deadline = Instant::now() + TIME;
        let servers: Vec<_> = self.servers(plane).into_iter().filter(|s| s.is_available()).collect();
        let mut asked = Vec::with_capacity(servers.len());
        for server in &servers {
            asked.push(timeout_at(deadline, self.openapi_v2(server, &own)).boxed());
        }
        let documents: Vec<_> = stream::iter(asked).buffered(READING.1).collect().await;
        documents.into_iter().filter_map(|document| document.ok().flatten()).collect()
    }

    async fn openapi_v2(&self, server: &Server, own: &OfPlane) -> Option<Bytes> {
        let hash = server.with_state(|state| state.openapi.clone());
        let now = Instant::now();
        if let Some(answer) = server.with_state(|state| state.openapi_v2.as_ref()?.answer(&hash, now)) {
            return answer;
        }
        // What was kept gives its room back first.
        server.with_state(|state| state.openapi_v2 = None);
        let found = self.read_v2(server).await;
        let asked = Instant::now();
        let kept = match found.as_ref().map(|document| (document, own.room.take(document.len()))) {
            None | Some((_, None)) => Kept { hash, document: None, asked, _room: None },
            Some((document, Some(in_plane))) => {
                // Where others have used up the room of all, it is not kept.
                let Some(in_all) = self.documents.room.take(document.len()) else { return found };
                Kept { hash, document: found, asked, _room: Some([in_plane, in_all]) }
            }
        };
        let document = kept.document.clone();
        server.with_state(|state| state.openapi_v2 = Some(kept));
        document
    }

    async fn read_v2(&self, server: &Server) -> Option<Bytes> {
        let headers = [(header::ACCEPT, "application/json")];
        let _reading = self.documents.reading.acquire().await.ok()?;
        let answer = self.get(server, "/openapi/v2", &headers, MAX_DOCUMENT).await.ok()?;
        let _parsing = self.documents.parsing.acquire().await.ok()?;
        let document: Value = serde_json::from_slice(&answer.body).ok().filter(|_| answer.status == 200)?;
        Some(Bytes::from(cut(&document, &server.base_path()).to_string()))
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
    fn what_is_known_of_a_document_is_not_asked_for_again() {
        let asked = Instant::now();
        let rows = [
            // A document that has a hash holds as long as that; any other, and none, for a short time.
            ("h", Some("d"), "h", 3600, true),
            ("h", Some("d"), "i", 0, false),
            ("", Some("d"), "", 9, true),
            ("", Some("d"), "", 10, false),
            ("h", None, "h", 9, true),
            ("h", None, "h", 10, false),
        ];
        for (of, document, hash, seconds, known) in rows {
            let document = document.map(|text| Bytes::from_static(text.as_bytes()));
            let kept = Kept { hash: of.to_owned(), document: document.clone(), asked, _room: None };
            let answer = kept.answer(hash, asked + Duration::from_secs(seconds));
            assert_eq!(answer, known.then_some(document), "{of:?} {hash:?} {seconds}");
        }
    }

    #[test]
    fn documents_of_one_plane_and_of_all_have_bounds() {
        for (room, max) in [(OfPlane::default().room, MAX_OF_PLANE), (Documents::default().room, ROOM)] {
            let kept: Vec<_> = (0..max / MAX_DOCUMENT).map(|_| room.take(MAX_DOCUMENT).unwrap()).collect();
            assert!(room.take(1).is_none());
            drop(kept);
            assert!(room.take(1).is_some());
        }
    }

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
