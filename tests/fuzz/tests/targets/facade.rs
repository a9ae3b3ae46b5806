//! The store as a hostile pair sees it: whatever it asks for, nothing of others is changed or shown.

use bytes::Bytes;
use freehold_apiserver_storage::{Change, Commit, Key, KeyRange, KeyValue, Range, Store};
use freehold_apiserver_storage_embedded::Embedded;
use freehold_apiserver_storage_etcd::{Facade, Scope};
use freehold_machinery::PlaneId;
use freehold_tests_fuzz::Fuzz;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::sync::Arc;

/// What stands in all values that the pair must never see.
const TREASURE: &str = "the-treasure-of-others";
/// A key of its own plane that it may read and not write.
const RECORD: &str = "planes/mine/.stack";

/// Keys of others, and of the platform.
const FOREIGN: &[&str] = &[
    "planes/min/core/secrets/default/a",
    "planes/mine-2/core/secrets/default/a",
    "planes/mine0/core/secrets/default/a",
    "planes/core/iam.freehold.dev/policybindings/freehold-system/a",
    "planes/core/.classes/default",
    "layers/other/core/secrets/default/a",
    "layers/other/.planes/other",
    "system/secrets/a",
    "system/encryption/keys/0000000001",
];

/// A field of a protobuf message.
fn field(number: u32, bytes: &[u8]) -> Vec<u8> {
    [varint(u64::from(number << 3 | 2)), varint(bytes.len() as u64), bytes.to_vec()].concat()
}

