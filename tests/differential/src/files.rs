//! Files of this crate.

use std::path::PathBuf;

/// A file or folder of this crate.
pub fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(name)
}
