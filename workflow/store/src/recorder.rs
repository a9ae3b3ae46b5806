//! The way of a controller's records into the database: batched, acknowledged when they are on disk.

use crate::leases::Fence;
use crate::{Database, Error, Record, Result};
use tokio::sync::{mpsc, oneshot};

/// Records that wait at most; more make callers wait.
const WAITING: usize = 4096;
/// Records of one transaction.
const BATCH: usize = 512;

/// Takes records of many tasks and writes them in batches. Cheap to clone.
///
/// A controller calls [`record`](Self::record) after each transition and keeps the transition's mark (a finalizer, a
/// requeue) until that returns: a record that failed is reported again later. Reporting twice does no harm.
#[derive(Clone, Debug)]
pub struct Recorder {
    sender: mpsc::Sender<Waiting>,
    database: Database,
}

#[derive(Debug)]
struct Waiting {
    record: Record,
    fence: Option<Fence>,
    done: oneshot::Sender<Result<()>>,
}

impl Recorder {
    /// Starts the writer, which ends when the last clone is dropped and everything is written.
    pub fn start(database: Database) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        tokio::spawn(run(database.clone(), receiver));
        Self { sender, database }
    }

    /// The database that it writes to.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Records one run, attempt or log, and returns when it is on disk.
    ///
    /// # Errors
    /// Those of [`Database::write`]; [`Error::Stopped`] where the writer has ended.
    pub async fn record(&self, record: impl Into<Record>) -> Result<()> {
        self.send(record.into(), None).await
    }

    /// Records under a lease: nothing is recorded once another controller has the partition.
    ///
    /// # Errors
    /// [`Error::Fenced`] where the lease is over, and those of [`record`](Self::record).
    pub async fn record_fenced(&self, record: impl Into<Record>, fence: &Fence) -> Result<()> {
        self.send(record.into(), Some(fence.clone())).await
    }

    async fn send(&self, record: Record, fence: Option<Fence>) -> Result<()> {
        // Refused here, so that it spoils no batch.
        let record = record.check()?;
        let (done, outcome) = oneshot::channel();
        self.sender.send(Waiting { record, fence, done }).await.map_err(|_| Error::Stopped)?;
        outcome.await.unwrap_or(Err(Error::Stopped))
    }
}

async fn run(database: Database, mut receiver: mpsc::Receiver<Waiting>) {
    let mut batch = Vec::with_capacity(BATCH);
    while receiver.recv_many(&mut batch, BATCH).await > 0 {
        // Those of one fence go together; order among records of a run does not matter.
        while let Some(first) = batch.first() {
            let fence = first.fence.clone();
            let (same, rest): (Vec<_>, Vec<_>) =
                std::mem::take(&mut batch).into_iter().partition(|w| w.fence == fence);
            batch = rest;
            let (records, callers): (Vec<_>, Vec<_>) = same.into_iter().map(|w| (w.record, w.done)).unzip();
            let outcome = database.write(records, fence.as_ref()).await;
            if let Err(error) = &outcome {
                tracing::warn!(%error, records = callers.len(), "failed to record history; callers will retry");
            }
            for caller in callers {
                // A caller that has gone reports again.
                let _ = caller.send(outcome.clone());
            }
        }
    }
}
