//! Kubernetes' `find` and `findAll`.

use super::outcome::{failed, texts};
use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload,
    common::types::{CelInt, CelList, CelString},
};
use freehold_machinery::schema::pattern;

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    add_member_overload!(env, fn find: (CelString<'_>, CelString<'_>) -> Result<CelString<'_>>)?;
    add_member_overload!(env, fn find_all: (CelString<'_>, CelString<'_>) -> Result<CelList<'_>>)?;
    add_member_overload!(env, fn find_some: (CelString<'_>, CelString<'_>, CelInt) -> Result<CelList<'_>>, name = "findAll")
}

fn find(text: &CelString<'_>, regex: &CelString<'_>) -> Result<CelString<'static>, ExecutionError> {
    let regex = pattern::compile(regex.inner()).map_err(|e| failed("find", format!("Illegal regex: {e}")))?;
    Ok(CelString::from(regex.find(text.inner()).map_or("", |m| m.as_str()).to_owned()))
}

fn find_all(text: &CelString<'_>, regex: &CelString<'_>) -> Result<CelList<'static>, ExecutionError> {
    find_some(text, regex, &CelInt::from(-1))
}

fn find_some(
    text: &CelString<'_>,
    regex: &CelString<'_>,
    limit: &CelInt,
) -> Result<CelList<'static>, ExecutionError> {
    let regex =
        pattern::compile(regex.inner()).map_err(|e| failed("findAll", format!("Illegal regex: {e}")))?;
    let limit = usize::try_from(*limit.inner()).unwrap_or(usize::MAX);
    Ok(texts(regex.find_iter(text.inner()).take(limit).map(|m| m.as_str().to_owned())))
}
