//! Whether the arguments of `'...'.format([...])` fit its clauses, where both are literals.

use super::{
    checker::{Checked, Complaint},
    types::Type,
};
use cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr, LiteralValue},
};

/// A complaint about a call; `None` where it is sound or no such call.
pub(super) fn check(expr: &IdedExpr, checked: &Checked) -> Option<Complaint> {
    let Expr::Call(call) = &expr.expr else { return None };
    let target = call.target.as_deref().filter(|_| call.func_name == "format")?;
    let (Expr::Literal(LiteralValue::String(text)), [args]) = (&target.expr, call.args.as_slice()) else {
        return None;
    };
    let Expr::List(list) = &args.expr else { return None };
    match clauses(text.inner(), &list.elements, checked) {
        Err((id, message)) => Some((id.unwrap_or(expr.id), message)),
        Ok(used) if list.elements.len() > used => Some((
            expr.id,
            format!(
                "too many arguments supplied to string.format (expected {used}, got {})",
                list.elements.len()
            ),
        )),
        Ok(_) => None,
    }
}

type Wrong = (Option<u64>, String);

/// How many arguments the clauses of a text use.
fn clauses(text: &str, args: &[IdedExpr], checked: &Checked) -> Result<usize, Wrong> {
    let (mut rest, mut used) = (text, 0);
    while let Some(at) = rest.find('%') {
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        if rest.is_empty() {
            return Err((None, "unexpected end of string".to_owned()));
        }
        let Some(arg) = args.get(used) else { return Err((None, format!("index {used} out of range"))) };
        let parse = |e: String| (None, format!("could not parse formatting clause: {e}"));
        rest = precision(rest).map_err(|e| parse(format!("error while parsing precision: {e}")))?;
        let Some(clause) = rest.chars().next() else {
            return Err((None, "unexpected end of string".to_owned()));
        };
        rest = &rest[clause.len_utf8()..];
        used += 1;
        let Some((fits, what)) = kinds(clause) else {
            return Err(parse(format!("unrecognized formatting clause \"{clause}\"")));
        };
        let wrong = match clause {
            's' => not_text(arg, checked),
            _ => Some(arg.id).filter(|id| !checked.ty(*id).is_dyn() && !fits(checked.ty(*id))),
        };
        if let Some(id) = wrong {
            let given = name(checked.ty(id));
            return Err((Some(id), format!("error during formatting: {what}, was given {given}")));
        }
    }
    Ok(used)
}

fn precision(text: &str) -> Result<&str, String> {
    let Some(digits) = text.strip_prefix('.') else { return Ok(text) };
    let end =
        digits.find(|c: char| !c.is_ascii_digit()).ok_or("could not find end of precision specifier")?;
    let (number, rest) = digits.split_at(end);
    match number.parse::<u32>() {
        Ok(_) => Ok(rest),
        Err(_) => Err(format!(
            "error while converting precision to integer: strconv.Atoi: parsing \"{number}\": invalid syntax"
        )),
    }
}

type Fits = fn(&Type) -> bool;

/// The types that a clause takes, and the words for that.
fn kinds(clause: char) -> Option<(Fits, &'static str)> {
    Some(match clause {
        's' => (
            |_| true,
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
        ),
        'd' => (|t| matches!(t, Type::Int | Type::Uint), "decimal clause can only be used on integers"),
        'f' => {
            (|t| matches!(t, Type::Double | Type::String), "fixed-point clause can only be used on doubles")
        }
        'e' => {
            (|t| matches!(t, Type::Double | Type::String), "scientific clause can only be used on doubles")
        }
        'b' => (
            |t| matches!(t, Type::Int | Type::Uint | Type::Bool),
            "only integers and bools can be formatted as binary",
        ),
        'x' | 'X' => (
            |t| matches!(t, Type::Int | Type::Uint | Type::String | Type::Bytes),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
        'o' => (|t| matches!(t, Type::Int | Type::Uint), "octal clause can only be used on integers"),
        _ => return None,
    })
}

/// The first part of an argument that can't be written as text.
fn not_text(arg: &IdedExpr, checked: &Checked) -> Option<u64> {
    let ty = checked.ty(arg.id);
    if matches!(ty, Type::Object(_) | Type::Opaque(..) | Type::Error | Type::Any) {
        return Some(arg.id);
    }
    match &arg.expr {
        Expr::List(list) => list.elements.iter().find_map(|e| not_text(e, checked)),
        Expr::Map(map) => map.entries.iter().find_map(|entry| match &entry.expr {
            EntryExpr::MapEntry(e) => not_text(&e.key, checked).or_else(|| not_text(&e.value, checked)),
            EntryExpr::StructField(_) => None,
        }),
        _ => None,
    }
}

/// A type without its parameters.
fn name(ty: &Type) -> String {
    let shown = ty.to_string();
    shown.split('(').next().unwrap_or_default().to_owned()
}
