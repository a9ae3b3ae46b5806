//! Who keeps history and logs.

use async_trait::async_trait;
use freehold_client::Client;
use freehold_machinery::PlaneId;
use freehold_runtime::{Error, Key};
use freehold_workflow_api::DAGRun;

/// Told of runs as their statuses are written, and of Pods before they go.
#[async_trait]
pub trait Observer: Send + Sync {
    /// A run's status is about to be written, in a namespace of a uid. A failure delays that; the status comes again.
    ///
    /// # Errors
    /// What could not be kept.
    async fn recorded(&self, plane: &PlaneId, namespace_uid: &str, run: &DAGRun) -> Result<(), Error>;

    /// A Pod has ended and goes as soon as this returns: its log is read now or never. It should not take more than some
    /// seconds.
    ///
    /// # Errors
    /// What could not be kept; the Pod stays until it can.
    async fn pod_ended(&self, client: &Client, run: &Key, pod: &str, run_uid: &str) -> Result<(), Error>;
}
