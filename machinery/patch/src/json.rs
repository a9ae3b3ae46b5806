//! JSON patch (RFC 6902), with limits on how far a small patch can expand an object.
//!
//! Applied as the library does it that kube-apiserver uses (evanphx/json-patch, version 4), and refused in its words: an
//! operation without a value has the value null, a replacement adds the key that is not there, negative indices count from
//! the end of a list, and whatever stands before the first slash of a path counts for nothing.

use crate::words::rejected;
use freehold_machinery::{
    Map, Value, go,
    status::{Result, Status},
};
use std::num::IntErrorKind;

/// The most operations that a JSON patch can have, as in kube-apiserver.
pub const MAX_OPERATIONS: usize = 10_000;
/// The most bytes that the `copy` operations of a patch can copy in all, as in kube-apiserver.
pub const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;
/// The deepest object that a patch can make: what decoders here read back, with some to spare.
pub const MAX_DEPTH: usize = 120;

/// Why a patch can't be applied.
#[derive(Clone, Debug, PartialEq)]
pub enum Unapplied {
    /// A `test` does not hold.
    Test(String),
    /// It is no patch, or an operation can't be done.
    Operation(String),
}

impl Unapplied {
    /// The reason in words, for the client's message.
    pub fn why(self) -> String {
        match self {
            Self::Test(why) | Self::Operation(why) => why,
        }
    }
}

impl From<String> for Unapplied {
    fn from(why: String) -> Self {
        Self::Operation(why)
    }
}

/// Applies a JSON patch (RFC 6902) that a client sent.
///
/// # Errors
/// 400: not a patch. 413: more than [`MAX_OPERATIONS`]. 422: an operation cannot be applied, a test fails, or the
/// result would exceed the limits; kube-apiserver does not tell which.
pub fn json(target: &Value, patch: &Value) -> Result<Value> {
    if let Value::Array(operations) = patch
        && operations.len() > MAX_OPERATIONS
    {
        let limit = format!("Request entity too large: {}", too_many(operations.len()));
        return Err(Status::new(413, "RequestEntityTooLarge", limit));
    }
    operations(patch).map_err(Status::bad_request)?;
    json_in_words(target, patch).map_err(|_| rejected())
}

/// [`json`], of a patch that the server got from somebody else than its client.
///
/// # Errors
/// The reason, as the library tells it.
pub fn json_in_words(target: &Value, patch: &Value) -> Result<Value, Unapplied> {
    let operations = operations(patch)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(too_many(operations.len()).into());
    }
    let mut session = Session { result: target.clone(), copied: 0, depth_bound: depth(target) };
    operations.iter().try_for_each(|operation| session.apply(&Operation(operation.as_object())))?;
    Ok(session.result)
}

/// What a strict reader of a patch finds in it: fields that operations don't have.
///
/// # Errors
/// What of it is no text and should be.
pub fn json_unknown(patch: &Value) -> Result<Vec<String>, String> {
    let operations = patch.as_array().into_iter().flatten().filter_map(Value::as_object);
    let mut unknown = Vec::new();
    for (index, operation) in operations.enumerate() {
        for (field, value) in operation {
            match field.as_str() {
                "op" | "path" | "from" if !value.is_string() && !value.is_null() => {
                    let kind = go::word(value);
                    return Err(format!(
                        "json: cannot unmarshal {kind} into Go struct field jsonPatchOp.{field} of type string"
                    ));
                }
                "op" | "path" | "from" | "value" => {}
                _ => unknown.push(format!("unknown field \"[{index}].{field}\"")),
            }
        }
    }
    Ok(unknown)
}

fn too_many(found: usize) -> String {
    format!("The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {found}")
}

/// The operations of a patch; null is a patch without any.
fn operations(patch: &Value) -> Result<&[Value], String> {
    let unreadable = |value: &Value, wanted: &str| {
        format!("json: cannot unmarshal {} into Go value of type jsonpatch.{wanted}", go::word(value))
    };
    let operations = match patch {
        Value::Null => &[][..],
        Value::Array(operations) => operations,
        other => return Err(unreadable(other, "Patch")),
    };
    match operations.iter().find(|operation| !operation.is_object() && !operation.is_null()) {
        Some(other) => Err(unreadable(other, "Operation")),
        None => Ok(operations),
    }
}

/// One operation; null is one without any field.
struct Operation<'a>(Option<&'a Map>);

