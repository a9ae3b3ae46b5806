//! Whoever is asked.

use super::webhook::Webhook;

/// Somebody who is asked.
pub(super) enum Authorizer {
    /// The server's own rules.
    Own,
    Webhook(Box<Webhook>),
}
