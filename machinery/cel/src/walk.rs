//! Walks over expressions.

use cel::{
    IdedExpr,
    common::ast::{EntryExpr, Expr},
};

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
