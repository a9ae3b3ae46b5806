//! What lies in the inner store, who can read it, and how keys change.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use bytes::Bytes;
use common::{keys, keys_to_read, object, object_key, options, put, sealed, until, value};
use freehold_apiserver_storage::{Key, KeyRange, Range, Store, StoreError, WatchItem};
use freehold_apiserver_storage_embedded::Embedded;
use freehold_apiserver_storage_sealed::{EncryptionKeys, OpenError, RotateError, Sealed};
use futures_util::StreamExt;
use std::sync::Arc;
use tempfile::TempDir;

fn engine() -> (Arc<dyn Store>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    (Embedded::open(dir.path()).unwrap(), dir)
}

/// All that the inner store has, as one text.
async fn raw(inner: &dyn Store) -> Vec<u8> {
    let found = inner.range(Range::all(KeyRange::everything())).await.unwrap();
    found.items.iter().flat_map(|item| item.value.to_vec()).collect()
}

fn contains(text: &[u8], part: &str) -> bool {
    text.windows(part.len()).any(|window| window == part.as_bytes())
}

fn compressing() -> freehold_apiserver_storage_sealed::Options {
    options(None)
}

async fn rotated(store: &Sealed) {
    store.rotate().await.unwrap();
    until(|| async { store.status().await.unwrap().rotation?.finished }).await;
}

#[tokio::test]
async fn nothing_of_an_object_lies_plain_in_the_store_and_all_of_it_reads_back() {
    let (inner, _dir) = engine();
    let store = sealed(inner.clone(), Some(keys(&["one"]))).await;
    let key = object_key("blue", "secrets", "a");
    put(&store, &key, &object("Secret", 1)).await;
    put(&store, &Key::system("secrets/signing"), &Bytes::from_static(b"BEGIN PRIVATE KEY")).await;
    assert_eq!(value(&store, &key).await, object("Secret", 1));
    let raw = raw(&*inner).await;
    for part in ["Secret", "value-1", "object-1", "metadata", "PRIVATE KEY"] {
        assert!(!contains(&raw, part), "{part} lies plain in the store");
    }
}

#[tokio::test]
async fn the_first_objects_are_compressed_already() {
    let (inner, _dir) = engine();
    let store = sealed(inner.clone(), None).await;
    let key = object_key("blue", "configmaps", "a");
    let plain = object("ConfigMap", 1);
    put(&store, &key, &plain).await;
    let length = value(&*inner, &key).await.len();
    assert!(length * 2 < plain.len(), "{length} of {} bytes", plain.len());
    assert_eq!(value(&store, &key).await, plain);
}

#[tokio::test]
async fn a_mixed_store_reads_whatever_is_switched_on() {
    let (inner, _dir) = engine();
    let all = object_key("blue", "configmaps", "plain");
    put(&*inner, &all, &object("ConfigMap", 0)).await;
    let strange = Bytes::from_static(&[0x93, 1, 2, 3]);
    let off = || freehold_apiserver_storage_sealed::Options {
        compression: false,
        ..options(Some(keys_to_read(&["one"])))
    };
    let modes = [compressing(), options(Some(keys(&["one"]))), off()];
    for (nth, mode) in modes.into_iter().enumerate() {
        let store =
            Sealed::open(inner.clone(), freehold_apiserver_storage_sealed::Options { ..mode }).await.unwrap();
        put(&store, &object_key("blue", "configmaps", &format!("{nth}")), &object("ConfigMap", nth)).await;
        put(&store, &object_key("blue", "configmaps", &format!("{nth}-strange")), &strange).await;
    }
    let reader = Sealed::open(inner, off()).await.unwrap();
    let found = reader.range(Range::all(KeyRange::all_planes())).await.unwrap().items;
    let expected: Vec<_> = (0..3).flat_map(|nth| [object("ConfigMap", nth), strange.clone()]).collect();
    let values: Vec<_> = found.iter().map(|item| item.value.clone()).collect();
    assert_eq!(values[..6], expected);
    assert_eq!(values[6], object("ConfigMap", 0));
}

