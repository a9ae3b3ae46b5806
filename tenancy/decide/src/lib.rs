//! Decisions of the tenancy subsystem: pure functions from observed objects to actions.

pub mod admission;
pub mod integration;
pub mod limits;
pub mod namespace;
pub mod quota;
pub mod rules;
pub mod sleep;
pub mod target;
pub mod template;
pub mod tenant;
pub mod visibility;
