//! Bodies in YAML: decoded, and what is wrong with them said as by the parser that kube-apiserver has.

use freehold_machinery::{Value, go};
use serde_saphyr::{DuplicateKeyPolicy, Error};
use std::borrow::Cow;

/// Levels of nesting: what the decoder takes on the stack for each is more than JSON's does.
const DEPTH: usize = 64;
/// What stands before each error.
const HEAD: &str = "error converting YAML to JSON: yaml: ";

/// Decodes the first document, with YAML 1.1's octal numbers and booleans as Kubernetes reads them. Aliases may be
/// replayed up to 100,000 nodes. Of equal keys the last one wins, and the first that stands twice is told.
///
/// # Errors
/// What the words of Kubernetes' parser have for it, where they are known.
pub(crate) fn decode(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    let text = text(bytes)?;
    let (mut value, duplicates) = first(&text)?;
    go::whole_numbers(&mut value);
    Ok((value, duplicates))
}

/// Text in UTF-8, or in UTF-16 where it begins with a mark that says so.
fn text(bytes: &[u8]) -> Result<Cow<'_, str>, String> {
    let wide = |unit: fn([u8; 2]) -> u16| {
        let units = bytes[2..].chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        let text = char::decode_utf16(units).collect::<Result<String, _>>();
        text.map(Cow::Owned).map_err(|_| format!("{HEAD}unexpected low surrogate area"))
    };
    match bytes {
        [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
        _ => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|error| {
            let why = match error.error_len() {
                Some(_) => "invalid leading UTF-8 octet",
                None => "incomplete UTF-8 octet sequence",
            };
            format!("{HEAD}{why}")
        }),
    }
}

fn first(text: &str) -> Result<(Value, Vec<String>), String> {
    match parse(text, DuplicateKeyPolicy::Error) {
        Ok(value) => Ok((value, Vec::new())),
        Err(error) => match error.without_snippet() {
            Error::DuplicateMappingKey { key, location } => {
                let (line, key) = (location.line(), key.as_deref().unwrap_or_default());
                let told =
                    vec![format!("{HEAD}unmarshal errors:\n  line {line}: key {key:?} already set in map")];
                match parse(text, DuplicateKeyPolicy::LastWins) {
                    Ok(value) => Ok((value, told)),
                    Err(error) => again(text, &error).map(|(value, _)| (value, told)),
                }
            }
            _ => again(text, &error),
        },
    }
}

/// Decodes what stands before a second document, where that is what was wrong.
fn again(text: &str, error: &Error) -> Result<(Value, Vec<String>), String> {
    match error.without_snippet() {
        Error::MultipleDocuments { location, .. } => match before(text, location.line() as usize) {
            Some(text) => first(text),
            None => Err(said(text, error)),
        },
        _ => Err(said(text, error)),
    }
}

/// What stands before the last mark of a document up to a line; `None` where nothing is left out.
fn before(text: &str, line: usize) -> Option<&str> {
    let mut at = 0;
    let mut mark = None;
    for line in text.split_inclusive('\n').take(line) {
        if at > 0 && (line.starts_with("---") || line.starts_with("...")) {
            mark = Some(at);
        }
        at += line.len();
    }
    mark.map(|at| &text[..at])
}

fn parse(text: &str, duplicates: DuplicateKeyPolicy) -> Result<Value, Error> {
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! { max_depth: DEPTH },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: 100_000, max_replay_stack_depth: 32 },
        with_snippet: false,
        duplicate_keys: duplicates,
    };
    serde_saphyr::from_str_with_options(text, options)
}

/// Which line Kubernetes' parser names.
#[derive(Clone, Copy)]
enum Line {
    /// The line that our parser names.
    Same,
    /// The line that our parser names, but for the first.
    Scanned,
    /// The one before: its parser counts from zero.
    Parsed,
    /// The one after.
    Next,
    /// None.
    Nowhere,
}

