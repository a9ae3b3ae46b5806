//! The errors of `time.Parse`.

use super::quote;

/// `metav1.Time`.
pub(super) const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
/// `metav1.MicroTime`.
pub(super) const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// How a layout spells an element, its digits, and its range with a name.
type Element = (&'static str, usize, Option<(u32, u32, &'static str)>);

/// The elements of both layouts, in order.
const ELEMENTS: [Element; 11] = [
    ("2006", 4, None),
    ("-", 0, None),
    ("01", 2, Some((1, 12, "month"))),
    ("-", 0, None),
    ("02", 2, None),
    ("T", 0, None),
    ("15", 2, Some((0, 23, "hour"))),
    (":", 0, None),
    ("04", 2, Some((0, 59, "minute"))),
    (":", 0, None),
    ("05", 2, Some((0, 59, "second"))),
];

/// What Go says of text that is no time in a layout; `None` where it is one.
pub(super) fn parse_error(text: &str, layout: &str) -> Option<String> {
    parse(text, layout).err()
}

fn parse(text: &str, layout: &str) -> Result<(), String> {
    let bad = |rest: &str, element: &str| {
        let (text, layout) = (quote(text), quote(layout));
        Err(format!("parsing time {text} as {layout}: cannot parse {} as {}", quote(rest), quote(element)))
    };
    let said = |what: &str| Err(format!("parsing time {}: {what}", quote(text)));
    let (mut rest, mut numbers) = (text, Vec::new());
    for (element, digits, range) in ELEMENTS {
        if digits == 0 {
            match rest.strip_prefix(element) {
                Some(after) => rest = after,
                None => return bad(rest, element),
            }
            continue;
        }
        let count = rest.bytes().take(digits).take_while(u8::is_ascii_digit).count();
        // A day or an hour may have one digit.
        let short = matches!(element, "02" | "15") && count == 1;
        if count < digits && !short {
            return bad(rest, element);
        }
        let number: u32 = rest[..count].parse().unwrap_or(0);
        rest = &rest[count..];
        if let Some((low, high, name)) = range
            && !(low..=high).contains(&number)
        {
            return said(&format!("{name} out of range"));
        }
        numbers.push(number);
    }
    let fraction =
        rest.strip_prefix(['.', ',']).map(|digits| digits.bytes().take_while(u8::is_ascii_digit).count());
    match (layout == MICROS, fraction) {
        (true, Some(6..)) => rest = &rest[7..],
        (true, _) => return bad(rest, ".000000"),
        (false, Some(count @ 1..)) => rest = &rest[count + 1..],
        (false, _) => {}
    }
    rest = match rest.strip_prefix('Z') {
        Some(after) => after,
        None if is_offset(rest.as_bytes()) => &rest[6..],
        None => return bad(rest, "Z07:00"),
    };
    if !rest.is_empty() {
        return said(&format!("extra text: {}", quote(rest)));
    }
    if numbers[2] < 1 || numbers[2] > days(numbers[0], numbers[1]) {
        return said("day out of range");
    }
    Ok(())
}

fn is_offset(zone: &[u8]) -> bool {
    zone.len() >= 6
        && matches!(zone[0], b'+' | b'-')
        && zone[3] == b':'
        && [1, 2, 4, 5].iter().all(|i| zone[*i].is_ascii_digit())
}

fn days(year: u32, month: u32) -> u32 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_time_is_told_in_gos_words() {
        let rows = [
            ("abc", r#"parsing time "abc" as "2006-01-02T15:04:05Z07:00": cannot parse "abc" as "2006""#),
            ("2020-13-01T00:00:00Z", r#"parsing time "2020-13-01T00:00:00Z": month out of range"#),
            ("2021-02-29T00:00:00Z", r#"parsing time "2021-02-29T00:00:00Z": day out of range"#),
            (
                "2020-01-01",
                r#"parsing time "2020-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T""#,
            ),
            ("2020-01-01T00:00:00Zx", r#"parsing time "2020-01-01T00:00:00Zx": extra text: "x""#),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_error(text, SECONDS).as_deref(), Some(expected));
        }
        for good in ["2020-02-29T23:59:59Z", "2020-01-01T00:00:00.5+01:00"] {
            assert_eq!(parse_error(good, SECONDS), None);
        }
        assert_eq!(parse_error("2020-01-01T00:00:00.000001Z", MICROS), None);
        assert!(parse_error("2020-01-01T00:00:00Z", MICROS).is_some());
    }
}
