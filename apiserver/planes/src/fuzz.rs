//! Fuzz target: properties that hold for any bytes sent as an archive.

use crate::archive::check;
use bytes::Bytes;
use freehold_apiserver_cache::{
    Annotations, Entry,
    codec::{self, Stored},
};
use freehold_apiserver_storage::archive::{Decoder, Encoder, Header, Item, Kind, Record};
use freehold_tests_fuzz::Fuzz;

fn record(key: &str, value: &[u8]) -> Record {
    Record {
        key: Bytes::copy_from_slice(key.as_bytes()),
        created: 1,
        modified: 2,
        value: Bytes::copy_from_slice(value),
    }
}

fn seeds() -> [Vec<Record>; 3] {
    let map = record(
        "planes/p/core/configmaps/default/a",
        b"\x01{\"metadata\":{\"name\":\"a\",\"namespace\":\"default\",\"uid\":\"u\",\"annotations\":{\"a\":\"b\"}},\"data\":{\"k\":[1.5,null]}}",
    );
    let gone = record("planes/p/core/configmaps/default/b", &[0]);
    let definition = record(
        "planes/p/apiextensions.k8s.io/customresourcedefinitions/things.example.com",
        b"\x01{\"metadata\":{\"uid\":\"u\",\"name\":\"things.example.com\"}}",
    );
    [vec![map.clone()], vec![map, gone], vec![definition]]
}

fn archive(records: &[Record]) -> Vec<u8> {
    let mut encoder =
        Encoder::new(&Header::new(Kind::Plane, 1, String::new())).expect("an archive can be written");
    records.iter().for_each(|record| encoder.push(record).expect("an archive can be written"));
    let mut bytes = encoder.take().to_vec();
    bytes.extend_from_slice(&encoder.finish());
    bytes
}

/// Reads an archive in pieces; the records that are accepted, and how it ended.
fn read(bytes: &[u8]) -> (Vec<Record>, String) {
    let (mut decoder, mut accepted) = (Decoder::default(), Vec::new());
    for piece in bytes.chunks(61) {
        decoder.feed(piece);
        loop {
            match decoder.next_item() {
                Ok(Some(Item::Record(record))) => match check(&record) {
                    Ok(_) => accepted.push(record),
                    Err(status) => return (accepted, status.message),
                },
                Ok(Some(Item::Header(_))) => {}
                Ok(None) => break,
                Err(error) => return (accepted, error.to_string()),
            }
        }
    }
    let end = decoder.finish().map_or_else(|error| error.to_string(), |_| "whole".to_owned());
    (accepted, end)
}

#[test]
fn archives_are_read_to_their_end_or_refused() {
    let words = ["freehold archive 1\n", "\"kind\":\"plane\"", "planes/", "\u{1}", "\u{0}\u{0}\u{0}\u{1}"];
    let seeds = seeds().map(|records| archive(&records));
    Fuzz::new("archives", seeds, 5_000).words(&words).run(|bytes| read(bytes).1);
}

#[test]
fn records_of_archives_that_are_accepted_can_be_decoded_by_any_client() {
    let words = [
        "\"metadata\":",
        "\"name\":\"a\"",
        "\"uid\":",
        "\"annotations\":{",
        "[[[[[[[[",
        "\\ud800",
        "1e999",
        "..",
        "/",
    ];
    // Keys and values are tried by themselves: a digest keeps what is changed of a whole archive from being read at all.
    let seeds =
        seeds().into_iter().flatten().map(|record| [&record.key[..], b"\n", &record.value[..]].concat());
    Fuzz::new("records of archives", seeds, 20_000).words(&words).run(|bytes| {
        let split = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
        let value = bytes.get(split + 1..).unwrap_or_default();
        let record = record(&String::from_utf8_lossy(&bytes[..split]), value);
        let path = match check(&record) {
            Ok(path) => path,
            Err(status) => return status.message,
        };
        let Some(Stored::Json(json)) = codec::decode(&record.value) else { return "a whiteout".to_owned() };
        let entry = Entry::new(&json, 1, 7).expect("it was checked");
        let annotated = entry.item_with(&Annotations::new(&[("p", "own")]));
        let annotated = annotated.slice(..annotated.len() - 1);
        for bytes in [&entry.json(), &annotated] {
            let object: serde_json::Value = serde_json::from_slice(bytes).expect("a client reads it");
            assert_eq!(
                (&object["metadata"]["name"], &object["metadata"]["resourceVersion"]),
                (&path.name.as_str().into(), &"7".into())
            );
        }
        let shown: serde_json::Value = serde_json::from_slice(&annotated).expect("JSON");
        assert_eq!(shown["metadata"]["annotations"]["p"], "own");
        "an object".to_owned()
    });
}
