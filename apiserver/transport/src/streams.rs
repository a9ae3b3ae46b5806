//! The watches and large answers of a connection, driven by the connection's own task.
//!
//! HTTP/2 gives each request a task, and requests of one connection are to run on several threads. For a watch that is
//! a task to be scheduled for each event, and a connection that is woken by each of them. So a request that has become
//! a watch is handed over to its connection: an event wakes one task there, which takes what its watches have to say and
//! writes all of it. So is one whose answer is a large list: what is left to be done is to write it, which the
//! connection does, and the two would wake each other for each frame.
//!
//! Most requests wait for nothing: what is asked for is in memory. So a request is polled once where it is read, and has
//! a task only if it waits; its answer goes out with those of the requests that came with it. A connection does that for
//! a moment in each of its turns, as others wait for its thread: what it reads after that has tasks at once.

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered, task::AtomicWaker};
use hyper::rt::Executor;
use parking_lot::Mutex;
use std::{
    cell::Cell,
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{
            AtomicU8,
            Ordering::{AcqRel, Acquire},
        },
    },
    task::{Context, Poll, Wake, Waker},
    time::{Duration, Instant},
};

/// For how long a connection does what its requests ask for within one of its turns.
const MOMENT: Duration = Duration::from_micros(300);

type Sending = Pin<Box<dyn Future<Output = ()> + Send>>;

tokio::task_local! {
    /// Whether the request that is being served is the connection's to drive.
    static HANDED_OVER: Cell<bool>;
}

/// Has the request that is being served handed over to its connection: all that is left of it is to send what there is.
pub fn hand_over() {
    // A request of HTTP/1 has no task but its connection's.
    let _ = HANDED_OVER.try_with(|handed_over| handed_over.set(true));
}

/// A request that is polled elsewhere, and whether it is to be handed over.
pub async fn noting<T>(request: impl Future<Output = T>) -> (T, bool) {
    let noted = async { (request.await, HANDED_OVER.with(Cell::get)) };
    HANDED_OVER.scope(Cell::new(false), noted).await
}

/// Runs the requests of one connection.
#[derive(Clone)]
pub struct Requests(Arc<Handed>);

/// What one connection drives itself.
pub struct Driven {
    handed: Arc<Handed>,
    all: FuturesUnordered<Sending>,
    round: Arc<Round>,
}

/// Says whether somebody was woken while all were polled. HTTP/2 wakes a stream each time that it gives it room, in the
/// midst of its own poll, and the set stops at the second one that is woken so. The others were to wait for the
/// connection's next turn, and what is said would go out two at a time.
#[derive(Default)]
struct Round {
    state: AtomicU8,
    connection: AtomicWaker,
}

const AT_REST: u8 = 0;
const POLLED: u8 = 1;
const WOKEN: u8 = 2;

impl Wake for Round {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(WOKEN, AcqRel) == AT_REST {
            self.connection.wake();
        }
    }
}

impl Round {
    /// Polls as long as somebody is woken by it, but not without end.
    fn poll(self: &Arc<Self>, cx: &mut Context<'_>, most: usize, mut all: impl FnMut(&mut Context<'_>)) {
        self.connection.register(cx.waker());
        let waker = Waker::from(self.clone());
        for _ in 0..most {
            // Exchanged and not stored: what was done before a wake that went unheard has to be seen now.
            self.state.swap(POLLED, AcqRel);
            all(&mut Context::from_waker(&waker));
            if self.state.compare_exchange(POLLED, AT_REST, AcqRel, Acquire).is_ok() {
                return;
            }
        }
        self.state.swap(AT_REST, AcqRel);
        cx.waker().wake_by_ref();
    }
}

/// What was handed over and is not driven yet.
#[derive(Default)]
struct Handed {
    requests: Mutex<Vec<Sending>>,
    connection: AtomicWaker,
    /// Until when requests are polled where they are read, in this turn of the connection.
    moment: Mutex<Option<Instant>>,
}

impl Handed {
    /// Takes a request that is to be driven by the connection.
    fn take(&self, stream: Sending) {
        self.requests.lock().push(stream);
        self.connection.wake();
    }
}

/// A request with a task of its own, until it is handed over.
struct Request {
    stream: Option<Sending>,
    to: Arc<Handed>,
}

/// Both sides of one connection.
pub fn of_connection() -> (Requests, Driven) {
    let handed = Arc::<Handed>::default();
    (Requests(handed.clone()), Driven { handed, all: FuturesUnordered::new(), round: Arc::default() })
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Requests {
    fn execute(&self, stream: F) {
        // What panics ends alone, as it would in its own task.
        let alone = AssertUnwindSafe(stream).catch_unwind().map(drop);
        let mut request = Request { stream: Some(Box::pin(alone)), to: self.0.clone() };
        let here = self.0.moment.lock().is_some_and(|end| Instant::now() < end);
        // Whoever would wake it has nobody to wake yet: its task polls it again.
        if !here || request.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending() {
            tokio::spawn(request);
        }
    }
}

impl Future for Request {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(stream) = &mut this.stream else { return Poll::Ready(()) };
        let (polled, handed_over) = HANDED_OVER.sync_scope(Cell::new(false), || {
            let polled = stream.as_mut().poll(cx);
            (polled, HANDED_OVER.with(Cell::get))
        });
        if polled.is_pending() && !handed_over {
            return Poll::Pending;
        }
        if let Some(stream) = this.stream.take().filter(|_| polled.is_pending()) {
            this.to.take(stream);
        }
        Poll::Ready(())
    }
}

