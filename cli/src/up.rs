//! `freehold up`: everything in one process.

use crate::{
    components,
    console::{self, Console, ConsoleArgs},
    controllers::ControllerArgs,
    core::{Core, local_url},
    data_dir::DataDir,
    stop,
    store::{EtcdArgs, HistoryArgs, SealArgs},
};
use anyhow::{Context, Result};
use freehold_apiserver::{ApiServer, Networks, StoreConfig};
use freehold_machinery::user::MASTERS;
use freehold_runtime::{Metrics, Subsystem};
use std::{
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio_util::sync::CancellationToken;

/// Flags of `freehold up`.
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
    /// Folder for keys, kubeconfigs and, without --etcd, all objects.
    #[arg(long, default_value = "data")]
    data_dir: PathBuf,
    /// Address and port to listen on. Port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:7443")]
    listen: SocketAddr,
    /// URL under which clients reach this server, if it is not the address that it listens on.
    #[arg(long)]
    external_url: Option<String>,
    /// Give each project a host name besides its path: PROJECT.DOMAIN.
    #[arg(long, value_parser = crate::names::domain)]
    domain: Option<String>,
    #[command(flatten)]
    etcd: EtcdArgs,
    #[command(flatten)]
    history: HistoryArgs,
    #[command(flatten)]
    seal: SealArgs,
    /// Authorities and keys that all servers on this etcd share, as `freehold pki` creates them. Without it they are in
    /// the data directory.
    #[arg(long, value_name = "DIR")]
    pki_dir: Option<PathBuf>,
    #[command(flatten)]
    authentication: crate::authentication::AuthenticationArgs,
    #[command(flatten)]
    authorization: crate::authentication::AuthorizationArgs,
    #[command(flatten)]
    audit: crate::audit::AuditArgs,
    #[command(flatten)]
    transport: crate::transport::TransportArgs,
    #[command(flatten)]
    console: ConsoleArgs,
    #[command(flatten)]
    host: crate::host::HostArgs,
    /// Replace the authorities that the objects in etcd belong to by those of this server.
    #[arg(long)]
    replace_authorities: bool,
    /// Programs that Pods may run: `IMAGE=PATH`, repeatable. `freehold` is this program.
    #[arg(long = "image")]
    images: Vec<String>,
    #[command(flatten)]
    controllers: ControllerArgs,
    /// Place Pods on the nodes of all planes, as `freehold scheduler --all-planes` does.
    #[arg(long)]
    scheduler: bool,
    #[command(flatten)]
    subsystems: crate::subsystem::EnableArgs,
}

/// A server that listens, and what its components need to reach it.
pub(crate) struct Serving {
    /// The data directory.
    pub(crate) data: DataDir,
    /// The server's own address, as a URL.
    pub(crate) local_url: String,
    /// The URL that kubeconfigs name.
    pub(crate) external_url: String,
    /// Whether others may use the same store: then one of them runs the controllers.
    pub(crate) shared: bool,
    /// Programs that Pods may run.
    pub(crate) images: Vec<(String, PathBuf)>,
    /// Which controllers of Kubernetes run.
    pub(crate) controllers: ControllerArgs,
    /// Whether Pods are placed on nodes.
    pub(crate) scheduler: bool,
    /// Subsystems whose controllers run.
    pub(crate) subsystems: Vec<Subsystem>,
    /// Where components count.
    pub(crate) metrics: Metrics,
    /// Where webhooks and aggregated servers may be.
    pub(crate) networks: Networks,
    /// Admission plugins that are switched on and off.
    pub(crate) plugins: freehold_provisioner::plan::AdmissionPlugins,
}

