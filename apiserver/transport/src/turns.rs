//! Threads that run tasks in turns of their owners.

use futures_util::{
    future::BoxFuture,
    task::{ArcWake, waker_ref},
};
use parking_lot::{Condvar, Mutex};
use std::{
    collections::{HashMap, VecDeque},
    hash::{DefaultHasher, Hasher as _},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

/// How nice these threads are, of 19 at most: one of them gets a tenth of a processor that another thread wants for itself.
/// At 19 it would get a seventieth, and who waits for a lock that it holds would wait for that.
pub(crate) const NICE: i32 = 10;
/// The stack of each, as of the runtime's threads.
const STACK: usize = 8 << 20;

/// Whose a task is, such as the hash of an organization's name: two owners with one number share their turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owner(pub u64);

impl Owner {
    /// The owner of a name.
    pub fn named(name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(name.as_bytes());
        Self(hasher.finish())
    }
}

/// Threads of low priority, and what is ready to be polled by them.
pub(crate) struct Turns(Arc<Ready>);

#[derive(Default)]
struct Ready {
    waiting: Mutex<Waiting>,
    came: Condvar,
}

/// The tasks that are ready, by owner, and the owners that have some, in the order in which they come.
#[derive(Default)]
struct Waiting {
    tasks: HashMap<Owner, VecDeque<Arc<Task>>>,
    owners: VecDeque<Owner>,
}

impl Waiting {
    fn push(&mut self, task: Arc<Task>) {
        let owner = task.owner;
        let tasks = self.tasks.entry(owner).or_default();
        if tasks.is_empty() {
            self.owners.push_back(owner);
        }
        tasks.push_back(task);
    }

    /// The next task of the owner whose turn it is, who comes again after all others.
    fn pop(&mut self) -> Option<Arc<Task>> {
        let owner = self.owners.pop_front()?;
        let tasks = self.tasks.get_mut(&owner)?;
        let task = tasks.pop_front();
        match tasks.is_empty() {
            true => drop(self.tasks.remove(&owner)),
            false => self.owners.push_back(owner),
        }
        task
    }
}

struct Task {
    owner: Owner,
    /// `None` once it has ended.
    future: Mutex<Option<BoxFuture<'static, ()>>>,
    /// Whether it is among those that are ready.
    queued: AtomicBool,
    ready: Arc<Ready>,
}

impl ArcWake for Task {
    fn wake_by_ref(task: &Arc<Self>) {
        if !task.queued.swap(true, Ordering::AcqRel) {
            task.ready.waiting.lock().push(task.clone());
            task.ready.came.notify_one();
        }
    }
}

impl Task {
    fn poll(self: &Arc<Self>) {
        let mut future = self.future.lock();
        // Who wakes it from here on has it polled again.
        self.queued.store(false, Ordering::Release);
        let Some(polled) = future.as_mut() else { return };
        let polled = AssertUnwindSafe(|| polled.as_mut().poll(&mut Context::from_waker(&waker_ref(self))));
        // A panic has been told; the thread goes on with others.
        if !matches!(catch_unwind(polled), Ok(Poll::Pending)) {
            *future = None;
        }
    }
}

impl Turns {
    /// Starts so many threads.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(crate) fn start(threads: usize) -> io::Result<Self> {
        let ready = Arc::new(Ready::default());
        for number in 0..threads {
            let ready = ready.clone();
            let thread = std::thread::Builder::new().name(format!("aside-{number}")).stack_size(STACK);
            thread.spawn(move || work(&ready))?;
        }
        Ok(Self(ready))
    }

    /// Runs a task. One that panics has ended.
    pub(crate) fn spawn(&self, owner: Owner, future: BoxFuture<'static, ()>) {
        let task = Task {
            owner,
            future: Mutex::new(Some(future)),
            queued: AtomicBool::new(false),
            ready: self.0.clone(),
        };
        ArcWake::wake(Arc::new(task));
    }
}

/// Polls what is ready, for ever.
fn work(ready: &Ready) {
    // Without it they are but threads of their own.
    let _ = rustix::process::setpriority_process(None, NICE);
    loop {
        let mut waiting = ready.waiting.lock();
        let task = loop {
            match waiting.pop() {
                Some(task) => break task,
                None => ready.came.wait(&mut waiting),
            }
        };
        drop(waiting);
        task.poll();
    }
}
