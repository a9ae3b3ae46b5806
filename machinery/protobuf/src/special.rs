//! Messages whose JSON is not an object of their fields: times, quantities, int-or-string, raw JSON.

use crate::error::{Result, malformed};
use crate::{
    decode::Decoder,
    names::{SCHEMA, SCHEMA_OR_ARRAY, SCHEMA_OR_BOOL, SCHEMA_OR_STRINGS},
    wire::{self, Wire, put_bytes, put_integer},
};
use freehold_machinery::Value;
use jiff::Timestamp;

const SECOND: i64 = 1_000_000_000;

/// The fields of such a message, at most one of each kind that is needed.
#[derive(Default)]
struct Parts<'a> {
    integers: [i64; 4],
    bytes: [Option<&'a [u8]>; 4],
    repeated: Vec<&'a [u8]>,
}

fn parts(mut input: &[u8]) -> Result<Parts<'_>> {
    let mut parts = Parts::default();
    while !input.is_empty() {
        let (number, content) = wire::field(&mut input)?;
        let at = number as usize;
        match content {
            Wire::Varint(value) if at < 4 => parts.integers[at] = value as i64,
            Wire::Bytes(bytes) if at < 4 => {
                parts.bytes[at] = Some(bytes);
                if at == 2 {
                    parts.repeated.push(bytes);
                }
            }
            _ => {}
        }
    }
    Ok(parts)
}

fn text(bytes: Option<&[u8]>) -> Result<String> {
    let text =
        std::str::from_utf8(bytes.unwrap_or_default()).map_err(|_| malformed("proto: invalid UTF-8"))?;
    Ok(text.to_owned())
}

fn raw_json(bytes: Option<&[u8]>) -> Result<Value> {
    match bytes {
        None | Some([]) => Ok(Value::Null),
        Some(bytes) => serde_json::from_slice(bytes).map_err(|error| malformed(error.to_string())),
    }
}

/// The JSON of such a message; null for one that stands for nothing.
pub(crate) fn decode(decoder: &mut Decoder, name: &str, input: &[u8]) -> Result<Value> {
    let parts = parts(input)?;
    let [_, first, second, _] = parts.integers;
    Ok(match name {
        "meta.v1.Time" | "meta.v1.MicroTime" if input.is_empty() || (first, second) == (NO_TIME, 0) => {
            Value::Null
        }
        "meta.v1.Time" => time(first, 0, "%Y-%m-%dT%H:%M:%SZ")?,
        "meta.v1.MicroTime" => time(first, second, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        "meta.v1.Duration" => duration_text(first).into(),
        "meta.v1.FieldsV1" | "runtime.RawExtension" | "apiextensions.v1.JSON" => raw_json(parts.bytes[1])?,
        "resource.Quantity" => text(parts.bytes[1])?.into(),
        "intstr.IntOrString" if first == 0 => second.into(),
        "intstr.IntOrString" => text(parts.bytes[3])?.into(),
        SCHEMA_OR_BOOL => match parts.bytes[2] {
            Some(schema) => decoder.message(SCHEMA, schema)?,
            None => (first != 0).into(),
        },
        SCHEMA_OR_ARRAY if parts.bytes[1].is_none() => {
            let items: Result<Vec<Value>> =
                parts.repeated.iter().map(|item| decoder.message(SCHEMA, item)).collect();
            items?.into()
        }
        SCHEMA_OR_STRINGS if parts.bytes[1].is_none() => {
            let items: Result<Vec<String>> = parts.repeated.iter().map(|item| text(Some(item))).collect();
            items?.into()
        }
        _ => decoder.message(SCHEMA, parts.bytes[1].unwrap_or_default())?,
    })
}

/// The zero time of Go, which stands for none: the year 1, in seconds since 1970.
const NO_TIME: i64 = -62_135_596_800;

fn time(seconds: i64, nanos: i64, format: &str) -> Result<Value> {
    let nanos = i32::try_from(nanos).map_err(|_| malformed("a time has too many nanoseconds"))?;
    let time = Timestamp::new(seconds, nanos).map_err(|error| malformed(error.to_string()))?;
    Ok(time.strftime(format).to_string().into())
}

/// A duration as Go writes it: `1h2m3.5s`.
fn duration_text(nanos: i64) -> String {
    if nanos == 0 {
        return "0s".into();
    }
    let (sign, total) = if nanos < 0 { ("-", nanos.unsigned_abs()) } else { ("", nanos.unsigned_abs()) };
    let second = SECOND as u64;
    let (seconds, fraction) = (total / second, total % second);
    let (hours, minutes, rest) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let digits = format!("{fraction:09}");
    let fraction = digits.trim_end_matches('0');
    let tail = if fraction.is_empty() { format!("{rest}s") } else { format!("{rest}.{fraction}s") };
    match (hours, minutes) {
        (0, 0) => format!("{sign}{tail}"),
        (0, minutes) => format!("{sign}{minutes}m{tail}"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{tail}"),
    }
}

fn duration_nanos(text: &str) -> Option<i64> {
    let (sign, mut rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    let mut total = 0.0;
    while !rest.is_empty() && rest != "0" {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        let unit_end = rest[end..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |at| end + at);
        total += number
            * match &rest[end..unit_end] {
                "h" => 3600e9,
                "m" => 60e9,
                "s" => 1e9,
                "ms" => 1e6,
                "us" | "µs" => 1e3,
                "ns" => 1.0,
                _ => return None,
            };
        rest = &rest[unit_end..];
    }
    Some((sign * total) as i64)
}

/// Appends the bytes of such a message, of those that hold a text or a number.
pub(crate) fn encode(out: &mut Vec<u8>, name: &str, value: &Value) {
    let text = value.as_str().unwrap_or_default();
    match name {
        "meta.v1.Time" | "meta.v1.MicroTime" => {
            if let Ok(time) = text.parse::<Timestamp>() {
                put_integer(out, 1, time.as_second() as u64);
                put_integer(out, 2, time.subsec_nanosecond() as u64);
            }
        }
        "meta.v1.Duration" => put_integer(out, 1, duration_nanos(text).unwrap_or(0) as u64),
        "resource.Quantity" if value.is_string() => put_bytes(out, 1, text.as_bytes()),
        "resource.Quantity" => put_bytes(out, 1, value.to_string().as_bytes()),
        _ => {
            put_integer(out, 1, u64::from(value.is_string()));
            put_integer(out, 2, value.as_i64().unwrap_or(0) as u64);
            put_bytes(out, 3, text.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_write_as_go_does() {
        for (text, nanos) in [
            ("1h0m0s", 3600 * SECOND),
            ("1m30s", 90 * SECOND),
            ("1.5s", SECOND * 3 / 2),
            ("0s", 0),
            ("-2s", -2 * SECOND),
        ] {
            assert_eq!(duration_text(nanos), text);
            assert_eq!(duration_nanos(text), Some(nanos));
        }
    }
}
