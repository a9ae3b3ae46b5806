//! Work in parts, each of which one of several instances works on at a time.
//!
//! To which part a plane or namespace belongs follows from its name alone, so that all instances agree. A part that is taken is
//! worked on once every informer has its objects; one that is given back is drained first, and what does not end then is cut off.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Time that reconciles in flight have to end when a part is released.
const DRAIN: Duration = Duration::from_secs(4);

/// A number that depends on all of some words, evenly spread, and the same in every process (FNV-1a, then mixed).
pub(crate) fn spread(words: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in words.iter().flat_map(|word| word.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The parts that an instance has.
#[derive(Debug)]
pub(crate) struct Parts {
    count: u32,
    own: Mutex<BTreeMap<u32, OwnedPart>>,
}

/// A part that this instance has.
#[derive(Debug)]
struct OwnedPart {
    /// Whether informers are still to see its objects.
    arriving: bool,
    /// Cancels the work in flight.
    cut: CancellationToken,
    running: watch::Sender<usize>,
}

/// Work in a plane, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct PartGuard {
    running: watch::Sender<usize>,
    cut: CancellationToken,
}

impl Drop for PartGuard {
    fn drop(&mut self) {
        self.running.send_modify(|running| *running -= 1);
    }
}

impl PartGuard {
    /// Does some work, unless it is cut off; `None` then.
    pub(crate) async fn during<T>(self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.cut.cancelled() => None,
        }
    }
}

impl Parts {
    pub(crate) fn new(count: u32) -> Self {
        Self { count: count.max(1), own: Mutex::default() }
    }

    /// How many parts there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// The part that the work with a name of some words belongs to.
    pub(crate) fn of(&self, words: &[&str]) -> u32 {
        u32::try_from(spread(words) % u64::from(self.count)).unwrap_or(0)
    }

    /// Whether this instance has a part; `Some(true)` while it arrives.
    pub(crate) fn arriving(&self, part: u32) -> Option<bool> {
        self.own.lock().get(&part).map(|own| own.arriving)
    }

    /// Begins work in a part; `None` if another instance has it.
    pub(crate) fn begin(&self, part: u32) -> Option<PartGuard> {
        let own = self.own.lock();
        let own = own.get(&part)?;
        own.running.send_modify(|running| *running += 1);
        Some(PartGuard { running: own.running.clone(), cut: own.cut.clone() })
    }

    pub(crate) fn take(&self, part: u32) {
        let own = OwnedPart { arriving: true, cut: CancellationToken::new(), running: watch::Sender::new(0) };
        self.own.lock().insert(part, own);
    }

    pub(crate) fn arrived(&self, part: u32) {
        if let Some(own) = self.own.lock().get_mut(&part) {
            own.arriving = false;
        }
    }

    /// Stops new work in a part and waits for the work in flight, which is cancelled after [`DRAIN`].
    pub(crate) async fn give_back(&self, part: u32) {
        self.end(part, DRAIN).await;
    }

    /// Cancels the work in flight in a part and returns when it has ended.
    pub(crate) async fn cut(&self, part: u32) {
        self.end(part, Duration::ZERO).await;
    }

    async fn end(&self, part: u32, patience: Duration) {
        let Some(own) = self.own.lock().remove(&part) else { return };
        let mut running = own.running.subscribe();
        if tokio::time::timeout(patience, running.wait_for(|running| *running == 0)).await.is_err() {
            tracing::warn!(part, "reconciles did not end in time");
            own.cut.cancel();
            // What was cut off is dropped when its task runs next.
            let _ = running.wait_for(|running| *running == 0).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_spread_over_parts_the_same_way_everywhere() {
        let parts = Parts::new(8);
        let mut counts = [0; 8];
        (0..8000).for_each(|n| counts[parts.of(&[&format!("p{n}")]) as usize] += 1);
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
        assert_ne!(spread(&["a", "b"]), spread(&["ab"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_is_given_back_when_nothing_runs_in_it() {
        let parts = std::sync::Arc::new(Parts::new(1));
        assert!(parts.begin(0).is_none() && parts.arriving(0).is_none());
        parts.take(0);
        assert_eq!(parts.arriving(0), Some(true));
        parts.arrived(0);
        let turn = parts.begin(0).unwrap();
        let giving = tokio::spawn({
            let parts = parts.clone();
            async move { parts.give_back(0).await }
        });
        tokio::task::yield_now().await;
        assert!(parts.begin(0).is_none() && !giving.is_finished());
        assert_eq!(turn.during(async { 7 }).await, Some(7));
        giving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_end_is_cut_off() {
        let parts = Parts::new(1);
        parts.take(0);
        let turn = parts.begin(0).unwrap();
        let (done, ()) = tokio::join!(turn.during(std::future::pending::<()>()), parts.give_back(0));
        assert_eq!(done, None);
    }
}
