//! What tasks give to those after them, read from texts.

use freehold_machinery::{Map, Value};
use freehold_workflow_api::{Output, OutputSource, OutputType};
use std::collections::BTreeMap;

/// Bytes that the outputs of one task may have together.
pub(crate) const MAX_BYTES: usize = 1 << 20;

/// Reads the outputs of a container from its termination message and its log.
pub(crate) fn of_container(
    outputs: &[Output],
    message: &str,
    log: &str,
) -> Result<BTreeMap<String, Value>, String> {
    let from_result: Vec<&Output> =
        outputs.iter().filter(|output| output.from == OutputSource::Result).collect();
    let fields = fields(message);
    let mut read = BTreeMap::new();
    for output in outputs {
        let text = match output.from {
            OutputSource::Log => Value::String(log.trim_end_matches(['\n', '\r']).to_owned()),
            OutputSource::Result => match fields.get(&output.name) {
                Some(value) => value.clone(),
                None if from_result.len() == 1 => {
                    Value::String(message.trim_end_matches(['\n', '\r']).to_owned())
                }
                None => {
                    return Err(format!("output {:?} is missing in the termination message", output.name));
                }
            },
        };
        read.insert(output.name.clone(), typed(output, text)?);
    }
    limited(read)
}

/// Reads the outputs of an object or a response.
pub(crate) fn of_object(outputs: &[Output], object: &Value) -> Result<BTreeMap<String, Value>, String> {
    let read = outputs.iter().map(|output| Ok((output.name.clone(), typed(output, object.clone())?)));
    limited(read.collect::<Result<_, String>>()?)
}

fn limited(read: BTreeMap<String, Value>) -> Result<BTreeMap<String, Value>, String> {
    let bytes: usize = read.values().map(|value| value.to_string().len()).sum();
    if bytes > MAX_BYTES {
        return Err(format!("outputs have {bytes} bytes; at most {MAX_BYTES} are kept"));
    }
    Ok(read)
}

/// The fields of a JSON object, or of lines `NAME=value`.
fn fields(message: &str) -> Map {
    if let Ok(Value::Object(fields)) = serde_json::from_str(message) {
        return fields;
    }
    let lines = message.lines().filter_map(|line| line.split_once('='));
    lines.map(|(name, value)| (name.trim().to_owned(), Value::String(value.to_owned()))).collect()
}

/// A value as an output declares it.
fn typed(output: &Output, mut value: Value) -> Result<Value, String> {
    let wrong = |wanted: &str| format!("output {:?} is not {wanted}", output.name);
    if !output.json_path.is_empty() {
        if let Value::String(text) = &value {
            value = serde_json::from_str(text).map_err(|_| wrong("JSON"))?;
        }
        for field in output
            .json_path
            .trim_start_matches(['$', '.'])
            .split(['.', '['])
            .filter(|field| !field.is_empty())
        {
            let field = field.trim_end_matches(']');
            let found = match &mut value {
                Value::Object(fields) => fields.remove(field),
                Value::Array(items) => {
                    field.parse().ok().filter(|n| *n < items.len()).map(|n: usize| items.swap_remove(n))
                }
                _ => None,
            };
            value =
                found.ok_or_else(|| format!("output {:?}: there is no {}", output.name, output.json_path))?;
        }
    }
    let parsed = |value: &Value| match value {
        Value::String(text) => serde_json::from_str(text.trim()).unwrap_or(Value::Null),
        other => other.clone(),
    };
    match output.type_ {
        OutputType::String => Ok(match value {
            text @ Value::String(_) => text,
            other => Value::String(other.to_string()),
        }),
        OutputType::Number => Some(parsed(&value)).filter(Value::is_number).ok_or_else(|| wrong("a number")),
        OutputType::Integer => {
            Some(parsed(&value)).filter(Value::is_i64).ok_or_else(|| wrong("a whole number"))
        }
        OutputType::Boolean => {
            Some(parsed(&value)).filter(Value::is_boolean).ok_or_else(|| wrong("true or false"))
        }
        OutputType::List => Some(parsed(&value)).filter(Value::is_array).ok_or_else(|| wrong("a list")),
        OutputType::Object => Some(parsed(&value)).filter(Value::is_object).ok_or_else(|| wrong("a map")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    fn read(outputs: Value, message: &str, log: &str) -> Result<Value, String> {
        let outputs: Vec<Output> = from_value(outputs).unwrap();
        of_container(&outputs, message, log).map(|read| json!(read))
    }

    #[test]
    fn outputs_are_read_as_they_are_declared() {
        assert_eq!(read(json!([{"name": "a"}]), "text\n", ""), Ok(json!({"a": "text"})));
        assert_eq!(read(json!([{"name": "a", "type": "list"}]), "[1]", ""), Ok(json!({"a": [1]})));
        let two = json!([{"name": "a", "type": "integer"}, {"name": "b", "from": "Log"}]);
        assert_eq!(read(two.clone(), "a=3\n", "log\n"), Ok(json!({"a": 3, "b": "log"})));
        assert!(read(two, "a=x", "").unwrap_err().contains("not a whole number"));
        assert!(
            read(json!([{"name": "a"}, {"name": "b"}]), "{\"a\": 1}", "")
                .unwrap_err()
                .contains("\"b\" is missing")
        );
        let field = json!([{"name": "a", "jsonPath": ".x[1].y"}]);
        assert_eq!(read(field, "{\"x\": [0, {\"y\": true}]}", ""), Ok(json!({"a": "true"})));
        assert!(read(json!([{"name": "a", "from": "Log"}]), "", &"x".repeat(MAX_BYTES)).is_err());
    }
}
