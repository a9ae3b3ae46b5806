//! Patches of objects: JSON patch, merge patch, strategic merge patch, and server-side apply ([`apply`]).
//!
//! Each takes the object as it is and gives the object as it should be; nothing is changed in place, so that a failed
//! or repeated attempt starts from the same object. Managed fields are a field like any other to all but [`apply`].
//!
//! This crate must not know: storage, admission, defaulting, or the time of day.

pub mod apply;
mod json;
mod list;
mod merge;
mod strategic;
mod words;

pub use json::{MAX_COPIED_BYTES, MAX_DEPTH, MAX_OPERATIONS, Unapplied, json, json_in_words, json_unknown};
pub use merge::merge;
pub use strategic::strategic;
pub use words::go_text;
