//! What everything in a node shares.

use crate::address::Addresses;
use crate::images::Images;
use crate::logbook::LogBook;
use crate::running::RunningContainers;
use freehold_client::Client;
use freehold_runtime::Recorder;
use parking_lot::Mutex;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Where Pods' directories are, in that of the node.
const PODS_DIRECTORY: &str = "pods";

/// What everything in a node shares.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) name: String,
    pub(crate) takes_waiting: bool,
    pub(crate) host_ip: IpAddr,
    pub(crate) images: Images,
    pub(crate) service: Option<(String, u16)>,
    pub(crate) logs: Arc<LogBook>,
    pub(crate) containers: Arc<RunningContainers>,
    pub(crate) recorder: Recorder,
    pub(crate) addresses: Mutex<Addresses>,
    pub(crate) stop: CancellationToken,
    pub(crate) data_dir: PathBuf,
}

impl Shared {
    /// The directory of a Pod.
    pub(crate) fn pod_directory(&self, uid: &str) -> PathBuf {
        self.pods_directory().join(uid)
    }

    pub(crate) fn pods_directory(&self) -> PathBuf {
        self.data_dir.join(PODS_DIRECTORY)
    }

    pub(crate) fn known_directories(&self) -> Vec<PathBuf> {
        known_directories(&self.data_dir)
    }
}

/// Directories of Pods, as far as an earlier life of a node with this directory left some.
pub(crate) fn known_directories(data_dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data_dir.join(PODS_DIRECTORY)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}
