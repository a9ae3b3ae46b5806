//! Kept logs in a file system: appended as they come, read by ranges, searched.

use crate::{Error, Result};
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use tokio::fs::{self, File, OpenOptions};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _};

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

/// A file that a log is being written to.
#[derive(Debug)]
pub(crate) struct FileWriter {
    file: File,
    pub(crate) location: String,
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
}

impl LogFiles {
    /// Logs below `root`, which is created with the first log.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) async fn append(&self, key: &LogKey<'_>) -> Result<FileWriter> {
        let location = location_of(key);
        let path = self.path(&location)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).await.map_err(|e| failed(&path, &e))?;
        }
        let file =
            OpenOptions::new().create(true).append(true).open(&path).await.map_err(|e| failed(&path, &e))?;
        let bytes = file.metadata().await.map_err(|e| failed(&path, &e))?.len();
        Ok(FileWriter { file, location, bytes, lines: 0 })
    }

    pub(crate) async fn length(&self, location: &str) -> Result<Option<u64>> {
        Ok(fs::metadata(self.path(location)?).await.ok().map(|metadata| metadata.len()))
    }

    pub(crate) async fn read(&self, location: &str, from: u64, length: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(location)?;
        let Ok(mut file) = File::open(&path).await else { return Ok(None) };
        file.seek(SeekFrom::Start(from)).await.map_err(|e| failed(&path, &e))?;
        let mut bytes = Vec::new();
        file.take(length.min(MAX_READ)).read_to_end(&mut bytes).await.map_err(|e| failed(&path, &e))?;
        Ok(Some(bytes))
    }

    pub(crate) async fn search(
        &self,
        location: &str,
        needle: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Match>> {
        let path = self.path(location)?;
        let Ok(mut file) = File::open(&path).await else { return Ok(Vec::new()) };
        file.seek(SeekFrom::Start(from)).await.map_err(|e| failed(&path, &e))?;
        let mut search = Search::new(needle, from, limit);
        let mut piece = vec![0; 256 << 10];
        while !search.is_done() {
            let read = file.read(&mut piece).await.map_err(|e| failed(&path, &e))?;
            if read == 0 {
                break;
            }
            search.feed(&piece[..read]);
        }
        Ok(search.finish())
    }

    pub(crate) async fn remove(&self, location: &str) -> Result<()> {
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
        Ok(parts_of(location)?.into_iter().fold(self.root.clone(), |path, part| path.join(part)))
    }
}

/// Where the log of a container is.
pub(crate) fn location_of(key: &LogKey<'_>) -> String {
    [key.plane, key.run, key.pod_uid, key.container].map(segment).join("/")
}

/// The parts of a location: none leads elsewhere.
pub(crate) fn parts_of(location: &str) -> Result<Vec<&str>> {
    let parts: Vec<&str> = location.split('/').collect();
    let safe = |part: &&str| !part.is_empty() && **part != *"." && **part != *".." && segment(part) == **part;
    if parts.len() != 4 || !parts.iter().all(safe) {
        return Err(Error::Query(format!("{location:?} is no location of a log")));
    }
    Ok(parts)
}

/// Looks for lines with a text in a log that comes in pieces.
pub(crate) struct Search<'a> {
    needle: &'a str,
    limit: usize,
    found: Vec<Match>,
    line: Vec<u8>,
    number: u64,
    /// Where the line begins.
    offset: u64,
    /// Where no further line is looked at.
    stop: u64,
}

impl<'a> Search<'a> {
    pub(crate) fn new(needle: &'a str, from: u64, limit: usize) -> Self {
        let stop = from.saturating_add(MAX_SEARCH);
        Self { needle, limit, found: Vec::new(), line: Vec::new(), number: 1, offset: from, stop }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.found.len() >= self.limit || self.offset >= self.stop
    }

    pub(crate) fn feed(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() && !self.is_done() {
            let room = usize::try_from(MAX_LINE).unwrap_or(usize::MAX) - self.line.len();
            let end = piece.iter().take(room).position(|byte| *byte == b'\n').map(|at| at + 1);
            let (now, later) = piece.split_at(end.unwrap_or(piece.len().min(room)));
            self.line.extend_from_slice(now);
            piece = later;
            if end.is_some() || now.len() == room {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        if text.contains(self.needle) && !self.is_done() {
            let text = text.trim_end_matches('\n').to_owned();
            self.found.push(Match { line: self.number, offset: self.offset, text });
        }
        self.offset += line.len() as u64;
        self.number += u64::from(line.ends_with(b"\n"));
    }

    /// Lines that were found; the last may have no end.
    pub(crate) fn finish(mut self) -> Vec<Match> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.found
    }
}

impl FileWriter {
    pub(crate) async fn write(&mut self, chunk: &[u8]) -> Result<()> {
        let room = usize::try_from(MAX_LOG.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        let chunk = &chunk[..chunk.len().min(room)];
        self.file.write_all(chunk).await.map_err(|e| failed(Path::new(&self.location), &e))?;
        self.bytes += chunk.len() as u64;
        self.lines += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(())
    }

    pub(crate) async fn finish(&mut self) -> Result<()> {
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
        assert_eq!(again.bytes, 14);
        again.write(b"three error").await.unwrap();
        again.finish().await.unwrap();
        let location = again.location.clone();
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
