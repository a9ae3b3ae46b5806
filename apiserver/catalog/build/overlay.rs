//! Reads `overlay/*.json` into the definitions.
//!
//! A file maps a definition's name to its fields, and a field to words, apart by spaces:
//!
//! | word | says |
//! | --- | --- |
//! | `atomic`, `set`, `map:a,b` | the list's type, with the keys of its items |
//! | `atomic-map` | the map or struct is one value |
//! | `merge`, `merge:key` | strategic merge patch merges the list, by that key |
//! | `replace` | strategic merge patch replaces the whole field |
//! | `retain-keys` | strategic merge patch drops the keys that a patch doesn't name |
//! | `default:json` | the default that Kubernetes declares |
//!
//! The field `.` is the definition itself; an object in place of words is merged into it as it is. What names
//! a definition or field that isn't there fails the build, so that no rule is lost unseen.

use serde_json::{Map, Value, json};
use std::{error::Error, fs, path::Path};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Applies each file of `folder`.
pub(crate) fn apply(folder: &Path, definitions: &mut Map<String, Value>) -> Fallible<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let rules: Map<String, Value> = serde_json::from_slice(&fs::read(&path)?)?;
        for (name, fields) in &rules {
            let definition =
                definitions.get_mut(name).ok_or_else(|| format!("{path:?}: no definition {name}"))?;
            for (field, rule) in fields.as_object().ok_or("fields of a definition are an object")? {
                let target = if field == "." { Some(&mut *definition) } else { property(definition, field) };
                let target = target.ok_or_else(|| format!("{path:?}: no field {field} in {name}"))?;
                extend(target, rule).map_err(|e| format!("{path:?}: {name}.{field}: {e}"))?;
            }
        }
    }
    Ok(())
}

/// Declares the defaults that `file` states: by definition (without `io.k8s.api.` in front) and field, the value itself.
pub(crate) fn declare_defaults(file: &Path, definitions: &mut Map<String, Value>) -> Fallible<()> {
    let defaults: Map<String, Value> = serde_json::from_slice(&fs::read(file)?)?;
    for (short, fields) in &defaults {
        let name = if short.starts_with("io.") { short.clone() } else { format!("io.k8s.api.{short}") };
        let definition =
            definitions.get_mut(&name).ok_or_else(|| format!("{file:?}: no definition {name}"))?;
        for (field, value) in fields.as_object().ok_or("defaults of a definition are an object")? {
            let target = property(definition, field).and_then(Value::as_object_mut);
            let target = target.ok_or_else(|| format!("{file:?}: no field {field} in {name}"))?;
            target.insert("default".to_owned(), value.clone());
            make_optional(definition, field);
        }
    }
    Ok(())
}

/// Puts what `file` says of documents into the definitions, for who writes those: of a type under
/// `x-freehold-documents`, of lists of it under `x-freehold-list`. What it says of types that are not served is left out.
pub(crate) fn add_documents(file: &Path, definitions: &mut Map<String, Value>) -> Fallible<()> {
    let documents: Map<String, Value> = serde_json::from_slice(&fs::read(file)?)?;
    for (short, said) in documents {
        let name = if short.starts_with("io.") { short } else { format!("io.k8s.api.{short}") };
        let list = said.get(".").and_then(|_| definitions.get(name.strip_suffix("List")?)).is_some();
        let (name, key) = match list {
            true => (name.trim_end_matches("List"), "x-freehold-list"),
            false => (name.as_str(), "x-freehold-documents"),
        };
        if let Some(definition) = definitions.get_mut(name) {
            definition[key] = said;
        }
    }
    Ok(())
}

/// What has a default need not be given.
fn make_optional(definition: &mut Value, field: &str) {
    if let Some(required) = definition.get_mut("required").and_then(Value::as_array_mut) {
        required.retain(|name| name != field);
    }
}

fn property<'a>(definition: &'a mut Value, field: &str) -> Option<&'a mut Value> {
    definition.get_mut("properties")?.get_mut(field)
}

fn extend(target: &mut Value, rule: &Value) -> Fallible<()> {
    let target = target.as_object_mut().ok_or("a schema is an object")?;
    match rule {
        Value::Object(extra) => target.extend(extra.clone()),
        Value::String(words) => words.split(' ').try_for_each(|word| say(target, word))?,
        _ => return Err("words or an object are wanted".into()),
    }
    if target.get("type").is_some_and(Value::is_null) {
        target.remove("type");
        target.remove("oneOf");
    }
    Ok(())
}

fn say(target: &mut Map<String, Value>, word: &str) -> Fallible<()> {
    let (verb, argument) = word.split_once(':').map_or((word, None), |(verb, rest)| (verb, Some(rest)));
    let mut set = |key: &str, value: Value| drop(target.insert(format!("x-kubernetes-{key}"), value));
    match (verb, argument) {
        ("atomic" | "set", None) => set("list-type", json!(verb)),
        ("map", Some(keys)) => {
            set("list-type", json!("map"));
            set("list-map-keys", keys.split(',').collect());
        }
        ("atomic-map", None) => set("map-type", json!("atomic")),
        ("merge", key) => {
            set("patch-strategy", json!("merge"));
            key.into_iter().for_each(|key| set("patch-merge-key", json!(key)));
        }
        ("replace", None) => set("patch-strategy", json!("replace")),
        ("retain-keys", None) => {
            let merged = target.contains_key("x-kubernetes-patch-strategy");
            let strategy = if merged { "merge,retainKeys" } else { "retainKeys" };
            target.insert("x-kubernetes-patch-strategy".to_owned(), json!(strategy));
        }
        ("default", Some(value)) => drop(target.insert("default".to_owned(), serde_json::from_str(value)?)),
        _ => return Err(format!("unknown word {word:?}").into()),
    }
    Ok(())
}
