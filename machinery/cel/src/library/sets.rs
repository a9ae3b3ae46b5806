//! cel-go's functions on lists as sets: `sets.contains`, `sets.equivalent`, `sets.intersects`.

use super::outcome::{Args, Outcome};
use crate::value::{elements, equal};
use cel::{
    DeclarationError, Env,
    common::{
        types::{CelBool, LIST_TYPE},
        value::{CowVal, Val},
    },
};

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    let lists = || vec![LIST_TYPE, LIST_TYPE];
    env.add_overload("sets.contains", "list_sets_contains_list", lists(), |args| {
        answer(&args, |a, b| b.iter().all(|x| has(a, x.as_ref())))
    })?;
    env.add_overload("sets.equivalent", "list_sets_equivalent_list", lists(), |args| {
        answer(&args, |a, b| a.iter().all(|x| has(b, x.as_ref())) && b.iter().all(|x| has(a, x.as_ref())))
    })?;
    env.add_overload("sets.intersects", "list_sets_intersects_list", lists(), |args| {
        answer(&args, |a, b| a.iter().any(|x| has(b, x.as_ref())))
    })
}

fn has<'v>(list: &[Box<dyn Val + 'v>], value: &dyn Val) -> bool {
    list.iter().any(|item| equal(item.as_ref(), value))
}

fn answer<'b, 'v>(
    args: &Args<'b, 'v>,
    holds: impl Fn(&[Box<dyn Val + 'v>], &[Box<dyn Val + 'v>]) -> bool,
) -> Outcome<'b, 'v> {
    let (a, b) = (elements(args[0].as_ref()), elements(args[1].as_ref()));
    Ok(CowVal::owned(CelBool::from(holds(&a, &b))))
}
