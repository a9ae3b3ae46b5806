//! Backups: everything that a store holds, values as they are stored, in one archive, and a store from one.
//!
//! What is encrypted in the store is encrypted in a backup: the keys are not in it.

use crate::{StoreConfig, open_store};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use freehold_apiserver_storage::{
    Change, Commit, Committed, Expect, Key, KeyRange, Range, Revision, Store,
    archive::{self, ArchiveError, Decoder, Export, Header, Item, Kind, Reader, Record},
};
use freehold_apiserver_storage_embedded::Embedded;
use freehold_machinery::{PlaneId, Status};
use futures_util::{Stream, StreamExt, TryStreamExt, future::try_join_all, stream::BoxStream};
use std::{
    fs::File,
    io::{BufReader, Read},
    path::Path,
    pin::pin,
    sync::Arc,
};

/// Where it is noted in an etcd that a restore is under way. A server does not serve what is there by halves.
const UNDER_WAY: &str = "restore";
/// What is written to bring an etcd to a revision.
const STEP: &str = "restore-step";
/// Revisions that a restored store is ahead of its backup: more than were made since.
const BEYOND: Revision = 1_000_000_000;
/// Revisions that a restored etcd begins beyond the backup, each of which has to be made.
const BEYOND_ETCD: Revision = 10_000;
/// So many are made, at most, to bring an empty etcd to where the backup was.
const MOST_MADE: Revision = 10_000_000;
/// Writes that are under way at once when an etcd is filled.
const AT_ONCE: u64 = 64;
/// Keys of one transaction, and bytes of their values: within what etcd takes by default.
const BATCH: (usize, usize) = (100, 512 << 10);

/// What is in a backup, or was restored.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The revision: in a backup that as of which it was made, after a restore that of the store.
    pub revision: Revision,
    /// The number of keys.
    pub keys: u64,
    /// When the backup was made.
    pub created: String,
}

/// A backup, piece by piece, as of the store's current revision, which is kept readable meanwhile.
pub(crate) async fn stream(raw: Arc<dyn Store>) -> Result<BoxStream<'static, Result<Bytes, Status>>, Status> {
    let unavailable = |error: ArchiveError| Status::unavailable(error.to_string());
    let hold = raw.hold().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let pieces = pieces(raw, hold).map_err(unavailable)?;
    Ok(pieces.map_err(unavailable).boxed())
}

fn pieces(
    store: Arc<dyn Store>,
    hold: freehold_apiserver_storage::Hold,
) -> Result<impl Stream<Item = Result<Bytes, ArchiveError>> + Send + 'static, ArchiveError> {
    let now = freehold_machinery::time::format_seconds(jiff::Timestamp::now());
    let header = Header::new(Kind::Store, hold.revision, now);
    archive::export(Export { store, keys: KeyRange::everything(), hold }, header)
}

/// A backup, piece by piece, of a store that no server has open, or of an etcd.
///
/// # Errors
/// The store can't be opened.
pub async fn pieces_of_store(
    config: &StoreConfig,
) -> Result<impl Stream<Item = Result<Bytes, ArchiveError>> + Send + 'static + use<>> {
    if let StoreConfig::Embedded(dir, _) = config {
        ensure!(dir.join("db").exists(), "there is no store in {}", dir.display());
    }
    let store = open_store(config).await?;
    let hold = store.hold().await?;
    Ok(pieces(store, hold)?)
}

/// Passes a backup on that comes in pieces, and checks it meanwhile.
///
/// # Errors
/// It is cut off, damaged or no backup, or `write` fails. What was passed on is of no use then.
pub async fn relay<E>(
    pieces: impl Stream<Item = Result<Bytes, E>>,
    mut write: impl AsyncFnMut(&[u8]) -> Result<()>,
) -> Result<Summary>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let (mut decoder, mut header) = (Decoder::default(), None);
    let mut pieces = pin!(pieces);
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        write(&piece).await?;
        decoder.feed(&piece);
        while let Some(item) = decoder.next_item()? {
            if let Item::Header(found) = item {
                header = Some(found);
            }
        }
    }
    let keys = decoder.finish()?;
    match header {
        Some(Header { kind: Kind::Store, revision, created, .. }) => Ok(Summary { revision, keys, created }),
        _ => bail!("what came is no backup of a store"),
    }
}

/// Fills an empty store with what a backup has: all of it or nothing. The file is verified before anything is written.
///
/// Revisions of the restored store begin `beyond` that of the backup; what clients saw before is compacted, so that they
/// read anew. In a data directory objects keep their resource versions, in an etcd they get new ones.
///
/// # Errors
/// Fails where the store is not empty, the file is no whole backup, or one of them cannot be read or written.
pub async fn restore(config: &StoreConfig, file: &Path, beyond: Option<Revision>) -> Result<Summary> {
    let unusable = || format!("{} can't be restored", file.display());
    let open = || File::open(file).map(BufReader::new).with_context(unusable);
    let (header, keys) = archive::verify(open()?, Kind::Store).with_context(unusable)?;
    let mut reader = Reader::open(open()?).with_context(unusable)?;
    let revision = match config {
        StoreConfig::Embedded(dir, _) => {
            let dir = dir.clone();
            let fill = move || Embedded::restore(&dir, &mut reader, beyond.unwrap_or(BEYOND));
            tokio::task::spawn_blocking(fill).await??
        }
        StoreConfig::Etcd(_) => {
            let store = open_store(config).await?;
            refill(&store, &mut reader, beyond.unwrap_or(BEYOND_ETCD)).await?
        }
    };
    Ok(Summary { revision, keys, created: header.created })
}

