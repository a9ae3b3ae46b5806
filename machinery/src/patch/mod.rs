//! The three patches that are not server-side apply: JSON patch, merge patch, strategic merge patch.
//!
//! Each takes the object as it is and gives the object as it should be; nothing is changed in place, so that a failed
//! or repeated attempt starts from the same object.
//! This module must not know managed fields: `metadata.managedFields` is a field like any other here.

mod json;
mod list;
mod merge;
mod strategic;

pub use json::{MAX_COPIED_BYTES, MAX_DEPTH, MAX_OPERATIONS, Unapplied, json, json_in_words, json_unknown};
pub use merge::merge;
pub use strategic::strategic;

use crate::{Value, status::Status};

/// 422 as kube-apiserver words it for patches that can't be applied: without telling why.
fn rejected() -> Status {
    let message = "the server rejected our request due to an error in our request";
    Status::new(422, "Invalid", message).with_details(|_| ())
}

/// A value as Go prints it with `%v`, which some of Kubernetes' messages do: `map[name:web ports:[80]]`.
pub fn go_text(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => format!("[{}]", items.iter().map(go_text).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut fields: Vec<_> =
                map.iter().map(|(key, value)| format!("{key}:{}", go_text(value))).collect();
            fields.sort();
            format!("map[{}]", fields.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

/// A JSON value's kind as Go's JSON decoder names it.
fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
