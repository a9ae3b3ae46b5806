//! One webhook: whom it is asked about, what it answered, and what counts when it does not.

use super::opinion::Opinion;
use freehold_client::{Client, Error, RawRequest};
use freehold_machinery::Value;
use freehold_machinery_cel::{Budget, EvalError, Program, Variable};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// Answers that are kept of each, and the largest question whose answer is, in bytes (kube-apiserver's numbers).
const KEPT: usize = 8_192;
const LARGEST_KEPT: usize = 10_000;
/// Bytes of an answer.
pub(super) const LARGEST_ANSWER: usize = 1 << 20;
/// How often one that fails for a moment is asked, and the pause after the first time; each further one is half as long
/// again (likewise).
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
/// Questions under way at a time: more wait for their turn.
const AT_ONCE: usize = 256;

/// By the digest of the question: when the answer came, for how long it counts, and what it is.
type Answers = HashMap<[u8; 32], (Instant, Duration, Opinion)>;

/// A webhook.
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) client: Client,
    pub(super) version: String,
    pub(super) denies_on_error: bool,
    /// For how long it counts that it allowed.
    pub(super) allowed_counts: Duration,
    /// For how long any other answer counts.
    pub(super) others_count: Duration,
    pub(super) conditions: Vec<Arc<Program>>,
    pub(super) answers: Mutex<Answers>,
    pub(super) places: Semaphore,
}

impl Webhook {
    pub(super) fn places() -> Semaphore {
        Semaphore::new(AT_ONCE)
    }

    /// What it says, and why it could not be asked, where it could not.
    pub(super) async fn ask(&self, spec: &Value) -> (Opinion, Option<String>) {
        match self.matches(spec) {
            Ok(true) => {}
            Ok(false) => return (Opinion::None(String::new()), None),
            Err(error) => return self.failed(error),
        }
        let question = spec.to_string();
        let key: [u8; 32] = Sha256::digest(&question).into();
        if let Some((at, counts, opinion)) = self.answers.lock().get(&key)
            && at.elapsed() < *counts
        {
            return (opinion.clone(), None);
        }
        match self.call(spec).await {
            Ok((opinion, None)) => {
                if question.len() <= LARGEST_KEPT {
                    self.keep(key, &opinion);
                }
                (opinion, None)
            }
            Ok(both) => both,
            Err(error) => self.failed(error),
        }
    }

    /// Whether it is to be asked: one condition that is false says no, whatever others fail with.
    fn matches(&self, spec: &Value) -> Result<bool, String> {
        let mut outcome = Ok(true);
        let budget = Budget::default();
        for condition in &self.conditions {
            match condition.is_true(&[("request", Variable::Json(spec, None))], &budget) {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(error) => outcome = Err(unmatched(&error)),
            }
        }
        outcome
    }

    fn failed(&self, error: String) -> (Opinion, Option<String>) {
        tracing::warn!(webhook = self.name, error, "an authorization webhook failed");
        let opinion = match self.denies_on_error {
            true => Opinion::Deny(String::new()),
            false => Opinion::None(String::new()),
        };
        (opinion, Some(error))
    }

    fn keep(&self, key: [u8; 32], opinion: &Opinion) {
        let counts = match opinion {
            Opinion::Allow(_) => self.allowed_counts,
            Opinion::Deny(_) | Opinion::None(_) => self.others_count,
        };
        if counts.is_zero() {
            return;
        }
        let mut answers = self.answers.lock();
        if answers.len() >= KEPT {
            answers.retain(|_, (at, counts, _)| at.elapsed() < *counts);
            if answers.len() >= KEPT {
                answers.clear();
            }
        }
        answers.insert(key, (Instant::now(), counts, opinion.clone()));
    }

    async fn call(&self, spec: &Value) -> Result<(Opinion, Option<String>), String> {
        let mut spec = spec.clone();
        if self.version == "v1beta1"
            && let Some(map) = spec.as_object_mut()
            && let Some(groups) = map.remove("groups")
        {
            map.insert("group".into(), groups);
        }
        let review = json!({
            "apiVersion": format!("authorization.k8s.io/{}", self.version), "kind": "SubjectAccessReview",
            "metadata": {}, "spec": spec,
        });
        let request = RawRequest::new(Method::POST, "").json(&review);
        let mut pause = PAUSE;
        for left in (0..TRIES).rev() {
            let place = self.places.acquire().await.map_err(|error| error.to_string())?;
            let error = match self.client.once(&request).await {
                Ok(answer) if answer.status.is_success() => return read(&answer.body),
                Ok(answer) if left > 0 && is_passing(answer.status) => None,
                Ok(answer) => Some(format!("the webhook {:?} answered {}", self.name, answer.status)),
                // The connection broke; where there was none, there will be none in a moment.
                Err(Error::Transport { sent: true, .. }) if left > 0 => None,
                Err(error) => Some(error.to_string()),
            };
            if let Some(error) = error {
                return Err(error);
            }
            drop(place);
            tokio::time::sleep(pause).await;
            pause = pause * 3 / 2;
        }
        Err(format!("the webhook {:?} was not reached", self.name))
    }
}

/// Whether what failed may go well the next time.
fn is_passing(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::TOO_MANY_REQUESTS | StatusCode::GATEWAY_TIMEOUT
    )
}

fn unmatched(error: &EvalError) -> String {
    match error {
        EvalError::Failed(why) => format!("cel evaluation error: {why}"),
        other => format!("cel evaluation error: {other:?}"),
    }
}

/// What an answer says.
fn read(body: &[u8]) -> Result<(Opinion, Option<String>), String> {
    let answer: Value = serde_json::from_slice(body)
        .map_err(|error| format!("the answer of a webhook is no JSON: {error}"))?;
    let status = &answer["status"];
    let reason = status["reason"].as_str().unwrap_or_default().to_owned();
    Ok(match (status["allowed"] == true, status["denied"] == true) {
        (true, true) => {
            let why = "webhook subject access review returned both allow and deny response";
            (Opinion::Deny(reason), Some(why.to_owned()))
        }
        (true, false) => (Opinion::Allow(reason), None),
        (false, true) => (Opinion::Deny(reason), None),
        (false, false) => (Opinion::None(reason), None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_allows_denies_or_says_nothing() {
        let of = |status: Value| read(json!({"status": status}).to_string().as_bytes()).unwrap();
        assert_eq!(of(json!({"allowed": true, "reason": "r"})), (Opinion::Allow("r".into()), None));
        assert_eq!(of(json!({"denied": true})).0, Opinion::Deny(String::new()));
        assert_eq!(of(json!({"allowed": false, "reason": "r"})).0, Opinion::None("r".into()));
        let both = of(json!({"allowed": true, "denied": true}));
        assert!(both.0 == Opinion::Deny(String::new()) && both.1.is_some());
        assert!(read(b"no").is_err());
    }
}
