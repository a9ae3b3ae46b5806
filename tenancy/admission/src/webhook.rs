//! The webhook as a whole: state, certificate, registration, server.

use crate::certificates::{CertificateError, Serving, Trust};
use crate::configuration::{Address, register};
use crate::index::Live;
use crate::ledger::Desks;
use crate::review::Reviewer;
use crate::server;
use freehold_client::{Client, Error};
use freehold_machinery::PlaneId;
use freehold_runtime::Scope;
use freehold_tenancy_decide::admission::Exempt;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How often the certificate is renewed and the registration written again.
const RENEWAL: Duration = Duration::from_secs(6 * 3600);
/// How soon a failed renewal is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// What a webhook is started with.
pub struct Webhook {
    /// Where it listens.
    pub listener: TcpListener,
    /// Where the API server finds it.
    pub address: Address,
    /// Names and addresses of its certificate.
    pub names: Vec<String>,
    /// The namespace of the Secret that replicas share.
    pub namespace: String,
    /// Who is never refused.
    pub exempt: Exempt,
}

/// Why a webhook does not start.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// There is no certificate.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The configurations cannot be written.
    #[error("webhook configurations: {0}")]
    Registration(#[from] Error),
}

impl Webhook {
    /// Starts the webhook in the scope's only plane. It is registered when it can decide.
    ///
    /// # Errors
    /// [`WebhookError`] where there is no certificate or no registration.
    pub async fn start(self, scope: &Scope) -> Result<(), WebhookError> {
        let plane = scope.planes.only().cloned().unwrap_or_else(PlaneId::core);
        let client = scope.planes.client(&plane);
        let trust = Trust::shared(&client, &self.namespace, Timestamp::now()).await?;
        let serving = Serving::new(trust.issue(&self.names)?);
        let live = Live::start(scope, plane);
        let desks = Desks::new(scope, client.clone(), live.usages());
        let reviewer = Reviewer::new(live, desks, self.exempt);
        let (ready, token) = (reviewer.clone(), scope.token.clone());
        let served = server::serve(self.listener, serving.clone(), reviewer, token.clone());
        scope.tasks.spawn(async move {
            if let Err(error) = served.await {
                tracing::error!(%error, "failed to serve the webhook");
            }
        });
        while !ready.is_ready() {
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
        register(&client, &self.address, &trust.bundle).await?;
        let renewal =
            Renewal { client, serving, address: self.address, names: self.names, namespace: self.namespace };
        scope.tasks.spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = renewal.run() => {}
            }
        });
        Ok(())
    }
}

struct Renewal {
    client: Client,
    serving: Arc<Serving>,
    address: Address,
    names: Vec<String>,
    namespace: String,
}

impl Renewal {
    async fn run(self) {
        let mut wait = RENEWAL;
        loop {
            tokio::time::sleep(wait).await;
            wait = match self.renew().await {
                Ok(()) => RENEWAL,
                Err(error) => {
                    tracing::warn!(%error, "failed to renew the webhook's certificate; will retry");
                    RETRY
                }
            };
        }
    }

    /// Registers what clients are to trust before it serves what they then need.
    async fn renew(&self) -> Result<(), WebhookError> {
        let trust = Trust::shared(&self.client, &self.namespace, Timestamp::now()).await?;
        register(&self.client, &self.address, &trust.bundle).await?;
        self.serving.replace(trust.issue(&self.names)?);
        Ok(())
    }
}
