//! What Go prints of a quantity that it has read: how it keeps the number depends on how it was written.

use freehold_machinery::Value;
use std::fmt::{self, Write};

/// Digits that are always few enough for 64 bits.
const MAX_DIGITS: usize = 18;
/// Suffixes with their exponents, those of powers of ten and those of powers of two.
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

/// A quantity as it is kept: a number times a power of ten, the text where it is the canonical one, and how it is written.
#[derive(Debug, Default, PartialEq)]
struct Kept<'a> {
    value: i64,
    scale: i32,
    text: &'a str,
    format: &'a str,
}

/// Prints a quantity. One that needs more than 64 bits is printed otherwise than Go does.
pub(super) fn print(out: &mut impl Write, value: &Value) -> fmt::Result {
    let number = value.as_i64().map(|n| n.to_string());
    let text = number.as_deref().or(value.as_str()).unwrap_or("").trim();
    let Kept { value, scale, text, format } = keep(text).unwrap_or(Kept { text, ..Kept::default() });
    write!(
        out,
        "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
         d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){text} Format:(resource.Format){format}}}"
    )
}

fn keep(text: &str) -> Option<Kept<'_>> {
    if text == "0" {
        return Some(Kept { text, format: "DecimalSI", ..Kept::default() });
    }
    let unsigned = text.trim_start_matches(['+', '-']);
    let digits = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(digits);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let shifted = format!("{whole}{fraction}");
    if let Some((_, exponent)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        let precision = 15 - i64::try_from(whole.len()).ok()? - i64::from(*exponent * 3 / 10) - 1;
        let number: i64 = whole.parse().ok()?;
        let value = number.checked_mul(1 << exponent).filter(|_| fraction.is_empty() && precision >= 0)?;
        let text = if number & 7 != 0 { text } else { "" };
        return Some(Kept { value: sign * value, scale: 0, text, format: "BinarySI" });
    }
    let (exponent, format) = match DECIMAL.iter().find(|(name, _)| *name == suffix) {
        Some((_, exponent)) => (*exponent, "DecimalSI"),
        None => (suffix.strip_prefix(['e', 'E'])?.parse().ok()?, "DecimalExponent"),
    };
    let scale = exponent - i32::try_from(fraction.len()).ok()?;
    if shifted.len() > MAX_DIGITS || scale < -9 {
        return None;
    }
    let is_canonical = scale % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0');
    let text = if is_canonical { text } else { "" };
    Some(Kept { value: sign * shifted.parse::<i64>().ok()?, scale, text, format })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_kept_as_they_were_written() {
        let kept = |value, scale, text, format| Some(Kept { value, scale, text, format });
        for (text, expected) in [
            ("0", kept(0, 0, "0", "DecimalSI")),
            ("500m", kept(500, -3, "500m", "DecimalSI")),
            ("1000m", kept(1000, -3, "", "DecimalSI")),
            ("0.5", kept(5, -1, "", "DecimalSI")),
            ("1Gi", kept(1 << 30, 0, "1Gi", "BinarySI")),
            ("128Mi", kept(128 << 20, 0, "", "BinarySI")),
            ("1e3", kept(1, 3, "1e3", "DecimalExponent")),
            ("12E", kept(12, 18, "12E", "DecimalSI")),
            ("-5k", kept(-5, 3, "-5k", "DecimalSI")),
            ("1.5Gi", None),
            ("9999999999999999999", None),
        ] {
            assert_eq!(keep(text), expected, "{text}");
        }
    }
}
