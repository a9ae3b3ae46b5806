//! The store: an ordered map of keys to bytes with revisions, as small as an apiserver can live with.
//!
//! [`Store`] is the port; engines are separate crates, and each passes the suite in [`conformance`].
//! Semantics are those of etcd: one total order of revisions over all keys, reads at a past revision until it is
//! compacted, and watches that neither lose, repeat nor reorder.
//!
//! [`archive`] is how keys leave one store and come into another.
//!
//! This crate must not know: what is in a value, resource types, HTTP.

pub mod archive;
pub mod conformance;
mod key;
mod placement;
mod store;

pub use key::{Key, KeyRange, LayerId, ObjectPath};
pub use placement::Placement;
pub use store::*;
