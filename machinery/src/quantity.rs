//! `resource.Quantity`: exact amounts with a suffix (`100m`, `1536Mi`, `1e3`).
//!
//! Amounts are kept in billionths as a 128-bit integer: exact for everything from 1n up to about 1.7e29. What is finer
//! is rounded away from zero, as Kubernetes does. Two quantities are equal when their amounts are, whatever the suffix.

use std::{cmp::Ordering, fmt, str::FromStr};

const NANO: i128 = 1_000_000_000;
/// 2^63-1: the most that a quantity with a binary suffix can be.
const BINARY_MAX: i128 = i64::MAX as i128 * NANO;
const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// From 10^-9, in steps of 10^3.
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// Which family of suffixes a quantity is written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `1e3`.
    DecimalExponent,
    /// `1Ki`.
    BinarySi,
    /// `1k`.
    DecimalSi,
}

/// An exact amount.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

/// Why a string is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Its form is wrong.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// Its number can't be read, or is beyond what can be kept.
    #[error("unable to parse numeric part of quantity")]
    Numeric,
    /// Its suffix is not one.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nano: 0, format: Format::DecimalSi };

    /// A whole number of units.
    pub fn from_units(units: i64, format: Format) -> Self {
        Self { nano: i128::from(units) * NANO, format }
    }

    /// A whole number of billionths.
    pub fn from_nano(nano: u64, format: Format) -> Self {
        Self { nano: i128::from(nano), format }
    }

    /// A whole number of thousandths.
    pub fn from_milli(milli: i64, format: Format) -> Self {
        Self { nano: i128::from(milli) * (NANO / 1000), format }
    }

    /// The family of its suffix.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Whole units, rounded up; the nearest end of the range where it is beyond.
    pub fn units(&self) -> i64 {
        saturate(away_from_zero(self.nano, NANO))
    }

    /// Thousandths, rounded up; the nearest end of the range where it is beyond.
    pub fn milli(&self) -> i64 {
        saturate(away_from_zero(self.nano, NANO / 1000))
    }

    /// The amount in whole thousandths, rounded up.
    pub fn rounded_to_milli(&self) -> Self {
        const STEP: i128 = NANO / 1000;
        Self { nano: away_from_zero(self.nano, STEP) * STEP, format: self.format }
    }

    /// The amount as a floating point number, near enough for people.
    pub fn as_f64(&self) -> f64 {
        self.nano as f64 / NANO as f64
    }

    /// The amount as a floating point number, made from how many `10^scale` it is, for scales from -9 to 0.
    pub fn scaled_f64(&self, scale: i32) -> f64 {
        let unit = 10i128.pow(u32::try_from(scale + 9).unwrap_or(0));
        (self.nano / unit) as f64 * 10f64.powi(scale)
    }

    /// Whether it is a number of `10^scale` that fits into 64 bits.
    pub fn fits(&self, scale: i32) -> bool {
        let unit = u32::try_from(scale.saturating_add(9)).ok().and_then(|power| 10i128.checked_pow(power));
        unit.is_some_and(|unit| i64::try_from(self.nano / unit).is_ok())
    }

    /// Whether the amount is a whole number that fits into 64 bits.
    pub fn is_integer(&self) -> bool {
        self.nano % NANO == 0 && i64::try_from(self.nano / NANO).is_ok()
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i64 {
        self.nano.signum() as i64
    }

    /// Whether it is nothing.
    pub fn is_zero(&self) -> bool {
        self.nano == 0
    }

    /// The sum, written like `self` unless that is zero; the nearest end of the range where it is beyond.
    pub fn plus(&self, other: &Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nano: self.nano.saturating_add(other.nano), format }
    }

    /// The difference, written like `self` unless that is zero; the nearest end of the range where it is beyond.
    pub fn minus(&self, other: &Self) -> Self {
        let format = if self.is_zero() { other.format } else { self.format };
        Self { nano: self.nano.saturating_sub(other.nano), format }
    }
}

fn saturate(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// `value / by`, rounded away from zero.
fn away_from_zero(value: i128, by: i128) -> i128 {
    value / by + if value % by == 0 { 0 } else { value.signum() }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl std::hash::Hash for Quantity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nano.hash(state);
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let (negative, unsigned) = match text.as_bytes().first() {
            None => return Err(QuantityError::Format),
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
        };
        let split = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(split);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // A point alone is zero.
        if fraction.contains('.') || number.is_empty() {
            return Err(QuantityError::Format);
        }
        let (format, base, exponent) = read_suffix(suffix)?;
        let nano = amount(whole, fraction, base, exponent).ok_or(QuantityError::Numeric)?;
        let nano = if format == Format::BinarySi { nano.min(BINARY_MAX) } else { nano };
        let small = format == Format::BinarySi && nano > 0 && nano < NANO;
        let format = if small { Format::DecimalSi } else { format };
        Ok(Self { nano: if negative { -nano } else { nano }, format })
    }
}

