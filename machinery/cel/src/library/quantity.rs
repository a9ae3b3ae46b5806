//! Kubernetes' quantities: `quantity('1Gi')`.

use super::{failed, opaque};
use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload, add_overload,
    common::types::{CelBool, CelDouble, CelInt, CelString},
};
use freehold_machinery::quantity::{Format, Quantity};

opaque!(
    /// A quantity.
    Amount(Quantity), AMOUNT = "kubernetes.Quantity", copy
);

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
    text.inner().parse().map(Amount).map_err(|e| failed("quantity", e))
}

fn is_quantity(text: &CelString<'_>) -> CelBool {
    text.inner().parse::<Quantity>().is_ok().into()
}

fn sign(this: &Amount) -> CelInt {
    this.0.sign().into()
}

fn is_integer(this: &Amount) -> CelBool {
    this.0.is_integer().into()
}

fn as_integer(this: &Amount) -> Result<CelInt, ExecutionError> {
    match this.0.is_integer() {
        true => Ok(this.0.units().into()),
        false => Err(failed("asInteger", "cannot convert value to integer")),
    }
}

fn as_approximate_float(this: &Amount) -> CelDouble {
    this.0.as_f64().into()
}

fn units(int: &CelInt) -> Quantity {
    Quantity::from_units(*int.inner(), Format::DecimalSi)
}

fn add(this: &Amount, other: &Amount) -> Amount {
    Amount(this.0.plus(&other.0))
}

fn add_int(this: &Amount, other: &CelInt) -> Amount {
    Amount(this.0.plus(&units(other)))
}

fn sub(this: &Amount, other: &Amount) -> Amount {
    Amount(this.0.minus(&other.0))
}

fn sub_int(this: &Amount, other: &CelInt) -> Amount {
    Amount(this.0.minus(&units(other)))
}

fn is_greater_than(this: &Amount, other: &Amount) -> CelBool {
    (this.0 > other.0).into()
}

fn is_less_than(this: &Amount, other: &Amount) -> CelBool {
    (this.0 < other.0).into()
}

fn compare_to(this: &Amount, other: &Amount) -> CelInt {
    (this.0.cmp(&other.0) as i64).into()
}
