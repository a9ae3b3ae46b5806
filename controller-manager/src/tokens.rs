//! Secrets of the type `kubernetes.io/service-account-token`: filled with a token of the service account that they name, and
//! deleted with it (<https://kubernetes.io/docs/concepts/configuration/secret/#serviceaccount-token-secrets>).
//!
//! The server makes the token, bound to its Secret: it is worth nothing once the Secret or the account is gone.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_client::{Client, DeleteOptions, Error};
use freehold_controllers_context::kinds::{SECRETS, SERVICE_ACCOUNTS};
use freehold_controllers_context::object::{items, text};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta};
use freehold_runtime::{Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Seen, Store};
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const TYPE: &str = "kubernetes.io/service-account-token";
/// The annotations that name a Secret's account.
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// As long as a token can be asked for, in seconds: it ends with its Secret.
const LIFE: u64 = 1 << 32;

/// What is kept of a Secret.
#[derive(Clone, Debug, PartialEq)]
struct View {
    uid: String,
    account: Box<str>,
    /// The account's uid, empty where the Secret does not say.
    account_uid: String,
    complete: bool,
}

impl View {
    fn of(secret: &Value, ca: &str) -> Self {
        let annotation = |key: &str| meta::annotation(secret, key).unwrap_or_default();
        Self {
            uid: meta::uid(secret).to_owned(),
            account: annotation(ACCOUNT).into(),
            account_uid: annotation(ACCOUNT_UID).to_owned(),
            complete: lacks(secret, ca) == Lacks::default(),
        }
    }

    fn index(key: &Key, view: &Self) -> Vec<String> {
        vec![entry(&key.namespace, &view.account)]
    }
}

fn entry(namespace: &str, account: &str) -> String {
    format!("{namespace}/{account}")
}

/// What a Secret is still to get.
#[derive(Debug, Default, PartialEq)]
struct Lacks {
    ca: bool,
    namespace: bool,
    token: bool,
}

fn lacks(secret: &Value, ca: &str) -> Lacks {
    let data = |key: &str| secret["data"][key].as_str().unwrap_or_default();
    Lacks {
        ca: !ca.is_empty() && data("ca.crt") != STANDARD.encode(ca),
        namespace: data("namespace").is_empty(),
        token: data("token").is_empty(),
    }
}

/// What to do about a Secret.
#[derive(Debug, PartialEq)]
enum Action {
    Nothing,
    Delete,
    Fill,
}

/// `account`: the uid of the account of that name, `None` where there is none.
fn decide(secret: &View, account: Option<&str>) -> Action {
    match account {
        _ if secret.account.is_empty() => Action::Nothing,
        None => Action::Delete,
        Some(uid) if !secret.account_uid.is_empty() && uid != secret.account_uid => Action::Delete,
        Some(_) if !secret.complete => Action::Fill,
        Some(_) => Action::Nothing,
    }
}

/// The accounts of Secrets that went, until they have been told.
#[derive(Clone, Default)]
struct Gone(Arc<Mutex<HashMap<Key, Box<str>>>>);

impl Gone {
    fn all(&self) -> MutexGuard<'_, HashMap<Key, Box<str>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Tokens {
    planes: Planes,
    secrets: Store<View>,
    gone: Gone,
    ca_pem: String,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let ca_pem = context.config.ca_pem.clone();
    let ca = ca_pem.clone();
    let interest = Interest::projected(SECRETS, move |secret| Some(View::of(&secret, &ca)));
    let mut informer =
        Informer::new(&context.planes, interest.fields(format!("type={TYPE}")).index(View::index));
    let gone = Gone::default();
    let (on_secrets, went) = (queue.clone(), gone.clone());
    informer.on_change(move |change| {
        if let (Some(old), None) = (&change.old, &change.new) {
            went.all().insert(change.key.clone(), old.account.clone());
        }
        on_secrets.add(change.key.clone());
    });
    let secrets = context.run_informer(informer);
    // Of accounts only their end counts; whether one is there is asked for when it matters.
    let interest = Interest::projected(SERVICE_ACCOUNTS, |_| None::<()>).metadata_only().from_now();
    let mut accounts = Informer::new(&context.planes, interest);
    let (on_accounts, known) = (queue.clone(), secrets.clone());
    accounts.on_object(move |key, _, seen| {
        if seen == Seen::Gone {
            let theirs = known.by_index(&key.plane, &entry(&key.namespace, &key.name));
            theirs.into_iter().for_each(|(secret, _)| on_accounts.add(secret));
        }
    });
    context.run_informer(accounts);
    context.resync(&secrets, &queue);
    let controller = Tokens { planes: context.planes.clone(), secrets: secrets.clone(), gone, ca_pem };
    context.control("service-account-token", 2, &queue, &[&secrets], controller);
}

