//! `freehold syncer`: runs Pods of projects on clusters that they share.

use crate::election::ElectionArgs;
use crate::names::API_SERVER;
use crate::{
    controllers::instance,
    metrics::{Format, MetricsArgs},
    node::root,
    pki::{Pki, VALIDITY},
    stop,
};
use anyhow::{Context, Result};
use freehold_client::{Client, Config as ClientConfig};
use freehold_runtime::{Election, Metrics};
use freehold_workloads_syncer::{Config, KubeletServer};
use std::{io::Write as _, net::SocketAddr, path::PathBuf, sync::Arc};

/// The Lease of the syncer that works.
const LEASE: &str = "freehold-syncer";

/// Flags of `freehold syncer`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of the core servers, of an administrator.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Authorities and keys that core servers share; of `freehold up` the data directory's.
    #[arg(long, value_name = "DIR")]
    pki_dir: PathBuf,
    /// Address and port to listen on for core servers, which need it as `--syncers`. Port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:10260")]
    listen: SocketAddr,
    /// Where core servers reach it, if it is not the address that it listens on.
    #[arg(long, value_name = "ADDRESS")]
    advertise: Option<SocketAddr>,
    /// URL at which Pods reach the core servers. Default: the server in --kubeconfig.
    #[arg(long)]
    external_url: Option<String>,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Syncs until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = stop::on_signal()?;
    let core = ClientConfig::from_kubeconfig(&args.kubeconfig)
        .with_context(|| format!("kubeconfig {} can't be used", args.kubeconfig.display()))?;
    let core = core.user_agent(format!("freehold-syncer/{}", env!("CARGO_PKG_VERSION")));
    let url = args.external_url.clone().unwrap_or_else(|| core.server.clone());
    let api = root(&url).with_context(|| format!("{url:?} is no https URL"))?;
    let pki = Pki::open(&args.pki_dir)?;
    let address = args.advertise.unwrap_or(args.listen);
    let serving = pki.ca.issue_server(&[address.ip().to_string()], VALIDITY)?;
    let metrics = Metrics::default();
    let counted = metrics.clone();
    args.metrics.serve(Format::Text, Arc::new(move || counted.render()), stop.clone()).await?;
    let kubelet = KubeletServer {
        listen: args.listen,
        advertise: args.advertise,
        cert_pem: serving.cert_pem,
        key_pem: serving.key_pem,
        client_ca_pem: pki.ca.cert_pem().to_owned(),
        client_name: API_SERVER.to_owned(),
    };
    let client = Client::new(&core)?;
    let config = || Config {
        client: client.clone(),
        api: api.clone(),
        kubelet: kubelet.clone(),
        metrics: metrics.clone(),
    };
    if !args.election.leader_elect {
        let syncer = config().build().await?;
        let mut out = std::io::stdout();
        writeln!(out, "ready address={}", syncer.address())?;
        out.flush()?;
        syncer.run(stop).await;
        return Ok(());
    }
    let times = args.election.times();
    let election = Election::new(client.clone(), LEASE, instance()).times(times).metrics(&metrics);
    let work = |term| {
        let config = config();
        async move {
            match config.build().await {
                Ok(syncer) => syncer.run(term).await,
                Err(error) => tracing::error!(error = format!("{error:#}"), "failed to start the syncer"),
            }
        }
    };
    election.run(stop, work).await;
    Ok(())
}
