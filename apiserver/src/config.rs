//! From settings to a server.

use crate::local::LocalBackend;
use crate::{
    aggregation::{AggregatorIdentity, Certificates, Conditions},
    audit::AuditConfig,
    authentication::{Authentication, AuthenticationConfig},
    authorization::Authorization,
    clients::ClientAuthority,
    credentials::WebhookCredentials,
    debugging::{KnownCertificates, Process},
    host::Host,
    kubelets::{Kubelets, Syncers},
    lookup::Lookup,
    nodes::Nodes,
    policies::Policies,
    reload::{Follower, Material, Source},
    resource_metrics::ResourceMetrics,
    services::CachedServices,
    tenant_rules::TenantRules,
    webhooks::Hooks,
};
use anyhow::{Context, Result};
use freehold_apiserver_admission::{Chain, Plugin, Switches};
use freehold_apiserver_aggregation::Aggregator;
use freehold_apiserver_audit::{Auditor, Trail};
use freehold_apiserver_authn::{FrontProxy, KeySet, TokenIssuer};
use freehold_apiserver_cache::{Cache, CacheOptions};
use freehold_apiserver_outbound::{Limits as OutboundLimits, Networks, Outbound};
use freehold_apiserver_planes::{
    Authorities as Published, Layers, Planes,
    apis::{ProofKey, SystemExport},
};
use freehold_apiserver_registry::{Registry, TokenSecrets, now};
use freehold_apiserver_server::{
    Authorities, Certificate, ClientMaterial, ClientTls, EtcdHandler, Limits, MoreMetrics, Origins, Pages,
    ReadApi, Server,
};
use freehold_apiserver_storage::{KeyRange, Store, StoreError};
use freehold_apiserver_storage_embedded::{Embedded, Retention};
use freehold_apiserver_storage_etcd::{Etcd, EtcdOptions};
use freehold_apiserver_storage_sealed::{EncryptionKeys, Options, Sealed};
use freehold_machinery::{PlaneId, Value};
use freehold_pki::Pair;
use prometheus_client::registry::Registry as MetricsRegistry;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// How long a store that can't be reached at start is tried.
const STORE_PATIENCE: Duration = Duration::from_secs(30);
/// How long audit events that were not delivered hold up the end.
const AUDIT_PATIENCE: Duration = Duration::from_secs(5);
/// What `/version` says of the Kubernetes API that is served.
pub const KUBERNETES_VERSION: &str = "v1.36.0";

/// Where objects are kept.
#[derive(Clone)]
pub enum StoreConfig {
    /// In a directory of this machine, with so much history.
    Embedded(PathBuf, Retention),
    /// In etcd, or in a server that speaks its protocol.
    Etcd(Box<EtcdOptions>),
}

/// Everything that an apiserver needs.
pub struct Config {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The plane that `/` leads to: core, or the one plane of a dedicated pair.
    pub plane: PlaneId,
    /// The store, opened: what is read and written, plain. Of the core server it is the one in `sealed`.
    pub store: Arc<dyn Store>,
    /// Where values are sealed, for the core server: the apiserver of a pair gets plain ones.
    pub sealed: Option<Sealed>,
    /// What stands behind a project's name in the host name of its control plane, in lower case, where projects have such
    /// names: `serving` is valid for `*.DOMAIN` then.
    pub domain: Option<String>,
    /// The serving certificate.
    pub serving: Pair,
    /// Reads the certificates and keys anew, where they are followed.
    pub source: Option<Source>,
    /// The authority of client certificates, PEM.
    pub client_ca: String,
    /// Who vouches for the clients of each plane, which planes publish.
    pub client_authority: ClientAuthority,
    /// The authority of serving certificates, PEM: what planes publish as `kube-root-ca.crt`.
    pub serving_ca: String,
    /// The authority of front proxies, PEM.
    pub front_proxy_ca: Option<String>,
    /// The common names of front proxies; empty admits each certificate of that authority.
    pub front_proxy_names: Vec<String>,
    /// Who this server is to dedicated pairs.
    pub front_proxy: Option<Pair>,
    /// Who this server is to aggregated servers.
    pub aggregator: AggregatorIdentity,
    /// The kubeconfig of the cluster that this server extends.
    pub host: Option<PathBuf>,
    /// Who this server is to nodes.
    pub node_client: Option<Pair>,
    /// The key that signs service account tokens, PEM, and behind it those that are believed too, private or public.
    pub service_account_key: String,
    /// Memory and history of the cache.
    pub cache: CacheOptions,
    /// Sizes, counts and times of the edge.
    pub limits: Limits,
    /// Where webhooks and aggregated servers of planes may be.
    pub networks: Networks,
    /// Where the kubelets of planes may be.
    pub node_networks: Networks,
    /// Where syncers are, which stand for the kubelets of clusters that projects share.
    pub syncers: Vec<SocketAddr>,
    /// Which admission plugins run.
    pub admission: Switches,
    /// Who this server is to webhooks.
    pub webhook_credentials: WebhookCredentials,
    /// How much history is kept of a store that others use too, an etcd: the core servers see to that. One that is this
    /// server's own looks after it itself.
    pub history: Option<Retention>,
    /// Who is believed besides those whom the authorities and the key vouch for.
    pub authentication: AuthenticationConfig,
    /// Who is asked what they may do, and in which order: an `AuthorizationConfiguration`. Without one it is the server itself.
    pub authorization: Option<PathBuf>,
    /// What is recorded of requests, and where.
    pub audit: AuditConfig,
    /// What browsers and clients without certificates may do.
    pub transport: Transport,
    /// What others in the process count, at the end of `/metrics`.
    pub more_metrics: Option<MoreMetrics>,
    /// What is served beside the API.
    pub pages: Option<Pages>,
    /// Groups whose reads others in the process answer.
    pub reads: Vec<ReadApi>,
    /// Whether the authorities and the key here are right where the store, which several servers use, knows others.
    pub replace_authorities: bool,
    /// Definitions and other objects that every project's plane has, without a key in the store. Servers on one store
    /// need the same.
    pub project_objects: Vec<Value>,
    /// Kinds that projects can bind from the platform itself. Servers on one store need the same.
    pub system_exports: Vec<SystemExport>,
    /// Admission plugins beside the built-in ones, behind which they run.
    pub plugins: Vec<&'static dyn Plugin>,
}

