//! Errors of regular expressions, in the words of Go's `regexp/syntax`.
//!
//! Go refuses some of what the `regex` crate takes (stacked repetitions, more than 1,000 of them, unknown POSIX classes),
//! and users know its words.

use std::fmt;

/// The most repetitions, nested ones multiplied.
const MAX_REPEAT: u64 = 1000;
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
    "upper", "word", "xdigit",
];

/// An error of Go's parser: what, and the part that it is about.
#[derive(Debug, PartialEq)]
pub(super) struct SyntaxError(&'static str, String);

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error parsing regexp: {}: `{}`", self.0, self.1)
    }
}

type Checked<T> = Result<T, SyntaxError>;

fn error<T>(what: &'static str, part: &str) -> Checked<T> {
    Err(SyntaxError(what, part.to_owned()))
}

/// What stands before a place in a group.
#[derive(Clone, Copy, Default)]
struct Group {
    /// Whether something can be repeated, and how often it is already.
    atom: Option<u64>,
    /// The most repetitions of anything in the group.
    most: u64,
}

/// Checks a pattern by the rules of Go, with the flags of Perl.
pub(super) fn check(pattern: &str) -> Checked<()> {
    let mut groups = vec![Group { atom: None, most: 1 }];
    let (mut rest, mut last_repeat) = (pattern, None);
    while let Some(c) = rest.chars().next() {
        let (before, mut repeat) = (rest, None);
        match c {
            '(' => {
                let (after, opens) = open(rest)?;
                rest = after;
                if opens {
                    groups.push(Group { atom: None, most: 1 });
                }
            }
            ')' => {
                let inner = groups.pop().unwrap_or_default();
                let Some(outer) = groups.last_mut() else { return error("unexpected )", pattern) };
                outer.atom = Some(inner.most);
                outer.most = outer.most.max(inner.most);
                rest = &rest[1..];
            }
            '*' | '+' | '?' => {
                rest = repeated(before, &rest[1..], last_repeat, 1, &mut groups)?;
                repeat = Some(before);
            }
            '{' => match count(rest) {
                Some((min, max, after)) => {
                    let part = &before[..before.len() - after.len()];
                    if min > MAX_REPEAT || max.is_some_and(|max| max > MAX_REPEAT || min > max) {
                        return error("invalid repeat count", part);
                    }
                    let times = max.unwrap_or(min);
                    rest = repeated(before, after, last_repeat, times, &mut groups)?;
                    repeat = Some(before);
                }
                None => rest = atom(&rest[1..], &mut groups),
            },
            '|' => {
                if let Some(group) = groups.last_mut() {
                    group.atom = None;
                }
                rest = &rest[1..];
            }
            '[' => rest = atom(class(rest)?, &mut groups),
            '\\' => rest = atom(escaped(rest)?, &mut groups),
            c => rest = atom(&rest[c.len_utf8()..], &mut groups),
        }
        last_repeat = repeat;
    }
    if groups.len() == 1 { Ok(()) } else { error("missing closing )", pattern) }
}

fn atom<'p>(rest: &'p str, groups: &mut [Group]) -> &'p str {
    if let Some(group) = groups.last_mut() {
        group.atom = Some(1);
    }
    rest
}

fn repeated<'p>(
    before: &'p str,
    after: &'p str,
    last_repeat: Option<&str>,
    times: u64,
    groups: &mut [Group],
) -> Checked<&'p str> {
    let after = after.strip_prefix('?').unwrap_or(after);
    if let Some(last) = last_repeat {
        return error("invalid nested repetition operator", &last[..last.len() - after.len()]);
    }
    let part = &before[..before.len() - after.len()];
    let Some(group) = groups.last_mut() else { return Ok(after) };
    let Some(inner) = group.atom else { return error("missing argument to repetition operator", part) };
    let all = inner.saturating_mul(times.max(1));
    if times >= 2 && all > MAX_REPEAT {
        return error("invalid repeat count", part);
    }
    group.atom = Some(all);
    group.most = group.most.max(all);
    Ok(after)
}

