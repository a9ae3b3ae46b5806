//! CEL as Kubernetes speaks it: `x-kubernetes-validations` of CRDs, and expressions of admission policies.
//!
//! The language is the `cel` crate's: its parser, its values and their operations, its functions. This crate adds what
//! Kubernetes adds: values that follow a schema, escaped field names, the libraries (lists, regex, URL, IP, CIDR,
//! quantity, format, sets, semver), and comprehensions of two variables. It has an interpreter of its own (`run`), which
//! counts costs as cel-go does, so that an expression exceeds its limits here where it does in kube-apiserver.
//!
//! Expressions are compiled once per process, however many CRDs of however many planes have them. Before that they are
//! checked as Kubernetes' compiler does ([`type_of`]), and what a rule can cost at most is estimated.
//!
//! This crate must not know: HTTP, storage, planes.

mod check;
mod computed;
mod convert;
mod escape;
mod library;
mod macros;
mod ops;
mod plan;
mod price;
mod program;
mod results;
mod rules;
mod run;
mod typing;
mod value;
mod walk;

pub use computed::Computed;
pub use escape::RESERVED;
pub use library::authz::{Authorize, Authorizer, Check};
pub use program::{Budget, CompileError, EvalError, Program, Variable};
pub use rules::{Rules, blocked_by, check_crd};
pub use typing::{OutputType, Outputs, Seen, VariableType, type_of, type_of_mutation};

#[cfg(test)]
mod spec_tests;
