//! Lists whose items are told apart: sets and maps.

use super::{ListType, Schema, node::MAX_ERRORS};
use crate::{
    Map, Value,
    status::{FieldError, FieldErrorKind},
};
use std::{collections::HashMap, fmt::Write};

/// Items that stand twice in a set, or twice under the same keys in a map, anywhere in the value.
pub(super) fn duplicates(value: &Value, schema: &Schema) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(value, schema, &mut String::new(), &mut errors);
    errors
}

/// Items up to which a list is searched, and not put in order first.
const FEW: usize = 16;

/// A list of type map, in which items are found by their keys.
pub(super) struct Keyed<'a> {
    list: &'a [Value],
    keys: &'a [Box<str>],
    /// Items by their keys, in lists of more than [`FEW`]: clients choose the length, so a lookup must not depend on
    /// it.
    index: Option<HashMap<String, &'a Value>>,
}

impl<'a> Keyed<'a> {
    pub(super) fn new(list: &'a [Value], keys: &'a [Box<str>]) -> Self {
        let index = (list.len() > FEW).then(|| {
            let items = list.iter().rev();
            items.map(|item| (canonical(&key_of(item, keys)), item)).collect()
        });
        Self { list, keys, index }
    }

    /// The first item with the same keys as `item`.
    pub(super) fn same_as(&self, item: &Value) -> Option<&'a Value> {
        match &self.index {
            Some(index) => index.get(&canonical(&key_of(item, self.keys))).copied(),
            None => self
                .list
                .iter()
                .find(|other| self.keys.iter().all(|key| other.get(&**key) == item.get(&**key))),
        }
    }
}

/// Whether two items are equal.
pub(super) fn has_duplicates(list: &[Value]) -> bool {
    !repeated(list.iter().cloned()).is_empty()
}

fn key_of(item: &Value, keys: &[Box<str>]) -> Value {
    let pair = |k: &str| Some((k.to_owned(), item.get(k)?.clone()));
    Value::Object(keys.iter().filter_map(|k| pair(k)).collect::<Map>())
}

/// The index of each second appearance, with what appears.
fn repeated(items: impl Iterator<Item = Value>) -> Vec<(usize, Value)> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut found = Vec::new();
    for (index, item) in items.enumerate() {
        let times = seen.entry(canonical(&item)).or_default();
        *times += 1;
        if *times == 2 {
            found.push((index, item));
        }
    }
    found
}

/// JSON with sorted keys, so that equal values have equal texts.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut fields: Vec<(&String, &Value)> = map.iter().collect();
            fields.sort_unstable_by_key(|(k, _)| *k);
            let fields: Vec<String> = fields.iter().map(|(k, v)| format!("{k:?}:{}", canonical(v))).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Array(list) => format!("[{}]", list.iter().map(canonical).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

fn walk(value: &Value, schema: &Schema, path: &mut String, errors: &mut Vec<FieldError>) {
    let length = path.len();
    match value {
        Value::Object(map) => {
            for (name, field) in map {
                let dot = if length == 0 { "" } else { "." };
                let (step, child) = match (schema.properties.get(&**name), &schema.additional) {
                    (Some(child), _) => (format!("{dot}{name}"), child),
                    (None, Some(child)) => (format!("[{name}]"), child),
                    (None, None) => continue,
                };
                path.push_str(&step);
                walk(field, child, path, errors);
                path.truncate(length);
            }
        }
        Value::Array(list) => {
            if errors.len() * length < MAX_ERRORS {
                check_list(list, schema, path, errors);
            }
            let Some(items) = &schema.items else { return };
            for (index, item) in list.iter().enumerate() {
                write!(path, "[{index}]").expect("writing to a string does not fail");
                walk(item, items, path, errors);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn check_list(list: &[Value], schema: &Schema, path: &str, errors: &mut Vec<FieldError>) {
    let found = match schema.list_type {
        Some(ListType::Set) => repeated(list.iter().cloned()),
        Some(ListType::Map) => {
            if let Some((index, item)) = list.iter().enumerate().find(|(_, i)| !i.is_object() && !i.is_null())
            {
                let detail = "must be an object for an array of list-type map";
                errors.push(FieldError::invalid(format!("{path}[{index}]"), item.clone(), detail));
                return;
            }
            repeated(list.iter().map(|item| key_of(item, &schema.list_map_keys)))
        }
        _ => return,
    };
    let room = MAX_ERRORS / (path.len() + 1) + 1;
    errors.extend(found.into_iter().take(room).map(|(index, value)| {
        FieldError::new(FieldErrorKind::Duplicate, format!("{path}[{index}]"), "").of(value)
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_are_found_by_their_keys_in_lists_of_any_length() {
        let keys: [Box<str>; 2] = ["name".into(), "port".into()];
        for count in [3, 200_000] {
            let item = |n: usize| json!({"name": format!("n{}", n / 2), "port": n % 2, "was": n});
            let list: Vec<Value> =
                (0..count).map(item).chain([json!({"name": "n1", "port": 0, "was": "later"})]).collect();
            let keyed = Keyed::new(&list, &keys);
            for n in 0..count {
                let found =
                    keyed.same_as(&json!({"port": n % 2, "name": format!("n{}", n / 2), "is": "new"}));
                assert_eq!(found.unwrap()["was"], n, "of {count}");
            }
            assert_eq!(keyed.same_as(&json!({"name": "n1"})), None);
        }
    }
}