#[tokio::test]
async fn a_watch_opens_values_and_previous_values() {
    let (inner, _dir) = engine();
    let store = sealed(inner, Some(keys(&["one"]))).await;
    let key = object_key("blue", "configmaps", "a");
    let before = put(&store, &key, &object("ConfigMap", 1)).await;
    put(&store, &key, &object("ConfigMap", 2)).await;
    let mut watch = store.watch(KeyRange::all_planes(), before, true).await.unwrap();
    let item = watch.next().await.unwrap().unwrap();
    let WatchItem::Events(events) = item else { panic!("{item:?}") };
    assert_eq!(events[0].value, Some(object("ConfigMap", 2)));
    assert_eq!(events[0].previous.as_ref().unwrap().value, object("ConfigMap", 1));
}

#[tokio::test]
async fn a_value_that_is_moved_to_another_object_or_plane_is_refused() {
    for encryption in [None, Some(keys(&["one"]))] {
        let (inner, _dir) = engine();
        let store = sealed(inner.clone(), encryption).await;
        let key = object_key("blue", "secrets", "a");
        put(&store, &key, &object("Secret", 1)).await;
        let stolen = value(&*inner, &key).await;
        for to in [object_key("red", "secrets", "a"), object_key("blue", "secrets", "b")] {
            put(&*inner, &to, &stolen).await;
            let error = store.get(&to).await.unwrap_err();
            assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
        }
    }
}

#[tokio::test]
async fn another_server_opens_what_the_first_one_sealed() {
    let (inner, _dir) = engine();
    let one = sealed(inner.clone(), Some(keys(&["one"]))).await;
    let two = sealed(inner.clone(), Some(keys(&["one"]))).await;
    let key = object_key("blue", "configmaps", "a");
    for (nth, (writer, reader)) in [(&one, &two), (&two, &one)].into_iter().enumerate() {
        put(writer, &key, &object("ConfigMap", nth)).await;
        assert_eq!(value(reader, &key).await, object("ConfigMap", nth));
    }
}

#[tokio::test]
async fn a_missing_or_wrong_key_is_named_and_no_key_is_told() {
    let (inner, _dir) = engine();
    let key = object_key("blue", "secrets", "a");
    {
        let store = sealed(inner.clone(), Some(keys(&["one"]))).await;
        put(&store, &key, &object("Secret", 1)).await;
    }
    let open = async |encryption| Sealed::open(inner.clone(), options(encryption)).await.err().unwrap();
    assert!(matches!(open(None).await, OpenError::NoKeys));
    let error = open(Some(keys(&["two"]))).await;
    assert!(matches!(&error, OpenError::UnknownKey { key, .. } if key == "one"), "{error}");
    assert!(!error.to_string().contains('\n'));
    let file = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n  - providers:\n      \
                - aesgcm: {keys: [{name: one, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}\n";
    let error = open(Some(EncryptionKeys::parse(file).unwrap())).await;
    assert!(matches!(&error, OpenError::WrongKey { key, .. } if key == "one"), "{error}");
    assert!(!error.to_string().contains("AAECAw"));
}

#[tokio::test]
async fn a_key_that_only_another_server_has_is_named_by_a_read() {
    let (inner, _dir) = engine();
    let one = sealed(inner.clone(), Some(keys(&["one"]))).await;
    let two = sealed(inner.clone(), Some(keys(&["two"]))).await;
    let key = object_key("blue", "secrets", "a");
    put(&two, &key, &object("Secret", 1)).await;
    let error = one.get(&key).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unreadable(text) if text.contains("\"two\"")), "{error}");
    put(&one, &object_key("blue", "secrets", "b"), &object("Secret", 2)).await;
}

