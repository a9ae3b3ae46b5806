//! Archives: keys and values as of one revision, in a file or on a wire, that check themselves.
//!
//! `freehold backup` writes the whole store into one, as it is stored; an export of a project is one plane. Nothing here
//! knows what is in a value.
//!
//! ```text
//! "freehold archive 1\n"                                              which format it is
//! u32: length of the header  |  the header: a JSON object, see Header
//! for each key, in ascending order:
//!   01  |  u32: length of the key  |  the key  |  u64: made at  |  u64: written at  |  u32: length of the value  |  the value
//! 00  |  u64: the number of keys  |  32 bytes: SHA-256 of everything before these 32
//! ```
//!
//! Numbers are big-endian. Nothing follows. Who reads one has to be at its end before trusting any of it: only there it
//! is certain that nothing is missing or changed. [`verify`] does that.

mod read;
mod write;

pub use read::{Decoder, Item, Reader, verify};
pub use write::{Encoder, Export, export};

use crate::{MAX_KEY_BYTES, MAX_VALUE_BYTES, Revision};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What an archive begins with.
const MAGIC: &[u8] = b"freehold archive 1\n";
/// What the beginnings of all versions have in common.
const MAGIC_OF_ANY_VERSION: &[u8] = b"freehold archive ";
/// How long the header can be, in bytes.
const MAX_HEADER: usize = 64 << 10;
const RECORD: u8 = 1;
const END: u8 = 0;
/// Bytes of a SHA-256.
const DIGEST: usize = 32;

/// What an archive holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// All keys of a store, values as they are stored.
    Store,
    /// The keys of one plane.
    Plane,
}

/// What an archive says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// What it holds.
    pub kind: Kind,
    /// The revision of the store as of which its keys were read.
    pub revision: Revision,
    /// When it was made (RFC 3339).
    pub created: String,
    /// The version of the program that made it.
    #[serde(default)]
    pub version: String,
    /// More of it, by whoever made it: for a plane, say, its project.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, String>,
}

impl Header {
    /// A header without attributes, made now by this version.
    pub fn new(kind: Kind, revision: Revision, created: String) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { kind, revision, created, version, attributes: BTreeMap::new() }
    }
}

/// One key of an archive. The key is bytes: which plane it may become a key of is decided by who reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The key, at most [`MAX_KEY_BYTES`] long.
    pub key: Bytes,
    /// The revision that made the key.
    pub created: Revision,
    /// The revision that wrote the value.
    pub modified: Revision,
    /// The value, at most [`MAX_VALUE_BYTES`] long.
    pub value: Bytes,
}

/// Why an archive can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The beginning is not that of an archive.
    #[error("it is not an archive of Freehold")]
    Foreign,
    /// A version that this program can't read.
    #[error("it is an archive of another version ({0:?}); this program reads version 1")]
    Version(String),
    /// It holds something else.
    #[error("it is an archive of a {}, not of a {}", name(*found), name(*wanted))]
    Kind {
        /// What it holds.
        found: Kind,
        /// What was wanted.
        wanted: Kind,
    },
    /// It ends before its end.
    #[error("it is truncated after {0} keys")]
    Torn(u64),
    /// It contradicts itself.
    #[error("it is corrupt: {0}")]
    Damaged(String),
    /// Something to be written is over a limit of the format.
    #[error("it is too large for an archive: {0}")]
    TooLarge(String),
    /// The store that is archived.
    #[error(transparent)]
    Store(#[from] crate::StoreError),
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Store => "store",
        Kind::Plane => "plane",
    }
}

