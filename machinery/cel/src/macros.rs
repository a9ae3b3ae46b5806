//! `cel.bind` and the comprehensions of two variables: `list.all(index, item, ...)`, `map.transformList(key, value, ...)`.
//!
//! The interpreter knows comprehensions of one variable. One of two becomes one over the keys (of a list: the indices),
//! within which the second variable is bound to what is there.

use cel::{
    DeclarationError, Env, IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, Expr, ListExpr, LiteralValue, MapExpr, operators},
    parser::{Macro, MacroExprHelper, ParseError},
};

/// The keys of a map, the indices of a list.
pub(crate) const KEYS: &str = "@keys";
/// A map with one more entry.
pub(crate) const INSERT: &str = "@insert";
const RESULT: &str = "@result";
const TARGET: &str = "@over";

type Helper<'a> = MacroExprHelper<'a>;
type Expanded = Result<Option<IdedExpr>, ParseError>;

/// Adds the macros.
pub(crate) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_macro(Macro::receiver("bind", 3, bind_macro))?;
    for (name, fold) in [
        ("all", Fold::All),
        ("exists", Fold::Exists),
        ("existsOne", Fold::ExistsOne),
        ("exists_one", Fold::ExistsOne),
    ] {
        env.add_macro(Macro::receiver(name, 3, move |h, target, args| two_variables(h, target, args, fold)))?;
    }
    for (name, fold) in [("transformList", Fold::List), ("transformMap", Fold::Map)] {
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
}

fn variable(helper: &Helper<'_>, arg: IdedExpr) -> Result<String, ParseError> {
    match arg.expr {
        Expr::Ident(name) if !name.contains('.') => Ok(name),
        _ => Err(helper.new_error(arg.id, "argument must be a simple name")),
    }
}

fn bind_macro(helper: &mut Helper<'_>, target: &mut Option<IdedExpr>, args: &mut Vec<IdedExpr>) -> Expanded {
    if !matches!(target.as_ref().map(|t| &t.expr), Some(Expr::Ident(name)) if name == "cel") {
        return Ok(None);
    }
    let (Some(result), Some(value), Some(name)) = (args.pop(), args.pop(), args.pop()) else {
        return Ok(None);
    };
    let name = variable(helper, name)?;
    Ok(Some(bind(helper, name, value, result)))
}

/// `result` with `name` bound to `value`: a comprehension over nothing, whose accumulator is the variable.
fn bind(helper: &mut Helper<'_>, name: String, value: IdedExpr, result: IdedExpr) -> IdedExpr {
    let comprehension = ComprehensionExpr {
        iter_range: helper.next_expr(Expr::List(ListExpr::new(Vec::new()))),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        loop_cond: boolean(helper, false),
        loop_step: ident(helper, &name),
        accu_var: name,
        accu_init: value,
        result,
    };
    helper.next_expr(Expr::Comprehension(Box::new(comprehension)))
}

fn two_variables(
    helper: &mut Helper<'_>,
    target: &mut Option<IdedExpr>,
    args: &mut Vec<IdedExpr>,
    fold: Fold,
) -> Expanded {
    // The one-variable macro `map(x, filter, expression)` also has three arguments; none of these names does.
    let Some(over) = target.take() else { return Ok(None) };
    let mut args = std::mem::take(args).into_iter();
    let (Some(key), Some(value)) = (args.next(), args.next()) else { return Ok(None) };
    let (key, value) = (variable(helper, key)?, variable(helper, value)?);
    let (first, second) = (args.next(), args.next());
    let Some(first) = first else { return Ok(None) };
    let (filter, body) = match second {
        Some(body) => (Some(first), body),
        None => (None, first),
    };
    let mut parts = fold_parts(helper, fold, &key, body);
    if let Some(filter) = filter {
        let keep = ident(helper, RESULT);
        parts.step = call(helper, operators::CONDITIONAL, vec![filter, parts.step, keep]);
    }
    let item = {
        let (over, at) = (ident(helper, TARGET), ident(helper, &key));
        call(helper, operators::INDEX, vec![over, at])
    };
    let step = bind(helper, value, item, parts.step);
    let range = {
        let over = ident(helper, TARGET);
        call(helper, KEYS, vec![over])
    };
    let comprehension = ComprehensionExpr {
        iter_range: range,
        iter_var: key,
        iter_var2: None,
        accu_var: RESULT.to_owned(),
        accu_init: parts.init,
        loop_cond: parts.condition,
        loop_step: step,
        result: parts.result,
    };
    let comprehension = helper.next_expr(Expr::Comprehension(Box::new(comprehension)));
    Ok(Some(bind(helper, TARGET.to_owned(), over, comprehension)))
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
        Fold::Map => {
            let key = ident(h, key);
            Parts {
                init: h.next_expr(Expr::Map(MapExpr::default())),
                condition: boolean(h, true),
                step: call(h, INSERT, vec![accumulated, key, body]),
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
