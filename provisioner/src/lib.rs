//! Turns each ProjectControlPlane of an infra API into a running apiserver and controller manager.
//!
//! ```text
//! ProjectControlPlane --watch--> reconcile: certificates (issued or kept) -> plan (pure) -> server-side apply
//!         ^                                                                                     |
//!         +---- status: endpoint, caBundle, Ready <---- Pods and Deployments <------------------+
//! ```
//!
//! Guarantees: what a pair consists of is decided in [`plan`] alone; a pair reaches no store but its own plane's, as far
//! as its certificate says; certificates renew themselves; a ProjectControlPlane that is deleted goes only after its
//! namespace has gone.
//!
//! Pairs may run on another cluster than the one with their ProjectControlPlanes. What others change or remove there is
//! put right at once, what a plan no longer has is removed, and a new image rolls through the pairs a few at a time.
//!
//! This crate must not know: how the infra API runs Pods, and what is in a project's plane.

mod apply;
pub mod certificates;
mod manager;
pub mod plan;
pub mod problem;
mod reconcile;
pub mod rollout;
pub mod status;
mod watch;

pub use manager::FIELD_MANAGER;

use crate::apply::Applier;
use crate::certificates::Authorities;
use crate::plan::{Etcd, Reach, Size, Trust};
use crate::reconcile::{Reconciler, Terms};
use crate::rollout::Rollouts;
use freehold_api::keys;
use freehold_client::Client;
use freehold_machinery::PlaneId;
use freehold_pki::Authority;
use freehold_runtime::{Controller, Metrics, Planes, Queue, resync};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long certificates are valid, where a configuration says nothing else.
pub const VALIDITY: Duration = Duration::from_secs(90 * 24 * 3600);
/// Gauges of pairs by the reason of a condition.
const GAUGES: [(&str, &str); 2] =
    [("freehold_provisioner_pairs", keys::READY), ("freehold_provisioner_pairs_updated", status::UPDATED)];
/// How often every pair is looked at and applied again.
const RESYNC: Duration = Duration::from_secs(300);

/// What a provisioner is made from.
pub struct Config {
    /// A client of the server with the ProjectControlPlanes.
    pub client: Client,
    /// Where their API is below that server: `/planes/infra`, or nothing for a cluster of its own.
    pub base_path: String,
    /// A client of the cluster that pairs run on, where that is another API.
    pub cluster: Option<Client>,
    /// The image with the `freehold` program, for classes that name none.
    pub image: String,
    /// When nodes pull it; empty leaves that to Kubernetes.
    pub image_pull_policy: String,
    /// Number of pairs that get another image at a time.
    pub rolling: usize,
    /// Where pairs keep their objects.
    pub etcd: Etcd,
    /// Signs the certificates that apiservers show to etcd; `None` where that is plain HTTP.
    pub etcd_authority: Option<Arc<Authority>>,
    /// Signs serving certificates.
    pub serving_authority: Arc<Authority>,
    /// The authorities of planes' clients follow from it. No pair trusts this one itself, or has the key of its own.
    pub client_authority: Arc<Authority>,
    /// Signs the certificates with which servers speak for their users: the core server to pairs, and each pair to the
    /// aggregated servers of its plane.
    pub front_proxy_authority: Arc<Authority>,
    /// The common names that such a certificate may have.
    pub front_proxy_names: Vec<String>,
    /// The platform's keys of service account tokens, PEM. No pair gets them: each one's own follows from the first.
    pub token_keys: String,
    /// What pairs may use, by ControlPlaneClass. A class that is not here has [`Size::default`].
    pub sizes: BTreeMap<String, Size>,
    /// Labels of the namespace from which the core server comes; empty allows every namespace.
    pub core_namespace_labels: BTreeMap<String, String>,
    /// Networks from which the core server comes besides, as CIDRs.
    pub core_networks: Vec<String>,
    /// How apiservers are reached.
    pub reach: Reach,
    /// Seconds for which an apiserver that is to stop goes on serving.
    pub drain_seconds: u32,
    /// Where webhooks and aggregated servers of pairs may be, as `--outbound-networks` has it.
    pub outbound_networks: String,
    /// Admission plugins of pairs that are switched on and off.
    pub admission_plugins: plan::AdmissionPlugins,
    /// OpenTelemetry's variables of apiservers; none: they export no spans.
    pub telemetry: BTreeMap<String, String>,
    /// How long certificates are valid: [`VALIDITY`].
    pub validity: Duration,
    /// How many pairs are worked on at once.
    pub workers: usize,
    /// Where reconciles are counted.
    pub metrics: Metrics,
}

