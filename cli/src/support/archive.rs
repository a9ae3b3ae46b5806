//! A tar archive (POSIX ustar), compressed, that its owner alone can read.

use anyhow::{Context as _, Result};
use flate2::{Compression, write::GzEncoder};
use std::{
    fs::{File, OpenOptions},
    io::{BufWriter, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

const BLOCK: usize = 512;
/// The longest name in one field of a header.
const NAME: usize = 100;
/// The longest part of a name before that, in another field.
const PREFIX: usize = 155;

/// An archive that is being written.
pub(super) struct Archive {
    out: GzEncoder<BufWriter<File>>,
    /// Seconds since 1970.
    time: u64,
}

impl Archive {
    /// Begins an archive in a new file.
    ///
    /// # Errors
    /// The file is there already, or can't be written.
    pub(super) fn create(path: &Path, time: u64) -> Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("{} can't be made", path.display()))?;
        Ok(Self { out: GzEncoder::new(BufWriter::new(file), Compression::default()), time })
    }

    /// Adds a file.
    pub(super) fn add(&mut self, name: &str, content: &[u8]) -> Result<()> {
        self.out.write_all(&header(name, content.len(), self.time))?;
        self.out.write_all(content)?;
        let rest = (BLOCK - content.len() % BLOCK) % BLOCK;
        Ok(self.out.write_all(&[0; BLOCK][..rest])?)
    }

    /// Ends it: two empty blocks.
    pub(super) fn finish(mut self) -> Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.finish()?.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
        Ok(())
    }
}

fn header(name: &str, size: usize, time: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, longest: usize, text: &str| {
        let text = &text.as_bytes()[..text.len().min(longest)];
        block[at..at + text.len()].copy_from_slice(text);
    };
    let (prefix, name) = split(name);
    put(0, NAME, name);
    put(100, 8, "0000600\0");
    put(108, 8, "0000000\0");
    put(116, 8, "0000000\0");
    put(124, 12, &format!("{size:011o}\0"));
    put(136, 12, &format!("{:011o}\0", time & 0o777_7777_7777));
    put(148, 8, "        ");
    put(156, 1, "0");
    put(257, 8, "ustar\x0000");
    put(345, PREFIX, prefix);
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// A long name in two parts, divided at a slash.
fn split(name: &str) -> (&str, &str) {
    let fits = |at: &usize| *at <= PREFIX && name.len() - at - 1 <= NAME;
    let at = name.match_indices('/').map(|(at, _)| at).find(fits).filter(|_| name.len() > NAME);
    at.map_or(("", name), |at| (&name[..at], &name[at + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_reads_what_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar.gz");
        let long = format!("{}/{}", "d".repeat(90), "f".repeat(80));
        let mut archive = Archive::create(&path, 1_700_000_000).unwrap();
        archive.add("short", b"one").unwrap();
        archive.add(&long, &[b'x'; 1024]).unwrap();
        archive.finish().unwrap();
        let listed = std::process::Command::new("tar").arg("-tzf").arg(&path).output().unwrap();
        assert_eq!(String::from_utf8(listed.stdout).unwrap(), format!("short\n{long}\n"));
        assert!(listed.status.success() && Archive::create(&path, 0).is_err());
    }
}
