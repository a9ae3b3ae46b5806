//! Bootstrap tokens: Secrets in `kube-system` that are deleted when they expire
//! (<https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/>).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_client::DeleteOptions;
use freehold_controllers_context::kinds::SECRETS;
use freehold_controllers_context::object::text;
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta, time};
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Store};
use jiff::Timestamp;
use std::time::Duration;

const TYPE: &str = "bootstrap.kubernetes.io/token";
const NAMESPACE: &str = "kube-system";

/// What is kept of a token: never its secret.
#[derive(Clone, Debug, PartialEq)]
struct Token {
    uid: String,
    expires: Expiry,
}

/// When a token expires.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Expiry {
    Never,
    At(Timestamp),
    /// What it says is no time, and so it is worth nothing.
    Unreadable,
}

impl Token {
    fn of(secret: Value) -> Option<Self> {
        if text(&secret, "/type") != TYPE || meta::namespace(&secret) != NAMESPACE {
            return None;
        }
        let said = STANDARD.decode(text(&secret, "/data/expiration")).unwrap_or_default();
        let expires = match String::from_utf8(said).ok().as_deref() {
            Some("") => Expiry::Never,
            said => said.and_then(time::parse).map_or(Expiry::Unreadable, Expiry::At),
        };
        Some(Self { uid: meta::uid(&secret).to_owned(), expires })
    }
}

/// How long a token still stays; `None`: until somebody deletes it.
fn decide(token: &Token, now: Timestamp) -> Option<Duration> {
    match token.expires {
        Expiry::Never => None,
        Expiry::Unreadable => Some(Duration::ZERO),
        Expiry::At(at) => Some(Duration::try_from(at.duration_since(now)).unwrap_or_default()),
    }
}

struct Cleaner {
    planes: Planes,
    tokens: Store<Token>,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let interest = Interest::projected(SECRETS, Token::of).fields(format!("type={TYPE}"));
    let mut informer = Informer::new(&context.planes, interest);
    informer.enqueue_into(&queue);
    let tokens = context.run_informer(informer);
    let controller = Cleaner { planes: context.planes.clone(), tokens: tokens.clone() };
    context.control("token-cleaner", 2, &queue, &[&tokens], controller);
}

impl Reconcile for Cleaner {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(token) = self.tokens.get(&key) else { return Ok(Outcome::Done) };
        match decide(&token, Timestamp::now()) {
            None => Ok(Outcome::Done),
            Some(left) if !left.is_zero() => Ok(Outcome::After(left)),
            Some(_) => {
                let client = self.planes.client(&key.plane);
                match client.delete(&SECRETS, key.ns(), &key.name, &DeleteOptions::uid(&token.uid)).await {
                    Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error.into()),
                    _ => Ok(Outcome::Done),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_token_goes_when_it_expires() {
        let secret = |type_: &str, expiration: &str| {
            let data = json!({"expiration": STANDARD.encode(expiration)});
            json!({"type": type_, "metadata": {"namespace": "kube-system", "uid": "u"}, "data": data})
        };
        let now = Timestamp::from_second(60).unwrap();
        for (expiration, left) in [
            ("1970-01-01T00:01:30Z", Some(30)),
            ("1970-01-01T00:00:30Z", Some(0)),
            ("", None),
            ("tomorrow", Some(0)),
        ] {
            let token = Token::of(secret(TYPE, expiration)).unwrap();
            assert_eq!(decide(&token, now), left.map(Duration::from_secs), "{expiration}");
        }
        assert_eq!(Token::of(secret("Opaque", "")), None);
    }
}
