//! Patches of any shape, on objects of any shape.

use super::{WORDS, objects, schema};
use freehold_machinery::Value;
use freehold_machinery_patch as patch;
use freehold_tests_fuzz::Fuzz;
use serde_json::json;

/// A list of an object and a patch of it, from each object and the next one's parts.
fn pairs() -> Vec<Value> {
    let objects = objects();
    objects
        .iter()
        .zip(objects.iter().cycle().skip(1))
        .map(|(object, other)| json!([object, {"metadata": other["metadata"], "spec": object["spec"]}]))
        .collect()
}

fn deepest(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(deepest).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(deepest).max().unwrap_or(0),
        _ => 1,
    }
}

#[test]
fn a_strategic_patch_is_applied_or_refused() {
    Fuzz::new("strategic merge", pairs(), 3_000).words(WORDS).run(|pair| {
        let Some(schema) = schema(&pair[0]) else { return "no schema".to_owned() };
        match patch::strategic(&pair[0], &pair[1], schema) {
            Ok(patched) => {
                assert_eq!(patch::strategic(&patched, &json!({}), schema).unwrap(), patched);
                format!("patched {}", pair[0]["kind"])
            }
            Err(status) => status.message,
        }
    });
}

#[test]
fn a_merge_patch_done_twice_is_done_once() {
    Fuzz::new("merge patch", pairs(), 3_000).words(WORDS).run(|pair| {
        let once = patch::merge(&pair[0], &pair[1]);
        assert_eq!(patch::merge(&once, &pair[1]), once);
        "patched".to_owned()
    });
}

#[test]
fn a_json_patch_is_applied_or_refused_and_makes_nothing_too_deep() {
    let operations = [
        json!([{"op": "add", "path": "/spec/x", "value": 1}, {"op": "test", "path": "/spec/x", "value": 1}]),
        json!([{"op": "copy", "from": "/spec", "path": "/spec/y"}, {"op": "remove", "path": "/spec/y"}]),
        json!([{"op": "move", "from": "/metadata/name", "path": "/a~1b~0"}, {"op": "replace", "path": "", "value": {}}]),
        json!([{"op": "add", "path": "/spec/ports/-", "value": {}}, {"op": "add", "path": "/spec/ports/0", "value": []}]),
    ];
    let seeds = objects()
        .into_iter()
        .zip(operations.into_iter().cycle())
        .map(|(object, patch)| json!([object, patch]));
    let words = [
        "op",
        "path",
        "from",
        "value",
        "add",
        "remove",
        "replace",
        "move",
        "copy",
        "test",
        "/spec",
        "/metadata/labels",
        "/-",
    ];
    Fuzz::new("JSON patch", seeds, 6_000).words(&words).run(|pair| {
        let depth = deepest(&pair[0]);
        match patch::json(&pair[0], &pair[1]) {
            Ok(patched) => {
                assert!(deepest(&patched) <= depth.max(patch::MAX_DEPTH + 1), "{}", deepest(&patched));
                "patched".to_owned()
            }
            Err(status) => status.message,
        }
    });
}
