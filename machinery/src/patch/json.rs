//! JSON patch, with limits on what a small patch can make of an object.

use super::{json_kind, rejected};
use crate::{
    Value,
    status::{Result, Status},
};
use json_patch::{PatchError, PatchErrorKind, PatchOperation, jsonptr::Pointer, patch_unsafe};

/// The most operations that a JSON patch can have, as in kube-apiserver.
pub const MAX_OPERATIONS: usize = 10_000;
/// The most bytes that the `copy` operations of a patch can copy in all, as in kube-apiserver.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;
/// The deepest object that a patch can make: what decoders here read back, with some to spare.
pub const MAX_DEPTH: usize = 120;

/// Applies a JSON patch (RFC 6902).
///
/// 400: not a patch; 413: more than [`MAX_OPERATIONS`]; 422: an operation can't be applied, a test fails, or the result
/// would be larger than the limits allow.
pub fn json(target: &Value, patch: &Value) -> Result<Value> {
    json_where_tests_hold(target, patch)?.ok_or_else(rejected)
}

/// [`json`], with `None` where a `test` does not hold.
///
/// # Errors
/// See [`json`].
pub fn json_where_tests_hold(target: &Value, patch: &Value) -> Result<Option<Value>> {
    let operations = operations(patch)?;
    let mut session = Session { result: target.clone(), copied: 0, depth_bound: depth(target) };
    for operation in operations {
        // An operation of an unknown kind, or without a path, fails when it is applied, not when it is read.
        let operation = serde_json::from_value(operation.clone()).map_err(|_| rejected())?;
        if !session.apply(operation)? {
            return Ok(None);
        }
    }
    Ok(Some(session.result))
}

fn operations(patch: &Value) -> Result<&[Value]> {
    let unreadable = |kind: &str, wanted: &str| {
        Status::bad_request(format!("json: cannot unmarshal {kind} into Go value of type jsonpatch.{wanted}"))
    };
    let operations = patch.as_array().ok_or_else(|| unreadable(json_kind(patch), "Patch"))?;
    if operations.len() > MAX_OPERATIONS {
        let found = operations.len();
        let limit =
            format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {found}");
        return Err(Status::new(413, "RequestEntityTooLarge", format!("Request entity too large: {limit}")));
    }
    match operations.iter().find(|operation| !operation.is_object()) {
        Some(other) => Err(unreadable(json_kind(other), "Operation")),
        None => Ok(operations),
    }
}

struct Session {
    result: Value,
    copied: usize,
    /// At least the result's depth. Measuring it anew with each operation would be too slow.
    depth_bound: usize,
}

impl Session {
    /// Gives whether it is no test that does not hold.
    fn apply(&mut self, operation: PatchOperation) -> Result<bool> {
        self.count_copy(&operation)?;
        let placed = match &operation {
            PatchOperation::Add(op) => Some(depth(&op.value)),
            PatchOperation::Replace(op) => Some(depth(&op.value)),
            PatchOperation::Move(_) | PatchOperation::Copy(_) => Some(self.depth_bound),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => None,
        };
        if let PatchOperation::Test(test) = &operation
            && test.value.is_null()
            && is_missing(&self.result, &test.path)
        {
            return Ok(true);
        }
        let operation = added_where_absent(operation, &self.result);
        let at = operation.path().count();
        match patch_unsafe(&mut self.result, &[operation]) {
            Ok(()) => {}
            Err(PatchError { kind: PatchErrorKind::TestFailed, .. }) => return Ok(false),
            Err(_) => return Err(rejected()),
        }
        let Some(placed) = placed else { return Ok(true) };
        self.depth_bound = self.depth_bound.max(at + placed);
        if self.depth_bound > MAX_DEPTH {
            self.depth_bound = depth(&self.result);
        }
        if self.depth_bound > MAX_DEPTH { Err(rejected()) } else { Ok(true) }
    }

    fn count_copy(&mut self, operation: &PatchOperation) -> Result<()> {
        let PatchOperation::Copy(copy) = operation else { return Ok(()) };
        let from: &Pointer = &copy.from;
        self.copied += self.result.pointer(from.as_str()).map_or(0, size);
        if self.copied > MAX_COPIED_BYTES { Err(rejected()) } else { Ok(()) }
    }
}

/// Whether a map has no such field: a test for `null` holds then, which is how clients say "nobody has set it".
fn is_missing(value: &Value, path: &Pointer) -> bool {
    let Some((parent, last)) = path.split_back() else { return false };
    let parent = value.pointer(parent.as_str()).and_then(Value::as_object);
    parent.is_some_and(|map| !map.contains_key(last.decoded().as_ref()))
}

/// A replacement of a key that is not there adds it, as in the library that Kubernetes uses.
fn added_where_absent(operation: PatchOperation, target: &Value) -> PatchOperation {
    let PatchOperation::Replace(replace) = &operation else { return operation };
    let parent = replace.path.parent().and_then(|parent| target.pointer(parent.as_str()));
    let absent = target.pointer(replace.path.as_str()).is_none();
    match absent && parent.is_some_and(Value::is_object) {
        true => PatchOperation::Add(json_patch::AddOperation {
            path: replace.path.clone(),
            value: replace.value.clone(),
        }),
        false => operation,
    }
}

