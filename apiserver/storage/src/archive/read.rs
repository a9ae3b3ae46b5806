//! Reading archives.

use super::{
    ArchiveError, DIGEST, END, Header, Kind, MAGIC, MAGIC_OF_ANY_VERSION, MAX_HEADER, RECORD, Record,
    check_record,
};
use bytes::{Buf, Bytes, BytesMut};
use sha2::{Digest, Sha256};
use std::io::Read;

/// Bytes that a [`Reader`] reads at a time.
const PIECE: usize = 64 << 10;

/// What comes out of a [`Decoder`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The header, first and once.
    Header(Header),
    /// A key.
    Record(Record),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Header,
    Records,
    Ended,
}

/// Reads an archive that comes in pieces.
pub struct Decoder {
    at: At,
    digest: Sha256,
    count: u64,
    last: Option<Bytes>,
    bytes: BytesMut,
}

impl Default for Decoder {
    fn default() -> Self {
        Self { at: At::Header, digest: Sha256::new(), count: 0, last: None, bytes: BytesMut::new() }
    }
}

fn damaged<T>(what: impl Into<String>) -> Result<T, ArchiveError> {
    Err(ArchiveError::Damaged(what.into()))
}

impl Decoder {
    /// Adds the next piece. Call [`Decoder::next_item`] until it has nothing more before adding another: what was not
    /// read is kept.
    pub fn feed(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// Returns the next item; `None` where the pieces so far do not hold all of it.
    ///
    /// # Errors
    /// [`ArchiveError`] for bytes that are no archive, contradict themselves or exceed a limit of the format.
    pub fn next_item(&mut self) -> Result<Option<Item>, ArchiveError> {
        match self.at {
            At::Header => self.header(),
            At::Records => self.record(),
            At::Ended if self.bytes.is_empty() => Ok(None),
            At::Ended => damaged("something follows its end"),
        }
    }

    /// Returns the number of keys of an archive that was read to its end.
    ///
    /// # Errors
    /// [`ArchiveError`] unless the end was reached and its checksum says that nothing is missing or changed.
    pub fn finish(&self) -> Result<u64, ArchiveError> {
        match self.at {
            At::Ended if self.bytes.is_empty() => Ok(self.count),
            At::Ended => damaged("something follows its end"),
            At::Header | At::Records => Err(ArchiveError::Torn(self.count)),
        }
    }

    /// Takes bytes that are complete.
    fn take(&mut self, len: usize) -> Bytes {
        let taken = self.bytes.split_to(len).freeze();
        self.digest.update(&taken);
        taken
    }

    /// A number of four bytes at some place, if it came already.
    fn u32_at(&self, place: usize) -> Option<usize> {
        let bytes = self.bytes.get(place..)?.first_chunk::<4>()?;
        usize::try_from(u32::from_be_bytes(*bytes)).ok()
    }

    fn header(&mut self) -> Result<Option<Item>, ArchiveError> {
        let known = self.bytes.len().min(MAGIC.len());
        if self.bytes[..known] != MAGIC[..known] {
            return Err(foreign(&self.bytes));
        }
        let Some(len) = self.u32_at(MAGIC.len()) else { return Ok(None) };
        if len > MAX_HEADER {
            return damaged(format!("its header has {len} bytes"));
        }
        if self.bytes.len() < MAGIC.len() + 4 + len {
            return Ok(None);
        }
        let json = self.take(MAGIC.len() + 4 + len).split_off(MAGIC.len() + 4);
        self.at = At::Records;
        match serde_json::from_slice(&json) {
            Ok(header) => Ok(Some(Item::Header(header))),
            Err(error) => damaged(format!("its header can't be read: {error}")),
        }
    }

    fn record(&mut self) -> Result<Option<Item>, ArchiveError> {
        match self.bytes.first() {
            None => return Ok(None),
            Some(&END) => return self.end(),
            Some(&RECORD) => {}
            Some(other) => {
                return damaged(format!("byte {other} instead of a key, after {} keys", self.count));
            }
        }
        let check = |key, value| check_record(key, value).or_else(damaged);
        let Some(key) = self.u32_at(1) else { return Ok(None) };
        check(key, 0)?;
        let Some(value) = self.u32_at(5 + key + 16) else { return Ok(None) };
        check(key, value)?;
        let len = 5 + key + 16 + 4 + value;
        if self.bytes.len() < len {
            return Ok(None);
        }
        let mut record = self.take(len);
        record.advance(5);
        let key = record.split_to(key);
        let (created, modified) = (record.get_u64(), record.get_u64());
        record.advance(4);
        if self.last.as_ref().is_some_and(|last| *last >= key) {
            return damaged("its keys are not in order");
        }
        self.last = Some(key.clone());
        self.count += 1;
        Ok(Some(Item::Record(Record { key, created, modified, value: record })))
    }

    fn end(&mut self) -> Result<Option<Item>, ArchiveError> {
        if self.bytes.len() < 9 + DIGEST {
            return Ok(None);
        }
        let count = self.take(9).slice(1..).get_u64();
        let expected = self.digest.finalize_reset();
        let digest = self.bytes.split_to(DIGEST);
        if digest[..] != expected[..] {
            return damaged("its checksum is another");
        }
        if count != self.count {
            return damaged(format!("it has {} keys and says {count}", self.count));
        }
        self.at = At::Ended;
        self.next_item()
    }
}

/// What something is that does not begin as it should.
fn foreign(bytes: &[u8]) -> ArchiveError {
    let version =
        bytes.strip_prefix(MAGIC_OF_ANY_VERSION).and_then(|rest| rest.split(|byte| *byte == b'\n').next());
    match version.map(|version| String::from_utf8_lossy(&version[..version.len().min(20)]).into_owned()) {
        Some(version) if version.bytes().next().is_some_and(|byte| byte.is_ascii_digit()) => {
            ArchiveError::Version(version)
        }
        _ => ArchiveError::Foreign,
    }
}

/// Reads an archive from a file or what else can be read.
pub struct Reader<R> {
    input: R,
    decoder: Decoder,
    header: Header,
    piece: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Opens an archive and reads its header.
    ///
    /// # Errors
    /// [`ArchiveError`] for bytes that are no archive, or of a version that cannot be read.
    pub fn open(input: R) -> Result<Self, ArchiveError> {
        let header = Header::new(Kind::Store, 0, String::new());
        let mut reader = Self { input, decoder: Decoder::default(), header, piece: vec![0; PIECE] };
        match reader.next_item()? {
            Some(Item::Header(header)) => reader.header = header,
            _ => return Err(ArchiveError::Torn(0)),
        }
        Ok(reader)
    }

