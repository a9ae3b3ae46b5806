//! Stores, keys and objects for tests.
#![allow(dead_code, reason = "each test binary has its own copy of this module")]

use bytes::Bytes;
use freehold_apiserver_storage::{Change, Commit, Committed, Key, ObjectPath, Revision, Store};
use freehold_apiserver_storage_sealed::{EncryptionKeys, Options, Sealed};
use std::{sync::Arc, time::Duration};

/// How long something may take that happens in the background.
const PATIENCE: Duration = Duration::from_secs(60);

/// Keys of these names; a name is always the same key.
pub(crate) fn keys(names: &[&str]) -> EncryptionKeys {
    EncryptionKeys::parse(&key_file(names, "aesgcm first")).unwrap()
}

/// Keys of a server that reads sealed values and writes plain ones.
pub(crate) fn keys_to_read(names: &[&str]) -> EncryptionKeys {
    EncryptionKeys::parse(&key_file(names, "identity first")).unwrap()
}

fn key_file(names: &[&str], order: &str) -> String {
    let secret = |name: &str| base64(&[name.len() as u8 + name.as_bytes()[0]; 32]);
    let keys: Vec<_> =
        names.iter().map(|name| format!("{{name: {name}, secret: {}}}", secret(name))).collect();
    let gcm = format!("aesgcm: {{keys: [{}]}}", keys.join(", "));
    let providers = match order {
        "identity first" => format!("[{{identity: {{}}}}, {{{gcm}}}]"),
        _ => format!("[{{{gcm}}}, {{identity: {{}}}}]"),
    };
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n  - providers: {providers}\n"
    )
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

pub(crate) fn options(encryption: Option<EncryptionKeys>) -> Options {
    Options { compression: true, encryption, poll: Duration::from_millis(100), kept: Duration::ZERO }
}

pub(crate) async fn sealed(inner: Arc<dyn Store>, encryption: Option<EncryptionKeys>) -> Sealed {
    Sealed::open(inner, options(encryption)).await.unwrap()
}

pub(crate) fn object_key(plane: &str, resource: &str, name: &str) -> Key {
    let path = ObjectPath {
        group: String::new(),
        resource: resource.into(),
        namespace: Some("default".into()),
        name: name.into(),
    };
    Key::object(&plane.parse().unwrap(), &path)
}

/// An object as stores have it.
pub(crate) fn object(kind: &str, nth: usize) -> Bytes {
    let text = format!(
        "\u{1}{{\"apiVersion\":\"v1\",\"data\":{{\"setting\":\"value-{nth}\",\"other\":\"{:x}\"}},\"kind\":\"{kind}\",\
         \"metadata\":{{\"creationTimestamp\":\"2026-05-01T10:{:02}:00Z\",\"managedFields\":[{{\"apiVersion\":\"v1\",\
         \"fieldsType\":\"FieldsV1\",\"fieldsV1\":{{\"f:data\":{{\".\":{{}},\"f:setting\":{{}},\"f:other\":{{}}}}}},\
         \"manager\":\"kubectl-create\",\"operation\":\"Update\",\"time\":\"2026-05-01T10:{:02}:00Z\"}}],\
         \"name\":\"object-{nth}\",\"namespace\":\"default\",\"uid\":\"{:032x}\"}}}}",
        nth * 7919,
        nth % 60,
        nth % 60,
        nth * 104_729
    );
    Bytes::from(text)
}

pub(crate) async fn put(store: &dyn Store, key: &Key, value: &Bytes) -> Revision {
    let commit = Commit { expect: Vec::new(), changes: vec![Change::Put(key.clone(), value.clone())] };
    match store.commit(commit).await.unwrap() {
        Committed::Done(revision) => revision,
        Committed::Refused(found) => panic!("refused: {found:?}"),
    }
}

pub(crate) async fn value(store: &dyn Store, key: &Key) -> Bytes {
    store.get(key).await.unwrap().unwrap().value
}

/// Waits until something is so.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(mut check: impl FnMut() -> F) -> T {
    let mut poll = tokio::time::interval(Duration::from_millis(20));
    let wait = async {
        loop {
            poll.tick().await;
            if let Some(found) = check().await {
                return found;
            }
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.expect("it happens in time")
}
