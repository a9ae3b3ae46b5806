//! Every built-in kind with every field set, as Kubernetes' own code writes it in JSON and in protobuf.
//!
//! `kinds.gz` is made by `go run . golden FILE` in `tests/content`: a line for each kind, its JSON and its protobuf.

use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::Value;
use freehold_machinery_protobuf::{decode, encode};
use std::io::Read;

/// JSON and protobuf of each kind.
fn kinds() -> Vec<(Value, Vec<u8>)> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(&include_bytes!("kinds.gz")[..]).read_to_string(&mut text).expect("gzip");
    let line = |line: &str| {
        let (json, binary) = line.rsplit_once(' ').expect("two parts");
        (serde_json::from_str(json).expect("JSON"), BASE64_STANDARD.decode(binary).expect("base64"))
    };
    text.lines().map(line).collect()
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(|map| map.is_empty())
}

/// Where two objects differ first.
fn difference(path: &str, left: &Value, right: &Value) -> Option<String> {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => a.keys().chain(b.keys()).find_map(|key| {
            let child = format!("{path}.{key}");
            match (a.get(key), b.get(key)) {
                (Some(a), Some(b)) => difference(&child, a, b),
                // What Go writes for pointers to nothing, and for structs that are empty.
                (Some(empty), None) | (None, Some(empty)) if is_empty(empty) => None,
                (a, b) => Some(format!("{child}: {a:?} and {b:?}")),
            }
        }),
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| difference(&format!("{path}[{i}]"), a, b))
        }
        (a, b) => (a != b).then(|| format!("{path}: {a} and {b}")),
    }
}

#[test]
fn what_kubernetes_writes_is_read_as_its_own_json() {
    let kinds = kinds();
    assert!(kinds.len() > 80, "{}", kinds.len());
    let wrong: Vec<String> = kinds
        .iter()
        .filter_map(|(json, binary)| {
            let kind = format!("{} {}", json["apiVersion"], json["kind"]);
            match decode(binary) {
                Ok(read) => difference(&kind, &read, json),
                Err(why) => Some(format!("{kind}: {why}")),
            }
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_is_written_from_that_json_is_read_back_as_it() {
    for (json, binary) in kinds() {
        let kind = format!("{} {}", json["apiVersion"], json["kind"]);
        let written = encode(&json).unwrap_or_else(|| panic!("{kind} is not written"));
        let read = decode(&written).unwrap_or_else(|why| panic!("{kind}: {why}"));
        assert_eq!(difference(&kind, &read, &json), None);
        // All that Go writes beyond it are the empty fields that Go always writes, and it writes no more than Go.
        assert!(
            written.len() <= binary.len() + binary.len() / 20,
            "{kind}: {} {}",
            written.len(),
            binary.len()
        );
    }
}