/// A provisioner that is ready to run.
pub struct Provisioner {
    planes: Planes,
    cluster: Planes,
    infra: PlaneId,
    terms: Terms,
    rolling: usize,
    workers: usize,
    metrics: Metrics,
}

impl Config {
    /// A provisioner. Nothing happens before it runs.
    pub fn build(self) -> Provisioner {
        let infra = PlaneId::infra();
        let trust = Trust {
            serving_ca_pem: self.serving_authority.cert_pem().to_owned(),
            // Each pair's own.
            client_ca_pem: String::new(),
            front_proxy_ca_pem: self.front_proxy_authority.cert_pem().to_owned(),
            front_proxy_names: self.front_proxy_names,
        };
        let authorities = Authorities {
            serving: self.serving_authority,
            client: self.client_authority,
            etcd: self.etcd_authority,
            proxy: Some(self.front_proxy_authority),
            token_keys: self.token_keys,
            validity: self.validity,
        };
        let terms = Terms {
            image: self.image,
            image_pull_policy: self.image_pull_policy,
            etcd: self.etcd,
            trust,
            authorities,
            sizes: self.sizes,
            core_namespace_labels: self.core_namespace_labels,
            core_networks: self.core_networks,
            reach: self.reach,
            drain_seconds: self.drain_seconds,
            apart: self.cluster.is_some(),
            outbound_networks: self.outbound_networks,
            admission_plugins: self.admission_plugins,
            telemetry: self.telemetry,
        };
        let planes = Planes::one(self.client, infra.clone(), &self.base_path);
        let cluster = match self.cluster {
            Some(client) => Planes::one(client, infra.clone(), ""),
            None => planes.clone(),
        };
        let (rolling, workers, metrics) = (self.rolling, self.workers, self.metrics);
        Provisioner { planes, cluster, infra, terms, rolling, workers, metrics }
    }
}

impl Provisioner {
    /// Provisions until the token is cancelled.
    pub async fn run(self, token: CancellationToken) {
        let queue = Queue::new();
        let mut tasks = JoinSet::new();
        let stores = watch::start(&self.planes, &self.cluster, &self.infra, &queue, &mut tasks, &token);
        if !stores.synced(&token).await {
            return;
        }
        for (gauge, condition) in GAUGES {
            let (planes, infra) = (stores.planes.clone(), self.infra.clone());
            let count =
                move || status::reasons(planes.in_plane(&infra).iter().map(|(_, one)| &**one), condition);
            self.metrics.show(gauge, "reason", Arc::new(count));
        }
        tasks.spawn(resync(stores.planes.clone(), queue.clone(), RESYNC, token.clone()));
        let (client, cluster) = (self.planes.everywhere(), self.cluster.everywhere());
        let (applier, rollouts) = (Applier::new(cluster.clone()), Rollouts::new(self.rolling));
        let reconciler =
            Arc::new(Reconciler { client, cluster, stores, terms: self.terms, applier, rollouts });
        tasks.spawn(forget_regularly(reconciler.clone(), token.clone()));
        Controller::new("provisioner", queue)
            .workers(self.workers)
            .metrics(&self.metrics)
            .run(token, move |key| {
                let reconciler = reconciler.clone();
                async move { reconciler.reconcile(key).await }
            })
            .await;
        GAUGES.iter().for_each(|(gauge, _)| self.metrics.hide(gauge));
        tasks.join_all().await;
    }
}

/// Makes every resync apply everything anew.
async fn forget_regularly(reconciler: Arc<Reconciler>, token: CancellationToken) {
    loop {
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(RESYNC) => reconciler.applier.forget_all(),
        }
    }
}
