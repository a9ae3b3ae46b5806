//! One plane with very many objects: what it takes to snapshot, fork, restore and delete it, how long a create in another
//! plane waits meanwhile, and what memory comes back.

use crate::load;
use crate::objects::CONFIG_MAPS;
use crate::options::Options;
use crate::projects::{ORGANIZATION, Projects};
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::subject::{Kind, Subject};
use anyhow::{Context as _, Result, bail};
use freehold_client::{Client, Resource};
use serde_json::json;
use std::pin::pin;
use std::time::{Duration, Instant};

pub(crate) const SNAPSHOTS: Resource =
    Resource::namespaced("resourcemanager.freehold.dev", "v1alpha1", "projectsnapshots");
const RESTORES: Resource =
    Resource::namespaced("resourcemanager.freehold.dev", "v1alpha1", "projectrestores");
const NAMESPACE: &str = "default";
const LARGE: &str = "large";
/// As large, and restored, after which it has next to nothing of its own.
const RESTORED: &str = "restored";
const FORK: &str = "large-fork";
const SMALL: &str = "small";
/// How many objects are made at once.
const FILL: usize = 32;
/// How long creates elsewhere are measured behind each operation, for what it leaves to be done.
const AFTER: Duration = Duration::from_secs(3);
/// The pause between two of them.
const PAUSE: Duration = Duration::from_millis(2);
const POLL: Duration = Duration::from_millis(20);
/// How long an operation may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// A server, and who creates in another plane of it.
struct Beside<'a> {
    subject: &'a Subject,
    small: Client,
    created: usize,
    title: String,
}

/// Measures one engine.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let subject = Subject::start(kind, options)?;
    let root = subject.root();
    let projects = Projects::open(root.clone()).await?;
    for name in [LARGE, RESTORED, SMALL] {
        projects.make(name, "Shared").await?;
    }
    let small = root.at(&format!("/projects/{SMALL}"));
    small.request(&CONFIG_MAPS.create(NAMESPACE, "first")).await?;
    let title = format!("Two planes of {} ConfigMaps of 1 KiB", options.large);
    let memory = |row: &'static str| (title.clone(), row);
    resident(&subject, options, memory("resident memory of the server before"), report).await?;
    for name in [LARGE, RESTORED] {
        let plane = root.at(&format!("/projects/{name}"));
        let requests = (0..options.large).map(|i| CONFIG_MAPS.create(NAMESPACE, &format!("object-{i:06}")));
        let filled = load::send_all(&subject, &plane, requests, FILL).await?;
        report.add(&title, "server CPU of each create in them", kind, filled.cpu);
    }
    resident(&subject, options, memory("resident memory with them"), report).await?;

    let mut beside = Beside { subject: &subject, small, created: 0, title: title.clone() };
    beside.during("nothing", async { Ok(()) }, report).await?;
    beside.during("snapshot", done(&root, &SNAPSHOTS, "s", LARGE, json!({}), "Ready"), report).await?;
    done(&root, &SNAPSHOTS, "t", RESTORED, json!({}), "Ready").await?;
    let from = json!({"from": {"project": LARGE, "snapshot": "s"}});
    beside.during("fork", async { projects.make_as(FORK, from).await.map(drop) }, report).await?;
    let fork = root.at(&format!("/projects/{FORK}"));
    let read = async {
        fork.request(&CONFIG_MAPS.get(NAMESPACE, "object-000003")).await?;
        Ok(())
    };
    beside.during("first request to the fork", read, report).await?;
    resident(&subject, options, memory("resident memory with the fork in use"), report).await?;
    let of = json!({"snapshotRef": {"name": "t"}});
    beside.during("restore", done(&root, &RESTORES, "r", RESTORED, of, "Completed"), report).await?;
    for (what, name) in
        [("delete of the fork", FORK), ("delete", LARGE), ("delete of the restored one", RESTORED)]
    {
        beside.during(what, async { projects.delete(name).await.map(drop) }, report).await?;
    }
    let snapshots = async {
        for name in ["s", "t"] {
            root.delete(&SNAPSHOTS, Some(&home()), name, &freehold_client::DeleteOptions::default()).await?;
        }
        Ok(())
    };
    beside.during("delete of the snapshots", snapshots, report).await?;
    resident(&subject, options, memory("resident memory after all of it was deleted"), report).await
}

