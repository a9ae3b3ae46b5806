//! What can be set, and why opening can fail.

use std::{path::PathBuf, time::Duration};

/// Settings of the engine. The defaults suit one machine on which much else runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bytes of recently used blocks kept in memory.
    pub block_cache: u64,
    /// Bytes of new versions gathered in memory before they become a sorted file. Up to three times as much is in
    /// memory while files are being written.
    pub write_buffer: u64,
    /// Bytes of recent changes kept in memory for watches; a watch further behind reads them from disk. The cache above
    /// keeps events too: what is here only has to bridge the moment until they are taken.
    pub recent_changes: usize,
    /// How often idle watches are told their progress.
    pub progress_every: Duration,
    /// What is compacted without being asked; `None`: nothing.
    pub retention: Option<Retention>,
    /// Bytes that must be free before writes are tried again on a disk that was full.
    pub room_to_recover: usize,
}

/// How much history is kept. A revision is compacted when it is older than `age` and not among the last `revisions`.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// The age, counted from when this process saw the revision. It is looked after five times within it, so that a
    /// revision may be there a fifth longer.
    pub age: Duration,
    /// The number of revisions that are kept however old they are.
    pub revisions: u64,
}

impl Default for Retention {
    /// As long as kube-apiserver keeps history in its etcd.
    fn default() -> Self {
        Self { age: Duration::from_secs(300), revisions: 0 }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_cache: 4 << 20,
            write_buffer: 8 << 20,
            recent_changes: 1 << 20,
            progress_every: Duration::from_secs(5),
            retention: Some(Retention::default()),
            room_to_recover: 1 << 20,
        }
    }
}

/// Why a data directory can't be opened. Each message is one line that names the directory.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("data directory {} is in use by process {pid}", dir.display())]
    Locked {
        /// The directory.
        dir: PathBuf,
        /// The other process, as it wrote itself into `LOCK`; "unknown" if it did not.
        pid: String,
    },
    /// It can't be made, read or written.
    #[error("data directory {} can't be used: {source}", dir.display())]
    Io {
        /// The directory.
        dir: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// It was written by a version that this one can't read.
    #[error("data directory {} has format {found}; this version reads {expected}", dir.display())]
    Version {
        /// The directory.
        dir: PathBuf,
        /// What it has.
        found: String,
        /// What can be read.
        expected: &'static str,
    },
    /// It holds objects already: an archive is restored into one that does not.
    #[error("data directory {} is not empty", dir.display())]
    NotEmpty {
        /// The directory.
        dir: PathBuf,
    },
    /// Its files are not as they were written.
    #[error("data directory {} is corrupt: {reason}", dir.display())]
    Damaged {
        /// The directory.
        dir: PathBuf,
        /// What was found.
        reason: String,
    },
}
