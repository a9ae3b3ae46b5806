//! Durations as `kubectl get` shows them.

pub(crate) use freehold_machinery::time::parse;
use jiff::Timestamp;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

/// A duration in seconds as `kubectl` abbreviates it: two units while the larger one is small, one above that
/// (apimachinery's `duration.HumanDuration`). Clocks may differ by a second; what is older than that is invalid.
pub fn human(seconds: i64) -> String {
    match seconds {
        i64::MIN..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(seconds, (MINUTE, 'm'), (1, 's')),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(seconds, (HOUR, 'h'), (MINUTE, 'm')),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(seconds, (DAY, 'd'), (HOUR, 'h')),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(seconds, (YEAR, 'y'), (DAY, 'd')),
        _ => format!("{}y", seconds / YEAR),
    }
}

fn two(seconds: i64, large: (i64, char), small: (i64, char)) -> String {
    let rest = seconds % large.0 / small.0;
    let first = format!("{}{}", seconds / large.0, large.1);
    if rest == 0 { first } else { format!("{first}{rest}{}", small.1) }
}

/// The time since `then`, or `<unknown>` where it is no timestamp.
pub(crate) fn since(then: Option<&str>, now: Timestamp) -> String {
    match then.and_then(parse) {
        Some(then) => human(now.duration_since(then).as_secs()),
        None => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_abbreviated_as_kubectl_does() {
        let rows = [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (10 * MINUTE + 5, "10m"),
            (179 * MINUTE, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + 10 * MINUTE, "3h10m"),
            (8 * HOUR + 59 * MINUTE, "8h"),
            (47 * HOUR, "47h"),
            (48 * HOUR, "2d"),
            (50 * HOUR, "2d2h"),
            (8 * DAY + 5 * HOUR, "8d"),
            (400 * DAY, "400d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + 3 * DAY, "2y3d"),
            (9 * YEAR + 3 * DAY, "9y"),
        ];
        for (seconds, expected) in rows {
            assert_eq!(human(seconds), expected, "{seconds}");
        }
    }
}
