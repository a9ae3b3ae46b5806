//! `freehold scheduler`: places Pods that wait on nodes.

use crate::election::ElectionArgs;
use crate::{
    controllers::instance,
    metrics::{Format, MetricsArgs},
    stop,
};
use anyhow::{Context, Result};
use freehold_client::{Client, Config as ClientConfig};
use freehold_machinery::PlaneId;
use freehold_runtime::{Election, Metrics, Planes};
use freehold_scheduler::Config;
use std::{path::PathBuf, sync::Arc};

/// The Lease of the scheduler that works.
const LEASE: &str = "freehold-scheduler";
/// What the only plane is called here.
const CLUSTER: &str = "cluster";

/// Flags of `freehold scheduler`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kubeconfig of a project or of any other Kubernetes API; of the server with --all-planes.
    #[arg(long, value_name = "FILE")]
    kubeconfig: PathBuf,
    /// Work in all planes of the server that have nodes.
    #[arg(long)]
    all_planes: bool,
    /// Place Pods with this `schedulerName`.
    #[arg(long, default_value = crate::names::DEFAULT_SCHEDULER, value_name = "NAME")]
    scheduler_name: String,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Schedules until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: Args) -> Result<()> {
    let stop = stop::on_signal()?;
    let config = ClientConfig::from_kubeconfig(&args.kubeconfig)
        .with_context(|| format!("kubeconfig {} can't be used", args.kubeconfig.display()))?;
    let config = config.user_agent(format!("freehold-scheduler/{}", env!("CARGO_PKG_VERSION")));
    let client = Client::new(&config)?;
    let metrics = Metrics::default();
    let counted = metrics.clone();
    args.metrics.serve(Format::Text, Arc::new(move || counted.render()), stop.clone()).await?;
    let plane: PlaneId = CLUSTER.parse()?;
    let make = || Config {
        planes: match args.all_planes {
            true => Planes::all(client.clone()),
            false => Planes::one(client.clone(), plane.clone(), ""),
        },
        name: args.scheduler_name.clone(),
        metrics: metrics.clone(),
    };
    if !args.election.leader_elect {
        freehold_scheduler::run(make(), stop).await;
        return Ok(());
    }
    let times = args.election.times();
    let election = Election::new(client.clone(), LEASE, instance()).times(times).metrics(&metrics);
    election.run(stop, |term| freehold_scheduler::run(make(), term)).await;
    Ok(())
}
