//! Answers that their clients do not take: what is held for them is given back after a time, whatever their streams are told.
//! Who opens thousands of streams and lets nothing through them would otherwise fill the memory with answers; and who lets little
//! through would keep them, and their places among the requests, for as long as it likes.
//!
//! Nor may answers hold more than so much memory at a time, however quick: of the organization that holds most, those that are
//! taken most slowly are given back first.

use crate::payload::{BoxError, Data, Payload};
use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::{
    collections::{HashMap, VecDeque},
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// Bytes of an answer that is not followed: it takes no more than its stream.
const SMALL: usize = 4096;
/// Bytes a second that the slowest line takes: an answer has its patience, and the time that its line needs for what was sent.
const SLOW_LINE: u64 = 32 * 1024;

/// Bytes that answers may hold at a time.
const ROOM: usize = 1 << 30;
/// For so long an answer counts as taken as slowly as one that has just begun.
const BEGINNING: Duration = Duration::from_millis(500);

/// An answer on its way.
pub struct Answer(Arc<Mutex<Held>>);

/// What is held for a client.
struct Held {
    /// `None` once it was given back.
    body: Option<Payload>,
    patience: Duration,
    begun: Instant,
    /// When its client took something last.
    taken: Instant,
    /// How many bytes it was sent.
    sent: u64,
    /// What it holds of the room of all.
    share: Share,
}

/// Bytes that an answer of an organization holds, given back as they are sent.
struct Share {
    room: Arc<Room>,
    owner: Arc<str>,
    bytes: usize,
}

/// What answers hold, by organization.
#[derive(Default)]
struct Room(Mutex<Holdings>);

#[derive(Default)]
struct Holdings {
    all: usize,
    of: HashMap<Arc<str>, Holding>,
}

/// What the answers of an organization hold.
#[derive(Default)]
struct Holding {
    answers: usize,
    bytes: usize,
}

impl Share {
    fn new(room: &Arc<Room>, owner: &Arc<str>, bytes: usize) -> Self {
        let mut holdings = room.0.lock();
        holdings.all += bytes;
        let holding = holdings.of.entry(owner.clone()).or_default();
        holding.bytes += bytes;
        holding.answers += 1;
        Self { room: room.clone(), owner: owner.clone(), bytes }
    }

    fn sent(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        let mut holdings = self.room.0.lock();
        holdings.all -= bytes;
        if let Some(holding) = holdings.of.get_mut(&self.owner) {
            holding.bytes -= bytes;
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.sent(self.bytes);
        let mut holdings = self.room.0.lock();
        if let Some(holding) = holdings.of.get_mut(&self.owner) {
            holding.answers -= 1;
            if holding.answers == 0 {
                holdings.of.remove(&self.owner);
            }
        }
    }
}

impl Room {
    /// Who holds most, where all hold more than `most` and somebody has several answers.
    fn pressed(&self, most: usize) -> Option<Arc<str>> {
        let holdings = self.0.lock();
        let several = holdings.of.iter().filter(|(_, holding)| holdings.all > most && holding.answers > 1);
        several.max_by_key(|(_, holding)| holding.bytes).map(|(owner, _)| owner.clone())
    }
}

/// The answers that are on their way, about in the order in which they began.
pub struct Untaken {
    patience: Duration,
    most: usize,
    room: Arc<Room>,
    answers: Mutex<VecDeque<(Instant, Weak<Mutex<Held>>)>>,
}

impl Untaken {
    /// For clients that take something at least this often, and all of it about as fast as a slow line does.
    pub fn new(patience: Duration) -> Self {
        Self { patience, most: ROOM, room: Arc::default(), answers: Mutex::default() }
    }

    /// Follows an answer to somebody of `owner`, and gives up those of which nothing was taken for too long, and those for which
    /// there is no room: each time another one comes, so that there are never many.
    pub fn follow(&self, owner: &Arc<str>, body: Payload) -> Payload {
        self.follow_from(Instant::now(), owner, body)
    }

    fn follow_from(&self, now: Instant, owner: &Arc<str>, body: Payload) -> Payload {
        let small = body.len().is_some_and(|length| length <= SMALL);
        if small || body.is_stream() {
            return body;
        }
        let share = Share::new(&self.room, owner, body.len().unwrap_or(SMALL));
        let held = Held { body: Some(body), patience: self.patience, begun: now, taken: now, sent: 0, share };
        let answer = Arc::new(Mutex::new(held));
        let late = self.begin(now, &answer);
        // Not while others wait for the list.
        late.iter().for_each(|answer| answer.lock().give_back());
        while let Some(owner) = self.room.pressed(self.most) {
            if !self.press(now, &owner) {
                break;
            }
        }
        Payload::Followed(Answer(answer))
    }

    /// Gives back the slowest answers of an organization until there is room; says whether there was any.
    fn press(&self, now: Instant, owner: &Arc<str>) -> bool {
        let answers: Vec<_> = self.answers.lock().iter().filter_map(|(_, held)| held.upgrade()).collect();
        let rate = |answer: &Arc<Mutex<Held>>| {
            let held = answer.lock();
            (held.share.owner == *owner && held.body.is_some()).then(|| (held.rate(now), answer.clone()))
        };
        let mut own: Vec<_> = answers.iter().filter_map(rate).collect();
        own.sort_by_key(|(rate, _)| *rate);
        let is_pressed = || self.room.pressed(self.most).as_ref() == Some(owner);
        let given = own.iter().take_while(|_| is_pressed());
        given.map(|(_, answer)| answer.lock().give_back()).count() > 0
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
            let is_late = held.lock().is_late(now);
            match is_late {
                true => late.push(held),
                false => answers.push_back((now, Arc::downgrade(&held))),
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

impl Held {
    /// Whether nothing was taken for too long, or all in all too little.
    fn is_late(&self, now: Instant) -> bool {
        now.duration_since(self.taken) >= self.patience || self.is_slow(now)
    }

    /// Gives back what it holds: its client is told that the answer is torn when it asks for more.
    fn give_back(&mut self) {
        self.body = None;
        self.share.sent(self.share.bytes);
    }

    /// Bytes a second that its client takes.
    fn rate(&self, now: Instant) -> u64 {
        let since = now.duration_since(self.begun).max(BEGINNING);
        self.sent.saturating_mul(1000) / u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn is_slow(&self, now: Instant) -> bool {
        let needed = Duration::from_secs(self.sent / SLOW_LINE);
        now.duration_since(self.begun) >= self.patience + needed
    }

    fn poll(&mut self, now: Instant, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Data>, BoxError>>> {
        if self.is_slow(now) {
            self.give_back();
        }
        let Some(body) = &mut self.body else {
            return Poll::Ready(Some(Err("the answer was not taken for too long".into())));
        };
        self.taken = now;
        let frame = Pin::new(body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            let bytes = frame.data_ref().map_or(0, Buf::remaining);
            self.sent += bytes as u64;
            self.share.sent(bytes);
        }
        frame
    }
}

impl Answer {
    /// Polls for the next frame; ends with an error if the answer was given up.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Data>, BoxError>>> {
        self.0.lock().poll(Instant::now(), cx)
    }

    /// Reports whether all of it was sent.
    pub fn is_over(&self) -> bool {
        self.0.lock().body.as_ref().is_some_and(Body::is_end_stream)
    }

    /// Returns what is known of its length.
    pub fn size(&self) -> SizeHint {
        self.0.lock().body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body_util::BodyExt;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn answer(untaken: &Untaken, from: Instant, length: usize) -> Payload {
        answer_to("", untaken, from, length)
    }

    fn answer_to(owner: &str, untaken: &Untaken, from: Instant, length: usize) -> Payload {
        untaken.follow_from(from, &owner.into(), Payload::Full(Bytes::from(vec![b'x'; length])))
    }

    async fn is_torn(mut payload: Payload) -> bool {
        payload.frame().await.is_some_and(|frame| frame.is_err())
    }

    #[tokio::test]
    async fn who_holds_most_gives_back_what_is_taken_most_slowly() {
        const LENGTH: usize = 1 << 20;
        let untaken = Untaken { most: 5 * LENGTH, ..Untaken::new(PATIENCE) };
        let now = Instant::now();
        let mut red: Vec<_> = (0..3).map(|_| answer_to("red", &untaken, now, LENGTH)).collect();
        let mut taken = red.remove(1);
        assert!(taken.frame().await.is_some_and(|frame| frame.is_ok()));
        let blue = answer_to("blue", &untaken, now, 3 * LENGTH / 2);
        assert!(!is_torn(blue).await && untaken.room.0.lock().of.contains_key("red"));
        let blue = answer_to("blue", &untaken, now, 3 * LENGTH / 2);
        let last = answer_to("red", &untaken, now + BEGINNING, LENGTH);
        assert!(is_torn(red.remove(0)).await, "of red's, the first that nobody takes");
        for (name, kept) in [("taken", taken), ("blue's", blue), ("last", last), ("second", red.remove(0))] {
            assert!(!is_torn(kept).await, "{name}");
        }
    }

    #[tokio::test]
    async fn one_answer_of_an_organization_may_be_larger_than_the_room() {
        let untaken = Untaken { most: SMALL, ..Untaken::new(PATIENCE) };
        let now = Instant::now();
        let (red, blue) =
            (answer_to("red", &untaken, now, 9 * SMALL), answer_to("blue", &untaken, now, 2 * SMALL));
        assert!(!is_torn(red).await && !is_torn(blue).await);
        let holdings = untaken.room.0.lock();
        assert!(holdings.all == 0 && holdings.of.is_empty(), "all is given back");
    }

    #[tokio::test]
    async fn what_nobody_takes_is_given_back_when_others_come() {
        let (untaken, now) = (Untaken::new(PATIENCE), Instant::now());
        let mut first = answer(&untaken, now, 2 * SMALL);
        let second = answer(&untaken, now + PATIENCE, 2 * SMALL);
        assert!(
            first.frame().await.is_some_and(|frame| frame.is_err()),
            "it is torn, and not as if it were whole"
        );
        assert_eq!(second.collect().await.map(|body| body.to_bytes().len()).ok(), Some(2 * SMALL));
        assert!(matches!(
            untaken.follow(&"".into(), Payload::Full(Bytes::from_static(b"x"))),
            Payload::Full(_)
        ));
    }

    /// Takes a frame each so many seconds, and gives how many bytes came before it was torn, if it was.
    async fn take_every(seconds: u64, length: usize) -> (usize, bool) {
        let (untaken, mut now) = (Untaken::new(PATIENCE), Instant::now());
        let Payload::Followed(Answer(held)) = answer(&untaken, now, length) else { panic!("it is followed") };
        let mut sent = 0;
        loop {
            let frame = std::future::poll_fn(|cx| held.lock().poll(now, cx)).await;
            match frame {
                None => return (sent, false),
                Some(Ok(frame)) => sent += frame.data_ref().map_or(0, Buf::remaining),
                Some(Err(_)) => return (sent, true),
            }
            now += Duration::from_secs(seconds);
        }
    }

    #[tokio::test]
    async fn who_takes_little_now_and_then_gets_no_more_than_a_slow_line_would() {
        const LENGTH: usize = 64 << 20;
        // Frames are of 256 KiB: eight seconds each on a slow line.
        for seconds in [0, 1, 8] {
            assert_eq!(take_every(seconds, LENGTH).await, (LENGTH, false), "every {seconds} s");
        }
        for seconds in [12, 30, 59] {
            let (sent, torn) = take_every(seconds, LENGTH).await;
            assert!(torn && sent < LENGTH / 10, "every {seconds} s: {sent}");
        }
    }

    #[test]
    fn what_comes_too_slowly_is_given_back_when_others_come() {
        let (untaken, begun) = (Untaken::new(PATIENCE), Instant::now());
        let now = begun + 2 * PATIENCE;
        for (taken, sent, late) in
            [(now, 59 * SLOW_LINE, true), (now, 61 * SLOW_LINE, false), (begun, 61 * SLOW_LINE, true)]
        {
            let body = Some(Payload::empty());
            let share = Share::new(&untaken.room, &"".into(), 0);
            let held = Arc::new(Mutex::new(Held { body, patience: PATIENCE, begun, taken, sent, share }));
            untaken.begin(begun, &held);
            let others = answer(&untaken, now, 2 * SMALL);
            assert_eq!(held.lock().body.is_none(), late, "{sent}");
            drop((held, others));
        }
    }

    #[tokio::test]
    async fn what_is_taken_is_not_followed_any_more() {
        let patient = Untaken::new(Duration::from_secs(3600));
        let now = Instant::now();
        let mut slow = answer(&patient, now, 2 * SMALL);
        for _ in 0..1000 {
            drop(answer(&patient, now, 2 * SMALL));
        }
        assert!(patient.answers.lock().len() < 100);
        assert!(slow.frame().await.is_some_and(|frame| frame.is_ok()));
    }
}
