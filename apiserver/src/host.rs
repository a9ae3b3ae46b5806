//! The cluster that this server extends, if it does: its front proxy says who asks, and it says what they may do.
//!
//! As any extension server of Kubernetes: identities come in headers, believed for the certificates that the host's
//! `extension-apiserver-authentication` ConfigMap names, and each request is asked about with a SubjectAccessReview
//! (<https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/>).

use anyhow::{Context, Result as AnyResult};
use freehold_apiserver_authn::{FrontProxy, HeaderNames};
use freehold_apiserver_authz::{Attributes, Decision};
use freehold_apiserver_server::{Authorities, Reload};
use freehold_client::{Client, Config, RawRequest, Resource, WatchEvent, WatchOptions};
use freehold_machinery::{Result, Status, Value};
use http::Method;
use parking_lot::{Mutex, RwLock};
use serde_json::json;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

/// How long an answer counts (the number of Kubernetes' extension servers, for yes and for no).
const COUNTS: Duration = Duration::from_secs(10);
/// Answers that are kept (likewise).
const MAX_ANSWERS: usize = 8_192;
/// Longest wait for an answer (likewise).
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the kubeconfig is read again, because tokens are replaced; a watch lasts as long.
const REREAD: Duration = Duration::from_secs(5 * 60);
/// Pause after a failure; it doubles up to the second.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

const CONFIG_MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
const NAMESPACE: &str = "kube-system";
const NAME: &str = "extension-apiserver-authentication";

/// The host cluster.
pub(crate) struct Host {
    kubeconfig: PathBuf,
    client: RwLock<Client>,
    answers: Mutex<HashMap<String, (Instant, Decision)>>,
    /// Why its front proxy is not known, where it is not.
    missing: Mutex<Option<String>>,
}

fn connect(kubeconfig: &Path) -> AnyResult<Client> {
    Ok(Client::new(&Config { timeout: PATIENCE, ..Config::from_kubeconfig(kubeconfig)? })?)
}

impl Host {
    /// The cluster of a kubeconfig.
    pub(crate) fn open(kubeconfig: &Path) -> AnyResult<Arc<Self>> {
        let client =
            connect(kubeconfig).with_context(|| format!("--host-kubeconfig {}", kubeconfig.display()))?;
        Ok(Arc::new(Self {
            kubeconfig: kubeconfig.to_owned(),
            client: RwLock::new(client),
            answers: Mutex::default(),
            missing: Mutex::new(Some("it was not asked yet".to_owned())),
        }))
    }

    /// Whether its front proxy is known.
    pub(crate) fn ready(&self) -> Result<(), String> {
        self.missing.lock().clone().map_or(Ok(()), Err)
    }

    /// What the host allows.
    pub(crate) async fn review(&self, asked: &Attributes<'_>) -> Result<Decision> {
        let spec = spec(asked);
        let key = spec.to_string();
        if let Some((at, decision)) = self.answers.lock().get(&key)
            && at.elapsed() < COUNTS
        {
            return Ok(decision.clone());
        }
        let body =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let request = RawRequest::new(Method::POST, "/apis/authorization.k8s.io/v1/subjectaccessreviews");
        let client = self.client.read().clone();
        let answer = client.json(request.json(&body)).await.map_err(|error| {
            tracing::warn!(%error, "the host cluster was not asked what its user may do");
            Status::internal("the host cluster can't be asked what its user may do")
        })?;
        let status = &answer["status"];
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        let denied = status["denied"] == true;
        let decision = Decision { allowed: status["allowed"] == true && !denied, denied, reason };
        let mut answers = self.answers.lock();
        if answers.len() >= MAX_ANSWERS {
            answers.retain(|_, (at, _)| at.elapsed() < COUNTS);
            if answers.len() >= MAX_ANSWERS {
                answers.clear();
            }
        }
        answers.insert(key, (Instant::now(), decision.clone()));
        Ok(decision)
    }

