//! Terminal output: text that others wrote moves no cursor and hides nothing.

use anyhow::Result;
use freehold_client::yaml;
use freehold_machinery::Value;
use std::{
    fmt::{Display, Write as _},
    io::{ErrorKind, Write as _},
};

/// Text with all that a terminal would act on written out: control characters other than line feed and tab, and characters
/// that change the direction of others.
pub(crate) fn plain(text: impl Display) -> String {
    let mut out = String::new();
    for c in text.to_string().chars() {
        let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if turns || c.is_control() && !matches!(c, '\n' | '\t') {
            // Writing to a String can't fail.
            let _ = write!(out, "{}", c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Prints a line.
pub(crate) fn say(text: impl Display) {
    // What nobody reads any more is not written: a pipe into `head` is no failure.
    let _ = writeln!(std::io::stdout(), "{}", plain(text));
}

/// Prints objects as YAML documents, as far as somebody reads them.
pub(crate) fn documents<'a>(objects: impl Iterator<Item = &'a Value>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for object in objects {
        match writeln!(out, "---\n{}", yaml(object)?.trim_end()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_moves_no_cursor() {
        let rows = [
            ("größe\n\tx", "größe\n\tx"),
            ("a\u{1b}[2Jb\r\u{7f}\u{9b}1m", "a\\u{1b}[2Jb\\u{d}\\u{7f}\\u{9b}1m"),
            ("owner\u{202e}x", "owner\\u{202e}x"),
        ];
        for (text, expected) in rows {
            assert_eq!(plain(text), expected);
        }
    }
}
