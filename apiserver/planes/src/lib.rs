//! Planes: routing of URLs to planes, and the types, layers and access rules of each.
//!
//! A [`Context`](context::Context) is what a URL asks in; [`Planes::resolve`] turns it into a [`Target`]: a plane that
//! this process serves, a dedicated pair to pass the request on to, or several planes at once.
//!
//! This crate must not know: HTTP beyond the path, how objects are written.

pub mod apis;
mod archive;
mod base;
mod burial;
mod changes;
mod class;
pub mod context;
mod directory;
#[cfg(test)]
mod fuzz;
mod layers;
mod maintenance;
mod operations;
mod owner_index;
mod pairs;
mod people;
mod plane_types;
mod planes;
mod policies;
mod snapshots;
mod stored;
mod target;
mod types;

pub use apis::Apis;
pub use base::{Authorities, ClientsOf, InstallError};
pub use directory::{Directory, ProjectInfo};
pub use layers::Layers;
pub use people::People;
pub use planes::Planes;
pub use stored::{LayerRecord, Released};
pub use target::{Consumers, DedicatedTarget, OrganizationScope, Power, ProviderScope, Resolved, Target};
pub use types::{RemoteSource, Remotes};