const CONTEXTS: [(&str, Line); 3] = [
    ("while parsing a quoted scalar, ", Line::Scanned),
    ("while parsing ", Line::Parsed),
    ("while scanning ", Line::Scanned),
];

/// How what the decoder says begins, and what Kubernetes' parser says instead.
const WORDS: [(&str, &str, Line); 18] = [
    ("tabs disallowed", "found character that cannot start any token", Line::Scanned),
    ("unexpected character", "found character that cannot start any token", Line::Scanned),
    ("unclosed quote", "found unexpected end of stream", Line::Scanned),
    ("invalid indentation in multiline quoted", "found unexpected end of stream", Line::Scanned),
    ("unclosed bracket", "did not find expected node content", Line::Same),
    ("mismatched bracket '{'", "did not find expected ',' or '}'", Line::Parsed),
    ("mismatched bracket '['", "did not find expected ',' or ']'", Line::Parsed),
    ("misplaced bracket", "did not find expected key", Line::Parsed),
    ("unexpected EOF while parsing", "did not find expected node content", Line::Parsed),
    ("simple key expected ':'", "could not find expected ':'", Line::Next),
    ("did not find expected <document start>", "did not find expected <document start>", Line::Parsed),
    ("the handle wasn't declared", "found undefined tag handle", Line::Parsed),
    ("unsupported YAML major version", "found incompatible YAML document", Line::Parsed),
    ("a block scalar content cannot start with a tab", TAB, Line::Next),
    ("wrongly indented line in block scalar", "did not find expected key", Line::Parsed),
    ("YAML merge value must be", "map merge requires map or sequence of maps as the value", Line::Nowhere),
    ("invalid !!binary base64", "!!binary value contains invalid base64 data", Line::Nowhere),
    ("alias replay limit", "document contains excessive aliasing", Line::Nowhere),
];
const TAB: &str = "found a tab character where an indentation space is expected";

/// Words of one place that the scanner of Kubernetes' parser has otherwise.
const SCANNED: [(&str, &str); 2] = [
    ("did not find expected hexadecimal number", "did not find expected hexdecimal number"),
    ("found high surrogate", "found invalid Unicode character escape code"),
];

/// What is wrong with a text, as Kubernetes says it.
fn said(text: &str, error: &Error) -> String {
    let odd = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}');
    if text.contains(odd) {
        return format!("{HEAD}control characters are not allowed");
    }
    let why = error.to_string();
    let Some((what, place)) = why.rsplit_once(" at line ") else { return format!("{HEAD}{why}") };
    let line: usize = place.split(',').next().and_then(|line| line.trim().parse().ok()).unwrap_or(0);
    if what.starts_with("budget breached: Depth") || what.starts_with("recursion limit") {
        return format!("{HEAD}line {line}: exceeded max depth of {DEPTH}");
    }
    if what.contains("alias replay limit") || what.contains("AliasAnchorRatio") {
        return format!("{HEAD}document contains excessive aliasing");
    }
    let known =
        WORDS.iter().find(|(begins, ..)| what.starts_with(begins)).map(|(_, said, line)| (*said, *line));
    let context = CONTEXTS.iter().find(|(context, _)| what.starts_with(context));
    let inner = |line: Line| {
        let inner = what.split_once(", ").map_or(what, |(_, inner)| inner);
        let said = SCANNED.iter().find(|(begins, _)| inner.starts_with(begins));
        (said.map_or(inner, |(_, said)| said), line)
    };
    let (what, counted) = known.or(context.map(|(_, line)| inner(*line))).unwrap_or((what, Line::Scanned));
    let line = match counted {
        Line::Same => line,
        Line::Scanned if line > 1 => line,
        Line::Parsed => line.saturating_sub(1),
        Line::Next => line + 1,
        Line::Scanned | Line::Nowhere => 0,
    };
    if line == 0 { format!("{HEAD}{what}") } else { format!("{HEAD}line {line}: {what}") }
}
