//! Durations as people write them: `90s`, `1h30m`, `2d`.

use freehold_machinery::time::parse_duration;
use std::time::Duration;

/// Reads a duration of zero or more: Go's notation, whole days (`7d`), or whole seconds without a unit.
pub fn parse(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(u64::from(seconds)));
    }
    if let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()) {
        return Some(Duration::from_secs(u64::from(days) * 86_400));
    }
    parse_duration(text).and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_or_are_seconds() {
        for (text, seconds) in [
            ("90", Some(90.0)),
            ("1h30m", Some(5400.0)),
            ("7d", Some(604_800.0)),
            ("0.5s", Some(0.5)),
            ("-1s", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(parse(text).map(|d| d.as_secs_f64()), seconds, "{text}");
        }
    }
}
