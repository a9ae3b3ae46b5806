//! Answers about planes that are asked for on demand: one question for everybody who wants to know at the same time, whose
//! answer counts for a while.
//!
//! A question that has begun is asked to its end, even when nobody waits for it any more: so a client that comes and goes causes
//! no more questions than one that waits. Nothing is kept of a plane that nobody asks about for [`KEPT`].

use freehold_machinery::{PlaneId, Result, Status};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// For how long an answer counts, from the beginning of its question.
const FRESH: Duration = Duration::from_secs(15);
/// For how long it is kept for the question that follows.
const KEPT: Duration = Duration::from_secs(60);
/// Planes of which an answer is kept.
const PLANES: usize = 256;
/// Requests that wait for one answer.
const WAITING: usize = 256;

type Answer<T> = Shared<BoxFuture<'static, Result<Arc<T>>>>;

/// The last answers about planes.
pub(crate) struct Looks<T>(Mutex<HashMap<PlaneId, Look<T>>>);

struct Look<T> {
    begun: Instant,
    answer: Answer<T>,
}

impl<T> Default for Looks<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Send + Sync + 'static> Looks<T> {
    /// Returns the answer about a plane, which `ask` finds where none counts any more; it is given the answer before.
    ///
    /// # Errors
    /// What `ask` fails with, and 429 where too many requests wait already.
    pub(crate) async fn of(
        self: &Arc<Self>,
        plane: &PlaneId,
        ask: impl FnOnce(Option<Arc<T>>) -> BoxFuture<'static, Result<T>>,
    ) -> Result<Arc<T>> {
        let answer = self.begin(plane, Instant::now(), ask);
        if answer.strong_count().is_some_and(|waiting| waiting > WAITING) {
            return Err(Status::too_many_requests(
                "Too many requests wait for the nodes of this control plane.",
                1,
            ));
        }
        answer.await
    }

    fn begin(
        self: &Arc<Self>,
        plane: &PlaneId,
        now: Instant,
        ask: impl FnOnce(Option<Arc<T>>) -> BoxFuture<'static, Result<T>>,
    ) -> Answer<T> {
        let mut looks = self.0.lock();
        let before = match looks.get(plane) {
            Some(look) if !matches!(look.answer.peek(), Some(Err(_))) && now - look.begun < FRESH => {
                return look.answer.clone();
            }
            Some(look) => look.answer.peek().and_then(|answer| answer.clone().ok()),
            None => None,
        };
        let asked = tokio::spawn(ask(before));
        let answer = async move { asked.await.map_err(Status::internal)?.map(Arc::new) };
        let answer = answer.boxed().shared();
        make_room(&mut looks, plane, now);
        looks.insert(plane.clone(), Look { begun: now, answer: answer.clone() });
        let looks = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(KEPT).await;
            if let Some(looks) = looks.upgrade() {
                looks.0.lock().retain(|_, look| look.begun.elapsed() < KEPT);
            }
        });
        answer
    }
}

/// Forgets the plane that was asked about longest ago, where there are too many.
fn make_room<T>(looks: &mut HashMap<PlaneId, Look<T>>, plane: &PlaneId, now: Instant) {
    if looks.len() < PLANES || looks.contains_key(plane) {
        return;
    }
    looks.retain(|_, look| now - look.begun < KEPT);
    let oldest = looks.iter().min_by_key(|(_, look)| look.begun).map(|(plane, _)| plane.clone());
    if let Some(oldest) = oldest.filter(|_| looks.len() >= PLANES) {
        looks.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn plane(name: &str) -> PlaneId {
        name.parse().unwrap()
    }

    /// Answers with how often it was asked.
    fn counting(
        asked: &Arc<AtomicUsize>,
    ) -> impl Fn(Option<Arc<usize>>) -> BoxFuture<'static, Result<usize>> {
        let asked = asked.clone();
        move |_| {
            let asked = asked.clone();
            async move {
                tokio::task::yield_now().await;
                Ok(asked.fetch_add(1, Ordering::Relaxed) + 1)
            }
            .boxed()
        }
    }

    #[tokio::test]
    async fn those_who_ask_at_once_share_a_question_and_later_ones_its_answer() {
        let (looks, asked) = (Arc::new(Looks::default()), Arc::default());
        let (plane, now) = (plane("a"), Instant::now());
        let ask = counting(&asked);
        let (first, second) = (looks.begin(&plane, now, &ask), looks.begin(&plane, now, &ask));
        assert_eq!((*first.await.unwrap(), *second.await.unwrap()), (1, 1));
        assert_eq!(*looks.begin(&plane, now + FRESH / 2, &ask).await.unwrap(), 1);
        let before = |before: Option<Arc<usize>>| async move { Ok(*before.unwrap() + 10) }.boxed();
        assert_eq!(*looks.begin(&plane, now + FRESH, before).await.unwrap(), 11);
        assert_eq!(*looks.begin(&self::plane("b"), now, &ask).await.unwrap(), 2, "each plane has its own");
    }

    #[tokio::test]
    async fn a_failure_is_not_kept_and_a_question_outlives_who_asked() {
        let (looks, asked) = (Arc::new(Looks::default()), Arc::default());
        let plane = plane("a");
        let fail = |_| async { Err(Status::unavailable("no")) }.boxed();
        assert_eq!(looks.of(&plane, fail).await.unwrap_err().code, 503);
        drop(looks.begin(&plane, Instant::now(), counting(&asked)));
        assert_eq!(*looks.of(&plane, counting(&asked)).await.unwrap(), 1);
    }

    #[tokio::test]
    async fn so_many_planes_are_kept() {
        let looks = Arc::new(Looks::default());
        for number in 0..PLANES + 10 {
            looks.of(&plane(&format!("p{number}")), |_| async { Ok(()) }.boxed()).await.unwrap();
        }
        assert_eq!(looks.0.lock().len(), PLANES);
    }
}
