//! What the tidy tests read the workspace with: its metadata, its files, and Rust source without strings and comments.
//!
//! The checks themselves are in `tests/`, each a table or a rule with its reason. This crate must not know any other.

pub mod docs;
pub mod imports;
pub mod licence;
pub mod source;
pub mod workspace;