/// `{2,3}`: least, most, and what follows.
fn count(text: &str) -> Option<(u64, Option<u64>, &str)> {
    fn number(text: &str) -> Option<(u64, &str)> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        let leading_zero = digits.len() > 1 && digits.starts_with('0');
        (!digits.is_empty() && !leading_zero).then(|| (digits.parse().unwrap_or(u64::MAX), rest))
    }
    let (min, rest) = number(text.strip_prefix('{')?)?;
    let (max, rest) = match rest.strip_prefix(',') {
        None => (Some(min), rest),
        Some(rest) if rest.starts_with('}') => (None, rest),
        Some(rest) => number(rest).map(|(max, rest)| (Some(max), rest))?,
    };
    Some((min, max, rest.strip_prefix('}')?))
}

/// What follows the beginning of a group, and whether a group began there.
fn open(text: &str) -> Checked<(&str, bool)> {
    let Some(flags) = text.strip_prefix("(?") else { return Ok((&text[1..], true)) };
    let name = text.strip_prefix("(?P<").filter(|name| !name.is_empty());
    if let Some(name) = name.or_else(|| text.strip_prefix("(?<").filter(|name| !name.is_empty())) {
        const WRONG: &str = "invalid named capture";
        let Some((name, after)) = name.split_once('>') else { return error(WRONG, text) };
        let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
        if name.is_empty() || !name.chars().all(is_word) {
            return error(WRONG, &text[..text.len() - after.len()]);
        }
        return Ok((after, true));
    }
    let (mut negative, mut any, mut rest) = (false, false, flags.chars());
    while let Some(c) = rest.next() {
        match c {
            'i' | 'm' | 's' | 'U' => any = true,
            '-' if !negative => (negative, any) = (true, false),
            ':' | ')' if !negative || any => return Ok((rest.as_str(), c == ':')),
            _ => break,
        }
    }
    error("invalid or unsupported Perl syntax", &text[..text.len() - rest.as_str().len()])
}

/// What follows an escape outside of classes.
fn escaped(text: &str) -> Checked<&str> {
    match text[1..].chars().next() {
        Some('A' | 'b' | 'B' | 'z') => Ok(&text[2..]),
        Some('C') => error("invalid escape sequence", &text[..2]),
        Some('Q') => Ok(text.split_once("\\E").map_or("", |(_, after)| after)),
        _ => set(text).unwrap_or_else(|| character(text).map(|(_, after)| after)),
    }
}

/// What follows an escape that stands for several characters: `\d`, `\pL`.
fn set(text: &str) -> Option<Checked<&str>> {
    const WRONG: &str = "invalid character class range";
    match text.strip_prefix('\\')?.chars().next()? {
        'd' | 'D' | 's' | 'S' | 'w' | 'W' => Some(Ok(&text[2..])),
        'p' | 'P' => {
            let (part, name) = match text[2..].strip_prefix('{') {
                Some(inner) => match inner.find('}') {
                    Some(end) => (&text[..end + 4], &inner[..end]),
                    None => return Some(error(WRONG, text)),
                },
                None => {
                    let end = 2 + text[2..].chars().next().map_or(0, char::len_utf8);
                    (&text[..end], &text[2..end])
                }
            };
            let name = name.strip_prefix('^').unwrap_or(name);
            let is_known = name == "Any" || regex::Regex::new(&format!("\\p{{{name}}}")).is_ok();
            Some(if is_known { Ok(&text[part.len()..]) } else { error(WRONG, part) })
        }
        _ => None,
    }
}

