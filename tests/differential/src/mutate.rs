//! One object becomes many: each field wrong, empty or absent in turn.

use serde_json::{Value, json};

/// A change of one place.
#[derive(Clone, Debug)]
pub(crate) struct Mutation {
    /// JSON pointer to the place.
    pub(crate) at: String,
    /// What stands there then; `None` for nothing.
    pub(crate) to: Option<Value>,
}

impl Mutation {
    /// `/spec/replicas=-1`, shortened.
    pub(crate) fn name(&self) -> String {
        match &self.to {
            None => format!("{} gone", self.at),
            Some(value) => {
                let text = value.to_string();
                let cut: String = text.chars().take(40).collect();
                format!("{}={cut}", self.at)
            }
        }
    }

    /// Makes the change. A place of which the parent is absent is made.
    pub(crate) fn apply(&self, object: &mut Value) {
        let Some((parent, last)) = self.at.rsplit_once('/') else { return };
        let last = last.replace("~1", "/").replace("~0", "~");
        let mut place = object;
        for part in parent.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            place = match place {
                Value::Array(list) => {
                    let Some(item) = part.parse::<usize>().ok().and_then(|index| list.get_mut(index)) else {
                        return;
                    };
                    item
                }
                other => &mut other[part.as_str()],
            };
        }
        match (place, &self.to) {
            (Value::Array(list), Some(value)) => match last.parse::<usize>() {
                Ok(index) if index < list.len() => list[index] = value.clone(),
                _ => list.push(value.clone()),
            },
            (Value::Array(list), None) => {
                if let Some(index) = last.parse::<usize>().ok().filter(|index| *index < list.len()) {
                    list.remove(index);
                }
            }
            (Value::Object(map), None) => drop(map.remove(&last)),
            (place, Some(value)) => place[last.as_str()] = value.clone(),
            _ => {}
        }
    }
}

/// Everything wrong that is tried with an object's fields: for a creation.
pub(crate) fn wrong(object: &Value) -> Vec<Mutation> {
    collect(object, &wrong_values)
}

/// Each field another or gone: for an update.
pub(crate) fn changed(object: &Value) -> Vec<Mutation> {
    collect(object, &other_values)
}

type Values = dyn Fn(&Value) -> Vec<Option<Value>>;

fn collect(object: &Value, values: &Values) -> Vec<Mutation> {
    let mut found = Vec::new();
    walk(object, String::new(), values, &mut found);
    found
}

fn walk(value: &Value, at: String, values: &Values, found: &mut Vec<Mutation>) {
    if !at.is_empty() {
        // What is too long is tried where there are limits: with names.
        let named = ["name", "key", "Name"].iter().any(|end| at.ends_with(end));
        let long =
            |to: &Option<Value>| to.as_ref().and_then(Value::as_str).is_some_and(|text| text.len() > 200);
        let tried = values(value).into_iter().filter(|to| named || !long(to));
        found.extend(tried.map(|to| Mutation { at: at.clone(), to }));
    }
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                let skipped =
                    at.is_empty() && ["apiVersion", "kind", "metadata", "status"].contains(&key.as_str());
                if !skipped {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    walk(child, format!("{at}/{key}"), values, found);
                }
            }
        }
        Value::Array(list) => {
            for (index, child) in list.iter().enumerate() {
                walk(child, format!("{at}/{index}"), values, found);
            }
        }
        _ => {}
    }
}

fn is_amount(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit()) && text.len() < 8 && !text.contains(['.', ':', '/'])
}

fn wrong_values(value: &Value) -> Vec<Option<Value>> {
    let some = |values: &[Value]| values.iter().cloned().map(Some).collect::<Vec<_>>();
    let mut found = vec![None];
    found.extend(match value {
        Value::String(text) if is_amount(text) => some(&[json!("-1"), json!("0"), json!("1m")]),
        Value::String(text) if text.len() > 64 => some(&[json!("")]),
        Value::String(_) => some(&[json!(""), json!("-Not_Valid/*"), json!("x".repeat(260))]),
        Value::Number(_) => some(&[json!(-1), json!(0), json!(100_000)]),
        Value::Bool(flag) => some(&[json!(!flag)]),
        Value::Array(list) => {
            let mut twice = list.clone();
            twice.extend(list.first().cloned());
            some(&[twice.into()])
        }
        Value::Object(map) => {
            let texts = map.values().all(|value| value.is_string()) && !map.is_empty();
            let odd = map.values().next().cloned().filter(|_| texts).map(|value| {
                let mut odd = map.clone();
                odd.insert("-odd_/".into(), value);
                Some(odd.into())
            });
            some(&[json!({})]).into_iter().chain(odd).collect()
        }
        Value::Null => Vec::new(),
    });
    found
}

fn other_values(value: &Value) -> Vec<Option<Value>> {
    let other = match value {
        Value::String(text) if is_amount(text) => json!("7"),
        Value::String(text) => json!(format!("{text}x")),
        Value::Number(n) => json!(n.as_i64().unwrap_or(0) + 1),
        Value::Bool(flag) => json!(!flag),
        _ => return vec![None],
    };
    vec![None, Some(other)]
}
