//! Answers that their clients do not take: what is held for them is given back after a time, whatever their streams are told.
//! Who opens thousands of streams and lets nothing through them would otherwise fill the memory with answers.

use crate::payload::{BoxError, Data, Payload};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// Bytes of an answer that is not followed: it takes no more than its stream.
const SMALL: usize = 4096;

/// An answer on its way.
pub struct Answer(Arc<Mutex<Held>>);

/// What is held for a client.
struct Held {
    /// `None` once it was given back.
    body: Option<Payload>,
    taken: Instant,
}

/// The answers that are on their way, about in the order in which they began.
pub(crate) struct Untaken {
    patience: Duration,
    answers: Mutex<VecDeque<(Instant, Weak<Mutex<Held>>)>>,
}

impl Untaken {
    /// For clients that take something at least this often.
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, answers: Mutex::default() }
    }

    /// Follows an answer, and gives up those of which nothing was taken for too long: each time another one comes, so that there
    /// are never many.
    pub(crate) fn follow(&self, body: Payload) -> Payload {
        let small = body.len().is_some_and(|length| length <= SMALL);
        if small || body.is_stream() {
            return body;
        }
        let now = Instant::now();
        let answer = Arc::new(Mutex::new(Held { body: Some(body), taken: now }));
        let late = self.begin(now, &answer);
        // Not while others wait for the list.
        late.iter().for_each(|answer| drop(answer.lock().body.take()));
        Payload::Followed(Answer(answer))
    }

    /// Adds an answer, and gives those that nobody takes.
    fn begin(&self, now: Instant, answer: &Arc<Mutex<Held>>) -> Vec<Arc<Mutex<Held>>> {
        let mut answers = self.answers.lock();
        let mut late = Vec::new();
        while let Some((since, held)) = answers.front() {
            let Some(held) = held.upgrade() else {
                answers.pop_front();
                continue;
            };
            if now.duration_since(*since) < self.patience {
                break;
            }
            answers.pop_front();
            let taken = held.lock().taken;
            match now.duration_since(taken) < self.patience {
                true => answers.push_back((now, Arc::downgrade(&held))),
                false => late.push(held),
            }
        }
        // One that is slow keeps those behind it in the list.
        if answers.len() == answers.capacity() {
            answers.retain(|(_, held)| held.strong_count() > 0);
        }
        answers.push_back((now, Arc::downgrade(answer)));
        late
    }
}

impl Answer {
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Data>, BoxError>>> {
        let mut held = self.0.lock();
        held.taken = Instant::now();
        match &mut held.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(Some(Err("nobody took the answer for too long".into()))),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.lock().body.as_ref().is_some_and(Body::is_end_stream)
    }

    pub(crate) fn size(&self) -> SizeHint {
        self.0.lock().body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::BodyExt;

    fn answer(untaken: &Untaken) -> Payload {
        untaken.follow(Payload::Full(Bytes::from(vec![b'x'; 2 * SMALL])))
    }

    #[tokio::test]
    async fn what_nobody_takes_is_given_back_when_others_come() {
        let impatient = Untaken::new(Duration::ZERO);
        let (mut first, second) = (answer(&impatient), answer(&impatient));
        assert!(
            first.frame().await.is_some_and(|frame| frame.is_err()),
            "it is torn, and not as if it were whole"
        );
        assert_eq!(second.collect().await.map(|body| body.to_bytes().len()).ok(), Some(2 * SMALL));
        assert!(matches!(impatient.follow(Payload::Full(Bytes::from_static(b"x"))), Payload::Full(_)));
    }

    #[tokio::test]
    async fn what_is_taken_is_not_followed_any_more() {
        let patient = Untaken::new(Duration::from_secs(3600));
        let mut slow = answer(&patient);
        for _ in 0..1000 {
            drop(answer(&patient));
        }
        assert!(patient.answers.lock().len() < 100);
        assert!(slow.frame().await.is_some_and(|frame| frame.is_ok()));
    }
}
