//! Making archives.

use super::{ArchiveError, END, Header, MAGIC, MAX_HEADER, RECORD, Record, check_record};
use crate::{Hold, KeyRange, KeyValue, Range, Store};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Stream, stream};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Keys that are read from a store at a time.
const PAGE: usize = 500;

/// Makes the bytes of an archive; where they go is the caller's.
pub struct Encoder {
    digest: Sha256,
    count: u64,
    last: Option<Bytes>,
    out: BytesMut,
}

impl Encoder {
    /// Begins an archive with a header.
    ///
    /// # Errors
    /// [`ArchiveError::TooLarge`] for a header of more than 64 KiB.
    pub fn new(header: &Header) -> Result<Self, ArchiveError> {
        let json = serde_json::to_vec(header).map_err(|error| ArchiveError::TooLarge(error.to_string()))?;
        let len = u32::try_from(json.len()).ok().filter(|_| json.len() <= MAX_HEADER);
        let Some(len) = len else {
            return Err(ArchiveError::TooLarge(format!("a header of {} bytes", json.len())));
        };
        let mut encoder = Self { digest: Sha256::new(), count: 0, last: None, out: BytesMut::new() };
        encoder.out.put_slice(MAGIC);
        encoder.out.put_u32(len);
        encoder.out.put_slice(&json);
        Ok(encoder)
    }

    /// Adds a key. Keys come in ascending order.
    ///
    /// # Errors
    /// [`ArchiveError`] for a key out of order or over a limit of the format; the archive is then as it was before
    /// the call.
    pub fn push(&mut self, record: &Record) -> Result<(), ArchiveError> {
        let Record { key, value, .. } = record;
        check_record(key.len(), value.len()).map_err(ArchiveError::TooLarge)?;
        if self.last.as_ref().is_some_and(|last| last >= key) {
            return Err(ArchiveError::Damaged("its keys are not in order".into()));
        }
        self.out.reserve(25 + key.len() + value.len());
        self.out.put_u8(RECORD);
        // The lengths were checked: they are far below 4 GiB.
        self.out.put_u32(key.len() as u32);
        self.out.put_slice(key);
        self.out.put_u64(record.created);
        self.out.put_u64(record.modified);
        self.out.put_u32(value.len() as u32);
        self.out.put_slice(value);
        self.count += 1;
        self.last = Some(key.clone());
        Ok(())
    }

    /// The bytes made since they were last taken.
    pub fn take(&mut self) -> Bytes {
        self.digest.update(&self.out);
        self.out.split().freeze()
    }

    /// The rest of the archive.
    pub fn finish(mut self) -> Bytes {
        self.out.put_u8(END);
        self.out.put_u64(self.count);
        self.digest.update(&self.out);
        self.out.put_slice(&self.digest.finalize());
        self.out.freeze()
    }
}

impl From<KeyValue> for Record {
    fn from(found: KeyValue) -> Self {
        let KeyValue { key, value, created, modified } = found;
        Self { key: key.into_bytes(), created, modified, value }
    }
}

/// What to archive.
pub struct Export {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Which of its keys.
    pub keys: KeyRange,
    /// The revision, kept readable while the archive is made.
    pub hold: Hold,
}

struct Going {
    export: Export,
    encoder: Encoder,
}

/// Archives a range as of the revision of a hold, piece by piece; each piece is created when it is polled for. The
/// header's revision is set to that of the hold.
///
/// # Errors
/// [`ArchiveError`] for a header that cannot be written. An error in the stream is its last item: the archive is
/// torn.
pub fn export(
    export: Export,
    mut header: Header,
) -> Result<impl Stream<Item = Result<Bytes, ArchiveError>> + Send + 'static, ArchiveError> {
    header.revision = export.hold.revision;
    let encoder = Encoder::new(&header)?;
    Ok(stream::try_unfold(Some(Going { export, encoder }), |going| async move {
        let Some(mut going) = going else { return Ok(None) };
        let more = going.page().await?;
        let bytes = going.encoder.take();
        if more {
            return Ok(Some((bytes, Some(going))));
        }
        let last = going.encoder.finish();
        Ok(Some(([bytes, last].concat().into(), None)))
    }))
}

impl Going {
    /// Adds the next keys. Returns whether there are more.
    async fn page(&mut self) -> Result<bool, ArchiveError> {
        let Export { store, keys, hold } = &mut self.export;
        let range = Range { at: Some(hold.revision), limit: PAGE, ..Range::all(keys.clone()) };
        let found = store.range(range).await?;
        if let Some(last) = found.items.last() {
            *keys = keys.from_key(KeyRange::one(&last.key).end);
        }
        for item in found.items {
            self.encoder.push(&item.into())?;
        }
        Ok(found.more)
    }
}
