//! The controllers that a Kubernetes API needs, and Freehold's own, over many planes in one process.
//!
//! Each controller is a module with a pure `decide(observed) -> actions` and a thin `reconcile` around it that reads
//! what is observed and does what was decided. One process serves every shared plane ([`Scope::AllPlanes`]); a
//! dedicated pair runs the same for its one plane ([`Scope::OnePlane`]).
//!
//! Guarantees: an object that makes no sense is left alone and told of, never a reason to stop; nothing here costs by
//! the number of planes, only by the objects that controllers look at.
//!
//! This crate must not know anything of the apiserver but its API.

mod aggregation;
mod allowances;
mod approval;
mod bootstrap;
mod certificates;
mod class;
mod cleaner;
mod definitions;
mod endpoints;
mod garbage;
mod handover;
mod iam;
mod lifecycle;
mod manager;
mod membership;
mod namespace;
mod nodes;
mod organization;
mod plane;
mod project;
mod quota;
mod references;
mod restore;
mod rollout;
mod rootca;
mod serviceaccount;
mod snapshot;
mod tokens;
mod turns;
mod volumes;

pub use freehold_controllers::NodeCidrs;
pub use freehold_controllers_context::config::{Config, FREEHOLD_CONTROLLERS, KUBERNETES_CONTROLLERS, Scope};
pub use manager::Manager;
