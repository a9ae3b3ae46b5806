//! `freehold`: one program for everything. Each command parses its flags, builds, and runs.

mod admission;
mod api;
mod apiserver;
mod audit;
mod authentication;
mod backup;
mod can_i;
mod certs;
mod completion;
mod components;
mod console;
mod controllers;
mod core;
mod data_dir;
mod doctor;
mod election;
mod encryption;
mod get_started;
mod host;
mod in_cluster;
mod kubeconfig;
mod logging;
mod login;
mod memory;
mod metrics;
mod names;
mod node;
mod node_serving;
mod outbound;
mod pki;
mod pki_secret;
mod project;
mod provisioner;
mod scheduler;
mod stop;
mod store;
mod subsystem;
mod support;
mod syncer;
mod telemetry;
mod terminal;
mod transport;
mod up;
mod use_context;
mod version;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;

/// Many Kubernetes control planes in one server.
#[derive(Parser)]
#[command(name = "freehold", version, arg_required_else_help = true)]
struct Cli {
    /// Log level, or levels by module (`info,freehold_node=debug`).
    #[arg(long, global = true, env = "FREEHOLD_LOG", default_value = "warn")]
    log: String,
    /// Log in JSON, one object a line.
    #[arg(long, global = true)]
    log_json: bool,
    /// A `TracingConfiguration` of kube-apiserver: where spans of requests go, by OTLP over HTTP. Default: what
    /// OpenTelemetry's variables say (`OTEL_EXPORTER_OTLP_ENDPOINT`), and nowhere without them.
    #[arg(long, global = true, value_name = "FILE")]
    tracing_config_file: Option<std::path::PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs everything in this process: apiserver, controllers, provisioner and node.
    Up(Box<up::Args>),
    /// Runs an apiserver on a shared store: of one plane, or of all planes as one of several servers.
    Apiserver(Box<apiserver::Args>),
    /// Runs the controllers of one plane, or of all planes of a server.
    ControllerManager(controllers::Args),
    /// Makes dedicated pairs on a Kubernetes cluster.
    Provisioner(Box<provisioner::Args>),
    /// Runs the Pods of one control plane as processes of this machine.
    Node(node::Args),
    /// Places Pods that wait on nodes: in one cluster, or in all planes of a server.
    Scheduler(scheduler::Args),
    /// Runs Pods of projects on Kubernetes clusters that they share.
    Syncer(syncer::Args),
    /// Creates the authorities and keys that several core servers share.
    Pki(pki::Args),
    /// Checks what commonly fails, and says what to do.
    Doctor(doctor::Args),
    /// Writes an archive for those who help: versions, health, metrics, objects, events and logs, and no credentials.
    SupportBundle(Box<support::Args>),
    /// Lists certificates of core servers and pairs, with their expiry.
    Certs(certs::Args),
    /// Prints a kubeconfig for a project.
    Kubeconfig(kubeconfig::Args),
    /// Writes a backup of everything that a server stores; lists, verifies and prunes backups.
    Backup(Box<backup::BackupArgs>),
    /// Restores a backup into an empty data directory or an empty etcd.
    Restore(Box<backup::RestoreArgs>),
    /// Shows how objects are encrypted in the store, or rotates the keys.
    Encryption(encryption::Args),
    /// Snapshots, forks, restores, exports and imports projects, and revokes their credentials.
    Project(project::Args),
    /// Shares a control plane between teams: tenants, quotas over namespaces, sleep, templates.
    Tenancy(freehold_tenancy_cli::Args),
    /// Runs DAGs of Pods: installs and runs the subsystem, starts, shows and ends runs.
    Workflow(freehold_workflow_cli::Args),
    /// Makes schemas for exports, and shows what bindings give away.
    Api(api::Args),
    /// Applies a subsystem's kinds and roles to any Kubernetes API.
    Install(subsystem::InstallArgs),
    /// Makes a project serve a subsystem's kinds.
    Enable(subsystem::EnableIn),
    /// Takes a subsystem's kinds from a project.
    Disable(subsystem::DisableIn),
    /// Runs a subsystem's controllers: in one cluster, over a server's planes, or over an export's consumers.
    Run(subsystem::RunArgs),
    /// Reports whether an action is allowed, and by which binding, or what is missing.
    CanI(can_i::Args),
    /// Walks through the README's quick start against a server, command by command.
    GetStarted(get_started::Args),
    /// Makes a project, an organization or the platform the current context of a kubeconfig.
    Use(use_context::Args),
    /// Signs in at an OpenID Connect issuer, for kubectl and everything else that reads a kubeconfig.
    Login(login::Args),
    /// Prints the token of that sign-in, renewed where it is due: the plugin that kubeconfigs name.
    Token(login::TokenArgs),
    /// Signs in to the web console.
    Console(console::Args),
    /// Prints the version of this program and of the server.
    Version(version::Args),
    /// Prints what a shell needs to complete commands.
    Completion(completion::Args),
    /// Writes man pages.
    Man(completion::ManArgs),
}

