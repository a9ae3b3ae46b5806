//! Container logs: files in the format of container runtimes, read back with kubelet's options.
//!
//! One line is `2006-01-02T15:04:05.000000000Z stdout F text`; `P` instead of `F` marks a part of a line that is longer
//! than [`MAX_LINE`]. A file that reaches [`ROTATE_AT`] becomes `<file>.1` and begins anew, so that a run keeps between
//! one and two times that much.

use bytes::Bytes;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::sync::{mpsc, watch};

/// Bytes of a file before it is rotated.
const ROTATE_AT: u64 = 10 << 20;
/// Bytes of a line before it is cut.
const MAX_LINE: usize = 16 << 10;
/// Bytes that a reader takes at once.
const READ_AT_ONCE: usize = 256 << 10;

/// What of a log is wanted, as `core/v1 PodLogOptions` has it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LogOptions {
    /// Stay, and send what comes.
    pub(crate) follow: bool,
    /// The run before this one.
    pub(crate) previous: bool,
    /// Each line with its time in front.
    pub(crate) timestamps: bool,
    /// Only so many lines from the end.
    pub(crate) tail_lines: Option<usize>,
    /// Only so many bytes.
    pub(crate) limit_bytes: Option<u64>,
    /// Only lines from then on.
    pub(crate) since: Option<Timestamp>,
}

/// The log of one run of a container.
#[derive(Debug)]
pub(crate) struct RunLog {
    path: PathBuf,
    rotate_at: u64,
    out: Mutex<Out>,
    /// Counts writes; closed when the run has ended.
    written: Mutex<Option<watch::Sender<u64>>>,
    changed: watch::Receiver<u64>,
}

#[derive(Debug)]
struct Out {
    file: File,
    size: u64,
    /// How often the file was rotated.
    rotations: u64,
}

impl RunLog {
    /// A log that is written to `path`, after what is there already.
    pub(crate) fn create(path: &Path) -> io::Result<Arc<Self>> {
        Self::with_limit(path, ROTATE_AT)
    }

    fn with_limit(path: &Path, rotate_at: u64) -> io::Result<Arc<Self>> {
        let file = open_to_append(path)?;
        let out = Out { size: file.metadata()?.len(), file, rotations: 0 };
        let (written, changed) = watch::channel(0);
        let (out, written) = (Mutex::new(out), Mutex::new(Some(written)));
        Ok(Arc::new(Self { path: path.to_owned(), rotate_at, out, written, changed }))
    }

    /// Keeps what a process prints to one of its streams, until the end of the stream.
    pub(crate) async fn keep(self: Arc<Self>, stream: &'static str, from: impl AsyncRead + Unpin) {
        let mut lines = BufReader::with_capacity(MAX_LINE, from);
        let mut line = Vec::new();
        loop {
            let chunk = match lines.fill_buf().await {
                Ok(chunk) if !chunk.is_empty() => chunk,
                _ => break,
            };
            let end = chunk.iter().position(|b| *b == b'\n');
            let take = end.map_or(chunk.len(), |at| at + 1).min(MAX_LINE - line.len());
            line.extend_from_slice(&chunk[..take]);
            lines.consume(take);
            if line.ends_with(b"\n") || line.len() >= MAX_LINE {
                self.write(stream, &line);
                line.clear();
            }
        }
        if !line.is_empty() {
            self.write(stream, &line);
        }
    }

    /// Keeps what a process prints, where it prints to that stream.
    pub(crate) async fn keep_all(
        self: Arc<Self>,
        stream: &'static str,
        from: Option<impl AsyncRead + Unpin>,
    ) {
        if let Some(from) = from {
            self.keep(stream, from).await;
        }
    }

    fn write(&self, stream: &str, line: &[u8]) {
        let tag = if line.ends_with(b"\n") { 'F' } else { 'P' };
        let mut entry = format!("{:.9} {stream} {tag} ", Timestamp::now()).into_bytes();
        entry.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        entry.push(b'\n');
        if let Err(error) = self.append(&entry) {
            tracing::warn!(path = %self.path.display(), %error, "failed to write a line of a container's log");
        }
        if let Some(written) = &*self.written.lock() {
            written.send_modify(|count| *count += 1);
        }
    }

