//! Kubernetes' functions on lists.

use super::outcome::{Args, Outcome, failed, no_overload};
use crate::value::{elements, equal};
use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        types::{CelBool, CelInt, CelOptional, DYN_TYPE, Kind, LIST_TYPE},
        value::{CowVal, Val},
    },
};
use std::cmp::Ordering;

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_member_overload("isSorted", "list_is_sorted", LIST_TYPE, vec![], is_sorted)?;
    env.add_member_overload("sum", "list_sum", LIST_TYPE, vec![], sum)?;
    env.add_member_overload("min", "list_min", LIST_TYPE, vec![], |args| {
        extreme(args, "min", Ordering::Less)
    })?;
    env.add_member_overload("max", "list_max", LIST_TYPE, vec![], |args| {
        extreme(args, "max", Ordering::Greater)
    })?;
    env.add_member_overload("indexOf", "list_index_of", LIST_TYPE, vec![DYN_TYPE], |args| {
        position(args, false)
    })?;
    env.add_member_overload("lastIndexOf", "list_last_index_of", LIST_TYPE, vec![DYN_TYPE], |args| {
        position(args, true)
    })?;
    env.add_member_overload("includes", "dyn_includes", DYN_TYPE, vec![DYN_TYPE], includes)?;
    env.add_member_overload("first", "list_first", LIST_TYPE, vec![], |args| end(args, false))?;
    env.add_member_overload("last", "list_last", LIST_TYPE, vec![], |args| end(args, true))
}

fn compare(a: &dyn Val, b: &dyn Val) -> Result<Ordering, ExecutionError> {
    let no_overload = || {
        let types = vec![a.get_type().name().to_owned(), b.get_type().name().to_owned()];
        ExecutionError::no_such_overload("_<_", types)
    };
    a.as_comparer().ok_or_else(no_overload)?.compare(b).map_err(|_| no_overload())
}

fn is_sorted<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    for pair in elements(args[0].as_ref()).windows(2) {
        if compare(pair[0].as_ref(), pair[1].as_ref())? == Ordering::Greater {
            return Ok(CowVal::owned(CelBool::from(false)));
        }
    }
    Ok(CowVal::owned(CelBool::from(true)))
}

fn sum<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let mut items = elements(args[0].as_ref()).into_iter();
    let Some(mut total) = items.next() else { return Ok(CowVal::owned(CelInt::from(0))) };
    let addable =
        |v: &dyn Val| matches!(v.get_type().kind(), Kind::Int | Kind::UInt | Kind::Double | Kind::Duration);
    if !addable(total.as_ref()) {
        return Err(no_overload("sum", &args));
    }
    for item in items {
        let next =
            total.as_adder().ok_or_else(|| no_overload("sum", &args))?.add(item.as_ref())?.into_owned();
        total = next;
    }
    Ok(CowVal::Owned(total))
}

fn extreme<'b, 'v>(args: Args<'b, 'v>, name: &str, wanted: Ordering) -> Outcome<'b, 'v> {
    let mut items = elements(args[0].as_ref()).into_iter();
    let mut best = items.next().ok_or_else(|| failed(name, format!("{name} called on empty list")))?;
    for item in items {
        if compare(item.as_ref(), best.as_ref())? == wanted {
            best = item;
        }
    }
    Ok(CowVal::Owned(best))
}

fn position<'b, 'v>(args: Args<'b, 'v>, last: bool) -> Outcome<'b, 'v> {
    let items = elements(args[0].as_ref());
    let mut same = items.iter().map(|item| equal(item.as_ref(), args[1].as_ref()));
    let at = if last { same.rposition(|s| s) } else { same.position(|s| s) };
    Ok(CowVal::owned(CelInt::from(at.map_or(-1, |i| i as i64))))
}

fn includes<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let found = match args[0].get_type().kind() {
        Kind::List => elements(args[0].as_ref()).iter().any(|i| equal(i.as_ref(), args[1].as_ref())),
        _ => equal(args[0].as_ref(), args[1].as_ref()),
    };
    Ok(CowVal::owned(CelBool::from(found)))
}

fn end<'b, 'v>(args: Args<'b, 'v>, last: bool) -> Outcome<'b, 'v> {
    let mut items = elements(args[0].as_ref()).into_iter();
    let item = if last { items.next_back() } else { items.next() };
    Ok(CowVal::owned(item.map_or_else(CelOptional::none, CelOptional::of)))
}
