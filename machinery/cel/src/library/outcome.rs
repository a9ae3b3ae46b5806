//! Arguments and outcomes of functions.

use cel::{
    ExecutionError,
    common::{
        types::{CelList, CelString},
        value::{CowVal, Val},
    },
};

pub(super) type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;

pub(super) type Outcome<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

pub(super) fn no_overload(function: &str, args: &[CowVal<'_, '_>]) -> ExecutionError {
    ExecutionError::no_such_overload(function, args.iter().map(|a| a.get_type().name().to_owned()).collect())
}

pub(super) fn failed(function: &str, message: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, message)
}

pub(super) fn texts(items: impl IntoIterator<Item = String>) -> CelList<'static> {
    let items: Vec<Box<dyn Val>> =
        items.into_iter().map(|s| Box::new(CelString::from(s)) as Box<dyn Val>).collect();
    CelList::from(items)
}