/// A character after a backslash, and what follows.
fn character(text: &str) -> Checked<(char, &str)> {
    let mut rest = text[1..].chars();
    let Some(c) = rest.next() else { return error("trailing backslash at end of expression", "") };
    let after = rest.as_str();
    let wrong = |after: &str| error("invalid escape sequence", &text[..text.len() - after.len()]);
    let code = |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
    match c {
        '0'..='7' if c == '0' || after.starts_with(|c: char| ('0'..='7').contains(&c)) => {
            let more = after.bytes().take(2).take_while(|b| (b'0'..=b'7').contains(b)).count();
            let digits = &text[1..2 + more];
            Ok((code(digits, 8).unwrap_or('\0'), &after[more..]))
        }
        'x' => match after.strip_prefix('{') {
            Some(inner) => {
                let found =
                    inner.split_once('}').and_then(|(digits, after)| Some((code(digits, 16)?, after)));
                found.map_or_else(|| wrong(after), Ok)
            }
            None => {
                let found = after.get(..2).and_then(|digits| code(digits, 16));
                found.map_or_else(|| wrong(after.get(1..).unwrap_or("")), |c| Ok((c, &after[2..])))
            }
        },
        'a' => Ok(('\x07', after)),
        'f' => Ok(('\x0c', after)),
        'n' => Ok(('\n', after)),
        'r' => Ok(('\r', after)),
        't' => Ok(('\t', after)),
        'v' => Ok(('\x0b', after)),
        c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok((c, after)),
        _ => wrong(after),
    }
}

/// What follows a class in brackets.
fn class(text: &str) -> Checked<&str> {
    const RANGE: &str = "invalid character class range";
    let mut rest = text[1..].strip_prefix('^').unwrap_or(&text[1..]);
    let mut first = true;
    while first || !rest.starts_with(']') {
        first = false;
        if let Some((name, after)) = rest.strip_prefix("[:").and_then(|inner| inner.split_once(":]")) {
            if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
                return error(RANGE, &rest[..rest.len() - after.len()]);
            }
            rest = after;
            continue;
        }
        if let Some(after) = set(rest) {
            rest = after?;
            continue;
        }
        let whole = rest;
        let (low, after) = member(rest, text)?;
        rest = after;
        if let Some(upper) =
            rest.strip_prefix('-').filter(|upper| !upper.is_empty() && !upper.starts_with(']'))
        {
            let (high, after) = member(upper, text)?;
            rest = after;
            if high < low {
                return error(RANGE, &whole[..whole.len() - rest.len()]);
            }
        }
    }
    Ok(&rest[1..])
}

fn member<'p>(rest: &'p str, class: &str) -> Checked<(char, &'p str)> {
    match rest.chars().next() {
        None => error("missing closing ]", class),
        Some('\\') => character(rest),
        Some(c) => Ok((c, &rest[c.len_utf8()..])),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    /// The errors are those of Go 1.26.
    #[test]
    fn errors_have_the_words_of_go() {
        for (pattern, want) in [
            ("(", "missing closing ): `(`"),
            (")", "unexpected ): `)`"),
            ("[", "missing closing ]: `[`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a+?*", "invalid nested repetition operator: `+?*`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("(|+)", "missing argument to repetition operator: `+`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("(a{100}){11}", "invalid repeat count: `{11}`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            (r"\pX", r"invalid character class range: `\pX`"),
            (r"\8", r"invalid escape sequence: `\8`"),
            (r"\y", r"invalid escape sequence: `\y`"),
            ("\\", "trailing backslash at end of expression: ``"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("(?P<a.>x)", "invalid named capture: `(?P<a.>`"),
            ("(?i", "invalid or unsupported Perl syntax: `(?i`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?<!a)", "invalid named capture: `(?<!a)`"),
        ] {
            let got = check(pattern).unwrap_err().to_string();
            assert_eq!(got, format!("error parsing regexp: {want}"), "{pattern}");
        }
        for pattern in [
            "",
            "a{,2}",
            "a{",
            "{",
            "^*",
            "[]a]",
            "[a-]",
            "[^-a]",
            r"[\d\]-]",
            r"\Q*(\E+",
            "(?:a|b)*?",
            "(?i)a",
            r"\x{10FFFF}\x41\012\pL\p{Greek}\P{^Lu}",
            "(?P<a>x)(?<b>y)",
            "(?i-s:a)",
            "a{1000}",
            "(a{10}){100}",
            "[[:alpha:][:^digit:]]",
            "é+",
            "a|",
            "()",
            "(?s).*$",
        ] {
            assert_eq!(check(pattern), Ok(()), "{pattern}");
        }
    }
}
