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
mod autoscaler;
mod bootstrap;
mod certificates;
mod claims;
mod class;
mod cleaner;
mod config;
mod context;
mod cronjob;
mod daemonset;
mod definitions;
mod deployment;
mod discovery;
mod disruption;
mod endpoints;
mod ephemeral;
mod expectations;
mod garbage;
mod handover;
mod iam;
mod job;
mod kinds;
mod lifecycle;
mod manager;
mod membership;
mod namespace;
mod node;
mod nodes;
mod object;
mod organization;
mod placement;
mod plane;
mod podcontrol;
mod podgc;
mod pods;
mod project;
mod quota;
mod references;
mod replicaset;
mod restore;
mod revisions;
mod rollout;
mod rootca;
mod serviceaccount;
mod snapshot;
mod statefulset;
mod template;
mod tokens;
mod ttl;
mod turns;
mod volumes;

pub use config::{Config, FREEHOLD_CONTROLLERS, KUBERNETES_CONTROLLERS, Scope};
pub use freehold_controllers::NodeCidrs;
pub use manager::Manager;
