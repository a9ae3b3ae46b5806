//! `freehold tenancy`: the subsystem's commands.

mod in_cluster;
mod proxy;
mod serve;
mod sleep;
mod tenants;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Parser as _;
use freehold_client::{Client, Config};
use freehold_machinery::Value;
use freehold_runtime::Subsystem;
use freehold_tenancy_api::supervisor::SleepState;
use std::path::PathBuf;

pub use in_cluster::{InCluster, in_cluster, optional};

/// Teams that share namespaces: tenants, quotas over several namespaces, sleep.
pub const SUBSYSTEM: Subsystem = Subsystem {
    name: "tenancy",
    about: "Teams share a control plane: namespaces with roles, quotas across namespaces, sleep schedules.",
    crds: freehold_tenancy_api::crds,
    manifests,
    admission: None,
    reads: None,
    start: freehold_tenancy_controllers::start,
};

/// Roles and validating policies, which each server of the subsystem has beside the kinds.
fn manifests() -> Vec<Value> {
    let mut objects = freehold_tenancy_controllers::roles::roles();
    objects.extend(freehold_tenancy_admission::policies::validating());
    objects
}

/// Arguments of `freehold tenancy`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Kubeconfig of the control plane or cluster. Default: $KUBECONFIG.
    #[arg(long, global = true, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// What to do. Default: run the subsystem.
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Runs the controllers, and the webhook where the server does not decide by itself, until Ctrl-C or SIGTERM.
    Run(serve::RunArgs),
    /// Runs the controllers until Ctrl-C or SIGTERM.
    Controller(serve::Controllers),
    /// Runs the admission webhook until Ctrl-C or SIGTERM, and registers it.
    Webhook(serve::WebhookArgs),
    /// Runs the proxy that shows members what is theirs, until Ctrl-C or SIGTERM.
    Proxy(proxy::ProxyArgs),
    /// Names the command that installs.
    #[command(hide = true)]
    Install,
    /// Lists tenants.
    List,
    /// Shows a tenant: members, namespaces, quota and conditions.
    Show {
        /// The tenant.
        tenant: String,
    },
    /// Creates a tenant, or adds to one.
    Create(tenants::Create),
    /// Puts the namespaces of a tenant to sleep.
    Sleep(sleep::ByHand),
    /// Wakes the namespaces of a tenant.
    Wake(sleep::ByHand),
}

/// Runs a command.
///
/// # Errors
/// A kubeconfig that cannot be used, or what the command says failed.
pub async fn run(args: Args) -> Result<()> {
    let needs_kinds = matches!(
        args.command,
        Some(
            Command::List | Command::Show { .. } | Command::Create(_) | Command::Sleep(_) | Command::Wake(_)
        )
    );
    if matches!(args.command, Some(Command::Install)) {
        bail!("freehold install tenancy installs the kinds, roles and policies");
    }
    let outcome = dispatch(args).await;
    if needs_kinds { outcome.map_err(explained) } else { outcome }
}

/// An error for people: what to do where the control plane lacks the kinds.
fn explained(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<freehold_client::Error>() {
        Some(answer) if answer.is_unserved() => anyhow!(
            "this control plane does not serve Tenants: freehold install tenancy, or freehold enable tenancy --project PROJECT"
        ),
        _ => error,
    }
}

async fn dispatch(args: Args) -> Result<()> {
    let path = args.kubeconfig.context("--kubeconfig or $KUBECONFIG has to name a kubeconfig")?;
    let config = Config::from_kubeconfig(&path)
        .with_context(|| format!("kubeconfig {} can't be used", path.display()))?;
    let client = Client::new(&config)?;
    let run_alone = || Command::Run(serve::RunArgs::parse_from(["freehold tenancy run"]));
    let command = args.command.unwrap_or_else(run_alone);
    match command {
        Command::Run(run) => serve::run(client, run).await,
        Command::Controller(controllers) => serve::controllers(client, controllers).await,
        Command::Webhook(webhook) => serve::webhook(client, webhook).await,
        Command::Proxy(proxy) => proxy::run(config, client, proxy).await,
        // Answered by `run`.
        Command::Install => Ok(()),
        Command::List => tenants::list(&client).await,
        Command::Show { tenant } => tenants::show(&client, &tenant).await,
        Command::Create(create) => tenants::create(&client, &create).await,
        Command::Sleep(by_hand) => sleep::run(&client, SleepState::Asleep, &by_hand).await,
        Command::Wake(by_hand) => sleep::run(&client, SleepState::Awake, &by_hand).await,
    }
}
