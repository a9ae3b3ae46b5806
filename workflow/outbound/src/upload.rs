//! Objects that come in pieces: small ones are written at once, large ones in parts.

use crate::{Body, Bucket, Error, Outbound, Request};
use bytes::Bytes;
use http::Method;
use http::header::ETAG;
use std::fmt::Write as _;

/// Bytes of a part; stores want 5 MiB or more, and take 10,000 parts.
const PART: usize = 8 << 20;
/// Bytes of an answer about an upload.
const MAX_ANSWER: usize = 64 << 10;

/// An object that is being written. Nothing is there before [`finish`](Self::finish); one that will not be finished is to be
/// [given up](Self::abort), or its parts stay until the store's own rules for unfinished uploads remove them.
#[derive(Debug)]
pub struct Upload {
    bucket: Bucket,
    outbound: Outbound,
    key: String,
    buffer: Vec<u8>,
    id: String,
    tags: Vec<String>,
}

impl Upload {
    /// Begins an object of the bucket under a key, without a request.
    pub fn new(bucket: Bucket, outbound: Outbound, key: impl Into<String>) -> Self {
        Self { bucket, outbound, key: key.into(), buffer: Vec::new(), id: String::new(), tags: Vec::new() }
    }

    /// Appends.
    ///
    /// # Errors
    /// What [`Outbound::send`] fails with, and [`Error::Status`].
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(PART - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() == PART {
                self.part().await?;
            }
        }
        Ok(())
    }

    /// Completes the object.
    ///
    /// # Errors
    /// What [`Outbound::send`] fails with, and [`Error::Status`].
    pub async fn finish(&mut self) -> Result<(), Error> {
        if self.id.is_empty() {
            let body = Body::Bytes(std::mem::take(&mut self.buffer).into());
            return self.bucket.put(&self.outbound, &self.key, body).await;
        }
        if !self.buffer.is_empty() {
            self.part().await?;
        }
        let mut parts = String::from("<CompleteMultipartUpload>");
        for (number, tag) in (1..).zip(&self.tags) {
            // Writing to a String can't fail.
            let _ = write!(parts, "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
        }
        parts.push_str("</CompleteMultipartUpload>");
        let request = self.bucket.request(Method::POST, &self.key, &[("uploadId", &self.id)])?;
        let request = Request { body: Body::Bytes(parts.into()), ..request };
        let answer = self.outbound.send(request).await?.succeeded().await?;
        let status = answer.status;
        // Stores answer 200 before they know, and say in the body how it went.
        let said = answer.bytes(MAX_ANSWER).await?;
        let said = String::from_utf8_lossy(&said).into_owned();
        if said.contains("<Error>") {
            return Err(Error::Status(status, format!(": {}", said.chars().take(300).collect::<String>())));
        }
        Ok(())
    }

    /// Deletes what was written of an object that will not be finished.
    ///
    /// # Errors
    /// What [`Outbound::send`] fails with, and [`Error::Status`].
    pub async fn abort(&mut self) -> Result<(), Error> {
        self.buffer.clear();
        if self.id.is_empty() {
            return Ok(());
        }
        let request = self.bucket.request(Method::DELETE, &self.key, &[("uploadId", &self.id)])?;
        let answer = self.outbound.send(request).await?;
        if answer.status != http::StatusCode::NOT_FOUND {
            answer.succeeded().await?;
        }
        self.id.clear();
        self.tags.clear();
        Ok(())
    }

    async fn part(&mut self) -> Result<(), Error> {
        if self.id.is_empty() {
            let request = self.bucket.request(Method::POST, &self.key, &[("uploads", "")])?;
            let answer = self.outbound.send(request).await?.succeeded().await?;
            let status = answer.status;
            let said = answer.bytes(MAX_ANSWER).await?;
            let said = String::from_utf8_lossy(&said).into_owned();
            let id = said.split("<UploadId>").nth(1).and_then(|rest| rest.split("</UploadId>").next());
            self.id = id
                .filter(|id| !id.is_empty())
                .ok_or_else(|| Error::Status(status, " without an id of the upload".into()))?
                .to_owned();
        }
        let number = (self.tags.len() + 1).to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", self.id.as_str())];
        let body = Body::Bytes(Bytes::from(std::mem::take(&mut self.buffer)));
        let request = Request { body, ..self.bucket.request(Method::PUT, &self.key, &query)? };
        let answer = self.outbound.send(request).await?.succeeded().await?;
        let tag = answer.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).unwrap_or_default();
        self.tags.push(tag.replace('<', "").to_owned());
        Ok(())
    }
}
