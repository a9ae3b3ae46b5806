//! Journals: batches one after the other, then zeros.
//!
//! ```text
//! 01 | u32: number of items | u64: sequence number
//! 02 | u8: sort of item | u8: compression | u64: keyspace | u16: length of the key | u32: of the value
//!    | u32: of the value as it stands here | the key | the value          for each item
//! 03 | u64: XXH3-64 of the items | "FJL" 03
//! ```
//!
//! A batch is synced to disk before the next one is begun. Of a journal that was cut off by a crash, therefore, the last
//! batch alone can be broken: a complete one behind a broken one means that the broken one was acknowledged and is
//! changed.

use super::{Error, PIECE, array, damaged, u8_of, u16_of, u32_of, u64_of};
use std::{
    fs::File,
    io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom},
    path::Path,
};
use xxhash_rust::xxh3::Xxh3Default;

const START: u8 = 1;
const ITEM: u8 = 2;
const END: u8 = 3;
const CLEAR: u8 = 4;
const TRAILER: [u8; 4] = *b"FJL\x03";
/// Bytes that a disk writes at once.
const SECTOR: usize = 512;

/// Checks a journal. Of the last one, what a crash cut off is removed.
pub(super) fn check(path: &Path, last: bool) -> Result<(), Error> {
    let mut file = BufReader::with_capacity(PIECE, File::open(path)?);
    let mut good = 0;
    while read_batch(&mut file)? {
        good = file.stream_position()?;
    }
    let rest = rest(&mut file, good)?;
    if rest.is_empty() {
        return Ok(());
    }
    if !last || !is_torn(&rest) {
        return damaged(format!("{} is not as it was written, from byte {good} on", path.display()));
    }
    tracing::info!(journal = %path.display(), bytes = rest.len(), "removed a truncated write");
    let file = File::options().write(true).open(path)?;
    file.set_len(good)?;
    Ok(file.sync_all()?)
}

/// What follows a place, without the zeros at its end.
fn rest(file: &mut (impl Read + Seek), from: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(from))?;
    let (mut rest, mut zeros, mut piece) = (Vec::new(), 0, vec![0; PIECE]);
    loop {
        let len = file.read(&mut piece)?;
        if len == 0 {
            return Ok(rest);
        }
        match piece[..len].iter().rposition(|byte| *byte != 0) {
            None => zeros += len,
            Some(last) => {
                rest.resize(rest.len() + zeros, 0);
                rest.extend_from_slice(&piece[..=last]);
                zeros = len - last - 1;
            }
        }
    }
}

/// Whether a broken batch can be one that was never completely on disk.
fn is_torn(rest: &[u8]) -> bool {
    let ends = (9..rest.len()).filter(|place| rest[*place..].starts_with(&TRAILER) && rest[place - 9] == END);
    let mut ended = matches!(batch(&mut &*rest), Ok(Some(_)));
    for end in ends.map(|place| place + TRAILER.len()) {
        if matches!(read_batch(&mut &rest[end..]), Ok(true)) {
            return false;
        }
        ended |= end == rest.len();
    }
    // All of it is there, and not what was written: unless a part did not reach the disk.
    !ended || rest.chunks(SECTOR).any(|sector| sector.iter().all(|byte| *byte == 0))
}

/// Reads a batch. Returns whether it is complete and as it was written.
fn read_batch(input: &mut impl Read) -> io::Result<bool> {
    match batch(input) {
        Ok(right) => Ok(right == Some(true)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads a batch. `None`: it is none, or not all of it is there. Otherwise whether it is as it was written.
fn batch(input: &mut impl Read) -> io::Result<Option<bool>> {
    if u8_of(input)? != START {
        return Ok(None);
    }
    let (count, _sequence) = (u32_of(input)?, u64_of(input)?);
    let mut hashing = Hashed { input, hasher: Xxh3Default::new() };
    for _ in 0..count {
        match u8_of(&mut hashing)? {
            ITEM => item(&mut hashing)?,
            CLEAR => drop(u64_of(&mut hashing)?),
            _ => return Ok(None),
        }
    }
    let Hashed { input, hasher } = hashing;
    let (tag, checksum, trailer) = (u8_of(input)?, u64_of(input)?, array(input)?);
    Ok(Some(tag == END && checksum == hasher.digest() && trailer == TRAILER))
}

fn item(input: &mut impl Read) -> io::Result<()> {
    let (_sort, _compression, _keyspace) = (u8_of(input)?, u8_of(input)?, u64_of(input)?);
    let (key, _value, stored) = (u16_of(input)?, u32_of(input)?, u32_of(input)?);
    let len = u64::from(key) + u64::from(stored);
    match io::copy(&mut input.take(len), &mut io::sink())? {
        copied if copied == len => Ok(()),
        _ => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Reads, and hashes what it reads.
struct Hashed<'a, R> {
    input: &'a mut R,
    hasher: Xxh3Default,
}

impl<R: Read> Read for Hashed<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let len = self.input.read(bytes)?;
        self.hasher.update(&bytes[..len]);
        Ok(len)
    }
}