    fn append(&self, entry: &[u8]) -> io::Result<()> {
        let mut out = self.out.lock();
        if out.size >= self.rotate_at {
            std::fs::rename(&self.path, rotated(&self.path))?;
            out.file = open_to_append(&self.path)?;
            out.size = 0;
            out.rotations += 1;
        }
        out.file.write_all(entry)?;
        out.size += entry.len() as u64;
        Ok(())
    }

    /// Nothing more will be written: followers come to their end.
    pub(crate) fn close(&self) {
        self.written.lock().take();
    }

    /// Removes the files.
    pub(crate) fn remove(&self) {
        for path in [rotated(&self.path), self.path.clone()] {
            // A file that is not there need not be removed.
            let _ = std::fs::remove_file(path);
        }
    }

    /// Sends what is wanted of the log as text, until its end or that of the receiver.
    pub(crate) async fn send(self: Arc<Self>, options: LogOptions, to: mpsc::Sender<Bytes>) {
        let mut changed = self.changed.clone();
        let mut left = options.limit_bytes.unwrap_or(u64::MAX);
        let mut cursor = Cursor { rotations: None, offset: 0, part: Vec::new() };
        let mut tail = options.tail_lines.map(|n| (n, VecDeque::new()));
        loop {
            changed.mark_unchanged();
            let ended = self.written.lock().is_none();
            loop {
                let entries = match cursor.read(&self) {
                    Ok(entries) if entries.is_empty() => break,
                    Ok(entries) => entries,
                    Err(_) => return,
                };
                let texts = entries.iter().filter_map(|entry| shown(entry, &options));
                match &mut tail {
                    Some((wanted, kept)) => keep_last(kept, *wanted, texts),
                    None => {
                        if !send_all(texts, &mut left, &to).await {
                            return;
                        }
                    }
                }
            }
            if let Some((_, kept)) = tail.take()
                && !send_all(kept.into_iter(), &mut left, &to).await
            {
                return;
            }
            if !options.follow || ended {
                return;
            }
            // An error says that the run has ended; the next round reads what is left.
            tokio::select! {
                _ = changed.changed() => {}
                () = to.closed() => return,
            }
        }
    }
}

fn keep_last(kept: &mut VecDeque<Vec<u8>>, wanted: usize, texts: impl Iterator<Item = Vec<u8>>) {
    for text in texts {
        kept.push_back(text);
        if kept.len() > wanted {
            kept.pop_front();
        }
    }
}

/// Sends texts together; false when enough was sent or nobody takes it.
async fn send_all(texts: impl Iterator<Item = Vec<u8>>, left: &mut u64, to: &mpsc::Sender<Bytes>) -> bool {
    let mut all: Vec<u8> = texts.flatten().collect();
    all.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
    *left -= all.len() as u64;
    let sent = all.is_empty() || to.send(Bytes::from(all)).await.is_ok();
    sent && *left > 0
}

/// The text of an entry, if its time is wanted.
fn shown(entry: &[u8], options: &LogOptions) -> Option<Vec<u8>> {
    let mut parts = entry.splitn(4, |b| *b == b' ');
    let (time, _stream, tag, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if let Some(since) = options.since {
        let written: Timestamp = std::str::from_utf8(time).ok()?.parse().ok()?;
        if written < since {
            return None;
        }
    }
    let mut out = Vec::with_capacity(entry.len() + 1);
    if options.timestamps {
        out.extend_from_slice(time);
        out.push(b' ');
    }
    out.extend_from_slice(text);
    if tag == b"F" {
        out.push(b'\n');
    }
    Some(out)
}

fn open_to_append(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}

fn rotated(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".1");
    path.with_file_name(name)
}

/// How far a reader is.
struct Cursor {
    /// Which file: how many rotations there had been when it was the current one. `None`: the oldest that is there.
    rotations: Option<u64>,
    offset: u64,
    /// The beginning of an entry whose end was not read yet.
    part: Vec<u8>,
}