async fn serve(args: &Args) -> Result<(ApiServer, Serving)> {
    let console = Console::default();
    let (controllers, metrics) = (args.controllers.clone(), Metrics::default());
    let images = args.images.iter().map(|image| parse_image(image)).collect::<Result<_>>()?;
    let data = DataDir::open(&args.data_dir, args.pki_dir.as_deref())?;
    let store = match args.etcd.options()? {
        Some(options) => StoreConfig::Etcd(Box::new(options)),
        None => StoreConfig::Embedded(data.join("store"), args.history.retention()),
    };
    let core = Core {
        listen: args.listen,
        external_url: args.external_url.as_deref(),
        domain: args.domain.as_deref(),
        pki: &data.pki,
        store,
        seal: &args.seal,
        replace_authorities: args.replace_authorities,
        host: &args.host,
        cache: args.cache.options(),
        networks: args.outbound.networks.clone(),
        node_networks: args.nodes.or_loopback(),
        syncers: args.nodes.syncers.clone(),
        admission: &args.admission,
        history: args.history.retention(),
        authentication: args.authentication.config(),
        authorization: args.authorization.config(),
        audit: args.audit.config()?,
        transport: args.transport.config()?,
        subsystems: &args.subsystems,
        more_metrics: {
            let metrics = metrics.clone();
            Some(Arc::new(move || metrics.render()))
        },
        pages: console.pages(&args.console),
        reads: crate::subsystem::reads(&args.subsystems.running(), &data.join(crate::subsystem::FOLDER)),
    };
    let shared = matches!(core.store, StoreConfig::Etcd(_));
    let certificates_only = core.transport.certificates_only;
    let server = core.build().await?;
    let local_url = local_url(server.local_addr());
    let external_url = args.external_url.clone().unwrap_or_else(|| local_url.clone());
    if args.console.is_on() {
        let links = (console::folder(data.path()), certificates_only);
        console.start(&args.console, (&local_url, &external_url), &data.pki, links)?;
    }
    let networks = args.outbound.networks.clone();
    let plugins = args.admission.plugins()?;
    let subsystems = args.subsystems.running();
    let serving = Serving {
        data,
        local_url,
        external_url,
        shared,
        images,
        controllers,
        scheduler: args.scheduler,
        subsystems,
        metrics,
        networks,
        plugins,
    };
    Ok((server, serving))
}

pub(crate) fn parse_image(text: &str) -> Result<(String, PathBuf)> {
    let (name, path) =
        text.split_once('=').with_context(|| format!("--image wants IMAGE=PATH, not {text:?}"))?;
    Ok((name.to_owned(), path.into()))
}

/// Runs until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = stop::on_signal()?;
    let (server, serving) = serve(&args).await?;
    let kubeconfig = serving.data.write_admin_kubeconfig(&serving.external_url)?;
    // The server outlives its clients: they finish their work, a node stops its processes, and only then it goes.
    let server_stop = CancellationToken::new();
    let running = tokio::spawn(server.run(server_stop.clone()));
    let url = serving.external_url.clone();
    let masters = vec![MASTERS.to_owned()];
    let link = args
        .console
        .is_on()
        .then(|| console::link(serving.data.path(), &url, "admin", masters))
        .transpose()?;
    let components = components::start(serving, stop.clone()).await?;
    announce(&url, &kubeconfig, link.as_deref())?;
    stop.cancelled().await;
    eprintln!("freehold: stopping");
    let _ = tokio::time::timeout(crate::names::STOP, components.finished()).await;
    server_stop.cancel();
    running.await.context("the server failed")
}

/// Tells scripts that the server is ready, in one line, and people what they can do now.
fn announce(url: &str, kubeconfig: &Path, link: Option<&str>) -> Result<()> {
    let file = kubeconfig.display();
    let program = std::env::args_os().next().unwrap_or_else(|| "freehold".into());
    let program = Path::new(&program).display();
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready url={url} kubeconfig={file}")?;
    writeln!(out, "\nFreehold serves {url}; Ctrl-C stops it, and everything is kept.")?;
    writeln!(out, "The admin's kubeconfig is {file}")?;
    if let Some(link) = link {
        writeln!(
            out,
            "\nThe console is {url}/console/. This link signs the admin in, once, within ten minutes:\n"
        )?;
        writeln!(out, "  {link}\n\n`{program} console link` prints another one.")?;
    }
    writeln!(out, "\nTry, in another terminal:\n")?;
    writeln!(out, "  export KUBECONFIG={file}")?;
    writeln!(
        out,
        "  kubectl apply -f examples/first-project.yaml && kubectl wait --for=condition=Ready project/web"
    )?;
    writeln!(out, "  {program} kubeconfig web > web.kubeconfig")?;
    writeln!(out, "  kubectl --kubeconfig web.kubeconfig get namespaces")?;
    out.flush()?;
    Ok(())
}
