//! An object's usage of a ResourceQuota's limits, and whether the quota applies to it
//! (<https://kubernetes.io/docs/concepts/policy/resource-quotas/>).
//!
//! The apiserver asks with each write, the controller that counts asks of everything that is there: both get the same answer.
//!
//! This crate must not know: who asks, what is used already, the time of day (callers pass it in).

mod devices;
mod json;
pub mod resources;
mod scope;
mod usage;

pub use devices::{Surroundings, is_shared, limits_extended, made_for};
pub use scope::{is_terminating, matches};
pub use usage::{Usage, check_stated, counted_types, is_computed, usage};
