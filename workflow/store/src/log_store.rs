//! Where logs are kept: a folder, or an S3-compatible bucket. One interface over both.

use crate::log_bucket::{BucketWriter, LogBucket};
use crate::log_files::{FileWriter, LogFiles, LogKey, Match};
use crate::{Error, Result};
use freehold_workflow_outbound::{Bucket, BucketConfig, Credentials, Outbound};

/// Kept logs. Cheap to clone.
#[derive(Clone, Debug)]
pub enum LogStore {
    /// Files below a folder.
    Folder(LogFiles),
    /// Objects of a bucket.
    Bucket(LogBucket),
}

impl LogStore {
    /// Logs at a place: a folder, or `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`. An endpoint of its own has the bucket in
    /// the path. `credentials` are those of a bucket.
    ///
    /// # Errors
    /// [`Error::Query`] for a place of neither form.
    pub fn open(place: &str, credentials: Credentials) -> Result<Self> {
        let Some(rest) = place.strip_prefix("s3://") else { return Ok(Self::Folder(LogFiles::new(place))) };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        let mut config = BucketConfig { bucket: bucket.to_owned(), ..BucketConfig::default() };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("endpoint", url)) => (config.endpoint, config.path_style) = (url.to_owned(), true),
                Some(("region", region)) => config.region = region.to_owned(),
                _ => return Err(Error::Query(format!("{pair:?} is neither endpoint nor region"))),
            }
        }
        if config.endpoint.is_empty() {
            let region = if config.region.is_empty() { "us-east-1" } else { &config.region };
            config.endpoint = format!("https://s3.{region}.amazonaws.com");
        }
        let bucket = Bucket::new(&config, credentials).map_err(Error::Query)?;
        // The operator says where it is, maybe beside the controllers.
        let networks = "any".parse().unwrap_or_default();
        Ok(Self::Bucket(LogBucket::new(bucket, Outbound::new(networks, ""), prefix)))
    }

    /// Begins a log, or goes on where one ended: a caller that was interrupted skips [`LogWriter::bytes`] of its source.
    ///
    /// # Errors
    /// [`Error::Database`] where it can't be written.
    pub async fn append(&self, key: &LogKey<'_>) -> Result<LogWriter> {
        Ok(LogWriter(match self {
            Self::Folder(files) => Writer::File(files.append(key).await?),
            Self::Bucket(bucket) => Writer::Bucket(Box::new(bucket.create(key)?)),
        }))
    }

    /// Returns a log's length in bytes; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Query`] for a location that this crate did not make; [`Error::Database`] where a bucket can't be asked.
    pub async fn length(&self, location: &str) -> Result<Option<u64>> {
        match self {
            Self::Folder(files) => files.length(location).await,
            Self::Bucket(bucket) => bucket.length(location).await,
        }
    }

    /// Reads a log from a byte on, [`MAX_READ`](crate::MAX_READ) bytes at most; `None` where there is none.
    ///
    /// # Errors
    /// [`Error::Query`] for a location that this crate did not make; [`Error::Database`] where it can't be read.
    pub async fn read(&self, location: &str, from: u64, length: u64) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Folder(files) => files.read(location, from, length).await,
            Self::Bucket(bucket) => bucket.read(location, from, length).await,
        }
    }

    /// Finds lines that contain a text, `limit` at most, in the 64 MiB from a byte on where a line begins.
    ///
    /// # Errors
    /// Those of [`read`](Self::read).
    pub async fn search(&self, location: &str, needle: &str, from: u64, limit: usize) -> Result<Vec<Match>> {
        match self {
            Self::Folder(files) => files.search(location, needle, from, limit).await,
            Self::Bucket(bucket) => bucket.search(location, needle, from, limit).await,
        }
    }

    /// Deletes a log; one that is not there is no error.
    ///
    /// # Errors
    /// [`Error::Query`] for a location that this crate did not make; [`Error::Database`] where it can't be deleted.
    pub async fn remove(&self, location: &str) -> Result<()> {
        match self {
            Self::Folder(files) => files.remove(location).await,
            Self::Bucket(bucket) => bucket.remove(location).await,
        }
    }
}

/// A log that is being written.
#[derive(Debug)]
pub struct LogWriter(Writer);

#[derive(Debug)]
enum Writer {
    File(FileWriter),
    Bucket(Box<BucketWriter>),
}

impl LogWriter {
    /// Where the log is, for [`LogRecord::location`](crate::LogRecord::location).
    pub fn location(&self) -> &str {
        match &self.0 {
            Writer::File(file) => &file.location,
            Writer::Bucket(bucket) => &bucket.location,
        }
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Writer::File(file) => file.bytes,
            Writer::Bucket(bucket) => bucket.bytes,
        }
    }

    /// How many line ends this writer has written.
    pub fn lines(&self) -> u64 {
        match &self.0 {
            Writer::File(file) => file.lines,
            Writer::Bucket(bucket) => bucket.lines,
        }
    }

    /// Appends. Beyond [`MAX_LOG`](crate::MAX_LOG) nothing is written.
    ///
    /// # Errors
    /// [`Error::Database`] where it can't be written.
    pub async fn write(&mut self, chunk: &[u8]) -> Result<()> {
        match &mut self.0 {
            Writer::File(file) => file.write(chunk).await,
            Writer::Bucket(bucket) => bucket.write(chunk).await,
        }
    }

    /// Gives up a log that will be written again from its beginning: a bucket keeps nothing of it. In a folder what is there
    /// stays, and the next writer goes on from it.
    ///
    /// # Errors
    /// [`Error::Database`] where a bucket can't be told.
    pub async fn abort(&mut self) -> Result<()> {
        match &mut self.0 {
            Writer::File(_) => Ok(()),
            Writer::Bucket(bucket) => bucket.abort().await,
        }
    }

    /// Waits until everything is kept.
    ///
    /// # Errors
    /// [`Error::Database`] where it can't be.
    pub async fn finish(&mut self) -> Result<()> {
        match &mut self.0 {
            Writer::File(file) => file.finish().await,
            Writer::Bucket(bucket) => bucket.finish().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_folders_or_buckets() {
        let open = |place: &str| LogStore::open(place, Credentials::default());
        assert!(matches!(open("/var/lib/logs"), Ok(LogStore::Folder(_))));
        assert!(matches!(
            open("s3://kept-logs/a?endpoint=http://127.0.0.1:7070&region=x"),
            Ok(LogStore::Bucket(_))
        ));
        for bad in ["s3://", "s3://UPPER", "s3://kept-logs?who=me", "s3://kept-logs?endpoint=nowhere"] {
            assert!(open(bad).is_err(), "{bad}");
        }
    }
}
