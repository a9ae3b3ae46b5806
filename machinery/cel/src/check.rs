//! The variables and fields that an expression names.

use crate::{typing::Declarations, walk::children};
use cel::{
    IdedExpr,
    common::ast::{CallExpr, EntryExpr, Expr},
};
use std::collections::HashSet;

/// All names that an expression uses freely or binds.
pub(crate) fn identifiers(expr: &mut IdedExpr) -> Vec<String> {
    let (mut names, mut known) = (Vec::new(), HashSet::new());
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        if let Expr::Ident(name) = &expr.expr
            && known.insert(name.clone())
        {
            names.push(name.clone());
        }
        open.extend(children(expr));
    }
    names
}

/// The fields that are selected from names, each once: name and field.
pub(crate) fn fields(expr: &IdedExpr) -> Vec<(Box<str>, Box<str>)> {
    let (mut fields, mut known) = (Vec::new(), HashSet::new());
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        if let Expr::Select(select) = &expr.expr
            && let Expr::Ident(name) = &select.operand.expr
            && known.insert((name.as_str(), select.field.as_str()))
        {
            fields.push((name.as_str().into(), select.field.as_str().into()));
        }
        open.extend(parts(expr));
    }
    fields
}

/// A call of a function that nothing declares.
pub(crate) fn unknown_function(expr: &IdedExpr) -> Option<(u64, String)> {
    let own = match &expr.expr {
        Expr::Call(call) if !is_known(call) => Some((expr.id, call.func_name.clone())),
        _ => None,
    };
    own.or_else(|| parts(expr).into_iter().find_map(unknown_function))
}

fn is_known(call: &CallExpr) -> bool {
    let name = call.func_name.as_str();
    // Operators, and what the macros expand to.
    let is_operator = name.starts_with('@') || name.starts_with('_') || name.ends_with('_');
    is_operator || Declarations::all().is_function(name) || Declarations::of_mutations().is_function(name)
}

/// The first object that is written with the name of its type.
pub(crate) fn object(expr: &IdedExpr) -> Option<(u64, &str)> {
    match &expr.expr {
        Expr::Struct(object) => Some((expr.id, &object.type_name)),
        _ => parts(expr).into_iter().find_map(object),
    }
}

/// The parts of an expression, to read.
pub(crate) fn parts(expr: &IdedExpr) -> Vec<&IdedExpr> {
    match &expr.expr {
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(c) => vec![&c.iter_range, &c.accu_init, &c.loop_cond, &c.loop_step, &c.result],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|e| entry(&e.expr)).collect(),
        Expr::Struct(strct) => strct.entries.iter().flat_map(|e| entry(&e.expr)).collect(),
        Expr::Select(select) => vec![&*select.operand],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn entry(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}
