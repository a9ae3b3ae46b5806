//! How a sealed value begins, so that it can be told from a plain one and opened by whoever has what it needs.
//!
//! | first byte | what follows |
//! | --- | --- |
//! | `0x90` | the plain value: one that would otherwise be taken for sealed, because it begins with `0x90` to `0x9f` |
//! | `0x93` | *dictionary*, *check*, *frame*: compressed |
//! | `0x95` | *data key*, *nonce*, *ciphertext* of the plain value: encrypted |
//! | `0x96` | *data key*, *nonce*, *ciphertext* of *dictionary* and *frame*: compressed, then encrypted |
//! | others of `0x90` to `0x9f` | kept free: an error |
//! | all other bytes | a plain value, which this byte belongs to; the empty value too |
//!
//! - *dictionary* and *data key* are identifiers as LEB128: seven bits a byte, the least first, the high bit set on all
//!   but the last; at most 32 bits.
//! - *check* is the low half of the XXH3-64 of the plain value, seeded with the XXH3-64 of its key, little endian.
//! - *frame* is a zstd frame (RFC 8878) without its magic number `28 b5 2f fd`, with its content size, without a
//!   dictionary identifier and without a checksum.
//! - *nonce* is 12 bytes, *ciphertext* is AES-256-GCM's and ends in the tag of 16 bytes. Additional data is everything
//!   before the nonce, then the value's key as in [`Key::as_bytes`](freehold_apiserver_storage::Key::as_bytes).
//!
//! The four bytes differ in two bits each: one that is flipped does not make another kind of value.

/// Tells whether a first byte is one of this table.
pub(crate) const fn is_marker(byte: u8) -> bool {
    byte & 0xf0 == 0x90
}

/// A plain value that begins like a sealed one follows.
pub(crate) const PLAIN: u8 = 0x90;
/// Compressed.
pub(crate) const COMPRESSED: u8 = 0x93;
/// Encrypted.
pub(crate) const ENCRYPTED: u8 = 0x95;
/// Compressed, then encrypted.
pub(crate) const BOTH: u8 = 0x96;
/// Bytes of a nonce.
pub(crate) const NONCE: usize = 12;
/// Bytes of a tag.
pub(crate) const TAG: usize = 16;
/// Bytes of a check.
pub(crate) const CHECK: usize = 4;

/// A value, taken apart as far as that goes without keys and dictionaries.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Form<'a> {
    /// As it is.
    Plain,
    /// As it is from the second byte on.
    Escaped,
    /// Compressed.
    Compressed {
        /// With this dictionary.
        dictionary: u32,
        /// What the plain value's check must be.
        check: [u8; CHECK],
        /// The frame.
        frame: &'a [u8],
    },
    /// Encrypted.
    Encrypted {
        /// With this data key.
        key: u32,
        /// Everything before the nonce.
        header: &'a [u8],
        /// The nonce.
        nonce: [u8; NONCE],
        /// With its tag.
        ciphertext: &'a [u8],
        /// Whether what comes out is a dictionary's identifier and a frame.
        compressed: bool,
    },
}

/// Takes a value apart; `None` for one that is cut short or of a kind that is not known.
pub(crate) fn parse(value: &[u8]) -> Option<Form<'_>> {
    let Some((&first, rest)) = value.split_first() else { return Some(Form::Plain) };
    match first {
        PLAIN => Some(Form::Escaped),
        COMPRESSED => {
            let (dictionary, rest) = read_id(rest)?;
            let (check, frame) = rest.split_first_chunk()?;
            Some(Form::Compressed { dictionary, check: *check, frame })
        }
        ENCRYPTED | BOTH => {
            let (key, rest) = read_id(rest)?;
            let header = &value[..value.len() - rest.len()];
            let (nonce, ciphertext) = rest.split_first_chunk()?;
            (ciphertext.len() >= TAG).then_some(Form::Encrypted {
                key,
                header,
                nonce: *nonce,
                ciphertext,
                compressed: first == BOTH,
            })
        }
        other if is_marker(other) => None,
        _ => Some(Form::Plain),
    }
}

/// The data key that a value is sealed with, if it is encrypted.
pub(crate) fn data_key(value: &[u8]) -> Option<u32> {
    match parse(value)? {
        Form::Encrypted { key, .. } => Some(key),
        _ => None,
    }
}

/// Appends an identifier.
pub(crate) fn write_id(out: &mut Vec<u8>, mut id: u32) {
    while id >= 0x80 {
        out.push(id as u8 | 0x80);
        id >>= 7;
    }
    out.push(id as u8);
}

/// Reads an identifier; `None` where it is cut short or longer than 32 bits.
pub(crate) fn read_id(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut id = 0u64;
    for (nth, byte) in bytes.iter().take(5).enumerate() {
        id |= u64::from(byte & 0x7f) << (7 * nth);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(id).ok()?, &bytes[nth + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_reads_back() {
        for id in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u32::MAX] {
            let mut bytes = Vec::new();
            write_id(&mut bytes, id);
            bytes.push(7);
            assert_eq!(read_id(&bytes), Some((id, &[7][..])), "{id}");
        }
        assert_eq!(read_id(&[0x80; 4]), None);
        assert_eq!(read_id(&[0xff, 0xff, 0xff, 0xff, 0x7f]), None);
    }

    #[test]
    fn markers_differ_in_two_bits_and_are_no_format_of_objects() {
        let markers = [PLAIN, COMPRESSED, ENCRYPTED, BOTH];
        for one in markers {
            assert!(is_marker(one));
            assert!(one > 0x1f && (one ^ 0x80) > 0x0f, "one bit makes no plain object of it");
            for other in markers {
                assert!(one == other || (one ^ other).count_ones() >= 2);
            }
        }
    }
}
