//! What an expression names.

use crate::{rewrite::children, typing::Declarations};
use cel::{
    IdedExpr,
    common::ast::{CallExpr, EntryExpr, Expr},
};

/// All names that an expression uses freely or binds.
pub(crate) fn identifiers(expr: &mut IdedExpr) -> Vec<String> {
    let mut names = Vec::new();
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        if let Expr::Ident(name) = &expr.expr
            && !names.contains(name)
        {
            names.push(name.clone());
        }
        open.extend(children(expr));
    }
    names
}

/// The fields that are selected from a variable, each once.
pub(crate) fn fields_of<'e>(expr: &'e IdedExpr, variable: &str) -> Vec<&'e str> {
    let mut fields = Vec::new();
    let mut open = vec![expr];
    while let Some(expr) = open.pop() {
        if let Expr::Select(select) = &expr.expr
            && matches!(&select.operand.expr, Expr::Ident(name) if name == variable)
            && !fields.contains(&select.field.as_str())
        {
            fields.push(&select.field);
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
