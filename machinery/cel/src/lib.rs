//! CEL as Kubernetes speaks it: `x-kubernetes-validations` of CRDs, and expressions of admission policies.
//!
//! The language is the `cel` crate's. This crate adds what Kubernetes adds: values that follow a schema, escaped field
//! names, the libraries (lists, regex, URL, IP, CIDR, quantity, format, sets, semver), comprehensions of two variables,
//! and a budget, so that no expression runs for long or fills the memory.
//!
//! Expressions are compiled once per process, however many CRDs of however many planes have them. Before that they are
//! checked as Kubernetes' compiler does ([`type_of`]), and what a rule can cost at most is estimated.
//!
//! This crate must not know: HTTP, storage, planes.

mod budget;
mod check;
mod computed;
mod escape;
mod library;
mod macros;
mod program;
mod rewrite;
mod rules;
mod typing;
mod value;

pub use computed::Computed;
pub use escape::RESERVED;
pub use library::authz::{Authorize, Authorizer, Check};
pub use program::{Budget, CompileError, EvalError, Program, Variable};
pub use rules::{Rules, blocked_by, check_crd};
pub use typing::{OutputType, Seen, VariableType, type_of, type_of_mutation};

#[cfg(test)]
mod spec_tests;
