//! Leader election: of several instances the one that holds a Lease works, as in Kubernetes' own components.
//!
//! Times are measured by this machine's clock alone. Another holder's Lease has expired when nothing in it changed
//! for as long as it says, counted from when this instance saw it last change. A holder that cannot renew in time
//! stops its work before any other can take over.

use crate::Metrics;
use freehold_client::{Client, Error, Resource};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The namespace of Leases, as of Kubernetes' own components.
pub(crate) const NAMESPACE: &str = "kube-system";

/// How long a Lease holds, how long its holder tries to renew it, and how often everybody tries.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Others take over after so long without a renewal.
    pub lease: Duration,
    /// Time without a successful renewal after which the holder stops; less than `lease`.
    pub renew: Duration,
    /// The time between attempts.
    pub retry: Duration,
}

impl Times {
    /// A Lease that holds for so long, whole seconds, with the other times in the proportion that Kubernetes' components have.
    pub fn of_lease(lease: Duration) -> Self {
        Self { lease, renew: lease * 2 / 3, retry: lease * 2 / 15 }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self::of_lease(Duration::from_secs(15))
    }
}

/// A Lease that instances compete for.
pub struct Election {
    client: Client,
    name: String,
    identity: String,
    times: Times,
    metrics: Metrics,
    /// The Lease as it was seen last, and since when it has been so.
    seen: Option<(Value, Instant)>,
}

impl Election {
    /// An election for the Lease `name`; `identity` is unique among instances. An instance that returns under its old
    /// identity leads again at once.
    pub fn new(client: Client, name: impl Into<String>, identity: impl Into<String>) -> Self {
        let (name, identity) = (name.into(), identity.into());
        Self { client, name, identity, times: Times::default(), metrics: Metrics::default(), seen: None }
    }

    /// Replaces the default times of the Lease.
    pub fn times(mut self, times: Times) -> Self {
        self.times = times;
        self
    }

    /// Exports whether this instance leads as a metric.
    pub fn metrics(mut self, metrics: &Metrics) -> Self {
        self.metrics = metrics.clone();
        self.metrics.leads(&self.name, false);
        self
    }

    /// Does the work whenever this instance leads, until `stop`; gives the Lease back in the end. The work has to end soon
    /// after the token that it is given is cancelled.
    pub async fn run<F>(mut self, stop: CancellationToken, mut work: impl FnMut(CancellationToken) -> F)
    where
        F: Future<Output = ()>,
    {
        while self.win(&stop).await {
            tracing::info!(lease = self.name, identity = self.identity, "leading");
            self.metrics.leads(&self.name, true);
            let term = stop.child_token();
            let work = work(term.clone());
            tokio::pin!(work);
            tokio::select! {
                () = &mut work => {}
                () = self.keep(&stop) => {
                    term.cancel();
                    work.await;
                }
            }
            self.metrics.leads(&self.name, false);
            if stop.is_cancelled() {
                self.release().await;
                return;
            }
            tracing::warn!(lease = self.name, identity = self.identity, "no longer leading");
        }
    }

    /// Waits until this instance leads; false if it was stopped before.
    async fn win(&mut self, stop: &CancellationToken) -> bool {
        loop {
            match self.attempt().await {
                Ok(true) => return true,
                Ok(false) => {}
                Err(error) => tracing::debug!(%error, lease = self.name, "not leading"),
            }
            tokio::select! {
                () = stop.cancelled() => return false,
                () = tokio::time::sleep(self.times.retry) => {}
            }
        }
    }

    /// Renews until that fails for too long, another leads, or `stop`.
    async fn keep(&mut self, stop: &CancellationToken) {
        let mut renewed = Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.times.retry) => {}
            }
            let begun = Instant::now();
            let left = self.times.renew.saturating_sub(renewed.elapsed());
            match tokio::time::timeout(left, self.attempt()).await {
                Ok(Ok(true)) => renewed = begun,
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::debug!(%error, lease = self.name, "not renewed"),
                Err(_) => {}
            }
            if renewed.elapsed() >= self.times.renew {
                return;
            }
        }
    }

    /// Takes the Lease or renews it; false if another has it.
    async fn attempt(&mut self) -> Result<bool, Error> {
        let now = json!(now());
        let (identity, seconds) = (self.identity.clone(), self.times.lease.as_secs().max(1));
        let spec = |since: &Value, changes: i64| {
            json!({
                "holderIdentity": identity, "leaseDurationSeconds": seconds,
                "acquireTime": since, "renewTime": now, "leaseTransitions": changes,
            })
        };
        let found = self.client.get_opt(&leases(), Some(NAMESPACE), &self.name).await?;
        let Some(mut lease) = found else {
            let metadata = json!({"name": self.name, "namespace": NAMESPACE});
            let fresh = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec(&now, 0),
            });
            return self.took(self.client.create(&leases(), &fresh).await);
        };
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        let changes = lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0);
        lease["spec"] = if holder == self.identity {
            spec(&lease["spec"]["acquireTime"], changes)
        } else if holder.is_empty() || self.has_expired(&lease) {
            spec(&now, changes + 1)
        } else {
            return Ok(false);
        };
        self.took(self.client.update(&leases(), &lease).await)
    }

    /// Whether this instance acquired the Lease, from the outcome of its write: of several writers the first wins.
    fn took(&self, outcome: Result<Value, Error>) -> Result<bool, Error> {
        match outcome {
            Ok(_) => Ok(true),
            Err(error) if error.is_conflict() || error.is_already_exists() => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn has_expired(&mut self, lease: &Value) -> bool {
        let valid = Duration::from_secs(lease["spec"]["leaseDurationSeconds"].as_u64().unwrap_or(0));
        match &self.seen {
            Some((seen, since)) if *seen == lease["spec"] => since.elapsed() >= valid,
            _ => {
                self.seen = Some((lease["spec"].clone(), Instant::now()));
                false
            }
        }
    }

    /// Lets others take over at once.
    async fn release(&self) {
        let give_back = async {
            let mut lease = self.client.get(&leases(), Some(NAMESPACE), &self.name).await?;
            if lease["spec"]["holderIdentity"] == json!(self.identity) {
                lease["spec"]["holderIdentity"] = json!("");
                lease["spec"]["leaseDurationSeconds"] = json!(1);
                self.client.update(&leases(), &lease).await?;
            }
            Ok::<_, Error>(())
        };
        // A server that has gone already keeps it until it expires.
        let _ = tokio::time::timeout(self.times.retry, give_back).await;
    }
}

/// The time of a renewal.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

pub(crate) fn leases() -> Resource {
    Resource::namespaced("coordination.k8s.io", "v1", "leases")
}
