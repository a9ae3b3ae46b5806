//! The REST verbs: one generic path for every resource, built-in or custom.
//!
//! A write goes: version and name checks -> default -> patch or apply -> mutating admission -> prune -> validate ->
//! validating admission -> quota -> commit with a precondition on the revision, retried where the client gave none.
//! What is special about a kind is data in its [`ResourceType`](freehold_machinery::ResourceType) or a small entry in
//! [`strategy`], never a second path.
//!
//! This crate must not know: HTTP, sockets, content types beyond the kind of a patch.

mod across;
mod actions;
mod admit;
mod allocate;
mod claims;
mod class;
mod class_access;
mod conversion;
mod convert;
mod definitions;
mod delete;
mod draft;
mod eviction;
mod exports;
mod get;
mod import;
mod list;
mod measure;
mod people;
mod policies;
mod preconditions;
mod predicates;
mod prepare;
mod questions;
mod ranges;
mod registration;
mod registry;
mod scale;
mod select;
mod shown;
mod standing;
mod strategize;
mod strategy;
mod token;
mod validate;
mod view;
mod watch;
mod webhooks;
mod write;

#[cfg(test)]
mod fuzz;

pub use class::class_objects;
pub use exports::{
    Exports, FoundExport, FoundRollout, Members, ReferredBy, Seeker, Terms, bound_schemas, class_bindings,
};
pub use freehold_apiserver_admission::{
    Annotations,
    webhook::{At, ClientConfig},
};
pub use freehold_apiserver_ledger::{
    Ahead, Amounts, Ledger, Meter, Owner, PlaneLimits, ProviderLimit, SharedGroup, SharedKinds, SharedLimits,
    Tenancy,
};
pub use freehold_apiserver_operation::*;
pub use freehold_apiserver_quota::ConsumerKind;
pub use measure::AdmissionMetrics;
pub use questions::{Question, Webhooks};
pub use ranges::ServiceRanges;
pub use registry::Registry;
pub use token::TokenSecrets;
pub use view::{Across, OwnTypes, ShowObject, Versions, View};
