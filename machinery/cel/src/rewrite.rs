//! Puts charges into a compiled expression: see [`budget`](crate::budget).

use crate::{
    budget::{ADD, CHARGE, EQUAL, JOIN, MATCHES, PURSE, RANGE, REPLACE},
    escape::unescape,
    macros,
};
use cel::{
    IdedExpr,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, MapEntryExpr,
        MapExpr, operators,
    },
};

/// The keys of a map, the indices of a list.
pub(crate) const KEYS: &str = "@keys";
/// A map with one more entry, or with those of another.
pub(crate) const INSERT: &str = "@insert";
/// What a comprehension of two variables goes over.
const OVER: &str = "@over";

/// Functions whose result is charged for: it can be large where the call is not.
const GROWING: [&str; 17] = [
    "format",
    "split",
    "flatten",
    "lowerAscii",
    "upperAscii",
    "reverse",
    "sort",
    "distinct",
    "slice",
    "find",
    "findAll",
    "string",
    "bytes",
    "substring",
    "trim",
    "quote",
    "range",
];

/// The parts of an expression.
pub(crate) fn children(expr: &mut IdedExpr) -> Vec<&mut IdedExpr> {
    match &mut expr.expr {
        Expr::Call(call) => call.target.as_deref_mut().into_iter().chain(call.args.iter_mut()).collect(),
        Expr::Comprehension(c) => {
            vec![&mut c.iter_range, &mut c.accu_init, &mut c.loop_cond, &mut c.loop_step, &mut c.result]
        }
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Map(map) => map.entries.iter_mut().flat_map(|e| entry(&mut e.expr)).collect(),
        Expr::Struct(strct) => strct.entries.iter_mut().flat_map(|e| entry(&mut e.expr)).collect(),
        Expr::Select(select) => vec![&mut *select.operand],
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

fn entry(entry: &mut EntryExpr) -> Vec<&mut IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&mut field.value],
        EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
    }
}

/// The levels of an expression, and its nodes. Iterative, as an expression can be deep before it was looked at.
pub(crate) fn measure(expr: &mut IdedExpr) -> (usize, usize) {
    let (mut depth, mut nodes) = (0, 0);
    let mut open = vec![(expr, 1)];
    while let Some((expr, level)) = open.pop() {
        depth = depth.max(level);
        nodes += 1;
        open.extend(children(expr).into_iter().map(|child| (child, level + 1)));
    }
    (depth, nodes)
}

/// Makes maps of objects that are written with the names of their types.
///
/// # Errors
/// The first object whose type is none of a mutation's.
pub(crate) fn objects_as_maps(expr: &mut IdedExpr) -> Result<(), (u64, String)> {
    for child in children(expr) {
        objects_as_maps(child)?;
    }
    let Expr::Struct(object) = &mut expr.expr else { return Ok(()) };
    let name = object.type_name.trim_start_matches('.');
    if name != "JSONPatch" && name != "Object" && !name.starts_with("Object.") {
        return Err((expr.id, object.type_name.clone()));
    }
    let entries = std::mem::take(&mut object.entries).into_iter().map(|ided| {
        let IdedEntryExpr { id, expr } = ided;
        let expr = match expr {
            EntryExpr::StructField(field) => {
                let name = LiteralValue::String(unescape(&field.field).into());
                let key = IdedExpr { id, expr: Expr::Literal(name) };
                EntryExpr::MapEntry(MapEntryExpr { key, value: field.value, optional: field.optional })
            }
            entry @ EntryExpr::MapEntry(_) => entry,
        };
        IdedEntryExpr { id, expr }
    });
    expr.expr = Expr::Map(MapExpr { entries: entries.collect() });
    Ok(())
}

/// Makes comprehensions of one variable of those of two: over the keys (of a list: the indices), within which the second
/// variable is bound to what is there.
pub(crate) fn lower(expr: &mut IdedExpr) {
    for child in children(expr) {
        lower(child);
    }
    let id = expr.id;
    match &mut expr.expr {
        Expr::Call(call) if call.func_name == macros::INSERT => call.func_name = INSERT.to_owned(),
        Expr::Comprehension(c) => {
            let Some(value) = c.iter_var2.take() else { return };
            let over = std::mem::take(&mut c.iter_range);
            let step = std::mem::take(&mut c.loop_step);
            let item = call(id, operators::INDEX, vec![ident(id, OVER), ident(id, &c.iter_var)]);
            c.loop_step = bound_step(id, &value, item, step);
            c.iter_range = call(id, KEYS, vec![ident(id, OVER)]);
            let inner = std::mem::take(expr);
            *expr = bind(id, OVER, over, inner);
        }
        _ => {}
    }
}