impl Driven {
    /// Has all that were woken say what they have to, within a turn of the connection's task.
    pub fn poll(&mut self, cx: &mut Context<'_>) {
        *self.handed.moment.lock() = Some(Instant::now() + MOMENT);
        self.handed.connection.register(cx.waker());
        self.all.extend(std::mem::take(&mut *self.handed.requests.lock()));
        if self.all.is_empty() {
            return;
        }
        // One task's share of polls would be used up by some of them, and the others woken again for nothing.
        let (all, round) = (&mut self.all, &self.round);
        // Each is polled twice: to say what there is, and since it was given room for it.
        let most = 2 * all.len() + 1;
        let mut poll = |cx: &mut Context<'_>| {
            while let Poll::Ready(Some(())) = all.poll_next_unpin(cx) {}
        };
        let all = poll_fn(|cx| {
            round.poll(cx, most, &mut poll);
            Poll::Ready(())
        });
        let _ = pin!(tokio::task::unconstrained(all)).poll(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn a_request_that_becomes_a_watch_goes_on_in_the_task_of_its_connection() {
        let (requests, mut driven) = of_connection();
        let (go, wait) = oneshot::channel();
        let (done, ended) = oneshot::channel();
        requests.execute(async move {
            hand_over();
            wait.await.unwrap();
            done.send(tokio::task::id()).unwrap();
        });
        let mut ended = pin!(ended);
        let (mut go, mut turns) = (Some(go), 0);
        let task = tokio::spawn(async move {
            let drive = poll_fn(|cx| {
                driven.poll(cx);
                turns += 1;
                if !driven.all.is_empty() {
                    let _ = go.take().map(|go| go.send(()));
                }
                Poll::<()>::Pending
            });
            drive.await;
        });
        assert_eq!(poll_fn(|cx| ended.as_mut().poll(cx)).await.unwrap(), task.id());
        task.abort();
    }

    #[tokio::test]
    async fn a_request_that_waits_for_nothing_is_done_where_it_is_read_and_others_have_tasks() {
        let (requests, mut driven) = of_connection();
        let turn = poll_fn(|cx| {
            driven.poll(cx);
            Poll::Ready(())
        });
        turn.await;
        // The moment that its turn has, as long as this machine may take.
        let end = driven.handed.moment.lock().expect("a turn has a moment");
        *driven.handed.moment.lock() = Some(end + Duration::from_secs(60));
        let (done, mut answered) = oneshot::channel();
        requests.execute(async move { done.send(tokio::task::try_id()).unwrap() });
        assert_eq!(answered.try_recv(), Ok(tokio::task::try_id()), "by its connection, and at once");
        let (go, wait) = oneshot::channel::<()>();
        let (done, answered) = oneshot::channel();
        requests.execute(async move {
            wait.await.unwrap();
            done.send(tokio::task::try_id()).unwrap();
        });
        go.send(()).unwrap();
        assert_ne!(answered.await.unwrap(), tokio::task::try_id());
        let (kept, mut ended) = oneshot::channel::<()>();
        *driven.handed.moment.lock() = Some(Instant::now());
        requests.execute(async move { drop(kept) });
        assert_eq!(ended.try_recv(), Err(oneshot::error::TryRecvError::Empty), "its moment is over");
    }

    #[tokio::test]
    async fn a_watch_that_panics_ends_alone_and_other_requests_have_tasks_of_their_own() {
        let (requests, mut driven) = of_connection();
        let ended = Arc::new(AtomicUsize::new(0));
        for panics in [true, false] {
            let ended = ended.clone();
            requests.execute(async move {
                hand_over();
                tokio::task::yield_now().await;
                assert!(!panics, "as it is meant to");
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        let (done, answered) = oneshot::channel();
        requests.execute(async move { done.send(()).unwrap() });
        answered.await.unwrap();
        let drive = poll_fn(|cx| {
            driven.poll(cx);
            if ended.load(Ordering::Relaxed) == 1 && driven.all.is_empty() {
                return Poll::Ready(());
            }
            Poll::Pending
        });
        drive.await;
    }

    #[tokio::test]
    async fn all_that_are_woken_in_the_midst_of_their_poll_have_their_say_in_one_turn() {
        const ALL: usize = 50;
        let (requests, mut driven) = of_connection();
        let said = Arc::new(AtomicUsize::new(0));
        for _ in 0..ALL {
            let said = said.clone();
            let mut polls = 0;
            requests.execute(poll_fn(move |cx| {
                polls += 1;
                // The first is in a task of its own.
                if polls == 1 {
                    hand_over();
                } else if polls == 2 {
                    said.fetch_add(1, Ordering::Relaxed);
                    cx.waker().wake_by_ref();
                }
                if polls < 3 { Poll::Pending } else { Poll::Ready(()) }
            }));
        }
        while driven.handed.requests.lock().len() < ALL {
            tokio::task::yield_now().await;
        }
        let turn = poll_fn(|cx| {
            driven.poll(cx);
            Poll::Ready(())
        });
        turn.await;
        assert_eq!((said.load(Ordering::Relaxed), driven.all.len()), (ALL, 0));
    }
}
