//! Subsystems by configuration: which there are, where their kinds are served, and over which planes their controllers run.
//!
//! A subsystem is data ([`Subsystem`]). `up` runs it over all planes, `install` and `run` on any Kubernetes API, `enable`
//! brings it to one project.

mod admission;
mod binding;
mod install;

pub(crate) use admission::plugins;

use self::install::Extras;
use crate::election::ElectionArgs;
use crate::{
    controllers::instance,
    kubeconfig,
    metrics::{Format, MetricsArgs},
    stop,
};
use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use freehold_api::urls;
use freehold_apiserver::{PlaneRead, ReadApi, SystemExport};
use freehold_client::{Client, Config};
use freehold_machinery::{PlaneId, Value};
use freehold_runtime::{Election, Metrics, Planes, ReadRequest, Scope, Subsystem};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Every subsystem of this program.
const SUBSYSTEMS: &[Subsystem] = &[freehold_tenancy_cli::SUBSYSTEM, freehold_workflow_cli::SUBSYSTEM];

/// The folder in a data directory for what subsystems keep beside objects.
pub(crate) const FOLDER: &str = "subsystems";
/// How long controllers of a subsystem have to end after a stop.
const STOP: Duration = Duration::from_secs(4);
/// The plane that controllers call the one cluster that they run for.
const CLUSTER: &str = "cluster";

/// Which subsystems a server has.
#[derive(Clone, Default, ClapArgs)]
pub(crate) struct EnableArgs {
    /// Subsystems that every project has: their kinds are served in all control planes, and their controllers run.
    /// Servers on one store need the same.
    #[arg(long = "enable", value_name = "SUBSYSTEM", value_delimiter = ',', value_parser = named)]
    pub(crate) enabled: Vec<Subsystem>,
    /// Subsystems whose controllers run for the projects that have them (`freehold enable`).
    #[arg(long = "offer", value_name = "SUBSYSTEM", value_delimiter = ',', value_parser = named)]
    offered: Vec<Subsystem>,
}

impl EnableArgs {
    /// The subsystems whose controllers run.
    pub(crate) fn running(&self) -> Vec<Subsystem> {
        let mut running = self.enabled.clone();
        let more = self.offered.iter().filter(|one| !self.enabled.iter().any(|own| own.name == one.name));
        running.extend(more.copied());
        running
    }
}

/// Flags of `freehold install`.
#[derive(ClapArgs)]
pub(crate) struct InstallArgs {
    /// The subsystem.
    #[arg(value_parser = named)]
    subsystem: Subsystem,
    /// Kubeconfig of the cluster or control plane. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Print the objects as YAML instead of applying them, as `-o yaml` does.
    #[arg(long, visible_alias = "dry-run")]
    print: bool,
    /// Format in which to print the objects instead of applying them.
    #[arg(short, long, value_name = "FORMAT", value_parser = ["yaml"])]
    output: Option<String>,
    /// Add what runs the subsystem in the cluster: Deployments, accounts, rights and Services.
    #[arg(long, requires = "image")]
    in_cluster: bool,
    /// Image of this program, for --in-cluster.
    #[arg(long)]
    image: Option<String>,
    /// Namespace of what runs in the cluster.
    #[arg(long, default_value = "freehold-tenancy")]
    namespace: String,
}

impl InstallArgs {
    /// What there is beside the objects of every plane.
    fn extras(&self) -> Result<Extras> {
        let mut extras = extras(&self.subsystem);
        let Some(image) = self.image.as_deref().filter(|_| self.in_cluster) else { return Ok(extras) };
        if self.subsystem.name != freehold_tenancy_cli::SUBSYSTEM.name {
            bail!("--in-cluster: {} has no Deployments yet", self.subsystem.name);
        }
        let at = freehold_tenancy_cli::InCluster { namespace: &self.namespace, image };
        extras.workloads = freehold_tenancy_cli::in_cluster(&at);
        Ok(extras)
    }
}

/// Objects of a subsystem that not every server has a kind for.
fn extras(subsystem: &Subsystem) -> Extras {
    let tenancy = subsystem.name == freehold_tenancy_cli::SUBSYSTEM.name;
    let optional = if tenancy { freehold_tenancy_cli::optional() } else { Vec::new() };
    Extras { optional, workloads: Vec::new() }
}

