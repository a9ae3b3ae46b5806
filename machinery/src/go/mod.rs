//! Go's error messages: those of its standard library that kube-apiserver passes on to clients.
//!
//! [`syntax_error`] is what `encoding/json` says of text that is no JSON, [`mismatch`] what it says of JSON that doesn't fit a
//! struct, [`Structs`] prints a part of an object as messages of validation do, which know the structs inside the
//! server and not the served JSON.

pub mod address;
mod decode;
mod print;
mod restore;
mod syntax;
mod text;
mod time;
pub mod url;

pub use decode::{mismatch, object_meta_mismatch, word};
pub use print::{Structs, unified_diff};
pub use restore::unrestorable;
pub use syntax::{MAX_DEPTH, syntax_error};
pub use text::readable;

use crate::Value;
use std::fmt::Write;

/// Makes floating point numbers that are whole into integers, as Go writes them: `2.0` is stored as `2`.
pub fn whole_numbers(value: &mut Value) {
    /// Above that, floats have no place for all digits of an integer.
    const EXACT: f64 = (1_u64 << 53) as f64;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or(f64::NAN);
            let negative_zero = float == 0.0 && float.is_sign_negative();
            if float.fract() == 0.0 && float.abs() <= EXACT && !negative_zero {
                *value = (float as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// A string as `%q` writes it.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    text.chars().for_each(|c| escape(c, &mut out));
    out.push('"');
    out
}

/// Characters that only say how others are shown.
fn is_format(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

fn escape(c: char, out: &mut String) {
    let short = match c {
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{7}' => "\\a",
        '\u{8}' => "\\b",
        '\u{c}' => "\\f",
        '\n' => "\\n",
        '\r' => "\\r",
        '\t' => "\\t",
        '\u{b}' => "\\v",
        _ => "",
    };
    let code = u32::from(c);
    // Writing to a string does not fail.
    let _ = match (short, c) {
        ("", _) if code < 0x20 || code == 0x7f => write!(out, "\\x{code:02x}"),
        ("", _) if c.is_control() || (c.is_whitespace() && c != ' ') || is_format(c) => {
            write!(out, "\\u{code:04x}")
        }
        ("", _) => write!(out, "{c}"),
        (short, _) => write!(out, "{short}"),
    };
}

/// JSON as `json.Marshal` writes it, where `<`, `>` and `&` are escaped.
pub fn json(value: &Value) -> String {
    escape_html(&value.to_string())
}

fn escape_html(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_that_are_whole_are_integers() {
        let mut value = serde_json::json!([2.0, -3.0, 1.5, 1e300, {"a": 4e2}, "2.0", -0.0]);
        whole_numbers(&mut value);
        assert_eq!(value.to_string(), r#"[2,-3,1.5,1e+300,{"a":400},"2.0",-0.0]"#);
    }

    #[test]
    fn strings_are_quoted_as_go_quotes_them() {
        assert_eq!(quote("a\u{7}b\"\\\n\u{1}é\u{a0}"), r#""a\ab\"\\\n\x01é\u00a0""#);
        assert_eq!(json(&serde_json::json!({"a": "<&>"})), r#"{"a":"\u003c\u0026\u003e"}"#);
    }
}
