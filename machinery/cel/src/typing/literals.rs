//! Checks of literals: unreadable durations, times and regular expressions, and lists and maps of mixed types.

use super::{
    checker::{Checked, Complaint},
    format,
    types::Type,
};
use crate::{
    check::parts,
    library,
    plan::CONVERSIONS,
    program::{EvalError, explain},
    value::Owned,
};
use cel::{
    ExecutionError, IdedExpr,
    common::{
        ast::{EntryExpr, Expr, LiteralValue},
        value::CowVal,
    },
};
use freehold_machinery::schema::pattern;

/// The complaints about literals, in the order in which Kubernetes looks for them.
pub(crate) fn check(expr: &IdedExpr, checked: &Checked) -> Vec<Complaint> {
    let mut all = Vec::new();
    walk(expr, false, &mut |e, in_format| all.push((e, in_format)));
    let mut errors = Vec::new();
    for function in ["duration", "timestamp", "matches"] {
        errors.extend(all.iter().filter_map(|(e, _)| argument(e, function)));
    }
    // What is formatted may be of several types.
    for (e, _) in all.iter().filter(|(_, in_format)| !in_format) {
        aggregate(e, checked, &mut errors);
    }
    errors.extend(all.iter().filter_map(|(e, _)| format::check(e, checked)));
    errors
}

/// A regular expression that can't be read, of a function that Kubernetes compiles them for beforehand.
pub(crate) fn broken_regex(expr: &IdedExpr) -> Option<String> {
    let own = match &expr.expr {
        Expr::Call(call) if matches!(call.func_name.as_str(), "find" | "findAll") => call.args.first(),
        _ => None,
    };
    let error = own.and_then(|arg| match &arg.expr {
        Expr::Literal(LiteralValue::String(text)) => pattern::compile(text.inner()).err(),
        _ => None,
    });
    error.or_else(|| parts(expr).into_iter().find_map(broken_regex))
}

/// A conversion of a constant that fails: Kubernetes converts constants beforehand.
pub(crate) fn broken_conversion(expr: &IdedExpr) -> Option<String> {
    match constant(expr) {
        Some(Err(error)) => match explain(&error) {
            EvalError::Failed(why) => Some(why),
            _ => None,
        },
        Some(Ok(_)) => None,
        None => parts(expr).into_iter().find_map(broken_conversion),
    }
}

/// The value of a literal, or of conversions of one.
fn constant(expr: &IdedExpr) -> Option<Result<Owned, ExecutionError>> {
    match &expr.expr {
        Expr::Literal(literal) => Some(Ok(literal.to_val().into_owned())),
        Expr::Call(call) if call.target.is_none() && CONVERSIONS.contains(&&*call.func_name) => {
            let [argument] = call.args.as_slice() else { return None };
            let value = constant(argument)?;
            let convert = |value| library::invoke(&call.func_name, vec![CowVal::Owned(value)]);
            Some(value.and_then(|value| convert(value).map(CowVal::into_owned)))
        }
        _ => None,
    }
}

fn walk<'e>(expr: &'e IdedExpr, in_format: bool, visit: &mut impl FnMut(&'e IdedExpr, bool)) {
    visit(expr, in_format);
    let formats = matches!(&expr.expr, Expr::Call(call) if call.func_name == "format");
    for part in parts(expr) {
        walk(part, in_format || formats, visit);
    }
}

fn argument(expr: &IdedExpr, function: &str) -> Option<Complaint> {
    let Expr::Call(call) = &expr.expr else { return None };
    let first = call.args.first().filter(|_| call.func_name == function)?;
    let Expr::Literal(literal) = &first.expr else { return None };
    let is_sound = match (function, literal) {
        ("timestamp", LiteralValue::String(text)) if text.inner().contains(['z', 't']) => false,
        ("matches", LiteralValue::String(text)) => pattern::compile(text.inner()).is_ok(),
        ("matches", _) => true,
        (_, literal) => library::call(function, literal.to_val().into_owned()).is_some(),
    };
    (!is_sound).then(|| (first.id, format!("invalid {function} argument")))
}

fn mismatch(id: u64, wanted: &Type, given: &Type) -> Complaint {
    (id, format!("expected type '{wanted}' but found '{given}'"))
}

fn inner(checked: &Checked, id: u64, is_optional: bool) -> Type {
    let ty = checked.ty(id);
    if is_optional { ty.unwrapped().unwrap_or(ty).clone() } else { ty.clone() }
}

fn aggregate(expr: &IdedExpr, checked: &Checked, errors: &mut Vec<Complaint>) {
    match &expr.expr {
        Expr::List(list) => {
            let ty = |(index, e): (usize, &IdedExpr)| {
                (e.id, inner(checked, e.id, list.optional_indices.contains(&index)))
            };
            let types: Vec<(u64, Type)> = list.elements.iter().enumerate().map(ty).collect();
            let Some(((_, first), rest)) = types.split_first() else { return };
            errors.extend(rest.iter().find(|(_, t)| t != first).map(|(id, t)| mismatch(*id, first, t)));
        }
        Expr::Map(map) => {
            let mut first: Option<(Type, Type)> = None;
            for entry in &map.entries {
                let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                let key = inner(checked, entry.key.id, false);
                let value = inner(checked, entry.value.id, entry.optional);
                let Some((keys, values)) = &first else {
                    first = Some((key, value));
                    continue;
                };
                if *keys != key {
                    errors.push(mismatch(entry.key.id, keys, &key));
                }
                if *values != value {
                    errors.push(mismatch(entry.value.id, values, &value));
                }
            }
        }
        _ => {}
    }
}
