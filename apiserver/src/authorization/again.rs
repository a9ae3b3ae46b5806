//! What was allowed to those who stay (watches, upgraded connections) is asked again while they do: once for all who stay by
//! the same question, whenever the answers that allowed it may have ceased to count.

use super::{Authorization, authorizer::Authorizer};
use freehold_apiserver_authz::Decision;
use freehold_machinery::{Result, Value};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{sync::Semaphore, time::sleep};

/// Ends when what was allowed is refused. Not when nobody can be asked.
pub(crate) type Refused = Shared<BoxFuture<'static, ()>>;
type Key = [u8; 32];

/// Questions under way at a time: those who ask for the first time do not wait for them.
const AT_ONCE: usize = 16;
/// How often it is asked again where no answer is kept, and the shortest time between two questions.
const PERIOD: Duration = Duration::from_secs(30);
const SHORTEST: Duration = Duration::from_secs(1);

/// What is asked again.
pub(super) struct Again {
    questions: Mutex<HashMap<Key, WeakShared<BoxFuture<'static, ()>>>>,
    places: Semaphore,
}

impl Default for Again {
    fn default() -> Self {
        Self { questions: Mutex::default(), places: Semaphore::new(AT_ONCE) }
    }
}

impl Again {
    /// What goes on for a question, or what is begun for it.
    fn of(&self, key: Key, begin: impl FnOnce() -> BoxFuture<'static, ()>) -> Refused {
        let mut questions = self.questions.lock();
        let going_on = questions.get(&key).and_then(WeakShared::upgrade);
        if let Some(refused) = going_on.filter(|refused| refused.peek().is_none()) {
            return refused;
        }
        // Nobody waits for some of them any more.
        if questions.len() == questions.capacity() {
            questions.retain(|_, refused| refused.upgrade().is_some());
        }
        let refused = begin().shared();
        questions.extend(refused.downgrade().map(|weak| (key, weak)));
        refused
    }
}

impl Authorization {
    /// Ends when a question (the spec of a SubjectAccessReview, and whose view it is asked in), asked again, is refused. Unless
    /// it `was_allowed` here, only what is denied is refused, or what is allowed now and later is not. `own` is what the
    /// server's own rules say.
    pub(crate) fn refused(
        self: &Arc<Self>,
        (spec, view): (Value, &str),
        was_allowed: bool,
        own: impl Fn() -> BoxFuture<'static, Result<Decision>> + Send + Sync + 'static,
    ) -> Refused {
        let key: Key = Sha256::digest(format!("{view}\n{spec}")).into();
        let authorization = self.clone();
        // Those who came together do not ask together again.
        let pause = self.period().mul_f64(1.0 + f64::from(key[0]) / 2560.0);
        let asking = async move {
            let ask = async || {
                let _place = authorization.again.places.acquire().await;
                authorization.decide_on(&spec, own()).await
            };
            let mut allowed = was_allowed || ask().await.is_ok_and(|now| now.allowed);
            loop {
                sleep(pause).await;
                match ask().await {
                    Ok(now) if now.denied || allowed && !now.allowed => return,
                    Ok(now) => allowed |= now.allowed,
                    // Who can't be asked refuses nothing.
                    Err(status) => tracing::debug!(%status, "what was allowed could not be asked again"),
                }
            }
        };
        self.again.of(key, || asking.boxed())
    }

    /// How long those who allow something are believed, at the shortest.
    fn period(&self) -> Duration {
        let chain = self.current.load();
        let counts = chain.iter().filter_map(|authorizer| match authorizer {
            Authorizer::Own => None,
            Authorizer::Webhook(webhook) => Some(webhook.allowed_counts).filter(|time| !time.is_zero()),
        });
        counts.min().unwrap_or(PERIOD).max(SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future;

    #[test]
    fn those_who_stay_by_the_same_question_ask_it_together() {
        let again = Again::default();
        let begin = || future::pending().boxed();
        let (one, other) = (again.of([1; 32], begin), again.of([1; 32], || unreachable!("it goes on")));
        assert!(one.ptr_eq(&other));
        drop((one, other));
        for number in 2..=200 {
            drop(again.of([number; 32], begin));
        }
        assert!(again.questions.lock().len() < 100, "what nobody waits for is forgotten");
    }
}
