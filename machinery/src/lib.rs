//! Kubernetes API semantics as pure functions.
//!
//! Everything here is deterministic, synchronous and free of I/O: names, metadata, selectors, schemas, defaulting,
//! pruning, validation, patches, server-side apply, tables, and the `Status` that every failure becomes.
//! Objects are [`serde_json::Value`]s; which rules apply to one is data, carried by its
//! [`ResourceType`](resource::ResourceType).
//!
//! This crate must not know: HTTP, storage, time of day (callers pass it in), planes beyond their identifier and whose
//! their objects are ([`tenancy`]).

pub mod api_service;
pub mod apply;
pub mod crd;
pub mod document;
pub mod go;
pub mod gvk;
pub mod jsonpath;
pub mod meta;
pub mod names;
pub mod patch;
pub mod plane;
pub mod quantity;
pub mod reserved;
pub mod resource;
pub mod schema;
pub mod selector;
pub mod status;
pub mod strict;
pub mod table;
pub mod tenancy;
pub mod time;
pub mod user;

pub use gvk::{GroupResource, GroupVersion, GroupVersionKind};
pub use plane::{PlaneId, PlaneMap};
pub use resource::ResourceType;
pub use status::{Result, Status};
pub use user::User;

/// An object or a part of one.
pub type Value = serde_json::Value;
/// A JSON object.
pub type Map = serde_json::Map<String, Value>;
