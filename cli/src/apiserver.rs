//! `freehold apiserver`: a stateless apiserver over a store that others have too: of one plane, as a dedicated pair runs
//! it, or of all planes, as one of several core servers.

use crate::{
    core::{Core, local_url},
    metrics::{Format, MetricsArgs},
    pki::Pki,
    stop,
    store::{EtcdArgs, HistoryArgs, SealArgs, read},
};
use anyhow::{Context, Result};
use freehold_apiserver::{
    AggregatorIdentity, ApiServer, ClientAuthority, Config, EtcdOptions, Limits, Material, StoreConfig,
    open_store,
};
use freehold_machinery::PlaneId;
use freehold_pki::Pair;
use std::{io::Write, net::SocketAddr, path::PathBuf, sync::Arc};

/// Flags of `freehold apiserver`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    cache: crate::memory::CacheArgs,
    #[command(flatten)]
    outbound: crate::outbound::OutboundArgs,
    #[command(flatten)]
    nodes: crate::outbound::NodeArgs,
    #[command(flatten)]
    admission: crate::admission::AdmissionArgs,
    /// Serve all planes, with the authorities and keys in this folder (as `freehold pki` creates them), which all
    /// servers on this etcd share.
    #[arg(long, value_name = "DIR", conflicts_with = "plane")]
    pki_dir: Option<PathBuf>,
    /// URL under which clients reach the servers of all planes.
    #[arg(long, requires = "pki_dir")]
    external_url: Option<String>,
    #[command(flatten)]
    authentication: crate::authentication::AuthenticationArgs,
    #[command(flatten)]
    authorization: crate::authentication::AuthorizationArgs,
    #[command(flatten)]
    audit: crate::audit::AuditArgs,
    #[command(flatten)]
    transport: crate::transport::TransportArgs,
    #[command(flatten)]
    host: crate::host::HostArgs,
    /// Give each project a host name besides its path: PROJECT.DOMAIN.
    #[arg(long, requires = "pki_dir", value_parser = crate::names::domain)]
    domain: Option<String>,
    /// Replace the authorities that the objects in etcd belong to by these.
    #[arg(long, requires = "pki_dir")]
    replace_authorities: bool,
    /// Serve only this plane.
    #[arg(long, required_unless_present = "pki_dir")]
    plane: Option<PlaneId>,
    /// The project whose plane it is.
    #[arg(long, default_value = "")]
    project: String,
    /// The organization that owns the project.
    #[arg(long, default_value = "")]
    organization: String,
    /// The plane's class.
    #[arg(long, default_value = "default")]
    class: String,
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
    #[command(flatten)]
    subsystems: crate::subsystem::EnableArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    history: HistoryArgs,
    #[command(flatten)]
    seal: SealArgs,
    /// The serving certificate, a PEM file.
    #[arg(long, required_unless_present = "pki_dir")]
    tls_cert: Option<PathBuf>,
    /// Its key, a PEM file.
    #[arg(long, required_unless_present = "pki_dir")]
    tls_key: Option<PathBuf>,
    /// The authority of client certificates, a PEM file: of the plane's own clients.
    #[arg(long, required_unless_present = "pki_dir")]
    client_ca: Option<PathBuf>,
    /// The authority of serving certificates, which the plane publishes, a PEM file. Default: the authority of client
    /// certificates.
    #[arg(long, conflicts_with = "pki_dir")]
    serving_ca: Option<PathBuf>,
    /// The authority of front proxies, a PEM file.
    #[arg(long)]
    front_proxy_ca: Option<PathBuf>,
    /// The common names of front proxies.
    #[arg(long, value_delimiter = ',')]
    front_proxy_names: Vec<String>,
    /// The certificate with which aggregated servers are reached, of the authority of front proxies: a PEM file.
    #[arg(long, requires = "proxy_client_key")]
    proxy_client_cert: Option<PathBuf>,
    /// Its key, a PEM file.
    #[arg(long, requires = "proxy_client_cert")]
    proxy_client_key: Option<PathBuf>,
    /// The key that signs service account tokens, a PEM file. Further keys in it, private or public, are accepted too.
    #[arg(long, required_unless_present = "pki_dir")]
    service_account_key: Option<PathBuf>,
}

/// The files of certificates and keys of one plane's server.
struct Files {
    cert: PathBuf,
    key: PathBuf,
    client_ca: PathBuf,
    front_proxy_ca: Option<PathBuf>,
    service_account_key: PathBuf,
}