impl Cursor {
    /// The next entries, without line ends; none when everything was read.
    fn read(&mut self, log: &RunLog) -> io::Result<Vec<Vec<u8>>> {
        loop {
            let (mut file, current) = {
                let out = log.out.lock();
                let rotated_there = rotated(&log.path).exists();
                let at = self.rotations.unwrap_or(if rotated_there {
                    out.rotations.wrapping_sub(1)
                } else {
                    out.rotations
                });
                let current = at == out.rotations;
                // A reader that is more than one file behind goes on with what is left.
                let kept = if current { at } else { out.rotations.wrapping_sub(1) };
                if self.rotations != Some(kept) {
                    self.offset = 0;
                    self.part.clear();
                }
                self.rotations = Some(kept);
                (File::open(if current { log.path.clone() } else { rotated(&log.path) })?, current)
            };
            file.seek(SeekFrom::Start(self.offset))?;
            let mut bytes = Vec::new();
            let n = file.take(READ_AT_ONCE as u64).read_to_end(&mut bytes)?;
            self.offset += n as u64;
            if n == 0 && current {
                return Ok(Vec::new());
            }
            if n == 0 {
                self.rotations = self.rotations.map(|at| at.wrapping_add(1));
                self.offset = 0;
                continue;
            }
            let entries = self.entries(&bytes);
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
    }

    fn entries(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut entries = Vec::new();
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            self.part.extend_from_slice(piece);
            if self.part.ends_with(b"\n") {
                self.part.pop();
                entries.push(std::mem::take(&mut self.part));
            }
        }
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn text(log: &Arc<RunLog>, options: LogOptions) -> String {
        let (sender, mut receiver) = mpsc::channel(64);
        let sending = tokio::spawn(log.clone().send(options, sender));
        let mut all = Vec::new();
        while let Some(bytes) = receiver.recv().await {
            all.extend_from_slice(&bytes);
        }
        sending.await.unwrap();
        String::from_utf8(all).unwrap()
    }

    #[tokio::test]
    async fn lines_are_read_back_with_tail_limit_time_and_timestamps() {
        let dir = tempfile::tempdir().unwrap();
        let log = RunLog::create(&dir.path().join("0.log")).unwrap();
        log.clone().keep("stdout", &b"one\ntwo\nthree"[..]).await;
        let options = LogOptions::default;
        assert_eq!(text(&log, options()).await, "one\ntwo\nthree");
        assert_eq!(text(&log, LogOptions { tail_lines: Some(2), ..options() }).await, "two\nthree");
        assert_eq!(text(&log, LogOptions { tail_lines: Some(0), ..options() }).await, "");
        assert_eq!(text(&log, LogOptions { limit_bytes: Some(5), ..options() }).await, "one\nt");
        let future = Some(Timestamp::now() + jiff::SignedDuration::from_secs(60));
        assert_eq!(text(&log, LogOptions { since: future, ..options() }).await, "");
        let stamped = text(&log, LogOptions { timestamps: true, ..options() }).await;
        let (time, rest) = stamped.split_once(' ').unwrap();
        assert!(time.parse::<Timestamp>().is_ok() && rest.starts_with("one\n"), "{stamped}");
    }

    #[tokio::test]
    async fn a_follower_sees_what_comes_and_ends_with_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let log = RunLog::with_limit(&dir.path().join("0.log"), 100).unwrap();
        log.write("stdout", b"first\n");
        let (sender, mut receiver) = mpsc::channel(64);
        tokio::spawn(log.clone().send(LogOptions { follow: true, ..LogOptions::default() }, sender));
        assert_eq!(receiver.recv().await.unwrap(), "first\n");
        for i in 0..20 {
            let line = format!("line {i}\n");
            log.write("stderr", line.as_bytes());
            assert_eq!(receiver.recv().await.unwrap(), line, "across rotations too");
        }
        log.close();
        assert_eq!(receiver.recv().await, None);
        assert!(std::fs::metadata(dir.path().join("0.log")).unwrap().len() < 200);
    }

    #[tokio::test]
    async fn a_line_without_end_is_cut_and_joined_again() {
        let dir = tempfile::tempdir().unwrap();
        let log = RunLog::create(&dir.path().join("0.log")).unwrap();
        let long = format!("{}\n", "x".repeat(MAX_LINE * 2 + 5));
        log.clone().keep("stdout", long.as_bytes()).await;
        assert_eq!(text(&log, LogOptions::default()).await, long);
    }
}
