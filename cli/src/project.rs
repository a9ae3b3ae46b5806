//! `freehold project`: snapshots, forks, restores, exports, imports and revocations. Each but the last three is an API object
//! that is made and waited for; whatever is done here, `kubectl` can do.

use crate::{kubeconfig, terminal};
use anyhow::{Context, Result, bail};
use clap::{Args as ClapArgs, Subcommand};
use freehold_api::{
    ControlPlaneSpec, ForkSource, LocalRef, Object, OwnerKind, OwnerRef, Project, ProjectRestore,
    ProjectRestoreSpec, ProjectSnapshot, ProjectSnapshotSpec, ProjectSpec, keys,
    resourcemanager::{GROUP, VERSION},
};
use freehold_apiserver::archive;
use freehold_client::{Client, Config, DeleteOptions, Patch, PatchOptions, RawRequest, Resource};
use freehold_machinery::{Value, meta};
use http::Method;
use serde_json::json;
use std::{
    fs::File,
    io::{BufReader, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const PROJECTS: Resource = Resource::cluster(GROUP, VERSION, "projects");
const SNAPSHOTS: Resource = Resource::namespaced(GROUP, VERSION, "projectsnapshots");
const RESTORES: Resource = Resource::namespaced(GROUP, VERSION, "projectrestores");
/// How often the outcome is looked at.
const POLL: Duration = Duration::from_millis(200);
/// Bytes that an exported archive can have.
const MAX_ARCHIVE: usize = 4 << 30;
/// How long an export or import can take.
const TRANSFER: Duration = Duration::from_secs(3600);

/// Flags of `freehold project`.
#[derive(ClapArgs)]
pub(crate) struct Args {
    /// The kubeconfig of an admin or owner. Default: the first of $KUBECONFIG, otherwise data/admin.kubeconfig or ~/.kube/config.
    #[arg(long, global = true)]
    kubeconfig: Option<PathBuf>,
    /// Longest time to wait for the outcome, in seconds.
    #[arg(long, global = true, default_value_t = 300)]
    timeout: u64,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Creates a snapshot of a project, as of now or of a revision.
    Snapshot {
        /// The project.
        project: String,
        /// The snapshot's name.
        #[arg(long)]
        name: String,
        /// A resource version of the project, some minutes old at most.
        #[arg(long)]
        revision: Option<i64>,
    },
    /// Creates a project that begins with the objects of another one, as of now or of a revision.
    Fork {
        /// The project to fork.
        project: String,
        /// The new project's name.
        #[arg(long)]
        to: String,
        /// A snapshot of the project. Default: what it has now.
        #[arg(long, conflicts_with = "revision")]
        snapshot: Option<String>,
        /// A resource version of the project, some minutes old at most.
        #[arg(long)]
        revision: Option<i64>,
    },
    /// Restores a project to one of its snapshots. Later changes are lost.
    Restore {
        /// The project.
        project: String,
        /// The snapshot.
        #[arg(long)]
        snapshot: String,
    },
    /// Revokes certificates of a project at once: all that were signed until now, including that of its kubeconfig,
    /// which is recreated. Tokens of service accounts and the project's RBAC are not affected.
    RevokeCredentials {
        /// The project.
        project: String,
        /// A single credential to end, in place of all: what audit events have as authentication.kubernetes.io/credential-id,
        /// X509SHA256=FINGERPRINT or JTI=IDENTIFIER. Can be given several times.
        #[arg(long = "id")]
        ids: Vec<String>,
    },
    /// Exports the objects of a project into a file.
    Export {
        /// The project.
        project: String,
        /// The file, which must not be there yet.
        file: PathBuf,
    },
    /// Fills a new or empty project from a file.
    Import {
        /// The file.
        file: PathBuf,
        /// The project. It is made if it is not there.
        #[arg(long)]
        to: String,
        /// The organization of a project that is made.
        #[arg(long)]
        organization: Option<String>,
    },
}

/// How often a change is tried again that another one came before.
const ATTEMPTS: usize = 5;

/// Which credentials of a project count once some are revoked: single ones where there are `ids`, otherwise all of before.
fn revoking(project: &Value, ids: &[String]) -> Value {
    let credentials = &project["spec"]["controlPlane"]["credentials"];
    let generation = credentials["generation"].as_i64().unwrap_or(0);
    let known = credentials["revoked"].as_array().map(Vec::as_slice).unwrap_or_default();
    let new = ids.iter().map(|id| Value::from(id.as_str())).filter(|id| !known.contains(id));
    let revoked: Vec<Value> = known.iter().cloned().chain(new).collect();
    json!({"generation": if ids.is_empty() { generation + 1 } else { generation }, "revoked": revoked})
}

struct Session {
    client: Client,
    config: Config,
    timeout: Duration,
}

/// Runs a subcommand.
pub(crate) async fn run(args: Args) -> Result<()> {
    let config = kubeconfig::platform(args.kubeconfig)?;
    let client = Client::new(&config)?;
    let session = Session { client, config, timeout: Duration::from_secs(args.timeout) };
    match args.command {
        Command::Snapshot { project, name, revision } => session.snapshot(&project, &name, revision).await,
        Command::Fork { project, to, snapshot, revision } => {
            session.fork(&to, ForkSource { project, snapshot, revision }).await
        }
        Command::RevokeCredentials { project, ids } => session.revoke(&project, &ids).await,
        Command::Restore { project, snapshot } => session.restore(&project, &snapshot).await,
        Command::Export { project, file } => session.export(&project, &file).await,
        Command::Import { file, to, organization } => session.import(&file, &to, organization).await,
    }
}

fn reference(name: &str) -> LocalRef {
    LocalRef { name: name.to_owned() }
}

/// An object as it goes on the wire, without the status that it doesn't have yet.
fn wire<S: freehold_api::KindSpec>(object: &Object<S>) -> Result<Value> {
    let mut value = serde_json::to_value(object)?;
    if let Some(map) = value.as_object_mut() {
        map.remove("status");
    }
    Ok(value)
}

/// The message of the `Ready` condition, or the whole status where there is none.
fn explain(object: &Value) -> String {
    let conditions = object["status"]["conditions"].as_array();
    let ready = conditions.into_iter().flatten().find(|c| c["type"] == keys::READY);
    match ready {
        Some(ready) => {
            let text = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("reason"), text("message"))
        }
        None => "nothing is known of it yet".to_owned(),
    }
}

impl Session {
    async fn organization(&self, project: &str) -> Result<String> {
        let found = self.client.get(&PROJECTS, None, project).await?;
        let organization = found["spec"]["ownerRef"]["name"].as_str();
        organization.map(str::to_owned).with_context(|| format!("project {project:?} has no owner"))
    }

    /// Looks at an object until it has an outcome: `Ok` is what it was waited for, `Err` why that never comes.
    async fn wait(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        outcome: impl Fn(&Value) -> Option<Result<()>>,
    ) -> Result<Value> {
        let started = Instant::now();
        loop {
            let object = self.client.get(resource, namespace, name).await?;
            match outcome(&object) {
                Some(Ok(())) => return Ok(object),
                Some(Err(error)) => return Err(error),
                None if started.elapsed() > self.timeout => {
                    let seconds = self.timeout.as_secs();
                    bail!(
                        "{name:?} is not done after {seconds} s ({}); it continues in the background",
                        explain(&object)
                    );
                }
                None => tokio::time::sleep(POLL).await,
            }
        }
    }

    async fn wait_phase(&self, resource: &Resource, namespace: &str, name: &str) -> Result<Value> {
        let outcome = |object: &Value| match object["status"]["phase"].as_str() {
            Some("Ready" | "Completed") => Some(Ok(())),
            Some("Failed") => Some(Err(anyhow::anyhow!("{}", explain(object)))),
            _ => None,
        };
        self.wait(resource, Some(namespace), name, outcome).await
    }

    async fn snapshot(&self, project: &str, name: &str, revision: Option<i64>) -> Result<()> {
        let namespace = keys::organization_namespace(&self.organization(project).await?);
        let spec = ProjectSnapshotSpec { project_ref: reference(project), revision };
        let mut snapshot = ProjectSnapshot::new(name, spec);
        snapshot.metadata.namespace.clone_from(&namespace);
        self.client.create(&SNAPSHOTS, &wire(&snapshot)?).await?;
        let made = self.wait_phase(&SNAPSHOTS, &namespace, name).await?;
        let status = &made["status"];
        terminal::say(format_args!(
            "snapshot {name} of {project} at revision {}: {} objects, {} bytes",
            status["revision"], status["objects"], status["bytes"]
        ));
        Ok(())
    }

    async fn fork(&self, to: &str, from: ForkSource) -> Result<()> {
        let source = self.client.get(&PROJECTS, None, &from.project).await?;
        let organization = self.organization(&from.project).await?;
        let class = source["spec"]["controlPlane"]["class"].as_str().unwrap_or(keys::DEFAULT_CLASS);
        let about = format!("{to} is a fork of {}", from.project);
        let plane = ControlPlaneSpec { class: class.to_owned(), from: Some(from), ..Default::default() };
        self.make_project(to, organization, plane).await?;
        terminal::say(about);
        Ok(())
    }

    /// Makes a project and waits until it is ready, or can't become so.
    async fn make_project(&self, name: &str, organization: String, plane: ControlPlaneSpec) -> Result<()> {
        let owner_ref = OwnerRef { kind: OwnerKind::Organization, name: organization };
        let spec = ProjectSpec { owner_ref, control_plane: plane, ..ProjectSpec::default() };
        self.client.create(&PROJECTS, &wire(&Project::new(name, spec))?).await?;
        let outcome = |object: &Value| {
            let conditions = object["status"]["conditions"].as_array();
            let ready = conditions.into_iter().flatten().find(|c| c["type"] == keys::READY)?;
            match (ready["status"].as_str(), ready["reason"].as_str()) {
                (Some("True"), _) => Some(Ok(())),
                (
                    _,
                    Some(
                        "ForkFailed"
                        | "QuotaExceeded"
                        | "SnapshotFailed"
                        | "SnapshotNotFound"
                        | "ProjectNotFound"
                        | "OrganizationNotFound",
                    ),
                ) => Some(Err(anyhow::anyhow!("{}; project {name:?} can be deleted", explain(object)))),
                _ => None,
            }
        };
        self.wait(&PROJECTS, None, name, outcome).await.map(drop)
    }

    async fn restore(&self, project: &str, snapshot: &str) -> Result<()> {
        let namespace = keys::organization_namespace(&self.organization(project).await?);
        self.client.get(&SNAPSHOTS, Some(&namespace), snapshot).await?;
        let spec = ProjectRestoreSpec { project_ref: reference(project), snapshot_ref: reference(snapshot) };
        let mut restore = wire(&ProjectRestore::new("", spec))?;
        meta::set(&mut restore, "generateName", format!("{project}-"));
        meta::set(&mut restore, "namespace", &*namespace);
        meta::remove(&mut restore, "name");
        let made = self.client.create(&RESTORES, &restore).await?;
        let done = self.wait_phase(&RESTORES, &namespace, meta::name(&made)).await?;
        terminal::say(format_args!(
            "{project} is as in snapshot {snapshot}, from revision {}",
            done["status"]["revision"]
        ));
        Ok(())
    }

    async fn revoke(&self, name: &str, ids: &[String]) -> Result<()> {
        for attempt in 1.. {
            let project = self.client.get(&PROJECTS, None, name).await?;
            let credentials = revoking(&project, ids);
            // What another one changed meanwhile is not written over.
            let patch = Patch::Merge(json!({
                "metadata": {"resourceVersion": meta::text(&project, "resourceVersion")},
                "spec": {"controlPlane": {"credentials": credentials}},
            }));
            match self.client.patch(&PROJECTS, None, name, &patch, &PatchOptions::default()).await {
                Err(error) if error.code() == 409 && attempt < ATTEMPTS => {}
                Err(error) => return Err(error.into()),
                Ok(_) if ids.is_empty() => {
                    terminal::say(format_args!(
                        "certificates of {name} count from generation {} on",
                        credentials["generation"]
                    ));
                    return Ok(());
                }
                Ok(_) => {
                    terminal::say(format_args!("{} of {name} count no longer", ids.join(", ")));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// A client of a project's own plane, as its admin.
    async fn inside(&self, project: &str) -> Result<Client> {
        let mut config = kubeconfig::of_project(&self.client, &self.config, project).await?.config();
        config.max_response_bytes = MAX_ARCHIVE;
        config.timeout = TRANSFER;
        config.user_agent.clone_from(&self.config.user_agent);
        Ok(Client::new(&config)?)
    }

    async fn export(&self, project: &str, file: &Path) -> Result<()> {
        // Secrets are in it as they are.
        let made = File::options().write(true).create_new(true).mode(0o600).open(file);
        let mut out = made.with_context(|| format!("{} can't be written", file.display()))?;
        let answer = self.inside(project).await?.request(&RawRequest::get("/archive")).await;
        let written = answer.map_err(anyhow::Error::from).and_then(|answer| {
            let (header, objects) = archive::verify(&answer.body[..], archive::Kind::Plane)?;
            out.write_all(&answer.body)?;
            out.sync_all()?;
            Ok((header.revision, objects))
        });
        match written {
            Ok((revision, objects)) => {
                terminal::say(format_args!(
                    "{} has {objects} objects of {project} at revision {revision}",
                    file.display()
                ));
                Ok(())
            }
            Err(error) => {
                // Half a file is worse than none.
                std::fs::remove_file(file)?;
                Err(error)
            }
        }
    }

    async fn import(&self, file: &Path, to: &str, organization: Option<String>) -> Result<()> {
        let what = || format!("{} can't be imported", file.display());
        let opened = File::open(file).with_context(what)?;
        archive::verify(BufReader::new(opened), archive::Kind::Plane).with_context(what)?;
        let is_new = self.client.get_opt(&PROJECTS, None, to).await?.is_none();
        if is_new {
            let Some(organization) = organization else {
                bail!("there is no project {to:?}; create it with --organization");
            };
            self.make_project(to, organization, ControlPlaneSpec::default()).await?;
        }
        let mut request = RawRequest::new(Method::POST, "/archive");
        request.content_type = "application/vnd.freehold.archive";
        request.body = std::fs::read(file)?.into();
        let imported = self.inside(to).await?.json(request).await;
        // A server that refuses the archive has written nothing: the project would be left empty.
        if is_new && imported.as_ref().is_err_and(|error| error.code() >= 400) {
            self.client.delete(&PROJECTS, None, to, &DeleteOptions::default()).await?;
        }
        let answer = imported.with_context(what)?;
        terminal::say(format_args!("{to} has {} objects of {}", answer["objects"], file.display()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_certificates_are_revoked_or_single_ones() {
        let credentials = json!({"generation": 2, "revoked": ["JTI=a"]});
        let project = json!({"spec": {"controlPlane": {"credentials": credentials}}});
        let ids = ["JTI=a".to_owned(), "JTI=b".to_owned()];
        assert_eq!(revoking(&project, &[]), json!({"generation": 3, "revoked": ["JTI=a"]}));
        assert_eq!(revoking(&project, &ids), json!({"generation": 2, "revoked": ["JTI=a", "JTI=b"]}));
        assert_eq!(revoking(&Value::Null, &[]), json!({"generation": 1, "revoked": []}));
    }
}
