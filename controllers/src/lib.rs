//! Controllers of volumes, addresses and devices, as kube-controller-manager has them, over many planes in one process.
//!
//! Each is a module with pure decisions and a thin `reconcile` around them that reads what is observed and does what was
//! decided. Names are those of `kube-controller-manager --controllers`.
//!
//! Guarantees: nothing here costs in planes that have no such objects; a write is refused by the server where what it was
//! decided on has changed; doing it twice changes nothing.
//!
//! This crate must not know the apiserver but by its API, nor Freehold's own kinds.

mod addresses;
mod balancer;
mod claims;
mod context;
mod kinds;
mod volumes;

pub use addresses::NodeCidrs;
pub use context::{Context, Options};

/// The function that starts a controller.
pub type Start = fn(&Context);

/// Every controller of this crate by its name.
pub const CONTROLLERS: &[(&str, Start)] = &[
    ("persistentvolume-binder-controller", volumes::start),
    ("node-ipam-controller", addresses::start),
    ("resourceclaim-controller", claims::start),
    ("service-lb-controller", balancer::start),
];