impl Reconcile for Tokens {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let client = self.planes.client(&key.plane);
        let done = match self.secrets.get(&key) {
            Some(secret) => self.keep(&client, &key, &secret).await,
            None => {
                let account = self.gone.all().get(&key).cloned();
                let told = match &account {
                    Some(account) => forget(&client, &key, account).await,
                    None => Ok(()),
                };
                if told.is_ok() {
                    self.gone.all().remove(&key);
                }
                told
            }
        };
        match done {
            // It is gone, or its namespace goes.
            Err(error)
                if !error.is_not_found()
                    && !freehold_controllers_context::object::namespace_terminates(&error) =>
            {
                Err(error.into())
            }
            _ => Ok(Outcome::Done),
        }
    }
}

impl Tokens {
    async fn keep(&self, client: &Client, key: &Key, secret: &View) -> Result<(), Error> {
        if secret.account.is_empty() {
            return Ok(());
        }
        let account = client.get_opt(&SERVICE_ACCOUNTS, key.ns(), &secret.account).await?;
        match decide(secret, account.as_ref().map(meta::uid)) {
            Action::Nothing => Ok(()),
            Action::Delete => {
                match client.delete(&SECRETS, key.ns(), &key.name, &DeleteOptions::uid(&secret.uid)).await {
                    // Another one has its name.
                    Err(error) if error.is_conflict() => Ok(()),
                    other => other.map(drop),
                }
            }
            Action::Fill => match account {
                Some(account) => self.fill(client, key, &account).await,
                None => Ok(()),
            },
        }
    }

    async fn fill(&self, client: &Client, key: &Key, account: &Value) -> Result<(), Error> {
        let mut secret = client.get(&SECRETS, key.ns(), &key.name).await?;
        let lacks = lacks(&secret, &self.ca_pem);
        let theirs = meta::annotation(&secret, ACCOUNT) == Some(meta::name(account));
        if !theirs || meta::is_deleting(&secret) || lacks == Lacks::default() {
            return Ok(());
        }
        if !secret["data"].is_object() {
            secret["data"] = json!({});
        }
        if lacks.ca {
            secret["data"]["ca.crt"] = STANDARD.encode(&self.ca_pem).into();
        }
        if lacks.namespace {
            secret["data"]["namespace"] = STANDARD.encode(&*key.namespace).into();
        }
        if lacks.token {
            let token = token(client, key, &secret, meta::name(account)).await?;
            secret["data"]["token"] = STANDARD.encode(token).into();
        }
        secret["metadata"]["annotations"][ACCOUNT_UID] = meta::uid(account).into();
        client.update(&SECRETS, &secret).await.map(drop)
    }
}

/// A token of an account that ends with a Secret.
async fn token(client: &Client, key: &Key, secret: &Value, account: &str) -> Result<String, Error> {
    let bound = json!({"apiVersion": "v1", "kind": "Secret", "name": key.name, "uid": meta::uid(secret)});
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"expirationSeconds": LIFE, "boundObjectRef": bound},
    });
    let answer = client.create_subresource(&SERVICE_ACCOUNTS, key.ns(), account, "token", &request).await?;
    Ok(text(&answer, "/status/token").to_owned())
}

/// Takes a Secret that is gone out of the list that its account has of such.
async fn forget(client: &Client, key: &Key, account: &str) -> Result<(), Error> {
    let Some(mut account) = client.get_opt(&SERVICE_ACCOUNTS, key.ns(), account).await? else {
        return Ok(());
    };
    let listed = items(&account, "/secrets");
    let left: Vec<Value> = listed.iter().filter(|one| text(one, "/name") != &*key.name).cloned().collect();
    if left.len() == listed.len() {
        return Ok(());
    }
    account["secrets"] = left.into();
    client.update(&SERVICE_ACCOUNTS, &account).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_follows_its_account() {
        let secret = |uid: &str, complete| View {
            uid: "s".into(),
            account: "robot".into(),
            account_uid: uid.into(),
            complete,
        };
        let rows = [
            (secret("", false), Some("u"), Action::Fill),
            (secret("u", false), Some("u"), Action::Fill),
            (secret("u", true), Some("u"), Action::Nothing),
            (secret("u", true), Some("another"), Action::Delete),
            (secret("", false), None, Action::Delete),
            (View { account: "".into(), ..secret("", false) }, None, Action::Nothing),
        ];
        for (secret, account, action) in rows {
            assert_eq!(decide(&secret, account), action, "{secret:?} {account:?}");
        }
    }

    #[test]
    fn what_a_secret_lacks_is_seen_whatever_is_in_it() {
        let full = json!({"data": {"ca.crt": STANDARD.encode("ca"), "namespace": "bg==", "token": "dA=="}});
        assert_eq!(lacks(&full, "ca"), Lacks::default());
        assert!(lacks(&full, "another").ca && !lacks(&full, "").ca);
        for bad in [json!({}), json!({"data": 7}), json!({"data": {"token": 3}}), Value::Null] {
            assert_eq!(lacks(&bad, "ca"), Lacks { ca: true, namespace: true, token: true }, "{bad}");
        }
    }
}
