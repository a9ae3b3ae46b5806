//! The containers that run now: what `exec`, `attach` and `portforward` reach.

use crate::logbook::Key;
use crate::probe::Target;
use crate::process::Ends;
use crate::terminal::Terminal;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::broadcast;

/// Pieces of output that may wait for a client that is attached. One that is slower misses some: a container never waits for it.
const WAITING_PIECES: usize = 256;

/// A stream that a process writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Errors,
}

type Piece = (Stream, Bytes);

/// A running container.
pub(crate) struct RunningContainer {
    pub(crate) target: Arc<Target>,
    /// Its first process, which is the number of its group.
    process: i32,
    /// Its terminal, where it has one.
    pub(crate) terminal: Option<Terminal>,
    /// What it reads from, where it has `stdin: true` and nobody has closed it.
    pub(crate) input: tokio::sync::Mutex<Option<Box<dyn AsyncWrite + Send + Unpin>>>,
    /// Whether its input ends with the first client that was attached.
    pub(crate) is_input_once: bool,
    output: Mutex<Option<broadcast::Sender<Piece>>>,
}

impl RunningContainer {
    /// A container that has just started. Gives what it writes, which attached clients see when it is read.
    pub(crate) fn new(
        target: Arc<Target>,
        process: i32,
        ends: Ends,
        is_input_once: bool,
    ) -> (Self, [Option<Tee>; 2]) {
        let (sender, _) = broadcast::channel(WAITING_PIECES);
        let tee = |from: Option<Box<dyn AsyncRead + Send + Unpin>>, stream| {
            from.map(|from| Tee { from, stream, to: sender.clone() })
        };
        let tees = [tee(ends.output, Stream::Output), tee(ends.errors, Stream::Errors)];
        let input = tokio::sync::Mutex::new(ends.input);
        let output = Mutex::new(Some(sender));
        (Self { target, process, terminal: ends.terminal, input, is_input_once, output }, tees)
    }

    /// What it writes from now on; nothing once it has ended.
    pub(crate) fn subscribe(&self) -> Option<broadcast::Receiver<Piece>> {
        self.output.lock().as_ref().map(broadcast::Sender::subscribe)
    }
}

/// What a process writes, as it is read: attached clients get a copy.
pub(crate) struct Tee {
    from: Box<dyn AsyncRead + Send + Unpin>,
    stream: Stream,
    to: broadcast::Sender<Piece>,
}

impl AsyncRead for Tee {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.from).poll_read(cx, buf))?;
        let new = &buf.filled()[before..];
        if !new.is_empty() && self.to.receiver_count() > 0 {
            // Whoever was attached may have left in between.
            let _ = self.to.send((self.stream, Bytes::copy_from_slice(new)));
        }
        Poll::Ready(Ok(()))
    }
}

/// All containers that run on this node.
#[derive(Default)]
pub(crate) struct RunningContainers(Mutex<HashMap<Key, Arc<RunningContainer>>>);

impl RunningContainers {
    /// Lists a container, until what this returns is dropped.
    pub(crate) fn list(self: &Arc<Self>, key: Key, container: RunningContainer) -> Listed {
        let container = Arc::new(container);
        self.0.lock().insert(key.clone(), container.clone());
        Listed { all: self.clone(), key, container }
    }

    /// A container by namespace, Pod and name.
    pub(crate) fn find(&self, key: &Key) -> Option<Arc<RunningContainer>> {
        self.0.lock().get(key).cloned()
    }

    /// The container that a process group is.
    pub(crate) fn of_process(&self, group: i32) -> Option<Key> {
        let all = self.0.lock();
        all.iter().find(|(_, container)| container.process == group).map(|(key, _)| key.clone())
    }

    /// The process groups of all containers.
    pub(crate) fn groups(&self) -> HashMap<i32, Key> {
        self.0.lock().iter().map(|(key, container)| (container.process, key.clone())).collect()
    }

    /// The address of a Pod of which a container runs.
    pub(crate) fn address(&self, namespace: &str, pod: &str) -> Option<IpAddr> {
        let all = self.0.lock();
        let found =
            all.iter().find(|((in_namespace, of_pod, _), _)| in_namespace == namespace && of_pod == pod);
        found.map(|(_, container)| container.target.address)
    }
}

/// Keeps a container in the list.
pub(crate) struct Listed {
    all: Arc<RunningContainers>,
    key: Key,
    container: Arc<RunningContainer>,
}

impl Drop for Listed {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if all.get(&self.key).is_some_and(|found| Arc::ptr_eq(found, &self.container)) {
            all.remove(&self.key);
        }
        self.container.output.lock().take();
    }
}
