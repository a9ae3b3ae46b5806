//! `freehold controller-manager`, and the flags about controllers that `freehold up` has too.

use crate::election::ElectionArgs;
use crate::names::LEASE;
use crate::{
    metrics::{Format, MetricsArgs},
    pki::Pki,
    stop,
};
use anyhow::{Context, Result, anyhow};
use freehold_client::{Client, Config as ClientConfig};
use freehold_controller_manager::{Config as ControllerConfig, Manager, NodeCidrs};
use freehold_machinery::PlaneId;
use freehold_runtime::{Division, Election, Metrics};
use std::{path::PathBuf, sync::Arc};
use tokio_util::sync::CancellationToken;

/// Which of Kubernetes' controllers run, and how.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ControllerArgs {
    /// Kubernetes controllers to run in planes: `*` for all, NAME for one, -NAME for all but one.
    #[arg(long, value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Largest number of endpoints in an EndpointSlice of a Service.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    max_endpoints_per_slice: u16,
    /// Networks of Pods, of which each node of a plane gets a part: one, or one of each family. Default: nodes get none.
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    cluster_cidr: Vec<String>,
    /// Length of the prefix of a node's part of an IPv4 network.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u8).range(..=32), requires = "cluster_cidr")]
    node_cidr_mask_size_ipv4: u8,
    /// Length of the prefix of a node's part of an IPv6 network.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u8).range(..=128), requires = "cluster_cidr")]
    node_cidr_mask_size_ipv6: u8,
}

impl ControllerArgs {
    /// A configuration as the flags have it.
    ///
    /// # Errors
    ///
    /// Fails if the networks of Pods can't be divided as asked.
    pub(crate) fn apply(&self, config: ControllerConfig) -> Result<ControllerConfig> {
        let max_endpoints_per_slice = self.max_endpoints_per_slice.into();
        let mut config = ControllerConfig { max_endpoints_per_slice, ..config.select(&self.controllers) };
        if !self.cluster_cidr.is_empty() {
            let (ipv4, ipv6) = (self.node_cidr_mask_size_ipv4, self.node_cidr_mask_size_ipv6);
            let cidrs = NodeCidrs::new(&self.cluster_cidr, ipv4, ipv6);
            config.options.node_cidrs = Some(cidrs.map_err(|why| anyhow!("--cluster-cidr: {why}"))?);
        }
        Ok(config)
    }
}

/// Flags of `freehold controller-manager`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of the server.
    #[arg(long)]
    kubeconfig: PathBuf,
    /// The one plane whose controllers to run, which the server serves at its root. Default: all planes of the server.
    #[arg(long)]
    plane: Option<PlaneId>,
    /// Authorities that sign certificates of projects, shared with core servers. Without them nothing is signed.
    #[arg(long, value_name = "DIR", conflicts_with = "plane")]
    pki_dir: Option<PathBuf>,
    /// URL in kubeconfigs of projects. Default: the one in --kubeconfig.
    #[arg(long)]
    external_url: Option<String>,
    #[command(flatten)]
    controllers: ControllerArgs,
    #[command(flatten)]
    election: ElectionArgs,
    /// Number of parts that the planes are divided into, spread over all running instances; equal for each of them.
    /// With 1, one instance works and the others stand by.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256), requires = "leader_elect", conflicts_with = "plane")]
    partitions: u16,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Runs controllers until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = stop::on_signal()?;
    let client = ClientConfig::from_kubeconfig(&args.kubeconfig)
        .with_context(|| format!("kubeconfig {} can't be used", args.kubeconfig.display()))?;
    let url = args.external_url.unwrap_or_else(|| client.server.clone());
    let ca = client.ca_pem.clone();
    let signing = args.pki_dir.as_deref().map(Pki::open).transpose()?.map(|pki| pki.ca);
    if signing.is_none() && args.plane.is_none() {
        tracing::warn!(
            "without --pki-dir another controller manager must create the kubeconfigs of projects"
        );
    }
    let config = args.controllers.apply(ControllerConfig::new(client.clone(), url, ca, signing))?;
    let config = match args.plane {
        Some(plane) => config.for_plane(plane, ""),
        None => config,
    };
    let counted = config.metrics.clone();
    args.metrics.serve(Format::Text, Arc::new(move || counted.render()), stop.clone()).await?;
    if !args.election.leader_elect {
        Manager::new(config)?.run(stop).await;
        return Ok(());
    }
    let times = args.election.times();
    let (client, instance) = (Client::new(&client)?, instance());
    match args.partitions {
        1 => lead(config, Election::new(client, LEASE, instance).times(times), stop).await,
        count => {
            let metrics = config.metrics.clone();
            let division = Division::new(client, LEASE, instance, count.into(), times).metrics(&metrics);
            share(ControllerConfig { parts: Some(count.into()), ..config }, division, stop).await
        }
    }
}

/// Works whenever this instance leads.
async fn lead(config: ControllerConfig, election: Election, stop: CancellationToken) -> Result<()> {
    // What is wrong with it shows now, not when this instance leads.
    Manager::new(config.clone())?;
    let metrics: Metrics = config.metrics.clone();
    let work = |term: CancellationToken| {
        let config = config.clone();
        async move {
            match Manager::new(config) {
                Ok(manager) => manager.run(term).await,
                Err(error) => tracing::error!(%error, "failed to start controllers"),
            }
        }
    };
    election.metrics(&metrics).run(stop, work).await;
    Ok(())
}

/// Works on this instance's share.
async fn share(config: ControllerConfig, division: Division, stop: CancellationToken) -> Result<()> {
    let manager = Manager::new(config)?;
    let planes = manager.planes();
    // Controllers end when everything has been given back.
    let working = CancellationToken::new();
    let dividing = async {
        division.run(planes, stop).await;
        working.cancel();
    };
    tokio::join!(manager.run(working.clone()), dividing);
    Ok(())
}

/// A name that no other process has.
pub(crate) fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}_{}", host.trim(), uuid::Uuid::new_v4())
}
