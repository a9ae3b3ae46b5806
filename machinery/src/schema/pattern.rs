//! Regular expressions in Go's RE2 syntax.
//!
//! Patterns of CRDs and of CEL are written for Go. The two dialects differ in a few places: Go's `\d`, `\w`, `\s` and
//! `\b` mean ASCII, a `{` that begins no repetition is a literal, and brackets don't nest. [`compile`] translates those
//! and compiles each pattern once per process.

use super::regex_syntax;
use parking_lot::Mutex;
use regex::{Regex, RegexBuilder};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

/// Compiled patterns that are kept, and bytes that one of them may take: many small ones and a few large ones, so that
/// nobody's patterns fill the memory. Where there are more, all are forgotten and compiled again as they are used.
const CLASSES: [(usize, usize); 2] = [(4096, 256 << 10), (16, 10 << 20)];

type Kept = Mutex<HashMap<String, Arc<Regex>>>;

static COMPILED: LazyLock<[Kept; 2]> = LazyLock::new(Default::default);

/// The compiled form of a pattern.
///
/// # Errors
/// A pattern that is not one, or is too large when compiled, gives a text for people.
pub fn compile(pattern: &str) -> Result<Arc<Regex>, String> {
    if let Some(regex) = COMPILED.iter().find_map(|kept| kept.lock().get(pattern).cloned()) {
        return Ok(regex);
    }
    regex_syntax::check(pattern).map_err(|e| e.to_string())?;
    let translated = translate(pattern);
    let mut problem = String::new();
    for ((count, size), kept) in CLASSES.into_iter().zip(COMPILED.iter()) {
        match RegexBuilder::new(&translated).size_limit(size).build() {
            Ok(regex) => return Ok(keep(kept, count, pattern, regex)),
            Err(regex::Error::CompiledTooBig(_)) => {
                problem = "error parsing regexp: expression nests too deeply".to_owned()
            }
            Err(e) => return Err(one_line(&e)),
        }
    }
    Err(problem)
}

fn keep(kept: &Kept, count: usize, pattern: &str, regex: Regex) -> Arc<Regex> {
    let regex = Arc::new(regex);
    let mut kept = kept.lock();
    if kept.len() >= count {
        kept.clear();
    }
    kept.insert(pattern.to_owned(), regex.clone());
    regex
}

fn one_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default().trim();
    format!("error parsing regexp: {}", last.strip_prefix("error: ").unwrap_or(last))
}

/// A Go pattern in the syntax of the `regex` crate.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let taken = match c {
            '\\' => escape(rest, false, &mut out),
            '[' => class(rest, &mut out),
            '{' if !is_repetition(rest) => literal(c, &mut out),
            _ => plain(c, &mut out),
        };
        rest = &rest[taken..];
    }
    out
}

fn plain(c: char, out: &mut String) -> usize {
    out.push(c);
    c.len_utf8()
}

fn literal(c: char, out: &mut String) -> usize {
    out.push('\\');
    plain(c, out)
}

/// `{2}`, `{2,}` or `{2,3}`.
fn is_repetition(rest: &str) -> bool {
    let Some((inner, _)) = rest[1..].split_once('}') else { return false };
    let (low, high) = inner.split_once(',').unwrap_or((inner, ""));
    let number = |s: &str| s.bytes().all(|c| c.is_ascii_digit());
    !low.is_empty() && number(low) && number(high)
}

/// An escape at the start of `rest`; gives the bytes it takes.
fn escape(rest: &str, in_class: bool, out: &mut String) -> usize {
    let Some(c) = rest[1..].chars().next() else { return plain('\\', out) };
    let replacement = match (c, in_class) {
        ('d', false) => "[0-9]",
        ('D', false) => "[^0-9]",
        ('w', false) => "[0-9A-Za-z_]",
        ('W', false) => "[^0-9A-Za-z_]",
        ('s', false) => r"[\t\n\f\r ]",
        ('S', false) => r"[^\t\n\f\r ]",
        ('d', true) => "0-9",
        ('w', true) => "0-9A-Za-z_",
        ('s', true) => r"\t\n\f\r ",
        ('D', true) => "[^0-9]",
        ('W', true) => "[^0-9A-Za-z_]",
        ('S', true) => r"[^\t\n\f\r ]",
        ('b', false) => r"(?-u:\b)",
        ('<', _) => "<",
        ('>', _) => ">",
        ('Q', false) => return quoted(rest, out),
        // A name or number in braces belongs to the escape.
        ('p' | 'P' | 'x', _) if rest[2..].starts_with('{') => {
            let end = rest.find('}').map_or(rest.len(), |end| end + 1);
            out.push_str(&rest[..end]);
            return end;
        }
        _ => {
            out.push('\\');
            out.push(c);
            return 1 + c.len_utf8();
        }
    };
    out.push_str(replacement);
    1 + c.len_utf8()
}

/// `\Q...\E`.
fn quoted(rest: &str, out: &mut String) -> usize {
    let body = &rest[2..];
    let end = body.find(r"\E");
    out.push_str(&regex::escape(&body[..end.unwrap_or(body.len())]));
    end.map_or(rest.len(), |end| 2 + end + 2)
}

/// A bracketed class at the start of `rest`; gives the bytes it takes.
fn class(rest: &str, out: &mut String) -> usize {
    let mut at = plain('[', out);
    if rest[at..].starts_with('^') {
        at += plain('^', out);
    }
    let first = at;
    while let Some(c) = rest[at..].chars().next() {
        let tail = &rest[at..];
        at += match c {
            ']' if at > first => return at + plain(']', out),
            ']' => literal(c, out),
            '\\' => escape(tail, true, out),
            '[' if tail.starts_with("[:") && tail.contains(":]") => posix(tail, out),
            '[' | '&' | '~' => literal(c, out),
            '-' if tail.starts_with("--") => literal(c, out),
            _ => plain(c, out),
        };
    }
    at
}

/// `[:alpha:]` within a class.
fn posix(rest: &str, out: &mut String) -> usize {
    let end = rest.find(":]").map_or(rest.len(), |end| end + 2);
    out.push_str(&rest[..end]);
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_in_go() {
        for (pattern, text, want) in [
            (r"^\d+$", "12", true),
            (r"^\d+$", "١", false),
            (r"^\w+$", "ä", false),
            (r"^[\w.-]+$", "a.b-c", true),
            (r"^[^\s]+$", "a b", false),
            (r"^a{$", "a{", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"^a{1,2}$", "aa", true),
            (r"^[[]$", "[", true),
            (r"^[]a]$", "]", true),
            (r"^[a&&b]+$", "&", true),
            (r"^[[:alpha:]]+$", "ab", true),
            (r"\bfoo\b", "a foo b", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^\/a\-b\<$", "/a-b<", true),
        ] {
            let regex = compile(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert_eq!(regex.is_match(text), want, "{pattern} on {text}");
        }
    }

    #[test]
    fn broken_and_huge_patterns_are_refused() {
        for bad in ["(", "[a", "a**b(", r"(?=x)", "((a{1000}){1000}){1000}"] {
            assert!(compile(bad).is_err(), "{bad}");
        }
    }
}
