//! `freehold tenancy run`, `freehold tenancy controller` and `freehold tenancy webhook`.

use anyhow::{Context as _, Result};
use freehold_client::Client;
use freehold_machinery::PlaneId;
use freehold_runtime::{Election, Format, Metrics, Planes, Render, Scope, serve_metrics};
use freehold_tenancy_admission::Webhook;
use freehold_tenancy_controllers::{CHOICE, FAMILIES, meter, names};
use freehold_tenancy_decide::admission::Exempt;
use freehold_tenancy_decide::namespace::Meter;
use freehold_webhook::Place;
use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What the Lease of each controller begins with.
const LEASE: &str = "freehold-tenancy-";
/// How long tasks may take to end.
const DRAIN: Duration = Duration::from_secs(5);

/// Which controllers work.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Choice {
    /// Controllers to run. Default: all.
    #[arg(long, env = CHOICE, value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(names()))]
    controllers: Vec<String>,
    /// Let each controller work only while this process holds its Lease, so that several instances can run.
    #[arg(long)]
    leader_elect: bool,
}

/// Arguments of `freehold tenancy controller`.
#[derive(clap::Args, Debug)]
pub(crate) struct Controllers {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Arguments of `freehold tenancy run`.
#[derive(clap::Parser, Debug)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Where a process of tenancy serves its metrics.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct MetricsArgs {
    /// Address for `/metrics` and `/healthz` without TLS. Not served by default.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
}

impl MetricsArgs {
    /// Metrics of this process, served until `stop` where the flag asks for it.
    async fn begin(self, stop: &CancellationToken) -> Result<Metrics> {
        let metrics = Metrics::default();
        let counted = metrics.clone();
        self.serve(Arc::new(move || counted.render()), stop).await?;
        Ok(metrics)
    }

    /// Serves metrics until `stop`, where the flag asks for it.
    pub(crate) async fn serve(self, render: Render, stop: &CancellationToken) -> Result<()> {
        let Some(address) = self.metrics_listen else { return Ok(()) };
        let serving = serve_metrics(address, Format::Text, render, stop.clone()).await;
        serving.with_context(|| format!("can't listen at {address}"))
    }
}

/// Arguments of `freehold tenancy webhook`.
#[derive(clap::Args, Debug)]
pub(crate) struct WebhookArgs {
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Where the API server reaches the webhook, and whom it refuses nothing.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Reach {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// URL at which the API server finds the webhook. Default: https:// and the address that it listens on.
    #[arg(long, conflicts_with = "service")]
    url: Option<String>,
    /// Service at which the API server finds the webhook, as NAMESPACE/NAME.
    #[arg(long)]
    service: Option<String>,
    /// Namespace of the Secret with the authority that replicas share.
    #[arg(long, default_value = "kube-system")]
    namespace: String,
    /// Groups of administrators, whom nothing is refused, beside system:masters.
    #[arg(long = "exempt-group")]
    exempt_groups: Vec<String>,
}

pub(crate) fn scope(client: Client, metrics: &Metrics, token: CancellationToken) -> Scope {
    Scope {
        planes: Planes::one(client, PlaneId::core(), ""),
        metrics: metrics.clone(),
        folder: None,
        tasks: TaskTracker::new(),
        token,
    }
}

/// A token that is cancelled by Ctrl-C or SIGTERM.
pub(crate) fn on_signal() -> Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let stop = token.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
    });
    Ok(token)
}

pub(crate) async fn finish(scope: &Scope) {
    scope.tasks.close();
    if tokio::time::timeout(DRAIN, scope.tasks.wait()).await.is_err() {
        tracing::warn!("tasks did not end in time");
    }
}

/// The controllers of one family, by name, and how they come to work.
#[derive(Clone)]
struct Family {
    client: Client,
    metrics: Metrics,
    names: BTreeSet<&'static str>,
    identity: String,
}

