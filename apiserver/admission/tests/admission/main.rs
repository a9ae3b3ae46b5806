//! Admission: the plugins, and quota.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod nodes;
mod plugins;
mod pod_security;
mod policies;
mod quota;
mod world;
