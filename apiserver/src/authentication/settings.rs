//! What the operator configures: flags, and a file that is read again when it changes.

use anyhow::{Context, Result};
use arc_swap::ArcSwap;
use freehold_apiserver_authn::{
    Fetch, Issuer,
    oidc::{Anonymous, Configuration},
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_secs(5);

/// Who is believed besides what every server believes.
#[derive(Clone, Debug)]
pub struct AuthenticationConfig {
    /// An AuthenticationConfiguration.
    pub file: Option<PathBuf>,
    /// Whether there are anonymous requests, where the file does not say.
    pub anonymous: bool,
    /// Who is asked about tokens that nobody else knows.
    pub webhook: Option<TokenWebhookConfig>,
    /// Whether bootstrap tokens are believed.
    pub bootstrap_tokens: bool,
}

/// A server that is asked about tokens.
#[derive(Clone, Debug)]
pub struct TokenWebhookConfig {
    /// The kubeconfig that says where it is.
    pub config: PathBuf,
    /// How long its answers count.
    pub ttl: Duration,
}

impl Default for AuthenticationConfig {
    fn default() -> Self {
        Self { file: None, anonymous: true, webhook: None, bootstrap_tokens: false }
    }
}

/// What counts now.
#[derive(Default)]
struct Current {
    issuers: Vec<Arc<Issuer>>,
    anonymous: Anonymous,
}

/// What counts now, replaced as a whole.
pub(super) struct Settings {
    current: ArcSwap<Current>,
    config: AuthenticationConfig,
    fetch: Arc<dyn Fetch>,
    own_issuer: String,
    changes: watch::Sender<()>,
}

impl Settings {
    /// Reads the file, and again when it changes, until `stop`. Fails if it can't be used at the start; later, what counted
    /// before goes on.
    pub(super) fn start(
        config: &AuthenticationConfig,
        fetch: Arc<dyn Fetch>,
        own_issuer: &str,
        stop: &CancellationToken,
    ) -> Result<Arc<Self>> {
        let settings = Arc::new(Self {
            current: ArcSwap::default(),
            config: config.clone(),
            fetch,
            own_issuer: own_issuer.to_owned(),
            changes: watch::Sender::new(()),
        });
        match &config.file {
            None => settings.current.store(Arc::new(Current {
                issuers: Vec::new(),
                anonymous: Anonymous { enabled: config.anonymous, conditions: Vec::new() },
            })),
            Some(path) => {
                let named = || format!("--authentication-config {}", path.display());
                let text = std::fs::read_to_string(path).with_context(named)?;
                settings.apply(&text).map_err(anyhow::Error::msg).with_context(named)?;
                tokio::spawn(settings.clone().follow(path.clone(), text, stop.clone()));
            }
        }
        Ok(settings)
    }

    /// The issuer of a URL.
    pub(super) fn issuer(&self, url: &str) -> Option<Arc<Issuer>> {
        self.current.load().issuers.iter().find(|issuer| issuer.url() == url).cloned()
    }

    /// Whether the anonymous may ask for a path.
    pub(super) fn anonymous(&self, path: &str) -> bool {
        self.current.load().anonymous.may_ask(path)
    }

    /// Tells when something else counts.
    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Tells those who are told when something else counts.
    pub(super) fn teller(&self) -> watch::Sender<()> {
        self.changes.clone()
    }

    fn apply(&self, text: &str) -> Result<(), String> {
        let read = Configuration::parse(text, &[&self.own_issuer])?;
        let before = self.current.load_full();
        let issuer = |config: freehold_apiserver_authn::oidc::JwtAuthenticator| {
            // One that did not change keeps its keys.
            let kept = before.issuers.iter().find(|issuer| *issuer.config() == config);
            kept.map_or_else(|| Issuer::new(config, self.fetch.clone()), |kept| Ok(kept.clone()))
        };
        let issuers = read.jwt.into_iter().map(issuer).collect::<Result<Vec<_>, _>>()?;
        let flag = Anonymous { enabled: self.config.anonymous, conditions: Vec::new() };
        let anonymous = read.anonymous.unwrap_or(flag);
        let now = Arc::new(Current { issuers, anonymous });
        self.current.store(now.clone());
        let stays = |issuer: &&Arc<Issuer>| now.issuers.iter().any(|now| Arc::ptr_eq(now, issuer));
        before.issuers.iter().filter(|issuer| !stays(issuer)).for_each(|issuer| issuer.withdraw());
        self.changes.send_replace(());
        Ok(())
    }

    async fn follow(self: Arc<Self>, path: PathBuf, mut seen: String, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(PERIOD) => {}
                () = stop.cancelled() => return,
            }
            if let Some(text) = changed(&path, &seen).await {
                match self.apply(&text) {
                    Ok(()) => {
                        tracing::info!(path = %path.display(), "the authentication configuration was replaced")
                    }
                    Err(error) => tracing::error!(
                        path = %path.display(),
                        error,
                        "the authentication configuration can't be used; the one before it goes on"
                    ),
                }
                seen = text;
            }
        }
    }
}

/// What a file has now, where that is something else.
async fn changed(path: &Path, seen: &str) -> Option<String> {
    match tokio::fs::read_to_string(path).await {
        Ok(text) if text != seen => Some(text),
        Ok(_) => None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the authentication configuration can't be read");
            None
        }
    }
}
