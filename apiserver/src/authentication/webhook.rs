//! A server that is asked about tokens
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#webhook-token-authentication>).

use super::settings::TokenWebhookConfig;
use anyhow::{Context, Result};
use freehold_apiserver_authn::remember::Remembered;
use freehold_client::{Client, Config, RawRequest};
use freehold_machinery::{
    User, Value,
    user::{AUTHENTICATED, Basis, Voucher},
};
use futures_util::{StreamExt, stream};
use http::Method;
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Weak},
    time::Duration,
};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Answers that are remembered (kube-apiserver's number).
const REMEMBERED: usize = 32 * 1024;
/// Questions under way at a time: an authenticator that hangs takes no more of the server than these.
const AT_ONCE: usize = 256;

/// How many of them are about tokens that it was asked about before, of which what goes on depends.
const AGAIN_AT_ONCE: usize = 16;
/// How often it is looked at whether answers that something depends on count still: four times while they do, within this.
const PERIOD: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// Who the token's bearer is and for which audiences, or that it is nobody.
type Answer = Option<(User, Vec<String>)>;

/// What it is asked: a token, and for whom it should be.
type Question = (Box<str>, Vec<String>);

/// Somebody whom it said a token to be of.
struct Vouched {
    user: User,
    /// What they rest on, for as long as a request of theirs goes on.
    basis: Weak<Basis>,
}

impl Vouched {
    fn goes_on(&self) -> bool {
        self.basis.strong_count() > 0
    }

    fn withdraw(&self) {
        self.basis.upgrade().iter().filter_map(|basis| basis.voucher.as_ref()).for_each(Voucher::withdraw);
    }
}

/// A server that is asked about tokens.
pub(super) struct TokenWebhook {
    client: Client,
    answers: Remembered<Answer>,
    places: Semaphore,
    vouched: Mutex<HashMap<Question, Vouched>>,
    period: Duration,
    changes: watch::Sender<()>,
}

impl TokenWebhook {
    /// The server of a kubeconfig. Until `stop` it is asked again about tokens of requests that go on, and `changes` is told
    /// when their users are not believed any more.
    pub(super) fn start(
        config: &TokenWebhookConfig,
        changes: watch::Sender<()>,
        stop: &CancellationToken,
    ) -> Result<Arc<Self>> {
        let named = || format!("--authentication-token-webhook-config-file {}", config.config.display());
        let reach =
            Config { timeout: PATIENCE, ..Config::from_kubeconfig(&config.config).with_context(named)? };
        let webhook = Arc::new(Self {
            client: Client::new(&reach).with_context(named)?,
            answers: Remembered::new(config.ttl, REMEMBERED),
            places: Semaphore::new(AT_ONCE),
            vouched: Mutex::default(),
            period: (config.ttl / 4).clamp(PERIOD.0, PERIOD.1),
            changes,
        });
        let following = webhook.clone();
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move { following.follow().await }));
        Ok(webhook)
    }

    /// Asks, unless the answer is known. Its user ends when it is asked again and says otherwise.
    pub(super) async fn ask(&self, token: &str, audiences: &[String]) -> Result<Answer, String> {
        let answer = self.answer(token, audiences).await?;
        Ok(self.vouch((token.into(), audiences.to_vec()), answer))
    }

    /// Keeps who vouches for the user of an answer with it. What depended on another answer ends.
    fn vouch(&self, question: Question, answer: Answer) -> Answer {
        let mut vouched = self.vouched.lock();
        let said = answer.as_ref().map(|(user, _)| user);
        if vouched.get(&question).is_some_and(|before| Some(&before.user) != said)
            && let Some(before) = vouched.remove(&question)
        {
            before.withdraw();
            self.changes.send_replace(());
        }
        let (user, audiences) = answer?;
        if vouched.len() >= REMEMBERED {
            vouched.retain(|_, vouched| vouched.goes_on());
        }
        let basis = vouched.get(&question).and_then(|kept| kept.basis.upgrade()).unwrap_or_else(|| {
            let basis = Arc::new(Basis { voucher: Some(Voucher::default()), ..Basis::default() });
            vouched.insert(question, Vouched { user: user.clone(), basis: Arc::downgrade(&basis) });
            basis
        });
        Some((User { basis: Some(basis), ..user }, audiences))
    }

    async fn follow(&self) {
        loop {
            tokio::time::sleep(self.period).await;
            let depended_on: Vec<Question> = {
                let mut vouched = self.vouched.lock();
                vouched.retain(|_, vouched| vouched.goes_on());
                vouched.keys().cloned().collect()
            };
            let again = stream::iter(depended_on).for_each_concurrent(
                AGAIN_AT_ONCE,
                |(token, audiences)| async move {
                    // What can't be found out now is asked again.
                    if let Err(error) = self.ask(&token, &audiences).await {
                        tracing::debug!(error, "the token webhook did not say whether a token is good still");
                    }
                },
            );
            again.await;
        }
    }

    async fn answer(&self, token: &str, audiences: &[String]) -> Result<Answer, String> {
        let key = format!("{}\n{token}", audiences.join("\0"));
        if let Some(answer) = self.answers.get(&key) {
            return Ok(answer);
        }
        let _place =
            self.places.try_acquire().map_err(|_| "too many tokens are being asked about".to_owned())?;
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "metadata": {}, "spec": {"token": token, "audiences": audiences},
        });
        let request = RawRequest::new(Method::POST, "").json(&review);
        let answer = self.client.once(&request).await.map_err(|error| error.to_string())?;
        if !answer.status.is_success() {
            return Err(format!("the token webhook answered {}", answer.status));
        }
        let answer: Value = serde_json::from_slice(&answer.body)
            .map_err(|_| "the token webhook answered no JSON".to_owned())?;
        let read = read(&answer["status"], audiences)?;
        self.answers.put(&key, read.clone());
        Ok(read)
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The status of a TokenReview. One that says nothing of audiences is of a server that does not know them: it is for the
/// API alone.
fn read(status: &Value, wanted: &[String]) -> Result<Answer, String> {
    if status["authenticated"] != true {
        return match status["error"].as_str().unwrap_or_default() {
            "" => Ok(None),
            error => Err(error.to_owned()),
        };
    }
    let said = texts(&status["audiences"]);
    let audiences: Vec<String> =
        wanted.iter().filter(|audience| said.is_empty() || said.contains(audience)).cloned().collect();
    if audiences.is_empty() {
        return Ok(None);
    }
    let user = &status["user"];
    let extra: BTreeMap<String, Vec<String>> = user["extra"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, values)| (key.to_lowercase(), texts(values)))
        .collect();
    let name = user["username"].as_str().unwrap_or_default().to_owned();
    let mut groups = texts(&user["groups"]);
    if !groups.iter().any(|group| group == AUTHENTICATED) {
        groups.push(AUTHENTICATED.to_owned());
    }
    let uid = user["uid"].as_str().unwrap_or_default().to_owned();
    Ok(Some((User { name, uid, groups, extra, ..User::default() }, audiences)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_with_its_audiences() {
        let wanted = ["a".to_owned(), "b".to_owned()];
        let status = json!({"authenticated": true, "audiences": ["b", "c"], "user": {
            "username": "jane", "uid": "1", "groups": ["devs"], "extra": {"Key": ["v"]}}});
        let (user, audiences) = read(&status, &wanted).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str(), audiences), ("jane", "1", vec!["b".to_owned()]));
        assert_eq!(user.groups, ["devs", AUTHENTICATED]);
        assert_eq!(user.extra["key"], ["v"]);
        assert_eq!(user.plane, None);
        assert_eq!(read(&json!({"authenticated": true, "audiences": ["c"], "user": {}}), &wanted), Ok(None));
        assert_eq!(read(&json!({"authenticated": false}), &wanted), Ok(None));
        assert_eq!(read(&json!({"error": "no"}), &wanted), Err("no".to_owned()));
    }
}