fn number(field: u32, value: i64) -> Vec<u8> {
    [varint(u64::from(field << 3)), varint(value as u64)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A message of etcd's API as fields by number: texts, numbers, messages, or a list of any of them.
fn message(value: &Value) -> Vec<u8> {
    let fields = value.as_object().into_iter().flatten();
    fields.flat_map(|(name, value)| encoded(name.parse().unwrap_or(15), value)).collect()
}

fn encoded(name: u32, value: &Value) -> Vec<u8> {
    let name = name.clamp(1, 100);
    match value {
        Value::String(text) => field(name, &bytes(text)),
        Value::Number(value) => number(name, value.as_i64().unwrap_or(-1)),
        Value::Bool(value) => number(name, i64::from(*value)),
        Value::Object(_) => field(name, &message(value)),
        Value::Array(items) => items.iter().flat_map(|item| encoded(name, item)).collect(),
        Value::Null => Vec::new(),
    }
}

/// A text of which `^` stands for the byte before the first sign that a key can have.
fn bytes(text: &str) -> Vec<u8> {
    text.bytes().map(|byte| if byte == b'^' { 0 } else { byte }).collect()
}

fn own(rest: &str) -> String {
    format!("/freehold/planes/mine/{rest}")
}

/// What an honest pair asks for, and what a hostile one begins with.
fn seeds() -> Vec<Value> {
    let put = |key: &str| json!({"2": {"1": key, "2": "\u{1}{}"}});
    let delete = |key: &str, end: &str| json!({"3": {"1": key, "2": end}});
    let read = |key: &str| json!({"1": {"1": key}});
    let compare = |key: &str| json!({"1": 0, "2": 2, "3": key, "6": 0});
    let key = own("core/secrets/default/b");
    let (stack, other) = (own(".stack"), "/freehold/planes/mine-2/core/secrets/default/a");
    let mut seeds = vec![
        json!({"Range": {"1": own(""), "2": "/freehold/planes/mine0", "3": 500}}),
        json!({"Range": {"1": "^", "2": "^"}}),
        json!({"Range": {"1": "/freehold/system/layers/", "2": "/freehold/system/layers0"}}),
        json!({"Range": {"1": other, "9": true, "4": 1}}),
        json!({"Txn": {"1": [compare(&key)], "2": [put(&key)], "3": [read(&key)]}}),
        json!({"Txn": {"1": [compare(other)], "2": [put(&key)], "3": [read(other)]}}),
        json!({"Txn": {"2": [put(&stack), put(other)]}}),
        json!({"Txn": {"2": [delete(&own(""), "/freehold/planes/mine0"), delete(&key, "")]}}),
        json!({"Txn": {"2": [{"4": {"2": [put(other)]}}], "3": [{"4": {"2": [put(other)]}}]}}),
        json!({"Compact": {"1": 3}}),
        json!({"Watch": {"1": {"1": own(""), "2": "/freehold/planes/mine0", "3": 1, "6": true}}}),
        json!({"Watch": {"1": {"1": "^", "2": "^", "3": 1, "6": true}}}),
        json!({"Put": {"1": other, "2": "x"}}),
    ];
    seeds.extend(FOREIGN.iter().map(|key| json!({"Txn": {"2": [put(&format!("/freehold/{key}"))]}})));
    seeds
}

const WORDS: &[&str] = &[
    "Range",
    "Txn",
    "Compact",
    "Watch",
    "1",
    "2",
    "3",
    "4",
    "6",
    "64",
    "^",
    "/freehold/",
    "/freehold/planes/mine/",
    "/freehold/planes/mine0",
    "/freehold/planes/mine-2/",
    "/freehold/planes/",
    "/freehold/planes0",
    "/freehold/layers/",
    "/freehold/layers/other/core/secrets/default/a",
    "/freehold/system/",
    "/freehold/planes/mine/.stack",
    "/freehold/planes/mine/.class",
    "/freehold/planes/mine/core/secrets/default/b",
    "/../",
    "..",
    ".",
    "//",
];

/// The store behind the facade.
struct Behind {
    store: Arc<Embedded>,
    facade: Facade,
    before: Vec<KeyValue>,
}

impl Behind {
    async fn new(dir: &std::path::Path) -> Self {
        let store = Embedded::open(dir).expect("a store");
        let foreign = FOREIGN.iter().map(|key| (*key, TREASURE));
        let changes = foreign.chain([(RECORD, "{}"), ("planes/mine/core/secrets/default/a", "mine")]);
        let put = |(key, value): (&str, &str)| {
            Change::Put(Key::from_store(key.to_owned().into()), value.to_owned().into())
        };
        let commit = Commit { expect: Vec::new(), changes: changes.map(put).collect() };
        drop(store.commit(commit).await.expect("a commit"));
        let facade = Facade::new(store.clone(), "/freehold/");
        let mut behind = Self { store, facade, before: Vec::new() };
        behind.before = behind.not_its_own().await;
        behind
    }

    /// All keys that the pair must not change.
    async fn not_its_own(&self) -> Vec<KeyValue> {
        let plane: PlaneId = "mine".parse().expect("a plane");
        let own = KeyRange::plane_objects(&plane);
        let all = self.store.range(Range::all(KeyRange::everything())).await.expect("all keys").items;
        all.into_iter().filter(|item| !own.contains(&item.key) || item.key.object_path().is_none()).collect()
    }

    /// Asks, and gives what came: status and message.
    async fn ask(&self, call: &str, body: &Value) -> (String, Vec<u8>) {
        let service = if call == "Watch" { "Watch" } else { "KV" };
        let message = message(body);
        let mut frame = vec![0];
        frame.extend(u32::try_from(message.len()).unwrap_or(0).to_be_bytes());
        frame.extend(message);
        let request = Request::post(format!("/etcdserverpb.{service}/{call}"))
            .version(http::Version::HTTP_2)
            .header("content-type", "application/grpc")
            .body(Full::new(Bytes::from(frame)));
        let Ok(request) = request else { return ("no such call".to_owned(), Vec::new()) };
        let scope = Scope::Plane("mine".parse().expect("a plane"));
        let answer = self.facade.handle(scope, request).await;
        let told = |map: &http::HeaderMap| {
            let text = |name: &str| map.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
            format!("{} {}", text("grpc-status"), text("grpc-message"))
        };
        let mut said = told(answer.headers());
        let collected = answer.into_body().collect().await;
        let Ok(collected) = collected else { return (format!("{said} broken off"), Vec::new()) };
        if let Some(trailers) = collected.trailers() {
            said += &told(trailers);
        }
        (said, collected.to_bytes().to_vec())
    }
}

#[test]
fn a_hostile_pair_neither_changes_nor_sees_what_is_not_its_own() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let dir = tempfile::tempdir().expect("a directory");
    let behind = runtime.block_on(Behind::new(dir.path()));
    Fuzz::new("the facade", seeds(), 4_000).words(WORDS).run(|input| {
        let Some((call, body)) = input.as_object().and_then(|calls| calls.iter().next()) else {
            return "no call".to_owned();
        };
        let known = ["Range", "Txn", "Compact", "Watch"].contains(&call.as_str());
        let call = if known { call.as_str() } else { "Other" };
        runtime.block_on(async {
            let (said, answer) = behind.ask(call, body).await;
            assert!(!String::from_utf8_lossy(&answer).contains(TREASURE), "{said}");
            assert!(behind.not_its_own().await == behind.before, "{said}");
            format!("{call} {said} {}", answer.len().min(64).next_power_of_two())
        })
    });
}
