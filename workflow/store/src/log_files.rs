//! Kept logs in a file system: appended as they come, read by ranges, searched.

use crate::{Error, Result};
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _, BufReader};

/// Bytes that one read returns at most.
pub const MAX_READ: u64 = 4 << 20;
/// Bytes that one log can have; what comes after is dropped, and the log says so.
pub const MAX_LOG: u64 = 1 << 30;
/// Bytes that one search looks at.
const MAX_SEARCH: u64 = 64 << 20;
/// The longest line that a search looks at; longer ones are looked at in parts.
const MAX_LINE: u64 = 64 << 10;

/// A folder of logs. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogFiles {
    root: PathBuf,
}

/// Which container's log.
#[derive(Clone, Copy, Debug)]
pub struct LogKey<'a> {
    /// The plane or cluster.
    pub plane: &'a str,
    /// The run's uid.
    pub run: &'a str,
    /// The Pod's uid.
    pub pod_uid: &'a str,
    /// The container.
    pub container: &'a str,
}

/// A line that a search found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Match {
    /// Its number, from 1.
    pub line: u64,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// The line, its end cut off.
    pub text: String,
}

/// A log that is being written.
#[derive(Debug)]
pub struct LogWriter {
    file: File,
    location: String,
    bytes: u64,
    lines: u64,
}

impl LogFiles {
    /// Logs below `root`, which is created with the first log.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Begins a log, or goes on where one ended: a caller that was interrupted skips [`LogWriter::bytes`] of its source.
    ///
    /// # Errors
    /// [`Error::Database`] where the file can't be written.
    pub async fn append(&self, key: &LogKey<'_>) -> Result<LogWriter> {
        let location = [key.plane, key.run, key.pod_uid, key.container].map(segment).join("/");
        let path = self.path(&location)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).await.map_err(|e| failed(&path, &e))?;
        }
        let file =
            OpenOptions::new().create(true).append(true).open(&path).await.map_err(|e| failed(&path, &e))?;
        let bytes = file.metadata().await.map_err(|e| failed(&path, &e))?.len();
        Ok(LogWriter { file, location, bytes, lines: 0 })
    }

    /// Returns a log's length in bytes; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Query`] for a location that this crate did not make.
    pub async fn length(&self, location: &str) -> Result<Option<u64>> {
        Ok(fs::metadata(self.path(location)?).await.ok().map(|metadata| metadata.len()))
    }

    /// Reads a log from a byte on, [`MAX_READ`] bytes at most; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Query`] for a location that this crate did not make; [`Error::Database`] where the file can't be read.
    pub async fn read(&self, location: &str, from: u64, length: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(location)?;
        let Ok(mut file) = File::open(&path).await else { return Ok(None) };
        file.seek(SeekFrom::Start(from)).await.map_err(|e| failed(&path, &e))?;
        let mut bytes = Vec::new();
        file.take(length.min(MAX_READ)).read_to_end(&mut bytes).await.map_err(|e| failed(&path, &e))?;
        Ok(Some(bytes))
    }

    /// Finds lines that contain a text, `limit` at most, in the 64 MiB from a byte on where a line begins.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub async fn search(&self, location: &str, needle: &str, from: u64, limit: usize) -> Result<Vec<Match>> {
        let path = self.path(location)?;
        let Ok(mut file) = File::open(&path).await else { return Ok(Vec::new()) };
        file.seek(SeekFrom::Start(from)).await.map_err(|e| failed(&path, &e))?;
        let mut reader = BufReader::with_capacity(256 << 10, file);
        let (mut found, mut offset, mut number) = (Vec::new(), from, 1);
        let mut line = Vec::new();
        while found.len() < limit && offset < from.saturating_add(MAX_SEARCH) {
            line.clear();
            let read = (&mut reader)
                .take(MAX_LINE)
                .read_until(b'\n', &mut line)
                .await
                .map_err(|e| failed(&path, &e))?;
            if read == 0 {
                break;
            }
            let text = String::from_utf8_lossy(&line);
            if text.contains(needle) {
                found.push(Match { line: number, offset, text: text.trim_end_matches('\n').to_owned() });
            }
            offset += read as u64;
            number += u64::from(line.ends_with(b"\n"));
        }
        Ok(found)
    }

    /// Deletes a log; one that is not there is no error.
    ///
    /// # Errors
    /// [`Error::Query`] for a location that this crate did not make; [`Error::Database`] where the file can't be deleted.
    pub async fn remove(&self, location: &str) -> Result<()> {
        let path = self.path(location)?;
        match fs::remove_file(&path).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(&path, &error)),
            _ => {
                // Folders of a run go with its last log.
                for folder in path.ancestors().skip(1).take(2) {
                    let _ = fs::remove_dir(folder).await;
                }
                Ok(())
            }
        }
    }

    fn path(&self, location: &str) -> Result<PathBuf> {
        let parts: Vec<&str> = location.split('/').collect();
        let safe =
            |part: &&str| !part.is_empty() && **part != *"." && **part != *".." && segment(part) == **part;
        if parts.len() != 4 || !parts.iter().all(safe) {
            return Err(Error::Query(format!("{location:?} is no location of a log")));
        }
        Ok(parts.into_iter().fold(self.root.clone(), |path, part| path.join(part)))
    }
}

