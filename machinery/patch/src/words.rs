//! Values and refusals in the words of kube-apiserver.

use freehold_machinery::{Value, status::Status};

/// 422 as kube-apiserver words it for patches that can't be applied: without telling why.
pub(crate) fn rejected() -> Status {
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