/// A step with the second variable bound. Where what it says is joined to what was said before by `&&` or `||`, only that
/// is: an error in it counts for nothing when a later round decides.
fn bound_step(id: u64, name: &str, item: IdedExpr, mut step: IdedExpr) -> IdedExpr {
    if let Expr::Call(call) = &mut step.expr
        && matches!(call.func_name.as_str(), operators::LOGICAL_AND | operators::LOGICAL_OR)
        && let [_, body] = call.args.as_mut_slice()
    {
        let inner = std::mem::take(body);
        *body = bind(id, name, item, inner);
        return step;
    }
    bind(id, name, item, step)
}

/// `result` with `name` bound to `value`.
fn bind(id: u64, name: &str, value: IdedExpr, result: IdedExpr) -> IdedExpr {
    let comprehension = ComprehensionExpr {
        iter_range: IdedExpr { id, expr: Expr::List(ListExpr::new(Vec::new())) },
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: value,
        loop_cond: IdedExpr { id, expr: Expr::Literal(LiteralValue::Boolean(false.into())) },
        loop_step: ident(id, name),
        result,
    };
    IdedExpr { id, expr: Expr::Comprehension(Box::new(comprehension)) }
}

fn ident(id: u64, name: &str) -> IdedExpr {
    IdedExpr { id, expr: Expr::Ident(name.to_owned()) }
}

/// Rewrites an expression and everything in it.
pub(crate) fn rewrite(expr: &mut IdedExpr) {
    for child in children(expr) {
        rewrite(child);
    }
    let id = expr.id;
    match &mut expr.expr {
        Expr::Comprehension(comprehension) => {
            let (_, step) = measure(&mut comprehension.loop_step);
            let (_, condition) = measure(&mut comprehension.loop_cond);
            let each = i64::try_from(step + condition).unwrap_or(i64::MAX);
            let range = std::mem::take(&mut comprehension.iter_range);
            let cost = IdedExpr { id: range.id, expr: Expr::Literal(LiteralValue::Int(each.into())) };
            comprehension.iter_range = call(range.id, RANGE, vec![purse(range.id), range, cost]);
        }
        Expr::Call(call) => rewrite_call(call, id),
        _ => {}
    }
    let grows = matches!(&expr.expr, Expr::Call(call) if GROWING.contains(&call.func_name.as_str()));
    if grows {
        let inner = std::mem::take(expr);
        *expr = call(id, CHARGE, vec![purse(id), inner]);
    }
}

fn rewrite_call(call: &mut CallExpr, id: u64) {
    let args = call.args.len() + usize::from(call.target.is_some());
    let replacement = match (call.func_name.as_str(), args) {
        // The accumulator of a comprehension is appended to in place.
        (operators::ADD, 2) if !is_hidden(&call.args[0]) => ADD,
        (operators::EQUALS, 2) if !call.args.iter().any(is_scalar) => EQUAL,
        (operators::NOT_EQUALS, 2) if !call.args.iter().any(is_scalar) => {
            let args = std::mem::take(&mut call.args);
            call.func_name = operators::LOGICAL_NOT.to_owned();
            call.args = vec![self::call(id, EQUAL, args)];
            return;
        }
        ("matches", 2) => MATCHES,
        ("replace", 3 | 4) if call.target.is_some() => REPLACE,
        ("join", 1 | 2) if call.target.is_some() => JOIN,
        _ => return,
    };
    call.func_name = replacement.to_owned();
    let target = call.target.take().map(|t| *t);
    let purse = (replacement != EQUAL).then(|| purse(id));
    let args = std::mem::take(&mut call.args);
    call.args = purse.into_iter().chain(target).chain(args).collect();
}

fn call(id: u64, function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    IdedExpr { id, expr: Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }) }
}

fn purse(id: u64) -> IdedExpr {
    IdedExpr { id, expr: Expr::Ident(PURSE.to_owned()) }
}

fn is_hidden(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Expr::Ident(name) if name.starts_with('@'))
}

fn is_scalar(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Expr::Literal(_)) || is_hidden(expr)
}
