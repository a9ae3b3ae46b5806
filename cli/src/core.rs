//! A core server: the apiserver of all planes, whichever command starts it.

use crate::{
    admission::AdmissionArgs,
    host::HostArgs,
    in_cluster,
    pki::{Pki, VALIDITY},
    store::SealArgs,
    subsystem::EnableArgs,
};
use anyhow::{Context, Result};
use freehold_apiserver::{
    AggregatorIdentity, ApiServer, ClientAuthority, Config, Limits, Material, Retention, Source, StoreConfig,
};
use freehold_machinery::PlaneId;
use freehold_pki::Pair;
use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

/// Names that a server has wherever it runs: those of a plane's own `kubernetes` service among them.
const NAMES: [&str; 8] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "10.96.0.1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// How it is to be.
pub(crate) struct Core<'a> {
    /// Where to listen.
    pub(crate) listen: SocketAddr,
    /// The URL that clients have for it, alone or together with others like it.
    pub(crate) external_url: Option<&'a str>,
    /// The domain below which each project has a host name.
    pub(crate) domain: Option<&'a str>,
    /// What it shares with others like it.
    pub(crate) pki: &'a Pki,
    /// Where objects are kept.
    pub(crate) store: StoreConfig,
    /// What is done to them on their way there.
    pub(crate) seal: &'a SealArgs,
    /// Whether what is in `pki` is right, whatever the store says.
    pub(crate) replace_authorities: bool,
    /// The cluster that it extends, if it does.
    pub(crate) host: &'a HostArgs,
    /// How much history is kept.
    pub(crate) history: Retention,
    /// What may be kept in memory.
    pub(crate) cache: freehold_apiserver::CacheOptions,
    /// Where webhooks and aggregated servers may be.
    pub(crate) networks: freehold_apiserver::Networks,
    /// Where nodes of projects may be.
    pub(crate) node_networks: freehold_apiserver::Networks,
    /// Where syncers are.
    pub(crate) syncers: Vec<SocketAddr>,
    /// Who is believed.
    pub(crate) authentication: freehold_apiserver::AuthenticationConfig,
    /// Who is asked what they may do.
    pub(crate) authorization: Option<PathBuf>,
    /// What is recorded of requests, and where.
    pub(crate) audit: freehold_apiserver::AuditConfig,
    /// What connections have to show, and what browsers may do.
    pub(crate) transport: freehold_apiserver::Transport,
    /// Which admission plugins run, and who the server is to webhooks.
    pub(crate) admission: &'a AdmissionArgs,
    /// Subsystems that projects have or can have.
    pub(crate) subsystems: &'a EnableArgs,
    /// What components in its process count.
    pub(crate) more_metrics: Option<freehold_apiserver::MoreMetrics>,
    /// What it serves beside the API.
    pub(crate) pages: Option<freehold_apiserver::Pages>,
    /// Groups whose reads subsystems in its process answer.
    pub(crate) reads: Vec<freehold_apiserver::ReadApi>,
}

/// The host of `https://HOST[:PORT][/PATH]`.
fn host(url: &str) -> Option<&str> {
    let authority = url.strip_prefix("https://")?.split('/').next()?;
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    (!host.is_empty()).then_some(host)
}

/// Names under which this server's certificate is valid.
fn names(listen: IpAddr, external_url: Option<&str>, domain: Option<&str>) -> Vec<String> {
    let mut names: Vec<String> = NAMES.into_iter().map(str::to_owned).collect();
    let listen = Some(listen).filter(|ip| !ip.is_unspecified()).map(|ip| ip.to_string());
    let external = external_url.and_then(host).map(str::to_owned);
    let projects = domain.map(|domain| format!("*.{domain}"));
    for name in [listen, external, projects].into_iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The URL of an address that was listened on, from this machine.
pub(crate) fn local_url(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv6() {
            [0, 0, 0, 0, 0, 0, 0, 1].into()
        } else {
            [127, 0, 0, 1].into()
        });
    }
    format!("https://{address}")
}

