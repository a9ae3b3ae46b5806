//! The functions that expressions may call: the standard ones, those of cel-go's extensions, and Kubernetes'.

pub(crate) mod authz;
mod format;
pub(crate) mod formatting;
mod lists;
mod more;
mod net;
mod opaque;
mod outcome;
mod quantity;
mod regex;
mod semver;
mod sets;
mod url;

use crate::{macros, value::Owned};
use cel::{
    DeclarationError, Env,
    common::{
        types::{CelBytes, CelDouble, CelString},
        value::{CowVal, Val},
    },
    extensions,
};
use outcome::{Args, Outcome, failed, no_overload};
use std::sync::{Arc, LazyLock};

/// The environment of every expression.
pub(crate) fn env() -> &'static Arc<Env> {
    static ENV: LazyLock<Arc<Env>> = LazyLock::new(|| {
        let mut env = Env::stdlib();
        declare(&mut env).expect("no function is declared twice");
        Arc::new(env)
    });
    &ENV
}

fn declare(env: &mut Env) -> Result<(), DeclarationError> {
    env.add_extension(extensions::strings)?;
    env.add_extension(extensions::lists)?;
    env.add_extension(macros::extension)?;
    env.add_extension(lists::extension)?;
    env.add_extension(more::extension)?;
    env.add_extension(sets::extension)?;
    env.add_extension(regex::extension)?;
    env.add_extension(quantity::extension)?;
    env.add_extension(semver::extension)?;
    env.add_extension(net::extension)?;
    env.add_extension(url::extension)?;
    env.add_extension(authz::extension)?;
    env.add_extension(format::extension)
}

/// Calls a function of one argument; `None` where it fails.
pub(crate) fn call(function: &str, argument: Owned) -> Option<Owned> {
    invoke(function, vec![CowVal::Owned(argument)]).ok().map(CowVal::into_owned)
}

/// Calls a function of the environment.
///
/// # Errors
/// The function's, and that there is none for such arguments.
pub(crate) fn invoke<'b, 'v>(function: &str, args: Args<'b, 'v>) -> Outcome<'b, 'v> {
    if let ("string", [arg]) = (function, args.as_slice()) {
        if let Some(float) = arg.downcast_ref::<CelDouble>() {
            return Ok(CowVal::owned(CelString::from(formatting::shortest(*float.inner()))));
        }
        if arg.downcast_ref::<CelBytes<'_>>().is_some_and(|b| std::str::from_utf8(b.inner()).is_err()) {
            return Err(failed(function, "invalid UTF-8 in bytes, cannot convert to string"));
        }
    }
    match env().find_overload(function, &args) {
        Some(overload) => overload(args),
        None => Err(no_overload(function, &args)),
    }
}

/// A copy of a value of one of Kubernetes' own types; `None` for others.
pub(crate) fn copy(value: &dyn Val) -> Option<Owned> {
    let copies = [quantity::copy, semver::copy, url::copy, format::copy, net::copy_ip, net::copy_cidr];
    copies.into_iter().chain(authz::COPIES).find_map(|copy| copy(value))
}

/// Whether a value is of one of Kubernetes' own types.
pub(crate) fn is_own(value: &dyn Val) -> bool {
    ["kubernetes.", "net."].iter().any(|prefix| value.get_type().name().starts_with(prefix))
}

/// The bytes of an address, or of a network's prefix; `None` for other values.
pub(crate) fn address_bytes(value: &dyn Val) -> Option<u64> {
    net::bytes(value)
}

/// The size of the regular expression that a named format is taken for; `None` for other values.
pub(crate) fn format_regex(value: &dyn Val) -> Option<u64> {
    format::regex(value)
}
