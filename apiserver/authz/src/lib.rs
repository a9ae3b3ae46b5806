//! Who may do what: RBAC as Kubernetes has it (<https://kubernetes.io/docs/reference/access-authn-authz/rbac/>).
//!
//! A [`Policy`] is compiled from a plane's roles and bindings and answers [`Attributes`] without looking anything up.
//! Compiled rules are shared by content between planes. [`bootstrap_objects`] are the roles that each plane starts with.
//!
//! This crate must not know: where roles are kept, HTTP.

mod aggregate;
mod attributes;
mod bootstrap;
mod escalation;
mod policy;
mod review;
mod rule;

pub use aggregate::{aggregated_rules, aggregates_into};
pub use attributes::{Attributes, Decision, forbidden};
pub use bootstrap::bootstrap_objects;
pub use policy::Policy;
pub use review::{access_review_attributes, access_review_status, rules_review_status};
pub use rule::Rule;
