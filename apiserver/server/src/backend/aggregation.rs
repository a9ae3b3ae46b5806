//! Aggregated servers of planes.

use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_outbound::{Destination, Outbound};
use freehold_apiserver_planes::Target;
use freehold_machinery::Status;
use futures_util::stream::BoxStream;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Knows the servers that answer for groups in the place of this one. Each failure is the `Status` that the client gets.
#[async_trait]
pub trait AggregationBackend: Send + Sync + 'static {
    /// The server that answers for a group and version in the place of this one; `None` where there is none.
    async fn aggregated(
        &self,
        target: &Target,
        group: &str,
        version: &str,
    ) -> Result<Option<Aggregated>, Status>;

    /// The servers that answer for a group and version in an organization's projects, in their order.
    async fn aggregated_across(
        &self,
        target: &Target,
        group: &str,
        version: &str,
    ) -> Result<Vec<Arc<Aggregated>>, Status>;

    /// Tells each time when [`AggregationBackend::aggregated_across`] may give others, or others may ask them; from this call on.
    fn aggregated_changes(&self, target: &Target) -> BoxStream<'static, ()>;

    /// What aggregated servers say of their versions in OpenAPI 2: `paths` and `definitions` of each.
    async fn aggregated_openapi(&self, target: &Target) -> Vec<Bytes>;
}

/// An aggregated server.
pub struct Aggregated {
    /// What it is reached with.
    pub outbound: Arc<Outbound>,
    /// Where it is, and how it is known.
    pub destination: Destination,
    /// Whether it answered when it was asked last.
    pub available: bool,
    /// Places for requests that are passed on to it.
    pub places: Arc<Semaphore>,
    /// The project of its plane and the organization of that; empty where there is none.
    pub project: Arc<str>,
    /// See `project`.
    pub organization: Arc<str>,
}
