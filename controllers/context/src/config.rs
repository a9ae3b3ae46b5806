//! Configuration of a controller manager.

use freehold_machinery::PlaneId;
use freehold_pki::Authority;
use freehold_runtime::Metrics;
use std::sync::Arc;
use std::time::Duration;

/// The controllers of Kubernetes, by the names that [`Config::controllers`] takes.
pub const KUBERNETES_CONTROLLERS: &[&str] = &[
    "namespace",
    "garbage-collector",
    "service-account",
    "service-account-token",
    "root-ca",
    "resource-quota",
    "cluster-role-aggregation",
    "deployment",
    "replica-set",
    "replication-controller",
    "stateful-set",
    "daemon-set",
    "horizontal-pod-autoscaler",
    "job",
    "cron-job",
    "ttl-after-finished",
    "disruption",
    "pod-garbage-collector",
    "endpoints",
    "endpoint-slice",
    "endpoint-slice-mirroring",
    "certificate-approving",
    "certificate-signing",
    "certificate-cleaner",
    "definition-deletion",
    "volume-protection",
    "node-taints",
    "node-lifecycle",
    "taint-eviction",
    "ephemeral-volume",
    "token-cleaner",
    "persistentvolume-binder-controller",
    "node-ipam-controller",
    "resourceclaim-controller",
    "service-lb-controller",
];

/// The controllers of Freehold itself, which work in the core plane.
pub const FREEHOLD_CONTROLLERS: &[&str] = &[
    "organization",
    "project",
    "membership",
    "snapshot",
    "restore",
    "class",
    "allowance",
    "api-rollout",
    "policy-binding",
    "group-membership",
    "user-invitation",
    "service-account-key",
];

/// Where controllers work.
#[derive(Clone, Debug)]
pub enum Scope {
    /// In all planes that the server serves itself.
    AllPlanes,
    /// In one plane, at a base path below the server's URL.
    OnePlane {
        /// The plane.
        plane: PlaneId,
        /// `/planes/<id>`, or empty where the server serves nothing else.
        base_path: String,
    },
}

/// Configuration of a controller manager.
#[derive(Clone)]
pub struct Config {
    /// How it reaches the server, as someone who may do anything there.
    pub client: freehold_client::Config,
    /// Where its controllers work. Those of Freehold always work in the core plane.
    pub scope: Scope,
    /// The names of the controllers that run.
    pub controllers: Vec<String>,
    /// The URL under which clients reach the server; kubeconfigs of projects begin with it.
    pub external_url: String,
    /// The certificates that clients check the server's with, in PEM: for kubeconfigs and `kube-root-ca.crt`.
    pub ca_pem: String,
    /// Signs client certificates. Without it no project gets a kubeconfig and no signing request is signed.
    pub signing: Option<Arc<Authority>>,
    /// How long certificates of signing requests are valid at the longest.
    pub certificate_validity: Duration,
    /// How long the certificates of projects' kubeconfigs are valid. They are renewed when a third of that is left.
    pub kubeconfig_validity: Duration,
    /// Into how many parts the planes are divided, where several instances share them (see
    /// [`Division`](freehold_runtime::Division)); `None`: this instance has all.
    pub parts: Option<u32>,
    /// Where controllers count.
    pub metrics: Metrics,
    /// Endpoints that a slice of a Service has at most, 1 to 1,000.
    pub max_endpoints_per_slice: usize,
    /// Settings of controllers of volumes, addresses and devices.
    pub options: freehold_controllers::Options,
    /// Where the infra plane is, if that is not the plane `infra` of the same server.
    pub infra: Option<freehold_client::Config>,
}

impl Config {
    /// All controllers over all planes of a server, signing with `signing`.
    pub fn new(
        client: freehold_client::Config,
        external_url: impl Into<String>,
        ca_pem: impl Into<String>,
        signing: Option<Arc<Authority>>,
    ) -> Self {
        Self {
            client,
            scope: Scope::AllPlanes,
            controllers: KUBERNETES_CONTROLLERS
                .iter()
                .chain(FREEHOLD_CONTROLLERS)
                .map(|c| (*c).to_owned())
                .collect(),
            external_url: external_url.into(),
            ca_pem: ca_pem.into(),
            signing,
            certificate_validity: Duration::from_secs(365 * 24 * 3600),
            kubeconfig_validity: Duration::from_secs(90 * 24 * 3600),
            parts: None,
            metrics: Metrics::default(),
            max_endpoints_per_slice: 100,
            options: freehold_controllers::Options::default(),
            infra: None,
        }
    }

    /// Restricts it to one plane, with the controllers of Kubernetes alone: what a dedicated pair runs.
    pub fn for_plane(mut self, plane: PlaneId, base_path: impl Into<String>) -> Self {
        self.scope = Scope::OnePlane { plane, base_path: base_path.into() };
        self.controllers.retain(|c| KUBERNETES_CONTROLLERS.contains(&c.as_str()));
        self
    }

    /// Keeps those of Kubernetes' controllers that are asked for, as `kube-controller-manager --controllers` has it: `*` for all,
    /// `NAME` for one, `-NAME` for all but one. Freehold's own always run. A name that is unknown fails when a manager is made of this.
    pub fn select(mut self, asked: &[String]) -> Self {
        let has = |name: &str| asked.iter().any(|one| one == name);
        let wanted = |name: &str| has(name) || has("*") && !has(&format!("-{name}"));
        self.controllers.retain(|name| !KUBERNETES_CONTROLLERS.contains(&name.as_str()) || wanted(name));
        let named = asked.iter().map(|one| one.strip_prefix('-').unwrap_or(one)).filter(|one| *one != "*");
        let unknown = named.filter(|name| !KUBERNETES_CONTROLLERS.contains(name));
        self.controllers.extend(unknown.map(str::to_owned));
        self
    }
}
