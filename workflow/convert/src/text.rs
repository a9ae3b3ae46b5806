//! References in texts: `{{...}}` of Argo becomes `$(...)`.

use crate::Report;
use freehold_machinery::Value;

/// Translates one reference, `inputs.parameters.x`, to one of ours, `params.x`.
pub(crate) type Resolve<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// The beginnings of our own references, which mean nothing in another's text.
const OURS: [&str; 5] = ["$(params.", "$(tasks.", "$(item", "$(run.", "$(task."];

/// Replaces the references of a text.
pub(crate) fn translate(text: &str, path: &str, resolve: &Resolve<'_>, report: &mut Report) -> String {
    let mut rest = text;
    let mut translated = String::with_capacity(text.len());
    while let Some(at) = rest.find("{{") {
        translated.push_str(&escape(&rest[..at]));
        let Some(end) = rest[at..].find("}}") else {
            rest = &rest[at..];
            break;
        };
        let inner = rest[at + 2..at + end].trim();
        match inner.strip_prefix('=') {
            Some(_) => report.refuse(path, format!("expression {{{{{inner}}}}} is not supported")),
            None => match resolve(inner) {
                Ok(reference) => {
                    translated.push_str("$(");
                    translated.push_str(&reference);
                    translated.push(')');
                }
                Err(why) => report.refuse(path, why),
            },
        }
        rest = &rest[at + end + 2..];
    }
    translated.push_str(&escape(rest));
    translated
}

/// Writes what would be references of ours as the text that it is.
pub(crate) fn escape(text: &str) -> String {
    OURS.iter().fold(text.to_owned(), |text, ours| text.replace(ours, &format!("${ours}")))
}

/// Replaces the references of all texts in a value.
pub(crate) fn translate_value(
    value: &Value,
    path: &str,
    resolve: &Resolve<'_>,
    report: &mut Report,
) -> Value {
    match value {
        Value::String(text) => Value::String(translate(text, path, resolve, report)),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(n, item)| translate_value(item, &format!("{path}[{n}]"), resolve, report))
            .collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, field)| {
                (key.clone(), translate_value(field, &format!("{path}.{key}"), resolve, report))
            })
            .collect(),
        other => other.clone(),
    }
}

/// The inside of a text that is one reference and nothing else.
pub(crate) fn only_reference(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("{{")?.strip_suffix("}}")?;
    (!inner.contains("{{") && !inner.starts_with('=')).then(|| inner.trim())
}

/// Calls `each` with the inside of each reference in a value.
pub(crate) fn each_reference(value: &Value, each: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => {
            let mut rest = text.as_str();
            while let Some(at) = rest.find("{{") {
                let Some(end) = rest[at..].find("}}") else { return };
                each(rest[at + 2..at + end].trim().trim_start_matches('=').trim());
                rest = &rest[at + end + 2..];
            }
        }
        Value::Array(items) => items.iter().for_each(|item| each_reference(item, each)),
        Value::Object(fields) => fields.values().for_each(|field| each_reference(field, each)),
        _ => {}
    }
}

/// A reference as a CEL expression: `tasks.flip-coin.outputs.result` is `tasks["flip-coin"].outputs.result`.
pub(crate) fn cel_path(reference: &str) -> String {
    let mut words = reference.split('.');
    let mut path = words.next().unwrap_or_default().to_owned();
    for word in words {
        let is_identifier = word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !word.starts_with(|c: char| c.is_ascii_digit());
        let reserved = [
            "in",
            "as",
            "break",
            "const",
            "continue",
            "else",
            "for",
            "function",
            "if",
            "import",
            "let",
            "loop",
            "package",
            "namespace",
            "return",
            "var",
            "void",
            "while",
            "true",
            "false",
            "null",
        ];
        if is_identifier && !reserved.contains(&word) {
            path.push('.');
            path.push_str(word);
        } else {
            path.push_str(&format!("[{}]", quote(word)));
        }
    }
    path
}

/// A text as a CEL literal.
pub(crate) fn quote(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_translated_and_our_own_escaped() {
        let mut report = Report::default();
        let resolve = |inner: &str| match inner {
            "inputs.parameters.a" => Ok("params.a".to_owned()),
            other => Err(format!("no {other}")),
        };
        let translated = translate(
            "x {{inputs.parameters.a}} $(date) $(params.b) {{ inputs.parameters.a }}",
            "p",
            &resolve,
            &mut report,
        );
        assert_eq!(translated, "x $(params.a) $(date) $$(params.b) $(params.a)");
        translate("{{pod.name}} {{=1+1}}", "q", &resolve, &mut report);
        assert_eq!(report.problems.iter().map(|p| p.path.as_str()).collect::<Vec<_>>(), ["q", "q"]);
        assert_eq!(cel_path("tasks.flip-coin.outputs.result"), "tasks[\"flip-coin\"].outputs.result");
        assert_eq!(only_reference(" {{item}} "), Some("item"));
        assert_eq!(only_reference("{{a}}{{b}}"), None);
    }
}