fn check_record(key: usize, value: usize) -> Result<(), String> {
    match () {
        () if key > MAX_KEY_BYTES => Err(format!("a key of {key} bytes")),
        () if value > MAX_VALUE_BYTES => Err(format!("a value of {value} bytes")),
        () => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let mut header = Header::new(Kind::Plane, 77, "2026-11-21T00:00:00Z".into());
        header.attributes.insert("project".into(), "web".into());
        header
    }

    fn records() -> Vec<Record> {
        let record = |nth: u64| Record {
            key: Bytes::from(format!("planes/blue/core/configmaps/default/{nth:03}")),
            created: nth + 1,
            modified: 2 * nth + 1,
            value: Bytes::from(vec![nth as u8; (nth as usize * 37) % 900]),
        };
        (0..100).map(record).collect()
    }

    fn archive(records: &[Record]) -> Vec<u8> {
        let mut encoder = Encoder::new(&header()).unwrap();
        records.iter().for_each(|record| encoder.push(record).unwrap());
        let mut all = encoder.take().to_vec();
        all.extend(encoder.finish());
        all
    }

    fn read(bytes: &[u8]) -> Result<(Header, Vec<Record>), ArchiveError> {
        let mut reader = Reader::open(bytes)?;
        let mut records = Vec::new();
        while let Some(record) = reader.next_record()? {
            records.push(record);
        }
        Ok((reader.header().clone(), records))
    }

    #[test]
    fn an_archive_reads_back_as_it_was_written() {
        for records in [records(), Vec::new()] {
            let bytes = archive(&records);
            assert_eq!(read(&bytes).unwrap(), (header(), records.clone()));
            assert_eq!(verify(&bytes[..], Kind::Plane).unwrap(), (header(), records.len() as u64));
        }
    }

    #[test]
    fn it_reads_the_same_in_pieces_of_any_size() {
        let bytes = archive(&records());
        for size in [1, 7, 64, 4096] {
            let (mut decoder, mut found) = (Decoder::default(), Vec::new());
            for piece in bytes.chunks(size) {
                decoder.feed(piece);
                while let Some(item) = decoder.next_item().unwrap() {
                    found.extend(if let Item::Record(record) = item { Some(record) } else { None });
                }
            }
            decoder.finish().unwrap();
            assert_eq!(found, records());
        }
    }

    #[test]
    fn one_that_is_cut_off_anywhere_says_so() {
        let bytes = archive(&records());
        for len in (0..bytes.len()).step_by(13) {
            let error = read(&bytes[..len]).unwrap_err();
            assert!(matches!(error, ArchiveError::Torn(_)), "at {len}: {error}");
        }
        assert_eq!(
            read(&bytes[..bytes.len() - 1]).unwrap_err().to_string(),
            "it is truncated after 100 keys"
        );
    }

    #[test]
    fn a_changed_byte_is_noticed_wherever_it_is() {
        let bytes = archive(&records()[..20]);
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 0x10;
            read(&changed).unwrap_err();
        }
    }

    #[test]
    fn what_is_no_archive_of_the_wanted_kind_and_version_is_told_apart() {
        let bytes = archive(&records());
        let error = read(b"apiVersion: v1\nkind: List\nitems: []\n").unwrap_err();
        assert!(matches!(error, ArchiveError::Foreign), "{error}");
        let later = [b"freehold archive 27\n", &bytes[MAGIC.len()..]].concat();
        let error = read(&later).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is an archive of another version (\"27\"); this program reads version 1"
        );
        let error = verify(&bytes[..], Kind::Store).unwrap_err();
        assert_eq!(error.to_string(), "it is an archive of a plane, not of a store");
        let error = read(&[&bytes[..], b"x"].concat()).unwrap_err();
        assert_eq!(error.to_string(), "it is corrupt: something follows its end");
    }

    #[test]
    fn keys_out_of_order_are_refused_on_both_sides() {
        let records = records();
        let mut encoder = Encoder::new(&header()).unwrap();
        encoder.push(&records[1]).unwrap();
        for record in &records[..2] {
            assert!(matches!(encoder.push(record), Err(ArchiveError::Damaged(_))));
        }
    }

    #[test]
    fn what_is_over_a_limit_is_refused() {
        let mut encoder = Encoder::new(&header()).unwrap();
        let record = |key: usize, value: usize| Record {
            key: vec![b'k'; key].into(),
            created: 1,
            modified: 1,
            value: vec![0; value].into(),
        };
        for (key, value) in [(MAX_KEY_BYTES + 1, 0), (1, MAX_VALUE_BYTES + 1)] {
            assert!(matches!(encoder.push(&record(key, value)), Err(ArchiveError::TooLarge(_))));
        }
        encoder.push(&record(MAX_KEY_BYTES, MAX_VALUE_BYTES)).unwrap();
        let huge = Header { created: "x".repeat(MAX_HEADER), ..header() };
        assert!(matches!(Encoder::new(&huge), Err(ArchiveError::TooLarge(_))));
    }
}
