//! What the `cel` crate lacks of cel-go's standard functions: durations from and to nanoseconds, optionals in lists. And
//! Kubernetes' only function for JSON patches.

use super::{
    call,
    outcome::{Args, Outcome, failed, no_overload},
};
use crate::value::elements;
use cel::{
    DeclarationError, Env,
    common::{
        types::{
            CelDuration, CelInt, CelList, CelOptional, CelString, DURATION_TYPE, INT_TYPE, LIST_TYPE,
            STRING_TYPE,
        },
        value::{CowVal, Val},
    },
};

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_overload("duration", "int64_to_duration", vec![INT_TYPE], duration)?;
    env.add_overload("int", "duration_to_int64", vec![DURATION_TYPE], nanoseconds)?;
    let escape = "jsonpatch.escapeKey";
    env.add_overload(escape, "string_jsonpatch_escapeKey_string", vec![STRING_TYPE], escape_key)?;
    env.add_overload("optional.unwrap", "optional_unwrap", vec![LIST_TYPE], unwrap)?;
    env.add_member_overload("unwrapOpt", "optional_unwrapOpt", LIST_TYPE, vec![], unwrap)
}

fn duration<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let nanoseconds = args[0].downcast_ref::<CelInt>().ok_or_else(|| no_overload("duration", &args))?;
    let text = CelString::from(format!("{}ns", nanoseconds.inner()));
    let made = call("duration", Box::new(text)).ok_or_else(|| failed("duration", "range error"))?;
    Ok(CowVal::Owned(made))
}

fn nanoseconds<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let duration = args[0].downcast_ref::<CelDuration>().ok_or_else(|| no_overload("int", &args))?;
    let int = duration.inner().num_nanoseconds().ok_or_else(|| failed("int", "integer overflow"))?;
    Ok(CowVal::owned(CelInt::from(int)))
}

/// A key as a part of a path (RFC 6901).
fn escape_key<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let key =
        args[0].downcast_ref::<CelString<'_>>().ok_or_else(|| no_overload("jsonpatch.escapeKey", &args))?;
    Ok(CowVal::owned(CelString::from(key.inner().replace('~', "~0").replace('/', "~1"))))
}

/// The values of the optionals in a list that have one.
fn unwrap<'b, 'v>(args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    let mut out: Vec<Box<dyn Val + 'v>> = Vec::new();
    for item in elements(args[0].as_ref()) {
        let optional =
            item.downcast_ref::<CelOptional<'_>>().ok_or_else(|| no_overload("optional.unwrap", &args))?;
        out.extend(optional.inner().map(Val::clone_as_boxed));
    }
    Ok(CowVal::owned(CelList::from(out)))
}
