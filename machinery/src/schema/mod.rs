//! Structural schemas: one form for built-in kinds and CRDs.
//!
//! A [`Schema`] is what pruning, defaulting, validation, strict decoding, strategic merge and server-side apply read.
//! Descriptions are not in it: documentation is served from the original OpenAPI documents.

pub mod default;
mod embedded;
pub mod formats;
mod lists;
mod meta;
mod node;
pub mod parse;
pub mod pattern;
pub mod prune;
mod regex_syntax;
pub mod structural;
pub mod validate;
pub mod zeros;

pub use default::default;
pub use embedded::unreadable as unreadable_metadata;
pub use meta::object_meta;
pub use node::*;
pub use parse::{Definitions, parse};
pub use prune::{prune, unknown_fields};
pub use validate::{validate, validate_field};
