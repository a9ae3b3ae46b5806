//! Documents that were made lately, compressed, by the hash of their content.

use bytes::Bytes;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use freehold_apiserver_transport::payload;
use freehold_machinery::Status;
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    io::{self, Read, Write},
};
use tokio::sync::Semaphore;

/// How many documents are made at a time.
const MAKERS: usize = 2;

/// Bytes of documents that are kept, and of the largest that is, as they are compressed: to about a tenth.
const KEPT: (usize, usize) = (4 * 1024 * 1024, 2 * 1024 * 1024);

/// Documents that were made lately.
pub(crate) struct Documents {
    makers: Semaphore,
    kept: Mutex<(usize, HashMap<String, Document>)>,
}

/// A document, compressed with gzip.
#[derive(Clone)]
pub(crate) struct Document {
    pub(crate) packed: Bytes,
    /// Bytes of it when it is not compressed.
    pub(crate) length: usize,
}

impl Document {
    pub(crate) fn new(plain: &[u8]) -> io::Result<Self> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(payload::LEVEL));
        encoder.write_all(plain)?;
        Ok(Self { packed: encoder.finish()?.into(), length: plain.len() })
    }

    pub(crate) fn unpack(&self) -> io::Result<Bytes> {
        let mut plain = Vec::with_capacity(self.length);
        GzDecoder::new(&*self.packed).read_to_end(&mut plain)?;
        Ok(plain.into())
    }
}

impl Documents {
    pub(crate) fn new() -> Self {
        Self { makers: Semaphore::new(MAKERS), kept: Mutex::default() }
    }

    /// The document of a key, made where it is not at hand.
    pub(crate) async fn get(
        &self,
        key: String,
        make: impl FnOnce() -> Vec<u8> + Send + 'static,
    ) -> Result<Document, Status> {
        if let Some(found) = self.find(&key) {
            return Ok(found);
        }
        let _maker = self.makers.acquire().await.map_err(Status::internal)?;
        // Another request may have made it meanwhile.
        if let Some(found) = self.find(&key) {
            return Ok(found);
        }
        let made = tokio::task::spawn_blocking(|| Document::new(&make())).await.map_err(Status::internal)?;
        let made = made.map_err(Status::internal)?;
        self.keep(key, made.clone());
        Ok(made)
    }

    pub(crate) fn find(&self, key: &str) -> Option<Document> {
        self.kept.lock().1.get(key).cloned()
    }

    pub(crate) fn keep(&self, key: String, document: Document) {
        let (all, each) = KEPT;
        let length = document.packed.len();
        if length > each {
            return;
        }
        let mut kept = self.kept.lock();
        if kept.0 + length > all {
            *kept = Default::default();
        }
        kept.0 += length;
        kept.1.insert(key, document);
    }
}