/// Flags of `freehold enable`.
#[derive(ClapArgs)]
pub(crate) struct EnableIn {
    /// The subsystem.
    #[arg(value_parser = named)]
    subsystem: Subsystem,
    /// The project that gets its kinds.
    #[arg(long)]
    project: String,
    /// Kubeconfig of the caller. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

/// Flags of `freehold disable`.
#[derive(ClapArgs)]
pub(crate) struct DisableIn {
    #[command(flatten)]
    which: EnableIn,
    /// Delete objects of its kinds too. Without it, the command refuses while there are any.
    #[arg(long)]
    delete_objects: bool,
}

/// Flags of `freehold run`.
#[derive(ClapArgs)]
pub(crate) struct RunArgs {
    /// The subsystems whose controllers to run.
    #[arg(required = true, value_parser = named)]
    subsystems: Vec<Subsystem>,
    /// Kubeconfig of the cluster, the control plane, or with --all-planes or --export of a Freehold. Default: the first of
    /// $KUBECONFIG, otherwise data/admin.kubeconfig.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Run over every control plane of a Freehold, which takes its admin's kubeconfig.
    #[arg(long, conflicts_with_all = ["project", "export"])]
    all_planes: bool,
    /// Run in the control plane of one project.
    #[arg(long, conflicts_with = "export")]
    project: Option<String>,
    /// Run over the projects that consume an export, PROJECT/EXPORT.
    #[arg(long, value_name = "PROJECT/EXPORT", value_parser = export)]
    export: Option<(String, String)>,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    metrics: MetricsArgs,
}

impl RunArgs {
    /// The election among instances that run the same controllers.
    fn election(&self, client: Client, metrics: &Metrics) -> Election {
        let project = self.project.as_ref().or(self.export.as_ref().map(|(project, _)| project));
        let client =
            project.map_or_else(|| client.clone(), |project| client.at(&urls::project_path(project)));
        let mut names: Vec<&str> = self.subsystems.iter().map(|one| one.name).collect();
        names.extend(self.export.as_ref().map(|(_, export)| export.as_str()));
        names.sort_unstable();
        let times = self.election.times();
        Election::new(client, format!("freehold-run-{}", names.join("-")), instance())
            .times(times)
            .metrics(metrics)
    }
}

/// Finds a subsystem by its name.
fn named(name: &str) -> Result<Subsystem, String> {
    find(SUBSYSTEMS, name)
}

fn find(among: &[Subsystem], name: &str) -> Result<Subsystem, String> {
    let known = || match among {
        [] => "this program has none".to_owned(),
        known => {
            known.iter().map(|one| format!("{} ({})", one.name, one.about)).collect::<Vec<_>>().join(", ")
        }
    };
    let found = among.iter().find(|one| one.name == name).copied();
    found.ok_or_else(|| format!("there is no such subsystem; known are: {}", known()))
}

fn export(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('/').filter(|(project, export)| !project.is_empty() && !export.is_empty());
    parts
        .map(|(project, export)| (project.to_owned(), export.to_owned()))
        .ok_or_else(|| "it must be PROJECT/EXPORT".to_owned())
}

/// What subsystems give to readers of planes, of what they keep below a folder.
pub(crate) fn reads(running: &[Subsystem], folder: &Path) -> Vec<ReadApi> {
    let all = running.iter().filter_map(|one| one.reads);
    all.map(|reads| ReadApi {
        group: reads.group,
        version: reads.version,
        handler: handler((reads.open)(folder)),
    })
    .collect()
}

/// What a subsystem answers, for the server.
fn handler(reads: freehold_runtime::ReadHandler) -> freehold_apiserver::ReadHandler {
    Arc::new(move |read| {
        let PlaneRead { plane, namespace, namespace_uid, resource, name, subresource, query } = read;
        reads(plane, ReadRequest { namespace, namespace_uid, resource, name, subresource, query })
    })
}

/// What projects can bind of subsystems.
pub(crate) fn exports(running: &[Subsystem]) -> Vec<SystemExport> {
    let export = |one: &Subsystem| SystemExport { name: binding::export(one), definitions: (one.crds)() };
    running.iter().map(export).collect()
}

/// Everything that projects get of subsystems, definitions first.
pub(crate) fn objects(enabled: &[Subsystem]) -> Vec<Value> {
    let crds = enabled.iter().flat_map(|one| (one.crds)());
    crds.chain(enabled.iter().flat_map(|one| (one.manifests)())).collect()
}

/// Runs controllers of subsystems until `stop`, then waits a few seconds for what they have begun.
pub(crate) async fn run_all(
    subsystems: Vec<Subsystem>,
    planes: Planes,
    metrics: Metrics,
    folder: Option<PathBuf>,
    stop: CancellationToken,
) {
    let scope = Scope { planes, metrics, folder, tasks: TaskTracker::new(), token: stop.clone() };
    for subsystem in &subsystems {
        (subsystem.start)(&scope);
        tracing::info!(subsystem = subsystem.name, "controllers started");
    }
    stop.cancelled().await;
    scope.tasks.close();
    if tokio::time::timeout(STOP, scope.tasks.wait()).await.is_err() {
        tracing::warn!("controllers of subsystems did not stop in time");
    }
}

/// `freehold install`: on any Kubernetes API.
pub(crate) async fn install(args: InstallArgs) -> Result<()> {
    let extras = args.extras()?;
    if args.print || args.output.is_some() {
        return install::print(&args.subsystem, &extras);
    }
    let client = Client::new(&kubeconfig::admin(args.kubeconfig)?)?;
    let applied = install::apply(&client, &args.subsystem, &extras).await?;
    println!("{} is installed: {applied} objects applied", args.subsystem.name);
    Ok(())
}

impl EnableIn {
    fn client(&self) -> Result<Client> {
        kubeconfig::own::check_name(&self.project)?;
        let config = kubeconfig::admin(self.kubeconfig.clone())?;
        Ok(Client::new(&config)?.at(&urls::project_path(&self.project)))
    }
}

/// `freehold enable`: in one project. Where the server exports the subsystem it is bound, elsewhere its kinds are defined.
pub(crate) async fn enable(args: EnableIn) -> Result<()> {
    let (client, subsystem, extras) = (args.client()?, &args.subsystem, extras(&args.subsystem));
    let enabled = async {
        if !binding::bind(&client, subsystem).await? {
            return install::apply(&client, subsystem, &extras).await.map(|_| "its definitions".to_owned());
        }
        install::apply_others(&client, subsystem, &extras).await?;
        Ok(format!("APIBinding {:?}", binding::export(subsystem)))
    };
    let by = enabled
        .await
        .with_context(|| format!("failed to enable {} in project {:?}", subsystem.name, args.project))?;
    println!("project {:?} has {}, by {by}", args.project, subsystem.name);
    Ok(())
}

/// `freehold disable`: in one project.
pub(crate) async fn disable(args: DisableIn) -> Result<()> {
    let (client, which, objects) = (args.which.client()?, &args.which, args.delete_objects);
    let subsystem = &which.subsystem;
    let disabled = async {
        if !objects {
            install::check_empty(&client, subsystem).await?;
        }
        install::remove_others(&client, subsystem, &extras(subsystem)).await?;
        match binding::unbind(&client, subsystem, objects).await? {
            true => Ok(()),
            false => install::remove_definitions(&client, subsystem).await,
        }
    };
    disabled
        .await
        .with_context(|| format!("failed to disable {} in project {:?}", subsystem.name, which.project))?;
    println!("project {:?} no longer has {}", which.project, subsystem.name);
    Ok(())
}

/// The planes that `freehold run` is about.
fn planes(args: &RunArgs, config: &Config) -> Result<Planes> {
    let client = Client::new(config)?;
    let one =
        |path: &str| -> Result<Planes> { Ok(Planes::one(client.clone(), CLUSTER.parse::<PlaneId>()?, path)) };
    Ok(match (&args.export, &args.project) {
        (Some((project, export)), _) => {
            Planes::view(client.clone(), &format!("/services/apiexports/{project}/{export}"))
        }
        (None, Some(project)) => one(&urls::project_path(project))?,
        (None, None) if args.all_planes => Planes::all(client.clone()),
        (None, None) => one("")?,
    })
}

/// `freehold run`: controllers of subsystems until Ctrl-C or SIGTERM.
pub(crate) async fn run(args: RunArgs) -> Result<()> {
    let stop = stop::on_signal()?;
    let config = kubeconfig::admin(args.kubeconfig.clone())?;
    let planes = planes(&args, &config)?;
    let metrics = Metrics::default();
    let rendered = metrics.clone();
    args.metrics.serve(Format::Text, Arc::new(move || rendered.render()), stop.clone()).await?;
    let work = |term| run_all(args.subsystems.clone(), planes.clone(), metrics.clone(), None, term);
    match args.election.leader_elect {
        true => args.election(Client::new(&config)?, &metrics).run(stop, work).await,
        false => work(stop).await,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const NOTES: Subsystem = Subsystem {
        name: "notes",
        about: "Keeps notes",
        crds: || vec![json!({"kind": "CustomResourceDefinition", "metadata": {"name": "notes.example.com"}})],
        admission: None,
        reads: None,
        manifests: || vec![json!({"kind": "ClusterRole", "metadata": {"name": "notes-edit"}})],
        start: |scope| {
            let token = scope.token.clone();
            scope.tasks.spawn(async move { token.cancelled().await });
        },
    };

    #[test]
    fn an_unknown_subsystem_is_refused_with_those_that_there_are() {
        assert_eq!(find(&[NOTES], "notes").map(|one| one.name), Ok("notes"));
        let told = find(&[NOTES], "nose").err().unwrap();
        assert_eq!(told, "there is no such subsystem; known are: notes (Keeps notes)");
    }

    #[test]
    fn an_enabled_subsystem_runs_once() {
        let args = EnableArgs { enabled: vec![NOTES], offered: vec![NOTES] };
        assert_eq!(args.running().len(), 1);
        assert_eq!(objects(&args.enabled).len(), 2);
    }

    #[test]
    fn names_of_subsystems_are_unique() {
        let mut names: Vec<&str> = SUBSYSTEMS.iter().map(|one| one.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SUBSYSTEMS.len());
    }

    #[tokio::test]
    async fn controllers_of_subsystems_end_with_their_scope() {
        let config = Config::new("http://127.0.0.1:1", "", freehold_client::Identity::None);
        let planes = Planes::all(Client::new(&config).unwrap());
        let stop = CancellationToken::new();
        let running = tokio::spawn(run_all(vec![NOTES], planes, Metrics::default(), None, stop.clone()));
        tokio::task::yield_now().await;
        assert!(!running.is_finished());
        stop.cancel();
        tokio::time::timeout(STOP, running).await.unwrap().unwrap();
    }
}
