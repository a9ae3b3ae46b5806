//! Invalid text as `encoding/json` decodes it: it refuses none, and replaces unreadable parts by U+FFFD.

const UNREADABLE: &str = "\u{fffd}";

/// Replaces each byte that is not UTF-8 and each unpaired surrogate escape in a JSON text by U+FFFD.
pub fn readable(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    for chunk in json.utf8_chunks() {
        out.extend_from_slice(chunk.valid().as_bytes());
        chunk.invalid().iter().for_each(|_| out.extend_from_slice(UNREADABLE.as_bytes()));
    }
    without_halves(&out)
}

/// Backslashes stand in strings alone, so that each begins an escape.
fn without_halves(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let mut rest = json;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        let (before, escape) = rest.split_at(at);
        out.extend_from_slice(before);
        let paired = matches!(
            (unit(escape), escape.get(6..).and_then(unit)),
            (Some(0xd800..0xdc00), Some(0xdc00..0xe000))
        );
        let (length, lost) = match unit(escape) {
            Some(0xd800..0xe000) if paired => (12, false),
            Some(0xd800..0xe000) => (6, true),
            _ => (2.min(escape.len()), false),
        };
        let (escape, after) = escape.split_at(length);
        out.extend_from_slice(if lost { UNREADABLE.as_bytes() } else { escape });
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

/// The UTF-16 code unit of a `\uXXXX` at the beginning of a text.
fn unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_becomes_u_fffd() {
        let rows: [(&[u8], &str); 8] = [
            (b"\"a\"", "\"a\""),
            (b"\"\xff\xfe\"", "\"\u{fffd}\u{fffd}\""),
            (b"\"\xe2\x82\"", "\"\u{fffd}\u{fffd}\""),
            (br#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (br#""\ud83dx\ude00""#, "\"\u{fffd}x\u{fffd}\""),
            (br#""\ud83d\ud83d\ude00""#, "\"\u{fffd}\\ud83d\\ude00\""),
            (br#""\\ud83d""#, r#""\\ud83d""#),
            (b"\\", "\\"),
        ];
        for (given, expected) in rows {
            assert_eq!(String::from_utf8(readable(given)).unwrap(), expected);
        }
    }
}
