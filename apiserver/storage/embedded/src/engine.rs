//! The engine as its users see it.

use crate::{
    inner::Inner,
    options::{OpenError, Options},
    watch::watch,
    writer::{Request, Writer},
};
use async_trait::async_trait;
use freehold_apiserver_storage::{
    Commit, Committed, Key, KeyRange, KeyValue, Range, RangeResult, Revision, Store, StoreError, Usage,
    WatchStream,
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
    /// Opens a data directory with default [`Options`]; makes it if it is not there.
    pub fn open(dir: &Path) -> Result<Arc<Self>, OpenError> {
        Self::open_with(dir, Options::default())
    }

    /// Opens a data directory; makes it if it is not there.
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
        self.lock.lock().take();
    }

    async fn ask<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Request,
    ) -> Result<T, StoreError> {
        let closed = || StoreError::Unavailable("the database is closed".into());
        let (answer, answered) = oneshot::channel();
        self.queue.send(make(answer)).map_err(|_| closed())?;
        answered.await.map_err(|_| closed())?
    }

    /// Runs a read that may take long where it holds nobody up.
    async fn read<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || run(&inner))
            .await
            .map_err(|_| StoreError::Unavailable("a read was cut off".into()))?
    }

    #[cfg(test)]
    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl Store for Embedded {
    async fn range(&self, range: Range) -> Result<RangeResult, StoreError> {
        if range.keys.is_one() {
            self.inner.range(&range)
        } else {
            self.read(move |inner| inner.range(&range)).await
        }
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        commit.validate()?;
        self.ask(|answer| Request::Commit(commit, answer)).await
    }

    async fn watch(
        &self,
        keys: KeyRange,
        after: Revision,
        previous: bool,
    ) -> Result<WatchStream, StoreError> {
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
