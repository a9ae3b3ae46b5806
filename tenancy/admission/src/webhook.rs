//! The webhook as a whole: what it knows, and the reservations that it makes.

use crate::index::Live;
use crate::ledger::Desks;
use crate::review::Reviewer;
use freehold_machinery::PlaneId;
use freehold_runtime::Scope;
use freehold_tenancy_decide::admission::Exempt;
use freehold_tenancy_decide::namespace::Meter;
use freehold_webhook::certificates::Shared;
use freehold_webhook::{Place, WebhookError};
use std::sync::Arc;
use tokio::net::TcpListener;

/// The name of the Secret with the authority that replicas share.
pub const SECRET: &str = "tenancy-webhook-ca";

/// What a webhook is started with.
pub struct Webhook {
    /// Where it listens.
    pub listener: TcpListener,
    /// Where the API server finds it.
    pub place: Place,
    /// The namespace of the Secret that replicas share.
    pub namespace: String,
    /// Who is never refused.
    pub exempt: Exempt,
}

impl Webhook {
    /// Starts the webhook in the scope's only plane. It is registered when it can decide.
    ///
    /// # Errors
    /// [`WebhookError`] where there is no certificate or no registration.
    pub async fn start(self, scope: &Scope) -> Result<(), WebhookError> {
        let plane = scope.planes.only().cloned().unwrap_or_else(PlaneId::core);
        let client = scope.planes.client(&plane);
        let live = Live::start(scope, plane);
        let meter = freehold_tenancy_controllers::meter::of(&scope.planes, &scope.token).await;
        let desks = Desks::new(scope, client.clone(), live.usages());
        // A server that keeps limits itself wants no reservations.
        let desks = (meter == Meter::Webhook).then_some(desks);
        let webhook = freehold_webhook::Webhook {
            listener: self.listener,
            place: self.place,
            secret: Shared { namespace: self.namespace, name: SECRET },
            reviewer: Arc::new(Reviewer::new(live, desks, self.exempt)),
        };
        webhook.start(client, &scope.tasks, scope.token.clone()).await
    }
}