/// Reads the files of a directory anew. The serving certificate is made anew when the authority has changed, and half-way
/// through its time.
fn source(dir: PathBuf, names: Vec<String>, serving: Pair, ca: String) -> Source {
    let issued = Mutex::new((Instant::now(), ca, serving));
    Arc::new(move || {
        let pki = Pki::open(&dir)?;
        let mut issued = issued.lock().unwrap_or_else(PoisonError::into_inner);
        if issued.1 != pki.client_ca || issued.0.elapsed() > VALIDITY / 2 {
            *issued = (Instant::now(), pki.client_ca.clone(), pki.ca.issue_server(&names, VALIDITY)?);
        }
        Ok(Material {
            serving: issued.2.clone(),
            client_ca: pki.client_ca,
            front_proxy_ca: Some(pki.front_proxies),
            service_account_key: pki.service_account_key,
        })
    })
}

impl Core<'_> {
    /// A server that listens.
    pub(crate) async fn build(self) -> Result<ApiServer> {
        if let Some(url) = self.external_url {
            host(url).with_context(|| format!("--external-url must be https://HOST[:PORT], not {url:?}"))?;
        }
        let own_store = matches!(self.store, StoreConfig::Embedded(..));
        let mut project_objects = crate::subsystem::objects(&self.subsystems.enabled);
        let address = in_cluster::address(self.external_url, self.listen, own_store);
        project_objects.extend(address.into_iter().flat_map(in_cluster::endpoints));
        let sealed = self.seal.open(&self.store).await?;
        let mut names = names(self.listen.ip(), self.external_url, self.domain);
        names
            .extend(self.host.names.iter().filter(|name| !names.contains(name)).cloned().collect::<Vec<_>>());
        let front_proxy =
            freehold_pki::ClientName { user: crate::names::FRONT_PROXY, groups: &[], plane: None };
        let pki = self.pki;
        let serving = pki.ca.issue_server(&names, VALIDITY)?;
        let config = Config {
            listen: self.listen,
            domain: self.domain.map(str::to_owned),
            plane: PlaneId::core(),
            store: Arc::new(sealed.clone()),
            sealed: Some(sealed),
            source: Some(source(pki.dir.clone(), names, serving.clone(), pki.client_ca.clone())),
            serving,
            client_ca: pki.client_ca.clone(),
            client_authority: ClientAuthority::Platform(pki.ca.clone()),
            serving_ca: pki.client_ca.clone(),
            front_proxy_ca: Some(pki.front_proxies.clone()),
            front_proxy_names: vec![front_proxy.user.to_owned()],
            front_proxy: Some(pki.front_proxy_ca.issue_client(&front_proxy, VALIDITY)?),
            host: self.host.kubeconfig.clone(),
            aggregator: AggregatorIdentity::Authority(pki.front_proxy_ca.clone()),
            node_client: Some(pki.master(crate::names::API_SERVER)?),
            service_account_key: pki.service_account_key.clone(),
            cache: self.cache,
            limits: Limits::default(),
            networks: self.networks,
            node_networks: self.node_networks,
            syncers: self.syncers,
            authentication: self.authentication,
            authorization: self.authorization,
            audit: self.audit,
            transport: self.transport,
            more_metrics: self.more_metrics,
            pages: self.pages,
            reads: self.reads,
            admission: self.admission.switches()?,
            webhook_credentials: self.admission.credentials()?,
            history: (!own_store).then_some(self.history),
            replace_authorities: self.replace_authorities,
            project_objects,
            system_exports: crate::subsystem::exports(&self.subsystems.running()),
            plugins: crate::subsystem::plugins(&self.subsystems.enabled),
        };
        config.build().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_names_where_clients_reach_the_server() {
        let names = names([0, 0, 0, 0].into(), Some("https://plane.example.com:6443/x"), Some("example.com"));
        assert!(names.contains(&"*.example.com".to_owned()), "{names:?}");
        assert!(names.contains(&"plane.example.com".to_owned()), "{names:?}");
        assert!(!names.contains(&"0.0.0.0".to_owned()), "{names:?}");
        assert_eq!(host("https://[fd00::1]:7443"), Some("fd00::1"));
        assert_eq!(host("http://a"), None);
        assert_eq!(host("https://:1"), None);
    }
}
