//! YAML documents as JSON values.

use freehold_machinery::Value;
use serde_saphyr::options;

/// Bytes of one conversion.
const MAX_BYTES: usize = 16 << 20;

/// Reads the YAML (or JSON) documents of a text. Empty ones are left out, and lists are taken apart.
///
/// # Errors
/// What is wrong, and in which document.
pub fn parse(text: &str) -> Result<Vec<Value>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("{} bytes; at most {MAX_BYTES}", text.len()));
    }
    let mut documents = Vec::new();
    for (n, part) in split(text).into_iter().enumerate() {
        let document = one(&part).map_err(|error| format!("document {}: {error}", n + 1))?;
        match document {
            Value::Null => {}
            Value::Object(mut list) if list.get("kind").and_then(Value::as_str) == Some("List") => {
                documents.extend(
                    list.remove("items").and_then(|items| items.as_array().cloned()).unwrap_or_default(),
                );
            }
            other => documents.push(other),
        }
    }
    Ok(documents)
}

/// Reads one document.
pub(crate) fn one(text: &str) -> Result<Value, String> {
    let options = options! { legacy_octal_numbers: true, strict_booleans: true };
    serde_saphyr::from_str_with_options::<Value>(text, options).map_err(|error| error.to_string())
}

/// Documents are divided by lines that begin with `---`.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            parts.push(String::new());
            continue;
        }
        if let Some(part) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    parts.retain(|part| {
        part.lines().any(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'))
    });
    parts
}
