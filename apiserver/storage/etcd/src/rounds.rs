//! One answer for many who ask the same at the same time.
//!
//! Whoever asks for the latest revision wants it as of then or later. So one question is on its way, and all who come
//! meanwhile wait for the next one together: a hundred reads cost etcd one or two questions, not a hundred.

use freehold_apiserver_storage::{Revision, StoreError};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::{Mutex as Turn, OnceCell};

type Round = Arc<OnceCell<Result<Revision, StoreError>>>;

#[derive(Default)]
pub(crate) struct Rounds {
    /// The round that those join who come now: its question was not asked yet.
    open: Mutex<Round>,
    /// Held while a question is on its way.
    turn: Turn<()>,
}

impl Rounds {
    /// The answer to a question that is asked after this call began.
    pub(crate) async fn ask<F>(&self, question: impl FnOnce() -> F) -> Result<Revision, StoreError>
    where
        F: Future<Output = Result<Revision, StoreError>>,
    {
        let round = self.open.lock().clone();
        // When the one who asks is dropped, the next one in the round asks instead.
        let answer = round.get_or_init(|| async {
            let _turn = self.turn.lock().await;
            self.close(&round);
            question().await
        });
        answer.await.clone()
    }

    /// Lets nobody join a round any more.
    fn close(&self, round: &Round) {
        let mut open = self.open.lock();
        if Arc::ptr_eq(&open, round) {
            *open = Round::default();
        }
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
        let (rounds, source) = (Rounds::default(), Source::default());
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

    #[tokio::test]
    async fn when_the_one_who_asks_goes_away_another_asks() {
        let (rounds, source) = (Rounds::default(), Source::default());
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
