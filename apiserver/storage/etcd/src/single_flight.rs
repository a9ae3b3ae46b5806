//! Single flight: concurrent callers with an equal question share one answer.
//!
//! Whoever asks for the latest revision wants it as of then or later. So one question is on its way, and all who come
//! meanwhile wait for the next one together. That one waits in turn for those who just got their answer, as they mostly ask
//! again. Who asks alone never waits for others.

use freehold_apiserver_storage::{Revision, StoreError};
use parking_lot::Mutex;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex as Turn, Notify, OnceCell},
    time::{Instant, timeout_at},
};

/// How long after an answer the next question waits for as many as there were.
const GATHERING: Duration = Duration::from_millis(1);

#[derive(Default)]
struct Flight {
    answer: OnceCell<Result<Revision, StoreError>>,
    /// As many as were wanted have come.
    full: Notify,
}

/// The round that those join who come now: its question was not asked yet.
#[derive(Default)]
struct Open {
    round: Arc<Flight>,
    joined: usize,
    wanted: usize,
}

/// The last answer: when it came, and how many were asking then, those included whom it was for.
struct Last {
    at: Instant,
    asking: usize,
}

pub(crate) struct SingleFlight {
    open: Mutex<Open>,
    /// Held while a question is on its way.
    turn: Turn<Last>,
}

impl Default for SingleFlight {
    fn default() -> Self {
        Self { open: Mutex::default(), turn: Turn::new(Last { at: Instant::now(), asking: 0 }) }
    }
}

impl SingleFlight {
    /// The answer to a question that is asked after this call began.
    pub(crate) async fn ask<F>(&self, question: impl FnOnce() -> F) -> Result<Revision, StoreError>
    where
        F: Future<Output = Result<Revision, StoreError>>,
    {
        let round = self.join();
        // When the one who asks is dropped, the next one in the round asks instead.
        let answer = round.answer.get_or_init(|| async {
            let mut last = self.turn.lock().await;
            self.gather(&round, &last).await;
            let joined = self.close(&round);
            let answer = question().await;
            *last = Last { at: Instant::now(), asking: joined + self.open.lock().joined };
            answer
        });
        answer.await.clone()
    }

    fn join(&self) -> Arc<Flight> {
        let mut open = self.open.lock();
        open.joined += 1;
        if open.joined == open.wanted {
            open.round.full.notify_one();
        }
        open.round.clone()
    }

    /// Waits until as many have joined as asked before, but not for long.
    async fn gather(&self, round: &Flight, last: &Last) {
        if self.lacks(round, last.asking) {
            let _ = timeout_at(last.at + GATHERING, round.full.notified()).await;
        }
    }

    /// Whether others are wanted in a round; the one who makes them as many says so.
    fn lacks(&self, round: &Flight, wanted: usize) -> bool {
        let mut open = self.open.lock();
        if !std::ptr::eq(&*open.round, round) {
            return false;
        }
        open.wanted = wanted;
        open.joined < wanted
    }

    /// Lets nobody join a round any more; gives how many did.
    fn close(&self, round: &Flight) -> usize {
        let mut open = self.open.lock();
        if std::ptr::eq(&*open.round, round) { std::mem::take(&mut *open).joined } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, future::join_all};
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::sync::Notify;

    /// Counts questions; each waits until it is let through.
    #[derive(Default)]
    struct Source {
        asked: AtomicU64,
        through: Notify,
    }

    impl Source {
        async fn ask(&self) -> Result<Revision, StoreError> {
            let number = self.asked.fetch_add(1, Ordering::Relaxed) + 1;
            self.through.notified().await;
            Ok(number)
        }
    }

    #[tokio::test]
    async fn all_who_come_during_a_question_share_the_next_one() {
        let (rounds, source) = (SingleFlight::default(), Source::default());
        let mut first = Box::pin(rounds.ask(|| source.ask()));
        assert!(first.as_mut().now_or_never().is_none());
        let mut others: Vec<_> = (0..100).map(|_| Box::pin(rounds.ask(|| source.ask()))).collect();
        for other in &mut others {
            assert!(other.as_mut().now_or_never().is_none());
        }
        source.through.notify_one();
        assert_eq!(first.await.unwrap(), 1);
        source.through.notify_one();
        assert!(join_all(others).await.into_iter().all(|answer| answer.unwrap() == 2));
        assert_eq!(source.asked.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_waits_for_as_many_as_were_asking_but_not_for_long() {
        let (rounds, source) = (SingleFlight::default(), Source::default());
        let mut first = Box::pin(rounds.ask(|| source.ask()));
        let mut second = Box::pin(rounds.ask(|| source.ask()));
        assert!(first.as_mut().now_or_never().is_none() && second.as_mut().now_or_never().is_none());
        source.through.notify_one();
        assert_eq!(first.await.unwrap(), 1, "who comes first waits for nobody");
        let mut third = Box::pin(rounds.ask(|| source.ask()));
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(source.asked.load(Ordering::Relaxed), 1, "two asked before, and only one does yet");
        assert!(third.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        assert_eq!(source.asked.load(Ordering::Relaxed), 2);
        source.through.notify_one();
        assert!(second.await.is_ok() && third.await.is_ok());
        source.through.notify_one();
        assert_eq!(rounds.ask(|| source.ask()).await.unwrap(), 3, "nobody else comes");
    }

    #[tokio::test]
    async fn when_the_one_who_asks_goes_away_another_asks() {
        let (rounds, source) = (SingleFlight::default(), Source::default());
        let mut first = Box::pin(rounds.ask(|| source.ask()));
        assert!(first.as_mut().now_or_never().is_none());
        let mut second = Box::pin(rounds.ask(|| source.ask()));
        let mut third = Box::pin(rounds.ask(|| source.ask()));
        assert!(second.as_mut().now_or_never().is_none() && third.as_mut().now_or_never().is_none());
        drop(first);
        drop(second);
        source.through.notify_one();
        assert!(third.await.is_ok());
    }
}