impl Family {
    /// Works until `token` is cancelled.
    async fn work(self, token: CancellationToken) {
        let scope = scope(self.client, &self.metrics, token.clone());
        freehold_tenancy_controllers::start_some(&scope, &self.names);
        println!("tenancy controllers run: {}", Vec::from_iter(self.names).join(", "));
        token.cancelled().await;
        finish(&scope).await;
    }

    /// Works whenever this process holds the Leases of all of its controllers, those from `leases` on among them.
    fn lead(self, leases: Vec<&'static str>, token: CancellationToken) -> BoxFuture<'static, ()> {
        let Some((first, rest)) = leases.split_first() else { return self.work(token).boxed() };
        let name = format!("{LEASE}{first}");
        let election = Election::new(self.client.clone(), name, self.identity.clone()).metrics(&self.metrics);
        let rest = rest.to_vec();
        async move { election.run(token, move |term| self.clone().lead(rest.clone(), term)).await }.boxed()
    }
}

/// The chosen controllers, by family.
fn families(client: &Client, choice: &Choice, metrics: &Metrics) -> Vec<Family> {
    let is_chosen =
        |name: &&str| choice.controllers.is_empty() || choice.controllers.iter().any(|chosen| chosen == name);
    let identity = format!("{}-{}", std::process::id(), jiff::Timestamp::now().as_nanosecond());
    let of = |family: &[&'static str]| family.iter().copied().filter(is_chosen).collect::<BTreeSet<_>>();
    let chosen = FAMILIES.into_iter().map(of).filter(|names| !names.is_empty());
    let family = |names| Family {
        client: client.clone(),
        metrics: metrics.clone(),
        names,
        identity: identity.clone(),
    };
    chosen.map(family).collect()
}

async fn work(client: &Client, choice: &Choice, metrics: &Metrics, token: &CancellationToken) {
    let families = families(client, choice, metrics).into_iter().map(|family| {
        let leases = if choice.leader_elect { family.names.iter().copied().collect() } else { Vec::new() };
        family.lead(leases, token.clone())
    });
    join_all(families).await;
}

pub(crate) async fn controllers(client: Client, args: Controllers) -> Result<()> {
    let token = on_signal()?;
    let metrics = args.metrics.begin(&token).await?;
    work(&client, &args.choice, &metrics, &token).await;
    Ok(())
}

/// Serves the webhook on the scope's tasks, and registers it.
async fn serve_webhook(scope: &Scope, reach: Reach) -> Result<()> {
    let listener = TcpListener::bind(reach.listen)
        .await
        .with_context(|| format!("failed to listen on {}", reach.listen))?;
    let local = listener.local_addr()?;
    let place = Place::new(local, reach.service.as_deref(), reach.url).map_err(anyhow::Error::msg)?;
    let mut exempt = Exempt::default();
    exempt.groups.extend(reach.exempt_groups);
    Webhook { listener, place, namespace: reach.namespace, exempt }.start(scope).await?;
    println!("tenancy webhook serves on https://{local}");
    Ok(())
}

pub(crate) async fn webhook(client: Client, args: WebhookArgs) -> Result<()> {
    let token = on_signal()?;
    let metrics = args.metrics.begin(&token).await?;
    let scope = scope(client, &metrics, token.clone());
    serve_webhook(&scope, args.reach).await?;
    token.cancelled().await;
    finish(&scope).await;
    Ok(())
}

/// Runs the controllers, and beside them the webhook where the server does not decide by itself.
pub(crate) async fn run(client: Client, args: RunArgs) -> Result<()> {
    let token = on_signal()?;
    let metrics = args.metrics.begin(&token).await?;
    let scope = scope(client.clone(), &metrics, token.clone());
    let deciding = async {
        if meter::of(&scope.planes, &token).await == Meter::Webhook && !token.is_cancelled() {
            serve_webhook(&scope, args.reach).await?;
        }
        anyhow::Ok(())
    };
    let working = async {
        work(&client, &args.choice, &metrics, &token).await;
        anyhow::Ok(())
    };
    tokio::try_join!(deciding, working).map(drop)?;
    finish(&scope).await;
    Ok(())
}
