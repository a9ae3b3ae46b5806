//! What Kubernetes' controllers are started with: their configuration, the informers that several of them share, and what
//! these keep of Pods, nodes and other common objects.
//!
//! Guarantees: an informer that no controller asked for is never started; views keep of an object only what controllers read.
//!
//! This crate must not know any controller, nor the apiserver but by its API.

pub mod config;
mod context;
pub mod discovery;
pub mod expectations;
mod handover;
pub mod job_pod;
pub mod kinds;
pub mod node;
pub mod object;
pub mod placement;
pub mod pods;
pub mod project;
pub mod revisions;
pub mod services;
pub mod taints;

pub use context::{Context, RESYNC, Reconcile, Synced, TOGETHER};

/// The function that starts a controller.
pub type Start = fn(&mut Context);