#[tokio::test]
async fn after_a_rotation_the_old_key_is_needed_no_more() {
    let (inner, _dir) = engine();
    let all: Vec<_> = (0..300).map(|nth| object_key("blue", "configmaps", &format!("{nth}"))).collect();
    {
        let store = sealed(inner.clone(), Some(keys(&["one"]))).await;
        for (nth, key) in all.iter().enumerate() {
            put(&store, key, &object("ConfigMap", nth)).await;
        }
    }
    let before = value(&*inner, &all[0]).await;
    put(&*inner, &object_key("blue", "configmaps", "plain"), &object("ConfigMap", 300)).await;
    let store = sealed(inner.clone(), Some(keys(&["two", "one"]))).await;
    let status = store.status().await.unwrap();
    assert!(status.keys.iter().all(|key| !key.removable), "{status:?}");
    rotated(&store).await;
    let status = store.status().await.unwrap();
    let rotation = status.rotation.unwrap();
    assert_eq!((rotation.number, rotation.failed), (1, 0));
    assert!(rotation.sealed >= 301, "{rotation:?}");
    assert!(status.keys[1].removable && status.keys[1].data_keys == 0, "{:?}", status.keys);
    assert_ne!(value(&*inner, &all[0]).await, before);
    assert!(!contains(&raw(&*inner).await, "value-300"));
    drop(store);
    let store = sealed(inner, Some(keys(&["two"]))).await;
    for (nth, key) in all.iter().enumerate() {
        assert_eq!(value(&store, key).await, object("ConfigMap", nth));
    }
}

#[tokio::test]
async fn a_rotation_loses_no_write_of_others() {
    let (inner, _dir) = engine();
    let store = sealed(inner.clone(), Some(keys(&["one"]))).await;
    let all: Vec<_> = (0..64).map(|nth| object_key("blue", "configmaps", &format!("{nth}"))).collect();
    for key in &all {
        put(&store, key, &object("ConfigMap", 0)).await;
    }
    store.rotate().await.unwrap();
    assert!(matches!(store.rotate().await, Err(RotateError::GoingOn(1))));
    let mut rounds = 0;
    while store.status().await.unwrap().rotation.unwrap().finished.is_none() {
        rounds += 1;
        for key in &all {
            put(&store, key, &object("ConfigMap", rounds)).await;
            assert_eq!(value(&store, key).await, object("ConfigMap", rounds));
        }
    }
    for key in &all {
        assert_eq!(value(&store, key).await, object("ConfigMap", rounds));
    }
}

#[tokio::test]
async fn encryption_is_switched_off_by_a_rotation() {
    let (inner, _dir) = engine();
    let key = object_key("blue", "secrets", "a");
    {
        let store = sealed(inner.clone(), Some(keys(&["one"]))).await;
        put(&store, &key, &object("Secret", 1)).await;
    }
    {
        let store = sealed(inner.clone(), Some(keys_to_read(&["one"]))).await;
        rotated(&store).await;
    }
    let store = sealed(inner, None).await;
    assert_eq!(value(&store, &key).await, object("Secret", 1));
    assert!(matches!(store.rotate().await, Err(RotateError::NoKeys)));
}

