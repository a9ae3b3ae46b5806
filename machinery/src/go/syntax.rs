//! The errors of `encoding/json`'s scanner.

use super::escape;

/// Levels of nesting that decoders here take. Go's takes 10,000, and says the same of more.
pub const MAX_DEPTH: usize = 127;

/// What Go says of bytes that are not one JSON value; `None` where they are.
pub fn syntax_error(bytes: &[u8]) -> Option<String> {
    let mut scan = Scan { rest: bytes, depth: 0 };
    scan.whole().err()
}

struct Scan<'a> {
    rest: &'a [u8],
    depth: usize,
}

type Step<T = ()> = Result<T, String>;

fn end() -> String {
    "unexpected end of JSON input".to_owned()
}

/// A byte as the scanner shows it.
fn shown(byte: u8) -> String {
    let mut out = String::from("'");
    match byte {
        b'\'' => out.push_str("\\'"),
        b'"' => out.push('"'),
        _ => escape(char::from(byte), &mut out),
    }
    out.push('\'');
    out
}

fn invalid(byte: u8, context: &str) -> String {
    format!("invalid character {} {context}", shown(byte))
}

impl Scan<'_> {
    fn skip_space(&mut self) {
        let space = self.rest.iter().take_while(|b| matches!(b, b' ' | b'\t' | b'\r' | b'\n')).count();
        self.rest = &self.rest[space..];
    }

    fn peek(&self) -> Step<u8> {
        self.rest.first().copied().ok_or_else(end)
    }

    fn next(&mut self) -> Step<u8> {
        let byte = self.peek()?;
        self.rest = &self.rest[1..];
        Ok(byte)
    }

    /// The next byte that is no space.
    fn token(&mut self) -> Step<u8> {
        self.skip_space();
        self.next()
    }

    fn whole(&mut self) -> Step {
        self.value()?;
        self.skip_space();
        match self.rest.first() {
            Some(byte) => Err(invalid(*byte, "after top-level value")),
            None => Ok(()),
        }
    }

    fn value(&mut self) -> Step {
        match self.token()? {
            b'{' => self.nested(b'{', Self::object),
            b'[' => self.nested(b'[', Self::array),
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' => match self.next()? {
                digit @ b'0'..=b'9' => self.number(digit),
                other => Err(invalid(other, "in numeric literal")),
            },
            digit @ b'0'..=b'9' => self.number(digit),
            other => Err(invalid(other, "looking for beginning of value")),
        }
    }

    fn nested(&mut self, opening: u8, inner: fn(&mut Self) -> Step) -> Step {
        if self.depth >= MAX_DEPTH {
            return Err(invalid(opening, "exceeded max depth"));
        }
        self.depth += 1;
        let done = inner(self);
        self.depth -= 1;
        done
    }

    fn object(&mut self) -> Step {
        let mut first = true;
        loop {
            match self.token()? {
                b'}' if first => return Ok(()),
                b'"' => self.string()?,
                other => return Err(invalid(other, "looking for beginning of object key string")),
            }
            first = false;
            match self.token()? {
                b':' => self.value()?,
                other => return Err(invalid(other, "after object key")),
            }
            match self.token()? {
                b',' => {}
                b'}' => return Ok(()),
                other => return Err(invalid(other, "after object key:value pair")),
            }
        }
    }

    fn array(&mut self) -> Step {
        self.skip_space();
        if self.peek()? == b']' {
            return self.next().map(|_| ());
        }
        loop {
            self.value()?;
            match self.token()? {
                b',' => {}
                b']' => return Ok(()),
                other => return Err(invalid(other, "after array element")),
            }
        }
    }

    fn string(&mut self) -> Step {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => match self.next()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let digit = self.next()?;
                            if !digit.is_ascii_hexdigit() {
                                return Err(invalid(digit, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    other => return Err(invalid(other, "in string escape code")),
                },
                control @ ..0x20 => return Err(invalid(control, "in string literal")),
                _ => {}
            }
        }
    }

    fn literal(&mut self, word: &str) -> Step {
        for expected in word.bytes().skip(1) {
            let byte = self.next()?;
            if byte != expected {
                return Err(invalid(
                    byte,
                    &format!("in literal {word} (expecting '{}')", char::from(expected)),
                ));
            }
        }
        Ok(())
    }

    fn digits(&mut self) {
        let digits = self.rest.iter().take_while(|b| b.is_ascii_digit()).count();
        self.rest = &self.rest[digits..];
    }

    fn number(&mut self, first: u8) -> Step {
        if first != b'0' {
            self.digits();
        }
        if self.rest.first() == Some(&b'.') {
            self.next()?;
            self.digit("after decimal point in numeric literal")?;
        }
        if matches!(self.rest.first(), Some(b'e' | b'E')) {
            self.next()?;
            if matches!(self.rest.first(), Some(b'+' | b'-')) {
                self.next()?;
            }
            self.digit("in exponent of numeric literal")?;
        }
        Ok(())
    }

    fn digit(&mut self, context: &str) -> Step {
        let byte = self.next()?;
        if !byte.is_ascii_digit() {
            return Err(invalid(byte, context));
        }
        self.digits();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_json_is_told_in_gos_words() {
        let rows = [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("bad", "invalid character 'b' looking for beginning of value"),
            ("{a}", "invalid character 'a' looking for beginning of object key string"),
            (r#"{"a" 1}"#, "invalid character '1' after object key"),
            (r#"{"a":1 "b"}"#, "invalid character '\"' after object key:value pair"),
            (r#"{"a":1,}"#, "invalid character '}' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("01", "invalid character '1' after top-level value"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("\"a\nb\"", "invalid character '\\n' in string literal"),
            (r#""\x""#, "invalid character 'x' in string escape code"),
            (r#""\u00g0""#, r"invalid character 'g' in \u hexadecimal character escape"),
            ("{} {}", "invalid character '{' after top-level value"),
        ];
        for (text, expected) in rows {
            assert_eq!(syntax_error(text.as_bytes()).as_deref(), Some(expected), "{text}");
        }
        for good in ["{}", " [1, -0.5e+3, \"\\u00e4\", null] ", "\"x\""] {
            assert_eq!(syntax_error(good.as_bytes()), None, "{good}");
        }
    }
}
