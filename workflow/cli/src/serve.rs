//! `freehold workflow install` and `freehold workflow controller`.

use crate::history::History;
use crate::server::{HistoryArgs, log_store};
use anyhow::{Context as _, Result};
use freehold_client::{Client, Resource};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Format, Metrics, Planes, Scope, Shares, Sharing, serve_metrics};
use freehold_webhook::Place;
use freehold_workflow_controller::{
    Credentials, Networks, Observer, Options, PARTS, Repository, RepositoryConfig, admission::start_webhook,
    manifests, roles, start, webhook_roles,
};
use freehold_workflow_store::Recorder;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const CRDS: Resource = Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const ROLES: Resource = Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles");
const MANAGER: &str = "freehold-workflow";
/// How long definitions may take to be served.
const ESTABLISHED: Duration = Duration::from_secs(30);
/// How long tasks may take to end.
const DRAIN: Duration = Duration::from_secs(5);

/// Arguments of `freehold workflow controller`.
#[derive(clap::Args, Debug)]
pub(crate) struct Controllers {
    /// Work on objects with this label workflow.freehold.dev/instance alone. Default: those without one.
    #[arg(long, default_value = "")]
    instance: String,
    /// Do HTTP tasks: their requests come from this process, with its access to the network.
    #[arg(long)]
    http_tasks: bool,
    /// Name of this controller among those of its install, which divide the namespaces between them. Default: one that no other
    /// has.
    #[arg(long, default_value = "")]
    id: String,
    /// Work on everything, without a Lease in kube-system: no other controller of this install may run then.
    #[arg(long)]
    alone: bool,
    /// Record history here: a file of SQLite, or postgres://USER@HOST/NAME.
    #[arg(long)]
    database: Option<String>,
    /// Keep logs of Pods here before they go: a folder, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME with AWS_ACCESS_KEY_ID
    /// and AWS_SECRET_ACCESS_KEY.
    #[arg(long, requires = "database")]
    logs: Option<String>,
    /// Keep artifacts of namespaces that say nothing themselves where this file says: a bucket with accessKeyId and
    /// secretAccessKey, or a volume.
    #[arg(long, value_name = "FILE")]
    artifact_repository: Option<std::path::PathBuf>,
    /// The image of this program, which Pods with artifacts begin with.
    #[arg(long, value_name = "IMAGE", default_value = "freehold")]
    artifact_image: String,
    /// Convert objects of Kontroler's kinds, which have to be installed (install --kontroler).
    #[arg(long)]
    kontroler: bool,
    /// Networks in which servers may be that notifications go to: CIDRs, public, any and none.
    #[arg(long, value_name = "NETWORKS", default_value = "public")]
    notification_networks: Networks,
    /// Send a trace of each run to this collector by OTLP/HTTP: http://collector:4318.
    #[arg(long, value_name = "URL")]
    otlp_endpoint: Option<String>,
    /// Address for `/metrics` and `/healthz` without TLS. Not served by default.
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics_listen: Option<SocketAddr>,
    #[command(flatten)]
    webhook: WebhookArgs,
}

/// Flags of the webhook that refuses bad definitions when they are written.
#[derive(clap::Args, Debug)]
struct WebhookArgs {
    /// Serve a webhook at this address that refuses bad definitions when they are written, and register it.
    #[arg(long = "webhook", value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// URL at which the API server finds the webhook. Default: https:// and the address that it listens on.
    #[arg(long = "webhook-url", requires = "listen", conflicts_with = "service")]
    url: Option<String>,
    /// Service at which the API server finds the webhook, as NAMESPACE/NAME.
    #[arg(long = "webhook-service", requires = "listen")]
    service: Option<String>,
    /// Namespace of the Secret with the authority that replicas share.
    #[arg(long = "webhook-namespace", default_value = "kube-system")]
    namespace: String,
}

impl WebhookArgs {
    /// Serves the webhook, if there is to be one, until the token is cancelled.
    async fn start(&self, client: &Client, token: &CancellationToken) -> Result<()> {
        let Some(listen) = self.listen else { return Ok(()) };
        let listener =
            TcpListener::bind(listen).await.with_context(|| format!("failed to listen on {listen}"))?;
        let local = listener.local_addr()?;
        let place =
            Place::new(local, self.service.as_deref(), self.url.clone()).map_err(anyhow::Error::msg)?;
        let tasks = TaskTracker::new();
        start_webhook(client, listener, place, self.namespace.clone(), (&tasks, token.clone())).await?;
        println!("the webhook serves on https://{local}");
        Ok(())
    }
}

