//! Rust source as the checks read it: without the content of strings and comments, and without its tests.
//!
//! This is a scan of brackets, not a parser: enough for lengths and forbidden words, and quick.

use std::ops::Range;

/// Blanks the content of comments, strings and characters. Line numbers stay.
pub fn blank(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let skipped = token_to_blank(rest, out.chars().next_back());
        match skipped {
            0 => {
                out.push(first);
                rest = &rest[first.len_utf8()..];
            }
            n => {
                out.extend(rest[..n].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
                rest = &rest[n..];
            }
        }
    }
    out
}

/// How many bytes at the start of `rest` are a comment, a string or a character; 0 for anything else.
fn token_to_blank(rest: &str, before: Option<char>) -> usize {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if rest.starts_with('"') {
        return quoted(rest, 1);
    }
    if rest.starts_with('\'') {
        return character(rest);
    }
    if !in_word {
        for prefix in ["br", "cr", "r"] {
            if let Some(n) = rest.strip_prefix(prefix).and_then(raw) {
                return prefix.len() + n;
            }
        }
    }
    0
}

fn block_comment(rest: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    let bytes = rest.as_bytes();
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The length of a string whose content begins at `at`.
fn quoted(rest: &str, at: usize) -> usize {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip_while(|(i, _)| *i < at) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return i + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a character literal; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some(_)) => rest[3..].find('\'').map_or(0, |end| end + 4),
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

/// The length of `#"..."#`, after its `r`.
fn raw(rest: &str) -> Option<usize> {
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let content = rest[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let length = content.find(&end).map_or(content.len(), |at| at + end.len());
    Some(hashes + 1 + length)
}

/// Where in blanked source items are that are compiled for tests alone.
fn tests(blanked: &str) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(next) = blanked[at..].find("#[cfg(test)]") {
        let begin = at + next;
        at = begin + item_length(&blanked[begin..]);
        found.push(begin..at);
    }
    found
}

/// Blanked source without what is compiled for tests alone. Line numbers stay.
pub fn without_tests(blanked: &str) -> String {
    let mut out = blanked.to_owned();
    for range in tests(blanked) {
        let blanks: String =
            out[range.clone()].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
        out.replace_range(range, &blanks);
    }
    out
}

/// How many lines source has besides those of tests, comments and empty lines among them.
pub fn lines_outside_tests(text: &str) -> usize {
    let blanked = blank(text);
    let of_tests = tests(&blanked).into_iter().map(|range| blanked[range].matches('\n').count() + 1);
    text.lines().count() - of_tests.sum::<usize>()
}

/// The length of an item with its attributes: up to its `;`, or to the end of its braces.
fn item_length(text: &str) -> usize {
    match text.find(['{', ';']) {
        Some(at) if text[at..].starts_with('{') => at + braces(&text[at..]),
        Some(at) => at + 1,
        None => text.len(),
    }
}

/// The length of a block from its first brace to the one that closes it.
fn braces(text: &str) -> usize {
    let mut depth = 0_usize;
    for (i, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return i + 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    text.len()
}

/// A function with a body.
#[derive(Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line that it begins in, from 1.
    pub line: usize,
    /// How many lines it has, signature and braces among them.
    pub lines: usize,
}

/// The functions in blanked source, those within others too.
pub fn functions(blanked: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (at, _) in blanked.match_indices("fn ") {
        let before = blanked[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name: String =
            blanked[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let length = item_length(&blanked[at..]);
        let text = &blanked[at..at + length];
        if !name.is_empty() && text.ends_with('}') {
            let line = blanked[..at].matches('\n').count() + 1;
            found.push(Function { name, line, lines: text.matches('\n').count() + 1 });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_comments_and_characters_are_blanked() {
        let rows = [
            ("a // b {\nc", "a c"),
            ("a /* { /* { */ */ b", "a b"),
            ("f(\"{ \\\" {\", x)", "f( , x)"),
            ("f(r#\"{ \" {\"#, x)", "f( , x)"),
            ("a '{' '\\n' '\\'' b", "a b"),
            ("fn f<'a>(x: &'a str) {", "fn f<'a>(x: &'a str) {"),
            ("for r in x", "for r in x"),
        ];
        for (source, expected) in rows {
            let blanked = blank(source);
            assert_eq!(blanked.split_whitespace().collect::<Vec<_>>().join(" "), expected, "{source}");
            assert_eq!(blanked.chars().count(), source.chars().count(), "{source}");
        }
    }

    #[test]
    fn functions_are_measured_and_tests_left_out() {
        let source = "trait T {\n    fn a();\n    fn b() {\n        let f: fn(u8);\n    }\n}\n\
                      #[cfg(test)]\nmod tests {\n    fn c() {\n    }\n}\n";
        let measured = functions(&without_tests(&blank(source)));
        assert_eq!(measured, [Function { name: "b".into(), line: 3, lines: 3 }]);
        assert_eq!(lines_outside_tests(source), 6);
    }
}
