//! Kept logs in an S3-compatible bucket: written as they come, in parts, read by ranges, searched.

use crate::log_files::{LogKey, MAX_LOG, MAX_READ, Match, Search, location_of, parts_of};
use crate::{Error, Result};
use freehold_workflow_outbound::{Bucket, Outbound, Upload};

/// Logs in a bucket, below a prefix. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LogBucket {
    bucket: Bucket,
    outbound: Outbound,
    prefix: String,
}

impl LogBucket {
    /// Logs below `prefix`, which may be empty.
    pub fn new(bucket: Bucket, outbound: Outbound, prefix: &str) -> Self {
        Self { bucket, outbound, prefix: prefix.trim_matches('/').to_owned() }
    }

    /// Begins a log. Nothing of it is there before it is finished: a caller that was interrupted writes it all again.
    pub(crate) fn create(&self, key: &LogKey<'_>) -> Result<BucketWriter> {
        let location = location_of(key);
        let upload = Upload::new(self.bucket.clone(), self.outbound.clone(), self.key(&location)?);
        Ok(BucketWriter { upload, location, bytes: 0, lines: 0 })
    }

    pub(crate) async fn length(&self, location: &str) -> Result<Option<u64>> {
        let key = self.key(location)?;
        self.bucket.length(&self.outbound, &key).await.map_err(|error| failed(location, &error))
    }

    pub(crate) async fn read(&self, location: &str, from: u64, length: u64) -> Result<Option<Vec<u8>>> {
        let key = self.key(location)?;
        let read = self.bucket.get(&self.outbound, &key, from, length.min(MAX_READ)).await;
        Ok(read.map_err(|error| failed(location, &error))?.map(|bytes| bytes.to_vec()))
    }

    pub(crate) async fn search(
        &self,
        location: &str,
        needle: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Match>> {
        let mut search = Search::new(needle, from, limit);
        let mut at = from;
        while !search.is_done() {
            let Some(piece) = self.read(location, at, MAX_READ).await? else { break };
            if piece.is_empty() {
                break;
            }
            at += piece.len() as u64;
            search.feed(&piece);
        }
        Ok(search.finish())
    }

    pub(crate) async fn remove(&self, location: &str) -> Result<()> {
        let key = self.key(location)?;
        self.bucket.delete(&self.outbound, &key).await.map_err(|error| failed(location, &error))
    }

    fn key(&self, location: &str) -> Result<String> {
        let own = parts_of(location)?.join("/");
        Ok(if self.prefix.is_empty() { own } else { format!("{}/{own}", self.prefix) })
    }
}

/// A log that is being written into a bucket.
#[derive(Debug)]
pub(crate) struct BucketWriter {
    upload: Upload,
    pub(crate) location: String,
    pub(crate) bytes: u64,
    pub(crate) lines: u64,
}

impl BucketWriter {
    pub(crate) async fn write(&mut self, chunk: &[u8]) -> Result<()> {
        let room = usize::try_from(MAX_LOG.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        let chunk = &chunk[..chunk.len().min(room)];
        self.upload.write(chunk).await.map_err(|error| failed(&self.location, &error))?;
        self.bytes += chunk.len() as u64;
        self.lines += chunk.iter().filter(|byte| **byte == b'\n').count() as u64;
        Ok(())
    }

    pub(crate) async fn finish(&mut self) -> Result<()> {
        self.upload.finish().await.map_err(|error| failed(&self.location, &error))
    }
}

impl BucketWriter {
    pub(crate) async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await.map_err(|error| failed(&self.location, &error))
    }
}

fn failed(location: &str, error: &freehold_workflow_outbound::Error) -> Error {
    Error::Database(format!("log {location}: {error}"))
}