/// Fails if a restore into this store began and did not end.
pub(crate) async fn check_complete(store: &dyn Store) -> Result<()> {
    if store.get(&Key::system(UNDER_WAY)).await?.is_some() {
        bail!("a restore into this store did not end: run `freehold restore` again");
    }
    Ok(())
}

/// An etcd that is being filled. Each commit expects the mark of this restore, so that one that was taken for dead notices
/// that another has begun.
struct Refill<'a> {
    store: &'a Arc<dyn Store>,
    mark: Revision,
}

async fn refill<R: Read>(
    store: &Arc<dyn Store>,
    archive: &mut Reader<R>,
    beyond: Revision,
) -> Result<Revision> {
    let any = store.range(Range { limit: 1, keys_only: true, ..Range::all(KeyRange::everything()) }).await?;
    let mark = Key::system(UNDER_WAY);
    let cut_off = store.get(&mark).await?;
    if cut_off.is_none() {
        ensure!(any.items.is_empty(), "the etcd is not empty: a backup is restored into one that is");
    }
    let target = archive.header().revision.saturating_add(beyond);
    if target.saturating_sub(any.revision) > MOST_MADE {
        bail!(
            "the etcd is at revision {}, and must not be below {target}: revisions can't be set from outside. Make it \
             with `etcdutl snapshot restore --bump-revision {target} --mark-compacted` from a snapshot of an empty etcd",
            any.revision
        );
    }
    let modified = cut_off.as_ref().map_or(0, |found| found.modified);
    let begun = Commit {
        expect: vec![Expect { key: mark.clone(), modified }],
        changes: vec![Change::Put(mark.clone(), Bytes::from_static(b"under way"))],
    };
    let Committed::Done(now) = store.commit(begun).await? else {
        bail!("another restore into this etcd is under way");
    };
    if cut_off.is_some() {
        let (all, mark) = (KeyRange::everything(), KeyRange::one(&mark));
        store.clear(KeyRange { start: all.start.clone(), end: mark.start }).await?;
        store.clear(all.from_key(mark.end)).await?;
    }
    let filled = Refill { store, mark: now }.fill(archive, target).await;
    filled.context("the etcd is not to be used before `freehold restore` was run again, which begins anew")
}

/// Whether a key of a plane was written before the plane's record, which comes before all of its keys: it counts as absent,
/// and would not any more at a new revision.
fn is_buried(record: &Record, stack: &mut Option<(PlaneId, Revision)>) -> bool {
    let key = Key::from_store(record.key.clone());
    let Some((plane, _)) = key.split_plane() else { return false };
    if key == Key::stack(&plane) {
        *stack = Some((plane, record.modified));
        return false;
    }
    let above = stack.as_ref().filter(|(known, _)| *known == plane);
    above.is_some_and(|(_, since)| record.modified < *since)
}

impl Refill<'_> {
    async fn commit(&self, changes: Vec<Change>) -> Result<Revision> {
        let expect = vec![Expect { key: Key::system(UNDER_WAY), modified: self.mark }];
        match self.store.commit(Commit { expect, changes }).await? {
            Committed::Done(revision) => Ok(revision),
            Committed::Refused(_) => bail!("another restore into this etcd has begun"),
        }
    }

    async fn fill<R: Read>(&self, archive: &mut Reader<R>, target: Revision) -> Result<Revision> {
        let step = Key::system(STEP);
        let mut now = self.mark;
        while now < target {
            let put = || Change::Put(step.clone(), Bytes::from_static(b"step"));
            let steps = (0..AT_ONCE.min(target - now)).map(|_| self.commit(vec![put()]));
            now = try_join_all(steps).await?.into_iter().max().unwrap_or(now);
        }
        let (mut changes, mut bytes) = (Vec::new(), 0);
        let mut stack = None;
        while let Some(record) = archive.next_record()? {
            if is_buried(&record, &mut stack) {
                continue;
            }
            let len = record.value.len();
            if changes.len() >= BATCH.0 || !changes.is_empty() && bytes + len > BATCH.1 {
                self.commit(std::mem::take(&mut changes)).await?;
                bytes = 0;
            }
            changes.push(Change::Put(Key::from_store(record.key), record.value));
            bytes += len;
        }
        self.commit(changes).await?;
        let done = vec![Change::Delete(Key::system(UNDER_WAY)), Change::Delete(step)];
        let revision = self.commit(done).await?;
        self.store.compact(revision).await?;
        Ok(revision)
    }
}
