//! Admission of the tenancy subsystem: policies of the API server, and a webhook for what those cannot say.
//!
//! ```text
//! Tenant ---> rules in annotations of namespaces ---> policies (CEL, in the API server)      `policies`
//!        \--> informers ---> decisions               \-> webhook: one call at most           `review`
//! Quota  ---> accounts ---> desks ---> QuotaLedger    /   reservations over several namespaces `ledger`
//! ```
//!
//! The webhook is asked about requests in namespaces of tenants, never about those of administrators and nodes.

pub mod configuration;
mod defaults;
mod guards;
pub mod index;
pub mod ledger;
pub mod policies;
pub mod review;
mod webhook;

pub use webhook::{SECRET, Webhook};