impl LogWriter {
    /// Where the log is, for [`LogRecord::location`](crate::LogRecord::location).
    pub fn location(&self) -> &str {
        &self.location
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many line ends this writer has written.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Appends. Beyond [`MAX_LOG`] nothing is written.
    ///
    /// # Errors
    /// [`Error::Database`] where the file can't be written.
    pub async fn write(&mut self, chunk: &[u8]) -> Result<()> {
        let room = usize::try_from(MAX_LOG.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        let chunk = &chunk[..chunk.len().min(room)];
        self.file.write_all(chunk).await.map_err(|e| failed(Path::new(&self.location), &e))?;
        self.bytes += chunk.len() as u64;
        self.lines += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(())
    }

    /// Waits until everything is on disk.
    ///
    /// # Errors
    /// [`Error::Database`] where it can't be.
    pub async fn finish(&mut self) -> Result<()> {
        self.file.flush().await.map_err(|e| failed(Path::new(&self.location), &e))?;
        self.file.sync_data().await.map_err(|e| failed(Path::new(&self.location), &e))
    }
}

/// A part of a path: what could lead elsewhere is replaced.
fn segment(text: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let cut: String = text.chars().map(clean).take(200).collect();
    match cut.as_str() {
        "" | "." | ".." => "_".to_owned(),
        _ => cut,
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Error {
    Error::Database(format!("log {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn logs_are_appended_read_by_ranges_and_searched() {
        let folder = tempfile::tempdir().unwrap();
        let files = LogFiles::new(folder.path());
        let key = LogKey { plane: "web", run: "r", pod_uid: "../../etc", container: "main" };
        let mut writer = files.append(&key).await.unwrap();
        writer.write(b"one\ntwo error\n").await.unwrap();
        writer.finish().await.unwrap();
        let mut again = files.append(&key).await.unwrap();
        assert_eq!(again.bytes(), 14);
        again.write(b"three error").await.unwrap();
        again.finish().await.unwrap();
        let location = again.location().to_owned();
        assert_eq!(files.length(&location).await.unwrap(), Some(25));
        assert_eq!(files.read(&location, 4, 3).await.unwrap().unwrap(), b"two");
        let found = files.search(&location, "error", 0, 10).await.unwrap();
        assert_eq!(found.iter().map(|m| (m.line, m.offset)).collect::<Vec<_>>(), [(2, 4), (3, 14)]);
        for outside in ["../x/y/z", "/etc/passwd", "a/b/c", "a/../b/c", "web/r/p/"] {
            assert!(files.read(outside, 0, 1).await.is_err(), "{outside}");
        }
        files.remove(&location).await.unwrap();
        assert_eq!(files.length(&location).await.unwrap(), None);
        files.remove(&location).await.unwrap();
    }
}
