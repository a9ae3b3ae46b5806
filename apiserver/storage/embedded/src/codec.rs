//! Bytes on disk, as described in the crate's documentation. Pure functions: nothing here reads or writes.

use bytes::Bytes;
use freehold_apiserver_storage::Revision;

/// Ends an escaped key. Below it sorts no byte pair that can continue one.
const END: [u8; 2] = [0, 1];
const ESCAPED_NUL: [u8; 2] = [0, 0xff];
const REVISION_LEN: usize = 8;

/// A key in such a form that appending something to two keys never changes their order.
pub(crate) fn escape(key: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(key.len() + END.len() + REVISION_LEN);
    for byte in key {
        match byte {
            0 => escaped.extend(ESCAPED_NUL),
            byte => escaped.push(*byte),
        }
    }
    escaped
}

/// Reverses [`escape`]. `None` if nothing can have been escaped so.
pub(crate) fn unescape(escaped: &[u8]) -> Option<Bytes> {
    if !escaped.contains(&0) {
        return Some(Bytes::copy_from_slice(escaped));
    }
    let mut key = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(byte) = bytes.next() {
        if *byte == 0 && bytes.next() != Some(&ESCAPED_NUL[1]) {
            return None;
        }
        key.push(*byte);
    }
    Some(Bytes::from(key))
}

/// Where the versions of a key begin: the newest is first.
pub(crate) fn first_version(key: &[u8]) -> Vec<u8> {
    let mut stem = escape(key);
    stem.extend(END);
    stem
}

/// The place of one version of a key.
pub(crate) fn version(key: &[u8], revision: Revision) -> Vec<u8> {
    version_of(&first_version(key), revision)
}

/// The place of the newest version that is not newer than `revision`, given what [`split_version`] gave.
pub(crate) fn version_of(stem: &[u8], revision: Revision) -> Vec<u8> {
    let mut place = Vec::with_capacity(stem.len() + REVISION_LEN);
    place.extend(stem);
    place.extend((!revision).to_be_bytes());
    place
}

/// The first place behind all versions of a key, given what [`split_version`] gave.
pub(crate) fn behind(stem: &[u8]) -> Vec<u8> {
    let mut place = stem.to_vec();
    if let Some(last) = place.last_mut() {
        *last += 1;
    }
    place
}

/// The stem (escaped key with its end mark) and revision of a version's place.
pub(crate) fn split_version(place: &[u8]) -> Option<(&[u8], Revision)> {
    let (stem, revision) = place.split_last_chunk::<REVISION_LEN>()?;
    stem.ends_with(&END).then_some((stem, !Revision::from_be_bytes(*revision)))
}

/// The key of a stem.
pub(crate) fn key_of(stem: &[u8]) -> Option<Bytes> {
    unescape(stem.strip_suffix(&END)?)
}

/// A version's content: the revision that made the key (0: it is deleted) and the value.
pub(crate) fn encode_version(created: Revision, value: &[u8]) -> Vec<u8> {
    let mut content = Vec::with_capacity(REVISION_LEN + value.len());
    content.extend(created.to_be_bytes());
    content.extend(value);
    content
}

/// Reverses [`encode_version`].
pub(crate) fn decode_version(content: &[u8]) -> Option<(Revision, &[u8])> {
    let (created, value) = content.split_first_chunk::<REVISION_LEN>()?;
    Some((Revision::from_be_bytes(*created), value))
}

/// One change in the log of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    /// The revision that made the key; 0 for a delete.
    pub(crate) created: Revision,
    /// The revision of the version that this one replaced; 0 if the key was absent.
    pub(crate) previous: Revision,
    pub(crate) key: Bytes,
}

/// Appends a change to the log record of its revision.
pub(crate) fn log_change(record: &mut Vec<u8>, change: &Logged) {
    record.extend(change.created.to_be_bytes());
    record.extend(change.previous.to_be_bytes());
    let len = u32::try_from(change.key.len()).expect("invariant: a commit's keys are limited to a few KiB");
    record.extend(len.to_be_bytes());
    record.extend(&change.key);
}

/// The changes of a log record. `None` if it is cut short.
pub(crate) fn decode_log(mut record: &[u8]) -> Option<Vec<Logged>> {
    let mut changes = Vec::new();
    while !record.is_empty() {
        let (created, rest) = record.split_first_chunk::<REVISION_LEN>()?;
        let (previous, rest) = rest.split_first_chunk::<REVISION_LEN>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*len)).ok()?)?;
        changes.push(Logged {
            created: Revision::from_be_bytes(*created),
            previous: Revision::from_be_bytes(*previous),
            key: Bytes::copy_from_slice(key),
        });
        record = rest;
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_sort_by_key_and_then_newest_first() {
        let keys: [&[u8]; 7] = [b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"a\x01", b"ab"];
        let places: Vec<_> = keys
            .iter()
            .flat_map(|key| [Revision::MAX, 256, 255, 1].map(|revision| version(key, revision)))
            .collect();
        assert!(places.is_sorted());
        for (key, chunk) in keys.iter().zip(places.chunks(4)) {
            let (stem, revision) = split_version(&chunk[1]).unwrap();
            assert_eq!((key_of(stem).unwrap().as_ref(), revision), (*key, 256));
            assert!(escape(key) < chunk[0] && chunk[3] < behind(stem));
        }
    }

    #[test]
    fn every_place_lies_on_the_same_side_of_a_bound_as_its_key() {
        let keys: [&[u8]; 6] = [b"\0", b"a", b"a\0", b"a\0b", b"a\x01", b"b"];
        for bound in keys {
            for key in keys {
                assert_eq!(key < bound, version(key, 7) < escape(bound), "{key:?} against {bound:?}");
            }
        }
    }

    #[test]
    fn a_log_record_reads_back_and_a_cut_one_is_noticed() {
        let changes = [
            Logged { created: 3, previous: 0, key: Bytes::from_static(b"a") },
            Logged { created: 0, previous: 2, key: Bytes::from_static(b"") },
        ];
        let mut record = Vec::new();
        changes.iter().for_each(|change| log_change(&mut record, change));
        assert_eq!(decode_log(&record).as_deref(), Some(&changes[..]));
        assert_eq!(decode_log(&record[..record.len() - 1]), None);
    }
}
