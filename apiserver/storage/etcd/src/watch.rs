//! Watches. Each has a gRPC stream of its own on the shared connection, so that a slow one is slowed down by flow
//! control and holds nobody else up, and so that a progress response is about this watch alone. It costs no task here.
//!
//! A stream that breaks is opened again at the first revision that was not yielded, on whichever endpoint answers.
//!
//! What etcd does, and this relies on:
//! - The changes of one revision come in one response, or in several marked as fragments of it.
//! - A manual progress response (its watch id is -1) comes behind the events that it speaks of, since 3.5.8. While the
//!   watch is behind, or nothing was committed since the revision that it starts from, the request is not answered at
//!   all: so it is repeated.

use crate::{
    client::Link,
    engine::Shared,
    error::{Meaning, meaning, store_error},
    proto::{
        self, EventType, WatchAsk, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
        signed, unsigned,
    },
};
use freehold_apiserver_storage::{Event, KeyRange, Revision, StoreError, WatchItem, Watched, stepwise};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch::Receiver,
    time::{Instant, sleep_until, timeout},
};
use tonic::{Code, Status};

/// After so long without an answer a request for progress is repeated, later and later up to [`IDLE`].
const SILENCE: Duration = Duration::from_millis(100);
/// After so long without an event, progress is asked for.
const IDLE: Duration = Duration::from_secs(5);
/// The time between attempts to open a stream again: the first and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// How long a new stream may take until the server says that it watches.
const CREATED_WITHIN: Duration = Duration::from_secs(5);

struct Watch {
    shared: Arc<Shared>,
    keys: KeyRange,
    previous: bool,
    /// The first revision that was not yielded yet.
    next: Revision,
    link: Option<Link>,
    /// Events of a response whose other fragments are still to come.
    partial: Vec<Event>,
    asked: Receiver<u64>,
    /// How long to wait now before asking for progress, and from when on.
    patience: Duration,
    since: Instant,
    retry: Duration,
}

/// What to do about a response or an error.
enum Outcome {
    Yield(WatchItem),
    GoOn,
    Reconnect,
}

/// Begins a watch.
pub(crate) async fn watch(shared: Arc<Shared>, keys: KeyRange, after: Revision, previous: bool) -> Watched {
    let asked = shared.progress.subscribe();
    let mut watch = Watch {
        shared,
        keys,
        previous,
        next: after + 1,
        link: None,
        partial: Vec::new(),
        asked,
        patience: IDLE,
        since: Instant::now(),
        retry: RETRY.0,
    };
    let seen = match watch.connect_with_fresh_token().await {
        Ok(seen) => seen,
        Err(status) => return Err(watch.shared.error(status, after).await),
    };
    // A member that lags behind may not have seen what another has.
    if after > seen {
        let current = watch.shared.revision().await?;
        if after > current {
            return Err(StoreError::Future { asked: after, current });
        }
    }
    Ok(stepwise(watch, |mut watch| async move { Some((watch.step().await, watch)) }))
}

impl Watch {
    /// Opens a stream from `next` on; returns the server's revision.
    async fn connect(&mut self) -> Result<Revision, Status> {
        let (key, range_end) = self.shared.prefix.range(&self.keys);
        let create = WatchCreateRequest {
            key,
            range_end,
            start_revision: signed(self.next),
            progress_notify: true,
            prev_kv: self.previous,
            fragment: true,
        };
        let first = WatchRequest { ask: Some(WatchAsk::Create(create)) };
        let mut link = self.shared.client.watch(first).await?;
        let created = timeout(CREATED_WITHIN, link.inbound.message())
            .await
            .map_err(|_| Status::unavailable("etcd does not answer to a watch"))??
            .ok_or_else(|| Status::unavailable("etcd closed a new watch"))?;
        if created.canceled {
            return Err(Status::new(Code::Unknown, created.cancel_reason));
        }
        if !created.created {
            return Err(Status::internal("etcd did not say that a watch was created"));
        }
        self.partial.clear();
        self.link = Some(link);
        self.wait_for(IDLE);
        Ok(proto::revision(&created.header))
    }

    /// Connects; if etcd no longer knows the token, once more with a new one.
    async fn connect_with_fresh_token(&mut self) -> Result<Revision, Status> {
        match self.connect().await {
            Err(status) if meaning(status.code(), status.message()) == Meaning::TokenExpired => {
                self.shared.client.renew_token();
                self.connect().await
            }
            other => other,
        }
    }