#[tokio::test]
async fn a_dictionary_is_trained_and_other_servers_find_it() {
    let (inner, _dir) = engine();
    let writer = sealed(inner.clone(), Some(keys(&["one"]))).await;
    // It starts before there is a dictionary.
    let early = sealed(inner.clone(), Some(keys(&["one"]))).await;
    let text = |nth: usize| {
        let own = format!(
            "\"x-very-own\":{{\"calibration\":[{nth},1,2],\"instrument\":\"spectrometer of the north\"}}"
        );
        let repeated = "\"laboratory\":\"Institute for Applied Measurement, third floor, room with a view\"";
        Bytes::from(format!("\u{1}{{\"kind\":\"Probe\",{own},{repeated},\"serial\":\"{:x}\"}}", nth * 7919))
    };
    let key = |nth: usize| object_key("blue", "probes", &format!("{nth}"));
    put(&writer, &key(0), &text(0)).await;
    let first = value(&*inner, &key(0)).await.len();
    for nth in 0..450 {
        put(&writer, &key(nth), &text(nth)).await;
    }
    until(|| async { (writer.status().await.unwrap().trained_dictionaries > 0).then_some(()) }).await;
    put(&writer, &key(0), &text(0)).await;
    let trained = value(&*inner, &key(0)).await.len();
    assert!(trained * 10 < first * 9, "{trained} bytes instead of {first}");
    assert!(!contains(&raw(&*inner).await, "spectrometer"), "dictionaries are encrypted as well");
    assert_eq!(value(&early, &key(0)).await, text(0));
    put(&early, &key(1), &text(1)).await;
    assert!(value(&*inner, &key(1)).await.len() * 10 < first * 9, "it uses what it met");
    let late = sealed(inner.clone(), Some(keys(&["one"]))).await;
    for nth in 0..450 {
        assert_eq!(value(&late, &key(nth)).await, text(nth));
    }
    put(&late, &key(2), &text(2)).await;
    assert!(value(&*inner, &key(2)).await.len() * 10 < first * 9);
    let from = late.rotate().await.unwrap().from_data_key;
    until(|| async { late.status().await.unwrap().rotation?.finished }).await;
    for nth in 0..450 {
        let sealed_by = data_key(&value(&*inner, &key(nth)).await).map(u32::from);
        assert!(sealed_by >= Some(from), "{nth}: {sealed_by:?} < {from}, with dictionaries to seal as well");
    }
}

#[tokio::test]
async fn secrets_are_never_trained_on() {
    let (inner, _dir) = engine();
    let store = sealed(inner, None).await;
    for nth in 0..450 {
        put(&store, &object_key("blue", "secrets", &format!("{nth}")), &object("Secret", nth)).await;
    }
    for nth in 0..450 {
        put(&store, &object_key("blue", "secretaries", &format!("{nth}")), &Bytes::from(vec![7; 40])).await;
    }
    let found = store.range(Range::all(KeyRange::system("dictionaries"))).await.unwrap();
    assert!(
        found.items.iter().all(|item| !format!("{:?}", item.key).contains("secrets")),
        "{:?}",
        found.items
    );
}

/// The data key that a sealed value names: small numbers are one byte.
fn data_key(raw: &[u8]) -> Option<u8> {
    matches!(raw[0], 0x95 | 0x96).then(|| raw[1])
}

#[tokio::test]
async fn after_a_rotation_no_value_depends_on_an_older_data_key_whoever_wrote_meanwhile() {
    let (inner, _dir) = engine();
    let one = sealed(inner.clone(), Some(keys(&["one"]))).await;
    let two = sealed(inner.clone(), Some(keys(&["one"]))).await;
    let all: Vec<_> = (0..80).map(|nth| object_key("blue", "configmaps", &format!("{nth}"))).collect();
    for (nth, key) in all.iter().enumerate() {
        put(if nth % 2 == 0 { &one } else { &two }, key, &object("ConfigMap", nth)).await;
    }
    let from = one.rotate().await.unwrap().from_data_key;
    while one.status().await.unwrap().rotation.unwrap().finished.is_none() {
        // The other server seals with the data key that it has until it learns of the rotation.
        put(&two, &all[7], &object("ConfigMap", 7)).await;
    }
    for key in &all {
        let raw = value(&*inner, key).await;
        assert!(
            data_key(&raw).is_some_and(|id| u32::from(id) >= from),
            "{key:?}: {:?} < {from}",
            data_key(&raw)
        );
    }
    for (nth, key) in all.iter().enumerate() {
        for store in [&one, &two] {
            assert_eq!(value(store, key).await, object("ConfigMap", nth));
        }
    }
}

