//! Events in a file that is replaced when it is large, or on standard output.

use crate::{Deliver, Written};
use async_trait::async_trait;
use flate2::{Compression, write::GzEncoder};
use parking_lot::Mutex;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

/// When a file is replaced, and how long those before it are kept.
#[derive(Clone, Copy, Debug)]
pub struct Rotation {
    /// MiB of a file; 0: it is never replaced.
    pub max_size: u64,
    /// Days; 0: any age.
    pub max_age: u64,
    /// How many files before the current one; 0: any number.
    pub max_backups: usize,
    /// Whether files before the current one are compressed with gzip.
    pub compress: bool,
}

/// A file of events, a line each, or standard output.
pub struct Files {
    place: Arc<Mutex<Destination>>,
    legacy: bool,
}

enum Destination {
    Output,
    File(Current),
}

/// The file that is written to.
struct Current {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    size: u64,
}

impl Files {
    /// A sink that writes to standard output.
    pub fn output(legacy: bool) -> Self {
        Self { place: Arc::new(Mutex::new(Destination::Output)), legacy }
    }

    /// Opens a file as a sink; creates it where it is absent, readable by its owner alone.
    ///
    /// # Errors
    /// The system's error where the file cannot be opened or created.
    pub fn open(path: &Path, rotation: Rotation, legacy: bool) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let (file, size) = open(path)?;
        let current = Current { path: path.to_owned(), rotation, file, size };
        Ok(Self { place: Arc::new(Mutex::new(Destination::File(current))), legacy })
    }
}

#[async_trait]
impl Deliver for Files {
    async fn deliver(&self, events: &[Written]) -> Result<(), String> {
        let mut text = Vec::with_capacity(events.iter().map(|event| event.json.len() + 1).sum());
        for event in events {
            match &event.line {
                Some(line) if self.legacy => text.extend_from_slice(line.as_bytes()),
                _ => text.extend_from_slice(&event.json),
            }
            text.push(b'\n');
        }
        let place = self.place.clone();
        // The disk may be slow: no thread that serves requests waits for it.
        let written = tokio::task::spawn_blocking(move || place.lock().write(&text)).await;
        written.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
    }

    fn wants_lines(&self) -> bool {
        self.legacy
    }
}

impl Destination {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        match self {
            Self::Output => {
                let mut output = io::stdout().lock();
                output.write_all(text)?;
                output.flush()
            }
            Self::File(current) => current.write(text),
        }
    }
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(path)?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

impl Current {
    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        let limit = self.rotation.max_size << 20;
        if limit > 0 && self.size > 0 && self.size + text.len() as u64 > limit {
            self.rotate()?;
        }
        self.file.write_all(text)?;
        self.size += text.len() as u64;
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let now = jiff::Timestamp::now();
        let stamp = format!("{now:.3}").replace([':'], "-").trim_end_matches('Z').to_owned();
        let backup = self.path.with_file_name(format!("{}{stamp}{}", self.before(), self.after()));
        fs::rename(&self.path, &backup)?;
        (self.file, self.size) = open(&self.path)?;
        if self.rotation.compress {
            compress(&backup)?;
        }
        self.clean()
    }

    /// What stands before the time in the names of earlier files: `audit-`.
    fn before(&self) -> String {
        let stem = self.path.file_stem().unwrap_or_default();
        format!("{}-", stem.to_string_lossy())
    }

    /// What stands behind it: `.log`.
    fn after(&self) -> String {
        self.path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default()
    }

    /// Removes earlier files that are too many or too old.
    fn clean(&self) -> io::Result<()> {
        let Rotation { max_age, max_backups, .. } = self.rotation;
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (before, after) = (self.before(), self.after());
        let packed = format!("{after}.gz");
        let mut backups = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let ours = name.starts_with(&before) && (name.ends_with(&after) || name.ends_with(&packed));
            if ours && entry.path() != self.path {
                backups.push((name, entry.path()));
            }
        }
        // Names have the time in them: the latest first.
        backups.sort_by(|a, b| b.cmp(a));
        let age = Duration::from_secs(max_age * 24 * 3600);
        let oldest = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
        for (at, (_, path)) in backups.iter().enumerate() {
            let many = max_backups > 0 && at >= max_backups;
            let old =
                max_age > 0 && fs::metadata(path).and_then(|m| m.modified()).is_ok_and(|time| time < oldest);
            if many || old {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Compresses a file and removes the plain one.
fn compress(path: &Path) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".gz");
    let (packed, _) = open(Path::new(&name))?;
    let mut encoder = GzEncoder::new(packed, Compression::default());
    io::copy(&mut File::open(path)?, &mut encoder)?;
    encoder.finish()?.sync_all()?;
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(size: usize) -> Written {
        Written { json: vec![b'x'; size].into(), line: None, address: None }
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[tokio::test]
    async fn a_large_file_is_replaced_and_only_so_many_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let rotation = Rotation { max_size: 1, max_age: 0, max_backups: 2, compress: false };
        let files = Files::open(&folder.path().join("audit.log"), rotation, false).unwrap();
        for _ in 0..5 {
            files.deliver(&[event(600 << 10)]).await.unwrap();
            // Names of earlier files have milliseconds.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let names = names(folder.path());
        assert_eq!(names.len(), 3, "{names:?}");
        assert!(names.iter().all(|name| name == "audit.log" || name.starts_with("audit-20")), "{names:?}");
        let size = fs::metadata(folder.path().join("audit.log")).unwrap().len();
        assert_eq!(size, (600 << 10) + 1);
    }

    #[tokio::test]
    async fn earlier_files_are_compressed_and_a_file_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let rotation = Rotation { max_size: 1, max_age: 1, max_backups: 0, compress: true };
        Files::open(&path, rotation, false).unwrap().deliver(&[event(700 << 10)]).await.unwrap();
        let files = Files::open(&path, rotation, false).unwrap();
        files.deliver(&[event(10)]).await.unwrap();
        assert_eq!(names(folder.path()), ["audit.log"]);
        files.deliver(&[event(700 << 10)]).await.unwrap();
        let names = names(folder.path());
        let packed = names.iter().find(|name| name.ends_with(".log.gz")).unwrap();
        let mut plain = Vec::new();
        let file = File::open(folder.path().join(packed)).unwrap();
        io::Read::read_to_end(&mut flate2::read::GzDecoder::new(file), &mut plain).unwrap();
        assert_eq!(plain.len(), (700 << 10) + 1 + 11);
        assert_eq!(names.len(), 2, "{names:?}");
    }
}
