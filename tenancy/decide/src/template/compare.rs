//! Whether an object is as a template has it, as far as the template says something about it.

use freehold_machinery::Value;
use freehold_machinery::quantity::Quantity;

/// How many fields a comparison names.
const MAX_FIELDS: usize = 20;

/// Whether a live object has everything that the desired one has.
pub fn is_applied(live: &Value, desired: &Value) -> bool {
    let mut found = Vec::new();
    compare(live, desired, "", &mut found, 1);
    found.is_empty()
}

/// The first fields in which a live object is not as desired.
pub fn differences(live: &Value, desired: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(live, desired, "", &mut found, MAX_FIELDS);
    found
}

/// Whether a value says nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(is_empty),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

fn compare(live: &Value, desired: &Value, path: &str, found: &mut Vec<String>, limit: usize) {
    if found.len() >= limit {
        return;
    }
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            for (key, wanted) in desired {
                let below = format!("{path}.{key}");
                match live.get(key) {
                    Some(value) => compare(value, wanted, &below, found, limit),
                    None if is_empty(wanted) => {}
                    None => found.push(below),
                }
                if found.len() >= limit {
                    return;
                }
            }
        }
        (Value::Array(live), Value::Array(desired)) => compare_lists(live, desired, path, found, limit),
        (live, desired) if is_equal(live, desired) => {}
        _ => found.push(path.to_owned()),
    }
}

/// Lists may have further items of others; items with a name are compared by it.
fn compare_lists(live: &[Value], desired: &[Value], path: &str, found: &mut Vec<String>, limit: usize) {
    for (at, wanted) in desired.iter().enumerate() {
        let below = format!("{path}[{at}]");
        let named = ["name", "containerPort", "port", "key", "mountPath", "ip", "type", "uid"]
            .iter()
            .find_map(|field| {
                let name = wanted.get(field)?;
                live.iter().find(|item| item.get(field) == Some(name))
            });
        match named.or_else(|| live.iter().find(|item| is_applied(item, wanted))).or_else(|| live.get(at)) {
            Some(item) => compare(item, wanted, &below, found, limit),
            None => found.push(below),
        }
        if found.len() >= limit {
            return;
        }
    }
}

fn is_equal(live: &Value, desired: &Value) -> bool {
    if live == desired || (is_empty(live) && is_empty(desired)) {
        return true;
    }
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    // Servers write quantities in their canonical form.
    match (text(live), text(desired)) {
        (Some(a), Some(b)) => match (a.parse::<Quantity>(), b.parse::<Quantity>()) {
            (Ok(a), Ok(b)) => a == b,
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_servers_and_others_add_is_no_difference() {
        let live = json!({
            "metadata": {"name": "a", "uid": "u", "labels": {"x": "1", "y": "2"}},
            "spec": {"replicas": 3, "containers": [{"name": "side"}, {"name": "c", "image": "i", "resources": {"limits": {"cpu": "500m"}}}]},
        });
        let desired = json!({
            "metadata": {"name": "a", "labels": {"x": "1"}, "annotations": {}},
            "spec": {"replicas": 3, "containers": [{"name": "c", "resources": {"limits": {"cpu": "0.5"}}, "env": []}]},
        });
        assert!(is_applied(&live, &desired), "{:?}", differences(&live, &desired));
    }

    #[test]
    fn changed_and_missing_fields_are_named() {
        let live =
            json!({"spec": {"replicas": 3, "paused": true, "containers": [{"name": "c", "image": "i"}]}});
        let desired = json!({"spec": {"replicas": 4, "containers": [{"name": "c", "image": "j"}, {"name": "d"}], "strategy": "x"}});
        let expected =
            [".spec.containers[0].image", ".spec.containers[1]", ".spec.replicas", ".spec.strategy"];
        let mut found = differences(&live, &desired);
        found.retain(|field| !field.ends_with("[1].name"));
        found.sort();
        assert!(
            expected.iter().filter(|e| !e.ends_with("[1]")).all(|e| found.contains(&(*e).to_owned())),
            "{found:?}"
        );
        assert!(!is_applied(&json!({}), &json!({"a": 1})));
    }
}
