//! Termination messages (`terminationMessagePath`, `terminationMessagePolicy`).
//!
//! The path is of the machine, which containers share. As with mounts, a file of the container is put in its place wherever it
//! stands in a command, an argument or a variable. A program that has the path built in writes to the machine's.

use crate::logs::{LogOptions, RunLog};
use crate::sources::text;
use freehold_machinery::Value;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Where a container leaves its message unless it says otherwise.
const DEFAULT_PATH: &str = "/dev/termination-log";
/// The file that stands for it, in the container's directory.
const FILE: &str = "termination-log";
/// Bytes of a message that are kept, as kubelet keeps them.
const MAX_MESSAGE: u64 = 4096;
/// Bytes and lines that are taken of a log.
const MAX_FROM_LOG: usize = 2048;
const MAX_LINES: usize = 80;

/// The path that a container knows, and the file in its place.
pub(crate) fn mount(container: &Value, home: &Path) -> (String, PathBuf) {
    let path = text(&container["terminationMessagePath"]).unwrap_or_else(|| DEFAULT_PATH.to_owned());
    (path, home.join(FILE))
}

/// Makes the file for the next run, empty.
pub(crate) fn prepare(home: &Path) -> std::io::Result<()> {
    std::fs::write(home.join(FILE), [])
}

/// What a container left, or the end of its log where it failed and wants that instead.
pub(crate) async fn left_by(container: &Value, home: &Path, exit_code: i32, log: &Arc<RunLog>) -> String {
    let written = read(&home.join(FILE)).unwrap_or_default();
    let falls_back = container["terminationMessagePolicy"] == "FallbackToLogsOnError";
    if written.is_empty() && falls_back && exit_code != 0 { end_of(log).await } else { written }
}

fn read(file: &Path) -> std::io::Result<String> {
    let mut file = std::fs::File::open(file)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_MESSAGE)))?;
    let mut bytes = Vec::new();
    file.take(MAX_MESSAGE).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The end of a log that is closed.
async fn end_of(log: &Arc<RunLog>) -> String {
    let (sender, mut receiver) = mpsc::channel(1);
    let options = LogOptions { tail_lines: Some(MAX_LINES), ..LogOptions::default() };
    let sending = tokio::spawn(log.clone().send(options, sender));
    let mut all = Vec::new();
    while let Some(bytes) = receiver.recv().await {
        all.extend_from_slice(&bytes);
    }
    // It ended with its sender.
    let _ = sending.await;
    let tail = &all[all.len().saturating_sub(MAX_FROM_LOG)..];
    String::from_utf8_lossy(tail).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn a_message_is_what_was_written_or_the_end_of_the_log_of_a_failure() {
        let home = tempfile::tempdir().unwrap();
        let log = RunLog::create(&home.path().join("0.log")).unwrap();
        log.clone().keep("stdout", "one\ntwo\n".repeat(400).as_bytes()).await;
        log.close();
        let fallback = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
        prepare(home.path()).unwrap();
        assert_eq!(left_by(&json!({}), home.path(), 1, &log).await, "");
        assert_eq!(left_by(&fallback, home.path(), 0, &log).await, "");
        assert_eq!(left_by(&fallback, home.path(), 1, &log).await, "one\ntwo\n".repeat(40));
        let (path, file) = mount(&json!({}), home.path());
        assert_eq!(path, "/dev/termination-log");
        std::fs::write(file, "x".repeat(5000)).unwrap();
        assert_eq!(left_by(&fallback, home.path(), 1, &log).await, "x".repeat(4096));
    }
}
