//! Cron schedules in their standard form: five fields, or a macro (`@hourly`).
//!
//! Only whether a schedule can be read is said here, in the words of the parser that Kubernetes uses.

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
const MACROS: [&str; 7] = ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// Reads a schedule.
///
/// # Errors
/// What is wrong with it.
pub(super) fn check(schedule: &str) -> Result<(), String> {
    let prefixed = ["TZ=", "CRON_TZ="].iter().any(|prefix| schedule.starts_with(prefix));
    let spec = if prefixed { schedule.split_once(' ').map_or("", |(_, rest)| rest) } else { schedule }.trim();
    if spec.starts_with('@') {
        return descriptor(spec);
    }
    let fields: Vec<&str> = spec.split_whitespace().collect();
    if fields.len() != PARTS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    fields.iter().zip(&PARTS).try_for_each(|(field, part)| {
        field.split(',').filter(|range| !range.is_empty()).try_for_each(|range| part.range(range))
    })
}

fn descriptor(spec: &str) -> Result<(), String> {
    if MACROS.contains(&spec) {
        return Ok(());
    }
    match spec.strip_prefix("@every ") {
        Some(period) if parse_duration(period).is_some() => Ok(()),
        Some(period) => Err(format!("failed to parse duration {spec}: time: invalid duration \"{period}\"")),
        None => Err(format!("unrecognized descriptor: {spec}")),
    }
}

impl Part {
    /// `*`, `1`, `1-5`, each with or without a step (`/2`).
    fn range(&self, text: &str) -> Result<(), String> {
        let (bounds, steps) =
            text.split_once('/').map_or((text, None), |(bounds, step)| (bounds, Some(step)));
        let (first, last) = bounds.split_once('-').map_or((bounds, None), |(a, b)| (a, Some(b)));
        let (start, mut end) = if matches!(first, "*" | "?") {
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
        Ok(())
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
    use super::check;

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
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("nonsense", "expected exactly 5 fields, found 1: [nonsense]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-3 * * * *", "beginning of range (5) beyond end of range (3): 5-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@sometimes", "unrecognized descriptor: @sometimes"),
        ] {
            assert_eq!(check(bad), Err(why.to_owned()), "{bad}");
        }
    }
}
