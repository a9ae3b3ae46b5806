//! Addresses of names that tenants wrote, looked up without anybody else waiting for that.
//!
//! The system's resolver blocks a thread for as long as a name server takes, and giving a lookup up doesn't end it. So a
//! lookup has a thread of its own, never one of the pool that serves files and the store. Of one control plane only a few
//! are under way, of all together some more, and a place is free again when the lookup has ended, not when its caller has
//! lost patience.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Lookups of one share that are under way.
const OF_SHARE: usize = 4;
/// Lookups of all shares that are under way.
const OF_ALL: usize = 256;
/// Lookups of one share that are under way or wait for a place.
const MAX_WAITING: usize = 256;
/// Shares that are remembered before those are forgotten that have nothing under way.
const MAX_SHARES: usize = 4096;
/// How long a lookup waits for a place.
const PATIENCE: Duration = Duration::from_secs(5);
/// Stack of a lookup's thread.
const STACK: usize = 512 << 10;

type Lookup = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Looks names up, with a share for each control plane.
pub struct Resolver {
    shares: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
    all: Arc<Semaphore>,
    lookup: Box<Lookup>,
}

static SYSTEM: LazyLock<Arc<Resolver>> = LazyLock::new(|| {
    Resolver::new(OF_ALL, |name, port| (name, port).to_socket_addrs().map(Iterator::collect))
});

/// Looks a name up as the system does, on behalf of a share: a control plane, or a part of the program.
///
/// # Errors
/// The name has no address, or too many lookups of the share, or of all shares, are under way.
pub async fn lookup(share: &str, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    SYSTEM.lookup(share, name, port).await
}

/// A lookup's places, which it keeps until it has ended.
struct Places {
    resolver: Arc<Resolver>,
    share: Box<str>,
    /// Given back before the share is looked at.
    own: Option<OwnedSemaphorePermit>,
    _of_all: OwnedSemaphorePermit,
}

impl Drop for Places {
    fn drop(&mut self) {
        self.own = None;
        self.resolver.tidy(&self.share);
    }
}

impl Resolver {
    /// A resolver with so many lookups under way at once, each done by `lookup` in a thread of its own.
    pub fn new(
        at_once: usize,
        lookup: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let all = Arc::new(Semaphore::new(at_once));
        Arc::new(Self { shares: Mutex::default(), all, lookup: Box::new(lookup) })
    }

    /// Looks a name up on behalf of a share.
    ///
    /// # Errors
    /// The name has no address, or too many lookups of the share, or of all shares, are under way.
    pub async fn lookup(self: &Arc<Self>, share: &str, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = name.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let places = self.places(share).await?;
        let (answer, answered) = oneshot::channel();
        let (resolver, name) = (self.clone(), name.to_owned());
        let thread = std::thread::Builder::new().name("lookup".to_owned()).stack_size(STACK);
        thread.spawn(move || {
            let found = (resolver.lookup)(&name, port);
            drop(places);
            let _ = answer.send(found);
        })?;
        answered.await.unwrap_or_else(|_| Err(io::Error::other("the lookup broke off")))
    }

    async fn places(self: &Arc<Self>, share: &str) -> io::Result<Places> {
        let own = {
            let mut shares = self.shares.lock();
            // Whoever gave up while it waited may have left its share behind.
            if shares.len() > MAX_SHARES {
                shares.retain(|_, own| Arc::strong_count(own) > 1);
            }
            let own = shares.entry(share.into()).or_insert_with(|| Arc::new(Semaphore::new(OF_SHARE)));
            // The table itself has one.
            if Arc::strong_count(own) > MAX_WAITING {
                return Err(full("this control plane"));
            }
            own.clone()
        };
        let waiting = async {
            let own = tokio::time::timeout(PATIENCE, own.acquire_owned()).await;
            let own = own.ok().and_then(Result::ok).ok_or_else(|| full("this control plane"))?;
            let all = tokio::time::timeout(PATIENCE, self.all.clone().acquire_owned()).await;
            let all = all.ok().and_then(Result::ok).ok_or_else(|| full("this server"))?;
            Ok((own, all))
        };
        match waiting.await {
            Ok((own, of_all)) => {
                Ok(Places { resolver: self.clone(), share: share.into(), own: Some(own), _of_all: of_all })
            }
            Err(error) => {
                self.tidy(share);
                Err(error)
            }
        }
    }

    /// Forgets a share that has nothing under way.
    fn tidy(&self, share: &str) {
        let mut shares = self.shares.lock();
        if shares.get(share).is_some_and(|own| Arc::strong_count(own) == 1) {
            shares.remove(share);
        }
    }
}

fn full(whose: &str) -> io::Error {
    io::Error::other(format!(
        "too many lookups of names on behalf of {whose} are under way: their name servers answer too slowly"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A resolver whose names that begin with `slow` are found when the sender is dropped.
    fn resolver(at_once: usize) -> (Arc<Resolver>, mpsc::Sender<()>) {
        let (sender, receiver) = mpsc::channel::<()>();
        let receiver = Mutex::new(receiver);
        let resolver = Resolver::new(at_once, move |name, port| {
            if name.starts_with("slow") {
                let _ = receiver.lock().recv();
            }
            Ok(vec![SocketAddr::new([192, 0, 2, 1].into(), port)])
        });
        (resolver, sender)
    }

    #[tokio::test(start_paused = true)]
    async fn slow_names_of_one_plane_keep_no_other_waiting() {
        let (resolver, slow) = resolver(OF_ALL);
        for nth in 0..10 {
            // Whoever gives up frees no place: the threads are still there.
            let asked = resolver.lookup("a", "slow.example", nth);
            assert!(tokio::time::timeout(Duration::from_millis(1), asked).await.is_err());
        }
        let refused = resolver.lookup("a", "quick.example", 1).await.unwrap_err().to_string();
        assert!(refused.contains("on behalf of this control plane"), "{refused}");
        assert_eq!(resolver.all.available_permits(), OF_ALL - OF_SHARE);
        // With a clock that only moves when all is idle, an answer of a thread has to be waited for outside of it.
        tokio::time::resume();
        assert_eq!(resolver.lookup("b", "quick.example", 1).await.unwrap().len(), 1);
        drop(slow);
        assert_eq!(resolver.lookup("a", "quick.example", 1).await.unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn all_planes_together_have_a_limit_and_addresses_need_no_lookup() {
        let (resolver, slow) = resolver(1);
        let asked = resolver.lookup("a", "slow.example", 1);
        assert!(tokio::time::timeout(Duration::from_millis(1), asked).await.is_err());
        let refused = resolver.lookup("b", "quick.example", 1).await.unwrap_err().to_string();
        assert!(refused.contains("on behalf of this server"), "{refused}");
        for address in ["192.0.2.7", "2001:db8::1"] {
            assert_eq!(resolver.lookup("b", address, 1).await.unwrap()[0].ip().to_string(), address);
        }
        drop(slow);
    }

    #[tokio::test]
    async fn a_share_without_lookups_is_forgotten() {
        let (resolver, _slow) = resolver(OF_ALL);
        for share in 0..100 {
            resolver.lookup(&share.to_string(), "quick.example", 1).await.unwrap();
        }
        assert!(resolver.shares.lock().is_empty());
    }
}
