//! Kubernetes API semantics as pure functions.
//!
//! Everything here is deterministic, synchronous and free of I/O: names, metadata, selectors, schemas, defaulting,
//! pruning, validation, and the `Status` that every failure becomes.
//! Objects are [`serde_json::Value`]s; which rules apply to one is data, carried by its
//! [`ResourceType`](resource::ResourceType).
//!
//! This crate must not know: HTTP, storage, time of day (callers pass it in), planes beyond what
//! `machinery/identity` says of them.

pub mod api_service;
pub mod crd;
pub mod document;
pub mod go;
pub mod gvk;
pub mod meta;
pub mod names;
pub mod quantity;
pub mod resource;
pub mod schema;
pub mod selector;
pub mod status;
pub mod strict;
pub mod time;
mod value;

pub use freehold_machinery_identity::{PlaneId, PlaneMap, User, plane, reserved, tenancy, user};
pub use gvk::{GroupResource, GroupVersion, GroupVersionKind};
pub use resource::ResourceType;
pub use status::{Result, Status};
pub use value::{Map, Value};
