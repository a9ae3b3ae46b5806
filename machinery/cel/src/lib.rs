//! CEL as Kubernetes speaks it: `x-kubernetes-validations` of CRDs, and expressions of admission policies.
//!
//! The language is the `cel` crate's. This crate adds what Kubernetes adds: values that follow a schema, escaped field
//! names, the libraries (lists, regex, URL, IP, CIDR, quantity, format, sets, semver), comprehensions of two variables,
//! and a budget, so that no expression runs for long or fills the memory.
//!
//! Expressions are compiled once per process, however many CRDs of however many planes have them. There is no type
//! checker: what Kubernetes' compiler finds by types is found here when a rule runs, apart from fields that a schema
//! does not declare and names that nothing declares.
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
mod value;

pub use computed::Computed;
pub use program::{Budget, CompileError, EvalError, Program, Variable};
pub use rules::{Rules, blocked_by, check_crd};