impl<'a> Operation<'a> {
    fn field(&self, name: &str) -> Option<&'a Value> {
        self.0?.get(name)
    }

    fn kind(&self) -> &'a str {
        self.field("op").and_then(Value::as_str).unwrap_or("unknown")
    }

    /// What the operation does with its value; one that is left out is null.
    fn value(&self) -> Value {
        self.field("value").cloned().unwrap_or_default()
    }

    fn path(&self) -> Result<&'a str, String> {
        self.text("path", "operation missing path field: missing value")
    }

    fn from(&self) -> Result<&'a str, String> {
        self.text("from", "operation, missing from field: missing value")
    }

    fn text(&self, name: &str, missing: &str) -> Result<&'a str, String> {
        match self.field(name) {
            None | Some(Value::Null) => Err(missing.to_owned()),
            Some(Value::String(text)) => Ok(text),
            Some(other) => {
                Err(format!("json: cannot unmarshal {} into Go value of type string", go::word(other)))
            }
        }
    }
}

struct Session {
    result: Value,
    copied: usize,
    /// At least the result's depth. Measuring it anew with each operation would be too slow.
    depth_bound: usize,
}

impl Session {
    fn apply(&mut self, operation: &Operation<'_>) -> Result<(), Unapplied> {
        let placed = match operation.kind() {
            "add" => self.add(operation)?,
            "remove" => self.remove(operation)?,
            "replace" => self.replace(operation)?,
            "move" => self.relocate(operation)?,
            "copy" => self.copy(operation)?,
            "test" => return self.test(operation),
            other => return Err(format!("Unexpected kind: {other}").into()),
        };
        let at = operation.path()?.split('/').count() - 1;
        self.depth_bound = self.depth_bound.max(at + placed);
        if self.depth_bound > MAX_DEPTH {
            self.depth_bound = depth(&self.result);
        }
        match self.depth_bound > MAX_DEPTH {
            true => Err("the object would be nested too deeply".to_owned().into()),
            false => Ok(()),
        }
    }

    /// Gives the depth of what it has placed, as those that follow do.
    fn add(&mut self, operation: &Operation<'_>) -> Result<usize, String> {
        let path = operation.path().map_err(|_| "add operation failed to decode path: missing value")?;
        let missing =
            || format!("add operation does not apply: doc is missing path: \"{path}\": missing value");
        let (parent, key) = find(&mut self.result, path).ok_or_else(missing)?;
        let value = operation.value();
        let placed = depth(&value);
        insert(parent, key, value).map_err(|why| format!("error in add for path: '{path}': {why}"))?;
        Ok(placed)
    }

    fn remove(&mut self, operation: &Operation<'_>) -> Result<usize, String> {
        let path = operation.path().map_err(|_| "remove operation failed to decode path: missing value")?;
        let missing =
            || format!("remove operation does not apply: doc is missing path: \"{path}\": missing value");
        let (parent, key) = find(&mut self.result, path).ok_or_else(missing)?;
        take(parent, &key).map_err(|why| format!("error in remove for path: '{path}': {why}"))?;
        Ok(0)
    }

    fn replace(&mut self, operation: &Operation<'_>) -> Result<usize, String> {
        let path =
            operation.path().map_err(|why| format!("replace operation failed to decode path: {why}"))?;
        let (value, missing) = (operation.value(), "replace operation does not apply: doc is missing");
        let placed = depth(&value);
        if path.is_empty() {
            if placed == 0 {
                return Err("replace operation value must be object or array: %!w(<nil>)".to_owned());
            }
            self.result = value;
            return Ok(placed);
        }
        let (parent, key) =
            find(&mut self.result, path).ok_or_else(|| format!("{missing} path: {path}: missing value"))?;
        match parent {
            Value::Array(items) => {
                let index = index(&key, items.len())
                    .ok()
                    .ok_or_else(|| format!("{missing} key: {path}: missing value"))?;
                items[index] = value;
            }
            parent => parent[&key] = value,
        }
        Ok(placed)
    }

    fn relocate(&mut self, operation: &Operation<'_>) -> Result<usize, String> {
        let from = operation.from().map_err(|why| format!("move operation failed to decode from: {why}"))?;
        let missing = |what: &str, path: &str| {
            format!("move operation does not apply: doc is missing {what} path: {path}: missing value")
        };
        let (parent, key) = find(&mut self.result, from).ok_or_else(|| missing("from", from))?;
        let value = take(parent, &key).map_err(|why| format!("error in move for path: '{key}': {why}"))?;
        let path = operation.path().map_err(|why| format!("move operation failed to decode path: {why}"))?;
        let (parent, key) = find(&mut self.result, path).ok_or_else(|| missing("destination", path))?;
        insert(parent, key, value).map_err(|why| format!("error in move for path: '{path}': {why}"))?;
        Ok(self.depth_bound)
    }

