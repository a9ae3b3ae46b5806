//! Placeholders in parsed values.
//!
//! `${parameters.size}` as a whole text stands for the value itself, with its type; within a longer text it stands for the
//! value's text, and then must be text, a number or a boolean. `$${` stands for `${`.

use freehold_machinery::{Map, Value};
use serde_json::json;

/// Levels of nesting that are followed.
const DEPTH: usize = 100;

/// What placeholders stand for.
#[derive(Clone, Debug, Default)]
pub struct Variables(Value);

impl Variables {
    /// The variables of an instance: `parameters`, `namespace` (`name`, `labels`, `annotations`), `tenant.name` and
    /// `instance.name`.
    pub fn new(parameters: Value, namespace: &str, metadata: &Value, tenant: &str, instance: &str) -> Self {
        let part = |name: &str| match &metadata[name] {
            Value::Object(map) => Value::Object(map.clone()),
            _ => json!({}),
        };
        Self(json!({
            "parameters": parameters,
            "namespace": {"name": namespace, "labels": part("labels"), "annotations": part("annotations")},
            "tenant": {"name": tenant},
            "instance": {"name": instance},
        }))
    }

    /// The value at a path such as `parameters.db.size` or `namespace.labels["example.com/team"]`.
    fn find(&self, path: &str) -> Result<&Value, String> {
        let unknown = || format!("${{{path}}} names nothing");
        let steps = steps(path).ok_or_else(|| format!("${{{path}}} cannot be read"))?;
        steps.iter().try_fold(&self.0, |value, step| value.get(step.as_str())).ok_or_else(unknown)
    }
}

/// The steps of a path.
fn steps(path: &str) -> Option<Vec<String>> {
    let mut steps = Vec::new();
    let mut rest = path.trim();
    while !rest.is_empty() {
        if let Some(quoted) = rest.strip_prefix("[\"") {
            let (step, after) = quoted.split_once("\"]")?;
            steps.push(step.to_owned());
            rest = after;
        } else {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            let step = &rest[..end];
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if step.is_empty() || !step.chars().all(plain) {
                return None;
            }
            steps.push(step.to_owned());
            rest = &rest[end..];
        }
    }
    (!steps.is_empty()).then_some(steps)
}

/// A part of a text.
enum Part<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            parts.push(Part::Text(before));
            parts.push(Part::Text("${"));
            rest = &rest[at + 2..];
            continue;
        }
        let end = rest[at..].find('}').ok_or_else(|| format!("{text:?} has a placeholder without an end"))?;
        parts.push(Part::Text(&rest[..at]));
        parts.push(Part::Placeholder(&rest[at + 2..at + end]));
        rest = &rest[at + end + 1..];
    }
    parts.push(Part::Text(rest));
    Ok(parts.into_iter().filter(|part| !matches!(part, Part::Text(""))).collect())
}

/// Replaces the placeholders of a value.
///
/// # Errors
/// A placeholder that names nothing or cannot stand where it does.
pub fn substitute(value: &Value, variables: &Variables) -> Result<Value, String> {
    walk(value, variables, 0)
}

fn walk(value: &Value, variables: &Variables, depth: usize) -> Result<Value, String> {
    if depth > DEPTH {
        return Err(format!("it is nested deeper than {DEPTH} levels"));
    }
    match value {
        Value::String(text) => replaced(text, variables),
        Value::Array(items) => items.iter().map(|item| walk(item, variables, depth + 1)).collect(),
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, value) in map {
                let key = match replaced(key, variables)? {
                    Value::String(key) => key,
                    other => other.to_string(),
                };
                if out.insert(key.clone(), walk(value, variables, depth + 1)?).is_some() {
                    return Err(format!("two keys become {key:?}"));
                }
            }
            Ok(Value::Object(out))
        }
        other => Ok(other.clone()),
    }
}

fn replaced(text: &str, variables: &Variables) -> Result<Value, String> {
    if !text.contains("${") {
        return Ok(text.into());
    }
    let parts = parts(text)?;
    if let [Part::Placeholder(path)] = parts.as_slice() {
        return variables.find(path).cloned();
    }
    let mut out = String::with_capacity(text.len());
    for part in parts {
        match part {
            Part::Text(text) => out.push_str(text),
            Part::Placeholder(path) => match variables.find(path)? {
                Value::String(text) => out.push_str(text),
                value @ (Value::Number(_) | Value::Bool(_)) => out.push_str(&value.to_string()),
                _ => {
                    return Err(format!(
                        "${{{path}}} is no text, number or boolean and cannot be part of {text:?}"
                    ));
                }
            },
        }
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> Variables {
        let parameters = json!({
            "name": "shop", "size": 3, "on": true, "labels": {"a": "b"},
            "evil": "x\n  privileged: true\n---\nkind: ClusterRoleBinding",
        });
        let metadata = json!({"labels": {"example.com/team": "blue"}});
        Variables::new(parameters, "acme-dev", &metadata, "acme", "web")
    }

    #[test]
    fn placeholders_become_values_with_their_type() {
        let rows = [
            (json!("${parameters.size}"), json!(3)),
            (json!("${ parameters.on }"), json!(true)),
            (json!("${parameters.labels}"), json!({"a": "b"})),
            (json!("${parameters.name}-${parameters.size}.${namespace.name}"), json!("shop-3.acme-dev")),
            (json!("${namespace.labels[\"example.com/team\"]}"), json!("blue")),
            (json!("$${HOME} ${tenant.name}/${instance.name}"), json!("${HOME} acme/web")),
            (json!({"${parameters.name}": ["${parameters.size}", 1, null]}), json!({"shop": [3, 1, null]})),
            (json!("plain $text {}"), json!("plain $text {}")),
        ];
        for (value, expected) in rows {
            assert_eq!(substitute(&value, &variables()).unwrap(), expected, "{value}");
        }
    }

    #[test]
    fn a_parameter_adds_no_field_and_no_object() {
        let manifest = json!({"kind": "ConfigMap", "data": {"v": "value: ${parameters.evil}", "w": "${parameters.evil}"}});
        let out = substitute(&manifest, &variables()).unwrap();
        let keys: Vec<&String> = out.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["data", "kind"]);
        assert!(out["data"]["w"].as_str().unwrap().contains("kind: ClusterRoleBinding"), "it stays one text");
        assert_eq!(
            substitute(
                &json!("${parameters.name}"),
                &Variables::new(json!({"name": "${tenant.name}"}), "n", &json!({}), "t", "i")
            )
            .unwrap(),
            "${tenant.name}",
            "values are not read again"
        );
    }

    #[test]
    fn placeholders_that_name_nothing_are_errors() {
        for (text, why) in [
            ("${parameters.none}", "${parameters.none} names nothing"),
            (
                "a ${parameters.labels}",
                "${parameters.labels} is no text, number or boolean and cannot be part of \"a ${parameters.labels}\"",
            ),
            ("${parameters.name", "\"${parameters.name\" has a placeholder without an end"),
            ("${}", "${} cannot be read"),
            ("${a b}", "${a b} cannot be read"),
        ] {
            assert_eq!(substitute(&json!(text), &variables()).unwrap_err(), why);
        }
        assert_eq!(
            substitute(&json!({"shop": 1, "${parameters.name}": 2}), &variables()).unwrap_err(),
            "two keys become \"shop\""
        );
    }
}