fn read_suffix(suffix: &str) -> Result<(Format, i128, i32), QuantityError> {
    let power = |at: usize| i32::try_from(at).expect("tables are short");
    if let Some(at) = DECIMAL.iter().position(|s| *s == suffix) {
        return Ok((Format::DecimalSi, 10, power(at) * 3 - 9));
    }
    if let Some(at) = BINARY.iter().position(|s| *s == suffix) {
        return Ok((Format::BinarySi, 1024, power(at)));
    }
    let exponent = suffix.strip_prefix(['e', 'E']).filter(|e| !e.is_empty());
    if let Some(exponent) = exponent.and_then(|e| e.parse::<i32>().ok()) {
        return Ok((Format::DecimalExponent, 10, exponent));
    }
    let known = |c: char| "eEinumkKMGTP+-".contains(c) || c.is_ascii_digit();
    Err(if suffix.chars().all(known) { QuantityError::Suffix } else { QuantityError::Format })
}

/// `whole.fraction * base^exponent` in billionths, rounded up; `None` where it is beyond the range.
fn amount(whole: &str, fraction: &str, base: i128, exponent: i32) -> Option<i128> {
    let fraction = fraction.trim_end_matches('0');
    let digits = format!("{}{fraction}", whole.trim_start_matches('0'));
    let mantissa: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    if mantissa == 0 {
        return Some(0);
    }
    let decimals = i32::try_from(fraction.len()).ok()?;
    if base == 1024 {
        let scaled = mantissa.checked_mul(1024i128.checked_pow(u32::try_from(exponent).ok()?)?)?;
        return shift(scaled, 9 - decimals);
    }
    shift(mantissa, exponent.checked_add(9)?.checked_sub(decimals)?)
}

/// `value * 10^places`, rounded up.
fn shift(value: i128, places: i32) -> Option<i128> {
    match u32::try_from(places) {
        Ok(up) => value.checked_mul(10i128.checked_pow(up)?),
        Err(_) => Some(10i128.checked_pow(places.unsigned_abs()).map_or(1, |by| away_from_zero(value, by))),
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest suffix that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        if self.format == Format::BinarySi && self.nano.abs() >= 1024 * NANO {
            let mut value = away_from_zero(self.nano, NANO);
            let mut step = 0;
            while value % 1024 == 0 && step < BINARY.len() - 1 {
                value /= 1024;
                step += 1;
            }
            return write!(f, "{value}{}", BINARY[step]);
        }
        let (mut value, mut step) = (self.nano, 0);
        while value % 1000 == 0 && step < DECIMAL.len() - 1 {
            value /= 1000;
            step += 1;
        }
        match (self.format, step) {
            (Format::DecimalExponent, 3) => write!(f, "{value}"),
            (Format::DecimalExponent, _) => write!(f, "{value}e{}", step as i32 * 3 - 9),
            _ => write!(f, "{value}{}", DECIMAL[step]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn quantities_are_written_canonically() {
        for (given, want) in [
            ("0", "0"),
            ("100m", "100m"),
            ("0.1", "100m"),
            ("1.5", "1500m"),
            ("1.5Gi", "1536Mi"),
            ("1024Ki", "1Mi"),
            ("1000k", "1M"),
            ("1024", "1024"),
            ("512Ki", "512Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("1000e0", "1e3"),
            ("12e-1", "1200e-3"),
            ("1E", "1E"),
            ("-1.5", "-1500m"),
            ("+2", "2"),
            ("0.1n", "1n"),
            ("1.", "1"),
            (".5", "500m"),
            ("9223372036854775807Ki", "9223372036854775807"),
            ("0.0001Ki", "102400u"),
            ("007", "7"),
            (".", "0"),
        ] {
            assert_eq!(q(given).to_string(), want, "{given}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for (bad, want) in [
            ("", QuantityError::Format),
            ("1.2.3", QuantityError::Format),
            ("x", QuantityError::Format),
            ("1 Gi", QuantityError::Format),
            ("1GiB", QuantityError::Format),
            ("1ki", QuantityError::Suffix),
            ("1e", QuantityError::Suffix),
            ("1e99", QuantityError::Numeric),
        ] {
            assert_eq!(bad.parse::<Quantity>(), Err(want), "{bad:?}");
        }
    }

    #[test]
    fn arithmetic_is_exact() {
        assert_eq!(q("0.1").plus(&q("0.2")).to_string(), "300m");
        assert_eq!(q("1Gi").minus(&q("1Mi")).to_string(), "1023Mi");
        assert_eq!(Quantity::ZERO.plus(&q("1Ki")).to_string(), "1Ki");
        assert_eq!(q("1k"), q("1000"));
        assert!(q("1Ki") > q("1k"));
        assert_eq!((q("1500m").units(), q("1500m").milli(), q("-1500m").sign()), (2, 1500, -1));
    }
}
