//! The types that a plane serves, and the discovery and OpenAPI documents made of them.
//!
//! The built-in kinds are data here: names, verbs, subresources, columns and selectable fields in [`builtin`],
//! schemas from definitions that the build made. Together with the types of a plane's CRDs they make a [`TypeSet`],
//! from which discovery and OpenAPI are pure functions. Planes with equal types share one set, and equal CRDs in
//! many planes share one type.
//!
//! This crate must not know: HTTP, storage, which plane asks, who asks.

pub mod autoscalers;
mod builtin;
mod definitions;
pub mod discovery;
mod intern;
pub mod openapi;
mod set;
mod structs;

pub use builtin::{BuiltIn, builtin};
pub use definitions::{definition_name, schema_of_definition, schema_of_kind};
pub use intern::{custom_types, share};
pub use set::{Group, Remote, ServedVersion, TypeSet};
pub use structs::{difference, internal_name, shown};
