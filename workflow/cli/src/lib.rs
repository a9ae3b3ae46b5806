//! `freehold workflow`: the subsystem's commands.

mod artifact;
mod definitions;
mod embedded;
mod follow;
pub mod history;
mod run;
mod serve;
pub mod server;
mod show;

pub use embedded::SUBSYSTEM;

use anyhow::{Context as _, Result, anyhow, bail};
use freehold_client::{Client, Config, Kubeconfig, Resource};
use freehold_workflow_api::{GROUP, VERSION};
use std::path::{Path, PathBuf};

const RUNS: Resource = Resource::namespaced(GROUP, VERSION, "dagruns");
const DAGS: Resource = Resource::namespaced(GROUP, VERSION, "dags");

/// Arguments of `freehold workflow`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Kubeconfig of the control plane or cluster. Default: $KUBECONFIG.
    #[arg(long, global = true, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
    /// Namespace. Default: that of the kubeconfig's current context, otherwise `default`.
    #[arg(long, short, global = true)]
    namespace: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Installs the kinds and roles.
    Install {
        /// Kontroler's kinds as well, so that its definitions are applied as they are. Not where Kontroler itself runs.
        #[arg(long)]
        kontroler: bool,
    },
    /// Runs the controllers until Ctrl-C or SIGTERM.
    Controller(serve::Controllers),
    /// Serves DAGs, runs, history and logs over REST until Ctrl-C or SIGTERM.
    Server(server::ServerArgs),
    /// Creates a local account of a stand-alone server.
    Account(server::AccountArgs),
    /// Starts a run of a DAG.
    Run(run::Start),
    /// Lists runs, the latest last.
    List {
        /// Runs of one DAG alone.
        #[arg(long)]
        dag: Option<String>,
    },
    /// Shows a run with its tasks.
    Get {
        /// The run.
        run: String,
    },
    /// Prints logs of a run's Pods that are still there.
    Logs {
        /// The run.
        run: String,
        /// The Pods of one task alone.
        #[arg(long)]
        task: Option<String>,
        /// Print lines as they come, of Pods to come as well, until the run is over.
        #[arg(long, short)]
        follow: bool,
    },
    /// Shows the progress of a run until it is over.
    Watch {
        /// The run.
        run: String,
    },
    /// Ends a run: tasks under way come to their end, finally tasks run.
    Stop(run::Stop),
    /// Does failed tasks of a run again, and what comes after them.
    Retry(run::Retry),
    /// Starts a run with the definition and parameters of another.
    Resubmit {
        /// The run.
        run: String,
    },
    /// Begins no further task of a run until it is resumed.
    Suspend {
        /// The run.
        run: String,
    },
    /// Lets a suspended run go on.
    Resume {
        /// The run.
        run: String,
    },
    /// Decides about a task that waits for approval.
    Approve(run::Approve),
    /// Checks definitions in files, without a server.
    Lint {
        /// Files in YAML or JSON.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Prints the graph of a DAG for Graphviz.
    Graph {
        /// A DAG, or a file with one.
        dag: String,
    },
    /// Counts runs of each DAG by how they ended; with the history of the server, also by day, with how long they took and waited.
    Stats,
    /// Starts the runs that a schedule asks for within a time.
    Backfill(run::Backfill),
    /// Brings and keeps files inside of a task's Pod. The controllers use it.
    Artifact(artifact::ArtifactArgs),
    /// Converts definitions of Argo Workflows, Tekton and Kontroler.
    Convert {
        /// Files in YAML or JSON.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// Runs a command.
///
/// # Errors
/// A kubeconfig that cannot be used, or what the command says failed.
pub async fn run(args: Args) -> Result<()> {
    let needs_kinds =
        !matches!(args.command, Command::Install { .. } | Command::Controller(_) | Command::Server(_));
    let outcome = dispatch(args).await;
    if needs_kinds { outcome.map_err(explained) } else { outcome }
}

/// An error for people: what to do where the control plane lacks the kinds.
fn explained(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<freehold_client::Error>() {
        Some(answer) if answer.is_unserved() => anyhow!(
            "this control plane does not serve DAGs: freehold workflow install, or freehold enable workflow --project PROJECT"
        ),
        _ => error,
    }
}

/// Whether a name ends as a file with definitions does.
fn is_document(name: &str) -> bool {
    let extension = Path::new(name).extension();
    ["yaml", "yml", "json"].iter().any(|known| extension.is_some_and(|found| found == *known))
}

/// The kubeconfig, and its path.
fn kubeconfig(path: Option<&PathBuf>) -> Result<(Kubeconfig, &Path)> {
    let path = path.context("--kubeconfig or $KUBECONFIG has to name a kubeconfig")?;
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("kubeconfig {} can't be read", path.display()))?;
    Ok((Kubeconfig::parse(&text)?, path.as_path()))
}

async fn dispatch(args: Args) -> Result<()> {
    let config = || -> Result<Config> {
        let (kubeconfig, path) = kubeconfig(args.kubeconfig.as_ref())?;
        Ok(kubeconfig.config(None, path.parent())?)
    };
    let client = || -> Result<Client> { Ok(Client::new(&config()?)?) };
    let of_context = || Some(kubeconfig(args.kubeconfig.as_ref()).ok()?.0.current_namespace()?.to_owned());
    let namespace = args.namespace.clone().or_else(of_context).unwrap_or_else(|| "default".to_owned());
    let namespace = namespace.as_str();
    match args.command {
        Command::Artifact(artifact) => {
            let code = artifact::run(artifact).await?;
            std::process::exit(code);
        }
        Command::Lint { files } => definitions::lint(&files),
        Command::Convert { files } => definitions::convert(&files),
        Command::Graph { dag } if Path::new(&dag).is_file() => definitions::graph_of_file(&dag),
        Command::Graph { dag } if dag.contains('/') || is_document(&dag) => bail!("there is no file {dag}"),
        Command::Graph { dag } => definitions::graph(&client()?, namespace, &dag).await,
        Command::Install { kontroler } => serve::install(&client()?, kontroler).await,
        Command::Controller(controllers) => serve::controllers(client()?, &controllers).await,
        Command::Server(server) => server::run(config()?, server, serve::until_stopped()).await,
        Command::Account(account) => server::account(account).await,
        Command::Run(start) => run::start(&client()?, namespace, &start).await,
        Command::List { dag } => show::list(&client()?, namespace, dag.as_deref()).await,
        Command::Get { run } => show::get(&client()?, namespace, &run).await,
        Command::Logs { run, task, follow: false } => {
            show::logs(&client()?, namespace, &run, task.as_deref()).await
        }
        Command::Logs { run, task, follow: true } => {
            follow::logs(&client()?, namespace, &run, task.as_deref()).await
        }
        Command::Watch { run } => show::watch(&client()?, namespace, &run).await,
        Command::Stop(stop) => run::stop(&client()?, namespace, &stop).await,
        Command::Retry(retry) => run::retry(&client()?, namespace, &retry).await,
        Command::Resubmit { run } => run::resubmit(&client()?, namespace, &run).await,
        Command::Suspend { run } => run::set_state(&client()?, namespace, &run, "Suspended").await,
        Command::Resume { run } => run::set_state(&client()?, namespace, &run, "Running").await,
        Command::Approve(approve) => run::approve(&client()?, namespace, &approve).await,
        Command::Stats => show::stats(&client()?, namespace).await,
        Command::Backfill(backfill) => run::backfill(&client()?, namespace, &backfill).await,
    }
}
