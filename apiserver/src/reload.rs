//! Certificates and keys that are replaced while the server serves: what is read anew counts for new connections and tokens.

use crate::{config::token_secrets, debugging::KnownCertificates};
use freehold_apiserver_authn::{KeySet, TokenIssuer};
use freehold_apiserver_registry::TokenSecrets;
use freehold_apiserver_server::{Authorities, Reload};
use freehold_pki::Pair;
use std::{sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// How often files are looked at.
const PERIOD: Duration = Duration::from_secs(10);

/// What certificates are for, as administrators are told.
const SERVING: &str = "serving";
const CLIENTS: &str = "authority of clients";
const PROXIES: &str = "authority of front proxies";

/// What a server is secured with.
#[derive(Clone, PartialEq)]
pub struct Material {
    /// The serving certificate.
    pub serving: Pair,
    /// The authorities of clients, PEM.
    pub client_ca: String,
    /// The authorities of front proxies, PEM.
    pub front_proxy_ca: Option<String>,
    /// The keys of service account tokens, PEM: the first signs.
    pub service_account_key: String,
}

impl Material {
    /// Lists its certificates among those that the server works with.
    pub(crate) fn list_in(&self, known: &KnownCertificates) {
        known.set(SERVING, &self.serving.cert_pem);
        known.set(CLIENTS, &self.client_ca);
        known.set(PROXIES, self.front_proxy_ca.as_deref().unwrap_or_default());
    }
}

/// Reads [`Material`] anew; what it was before where nothing has changed.
pub type Source = Arc<dyn Fn() -> anyhow::Result<Material> + Send + Sync>;

/// What is replaced.
pub(crate) struct Follower {
    pub(crate) source: Source,
    pub(crate) now: Material,
    pub(crate) reload: Reload,
    /// The authorities of the server; `None` where another cluster's are added to them, which is followed elsewhere.
    pub(crate) authorities: Option<Authorities>,
    pub(crate) tokens: Arc<TokenIssuer>,
    /// What continue tokens are sealed with.
    pub(crate) continue_secrets: Arc<TokenSecrets>,
    /// What administrators are told of its certificates.
    pub(crate) certificates: KnownCertificates,
}

impl Follower {
    /// Looks at the files until `stop`.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = stop.cancelled() => return,
            }
            let source = self.source.clone();
            match tokio::task::spawn_blocking(move || source()).await {
                Ok(Ok(fresh)) => self.apply(fresh),
                Ok(Err(error)) => {
                    tracing::error!(%error, "certificates and keys can't be read; the old ones go on")
                }
                Err(_) => return,
            }
        }
    }

    /// Replaces what has changed. What can't be used is told once, and what was before goes on.
    fn apply(&mut self, fresh: Material) {
        let told = |what: &str, result: Result<(), String>| match result {
            Ok(()) => tracing::info!("{what} replaced"),
            Err(error) => tracing::error!(error, "{what} can't be used; what was before goes on"),
        };
        if fresh.serving != self.now.serving {
            let Pair { cert_pem, key_pem } = &fresh.serving;
            let replaced = self.reload.certificate(cert_pem.as_bytes(), key_pem.as_bytes());
            if replaced.is_ok() {
                self.certificates.set(SERVING, cert_pem);
            }
            told("the serving certificate", replaced.map_err(|error| error.to_string()));
        }
        let changed =
            (&fresh.client_ca, &fresh.front_proxy_ca) != (&self.now.client_ca, &self.now.front_proxy_ca);
        if let Some(own) = self.authorities.as_mut().filter(|_| changed) {
            let mut authorities = own.clone();
            authorities.clients.clone_from(&fresh.client_ca);
            for (proxy, ca) in authorities.front_proxies.iter_mut().zip(&fresh.front_proxy_ca) {
                proxy.ca_pem.clone_from(ca);
            }
            let replaced = self.reload.authorities(&authorities);
            if replaced.is_ok() {
                *own = authorities;
                self.certificates.set(CLIENTS, &fresh.client_ca);
                self.certificates.set(PROXIES, fresh.front_proxy_ca.as_deref().unwrap_or_default());
            }
            told("the authorities of clients", replaced.map_err(|error| error.to_string()));
        }
        if fresh.service_account_key != self.now.service_account_key {
            let keys = KeySet::from_bundle(&fresh.service_account_key);
            let replaced = keys.map(|keys| {
                self.tokens.replace_keys(keys);
                let secrets = token_secrets(&fresh.service_account_key);
                self.continue_secrets.replace(secrets.iter().map(|secret| secret.as_bytes()));
            });
            told("the keys of tokens", replaced.map_err(|error| error.to_string()));
        }
        self.now = fresh;
    }
}
