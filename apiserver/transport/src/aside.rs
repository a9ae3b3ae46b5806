//! Requests that take long, done where nobody else waits for them.
//!
//! A thread of the runtime serves many requests in turns, and a request keeps it from one await to the next: some 30 ms to
//! decode, check and encode a megabyte, in which all that wait for this thread wait. So a request that is estimated to take
//! long goes on aside, on threads of its own: one less than there are processors, at a lower priority, so
//! that the others are run at once when they have something to do. Only its polls are done there. Its timers, the tasks that it begins and
//! the sending of its answer are the runtime's, as everybody's. The threads take owners in turns (`turns`), so that whoever has many such
//! requests at once keeps others waiting for one of them alone.

use crate::{
    streams,
    turns::{Owner, Turns},
};
use futures_util::future::{BoxFuture, FutureExt};
use std::{
    cell::Cell,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, resume_unwind},
    pin::Pin,
    sync::LazyLock,
    task::{Context, Poll, ready},
};
use tokio::{runtime::Handle, sync::oneshot};

/// Whose work is nobody's in particular: it goes on by small pieces.
const PIECES: Owner = Owner(0);

tokio::task_local! {
    /// Whose request is being served, once it is to go on aside.
    static MOVES: Cell<Option<Owner>>;
}

/// The threads, made for the first request that takes long. `None` where the system gives none.
static THREADS: LazyLock<Option<Turns>> = LazyLock::new(|| {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = Turns::start(processors.saturating_sub(1).max(1));
    threads.inspect_err(|error| tracing::warn!(%error, "no threads for requests that take long")).ok()
});

/// Has the request that is being served go on aside, in the turns of its owner.
pub async fn go(owner: Owner) {
    let mut asked = false;
    let gone = poll_fn(|_| {
        // Outside of a request, and where there are no threads, it goes on where it is.
        let goes = !std::mem::replace(&mut asked, true)
            && THREADS.is_some()
            && MOVES.try_with(|moves| moves.set(Some(owner))).is_ok();
        if goes { Poll::Pending } else { Poll::Ready(()) }
    });
    gone.await;
}

/// A request that may go on aside.
pub struct Movable<T> {
    here: Option<BoxFuture<'static, T>>,
    there: Option<oneshot::Receiver<Answer<T>>>,
}

impl<T: Send + 'static> Movable<T> {
    /// One that begins where it is polled.
    pub fn new(request: BoxFuture<'static, T>) -> Self {
        Self { here: Some(request), there: None }
    }
}

impl<T: Send + 'static> Future for Movable<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        if let Some(here) = &mut this.here {
            let (polled, moves) = MOVES.sync_scope(Cell::new(None), || {
                let polled = here.as_mut().poll(cx);
                (polled, MOVES.with(Cell::get))
            });
            let Some(owner) = moves.filter(|_| polled.is_pending()) else { return polled };
            this.there = this
                .here
                .take()
                .zip(THREADS.as_ref())
                .map(|(request, threads)| send(threads, owner, request));
        }
        let Some(there) = &mut this.there else { return Poll::Pending };
        match ready!(there.poll_unpin(cx)) {
            Ok(Ok((output, handed_over))) => {
                if handed_over {
                    streams::hand_over();
                }
                Poll::Ready(output)
            }
            Ok(Err(panic)) => resume_unwind(panic),
            // Nobody else ends these threads.
            Err(gone) => resume_unwind(Box::new(gone)),
        }
    }
}

/// What is sent back: the output and whether the request is to be handed over, or the panic that ended it.
type Answer<T> = std::thread::Result<(T, bool)>;