#[tokio::test]
async fn data_keys_go_when_no_value_needs_them_not_even_one_of_the_past() {
    let (inner, _dir) = engine();
    let key = object_key("blue", "configmaps", "a");
    // Each server that writes makes one.
    for nth in 0..3 {
        put(&sealed(inner.clone(), Some(keys(&["one"]))).await, &key, &object("ConfigMap", nth)).await;
    }
    let count = async || {
        let all = Range { keys_only: true, ..Range::all(KeyRange::system("encryption/keys")) };
        inner.range(all).await.unwrap().items.len()
    };
    let store = sealed(inner.clone(), Some(keys(&["one"]))).await;
    let before = inner.revision().await.unwrap();
    rotated(&store).await;
    assert!(count().await >= 4, "the past can still be read");
    let past = Range { at: Some(before), ..Range::all(KeyRange::one(&key)) };
    assert_eq!(store.range(past).await.unwrap().items[0].value, object("ConfigMap", 2));
    let last = put(&store, &key, &object("ConfigMap", 4)).await;
    inner.compact(last).await.unwrap();
    until(|| async { (count().await == 1).then_some(()) }).await;
    assert_eq!(value(&store, &key).await, object("ConfigMap", 4));
    let other = sealed(inner.clone(), Some(keys(&["one"]))).await;
    assert_eq!(value(&other, &key).await, object("ConfigMap", 4));
}

#[tokio::test]
async fn a_data_key_stays_while_a_value_needs_it_and_the_rotation_goes_on() {
    let (inner, _dir) = engine();
    let key = object_key("blue", "configmaps", "a");
    put(&sealed(inner.clone(), Some(keys(&["one"]))).await, &key, &object("ConfigMap", 1)).await;
    let older = value(&*inner, &key).await;
    let store = sealed(inner.clone(), Some(keys(&["one"]))).await;
    rotated(&store).await;
    let from = store.status().await.unwrap().rotation.unwrap().from_data_key;
    // As though it had been passed by.
    let left = put(&*inner, &key, &older).await;
    inner.compact(left).await.unwrap();
    let is_new = |raw: Bytes| data_key(&raw).is_some_and(|id| u32::from(id) >= from);
    until(|| async { is_new(value(&*inner, &key).await).then_some(()) }).await;
    until(|| async { store.status().await.unwrap().rotation?.finished }).await;
    assert_eq!(value(&store, &key).await, object("ConfigMap", 1));
}

#[tokio::test]
async fn a_rotation_writes_nothing_of_what_a_restore_has_buried_and_waits_until_it_is_gone() {
    let (inner, _dir) = engine();
    let store = sealed(inner.clone(), Some(keys(&["one"]))).await;
    let plane = "blue".parse().unwrap();
    let (old, new) = (object_key("blue", "configmaps", "old"), object_key("blue", "configmaps", "new"));
    put(&store, &old, &object("ConfigMap", 1)).await;
    put(&store, &Key::stack(&plane), &Bytes::from_static(b"{}")).await;
    put(&store, &new, &object("ConfigMap", 2)).await;
    let written = inner.get(&old).await.unwrap().unwrap().modified;
    let first = inner.get(&new).await.unwrap().unwrap().modified;
    store.rotate().await.unwrap();
    until(|| async { (inner.get(&new).await.unwrap().unwrap().modified > first).then_some(()) }).await;
    assert_eq!(inner.get(&old).await.unwrap().unwrap().modified, written);
    assert!(store.status().await.unwrap().rotation.unwrap().finished.is_none());
    let gone = freehold_apiserver_storage::Change::Delete(old.clone());
    let commit = freehold_apiserver_storage::Commit { expect: Vec::new(), changes: vec![gone] };
    drop(inner.commit(commit).await.unwrap());
    until(|| async { store.status().await.unwrap().rotation?.finished }).await;
    assert_eq!(value(&store, &new).await, object("ConfigMap", 2));
}
