//! The macros that the `cel` crate lacks, expanded as cel-go does: comprehensions of two variables
//! (`list.all(index, item, ...)`, `map.transformList(key, value, ...)`).
//!
//! `optMap` and `optFlatMap` are the crate's; they bind their target to a variable, where cel-go repeats it. As it is
//! priced by that, it is repeated here too ([`repeat_targets`]).

use crate::walk::children;
use cel::{
    DeclarationError, Env, IdedExpr,
    common::ast::{
        CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, MapExpr, SourceInfo, operators,
    },
    parser::{Macro, MacroExprHelper, ParseError},
};

/// A map with one more entry, or with those of another.
pub(crate) const INSERT: &str = "cel.@mapInsert";
const RESULT: &str = "@result";

/// What the crate binds the target of `optMap` to.
const TARGET: &str = "@target";

type Helper<'a> = MacroExprHelper<'a>;
type Expanded = Result<Option<IdedExpr>, ParseError>;

/// Adds the macros.
pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    for (name, fold) in [
        ("all", Fold::All),
        ("exists", Fold::Exists),
        ("existsOne", Fold::ExistsOne),
        ("exists_one", Fold::ExistsOne),
    ] {
        env.add_macro(Macro::receiver(name, 3, move |h, target, args| two_variables(h, target, args, fold)))?;
    }
    for (name, fold) in
        [("transformList", Fold::List), ("transformMap", Fold::Map), ("transformMapEntry", Fold::Entries)]
    {
        for count in [3, 4] {
            env.add_macro(Macro::receiver(name, count, move |h, target, args| {
                two_variables(h, target, args, fold)
            }))?;
        }
    }
    Ok(())
}

/// What becomes of the rounds.
#[derive(Clone, Copy)]
enum Fold {
    All,
    Exists,
    ExistsOne,
    List,
    Map,
    Entries,
}

fn variable(helper: &Helper<'_>, arg: &IdedExpr, wrong: &str) -> Result<String, ParseError> {
    match &arg.expr {
        Expr::Ident(name) => Ok(name.clone()),
        _ => Err(helper.new_error(arg.id, wrong)),
    }
}

fn two_variables(
    helper: &mut Helper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
    fold: Fold,
) -> Expanded {
    const WRONG: &str = "argument must be a simple name";
    let [first, second, ..] = args.as_slice() else { return Ok(None) };
    let (key, value) = (variable(helper, first, WRONG)?, variable(helper, second, WRONG)?);
    if key == value {
        return Err(helper.new_error(second.id, format!("duplicate variable name: {key}")));
    }
    for (name, arg) in [(&key, first), (&value, second)] {
        if name == RESULT || name == "__result__" {
            return Err(helper.new_error(arg.id, "iteration variable overwrites accumulator variable"));
        }
    }
    let Some(over) = target.take() else { return Ok(None) };
    let mut rest = std::mem::take(args).into_iter().skip(2);
    let Some(first) = rest.next() else { return Ok(None) };
    let (filter, body) = match rest.next() {
        Some(body) => (Some(first), body),
        None => (None, first),
    };
    let mut parts = fold_parts(helper, fold, &key, body);
    if let Some(filter) = filter {
        let keep = ident(helper, RESULT);
        parts.step = call(helper, operators::CONDITIONAL, vec![filter, parts.step, keep]);
    }
    let comprehension = ComprehensionExpr {
        iter_range: over,
        iter_var: key,
        iter_var2: Some(value),
        accu_var: RESULT.to_owned(),
        accu_init: parts.init,
        loop_cond: parts.condition,
        loop_step: parts.step,
        result: parts.result,
    };
    Ok(Some(helper.next_expr(Expr::Comprehension(Box::new(comprehension)))))
}

struct Parts {
    init: IdedExpr,
    condition: IdedExpr,
    step: IdedExpr,
    result: IdedExpr,
}

