//! Merge patch.

use freehold_machinery::Value;

/// Applies a merge patch (RFC 7386): objects are merged, `null` removes, all else replaces.
pub fn merge(target: &Value, patch: &Value) -> Value {
    let mut result = target.clone();
    json_patch::merge(&mut result, patch);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Map, json};

    #[test]
    fn merge_patch_does_what_rfc_7386_lists() {
        let rows = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (target, patch, expected) in rows {
            assert_eq!(merge(&target, &patch), expected, "{target} + {patch}");
        }
    }

    /// The patch that makes `to` of `from`.
    fn diff(from: &Value, to: &Value) -> Value {
        let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
        let mut patch = Map::new();
        for key in from.keys().filter(|key| !to.contains_key(*key)) {
            patch.insert(key.clone(), Value::Null);
        }
        for (key, value) in to {
            match from.get(key) {
                Some(before) if before == value => {}
                Some(before) => drop(patch.insert(key.clone(), diff(before, value))),
                None => drop(patch.insert(key.clone(), value.clone())),
            }
        }
        Value::Object(patch)
    }

    fn object() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![(0..3).prop_map(Value::from), "[ab]".prop_map(Value::from)];
        let value = leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..3).prop_map(|map| map.into_iter().collect()),
            ]
        });
        prop::collection::btree_map("[abc]", value, 0..3).prop_map(|map| map.into_iter().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn merging_a_difference_gives_the_other_value(from in object(), to in object()) {
            prop_assert_eq!(merge(&from, &diff(&from, &to)), to);
        }
    }
}
