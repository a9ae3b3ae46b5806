//! Results of steps: growing collections, lazy fields and optional values.

use crate::run::{Outcome, boolean, no_overload};
use crate::{
    Computed, ops,
    plan::{FoldStep, Key, Step},
    value::{List, Owned},
};
use cel::{
    ExecutionError,
    common::{
        ast::operators,
        types::{CelDouble, CelInt, CelList, CelMap, CelOptional, CelString, CelUInt, Kind},
        value::{CowVal, Val},
    },
};

/// A list or map that grows in place.
#[derive(Default)]
pub(crate) struct Growing {
    pub(crate) is_map: bool,
    pub(crate) list: Vec<Owned>,
    pub(crate) map: ops::Entries,
    pub(crate) failed: Option<ExecutionError>,
}

impl Growing {
    pub(crate) fn of(step: &FoldStep) -> Option<Self> {
        match step {
            FoldStep::Value(_) => None,
            FoldStep::Append { .. } => Some(Self::default()),
            FoldStep::Insert { .. } => Some(Self { is_map: true, ..Self::default() }),
        }
    }

    pub(crate) fn finish(self) -> Result<Owned, ExecutionError> {
        match self.failed {
            Some(error) => Err(error),
            None if self.is_map => Ok(Box::new(CelMap::from(self.map))),
            None => Ok(Box::new(List::of(self.list))),
        }
    }
}

/// The field of lazily computed ones that a step reads.
pub(crate) fn lazy(
    step: &Step,
    fields: &dyn Fn(&str) -> Result<Computed, String>,
) -> Option<Outcome<'static>> {
    let Key::Const(key) = &step.key else { return None };
    let name = key.downcast_ref::<CelString<'_>>()?.inner();
    if step.is_test || step.optional {
        return None;
    }
    Some(
        fields(name)
            .map(|value| CowVal::Owned(value.0))
            .map_err(|why| ExecutionError::function_error("variables", why)),
    )
}

/// The value of an element of a list or map; `None` of an optional one that is not there.
pub(crate) fn present(
    value: CowVal<'_, 'static>,
    is_optional: bool,
) -> Result<Option<Owned>, ExecutionError> {
    if !is_optional {
        return Ok(Some(value.into_owned()));
    }
    match value.downcast_ref::<CelOptional<'static>>() {
        Some(optional) => Ok(optional.inner().map(|inner| inner.clone_as_boxed())),
        None => {
            let shown = value.get_type().name().to_owned();
            Err(ExecutionError::function_error(
                "optional",
                format!("cannot initialize optional element from non-optional value {shown}"),
            ))
        }
    }
}

/// What stands under a key in a map or at a place in a list. `None`: nothing, where that `may_miss`.
pub(crate) fn item<'e>(
    value: CowVal<'e, 'static>,
    key: &dyn Val,
    may_miss: bool,
) -> Result<Option<CowVal<'e, 'static>>, ExecutionError> {
    let missing = || match key.downcast_ref::<CelString<'_>>() {
        Some(name) => ExecutionError::no_such_key(name.inner()),
        None => ExecutionError::no_such_key(&shown(key)),
    };
    let kind = value.get_type().kind();
    let wrong = match kind {
        Kind::List if !matches!(key.get_type().kind(), Kind::Int | Kind::UInt | Kind::Double) => {
            return Err(no_overload(operators::INDEX, &[value.as_ref(), key]));
        }
        _ => value.as_indexer().is_none(),
    };
    if wrong {
        return if may_miss { Ok(None) } else { Err(missing()) };
    }
    let found = match value {
        CowVal::Borrowed(value) => value.as_indexer().ok_or_else(missing)?.get(key),
        CowVal::Owned(value)
            if value.downcast_ref::<CelList<'_>>().is_some()
                || value.downcast_ref::<CelMap<'_>>().is_some() =>
        {
            value.into_indexer().ok_or_else(missing)?.steal(key).map(CowVal::Owned)
        }
        CowVal::Owned(value) => {
            value.as_indexer().ok_or_else(missing)?.get(key).map(|found| CowVal::Owned(found.into_owned()))
        }
    };
    match found {
        Ok(found) => Ok(Some(found)),
        Err(ExecutionError::NoSuchKey(_)) if may_miss => Ok(None),
        Err(ExecutionError::IndexOutOfBounds(_)) if may_miss && kind == Kind::List => Ok(None),
        Err(ExecutionError::NoSuchKey(_)) => Err(missing()),
        Err(error) => Err(error),
    }
}

/// A key as errors show it.
pub(crate) fn shown(key: &dyn Val) -> String {
    let int = || key.downcast_ref::<CelInt>().map(|v| v.inner().to_string());
    let uint = || key.downcast_ref::<CelUInt>().map(|v| v.inner().to_string());
    let bool = || boolean(key).map(|v| v.to_string());
    let double = || key.downcast_ref::<CelDouble>().map(|v| v.inner().to_string());
    int().or_else(uint).or_else(bool).or_else(double).unwrap_or_else(|| key.get_type().name().to_owned())
}
