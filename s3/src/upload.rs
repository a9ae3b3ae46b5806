//! Objects that are written in parts, so that no more than one of them is in memory.

use crate::bucket::{Ask, Bucket};
use crate::{Error, Result, xml};
use bytes::{Bytes, BytesMut};
use http::Method;

/// Bytes of a part: 10,000 parts, the most that S3 takes, make 160 GB.
const PART: usize = 16 << 20;
/// Parts that an object can have.
const MOST_PARTS: usize = 10_000;

/// An object that is being written. It is there once [`Upload::complete`] was answered.
pub struct Upload {
    bucket: Bucket,
    key: String,
    id: String,
    /// What the store calls the parts that it has.
    parts: Vec<String>,
    pending: BytesMut,
}

impl Upload {
    pub(crate) async fn begin(bucket: Bucket, key: &str) -> Result<Self> {
        let query = [("uploads", "")];
        let answer = bucket.ask(Ask { method: Method::POST, key, query: &query, body: Bytes::new() }).await?;
        let id = xml::text(&String::from_utf8_lossy(&answer), "UploadId").filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| Error::Answer {
            operation: format!("POST {key}"),
            reason: "it names no upload".to_owned(),
        })?;
        Ok(Self { bucket, key: key.to_owned(), id, parts: Vec::new(), pending: BytesMut::new() })
    }

    /// Adds bytes to the end.
    ///
    /// # Errors
    /// The store refuses a part or can't be reached, or the object is too large.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        while self.pending.len() >= PART {
            let part = self.pending.split_to(PART).freeze();
            self.send(part).await?;
        }
        Ok(())
    }

    /// Ends the object, which exists from then on.
    ///
    /// # Errors
    /// The store refuses it or can't be reached. Then there is no object.
    pub async fn complete(mut self) -> Result<()> {
        if !self.pending.is_empty() || self.parts.is_empty() {
            let last = self.pending.split().freeze();
            self.send(last).await?;
        }
        let parts = self.parts.iter().zip(1..).map(|(tag, number)| {
            format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", xml::escape(tag))
        });
        let body =
            format!("<CompleteMultipartUpload>{}</CompleteMultipartUpload>", parts.collect::<String>());
        let query = [("uploadId", self.id.as_str())];
        let ask = Ask { method: Method::POST, key: &self.key, query: &query, body: body.into() };
        let answer = self.bucket.ask(ask).await?;
        // The status is sent before the parts are joined, so a failure can stand in the answer.
        let answer = String::from_utf8_lossy(&answer);
        match xml::all(&answer, "Error").first() {
            Some(error) => Err(Error::Answer {
                operation: format!("POST {}", self.key),
                reason: xml::text(error, "Message").unwrap_or_default(),
            }),
            None => Ok(()),
        }
    }

    /// Gives the object up, and frees what its parts take.
    ///
    /// # Errors
    /// The store refuses it or can't be reached.
    pub async fn abort(self) -> Result<()> {
        let query = [("uploadId", self.id.as_str())];
        let ask = Ask { method: Method::DELETE, key: &self.key, query: &query, body: Bytes::new() };
        self.bucket.ask(ask).await.map(|_| ())
    }

    async fn send(&mut self, body: Bytes) -> Result<()> {
        if self.parts.len() == MOST_PARTS {
            return Err(Error::Config(format!("{}: more than {MOST_PARTS} parts of {PART} bytes", self.key)));
        }
        let number = (self.parts.len() + 1).to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", self.id.as_str())];
        let tag = self.bucket.put_part(&self.key, &query, body).await?;
        self.parts.push(tag);
        Ok(())
    }
}
