//! Decoders: JSON and protobuf.

use super::{WORDS, objects};
use freehold_machinery::{Value, strict};
use freehold_machinery_patch::apply::FieldSet;
use freehold_machinery_protobuf as protobuf;
use freehold_tests_fuzz::Fuzz;

#[test]
fn json_that_is_read_reads_back_as_it_is_written() {
    let seeds = objects().into_iter().map(|object| object.to_string().into_bytes());
    Fuzz::new("json", seeds, 4_000).words(WORDS).run(|bytes| match strict::decode_json(bytes) {
        Ok((value, duplicates)) => {
            let written = serde_json::to_vec(&value).unwrap();
            let again = strict::decode_json(&written).unwrap();
            assert_eq!(again, (value, Vec::new()));
            format!("read {}", duplicates.len().min(1))
        }
        Err(why) => {
            assert!(serde_json::from_slice::<Value>(bytes).is_err(), "{why}");
            why
        }
    });
}

#[test]
fn protobuf_that_is_read_reads_back_as_it_is_written() {
    let seeds: Vec<Vec<u8>> = objects().iter().filter_map(protobuf::encode).collect();
    assert!(seeds.len() > 50);
    Fuzz::new("protobuf", seeds, 4_000).words(WORDS).words(&["k8s\0", "v1", "Pod"]).run(|bytes| {
        let value = match protobuf::decode(bytes) {
            Ok(value) => value,
            Err(why) => return why.to_string(),
        };
        let Some(written) = protobuf::encode(&value) else { return "no message".to_owned() };
        assert_eq!(protobuf::decode(&written).unwrap(), value);
        format!("read {}", value["kind"])
    });
}

#[test]
fn objects_of_any_shape_become_protobuf_or_are_refused() {
    Fuzz::new("objects in protobuf", objects(), 4_000).words(WORDS).run(|object| {
        let names = (object["apiVersion"].as_str(), object["kind"].as_str());
        let (Some(version), Some(kind)) = names else { return "no kind".to_owned() };
        let Some(message) = protobuf::Kind::of(version, kind) else { return "no message".to_owned() };
        let json = object.to_string();
        // What no decoder reads is never there to be written.
        if let Err(why) = strict::decode_json(json.as_bytes()) {
            return why;
        }
        match message.encode(json.as_bytes()) {
            Ok(bytes) => {
                let once = protobuf::decode(&bytes).unwrap();
                let twice = protobuf::decode(&message.encode(once.to_string().as_bytes()).unwrap()).unwrap();
                assert_eq!(once, twice);
                format!("written {kind}")
            }
            Err(why) => why.to_string(),
        }
    });
}

#[test]
fn sets_of_fields_that_are_read_read_back_as_they_are_written() {
    let seeds = [serde_json::json!({
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {"v:\"x\"": {}}},
        "f:spec": {"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "i:3": {}}}},
    })];
    let words = [".", "f:a", "k:{\"name\":\"a\"}", "v:1", "v:{}", "i:0", "i:-1", "k:[]", "f:", "x:"];
    Fuzz::new("sets of fields", seeds, 20_000).words(&words).run(|json| match FieldSet::from_json(json) {
        Ok(set) => {
            assert_eq!(FieldSet::from_json(&set.to_json()), Ok(set));
            "read".to_owned()
        }
        Err(why) => format!("{why:?}"),
    });
}