    /// What the archive says of itself. Not to be trusted before the end was read.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the next key; `None` at the end, after the checksum was verified.
    ///
    /// # Errors
    /// [`ArchiveError`] for an archive that is torn or damaged.
    pub fn next_record(&mut self) -> Result<Option<Record>, ArchiveError> {
        match self.next_item()? {
            Some(Item::Record(record)) => Ok(Some(record)),
            Some(Item::Header(_)) => damaged("it has two headers"),
            None => Ok(None),
        }
    }

    fn next_item(&mut self) -> Result<Option<Item>, ArchiveError> {
        loop {
            if let Some(item) = self.decoder.next_item()? {
                return Ok(Some(item));
            }
            match self.input.read(&mut self.piece)? {
                0 => return self.decoder.finish().map(|_| None),
                len => self.decoder.feed(&self.piece[..len]),
            }
        }
    }
}

/// Reads an archive to its end. Returns its header and its number of keys.
///
/// # Errors
/// [`ArchiveError`] where part of it is missing or changed, or where it is of another kind than `wanted`.
pub fn verify(input: impl Read, wanted: Kind) -> Result<(Header, u64), ArchiveError> {
    let mut reader = Reader::open(input)?;
    while reader.next_record()?.is_some() {}
    let (header, count) = (reader.header, reader.decoder.finish()?);
    if header.kind != wanted {
        return Err(ArchiveError::Kind { found: header.kind, wanted });
    }
    Ok((header, count))
}
