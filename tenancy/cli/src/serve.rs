//! `freehold tenancy controller` and `freehold tenancy webhook`.

use anyhow::{Context as _, Result};
use freehold_client::Client;
use freehold_machinery::PlaneId;
use freehold_runtime::{Election, Format, Metrics, Planes, Render, Scope, serve_metrics};
use freehold_tenancy_admission::Webhook;
use freehold_tenancy_controllers::NAMES;
use freehold_tenancy_decide::admission::Exempt;
use freehold_webhook::Place;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The Lease of the controllers.
const LEASE: &str = "freehold-tenancy";
/// How long tasks may take to end.
const DRAIN: Duration = Duration::from_secs(5);

/// Arguments of `freehold tenancy controller`.
#[derive(clap::Args, Debug)]
pub(crate) struct Controllers {
    /// Controllers to run. Default: all.
    #[arg(long, value_delimiter = ',', value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    controllers: Vec<String>,
    /// Work only while holding a Lease, so that several instances can run.
    #[arg(long)]
    leader_elect: bool,
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
    #[command(flatten)]
    metrics: MetricsArgs,
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

pub(crate) async fn controllers(client: Client, args: Controllers) -> Result<()> {
    let token = on_signal()?;
    let names: BTreeSet<&'static str> = NAMES
        .into_iter()
        .filter(|name| args.controllers.is_empty() || args.controllers.iter().any(|chosen| chosen == name))
        .collect();
    let metrics = Metrics::default();
    let counted = metrics.clone();
    args.metrics.serve(Arc::new(move || counted.render()), &token).await?;
    let work = |token: CancellationToken| {
        let (scope, names) = (scope(client.clone(), &metrics, token.clone()), names.clone());
        async move {
            freehold_tenancy_controllers::start_some(&scope, &names);
            println!("tenancy controllers run: {}", Vec::from_iter(names).join(", "));
            token.cancelled().await;
            finish(&scope).await;
        }
    };
    if args.leader_elect {
        let identity = format!("{}-{}", std::process::id(), jiff::Timestamp::now().as_nanosecond());
        Election::new(client.clone(), LEASE, identity).metrics(&metrics).run(token, work).await;
    } else {
        work(token).await;
    }
    Ok(())
}

pub(crate) async fn webhook(client: Client, args: WebhookArgs) -> Result<()> {
    let token = on_signal()?;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("failed to listen on {}", args.listen))?;
    let local = listener.local_addr()?;
    let place = Place::new(local, args.service.as_deref(), args.url).map_err(anyhow::Error::msg)?;
    let mut exempt = Exempt::default();
    exempt.groups.extend(args.exempt_groups);
    let metrics = Metrics::default();
    let counted = metrics.clone();
    args.metrics.serve(Arc::new(move || counted.render()), &token).await?;
    let scope = scope(client, &metrics, token.clone());
    let webhook = Webhook { listener, place, namespace: args.namespace, exempt };
    webhook.start(&scope).await?;
    println!("tenancy webhook serves on https://{local}");
    token.cancelled().await;
    finish(&scope).await;
    Ok(())
}
