//! A store from an archive.

use crate::{
    disk::{Disk, store_error},
    options::{OpenError, Options},
};
use freehold_apiserver_storage::{
    Key, KeyRange, Revision, StoreError,
    archive::{ArchiveError, Kind, Reader},
};
use std::{io::Read, path::Path};

/// Bytes of keys and values written at a time.
const BATCH: usize = 1 << 20;

/// Why an archive can't be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The directory.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The archive.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// What is being made.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Fills a directory. See [`Embedded::restore`](crate::Embedded::restore).
pub(crate) fn restore<R: Read>(
    dir: &Path,
    archive: &mut Reader<R>,
    beyond: Revision,
) -> Result<Revision, RestoreError> {
    if dir.join("db").exists() {
        return Err(OpenError::NotEmpty { dir: dir.to_owned() }.into());
    }
    let header = archive.header();
    if header.kind != Kind::Store {
        return Err(ArchiveError::Kind { found: header.kind, wanted: Kind::Store }.into());
    }
    let archived = header.revision;
    let Some(revision) = archived.checked_add(beyond.max(1)).filter(|sum| i64::try_from(*sum).is_ok()) else {
        return Err(ArchiveError::Damaged(format!("its revision is {archived}")).into());
    };
    Disk::create(dir, &Options::default(), |disk| fill(disk, archive, archived, revision))?;
    Ok(revision)
}

fn fill<R: Read>(
    disk: &Disk,
    archive: &mut Reader<R>,
    archived: Revision,
    revision: Revision,
) -> Result<(), RestoreError> {
    let (mut batch, mut bytes) = (disk.batch(), 0);
    while let Some(record) = archive.next_record()? {
        let key = Key::from_store(record.key);
        let known = (1..=record.modified).contains(&record.created) && record.modified <= archived;
        if !known || !KeyRange::everything().contains(&key) {
            return Err(ArchiveError::Damaged(format!("what it says of {key:?} can't be")).into());
        }
        disk.put_version(&mut batch, &key, record.modified, record.created, &record.value);
        bytes += key.as_bytes().len() + record.value.len();
        if bytes >= BATCH {
            disk.wait_for_room()?;
            batch.commit().map_err(store_error)?;
            (batch, bytes) = (disk.batch(), 0);
        }
    }
    disk.put_compacted(&mut batch, revision);
    disk.put_record(&mut batch, revision, Vec::new());
    disk.wait_for_room()?;
    Ok(batch.commit().map_err(store_error)?)
}
