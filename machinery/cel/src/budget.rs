//! What an evaluation may cost, and the functions that charge for it.
//!
//! The `cel` crate has no hook for costs. So expressions are rewritten when they are compiled (see `rewrite`): each
//! comprehension charges for its range before it runs, and each operation whose result can be larger than its operands
//! charges for the result. Those calls carry the purse in a hidden variable.

use crate::value::{elements, equal};
use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        types::{CelBool, CelInt, CelString, DYN_TYPE, INT_TYPE, STRING_TYPE, Type},
        value::{CowVal, StaticVal, Val},
    },
};
use freehold_machinery::schema::pattern;
use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

/// The hidden variable.
pub(crate) const PURSE: &str = "@purse";
/// `@range(purse, range, cost of one round)`: the range.
pub(crate) const RANGE: &str = "@range";
/// `@charge(purse, value)`: the value.
pub(crate) const CHARGE: &str = "@charge";
/// `@add(purse, a, b)`: the sum.
pub(crate) const ADD: &str = "@add";
/// `@equal(a, b)`: equality of any lists and maps.
pub(crate) const EQUAL: &str = "@equal";
/// `@matches(purse, text, regex)`.
pub(crate) const MATCHES: &str = "@matches";
/// `@replace(purse, text, old, new, limit)`.
pub(crate) const REPLACE: &str = "@replace";
/// `@join(purse, list, separator)`.
pub(crate) const JOIN: &str = "@join";

static PURSE_TYPE: Type = Type::new_unspecified_type("@purse");
/// Bytes that cost one unit.
const BYTES_PER_UNIT: usize = 10;

/// What is left to spend; below zero when it was not enough.
#[derive(Clone, Debug)]
pub(crate) struct Purse(pub(crate) Arc<AtomicI64>);

impl StaticVal for Purse {}

impl Val for Purse {
    fn get_type(&self) -> &Type {
        &PURSE_TYPE
    }

    fn cel_type() -> &'static Type {
        &PURSE_TYPE
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Purse {
    fn spend(&self, units: usize) -> Result<(), ExecutionError> {
        let units = i64::try_from(units).unwrap_or(i64::MAX).min(1 << 40);
        let before = self.0.fetch_sub(units, Ordering::Relaxed);
        if before >= units { Ok(()) } else { Err(ExecutionError::function_error("@purse", "is empty")) }
    }
}

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Outcome<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn purse<'a>(args: &'a Args<'_, '_>) -> Result<&'a Purse, ExecutionError> {
    args[0].downcast_ref::<Purse>().ok_or_else(|| ExecutionError::function_error("@purse", "is missing"))
}

fn text<'a>(args: &'a Args<'_, '_>, at: usize, function: &str) -> Result<&'a str, ExecutionError> {
    let wrong = || {
        let types = args[1..].iter().map(|a| a.get_type().name().to_owned()).collect();
        ExecutionError::no_such_overload(function, types)
    };
    args[at].downcast_ref::<CelString<'_>>().map(CelString::inner).ok_or_else(wrong)
}

/// How large a value is, in units; what is within lists and maps is not looked at.
fn units(value: &dyn Val) -> usize {
    if let Some(text) = value.downcast_ref::<CelString<'_>>() {
        return 1 + text.inner().len() / BYTES_PER_UNIT;
    }
    value.as_sizer().map_or(1, |s| 1 + usize::try_from(*s.size().inner()).unwrap_or(0))
}

fn range<'b, 'v>(mut args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let each = args[2].downcast_ref::<CelInt>().map_or(1, |i| usize::try_from(*i.inner()).unwrap_or(1));
    let rounds = units(args[1].as_ref());
    purse(&args)?.spend(rounds.saturating_mul(each))?;
    Ok(args.swap_remove(1))
}

fn charge<'b, 'v>(mut args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    purse(&args)?.spend(units(args[1].as_ref()))?;
    Ok(args.swap_remove(1))
}