    fn copy(&mut self, operation: &Operation<'_>) -> Result<usize, String> {
        let from = operation.from().map_err(|why| format!("copy operation failed to decode from: {why}"))?;
        let missing = |what: &str, path: &str| {
            format!("copy operation does not apply: doc is missing {what} path: {path}: missing value")
        };
        let (parent, key) = find(&mut self.result, from).ok_or_else(|| missing("from", from))?;
        let value = get(parent, &key).map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
        let value = value.cloned().unwrap_or_default();
        let path = operation.path().map_err(|_| "copy operation failed to decode path: missing value")?;
        let (parent, key) = find(&mut self.result, path).ok_or_else(|| missing("destination", path))?;
        self.copied += size(&value);
        if self.copied > MAX_COPIED_BYTES {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of copy is {}, exceeding the limit \
                 {MAX_COPIED_BYTES}",
                self.copied
            ));
        }
        insert(parent, key, value).map_err(|why| format!("error while adding value during copy: {why}"))?;
        Ok(self.depth_bound)
    }

    /// Nothing and null are the same here, which is how clients say "nobody has set it".
    fn test(&mut self, operation: &Operation<'_>) -> Result<(), Unapplied> {
        let path = operation.path().map_err(|why| format!("test operation failed to decode path: {why}"))?;
        let value = operation.value();
        let holds = if path.is_empty() {
            self.result == value
        } else {
            let missing = || format!("test operation does not apply: is missing path: {path}: missing value");
            let (parent, key) = find(&mut self.result, path).ok_or_else(missing)?;
            let found =
                get(parent, &key).map_err(|why| format!("error in test for path: '{path}': {why}"))?;
            found.unwrap_or(&Value::Null) == &value
        };
        match holds {
            true => Ok(()),
            false => Err(Unapplied::Test(format!("testing value {path} failed: test failed"))),
        }
    }
}

/// The map or list in which the end of a path stands, and under which key.
fn find<'v>(value: &'v mut Value, path: &str) -> Option<(&'v mut Value, String)> {
    let (parents, key) = path.rsplit_once('/')?;
    let unescaped = |key: &str| key.replace("~1", "/").replace("~0", "~");
    let parent = parents.split('/').skip(1).try_fold(value, |value, part| match value {
        Value::Object(map) => map.get_mut(&unescaped(part)),
        Value::Array(items) => index(&unescaped(part), items.len()).ok().map(|index| &mut items[index]),
        _ => None,
    })?;
    (parent.is_object() || parent.is_array()).then(|| (parent, unescaped(key)))
}

/// Where in a list of this length a key points to; from its end where it is negative.
fn index(key: &str, length: usize) -> Result<usize, String> {
    let index: i64 = key.parse().map_err(|why: std::num::ParseIntError| {
        let range = matches!(why.kind(), IntErrorKind::PosOverflow | IntErrorKind::NegOverflow);
        let what = if range { "value out of range" } else { "invalid syntax" };
        format!("strconv.Atoi: parsing {key:?}: {what}")
    })?;
    let length = length as i64;
    let found = if index < 0 { index.saturating_add(length) } else { index };
    match (0..length).contains(&found) {
        true => Ok(found as usize),
        false => Err(format!("Unable to access invalid index: {index}: invalid index referenced")),
    }
}

fn get<'v>(parent: &'v Value, key: &str) -> Result<Option<&'v Value>, String> {
    match parent {
        Value::Array(items) => index(key, items.len()).map(|index| items.get(index)),
        parent => Ok(parent.get(key)),
    }
}

fn insert(parent: &mut Value, key: String, value: Value) -> Result<(), String> {
    match parent {
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let index = index(&key, items.len() + 1).map_err(|why| match why.starts_with("strconv") {
                true => format!("value was not a proper array index: '{key}': {why}"),
                false => why,
            })?;
            items.insert(index, value);
        }
        parent => parent[key] = value,
    }
    Ok(())
}

fn take(parent: &mut Value, key: &str) -> Result<Value, String> {
    match parent {
        Value::Array(items) => index(key, items.len()).map(|index| items.remove(index)),
        parent => parent
            .as_object_mut()
            .and_then(|map| map.remove(key))
            .ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value")),
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
