//! Secrets on disk.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// Writes a file that only its owner can read (0600), atomically and durably: readers see the old content or the
/// new, and the new one survives a crash. The directory must exist.
///
/// # Errors
/// The system's error where the file cannot be written, renamed or synced.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary_beside(path)?;
    let written = create_synced(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to report; a leftover temporary file is only clutter.
        let _ = fs::remove_file(&temporary);
    }
    written?;
    File::open(directory(path))?.sync_all()
}

fn create_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn temporary_beside(path: &Path) -> io::Result<PathBuf> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name =
        path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a file name"))?;
    let serial = COUNTER.fetch_add(1, Ordering::Relaxed);
    let temporary = format!(".{}.{}.{serial}", name.to_string_lossy(), std::process::id());
    Ok(directory(path).join(temporary))
}
