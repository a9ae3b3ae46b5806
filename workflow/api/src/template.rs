//! References in texts: `$(params.name)`, `$(tasks.build.outputs.image)`, `$(item.os)`, `$(run.name)`, `$(task.attempt)`.
//!
//! Whatever else stands between `$(` and `)` is left alone: Kubernetes expands `$(VARIABLE)` itself. `$$(` writes `$(`.

use freehold_machinery::Value;

/// The first words of references.
const ROOTS: [&str; 5] = ["params", "tasks", "item", "run", "task"];

/// A reference in a text, by its words: `["params", "name"]`.
pub type Path<'a> = Vec<&'a str>;

/// The references of a text, in order.
pub fn references(text: &str) -> Vec<Path<'_>> {
    let mut found = Vec::new();
    scan(text, |piece| {
        if let Piece::Reference(path) = piece {
            found.push(path);
        }
    });
    found
}

/// The references of all texts in a value.
pub fn references_in<'a>(value: &'a Value, found: &mut Vec<Path<'a>>) {
    match value {
        Value::String(text) => found.append(&mut references(text)),
        Value::Array(items) => items.iter().for_each(|item| references_in(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| references_in(field, found)),
        _ => {}
    }
}

/// Whether a text is one reference and nothing else.
pub fn only_reference(text: &str) -> Option<Path<'_>> {
    let inner = text.strip_prefix("$(")?.strip_suffix(')')?;
    path(inner)
}

/// Replaces the references of a text. A value that is no text is written as JSON.
///
/// # Errors
/// The first complaint of `value`.
pub fn expand(text: &str, value: &impl Fn(&[&str]) -> Result<Value, String>) -> Result<String, String> {
    let mut expanded = String::with_capacity(text.len());
    let mut failed = None;
    scan(text, |piece| match piece {
        Piece::Text(text) => expanded.push_str(text),
        Piece::Reference(_) if failed.is_some() => {}
        Piece::Reference(path) => match value(&path) {
            Ok(Value::String(text)) => expanded.push_str(&text),
            Ok(other) => expanded.push_str(&other.to_string()),
            Err(error) => failed = Some(error),
        },
    });
    failed.map_or(Ok(expanded), Err)
}

/// Replaces the references of all texts in a value. A text that is one reference and nothing else becomes the value itself.
///
/// # Errors
/// The first complaint of `value`.
pub fn expand_in(
    document: &mut Value,
    value: &impl Fn(&[&str]) -> Result<Value, String>,
) -> Result<(), String> {
    match document {
        Value::String(text) if text.contains("$(") => {
            *document = match only_reference(text) {
                Some(path) => value(&path)?,
                None => Value::String(expand(text, value)?),
            };
        }
        Value::Array(items) => items.iter_mut().try_for_each(|item| expand_in(item, value))?,
        Value::Object(fields) => fields.values_mut().try_for_each(|field| expand_in(field, value))?,
        _ => {}
    }
    Ok(())
}

enum Piece<'a> {
    Text(&'a str),
    Reference(Path<'a>),
}

fn path(inner: &str) -> Option<Path<'_>> {
    let path: Path<'_> = inner.split('.').collect();
    let words = path.iter().all(|word| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    });
    (words && ROOTS.contains(&path[0])).then_some(path)
}

fn scan<'a>(text: &'a str, mut each: impl FnMut(Piece<'a>)) {
    let mut rest = text;
    while let Some(at) = rest.find("$(") {
        let (before, from) = rest.split_at(at);
        if before.ends_with('$') {
            // `$$(`: one of the two stays.
            each(Piece::Text(before));
            each(Piece::Text("("));
            rest = &from[2..];
            continue;
        }
        each(Piece::Text(before));
        let found = from.find(')').and_then(|end| Some((end, path(&from[2..end])?)));
        match found {
            Some((end, path)) => {
                each(Piece::Reference(path));
                rest = &from[end + 1..];
            }
            None => {
                each(Piece::Text("$("));
                rest = &from[2..];
            }
        }
    }
    each(Piece::Text(rest));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn references_are_replaced_and_other_text_is_not() {
        let value = |path: &[&str]| match path {
            ["params", "a"] => Ok(json!("x")),
            ["item"] => Ok(json!({"n": 1})),
            _ => Err(format!("unknown {}", path.join("."))),
        };
        for (text, expanded) in [
            ("$(params.a)-$(params.a)", "x-x"),
            ("$(HOME) $(date +%s) $$(params.a) $(", "$(HOME) $(date +%s) $(params.a) $("),
            ("$(item)", "{\"n\":1}"),
            ("plain", "plain"),
        ] {
            assert_eq!(expand(text, &value).unwrap(), expanded, "{text}");
        }
        assert_eq!(expand("$(params.b)", &value), Err("unknown params.b".into()));
        let mut document = json!({"a": ["$(item)", "is $(params.a)"]});
        expand_in(&mut document, &value).unwrap();
        assert_eq!(document, json!({"a": [{"n": 1}, "is x"]}));
        assert_eq!(
            references("$(tasks.a.outputs.b) $(run.name)"),
            [vec!["tasks", "a", "outputs", "b"], vec!["run", "name"]]
        );
    }
}