pub(crate) async fn install(client: &Client, kontroler: bool) -> Result<()> {
    let mut crds = freehold_workflow_api::crds();
    if kontroler {
        crds.extend(freehold_workflow_api::kontroler::crds());
    }
    for crd in &crds {
        client
            .apply(&CRDS, MANAGER, crd)
            .await
            .with_context(|| format!("{} can't be installed", meta::name(crd)))?;
    }
    for role in manifests().iter().chain([&roles(), &webhook_roles()]) {
        client
            .apply(&ROLES, MANAGER, role)
            .await
            .with_context(|| format!("{} can't be installed", meta::name(role)))?;
    }
    let begun = std::time::Instant::now();
    for crd in &crds {
        let is_established = |found: &Value| {
            found["status"]["conditions"]
                .as_array()
                .is_some_and(|of| of.iter().any(|c| c["type"] == "Established" && c["status"] == "True"))
        };
        while !is_established(&client.get(&CRDS, None, meta::name(crd)).await?) {
            anyhow::ensure!(
                begun.elapsed() < ESTABLISHED,
                "{} is not served after {ESTABLISHED:?}",
                meta::name(crd)
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    println!("the workflow kinds are installed");
    Ok(())
}

pub(crate) async fn controllers(client: Client, args: &Controllers) -> Result<()> {
    let token = until_stopped();
    let observer = observer(args).await?;
    let shares = (!args.alone).then(|| Shares::new(PARTS));
    let options = Options {
        instance: args.instance.clone(),
        http: args.http_tasks,
        observer,
        shares: shares.clone(),
        artifacts: args.artifact_repository.as_deref().map(repository).transpose()?.map(Arc::new),
        image: args.artifact_image.clone(),
        networks: args.notification_networks.clone(),
        kontroler: args.kontroler,
        figures: Arc::default(),
        traces: args.otlp_endpoint.clone().unwrap_or_default(),
    };
    let metrics = Metrics::default();
    if let Some(address) = args.metrics_listen {
        let counted = metrics.clone();
        let rendered = Arc::new(move || counted.render());
        let serving = serve_metrics(address, Format::Text, rendered, token.clone()).await;
        serving.with_context(|| format!("can't listen at {address}"))?;
    }
    args.webhook.start(&client, &token).await?;
    // Controllers end when everything has been given back.
    let working = CancellationToken::new();
    let planes = Planes::one(client.clone(), PlaneId::core(), "");
    let scope = Scope { planes, metrics, folder: None, tasks: TaskTracker::new(), token: working.clone() };
    let started = Arc::new(start(&scope, options));
    println!("workflow controllers are running");
    match shares {
        None => token.cancelled().await,
        Some(shares) => {
            let sharing = Sharing::new(client, lease(&args.instance), identity(&args.id), shares);
            sharing.run(token, move |change| started.moved(change)).await;
        }
    }
    working.cancel();
    scope.tasks.close();
    let _ = tokio::time::timeout(DRAIN, scope.tasks.wait()).await;
    Ok(())
}

/// The Lease by which controllers of an install divide their work.
fn lease(instance: &str) -> String {
    match instance {
        "" => "freehold-workflow".to_owned(),
        instance => format!("freehold-workflow-{instance}"),
    }
}

/// The name of this process among controllers of its install. Two of one name would take each other for themselves.
fn identity(id: &str) -> String {
    let began = jiff::Timestamp::now().as_nanosecond();
    match id {
        "" => {
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
            format!("{}-{}-{began:x}", host.trim(), std::process::id())
        }
        id => format!("{id}-{began:x}"),
    }
}

/// A token that Ctrl-C and SIGTERM cancel.
pub(crate) fn until_stopped() -> CancellationToken {
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
        let terminated = async {
            match &mut terminate {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = terminated => {}
        }
        stop.cancel();
    });
    token
}

/// Reads where artifacts are kept, with the credentials.
pub(crate) fn repository(file: &std::path::Path) -> Result<Repository> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} can't be read", file.display()))?;
    let mut fields: serde_json::Map<String, Value> =
        freehold_client::kubeconfig_as(&text).with_context(|| format!("{} is no map", file.display()))?;
    let mut take = |field: &str| {
        let taken = fields.remove(field).unwrap_or_default();
        taken.as_str().unwrap_or_default().to_owned()
    };
    let credentials = Credentials {
        access_key: take("accessKeyId"),
        secret_key: take("secretAccessKey"),
        session_token: Some(take("sessionToken")).filter(|token| !token.is_empty()),
    };
    let config: RepositoryConfig = serde_json::from_value(Value::Object(fields))
        .with_context(|| format!("{} has fields of no repository", file.display()))?;
    if !config.volume.is_null() && config.volume["persistentVolumeClaim"].is_null() {
        // Pods see all of a volume, and any other kind is one for all namespaces.
        anyhow::bail!("{}: volume: only a persistentVolumeClaim keeps namespaces apart", file.display());
    }
    Repository::new(&config, credentials).map_err(anyhow::Error::msg)
}

/// Who keeps history, where a database is given.
async fn observer(args: &Controllers) -> Result<Option<Arc<dyn Observer>>> {
    let Some(database) = &args.database else { return Ok(None) };
    let database = HistoryArgs { database: database.clone(), logs: None }.open().await?;
    let logs = args.logs.as_deref().map(log_store).transpose()?;
    Ok(Some(Arc::new(History::new(Recorder::start(database), logs))))
}
