//! Times and durations as the API spells them.
//!
//! `metav1.Time` has whole seconds and `metav1.MicroTime` microseconds, both in UTC (RFC 3339). Nothing here reads a
//! clock: callers pass times in.

use jiff::Timestamp;

/// `metav1.Time`: `2006-01-02T15:04:05Z`. What is below a second is cut off.
pub fn format_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `metav1.MicroTime`: `2006-01-02T15:04:05.000000Z`. What is below a microsecond is cut off.
pub fn format_micro(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Reads an RFC 3339 time with any offset and any fraction; `None` where it is not one.
pub fn parse(text: &str) -> Option<Timestamp> {
    rfc3339_shape(text.as_bytes()).then(|| text.parse().ok()).flatten()
}

/// Whether the fixed parts of RFC 3339 stand where they must, as the parser behind it takes far more than that.
fn rfc3339_shape(text: &[u8]) -> bool {
    let digits =
        |range: std::ops::Range<usize>| text.get(range).is_some_and(|s| s.iter().all(u8::is_ascii_digit));
    let at = |index: usize, set: &[u8]| text.get(index).is_some_and(|c| set.contains(c));
    let head = digits(0..4) && at(4, b"-") && digits(5..7) && at(7, b"-") && digits(8..10) && at(10, b"Tt");
    let clock = digits(11..13) && at(13, b":") && digits(14..16) && at(16, b":") && digits(17..19);
    if !head || !clock {
        return false;
    }
    let fraction =
        if at(19, b".") { 1 + text[20..].iter().take_while(|c| c.is_ascii_digit()).count() } else { 0 };
    let zone = &text[19 + fraction..];
    let offset = zone.len() == 6
        && (zone[0] == b'+' || zone[0] == b'-')
        && zone[3] == b':'
        && [1, 2, 4, 5].iter().all(|i| zone[*i].is_ascii_digit());
    fraction != 1 && (matches!(zone, b"Z" | b"z") || offset)
}

/// Reads a duration as Go's `time.ParseDuration` does (`1h30m`, `-1.5s`, `100ms`), in nanoseconds; `None` where it is
/// not one or does not fit into 64 bits.
pub fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(number_end);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        total = total.checked_add(scaled(number, unit_nanos(unit)?)?)?;
        rest = tail;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

fn unit_nanos(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3600 * 1_000_000_000,
        _ => return None,
    })
}

/// `number` (digits, perhaps with a fraction) times `unit`.
fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction = &fraction[..fraction.len().min(18)];
    let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
    let digits = u32::try_from(fraction.len()).ok()?;
    whole.checked_mul(unit)?.checked_add(part.checked_mul(unit)? / 10i128.pow(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_kubernetes_writes_them() {
        let time: Timestamp = "2026-01-02T03:04:05.678901234Z".parse().unwrap();
        assert_eq!(format_seconds(time), "2026-01-02T03:04:05Z");
        assert_eq!(format_micro(time), "2026-01-02T03:04:05.678901Z");
    }

    #[test]
    fn only_rfc3339_is_read() {
        for good in ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.1+02:00", "2026-01-02t03:04:05z"] {
            assert!(parse(good).is_some(), "{good}");
        }
        for bad in [
            "",
            "2026-01-02",
            "2026-01-02T03:04Z",
            "2026-13-02T03:04:05Z",
            "2026-01-02 03:04:05Z",
            "2026-01-02T03:04:05",
            "2026-01-02T03:04:05.Z",
            "2026-01-02T03:04:05Z[UTC]",
        ] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn durations_are_those_of_go() {
        for (text, want) in [
            ("0", Some(0)),
            ("1h30m", Some(5_400_000_000_000)),
            ("-1.5s", Some(-1_500_000_000)),
            ("100ms", Some(100_000_000)),
            (".5s", Some(500_000_000)),
            ("", None),
            ("-", None),
            ("1", None),
            ("1d", None),
            (".s", None),
            ("9999999999h", None),
        ] {
            assert_eq!(parse_duration(text), want, "{text:?}");
        }
    }
}