/// What the edge asks of connections, and tells browsers.
#[derive(Clone, Default)]
pub struct Transport {
    /// The pages of which browsers may send requests here.
    pub origins: Origins,
    /// `Strict-Transport-Security`; empty for none.
    pub strict_transport: String,
    /// Whether clients without a certificate are refused in the handshake.
    pub certificates_only: bool,
}

/// A server that listens.
pub struct ApiServer {
    server: Server,
    cache: Arc<Cache>,
    /// Ends what goes on beside it.
    following: DropGuard,
    auditor: Option<Arc<Auditor>>,
}

/// The keys of one plane: all that the apiserver of a dedicated pair may reach.
pub fn plane_keys(plane: &PlaneId) -> KeyRange {
    KeyRange::plane(plane)
}

/// Opens a store. An etcd that does not answer is tried for half a minute, with a warning each time.
///
/// # Errors
/// Fails where the directory is another program's or damaged, or no etcd answers in time.
pub async fn open_store(config: &StoreConfig) -> Result<Arc<dyn Store>> {
    match config {
        StoreConfig::Embedded(dir, retention) => {
            let dir = dir.clone();
            let options = freehold_apiserver_storage_embedded::Options {
                retention: Some(*retention),
                ..Default::default()
            };
            Ok(tokio::task::spawn_blocking(move || Embedded::open_with(&dir, options)).await??)
        }
        StoreConfig::Etcd(options) => {
            let started = tokio::time::Instant::now();
            loop {
                let error = match reach(options).await {
                    Ok(store) => return Ok(store),
                    Err(error) => error,
                };
                let retry = matches!(error, StoreError::Unavailable(_)) && started.elapsed() < STORE_PATIENCE;
                if !retry {
                    let endpoints = options.endpoints.join(", ");
                    return Err(error).with_context(|| format!("etcd at {endpoints} can't be used"));
                }
                tracing::warn!(%error, endpoints = ?options.endpoints, "etcd does not answer yet; trying again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Wraps a store so that values are compressed unless told otherwise, and encrypted with the keys of a
/// file, if there is one. What a store has already is read in any case; an error says in one line which key is missing.
///
/// # Errors
/// Fails where a key file cannot be read or its content makes no sense.
pub async fn seal(raw: Arc<dyn Store>, compression: bool, keys: Option<&Path>) -> Result<Sealed> {
    crate::backup::check_complete(&*raw).await?;
    let encryption = keys.map(read_keys).transpose()?;
    let options = Options { compression, encryption, ..Options::default() };
    Sealed::open(raw, options).await.with_context(|| match keys {
        Some(file) => format!("--encryption-keys {}", file.display()),
        None => "--encryption-keys".to_owned(),
    })
}

fn read_keys(file: &Path) -> Result<EncryptionKeys> {
    let named = || format!("--encryption-keys {}", file.display());
    let text = zeroize::Zeroizing::new(std::fs::read_to_string(file).with_context(named)?);
    EncryptionKeys::parse(&text).with_context(named)
}

async fn reach(options: &EtcdOptions) -> Result<Arc<dyn Store>, StoreError> {
    let store = Etcd::connect(options.clone()).await?;
    store.revision().await?;
    Ok(store)
}

/// What continue tokens are sealed with: the keys that sign service account tokens, which all servers of a plane have in
/// common. The first of them is in use; the others are from before.
pub(crate) fn token_secrets(service_account_keys: &str) -> Vec<zeroize::Zeroizing<String>> {
    let keys = service_account_keys.split("-----BEGIN").skip(1);
    keys.map(|key| key.split_whitespace().collect::<String>().into()).collect()
}

fn client_tls(ca: &str, pair: &Pair) -> Result<ClientTls> {
    let material =
        ClientMaterial { ca: ca.as_bytes(), chain: pair.cert_pem.as_bytes(), key: pair.key_pem.as_bytes() };
    Ok(ClientTls::from_pem(material)?)
}

/// What the server calls its version.
fn version() -> String {
    format!("{KUBERNETES_VERSION}+freehold-{}", env!("CARGO_PKG_VERSION"))
}

impl Config {
    /// Who issues the tokens of service accounts.
    fn issuer(&self) -> Result<Arc<TokenIssuer>> {
        let keys = KeySet::from_bundle(&self.service_account_key)?;
        let audiences = ["https://kubernetes.default.svc", "https://kubernetes.default.svc.cluster.local"];
        let issuer = TokenIssuer::new("https://freehold.local/planes", &audiences, keys);
        Ok(Arc::new(if self.plane.is_core() { issuer.with_pairs() } else { issuer }))
    }

    /// What continue tokens are sealed with.
    fn continue_secrets(&self) -> Arc<TokenSecrets> {
        let secrets = token_secrets(&self.service_account_key);
        Arc::new(TokenSecrets::new(secrets.iter().map(|secret| secret.as_bytes())))
    }

    /// Installs the base layers, starts the cache and listens. Requests wait until [`ApiServer::run`].
    ///
    /// # Errors
    /// Fails where the store does, a file of the configuration makes no sense, or the address is taken.
    pub async fn build(mut self) -> Result<ApiServer> {
        let stored = crate::measured::measure(&mut self.store);
        let is_core = self.plane.is_core();
        if is_core && let Some(history) = self.history {
            crate::shared::agree(&*self.store, &self.shared(), self.replace_authorities).await?;
            tokio::spawn(crate::compaction::run(Arc::downgrade(&self.store), history));
        }
        let (store, authorities, now) = (self.store.clone(), self.published(), now());
        let layers = Arc::new(Layers::install(store, self.plane.clone(), &authorities, &now).await?);
        let cache = Cache::start(self.store.clone(), self.keys(), layers.clone(), self.cache).await?;
        let planes = Planes::new(self.store.clone(), cache.clone(), layers, self.plane.clone());
        let following = CancellationToken::new();
        let authorization = Authorization::start(self.authorization.as_deref(), &following)?;
        let policies = Arc::new(Policies { planes: planes.clone(), authorization: authorization.clone() });
        let (services, outbound) = self.outbound(&cache);
        let webhooks = Arc::new(Hooks::new(outbound.clone(), self.webhook_credentials.clone()));
        let secrets = self.continue_secrets();
        let registry = Registry::new(self.store.clone(), cache.clone(), policies, webhooks);
        let registry = Arc::new(self.equip(registry.with_token_secrets(&secrets), &planes)?);
        let aggregator = Aggregator::start(
            cache.clone(),
            outbound.clone(),
            Arc::new(Certificates::new(self.aggregator.clone())),
            Arc::new(Conditions { registry: registry.clone(), directory: planes.directory().clone() }),
        );
        planes.aggregate(aggregator.clone());
        let (tokens, host) = (self.issuer()?, self.host.as_deref().map(Host::open).transpose()?);
        let authentication = Authentication::start(
            &self.authentication,
            tokens.clone(),
            cache.clone(),
            outbound.clone(),
            services,
            &following,
        )?;
        let mut metrics = crate::metrics::registry(&cache, &stored, registry.admission_metrics());
        let certificates = self.known_certificates();
        certificates.register(&mut metrics);
        let trail = is_core.then(|| self.trail(&cache, &following)).flatten();
        let (auditor, etcd) = (self.audit.build(trail.as_ref(), &mut metrics)?, self.etcd_handler(&registry));
        let backend = LocalBackend {
            trail,
            host: host.clone(),
            authentication,
            authorization,
            flows: Default::default(),
            shown_lately: Default::default(),
            lookup: Lookup::new(cache.clone()),
            store: self.store.clone(),
            sealed: self.sealed.clone(),
            sleepers: crate::sleep::Sleepers::start(planes.clone(), registry.clone()),
            planes: planes.clone(),
            registry,
            outbound,
            resource_metrics: ResourceMetrics::new(cache.clone(), self.kubelets(&cache)),
            nodes: Nodes::start(&cache),
            aggregator,
            tokens: tokens.clone(),
        };
        let process = self.process(&cache, planes, certificates.clone());
        let edge = self.edge((metrics, process), auditor.clone(), etcd)?;
        let authorities = edge.authorities.clone();
        let server = Server::bind(edge, Arc::new(backend)).await?;
        if let Some(source) = &self.source {
            let follower = Follower {
                source: source.clone(),
                now: self.material(),
                reload: server.reload(),
                authorities: host.is_none().then(|| authorities.clone()),
                tokens,
                continue_secrets: secrets,
                certificates,
            };
            tokio::spawn(follower.run(following.clone()));
        }
        if let Some(host) = host {
            tokio::spawn(host.follow(server.reload(), authorities, following.clone()));
        }
        Ok(ApiServer { server, cache, following: following.drop_guard(), auditor })
    }

    /// The keys that the server reads.
    fn keys(&self) -> KeyRange {
        if self.plane.is_core() { KeyRange::all_planes() } else { KeyRange::plane(&self.plane) }
    }

    /// The certificates that the server works with, as it starts.
    fn known_certificates(&self) -> KnownCertificates {
        let known = KnownCertificates::default();
        let pairs = [("to dedicated pairs", &self.front_proxy), ("to nodes", &self.node_client)];
        pairs.into_iter().for_each(|(what, pair)| {
            if let Some(pair) = pair {
                known.set(what, &pair.cert_pem);
            }
        });
        known.set("authority of serving", &self.serving_ca);
        self.material().list_in(&known);
        known
    }

    /// What administrators are told of the process.
    fn process(&self, cache: &Arc<Cache>, planes: Arc<Planes>, certificates: KnownCertificates) -> Process {
        let store = match (self.plane.is_core(), &self.history) {
            (false, _) => "core servers",
            (true, Some(_)) => "etcd",
            (true, None) => "embedded",
        };
        let version = version();
        Process {
            cache: cache.clone(),
            planes,
            certificates,
            version,
            store,
            started: jiff::Timestamp::now(),
        }
    }

    /// Tells a registry of the plugins and of what projects have. A core server's knows which APIs projects export; a pair's
    /// does not.
    fn equip(&self, registry: Registry, planes: &Arc<Planes>) -> Result<Registry> {
        let chain = Chain::new(&self.admission).with(&[&TenantRules]).with(&self.plugins);
        let tenancy = Arc::new(crate::tenancy::Projects(planes.clone()));
        let registry = registry.with_admission(chain).with_tenancy(tenancy);
        let registry = registry.with_shared_limits(Arc::new(crate::shared_limits::TenantQuotas));
        if !self.plane.is_core() {
            return Ok(registry);
        }
        self.prove_bindings(planes)?;
        Ok(registry.with_exports(Arc::new(crate::exports::KnownExports::new(planes.clone()))))
    }

    /// Makes requests to what objects of planes name, their Services among them.
    fn outbound(&self, cache: &Arc<Cache>) -> (Arc<CachedServices>, Arc<Outbound>) {
        let services = Arc::new(CachedServices(cache.clone()));
        let outbound = Outbound::new(self.networks.clone(), services.clone(), OutboundLimits::default());
        (services, Arc::new(outbound))
    }

    /// Reaches the nodes of planes, where the authorities of planes follow from one that is known.
    fn kubelets(&self, cache: &Arc<Cache>) -> Option<Kubelets> {
        let ClientAuthority::Platform(authority) = &self.client_authority else { return None };
        let services = Arc::new(CachedServices(cache.clone()));
        let kubelets = Kubelets::new(authority.clone(), self.node_networks.clone(), services);
        Some(kubelets.with_syncers(self.known_syncers()))
    }

    /// Syncers prove themselves by the platform's authority, and know this server by the certificate that it shows nodes.
    fn known_syncers(&self) -> Option<Syncers> {
        let pair = self.node_client.as_ref().filter(|_| !self.syncers.is_empty())?;
        let identity = freehold_apiserver_outbound::Identity {
            chain: pair.cert_pem.clone().into_bytes(),
            key: pair.key_pem.as_bytes().to_vec(),
        };
        let trust = freehold_apiserver_outbound::Trust::Bundle(self.serving_ca.clone().into_bytes().into());
        Some(Syncers { addresses: self.syncers.clone(), identity: Arc::new(identity), trust })
    }

    /// Proves bindings with a key that follows from the platform's authority: all servers of a store have that.
    fn prove_bindings(&self, planes: &Planes) -> Result<()> {
        if let ClientAuthority::Platform(authority) = &self.client_authority {
            let key = authority.derived_secret("freehold bindings")?;
            planes.apis().prove_with(ProofKey::new(&key[..]));
        }
        planes.apis().offer(&self.system_exports);
        Ok(())
    }

    /// The trails of organizations, where they are kept, tidied until `stop`.
    fn trail(&self, cache: &Arc<Cache>, stop: &CancellationToken) -> Option<Arc<Trail>> {
        let trail = self.audit.trail.then(|| Trail::new(self.store.clone()))?;
        tokio::spawn(crate::trails::tidy(trail.clone(), cache.clone(), stop.clone()));
        Some(trail)
    }

    /// What the server is secured with at its start.
    fn material(&self) -> Material {
        Material {
            serving: self.serving.clone(),
            client_ca: self.client_ca.clone(),
            front_proxy_ca: self.front_proxy_ca.clone(),
            service_account_key: self.service_account_key.clone(),
        }
    }

    /// What planes publish of its authorities.
    fn published(&self) -> Published<'_> {
        Published {
            project_objects: &self.project_objects,
            serving: &self.serving_ca,
            front_proxy: self.front_proxy_ca.as_deref(),
            clients: self.client_authority.published(),
        }
    }

    /// Serves each plane's keys to its pair, which has neither keys nor dictionaries; `None` where this is a pair itself.
    fn etcd_handler(&self, registry: &Arc<Registry>) -> Option<EtcdHandler> {
        let bounds = || crate::etcd::bounds(registry.clone());
        self.sealed.is_some().then(|| crate::etcd::handler(self.store.clone(), bounds()))
    }

    /// What it has in common with the other servers on its store.
    fn shared(&self) -> Vec<crate::shared::Part<'_>> {
        vec![
            ("ca.crt", &self.client_ca),
            ("front-proxy-ca.crt", self.front_proxy_ca.as_deref().unwrap_or_default()),
            ("service-account.key", &self.service_account_key),
        ]
    }

    fn edge(
        &self,
        (registry, process): (MetricsRegistry, Process),
        audit: Option<Arc<Auditor>>,
        etcd: Option<EtcdHandler>,
    ) -> Result<freehold_apiserver_server::Config> {
        let front_proxy = |ca: &String| FrontProxy {
            ca_pem: ca.clone(),
            allowed_names: self.front_proxy_names.clone(),
            ..FrontProxy::default()
        };
        let tls =
            |pair: &Option<Pair>| pair.as_ref().map(|pair| client_tls(&self.serving_ca, pair)).transpose();
        Ok(freehold_apiserver_server::Config {
            listen: self.listen,
            domain: self.domain.clone(),
            certificate: Certificate::from_pem(
                self.serving.cert_pem.as_bytes(),
                self.serving.key_pem.as_bytes(),
            )?,
            authorities: Authorities {
                clients: self.client_ca.clone(),
                front_proxies: self.front_proxy_ca.iter().map(front_proxy).collect(),
            },
            front_proxy: tls(&self.front_proxy)?,
            nodes: tls(&self.node_client)?,
            version: version(),
            debug: Some(process.documents()),
            limits: self.limits.clone(),
            registry,
            more_metrics: self.more_metrics.clone(),
            pages: self.pages.clone(),
            reads: self.reads.clone(),
            audit,
            proxies: self.audit.proxies.clone(),
            origins: self.transport.origins.clone(),
            strict_transport: self.transport.strict_transport.clone(),
            certificates_only: self.transport.certificates_only,
            etcd,
        })
    }
}

impl ApiServer {
    /// The address that it listens on.
    pub fn local_addr(&self) -> SocketAddr {
        self.server.local_addr()
    }

    /// The cache, for those who measure.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Renders the text of `/metrics`, in the OpenMetrics format.
    pub fn metrics(&self) -> MoreMetrics {
        self.server.metrics()
    }

    /// Serves until `stop`, then drains.
    pub async fn run(self, stop: CancellationToken) {
        let Self { server, following, auditor, .. } = self;
        server.run(stop).await;
        drop(following);
        if let Some(auditor) = auditor {
            auditor.close(AUDIT_PATIENCE).await;
        }
    }
}