impl Files {
    /// Those that flags must name, which the parser sees to.
    fn of(args: &Args) -> Result<Self> {
        let needed =
            |path: &Option<PathBuf>, flag: &str| path.clone().with_context(|| format!("{flag} is missing"));
        Ok(Self {
            cert: needed(&args.tls_cert, "--tls-cert")?,
            key: needed(&args.tls_key, "--tls-key")?,
            client_ca: needed(&args.client_ca, "--client-ca")?,
            front_proxy_ca: args.front_proxy_ca.clone(),
            service_account_key: needed(&args.service_account_key, "--service-account-key")?,
        })
    }

    fn read(&self) -> Result<Material> {
        Ok(Material {
            serving: Pair { cert_pem: read(&self.cert)?, key_pem: read(&self.key)? },
            client_ca: read(&self.client_ca)?,
            front_proxy_ca: self.front_proxy_ca.as_ref().map(|path| read(path)).transpose()?,
            service_account_key: read(&self.service_account_key)?,
        })
    }
}

/// Serves until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = stop::on_signal()?;
    let options = args.etcd.options()?.context("--etcd is missing")?;
    let server = match (&args.pki_dir, &args.plane) {
        (Some(dir), _) => {
            let core = Core {
                listen: args.listen,
                external_url: args.external_url.as_deref(),
                domain: args.domain.as_deref(),
                pki: &Pki::open(dir)?,
                store: StoreConfig::Etcd(Box::new(options)),
                seal: &args.seal,
                replace_authorities: args.replace_authorities,
                host: &args.host,
                cache: args.cache.options(),
                networks: args.outbound.networks.clone(),
                node_networks: args.nodes.networks(),
                syncers: args.nodes.syncers.clone(),
                admission: &args.admission,
                history: args.history.retention(),
                authentication: args.authentication.config(),
                authorization: args.authorization.config(),
                audit: args.audit.config()?,
                transport: args.transport.config()?,
                subsystems: &args.subsystems,
                more_metrics: None,
                pages: None,
                reads: Vec::new(),
            };
            core.build().await?
        }
        (None, Some(plane)) => build_one(&args, plane.clone(), options).await?,
        (None, None) => anyhow::bail!("--plane or --pki-dir is required"),
    };
    args.metrics.serve(Format::OpenMetrics, server.metrics(), stop.clone()).await?;
    let mut out = std::io::stdout();
    writeln!(out, "ready url={}", local_url(server.local_addr()))?;
    out.flush()?;
    server.run(stop).await;
    Ok(())
}

fn aggregator(args: &Args) -> Result<AggregatorIdentity> {
    Ok(match (&args.proxy_client_cert, &args.proxy_client_key) {
        (Some(cert), Some(key)) => {
            AggregatorIdentity::Pair(Pair { cert_pem: read(cert)?, key_pem: read(key)? })
        }
        _ => AggregatorIdentity::Nobody,
    })
}

/// The apiserver of one plane.
async fn build_one(args: &Args, plane: PlaneId, options: EtcdOptions) -> Result<ApiServer> {
    tracing::info!(%plane, project = args.project, organization = args.organization, class = args.class, "starting");
    anyhow::ensure!(
        !args.seal.encrypts(),
        "--encryption-keys is for servers of all planes: the apiserver of one plane gets its objects from them"
    );
    let options = EtcdOptions { home: freehold_apiserver::plane_keys(&plane), ..options };
    let files = Files::of(args)?;
    let Material { serving, client_ca, front_proxy_ca, service_account_key } = files.read()?;
    let config = Config {
        listen: args.listen,
        domain: None,
        plane,
        store: open_store(&StoreConfig::Etcd(Box::new(options))).await?,
        sealed: None,
        serving,
        source: Some(Arc::new(move || files.read())),
        serving_ca: match &args.serving_ca {
            Some(file) => read(file)?,
            None => client_ca.clone(),
        },
        node_networks: args.nodes.networks(),
        syncers: Vec::new(),
        client_authority: ClientAuthority::Plane(client_ca.clone()),
        client_ca,
        front_proxy_ca,
        front_proxy_names: args.front_proxy_names.clone(),
        front_proxy: None,
        host: None,
        aggregator: aggregator(args)?,
        node_client: None,
        service_account_key,
        cache: args.cache.options(),
        networks: args.outbound.networks.clone(),
        admission: args.admission.switches()?,
        webhook_credentials: args.admission.credentials()?,
        limits: Limits::default(),
        history: None,
        authentication: args.authentication.config(),
        authorization: args.authorization.config(),
        audit: args.audit.config()?,
        transport: args.transport.config()?,
        more_metrics: None,
        pages: None,
        reads: Vec::new(),
        replace_authorities: false,
        project_objects: crate::subsystem::objects(&args.subsystems.enabled),
        system_exports: Vec::new(),
        plugins: crate::subsystem::plugins(&args.subsystems.enabled),
    };
    config.build().await
}