fn add<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let cost = units(args[1].as_ref()).saturating_add(units(args[2].as_ref()));
    purse(&args)?.spend(cost)?;
    let no_overload = || {
        let types = args[1..].iter().map(|a| a.get_type().name().to_owned()).collect();
        ExecutionError::no_such_overload("_+_", types)
    };
    let adder = args[1].as_adder().ok_or_else(no_overload)?;
    let sum = adder.add(args[2].as_ref()).map_err(|e| match e {
        ExecutionError::UnsupportedBinaryOperator(..) | ExecutionError::UnexpectedType { .. } => {
            no_overload()
        }
        e => e,
    })?;
    Ok(CowVal::Owned(sum.into_owned()))
}

fn equal_values<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    Ok(CowVal::owned(CelBool::from(equal(args[0].as_ref(), args[1].as_ref()))))
}

fn matches<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let (subject, regex) = (text(&args, 1, "matches")?, text(&args, 2, "matches")?);
    purse(&args)?.spend((1 + subject.len() / BYTES_PER_UNIT).saturating_mul(1 + regex.len() / 4))?;
    let regex = pattern::compile(regex).map_err(|e| ExecutionError::function_error("matches", e))?;
    Ok(CowVal::owned(CelBool::from(regex.is_match(subject))))
}

fn replace<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let (subject, old, new) =
        (text(&args, 1, "replace")?, text(&args, 2, "replace")?, text(&args, 3, "replace")?);
    let limit = args.get(4).and_then(|a| a.downcast_ref::<CelInt>()).map_or(-1, |i| *i.inner());
    let found = if old.is_empty() { subject.chars().count() + 1 } else { subject.matches(old).count() };
    let count = usize::try_from(limit).map_or(found, |limit| limit.min(found));
    let size = subject.len().saturating_add(count.saturating_mul(new.len()));
    purse(&args)?.spend(1 + size / BYTES_PER_UNIT)?;
    Ok(CowVal::owned(CelString::from(subject.replacen(old, new, count))))
}

fn join<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let separator = if args.len() > 2 { text(&args, 2, "join")? } else { "" };
    let items = elements(args[1].as_ref());
    let parts: Option<Vec<&str>> =
        items.iter().map(|i| i.downcast_ref::<CelString<'_>>().map(CelString::inner)).collect();
    let parts = parts.ok_or_else(|| ExecutionError::no_such_overload("join", vec!["list".to_owned()]))?;
    let size = parts.iter().map(|p| p.len().saturating_add(separator.len())).fold(0, usize::saturating_add);
    purse(&args)?.spend(1 + size / BYTES_PER_UNIT)?;
    Ok(CowVal::owned(CelString::from(parts.join(separator))))
}

/// Declares the functions that expressions are rewritten to.
pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    let purse = || PURSE_TYPE.to_owned();
    env.add_overload(RANGE, "@range", vec![purse(), DYN_TYPE, INT_TYPE], range)?;
    env.add_overload(CHARGE, "@charge", vec![purse(), DYN_TYPE], charge)?;
    env.add_overload(ADD, "@add", vec![purse(), DYN_TYPE, DYN_TYPE], add)?;
    env.add_overload(EQUAL, "@equal", vec![DYN_TYPE, DYN_TYPE], equal_values)?;
    env.add_overload(MATCHES, "@matches", vec![purse(), DYN_TYPE, DYN_TYPE], matches)?;
    env.add_overload(REPLACE, "@replace", vec![purse(), DYN_TYPE, DYN_TYPE, DYN_TYPE], replace)?;
    env.add_overload(REPLACE, "@replace_n", vec![purse(), DYN_TYPE, DYN_TYPE, DYN_TYPE, INT_TYPE], replace)?;
    env.add_overload(JOIN, "@join", vec![purse(), DYN_TYPE], join)?;
    env.add_overload(JOIN, "@join_separator", vec![purse(), DYN_TYPE, STRING_TYPE], join)?;
    Ok(())
}
