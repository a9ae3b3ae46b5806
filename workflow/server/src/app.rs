//! What all requests share.

use crate::access::Decisions;
use crate::accounts::Attempts;
use crate::oidc::{Oidc, OidcOptions};
use crate::streams::Streams;
use freehold_client::{Client, Config};
use freehold_workflow_store::{Database, LogStore};
use std::sync::Arc;

/// How callers are known.
#[derive(Clone, Debug, Default)]
pub enum Authentication {
    /// By the Kubernetes API: bearer tokens are forwarded.
    #[default]
    Forward,
    /// By local accounts, and an issuer's tokens where one is given. The server acts with its own identity.
    StandAlone(Option<OidcOptions>),
}

/// What a server is made of.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Kubernetes API. Its identity is used in the stand-alone mode alone.
    pub api: Config,
    /// The plane or cluster by which the history knows this API.
    pub plane: String,
    /// The history.
    pub database: Database,
    /// Where kept logs are.
    pub logs: Option<LogStore>,
    /// How callers are known.
    pub authentication: Authentication,
    /// Whether cookies are for TLS alone.
    pub secure_cookies: bool,
}

/// What all requests share.
pub struct App {
    pub(crate) client: Client,
    pub(crate) plane: String,
    pub(crate) database: Database,
    pub(crate) logs: Option<LogStore>,
    pub(crate) stand_alone: bool,
    pub(crate) oidc: Option<Oidc>,
    pub(crate) decisions: Decisions,
    pub(crate) attempts: Attempts,
    pub(crate) streams: Streams,
    pub(crate) secure_cookies: bool,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "workflow server of {:?}", self.plane)
    }
}

impl App {
    /// Prepares a server.
    ///
    /// # Errors
    /// [`freehold_client::Error::Config`] for an address or certificates that can't be used.
    pub fn new(options: Options) -> Result<Arc<Self>, freehold_client::Error> {
        let mut api = options.api;
        let (stand_alone, oidc) = match options.authentication {
            Authentication::Forward => {
                // Without rights of its own nothing can be done by mistake.
                api.identity = freehold_client::Identity::None;
                (false, None)
            }
            Authentication::StandAlone(oidc) => (true, oidc.map(Oidc::new).transpose()?),
        };
        Ok(Arc::new(Self {
            client: Client::new(&api)?,
            plane: options.plane,
            database: options.database,
            logs: options.logs,
            stand_alone,
            oidc,
            decisions: Decisions::default(),
            attempts: Attempts::default(),
            streams: Streams::default(),
            secure_cookies: options.secure_cookies,
        }))
    }
}
