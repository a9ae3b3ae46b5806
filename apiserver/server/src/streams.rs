//! The watches of a connection, driven by the connection's own task.
//!
//! HTTP/2 gives each request a task, and requests of one connection are to run on several threads. For a watch that is
//! a task to be scheduled for each event, and a connection that is woken by each of them. So a request that has become
//! a watch is handed over to its connection: an event wakes one task there, which takes what its watches have to say and
//! writes all of it.

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered, task::AtomicWaker};
use hyper::rt::Executor;
use parking_lot::Mutex;
use std::{
    cell::Cell,
    future::{Future, poll_fn},
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

type Watching = Pin<Box<dyn Future<Output = ()> + Send>>;

tokio::task_local! {
    /// Whether the request that is being served has become a watch.
    static IS_WATCH: Cell<bool>;
}

/// Has the request that is being served handed over to its connection.
pub(crate) fn is_watch() {
    // A request of HTTP/1 has no task but its connection's.
    let _ = IS_WATCH.try_with(|is_watch| is_watch.set(true));
}

/// Runs the requests of one connection.
#[derive(Clone)]
pub(crate) struct Requests(Arc<Handed>);

/// The watches of one connection.
pub(crate) struct Watches {
    handed: Arc<Handed>,
    all: FuturesUnordered<Watching>,
}

/// What was handed over and is not driven yet.
#[derive(Default)]
struct Handed {
    watches: Mutex<Vec<Watching>>,
    connection: AtomicWaker,
}

/// A request with a task of its own, as long as it is no watch.
struct Request<F> {
    stream: Option<Pin<Box<F>>>,
    to: Arc<Handed>,
}

/// Both sides of one connection.
pub(crate) fn of_connection() -> (Requests, Watches) {
    let handed = Arc::<Handed>::default();
    (Requests(handed.clone()), Watches { handed, all: FuturesUnordered::new() })
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Requests {
    fn execute(&self, stream: F) {
        tokio::spawn(Request { stream: Some(Box::pin(stream)), to: self.0.clone() });
    }
}

impl<F: Future<Output = ()> + Send + 'static> Future for Request<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Some(stream) = &mut this.stream else { return Poll::Ready(()) };
        let (polled, is_watch) = IS_WATCH.sync_scope(Cell::new(false), || {
            let polled = stream.as_mut().poll(cx);
            (polled, IS_WATCH.with(Cell::get))
        });
        if polled.is_pending() && !is_watch {
            return Poll::Pending;
        }
        if let Some(stream) = this.stream.take().filter(|_| polled.is_pending()) {
            // What panics ends alone, as it would in its own task.
            let alone = AssertUnwindSafe(stream).catch_unwind().map(drop);
            this.to.watches.lock().push(Box::pin(alone));
            this.to.connection.wake();
        }
        Poll::Ready(())
    }
}

impl Watches {
    /// Has all watches that were woken say what they have to, within a turn of the connection's task.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        self.handed.connection.register(cx.waker());
        self.all.extend(std::mem::take(&mut *self.handed.watches.lock()));
        if self.all.is_empty() {
            return;
        }
        // One task's share of polls would be used up by some of them, and the others woken again for nothing.
        let all = poll_fn(|cx| {
            while let Poll::Ready(Some(())) = self.all.poll_next_unpin(cx) {}
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
        let (requests, mut watches) = of_connection();
        let (go, wait) = oneshot::channel();
        let (done, ended) = oneshot::channel();
        requests.execute(async move {
            is_watch();
            wait.await.unwrap();
            done.send(tokio::task::id()).unwrap();
        });
        let mut ended = pin!(ended);
        let (mut go, mut turns) = (Some(go), 0);
        let task = tokio::spawn(async move {
            let drive = poll_fn(|cx| {
                watches.poll(cx);
                turns += 1;
                if !watches.all.is_empty() {
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
    async fn a_watch_that_panics_ends_alone_and_other_requests_have_tasks_of_their_own() {
        let (requests, mut watches) = of_connection();
        let ended = Arc::new(AtomicUsize::new(0));
        for panics in [true, false] {
            let ended = ended.clone();
            requests.execute(async move {
                is_watch();
                tokio::task::yield_now().await;
                assert!(!panics, "as it is meant to");
                ended.fetch_add(1, Ordering::Relaxed);
            });
        }
        let (done, answered) = oneshot::channel();
        requests.execute(async move { done.send(()).unwrap() });
        answered.await.unwrap();
        let drive = poll_fn(|cx| {
            watches.poll(cx);
            if ended.load(Ordering::Relaxed) == 1 && watches.all.is_empty() {
                return Poll::Ready(());
            }
            Poll::Pending
        });
        drive.await;
    }
}