    /// Keeps the server's authorities as the host publishes its front proxy, beside those that the server has itself.
    pub(crate) async fn follow(self: Arc<Self>, reload: Reload, own: Authorities, stop: CancellationToken) {
        let mut pause = PAUSES.0;
        while !stop.is_cancelled() {
            let followed = tokio::select! {
                followed = self.follow_once(&reload, &own) => followed,
                () = stop.cancelled() => return,
            };
            match followed {
                Ok(()) => pause = PAUSES.0,
                Err(error) => {
                    tracing::warn!(%error, "the host cluster's front proxy is not followed; trying again");
                    self.still_missing(&error);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    fn still_missing(&self, error: &anyhow::Error) {
        if let Some(why) = &mut *self.missing.lock() {
            *why = error.to_string();
        }
    }

    /// Reads the ConfigMap and follows it for a while.
    async fn follow_once(&self, reload: &Reload, own: &Authorities) -> AnyResult<()> {
        let client = connect(&self.kubeconfig)?;
        *self.client.write() = client.clone();
        let found = client.get(&CONFIG_MAPS, Some(NAMESPACE), NAME).await?;
        self.apply(reload, own, &found)?;
        let options = WatchOptions {
            field_selector: format!("metadata.name={NAME}"),
            resource_version: found["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned(),
            timeout_seconds: REREAD.as_secs(),
            ..WatchOptions::default()
        };
        let mut events = client.watch(&CONFIG_MAPS, Some(NAMESPACE), &options).await?;
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(now) | WatchEvent::Modified(now) => self.apply(reload, own, &now)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn apply(&self, reload: &Reload, own: &Authorities, found: &Value) -> AnyResult<()> {
        let proxy = front_proxy(found).context("the host cluster publishes no front proxy")?;
        let mut authorities = own.clone();
        authorities.front_proxies.push(proxy);
        reload.authorities(&authorities)?;
        *self.missing.lock() = None;
        tracing::info!("the host cluster's front proxy is known");
        Ok(())
    }
}

/// The front proxy that a ConfigMap names.
fn front_proxy(map: &Value) -> Option<FrontProxy> {
    let data = &map["data"];
    let list = |key: &str| -> Vec<String> {
        let text = data[format!("requestheader-{key}")].as_str().unwrap_or("[]");
        serde_json::from_str(text).unwrap_or_default()
    };
    let lower = |key: &str| list(key).into_iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>();
    let headers = HeaderNames {
        user: lower("username-headers"),
        uid: lower("uid-headers"),
        group: lower("group-headers"),
        extra_prefixes: lower("extra-headers-prefix"),
    };
    let ca_pem = data["requestheader-client-ca-file"].as_str().filter(|pem| !pem.is_empty())?.to_owned();
    let known = !headers.user.is_empty();
    known.then(|| FrontProxy { ca_pem, allowed_names: list("allowed-names"), headers, is_host: true })
}

fn spec(asked: &Attributes<'_>) -> Value {
    let user = asked.user;
    let mut spec = json!({"user": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        spec["uid"] = user.uid.clone().into();
    }
    if !user.extra.is_empty() {
        spec["extra"] = json!(user.extra);
    }
    if asked.path.is_empty() {
        spec["resourceAttributes"] = json!({
            "verb": asked.verb, "group": asked.group, "version": asked.version, "resource": asked.resource,
            "subresource": asked.subresource, "namespace": asked.namespace, "name": asked.name,
        });
    } else {
        spec["nonResourceAttributes"] = json!({"verb": asked.verb, "path": asked.path});
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_proxy_is_what_the_host_publishes() {
        let map = json!({"data": {
            "client-ca-file": "clients", "requestheader-client-ca-file": "proxies",
            "requestheader-allowed-names": "[\"front\"]", "requestheader-username-headers": "[\"X-Remote-User\"]",
            "requestheader-group-headers": "[\"X-Remote-Group\"]", "requestheader-extra-headers-prefix": "[\"X-Remote-Extra-\"]",
        }});
        let proxy = front_proxy(&map).unwrap();
        assert_eq!((proxy.ca_pem.as_str(), proxy.allowed_names), ("proxies", vec!["front".to_owned()]));
        assert_eq!(proxy.headers.user, ["x-remote-user"]);
        assert!(proxy.headers.uid.is_empty() && proxy.is_host);
        assert!(front_proxy(&json!({"data": {"client-ca-file": "clients"}})).is_none());
    }
}
