//! Kubernetes' quantities: `quantity('1Gi')`.

use super::{opaque::opaque, outcome::failed};
use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::types::{CelBool, CelDouble, CelInt, CelString},
};
use freehold_machinery::quantity::{Format, Quantity};

opaque!(
    /// A quantity.
    Amount(Kept), AMOUNT = "kubernetes.Quantity", copy
);

/// A quantity, and the power of ten that Kubernetes keeps it in; none where it does not keep it in 64 bits. Two are equal
/// however they are kept.
#[derive(Clone, Debug)]
pub(super) struct Kept(Quantity, Option<i32>);

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// Digits that Kubernetes takes for surely fitting into 64 bits.
const DIGITS: i32 = 18;
/// What it takes a thousandfold of 1,024 for, and what it keeps free, of binary suffixes.
const BINARY_DIGITS: i32 = 15 - 1;
/// Powers of ten of one billionth.
const NANO: i32 = -9;

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_type(AMOUNT.to_owned())?;
    add_overload!(env, fn quantity: (CelString<'_>) -> Result<Amount>)?;
    add_overload!(env, fn is_quantity: (CelString<'_>) -> CelBool)?;
    // Not a member, as in Kubernetes, whatever its documentation says.
    add_overload!(env, fn sign: (Amount) -> CelInt)?;
    add_member_overload!(env, fn is_integer: (Amount) -> CelBool)?;
    add_member_overload!(env, fn as_integer: (Amount) -> Result<CelInt>)?;
    add_member_overload!(env, fn as_approximate_float: (Amount) -> CelDouble)?;
    add_member_overload!(env, fn add: (Amount, Amount) -> Amount)?;
    add_member_overload!(env, fn add_int: (Amount, CelInt) -> Amount, name = "add")?;
    add_member_overload!(env, fn sub: (Amount, Amount) -> Amount)?;
    add_member_overload!(env, fn sub_int: (Amount, CelInt) -> Amount, name = "sub")?;
    add_member_overload!(env, fn is_greater_than: (Amount, Amount) -> CelBool)?;
    add_member_overload!(env, fn is_less_than: (Amount, Amount) -> CelBool)?;
    add_member_overload!(env, fn compare_to: (Amount, Amount) -> CelInt)
}

fn quantity(text: &CelString<'_>) -> Result<Amount, ExecutionError> {
    let quantity: Quantity = text.inner().parse().map_err(|e| failed("quantity", e))?;
    Ok(Amount(Kept(quantity, scale(text.inner()))))
}

/// The power of ten in which Kubernetes keeps what is written so.
fn scale(text: &str) -> Option<i32> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let split = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(split);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0').len().max(1);
    let digits = |text: usize| i32::try_from(text).ok();
    let (whole, fraction) = (digits(whole)?, digits(fraction.len())?);
    if let Some(power) = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|known| *known == suffix) {
        let fits = fraction == 0 && BINARY_DIGITS - whole - (digits(power)? + 1) * 3 >= 0;
        return fits.then_some(0);
    }
    let exponent = match ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].iter().position(|s| *s == suffix) {
        Some(at) => digits(at)? * 3 + NANO,
        None => suffix.get(1..)?.parse().ok()?,
    };
    let scale = exponent.checked_sub(fraction)?;
    (whole + fraction <= DIGITS && scale >= NANO).then_some(scale)
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    text.inner().parse::<Quantity>().is_ok().into()
}

fn sign(this: &Amount) -> CelInt {
    this.0.0.sign().into()
}

/// Whether it is whole, and kept so: `5000m` is not.
fn whole(this: &Amount) -> bool {
    this.0.1.is_some_and(|scale| scale >= 0) && this.0.0.is_integer()
}

fn is_integer(this: &Amount) -> CelBool {
    whole(this).into()
}

fn as_integer(this: &Amount) -> Result<CelInt, ExecutionError> {
    match whole(this) {
        true => Ok(this.0.0.units().into()),
        false => Err(failed("asInteger", "cannot convert value to integer")),
    }
}

fn as_approximate_float(this: &Amount) -> CelDouble {
    match this.0.1 {
        Some(scale) if scale < 0 => this.0.0.scaled_f64(scale).into(),
        _ => this.0.0.as_f64().into(),
    }
}

fn units(int: &CelInt) -> Amount {
    Amount(Kept(Quantity::from_units(*int.inner(), Format::DecimalSi), Some(0)))
}

/// What two of them make together: kept in 64 bits, in the smaller power of ten, where both are and it fits.
fn joined(this: &Amount, other: &Amount, made: Quantity) -> Amount {
    let scale = match (&this.0, &other.0) {
        (Kept(this, _), Kept(_, scale)) if this.is_zero() => *scale,
        (Kept(_, scale), Kept(other, _)) if other.is_zero() => *scale,
        (Kept(_, Some(a)), Kept(_, Some(b))) => Some(*a.min(b)).filter(|scale| made.fits(*scale)),
        _ => None,
    };
    Amount(Kept(made, scale))
}

fn add(this: &Amount, other: &Amount) -> Amount {
    joined(this, other, this.0.0.plus(&other.0.0))
}

fn add_int(this: &Amount, other: &CelInt) -> Amount {
    add(this, &units(other))
}

fn sub(this: &Amount, other: &Amount) -> Amount {
    joined(this, other, this.0.0.minus(&other.0.0))
}

fn sub_int(this: &Amount, other: &CelInt) -> Amount {
    sub(this, &units(other))
}

fn is_greater_than(this: &Amount, other: &Amount) -> CelBool {
    (this.0.0 > other.0.0).into()
}

fn is_less_than(this: &Amount, other: &Amount) -> CelBool {
    (this.0.0 < other.0.0).into()
}

fn compare_to(this: &Amount, other: &Amount) -> CelInt {
    (this.0.0.cmp(&other.0.0) as i64).into()
}