fn fold_parts(h: &mut Helper<'_>, fold: Fold, key: &str, body: IdedExpr) -> Parts {
    let accumulated = ident(h, RESULT);
    let result = ident(h, RESULT);
    match fold {
        Fold::All => {
            let going = ident(h, RESULT);
            Parts {
                init: boolean(h, true),
                condition: call(h, operators::NOT_STRICTLY_FALSE, vec![going]),
                step: call(h, operators::LOGICAL_AND, vec![accumulated, body]),
                result,
            }
        }
        Fold::Exists => {
            let going = ident(h, RESULT);
            let not = call(h, operators::LOGICAL_NOT, vec![going]);
            Parts {
                init: boolean(h, false),
                condition: call(h, operators::NOT_STRICTLY_FALSE, vec![not]),
                step: call(h, operators::LOGICAL_OR, vec![accumulated, body]),
                result,
            }
        }
        Fold::ExistsOne => {
            let (one, keep, wanted) = (integer(h, 1), ident(h, RESULT), integer(h, 1));
            let more = call(h, operators::ADD, vec![accumulated, one]);
            Parts {
                init: integer(h, 0),
                condition: boolean(h, true),
                step: call(h, operators::CONDITIONAL, vec![body, more, keep]),
                result: call(h, operators::EQUALS, vec![result, wanted]),
            }
        }
        Fold::List => {
            let item = h.next_expr(Expr::List(ListExpr::new(vec![body])));
            Parts {
                init: h.next_expr(Expr::List(ListExpr::new(Vec::new()))),
                condition: boolean(h, true),
                step: call(h, operators::ADD, vec![accumulated, item]),
                result,
            }
        }
        Fold::Map | Fold::Entries => {
            let args = match fold {
                Fold::Map => vec![accumulated, ident(h, key), body],
                _ => vec![accumulated, body],
            };
            Parts {
                init: h.next_expr(Expr::Map(MapExpr::default())),
                condition: boolean(h, true),
                step: call(h, INSERT, args),
                result,
            }
        }
    }
}

fn ident(helper: &mut Helper<'_>, name: &str) -> IdedExpr {
    helper.next_expr(Expr::Ident(name.to_owned()))
}

fn boolean(helper: &mut Helper<'_>, value: bool) -> IdedExpr {
    helper.next_expr(Expr::Literal(LiteralValue::Boolean(value.into())))
}

fn integer(helper: &mut Helper<'_>, value: i64) -> IdedExpr {
    helper.next_expr(Expr::Literal(LiteralValue::Int(value.into())))
}

fn call(helper: &mut Helper<'_>, function: &str, args: Vec<IdedExpr>) -> IdedExpr {
    helper.next_expr(Expr::Call(CallExpr { func_name: function.to_owned(), target: None, args }))
}

/// Repeats the targets of `optMap` and `optFlatMap` that are bound to a variable. Copies have new ids in the same places.
pub(crate) fn repeat_targets(expr: &mut IdedExpr, source: &mut SourceInfo, next: &mut u64) {
    for child in children(expr) {
        repeat_targets(child, source, next);
    }
    let Expr::Comprehension(bind) = &mut expr.expr else { return };
    if bind.accu_var != TARGET {
        return;
    }
    let target = std::mem::take(&mut bind.accu_init);
    let mut result = std::mem::take(&mut bind.result);
    let mut uses = Vec::new();
    find_target(&mut result, &mut uses);
    for (index, place) in uses.into_iter().enumerate() {
        *place = target.clone();
        if index > 0 {
            renumber(place, source, next);
        }
    }
    *expr = result;
}

fn find_target<'e>(expr: &'e mut IdedExpr, found: &mut Vec<&'e mut IdedExpr>) {
    if matches!(&expr.expr, Expr::Ident(name) if name == TARGET) {
        found.push(expr);
        return;
    }
    for child in children(expr) {
        find_target(child, found);
    }
}

fn renumber(expr: &mut IdedExpr, source: &mut SourceInfo, next: &mut u64) {
    if let Some((start, stop)) = source.offset_for(expr.id) {
        source.add_offset(*next, start, stop);
    }
    expr.id = *next;
    *next += 1;
    for child in children(expr) {
        renumber(child, source, next);
    }
}