/// Sends a request to the threads. It ends there when nobody waits for it any more.
fn send<T: Send + 'static>(
    threads: &Turns,
    owner: Owner,
    request: BoxFuture<'static, T>,
) -> oneshot::Receiver<Answer<T>> {
    let (mut answer, answered) = oneshot::channel();
    let request = async move {
        let request = AssertUnwindSafe(streams::noting(request)).catch_unwind();
        let done = tokio::select! {
            biased;
            () = answer.closed() => return,
            done = request => done,
        };
        // Or it has just been given up.
        let _ = answer.send(done);
    };
    threads.spawn(owner, OfRuntime { runtime: Handle::current(), request: Box::pin(request) }.boxed());
    answered
}

/// Begins a task that takes long, by small pieces.
pub fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    match THREADS.as_ref() {
        Some(threads) => {
            threads.spawn(PIECES, OfRuntime { runtime: Handle::current(), request: Box::pin(task) }.boxed());
        }
        None => drop(tokio::spawn(task)),
    }
}

/// A request that is polled elsewhere, for which the runtime is still its own.
struct OfRuntime {
    runtime: Handle,
    request: BoxFuture<'static, ()>,
}

impl Future for OfRuntime {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let _entered = this.runtime.enter();
        this.request.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turns::NICE;
    use std::{sync::mpsc, time::Duration};

    const PATIENCE: Duration = Duration::from_secs(60);
    const OWNER: Owner = Owner(1);

    fn movable<T: Send + 'static>(request: impl Future<Output = T> + Send + 'static) -> Movable<T> {
        Movable::new(Box::pin(request))
    }

    #[tokio::test]
    async fn what_goes_aside_is_done_by_threads_of_lower_priority_and_keeps_its_runtime() {
        let thread = || std::thread::current().name().map(str::to_owned).unwrap_or_default();
        let request = movable(async move {
            let before = thread();
            go(OWNER).await;
            let (after, nice) = (thread(), rustix::process::getpriority_process(None));
            tokio::time::sleep(Duration::from_millis(1)).await;
            (before, after, nice, tokio::spawn(async move { thread() }).await)
        });
        let (before, after, nice, spawned) = request.await;
        assert_eq!((after.starts_with("aside-"), nice), (true, Ok(NICE)), "{after}");
        assert_eq!(spawned.unwrap(), before, "tasks that it begins are the runtime's");
    }

    #[tokio::test]
    async fn others_are_served_by_the_only_thread_of_a_runtime_meanwhile() {
        let (tell, told) = mpsc::channel();
        let long = tokio::spawn(movable(async move {
            go(OWNER).await;
            told.recv_timeout(PATIENCE)
        }));
        tokio::spawn(async move { tell.send(()) });
        assert_eq!(long.await.unwrap(), Ok(()));
    }

    #[tokio::test]
    async fn who_gives_a_request_up_ends_it_there_too() {
        let (kept, gone) = oneshot::channel::<()>();
        let (begin, begun) = oneshot::channel();
        let request = movable(async move {
            go(OWNER).await;
            begin.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(kept);
        });
        let waits = tokio::spawn(request);
        begun.await.unwrap();
        waits.abort();
        assert!(tokio::time::timeout(PATIENCE, gone).await.unwrap().is_err(), "what it held is dropped");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_has_many_long_requests_keeps_others_waiting_for_few_of_them() {
        let done = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = || {
            let done = done.clone();
            async move {
                go(Owner(2)).await;
                std::thread::sleep(Duration::from_millis(20));
                done.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        };
        let flood: Vec<_> = (0..100).map(|_| tokio::spawn(movable(count()))).collect();
        let before = done.clone();
        let mine = movable(async move {
            go(Owner(3)).await;
            before.load(std::sync::atomic::Ordering::SeqCst)
        });
        assert!(mine.await < 90, "it came after nearly all of them");
        for request in flood {
            request.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_panic_aside_is_the_requests_own() {
        for _ in 0..4 {
            let request = movable(async {
                go(OWNER).await;
                panic!("as it is meant to");
            });
            assert!(tokio::spawn(request).await.unwrap_err().is_panic());
        }
        assert_eq!(movable(async { (go(OWNER).await, 3).1 }).await, 3, "the threads are still there");
    }
}
