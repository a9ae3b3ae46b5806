//! Field names as CEL spells them: `namespace` is `__namespace__`, `a-b` is `a__dash__b`.

use std::borrow::Cow;

/// Words that CEL keeps for itself: no identifiers
/// (<https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax>).
pub const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
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
];

/// The identifier that stands for a field; `None` where CEL can't name it.
pub(crate) fn escape(name: &str) -> Option<Cow<'_, str>> {
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__").into());
    }
    if !name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-./".contains(&c)) {
        return None;
    }
    if !name.contains("__") && !name.contains(['-', '.', '/']) {
        return Some(name.into());
    }
    let underscored = name.replace("__", "__underscores__");
    let mut out = String::with_capacity(underscored.len() + 8);
    for c in underscored.chars() {
        match c {
            '.' => out.push_str("__dot__"),
            '-' => out.push_str("__dash__"),
            '/' => out.push_str("__slash__"),
            c => out.push(c),
        }
    }
    Some(out.into())
}

/// The field that an identifier stands for.
pub(crate) fn unescape(name: &str) -> String {
    let inner = name.strip_prefix("__").and_then(|rest| rest.strip_suffix("__"));
    if let Some(reserved) = inner.filter(|inner| RESERVED.contains(inner)) {
        return reserved.to_owned();
    }
    // What stands for two underscores comes last: its result could be taken for the beginning of another.
    let plain = name.replace("__dot__", ".").replace("__dash__", "-").replace("__slash__", "/");
    plain.replace("__underscores__", "__")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_kubernetes_does() {
        for (name, want) in [
            ("name", Some("name")),
            ("namespace", Some("__namespace__")),
            ("x-y", Some("x__dash__y")),
            ("x.y/z", Some("x__dot__y__slash__z")),
            ("a__b", Some("a__underscores__b")),
            ("_a_b", Some("_a_b")),
            ("9a", None),
            ("a b", None),
            ("", None),
        ] {
            assert_eq!(escape(name).as_deref(), want, "{name:?}");
            if let Some(escaped) = want {
                assert_eq!(unescape(escaped), name);
            }
        }
    }
}
