//! A server that is asked about tokens
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#webhook-token-authentication>).

use super::settings::TokenWebhookConfig;
use anyhow::{Context, Result};
use freehold_apiserver_authn::remember::Remembered;
use freehold_client::{Client, Config, RawRequest};
use freehold_machinery::{User, Value, user::AUTHENTICATED};
use http::Method;
use serde_json::json;
use std::{collections::BTreeMap, time::Duration};
use tokio::sync::Semaphore;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Answers that are remembered (kube-apiserver's number).
const REMEMBERED: usize = 32 * 1024;
/// Questions under way at a time: an authenticator that hangs takes no more of the server than these.
const AT_ONCE: usize = 256;

/// Who the token's bearer is and for which audiences, or that it is nobody.
type Answer = Option<(User, Vec<String>)>;

/// A server that is asked about tokens.
pub(super) struct TokenWebhook {
    client: Client,
    answers: Remembered<Answer>,
    places: Semaphore,
}

impl TokenWebhook {
    /// The server of a kubeconfig.
    pub(super) fn open(config: &TokenWebhookConfig) -> Result<Self> {
        let named = || format!("--authentication-token-webhook-config-file {}", config.config.display());
        let reach =
            Config { timeout: PATIENCE, ..Config::from_kubeconfig(&config.config).with_context(named)? };
        Ok(Self {
            client: Client::new(&reach).with_context(named)?,
            answers: Remembered::new(config.ttl, REMEMBERED),
            places: Semaphore::new(AT_ONCE),
        })
    }

    /// Asks, unless the answer is known.
    pub(super) async fn ask(&self, token: &str, audiences: &[String]) -> Result<Answer, String> {
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
