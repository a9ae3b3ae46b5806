//! Questions to webhooks, and the port through which they are asked.

use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_admission::webhook::ClientConfig;
use freehold_machinery::PlaneId;
use std::time::Duration;

/// Something to ask a webhook.
#[derive(Clone, Debug)]
pub struct Question {
    /// The JSON that it is sent.
    pub body: Bytes,
    /// How long it may take.
    pub timeout: Duration,
    /// Whether it is told that (`?timeout=10s`).
    pub told: bool,
    /// Bytes that its answer may have.
    pub max: usize,
    /// The admission plugin that asks; `None` for conversions.
    pub plugin: Option<&'static str>,
}

/// Reaches webhooks.
#[async_trait]
pub trait Webhooks: Send + Sync + 'static {
    /// Asks one that an object of a plane names. An error is in the words of client-go.
    async fn ask(&self, plane: &PlaneId, client: &ClientConfig, question: Question) -> Result<Bytes, String>;
}