/// How many maps and lists are within each other.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// About how many bytes the value has as JSON.
fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| size(item) + 1).sum::<usize>(),
        Value::Object(map) => 2 + map.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>(),
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// The operations that make `to` of `from`.
    fn difference(path: &str, from: &Value, to: &Value, operations: &mut Vec<Value>) {
        let mut operate = |op: &str, path: String, value: Option<&Value>| {
            operations.push(json!({"op": op, "path": path, "value": value}));
        };
        match (from, to) {
            (from, to) if from == to => {}
            (Value::Object(old), Value::Object(new)) => {
                let below = |key: &str| format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"));
                old.keys()
                    .filter(|key| !new.contains_key(*key))
                    .for_each(|key| operate("remove", below(key), None));
                new.iter()
                    .filter(|(key, _)| !old.contains_key(*key))
                    .for_each(|(key, value)| operate("add", below(key), Some(value)));
                for (key, value) in new {
                    if let Some(before) = old.get(key) {
                        difference(&below(key), before, value, operations);
                    }
                }
            }
            (Value::Array(old), Value::Array(new)) => {
                (new.len()..old.len())
                    .rev()
                    .for_each(|index| operate("remove", format!("{path}/{index}"), None));
                new.iter().skip(old.len()).for_each(|value| operate("add", format!("{path}/-"), Some(value)));
                for (index, (before, after)) in old.iter().zip(new).enumerate() {
                    difference(&format!("{path}/{index}"), before, after, operations);
                }
            }
            (_, to) => operate("replace", path.to_owned(), Some(to)),
        }
    }

    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![(0..3).prop_map(Value::from), Just(Value::Null), "[ab]".prop_map(Value::from)];
        let map = |inner| {
            prop::collection::btree_map("[a~/]{0,2}", inner, 0..4).prop_map(|map| map.into_iter().collect())
        };
        let value = leaf.prop_recursive(3, 24, 4, move |inner| {
            prop_oneof![prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from), map(inner)]
        });
        prop::collection::btree_map("[a~/]{0,2}", value, 0..4).prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn a_difference_as_a_json_patch_gives_the_other_value(from in object(), to in object()) {
            let mut operations = Vec::new();
            difference("", &from, &to, &mut operations);
            prop_assert_eq!(json(&from, &operations.into()), Ok(to));
        }
    }

    #[test]
    fn json_patches_apply_in_order() {
        let target = json!({"a": {"b": [1, 2]}, "c~/": 1});
        let rows = [
            (json!([]), target.clone()),
            (json!([{"op": "add", "path": "/a/b/-", "value": 3}]), json!({"a": {"b": [1, 2, 3]}, "c~/": 1})),
            (json!([{"op": "remove", "path": "/c~0~1"}]), json!({"a": {"b": [1, 2]}})),
            (
                json!([{"op": "test", "path": "/a/b/0", "value": 1}, {"op": "replace", "path": "/a", "value": 0}]),
                json!({"a": 0, "c~/": 1}),
            ),
            (json!([{"op": "test", "path": "/a/none", "value": null}]), target.clone()),
            (json!([{"op": "move", "from": "/a/b", "path": "/d"}]), json!({"a": {}, "c~/": 1, "d": [1, 2]})),
            (
                json!([{"op": "copy", "from": "/a/b/1", "path": "/a/b/0"}]),
                json!({"a": {"b": [2, 1, 2]}, "c~/": 1}),
            ),
        ];
        for (patch, expected) in rows {
            assert_eq!(json(&target, &patch), Ok(expected), "{patch}");
        }
    }

    #[test]
    fn json_patches_that_fail_get_kubernetes_codes() {
        let add = json!({"op": "add", "path": "/a", "value": 1});
        let rows = [
            (json!({}), 400, "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
            (json!(["add"]), 400, "json: cannot unmarshal string into Go value of type jsonpatch.Operation"),
            (json!([{"op": "frob", "path": "/a"}]), 422, "the server rejected our request"),
            (json!([{"op": "remove", "path": "/gone"}]), 422, "the server rejected our request"),
            (
                json!([{"op": "test", "path": "/gone/a", "value": null}]),
                422,
                "the server rejected our request",
            ),
            (json!([{"op": "test", "path": "/a", "value": null}]), 422, "the server rejected our request"),
            (json!([{"op": "test", "path": "/a", "value": 2}]), 422, "the server rejected our request"),
            (json!([{"op": "add", "path": "/gone/b", "value": 2}]), 422, "the server rejected our request"),
            (
                Value::from(vec![add; MAX_OPERATIONS + 1]),
                413,
                "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
            ),
        ];
        for (patch, code, message) in rows {
            let status = json(&json!({"a": 1}), &patch).unwrap_err();
            assert_eq!((status.code, status.message.starts_with(message)), (code, true), "{status}");
        }
    }

    #[test]
    fn a_patch_can_neither_blow_an_object_up_nor_nest_it_without_end() {
        let double = json!({"op": "copy", "from": "/a", "path": "/a/-"});
        let bomb = Value::from(vec![double; 100]);
        assert_eq!(json(&json!({"a": ["x".repeat(100)]}), &bomb).map_err(|status| status.code), Err(422));
        let deeper = [
            json!({"op": "add", "path": "/b", "value": {}}),
            json!({"op": "move", "from": "/a", "path": "/b/a"}),
            json!({"op": "move", "from": "/b", "path": "/a"}),
        ];
        let nest: Value = deeper.iter().cycle().take(3 * MAX_DEPTH).cloned().collect();
        assert_eq!(json(&json!({"a": 1}), &nest).map_err(|status| status.code), Err(422));
        let shuffle = [
            json!({"op": "move", "from": "/a", "path": "/b"}),
            json!({"op": "move", "from": "/b", "path": "/a"}),
        ];
        let harmless: Value = shuffle.iter().cycle().take(3 * MAX_DEPTH).cloned().collect();
        assert_eq!(json(&json!({"a": 1}), &harmless), Ok(json!({"a": 1})));
    }
}