/// Threads that wait for the disk. Each has a heap of its own, and without a limit a start makes a hundred of them.
const BLOCKING_THREADS: usize = 8;
/// The stack of each thread, of which only what is used takes memory: expressions of policies are walked recursively.
const STACK: usize = 8 << 20;
/// How long such a thread waits for more to do.
const BLOCKING_KEEP_ALIVE: std::time::Duration = std::time::Duration::from_secs(2);

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::from_arg_matches(&program().get_matches()).unwrap_or_else(|error| error.exit());
    logging::start(&cli.log, cli.log_json);
    // The one TLS implementation of this program; a second call would be a bug of ours.
    let installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    debug_assert!(installed.is_ok());
    let outcome = runtime().map_err(Into::into).and_then(|runtime| {
        let outcome = runtime.block_on(async {
            let telemetry = telemetry::start(cli.tracing_config_file.as_deref())?;
            let outcome = run(cli.command).await;
            telemetry.finish().await;
            outcome
        });
        runtime.shutdown_timeout(std::time::Duration::from_millis(200));
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("freehold: {}", terminal::plain(format_args!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

/// The program's commands and flags. As `kubectl-freehold` it is a plugin of kubectl, and says so in its help.
fn program() -> clap::Command {
    let called = std::env::args_os().next().unwrap_or_default();
    let plugin = std::path::Path::new(&called).file_stem().is_some_and(|name| name == "kubectl-freehold");
    let program = Cli::command();
    if plugin { program.bin_name("kubectl freehold") } else { program }
}

/// Threads as many as a small server needs.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_stack_size(STACK)
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(BLOCKING_KEEP_ALIVE)
        .build()
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(args) => up::run(*args).await,
        Command::Apiserver(args) => apiserver::run(*args).await,
        Command::ControllerManager(args) => controllers::run(args).await,
        Command::Provisioner(args) => provisioner::run(*args).await,
        Command::Node(args) => node::run(args).await,
        Command::Scheduler(args) => scheduler::run(args).await,
        Command::Syncer(args) => syncer::run(args).await,
        Command::Pki(args) => pki::run(&args).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::SupportBundle(args) => support::run(*args).await,
        Command::Certs(args) => certs::run(args).await,
        Command::Backup(args) => backup::backup(*args).await,
        Command::Restore(args) => backup::restore(*args).await,
        Command::Kubeconfig(args) => kubeconfig::run(args).await,
        Command::Encryption(args) => encryption::run(args).await,
        Command::Project(args) => project::run(args).await,
        Command::Tenancy(args) => freehold_tenancy_cli::run(args).await,
        Command::Workflow(args) => freehold_workflow_cli::run(args).await,
        Command::Api(args) => api::run(args).await,
        Command::Install(args) => subsystem::install(args).await,
        Command::Enable(args) => subsystem::enable(args).await,
        Command::Disable(args) => subsystem::disable(args).await,
        Command::Run(args) => subsystem::run(args).await,
        Command::CanI(args) => can_i::run(args).await,
        Command::GetStarted(args) => get_started::run(&args),
        Command::Use(args) => use_context::run(&args),
        Command::Login(args) => login::login(args).await,
        Command::Token(args) => login::token(args).await,
        Command::Console(args) => console::run(args).await,
        Command::Version(args) => version::run(args).await,
        Command::Completion(args) => completion::completion(&args, program()),
        Command::Man(args) => completion::man(&args, program()),
    }
}
