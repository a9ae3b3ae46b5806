//! The engine as its users see it.

use crate::{
    disk::{closed, cut_off},
    inner::Inner,
    options::{OpenError, Options},
    restore::{RestoreError, restore},
    watch::watch,
    writer::{Request, Writer},
};
use async_trait::async_trait;
use freehold_apiserver_storage::{
    Commit, Committed, Hold, Key, KeyRange, KeyValue, Range, RangeResult, Revision, Store, StoreError, Usage,
    Watched, archive::Reader,
};
use parking_lot::Mutex;
use std::{
    fs::{File, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};
use tokio::sync::oneshot;

/// Versions that a read may look at in the thread that asks: some 100 microseconds.
const SHORT: usize = 100;

/// A store in a directory of the local disk, for one process. See the crate's documentation.
///
/// Dropping it closes it: what was acknowledged is on disk already.
pub struct Embedded {
    inner: Arc<Inner>,
    queue: mpsc::Sender<Request>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Holds the directory for this process.
    lock: Mutex<Option<File>>,
}

impl Embedded {
    /// Opens a data directory with default [`Options`]; creates it where it is absent.
    ///
    /// # Errors
    /// [`OpenError`] for a directory that another process has locked, that cannot be read or written, that another
    /// version wrote, or that is corrupt.
    pub fn open(dir: &Path) -> Result<Arc<Self>, OpenError> {
        Self::open_with(dir, Options::default())
    }

    /// Opens a data directory; creates it where it is absent.
    ///
    /// # Errors
    /// [`OpenError`] for a directory that another process has locked, that cannot be read or written, that another
    /// version wrote, or that is corrupt.
    pub fn open_with(dir: &Path, options: Options) -> Result<Arc<Self>, OpenError> {
        let lock = lock(dir)?;
        let inner = Arc::new(Inner::open(dir.to_owned(), options)?);
        let (queue, requests) = mpsc::channel();
        let writer = Writer::new(inner.clone(), requests);
        let writer = std::thread::Builder::new()
            .name("store".into())
            .spawn(|| writer.run())
            .map_err(|source| OpenError::Io { dir: dir.to_owned(), source })?;
        Ok(Arc::new(Self { inner, queue, writer: Mutex::new(Some(writer)), lock: Mutex::new(Some(lock)) }))
    }

    /// Finishes what is queued, ends all watches and lets go of the directory. Everything fails afterwards.
    pub fn close(&self) {
        let Some(writer) = self.writer.lock().take() else { return };
        let _ = self.queue.send(Request::Close);
        if writer.join().is_err() {
            tracing::error!("the store's writer had panicked");
        }
        self.inner.close();
        if let Some(lock) = self.lock.lock().take() {
            // A process that is just being started has a copy of the descriptor, which would keep the lock.
            drop(lock.unlock());
        }
    }

    async fn ask<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.queue.send(make(answer)).map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// Fills a directory that holds no objects with those of an archive of a store. The caller has verified the
    /// archive.
    ///
    /// Keys keep the revisions that created and wrote them. The store goes on at a revision `beyond` that of the
    /// archive, and everything before counts as compacted: a client that saw later revisions of the lost store gets
    /// [`StoreError::Compacted`], reads anew, and never meets a revision twice.
    ///
    /// # Errors
    /// [`RestoreError`] for a directory with objects, or an archive or disk that fails. A failure leaves no database
    /// behind: it is created aside and moved to its place at the end.
    pub fn restore<R: Read>(
        dir: &Path,
        archive: &mut Reader<R>,
        beyond: Revision,
    ) -> Result<Revision, RestoreError> {
        let _lock = lock(dir)?;
        restore(dir, archive, beyond)
    }

    /// Runs a read that may take long where it holds nobody up.
    async fn read<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || run(&inner)).await.map_err(|_| cut_off())?
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl Store for Embedded {
    /// A short read is done at once: another thread costs more than the read. One that turns out to be long begins anew
    /// where it holds nobody up.
    async fn range(&self, range: Range) -> Result<RangeResult, StoreError> {
        match self.inner.range(&range, SHORT)? {
            Some(found) => Ok(found),
            None => {
                let read = self.read(move |inner| inner.range(&range, usize::MAX)).await?;
                read.ok_or_else(cut_off)
            }
        }
    }

    /// Ranges that are in order are read by one look through the keys, where it holds nobody up.
    async fn ranges(
        &self,
        ranges: &[KeyRange],
        at: Revision,
        limit: usize,
    ) -> Result<Vec<RangeResult>, StoreError> {
        let ranges = ranges.to_vec();
        let in_order = ranges.is_sorted_by(|one, next| one.end <= next.start);
        self.read(move |inner| match in_order {
            true => inner.ranges(&ranges, at, limit),
            false => ranges.chunks(1).map(|one| inner.ranges(one, at, limit)).try_fold(
                Vec::with_capacity(ranges.len()),
                |mut all, read| {
                    all.extend(read?);
                    Ok(all)
                },
            ),
        })
        .await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        commit.validate()?;
        self.ask(|answer| Request::Commit(commit, answer)).await
    }

    async fn watch(&self, keys: KeyRange, after: Revision, previous: bool) -> Watched {
        watch(self.inner.clone(), keys, after, previous)
    }

    async fn request_progress(&self) -> Result<(), StoreError> {
        self.inner.request_progress();
        Ok(())
    }

    async fn revision(&self) -> Result<Revision, StoreError> {
        Ok(self.inner.visible())
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.ask(|answer| Request::Compact(revision, answer)).await
    }

    async fn hold(&self) -> Result<Hold, StoreError> {
        Ok(self.inner.hold())
    }

    async fn usage(&self, keys: KeyRange) -> Result<Usage, StoreError> {
        self.read(move |inner| inner.usage(&keys)).await
    }

    async fn get(&self, key: &Key) -> Result<Option<KeyValue>, StoreError> {
        self.inner.get(key)
    }
}

/// Takes the directory for this process, and writes its id into the lock file for the one that comes too late.
fn lock(dir: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::Io { dir: dir.to_owned(), source };
    std::fs::create_dir_all(dir).map_err(failed)?;
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(dir.join("LOCK"))
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = (&mut file).take(32).read_to_string(&mut holder);
            let pid = Some(holder.trim()).filter(|pid| !pid.is_empty()).unwrap_or("unknown").to_owned();
            return Err(OpenError::Locked { dir: dir.to_owned(), pid });
        }
        Err(TryLockError::Error(source)) => return Err(failed(source)),
    }
    file.set_len(0).map_err(failed)?;
    file.rewind().map_err(failed)?;
    // Only a help for people: a full disk must not keep the store from being read.
    let _ = writeln!(file, "{}", std::process::id());
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Retention;
    use bytes::Bytes;
    use freehold_apiserver_storage::{Change, WatchItem};
    use futures_util::StreamExt as _;
    use std::time::Duration;

    async fn put(store: &Embedded, name: &str) -> Revision {
        let changes = vec![Change::Put(Key::system(name), Bytes::from(vec![7; 10_000]))];
        let Committed::Done(revision) = store.commit(Commit { expect: vec![], changes }).await.unwrap()
        else {
            panic!("nothing was expected");
        };
        revision
    }

    async fn delete(store: &Embedded, name: &str) -> Revision {
        let changes = vec![Change::Delete(Key::system(name))];
        let Committed::Done(revision) = store.commit(Commit { expect: vec![], changes }).await.unwrap()
        else {
            panic!("nothing was expected");
        };
        revision
    }

    /// Waits until so many versions and log records are on disk.
    async fn wait_for_stored(store: &Embedded, expected: (usize, usize)) {
        let mut poll = tokio::time::interval(Duration::from_millis(5));
        for _ in 0..12_000 {
            let stored = store.inner.with_disk(|disk| Ok(disk.stored_versions())).unwrap();
            if stored == expected {
                return;
            }
            poll.tick().await;
        }
        panic!("still {:?}", store.inner.with_disk(|disk| Ok(disk.stored_versions())).unwrap());
    }

    /// Waits until what is in memory was written to sorted files.
    async fn emptied(store: &Embedded) {
        let mut poll = tokio::time::interval(Duration::from_millis(20));
        while store
            .inner
            .with_disk(|disk| Ok(disk.files() == 0 || disk.buffered() >= crate::disk::WORTH))
            .unwrap()
        {
            poll.tick().await;
        }
    }

    /// Who waits for the store's revision need not ask for progress, whatever keys it is about.
    #[tokio::test]
    async fn a_watch_tells_of_revisions_that_are_about_other_keys() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        let first = put(&store, "watched/a").await;
        let mut watch = store.watch(KeyRange::system("watched"), first, false).await.unwrap();
        let other = put(&store, "other").await;
        assert_eq!(watch.next().await.unwrap().unwrap(), WatchItem::Progress(other));
        let second = put(&store, "watched/b").await;
        let behind = put(&store, "other").await;
        match watch.next().await.unwrap().unwrap() {
            WatchItem::Events(events) => assert_eq!(events[0].revision, second),
            progress => panic!("{progress:?}"),
        }
        assert_eq!(
            watch.next().await.unwrap().unwrap(),
            WatchItem::Progress(behind),
            "it came with the event"
        );
    }

    #[tokio::test]
    async fn what_was_written_leaves_memory_for_files_when_nobody_writes_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        for name in ["a", "b"] {
            let changes = vec![Change::Put(Key::system(name), vec![7; 1 << 20].into())];
            drop(store.commit(Commit { expect: vec![], changes }).await.unwrap());
        }
        emptied(&store).await;
        drop(store);
        let store = Embedded::open(dir.path()).unwrap();
        put(&store, "c").await;
        assert_eq!(store.inner.with_disk(|disk| Ok(disk.stored_versions())).unwrap(), (3, 3));
    }

    /// Keys and the places of small values take more than the values.
    #[tokio::test]
    async fn what_the_journal_has_leaves_memory_too_and_is_not_counted_by_its_values() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        for nth in 0..80 {
            let put = |name| Change::Put(Key::system(&format!("{nth}-{name}")), "small".into());
            drop(
                store.commit(Commit { expect: vec![], changes: (0..100).map(put).collect() }).await.unwrap(),
            );
        }
        drop(store);
        emptied(&Embedded::open(dir.path()).unwrap()).await;
    }

    #[tokio::test]
    async fn compaction_deletes_what_nobody_can_read_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        for nth in 0..700 {
            put(&store, &format!("busy-{}", nth % 3)).await;
        }
        put(&store, "gone").await;
        delete(&store, "gone").await;
        put(&store, "back").await;
        delete(&store, "back").await;
        let last = put(&store, "back").await;
        store.compact(last).await.unwrap();
        wait_for_stored(&store, (4, 1)).await;
        let deleted = delete(&store, "back").await;
        store.compact(deleted).await.unwrap();
        // The deletion itself can still be watched; the next compaction takes it.
        wait_for_stored(&store, (4, 1)).await;
        store.compact(put(&store, "busy-0").await).await.unwrap();
        wait_for_stored(&store, (3, 1)).await;
    }

    #[tokio::test]
    async fn a_compaction_that_was_cut_off_goes_on_after_opening() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        for _ in 0..100 {
            put(&store, "busy").await;
        }
        store.close();
        let disk = crate::disk::Disk::open(dir.path(), &Options::default()).unwrap();
        let mut batch = disk.batch();
        disk.put_compacted(&mut batch, 60);
        batch.commit().unwrap();
        drop(disk);
        let store = Embedded::open(dir.path()).unwrap();
        wait_for_stored(&store, (42, 42)).await;
    }

    #[tokio::test]
    async fn a_held_revision_is_readable_after_it_was_compacted_until_it_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { progress_every: Duration::from_millis(20), ..Options::default() };
        let store = Embedded::open_with(dir.path(), options).unwrap();
        put(&store, "a").await;
        put(&store, "gone").await;
        let hold = store.hold().await.unwrap();
        let at = Range { at: Some(hold.revision), ..Range::all(KeyRange::everything()) };
        let before = store.range(at.clone()).await.unwrap().items;
        for _ in 0..100 {
            put(&store, "a").await;
        }
        store.compact(delete(&store, "gone").await).await.unwrap();
        let last = put(&store, "a").await;
        store.compact(last).await.unwrap();
        assert_eq!(store.range(at.clone()).await.unwrap().items, before);
        let other = Range { at: Some(hold.revision + 1), ..at.clone() };
        assert!(matches!(store.range(other).await, Err(StoreError::Compacted { .. })));
        drop(hold);
        wait_for_stored(&store, (1, 1)).await;
        assert!(matches!(store.range(at).await, Err(StoreError::Compacted { .. })));
    }

    #[tokio::test]
    async fn one_large_revision_is_compacted_in_steps() {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path()).unwrap();
        for first in (0..2000).step_by(100) {
            let put = |nth| Change::Put(Key::system(&format!("test/{nth}")), Bytes::from_static(b"x"));
            let changes = (first..first + 100).map(put).collect();
            drop(store.commit(Commit { expect: vec![], changes }).await.unwrap());
        }
        let changes = vec![Change::DeleteRange(KeyRange::system("test"))];
        drop(store.commit(Commit { expect: vec![], changes }).await.unwrap());
        let last = put(&store, "kept").await;
        store.compact(last).await.unwrap();
        wait_for_stored(&store, (1, 1)).await;
    }

    #[tokio::test]
    async fn history_beyond_its_retention_is_compacted_without_being_asked() {
        let dir = tempfile::tempdir().unwrap();
        let retention = Some(Retention { age: Duration::ZERO, revisions: 10 });
        let progress_every = Duration::from_millis(20);
        let options = Options { retention, progress_every, ..Options::default() };
        let store = Embedded::open_with(dir.path(), options).unwrap();
        for _ in 0..50 {
            put(&store, "busy").await;
        }
        wait_for_stored(&store, (11, 11)).await;
    }

    #[tokio::test]
    async fn a_directory_of_another_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(Embedded::open(dir.path()).unwrap());
        let disk = crate::disk::Disk::open(dir.path(), &Options::default()).unwrap();
        disk.overwrite_format("freehold-embedded 99");
        drop(disk);
        let Err(error) = Embedded::open(dir.path()) else { panic!("another format was opened") };
        let expected = "has format \"freehold-embedded 99\"; this version reads freehold-embedded 1";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
}
