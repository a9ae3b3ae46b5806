//! Admission webhooks of subsystems: their certificate, registration and HTTPS server. What they decide is a [`Reviewer`]'s.
//!
//! ```text
//! Secret with the authority, shared by replicas --> serving certificate     `certificates`
//!                                   \--> caBundle --> webhook configurations `address`, written by the reviewer
//! API server --HTTPS--> AdmissionReview --> Reviewer                         `server`
//! ```
//!
//! This crate must not know any subsystem.

mod address;
pub mod certificates;
mod server;
mod webhook;

pub use address::{Address, Place};
pub use webhook::{Webhook, WebhookError};

use freehold_client::{Client, Error};
use freehold_machinery::Value;

/// Decides on reviews of an API server, and says which requests it is to be asked about.
#[async_trait::async_trait]
pub trait Reviewer: Send + Sync + 'static {
    /// Whether it knows what it needs to decide.
    fn is_ready(&self) -> bool {
        true
    }

    /// Answers an AdmissionReview with one. `None`: nothing is served at that path.
    async fn review(&self, path: &str, review: Value) -> Option<Value>;

    /// Writes the configurations by which the API server finds the webhook and trusts certificates of `bundle` (PEM).
    ///
    /// # Errors
    /// The server's refusal.
    async fn register(&self, client: &Client, address: &Address, bundle: &str) -> Result<(), Error>;
}
