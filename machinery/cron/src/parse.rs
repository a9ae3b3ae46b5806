//! Reading schedules.

use crate::{Due, Schedule, Zone};
use freehold_machinery::time::parse_duration;

/// A field: its least and greatest number, and names for the numbers from the least on.
struct Part {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const PARTS: [Part; 5] = [
    Part { low: 0, high: 59, names: &[] },
    Part { low: 0, high: 23, names: &[] },
    Part { low: 1, high: 31, names: &[] },
    Part {
        low: 1,
        high: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Part { low: 0, high: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// Names of schedules, and what they stand for.
const MACROS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// What a field or a part of one stands for: its numbers as bits, and whether it is a `*` that leaves nothing out.
#[derive(Clone, Copy, Default)]
struct Numbers {
    bits: u64,
    any: bool,
}

pub(super) fn schedule(schedule: &str) -> Result<Schedule, String> {
    let prefixed = ["TZ=", "CRON_TZ="].iter().find_map(|prefix| schedule.strip_prefix(prefix));
    let (zone, spec) = match prefixed {
        None => (None, schedule),
        Some(rest) => {
            let (name, spec) = rest.split_once(' ').unwrap_or((rest, ""));
            let zone = Zone::named(name)
                .ok_or_else(|| format!("provided bad location {name}: unknown time zone {name}"))?;
            (Some(zone), spec)
        }
    };
    let spec = spec.trim();
    let due = if spec.starts_with('@') { descriptor(spec)? } else { fields(spec)? };
    Ok(Schedule { due, zone })
}

fn fields(spec: &str) -> Result<Due, String> {
    let fields: Vec<&str> = spec.split_whitespace().collect();
    if fields.len() != PARTS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let mut read = [Numbers::default(); 5];
    for ((field, part), numbers) in fields.iter().zip(&PARTS).zip(&mut read) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            let more = part.range(range)?;
            *numbers = Numbers { bits: numbers.bits | more.bits, any: numbers.any || more.any };
        }
    }
    Ok(Due::Fields { fields: read.map(|numbers| numbers.bits), any_day: read[2].any || read[4].any })
}

fn descriptor(spec: &str) -> Result<Due, String> {
    if let Some((_, meaning)) = MACROS.iter().find(|(name, _)| *name == spec) {
        return fields(meaning);
    }
    match spec.strip_prefix("@every ") {
        Some(period) => match parse_duration(period) {
            Some(nanos) => Ok(Due::Every((nanos / 1_000_000_000).max(1))),
            None => Err(format!("failed to parse duration {spec}: time: invalid duration \"{period}\"")),
        },
        None => Err(format!("unrecognized descriptor: {spec}")),
    }
}

impl Part {
    /// `*`, `1`, `1-5`, each with or without a step (`/2`).
    fn range(&self, text: &str) -> Result<Numbers, String> {
        let (bounds, steps) =
            text.split_once('/').map_or((text, None), |(bounds, step)| (bounds, Some(step)));
        let (first, last) = bounds.split_once('-').map_or((bounds, None), |(a, b)| (a, Some(b)));
        let star = matches!(first, "*" | "?");
        let (start, mut end) = if star {
            (self.low, self.high)
        } else {
            let start = self.number(first)?;
            match last {
                None => (start, start),
                Some(last) if last.contains('-') => return Err(format!("too many hyphens: {text}")),
                Some(last) => (start, self.number(last)?),
            }
        };
        let step = match steps {
            None => 1,
            Some(step) if step.contains('/') => return Err(format!("too many slashes: {text}")),
            Some(step) => {
                end = if last.is_none() { self.high } else { end };
                number(step)?
            }
        };
        if start < self.low {
            return Err(format!("beginning of range ({start}) below minimum ({}): {text}", self.low));
        }
        if end > self.high {
            return Err(format!("end of range ({end}) above maximum ({}): {text}", self.high));
        }
        if start > end {
            return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
        }
        if step == 0 {
            return Err(format!("step of range should be a positive number: {text}"));
        }
        let bits = (start..=end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        Ok(Numbers { bits: bits.fold(0, |bits, number| bits | 1 << number), any: star && step == 1 })
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| text.eq_ignore_ascii_case(name));
        named.and_then(|at| u32::try_from(at).ok()).map_or_else(|| number(text), |at| Ok(self.low + at))
    }
}

fn number(text: &str) -> Result<u32, String> {
    if let Ok(negative @ ..=-1) = text.parse::<i64>() {
        return Err(format!("negative number ({negative}) not allowed: {text}"));
    }
    text.parse().map_err(|_| {
        format!("failed to parse int from {text}: strconv.Atoi: parsing \"{text}\": invalid syntax")
    })
}

#[cfg(test)]
mod tests {
    use crate::Schedule;

    #[test]
    fn schedules_are_read_as_kubernetes_reads_them() {
        for good in [
            "* * * * *",
            "*/5 0-12/2 1,15 jan-MAR ?",
            "@hourly",
            "@every 1h30m",
            "0 0 * * SUN",
            "5/15 * * * *",
        ] {
            assert!(Schedule::parse(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("nonsense", "expected exactly 5 fields, found 1: [nonsense]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("TZ=Mars/Base * * * * *", "provided bad location Mars/Base: unknown time zone Mars/Base"),
            ("@sometimes", "unrecognized descriptor: @sometimes"),
        ] {
            assert_eq!(Schedule::parse(bad), Err(why.to_owned()), "{bad}");
        }
    }
}
