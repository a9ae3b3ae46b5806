//! A webhook as a whole: certificate, registration, server.

use crate::certificates::{CertificateError, Serving, Shared, Trust};
use crate::{Place, Reviewer, server};
use freehold_client::{Client, Error};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often the certificate is renewed and the registration written again.
const RENEWAL: Duration = Duration::from_secs(6 * 3600);
/// How often it is looked whether that time has come: clocks jump, and machines are suspended.
const LOOK: Duration = Duration::from_secs(60);
/// How soon a failed renewal is tried again.
const RETRY: Duration = Duration::from_secs(30);
/// How often a reviewer that is not ready is looked at.
const POLL: Duration = Duration::from_millis(20);

/// What a webhook is started with.
pub struct Webhook {
    /// Where it listens.
    pub listener: TcpListener,
    /// Where the API server finds it.
    pub place: Place,
    /// The Secret with the authority that replicas share.
    pub secret: Shared,
    /// What it decides.
    pub reviewer: Arc<dyn Reviewer>,
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
    /// Serves on `tasks` until `token` is cancelled. The webhook is registered when it can decide.
    ///
    /// # Errors
    /// [`WebhookError`] where there is no certificate or no registration.
    pub async fn start(
        self,
        client: Client,
        tasks: &TaskTracker,
        token: CancellationToken,
    ) -> Result<(), WebhookError> {
        let trust = Trust::shared(&client, &self.secret, Timestamp::now()).await?;
        let serving = Serving::new(trust.issue(&self.place.names)?);
        let served = server::serve(self.listener, serving.clone(), self.reviewer.clone(), token.clone());
        tasks.spawn(async move {
            if let Err(error) = served.await {
                tracing::error!(%error, "failed to serve the webhook");
            }
        });
        while !self.reviewer.is_ready() {
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = tokio::time::sleep(POLL) => {}
            }
        }
        self.reviewer.register(&client, &self.place.address, &trust.bundle).await?;
        let renewal =
            Renewal { client, serving, place: self.place, secret: self.secret, reviewer: self.reviewer };
        tasks.spawn(async move {
            tokio::select! {
                () = token.cancelled() => {}
                () = renewal.run() => {}
            }
        });
        Ok(())
    }
}

/// Whether a certificate is renewed: its time has come by this machine's clock, or the clock went back before it was made.
fn is_due(renewed: Timestamp, now: Timestamp) -> bool {
    let age = now.duration_since(renewed);
    age.is_negative() || age.unsigned_abs() >= RENEWAL
}

struct Renewal {
    client: Client,
    serving: Arc<Serving>,
    place: Place,
    secret: Shared,
    reviewer: Arc<dyn Reviewer>,
}

impl Renewal {
    async fn run(self) {
        let (mut renewed, mut wait) = (Timestamp::now(), LOOK);
        loop {
            tokio::time::sleep(wait).await;
            wait = LOOK;
            if !is_due(renewed, Timestamp::now()) {
                continue;
            }
            match self.renew().await {
                Ok(()) => renewed = Timestamp::now(),
                Err(error) => {
                    tracing::warn!(%error, "failed to renew the webhook's certificate; will retry");
                    wait = RETRY;
                }
            }
        }
    }

    /// Registers what clients are to trust before it serves what they then need.
    async fn renew(&self) -> Result<(), WebhookError> {
        let trust = Trust::shared(&self.client, &self.secret, Timestamp::now()).await?;
        self.reviewer.register(&self.client, &self.place.address, &trust.bundle).await?;
        self.serving.replace(trust.issue(&self.place.names)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn a_certificate_is_renewed_when_clocks_jump() {
        let renewed = Timestamp::UNIX_EPOCH;
        let rows = [(0, false), (5, false), (6, true), (30, true), (-1, true)];
        for (hours, due) in rows {
            assert_eq!(is_due(renewed, renewed + SignedDuration::from_hours(hours)), due, "{hours} h");
        }
    }
}
