//! The functions that expressions may call: the standard ones, those of cel-go's extensions, and Kubernetes'.

pub(crate) mod authz;
mod format;
mod lists;
mod more;
mod net;
mod quantity;
mod regex;
mod semver;
mod sets;
mod url;

use crate::{budget, macros, value::Owned};
use cel::{
    DeclarationError, Env, ExecutionError,
    common::{
        types::{CelList, CelString},
        value::{CowVal, Val},
    },
    extensions,
};
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
    env.add_extension(budget::extension)?;
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

/// Calls a standard function of one argument; `None` where it fails.
pub(crate) fn call(function: &str, argument: Owned) -> Option<Owned> {
    static STANDARD: LazyLock<Env> = LazyLock::new(Env::stdlib);
    let args = vec![CowVal::Owned(argument)];
    let overload = STANDARD.find_overload(function, &args)?;
    overload(args).ok().map(CowVal::into_owned)
}

/// A copy of a value of one of Kubernetes' own types; `None` for others.
pub(crate) fn copy(value: &dyn Val) -> Option<Owned> {
    let copies = [quantity::copy, semver::copy, url::copy, format::copy, net::copy_ip, net::copy_cidr];
    copies.into_iter().chain(authz::COPIES).find_map(|copy| copy(value))
}

type Args<'b, 'v> = Vec<CowVal<'b, 'v>>;
type Outcome<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

fn no_overload(function: &str, args: &[CowVal<'_, '_>]) -> ExecutionError {
    ExecutionError::no_such_overload(function, args.iter().map(|a| a.get_type().name().to_owned()).collect())
}

fn failed(function: &str, message: impl ToString) -> ExecutionError {
    ExecutionError::function_error(function, message)
}

fn texts(items: impl IntoIterator<Item = String>) -> CelList<'static> {
    let items: Vec<Box<dyn Val>> =
        items.into_iter().map(|s| Box::new(CelString::from(s)) as Box<dyn Val>).collect();
    CelList::from(items)
}

/// A CEL type of Kubernetes around a Rust type.
macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident($inner:ty), $type:ident = $cel:literal, $copy:ident) => {
        /// A copy of a value of this type; `None` for others.
        pub(super) fn $copy(value: &dyn cel::common::value::Val) -> Option<crate::value::Owned> {
            let own = value.downcast_ref::<$name>()?;
            Some(Box::new(own.clone()))
        }

        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub(super) struct $name(pub(super) $inner);

        pub(super) static $type: cel::common::types::Type = cel::common::types::Type::new_unspecified_type($cel);

        impl cel::common::value::StaticVal for $name {}

        impl cel::common::value::Val for $name {
            fn get_type(&self) -> &cel::common::types::Type {
                &$type
            }

            fn cel_type() -> &'static cel::common::types::Type {
                &$type
            }

            fn equals(&self, other: &dyn cel::common::value::Val) -> bool {
                other.downcast_ref::<$name>().is_some_and(|other| self == other)
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn cel::common::value::Val + 'v> {
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn std::any::Any> {
                Some(self)
            }
        }
    };
}
use opaque;
