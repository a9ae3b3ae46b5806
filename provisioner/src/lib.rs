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
//! Deliberately absent: rolling out what others changed in the objects of a plan at once. It is put right by the resync.
//!
//! This crate must not know: how the infra API runs Pods, and what is in a project's plane.

pub mod certificates;
pub mod plan;
mod reconcile;
pub mod status;
mod watch;

use crate::certificates::Authorities;
use crate::plan::{Etcd, Size, Trust};
use crate::reconcile::{Reconciler, Terms};
use freehold_client::Client;
use freehold_machinery::PlaneId;
use freehold_pki::Authority;
use freehold_runtime::{Controller, Metrics, Planes, Queue, resync};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The field manager of everything that the provisioner applies.
pub const FIELD_MANAGER: &str = "freehold-provisioner";
/// How long certificates are valid, where a configuration says nothing else.
pub const VALIDITY: Duration = Duration::from_secs(90 * 24 * 3600);
/// How often every pair is looked at and applied again.
const RESYNC: Duration = Duration::from_secs(300);

/// What a provisioner is made from.
pub struct Config {
    /// A client of the infra API's server.
    pub client: Client,
    /// Where the infra API is below that server: `/planes/infra`, or nothing for a cluster of its own.
    pub base_path: String,
    /// The image with the `freehold` program.
    pub image: String,
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
    /// Where webhooks and aggregated servers of pairs may be, as `--outbound-networks` has it.
    pub outbound_networks: String,
    /// Admission plugins of pairs that are switched on and off.
    pub admission_plugins: plan::AdmissionPlugins,
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
    infra: PlaneId,
    terms: Terms,
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
            etcd: self.etcd,
            trust,
            authorities,
            sizes: self.sizes,
            core_namespace_labels: self.core_namespace_labels,
            outbound_networks: self.outbound_networks,
            admission_plugins: self.admission_plugins,
        };
        let planes = Planes::one(self.client, infra.clone(), &self.base_path);
        Provisioner { planes, infra, terms, workers: self.workers, metrics: self.metrics }
    }
}

impl Provisioner {
    /// Provisions until the token is cancelled.
    pub async fn run(self, token: CancellationToken) {
        let queue = Queue::new();
        let mut tasks = JoinSet::new();
        let stores = watch::start(&self.planes, &self.infra, &queue, &mut tasks, &token);
        if !stores.synced(&token).await {
            return;
        }
        tasks.spawn(resync(stores.planes.clone(), queue.clone(), RESYNC, token.clone()));
        let client = self.planes.everywhere();
        let applied = Mutex::new(HashMap::new());
        let reconciler = Arc::new(Reconciler { client, stores, terms: self.terms, applied });
        tasks.spawn(forget_regularly(reconciler.clone(), token.clone()));
        Controller::new("provisioner", queue)
            .workers(self.workers)
            .metrics(&self.metrics)
            .run(token, move |key| {
                let reconciler = reconciler.clone();
                async move { reconciler.reconcile(key).await }
            })
            .await;
        tasks.join_all().await;
    }
}

/// Makes every resync apply everything anew.
async fn forget_regularly(reconciler: Arc<Reconciler>, token: CancellationToken) {
    loop {
        tokio::select! {
            () = token.cancelled() => return,
            () = tokio::time::sleep(RESYNC) => reconciler.forget_applied(),
        }
    }
}