/// The namespace of the organization's objects.
fn home() -> String {
    format!("organization-{ORGANIZATION}")
}

async fn resident(
    subject: &Subject,
    options: &Options,
    (title, row): (String, &str),
    report: &mut Report,
) -> Result<()> {
    let memory = subject.memory(options).await?;
    report.add(&title, row, subject.kind, memory.map(|memory| Value::Bytes(memory.resident)));
    Ok(())
}

/// Makes a snapshot or restore of a project, and waits until its status has a phase.
pub(crate) async fn done(
    root: &Client,
    resource: &Resource,
    name: &str,
    project: &str,
    more: serde_json::Value,
    phase: &str,
) -> Result<()> {
    let mut spec = json!({"projectRef": {"name": project}});
    if let (Some(spec), serde_json::Value::Object(more)) = (spec.as_object_mut(), more) {
        spec.extend(more);
    }
    let kind = if resource.plural == SNAPSHOTS.plural { "ProjectSnapshot" } else { "ProjectRestore" };
    let object = json!({
        "apiVersion": resource.api_version(), "kind": kind,
        "metadata": {"name": name, "namespace": home()}, "spec": spec,
    });
    root.create(resource, &object).await.with_context(|| format!("{kind} {name}"))?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let found = root.get(resource, Some(&home()), name).await?;
        match found["status"]["phase"].as_str() {
            Some(now) if now == phase => return Ok(()),
            Some("Failed") => bail!("{kind} {name} failed: {}", found["status"]),
            _ => tokio::time::sleep(POLL).await,
        }
    }
    bail!("{kind} {name}: not within {PATIENCE:?}")
}

impl Beside<'_> {
    /// Does something, and creates objects in the small project meanwhile and a little longer, one after the other.
    async fn during(
        &mut self,
        what: &str,
        work: impl Future<Output = Result<()>>,
        report: &mut Report,
    ) -> Result<()> {
        let cpu = self.subject.cpu()?;
        let begun = Instant::now();
        let (mut took, mut each) = (None, Vec::new());
        let mut work = pin!(async {
            work.await?;
            let took = begun.elapsed();
            tokio::time::sleep(AFTER).await;
            Ok::<_, anyhow::Error>(took)
        });
        while took.is_none() {
            self.created += 1;
            let request = CONFIG_MAPS.create(NAMESPACE, &format!("beside-{}", self.created));
            let mut create = pin!(async {
                let asked = Instant::now();
                let created = self.small.request(&request).await;
                tokio::time::sleep(PAUSE).await;
                created.map(|_| asked.elapsed().saturating_sub(PAUSE))
            });
            let created = tokio::select! {
                done = &mut work => {
                    took = Some(self.subject.explain(done.with_context(|| what.to_owned()))?);
                    create.await
                }
                created = &mut create => created,
            };
            each.push(self.subject.explain(created.map_err(Into::into))?);
        }
        let (kind, title) = (self.subject.kind, &self.title);
        let used = self.subject.cpu()?.zip(cpu).map(|(now, then)| Value::Time(now.saturating_sub(then)));
        let each: Samples = each.into_iter().collect();
        report.add(title, format!("{what}: time"), kind, took.map(Value::Time));
        report.add(title, format!("{what}: server CPU, creates elsewhere included"), kind, used);
        let spread = Value::spread(&each);
        report.add(title, format!("{what}: a create elsewhere meanwhile, median / p99"), kind, spread);
        let longest = Value::Time(each.quantile(1.0));
        report.add(title, format!("{what}: the longest of them"), kind, longest);
        Ok(())
    }
}
