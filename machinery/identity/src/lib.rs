//! Who and where: identifiers of planes, users, names that the platform keeps to itself, and whose objects may refer to which.
//!
//! Guarantees: nothing here does I/O; an identifier of a plane is one path segment of a key and one DNS label.
//!
//! This crate must not know: objects, how users are authenticated, what they may do.

pub mod plane;
pub mod reserved;
pub mod tenancy;
pub mod user;

pub use plane::{PlaneId, PlaneMap};
pub use user::User;