    async fn step(&mut self) -> Result<WatchItem, StoreError> {
        loop {
            let Some(link) = &mut self.link else {
                self.reconnect().await?;
                continue;
            };
            let outcome = tokio::select! {
                response = link.inbound.message() => match response {
                    Ok(Some(response)) => self.take(response)?,
                    Ok(None) => Outcome::Reconnect,
                    Err(status) => self.lost(&status)?,
                },
                // The sender lives in `shared`, so this never fails.
                _ = self.asked.changed() => {
                    self.wait_for(SILENCE);
                    self.ask_progress()
                }
                () = sleep_until(self.since + self.patience) => {
                    self.wait_for((self.patience * 2).min(IDLE));
                    match self.ask_progress() {
                        // True whether or not there is more.
                        Outcome::GoOn => Outcome::Yield(WatchItem::Progress(self.next - 1)),
                        other => other,
                    }
                }
            };
            match outcome {
                Outcome::Yield(item) => return Ok(item),
                Outcome::GoOn => {}
                Outcome::Reconnect => self.link = None,
            }
        }
    }

    fn wait_for(&mut self, patience: Duration) {
        self.patience = patience;
        self.since = Instant::now();
    }

    fn ask_progress(&self) -> Outcome {
        let ask = WatchRequest { ask: Some(WatchAsk::Progress(WatchProgressRequest {})) };
        match self.link.as_ref().map(|link| link.outbound.try_send(ask)) {
            Some(Err(tokio::sync::mpsc::error::TrySendError::Closed(_))) => Outcome::Reconnect,
            // Where the queue is full, enough is asked already.
            _ => Outcome::GoOn,
        }
    }

    fn take(&mut self, response: WatchResponse) -> Result<Outcome, StoreError> {
        if response.canceled {
            if response.compact_revision > 0 {
                let oldest = unsigned(response.compact_revision);
                return Err(StoreError::Compacted { asked: self.next - 1, oldest });
            }
            return self.lost(&Status::new(Code::Unknown, response.cancel_reason));
        }
        self.retry = RETRY.0;
        self.wait_for(IDLE);
        if response.events.is_empty() && !response.fragment && self.partial.is_empty() {
            self.next = self.next.max(proto::revision(&response.header) + 1);
            return Ok(Outcome::Yield(WatchItem::Progress(self.next - 1)));
        }
        for event in response.events {
            let event = self.event(event)?;
            // After a reconnect a server may repeat itself.
            if event.revision >= self.next {
                self.partial.push(event);
            }
        }
        match self.partial.last() {
            Some(last) if !response.fragment => {
                self.next = last.revision + 1;
                Ok(Outcome::Yield(WatchItem::Events(std::mem::take(&mut self.partial))))
            }
            _ => Ok(Outcome::GoOn),
        }
    }

    fn event(&self, event: proto::Event) -> Result<Event, StoreError> {
        let now = event.kv.ok_or_else(|| StoreError::Corrupt("etcd sent an event without a key".into()))?;
        let now = self.shared.key_value(now)?;
        let deleted = event.kind == i32::from(EventType::Delete);
        Ok(Event {
            key: now.key,
            revision: now.modified,
            value: (!deleted).then_some(now.value),
            created: if deleted { 0 } else { now.created },
            previous: event.prev_kv.map(|previous| self.shared.key_value(previous)).transpose()?,
        })
    }

    /// Decides about an error: the end, or another try.
    fn lost(&self, status: &Status) -> Result<Outcome, StoreError> {
        match meaning(status.code(), status.message()) {
            end @ (Meaning::Denied | Meaning::Compacted | Meaning::Corrupt) => {
                Err(store_error(end, status.message(), self.next - 1, 0))
            }
            _ => {
                tracing::info!(reason = status.message(), keys = ?self.keys, "a watch on etcd was interrupted; resuming it");
                Ok(Outcome::Reconnect)
            }
        }
    }

    async fn reconnect(&mut self) -> Result<(), StoreError> {
        tokio::time::sleep(self.retry).await;
        self.retry = (self.retry * 2).min(RETRY.1);
        let Err(status) = self.connect_with_fresh_token().await else { return Ok(()) };
        self.lost(&status)?;
        self.shared.client.move_on();
        Ok(())
    }
}
