//! Label and field selectors.
//!
//! Parsed once per request, matched against many objects: a match allocates nothing.
//! Syntax, limits and error texts are those of `k8s.io/apimachinery/pkg/labels` and `.../pkg/fields`.
//! This module must not know objects: callers look labels and fields up for it.

mod fields;
mod labels;
mod lexer;

pub use fields::{FieldRequirement, Fields};
pub use labels::{LabelRequirement, Labels, Operator};

/// The longest selector that is read, in bytes.
pub const MAX_LENGTH: usize = 64 * 1024;
/// The most requirements, or values in all, that a selector can have.
pub const MAX_TERMS: usize = 4096;
