//! The controllers, the provisioner and the node: clients of the server, in its process or in one of their own.

use crate::up::Serving;
use anyhow::Result;
use std::{path::PathBuf, time::Duration};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long components have to finish after a stop.
pub const STOP: Duration = Duration::from_secs(4);

/// Components that run.
pub struct Components {
    tasks: TaskTracker,
}

impl Components {
    /// Waits until all of them have finished.
    pub async fn finished(&self) {
        self.tasks.wait().await;
    }
}

/// Starts the components of `freehold up`.
pub async fn start(serving: &Serving, stop: CancellationToken) -> Result<Components> {
    let tasks = TaskTracker::new();
    let _ = (serving, stop);
    tasks.close();
    Ok(Components { tasks })
}

/// Flags of `freehold controller-manager`.
#[derive(clap::Args)]
pub struct ControllerManagerArgs {
    /// How to reach the server.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The one plane whose controllers to run.
    #[arg(long)]
    plane: Option<String>,
}

/// Runs controllers until Ctrl-C or SIGTERM.
pub async fn controller_manager(_args: ControllerManagerArgs) -> Result<()> {
    Ok(())
}
