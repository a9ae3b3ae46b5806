//! The check of a database's files before it is opened: each byte of them is covered by a checksum that is compared here.
//!
//! The database itself compares checksums when it reads a block, and takes a journal to end where it can't be read on:
//! a changed byte in the middle of one would take every later commit with it, silently. Here it is told from a write
//! that was cut off by a crash, which was never acknowledged.
//!
//! Sorted files: `keyspaces/<n>/current` names the manifest `v<id>` and its checksum; section `tables` of that has the
//! number and the checksum of each file below `tables/`. All are XXH3-128, numbers are little-endian.

mod journal;

use std::{
    fs::File,
    io::{self, BufReader, ErrorKind, Read},
    path::{Path, PathBuf},
};
use xxhash_rust::xxh3::Xxh3Default;

/// Why a database should not be opened.
#[derive(Debug)]
pub(crate) enum Error {
    /// Its files are not as they were written.
    Damaged(String),
    /// They can't be read.
    Io(io::Error),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::UnexpectedEof => Self::Damaged("a file is too short".into()),
            _ => Self::Io(error),
        }
    }
}

fn damaged<T>(what: String) -> Result<T, Error> {
    Err(Error::Damaged(what))
}

/// Bytes read at a time.
const PIECE: usize = 256 << 10;
/// The keyspaces of a database: the three of ours, and the one in which the database has their names.
const KEYSPACES: usize = 4;

/// Checks all files of a database. The end of a journal that was cut off by a crash is removed.
///
/// A database is made aside, so that all of it is there from the first moment. What is missing would be made anew, empty,
/// by the database.
pub(crate) fn database(path: &Path) -> Result<(), Error> {
    let folder = path.join("keyspaces");
    let keyspaces = numbered(&folder, "")?;
    if keyspaces.len() < KEYSPACES {
        return damaged(format!("of the folders in {} one is missing", folder.display()));
    }
    for keyspace in keyspaces {
        tables(&keyspace)?;
    }
    let journals = numbered(path, ".jnl")?;
    if journals.is_empty() {
        return damaged(format!("the journal in {} is missing", path.display()));
    }
    for (nth, journal) in journals.iter().enumerate() {
        journal::check(journal, nth + 1 == journals.len())?;
    }
    Ok(())
}

/// The entries of a folder whose names are a number and `suffix`, in the order of the numbers.
fn numbered(folder: &Path, suffix: &str) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(suffix)).map(str::parse::<u64>);
        if let Some(Ok(number)) = number {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

/// Checks the sorted files of a keyspace.
fn tables(keyspace: &Path) -> Result<(), Error> {
    let mut current = open(&keyspace.join("current"))?;
    let (id, expected, kind) = (u64_of(&mut current)?, u128_of(&mut current)?, u8_of(&mut current)?);
    if kind != 0 {
        return damaged(format!("{} has a checksum of kind {kind}", keyspace.join("current").display()));
    }
    let manifest = keyspace.join(format!("v{id}"));
    compare(&manifest, expected)?;
    for (table, expected) in listed(&manifest)? {
        compare(&keyspace.join("tables").join(table.to_string()), expected)?;
    }
    Ok(())
}

/// The numbers and checksums of the files that a manifest names.
fn listed(manifest: &Path) -> Result<Vec<(u64, u128)>, Error> {
    let unreadable = |why: String| Error::Damaged(format!("{} can't be read: {why}", manifest.display()));
    let reader = sfa::Reader::new(manifest).map_err(|error| unreadable(error.to_string()))?;
    let section = reader.toc().section(b"tables").ok_or_else(|| unreadable("it names no files".into()))?;
    let mut section = section.buf_reader(manifest)?;
    let mut tables = Vec::new();
    for _level in 0..u8_of(&mut section)? {
        for _run in 0..u8_of(&mut section)? {
            for _table in 0..u32_of(&mut section)? {
                let (table, kind) = (u64_of(&mut section)?, u8_of(&mut section)?);
                if kind != 0 {
                    return Err(unreadable(format!("checksums of kind {kind}")));
                }
                tables.push((table, u128_of(&mut section)?));
                let _since = u64_of(&mut section)?;
            }
        }
    }
    Ok(tables)
}

fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error::Damaged(format!("{} is missing", path.display())),
        _ => error.into(),
    })
}

fn compare(path: &Path, expected: u128) -> Result<(), Error> {
    let mut file = BufReader::with_capacity(PIECE, open(path)?);
    let mut hasher = Xxh3Default::new();
    io::copy(&mut file, &mut Hashing(&mut hasher))?;
    if hasher.digest128() != expected {
        return damaged(format!("{} is not as it was written: its checksum is another", path.display()));
    }
    Ok(())
}

struct Hashing<'a>(&'a mut Xxh3Default);

impl io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn u8_of(input: &mut impl Read) -> io::Result<u8> {
    Ok(u8::from_le_bytes(array(input)?))
}

fn u16_of(input: &mut impl Read) -> io::Result<u16> {
    Ok(u16::from_le_bytes(array(input)?))
}

fn u32_of(input: &mut impl Read) -> io::Result<u32> {
    Ok(u32::from_le_bytes(array(input)?))
}

fn u64_of(input: &mut impl Read) -> io::Result<u64> {
    Ok(u64::from_le_bytes(array(input)?))
}

fn u128_of(input: &mut impl Read) -> io::Result<u128> {
    Ok(u128::from_le_bytes(array(input)?))
}
