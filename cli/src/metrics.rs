//! The flag of processes that serve no API and tell their metrics.

use anyhow::{Context, Result};
use freehold_runtime::{Render, serve_metrics};
use std::net::SocketAddr;
use tokio_util::sync::CancellationToken;

pub(crate) use freehold_runtime::Format;

/// Where a process serves its metrics.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct MetricsArgs {
    /// Address for `/metrics` and `/healthz` without TLS. Not served by default.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
}

impl MetricsArgs {
    /// Serves metrics until `stop`, where a flag asks for it.
    ///
    /// # Errors
    /// The address can't be listened at.
    pub(crate) async fn serve(self, format: Format, render: Render, stop: CancellationToken) -> Result<()> {
        let Some(address) = self.metrics_listen else { return Ok(()) };
        let serving = serve_metrics(address, format, render, stop).await;
        serving.with_context(|| format!("can't listen at {address}"))
    }
}
