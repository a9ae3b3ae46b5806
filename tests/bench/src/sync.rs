//! A controller manager of its own over planes by the thousand: how long its first look at all of them takes, and what it
//! costs from then on.
//!
//! Each plane has ten namespaces and fifty objects that belong to an owner. The server's own controllers make what a
//! namespace comes with, and leave garbage alone: an orphan is there before the controller manager starts, which collects
//! nothing before it has seen everything. With `--forks` all planes but the first are forks of it.

use crate::objects;
use crate::options::Options;
use crate::projects::Projects;
use crate::report::{Report, Value};
use crate::subject::{Kind, Subject};
use crate::{goals, large, load, process};
use anyhow::{Context, Result, bail};
use freehold_client::{Client, RawRequest};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use serde_json::json;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Namespaces of each plane, and objects with an owner.
const NAMESPACES: usize = 10;
const OWNED: usize = 50;
/// Requests under way at once while planes are filled: many share a write to the disk.
const CONCURRENCY: usize = 128;
/// Projects made at once.
const PROJECTS: usize = 64;
/// Forks made at once: the server's own controllers read each when it is there.
const FORKS: usize = 16;
/// The server's own controllers, besides those that make projects.
const CONTROLLERS: &str = "--controllers=namespace,service-account,root-ca";
const SNAPSHOT: &str = "filled";
/// How long the first look may take before the run is given up.
const PATIENCE: Duration = Duration::from_secs(600);
const PERIOD: Duration = Duration::from_millis(50);
/// It has done what there was to do when it used less than a twentieth of a core for so long.
const QUIET: Duration = Duration::from_secs(4);
/// How long rest is watched.
const REST: Duration = Duration::from_secs(20);
const PATH: &str = "/api/v1/namespaces/ns-0/configmaps";

/// Measures one server.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let subject = Subject::start_with(kind, options, &[CONTROLLERS])?;
    let root = subject.root();
    let names: Vec<String> = (0..options.planes).map(|i| format!("p-{i}")).collect();
    let begun = Instant::now();
    let made = make(&subject, &root, &names, options.forks).await;
    subject.explain(made)?;
    println!("    {} planes are filled after {:.0} s", names.len(), begun.elapsed().as_secs_f64());
    let last = root.at(&format!("/projects/{}", names.last().context("there are planes")?));
    last.request(&config_map("orphan", json!("00000000-0000-4000-8000-000000000000"))).await?;

    let kubeconfig = subject.admin_kubeconfig().context("a server of ours")?;
    // The server's own controllers make projects too: without the same authorities the two would not agree of them.
    let pki = kubeconfig.with_file_name("pki");
    let begun = Instant::now();
    let manager = Manager(
        Command::new(freehold_tests_harness::freehold_binary())
            .args(["controller-manager", "--kubeconfig"])
            .args([kubeconfig.as_path(), Path::new("--pki-dir"), &pki])
            .spawn()
            .context("the controller manager")?,
    );
    let orphan = RawRequest::get(format!("{PATH}/orphan"));
    while last.json(orphan.clone()).await.is_ok() {
        if begun.elapsed() > PATIENCE {
            bail!("the orphan is still there after {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(PERIOD).await;
    }
    let took = begun.elapsed();
    let pid = manager.0.id();
    let cpu = rests(pid).await?;
    let resident = process::memory_at_rest(pid).await.resident;
    let at_rest = used(pid)?;
    tokio::time::sleep(REST).await;
    let more = used(pid)?.saturating_sub(at_rest);
    let idle = more.as_secs_f64() / REST.as_secs_f64() * 100.0;

    let title = format!(
        "A controller manager over {} planes with {NAMESPACES} namespaces and {OWNED} owned objects each",
        options.planes
    );
    report.add(
        &title,
        "from its start until it has seen all of them and collected an orphan",
        kind,
        Value::Time(took),
    );
    report.add(&title, "its CPU until it rests", kind, Value::Time(cpu));
    report.add(&title, "its resident memory", kind, Value::Bytes(resident));
    report.add(&title, "its CPU at rest, of a core", kind, Value::Percent(idle));
    report.add(&title, "its open sockets", kind, Value::Count(process::sockets(pid)));
    let server = subject.memory(options).await?.map(|m| Value::Bytes(m.resident));
    report.add(&title, "resident memory of the server", kind, server);
    if options.planes >= goals::size::SOME_PLANES {
        report.reach(&goals::MANAGER_SYNC, kind, Value::Time(took));
        report.reach(&goals::MANAGER_MEMORY, kind, Value::Bytes(resident));
        report.reach(&goals::MANAGER_REST, kind, Value::Percent(idle));
    }
    Ok(())
}

fn used(pid: u32) -> Result<Duration> {
    process::cpu(pid).context("the controller manager has died")
}

/// Waits until nothing is left of what a first look gives to do; the CPU that was used until then.
async fn rests(pid: u32) -> Result<Duration> {
    let begun = Instant::now();
    loop {
        let before = used(pid)?;
        tokio::time::sleep(QUIET).await;
        let now = used(pid)?;
        if now - before < QUIET / 20 || begun.elapsed() > PATIENCE {
            return Ok(now);
        }
    }
}

/// Makes planes and what they have.
async fn make(subject: &Subject, root: &Client, names: &[String], forks: bool) -> Result<()> {
    let projects = Projects::open(root.clone()).await?;
    let (first, others) = names.split_at(if forks { 1 } else { names.len() });
    projects.make_all(first, PROJECTS).await?;
    for some in first.chunks(200) {
        fill(subject, root, some).await?;
    }
    if let Some(first) = first.first().filter(|_| !others.is_empty()) {
        complete(&root.at(&format!("/projects/{first}"))).await?;
        large::done(root, &large::SNAPSHOTS, SNAPSHOT, first, json!({}), "Ready").await?;
        let from = json!({"from": {"project": first, "snapshot": SNAPSHOT}});
        let forks = stream::iter(others).map(|name| projects.make_as(name, from.clone()));
        forks.buffer_unordered(FORKS).try_for_each(async |_| Ok(())).await?;
    }
    Ok(())
}

/// Waits until each namespace has what controllers give it.
async fn complete(plane: &Client) -> Result<()> {
    let begun = Instant::now();
    for i in 0..NAMESPACES {
        for given in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/ns-{i}/{given}");
            while plane.json(RawRequest::get(path.clone())).await.is_err() {
                if begun.elapsed() > PATIENCE {
                    bail!("{path} is not there after {} s", PATIENCE.as_secs());
                }
                tokio::time::sleep(PERIOD).await;
            }
        }
    }
    Ok(())
}

/// Makes what planes have: their namespaces, an owner, and what belongs to it.
async fn fill(subject: &Subject, root: &Client, names: &[String]) -> Result<()> {
    let planes: Vec<Client> = names.iter().map(|name| root.at(&format!("/projects/{name}"))).collect();
    let each = |count: usize, make: &dyn Fn(usize) -> RawRequest| -> Vec<(Client, RawRequest)> {
        planes.iter().flat_map(|plane| (0..count).map(|i| (plane.clone(), make(i)))).collect()
    };
    load::send(subject, each(NAMESPACES, &|i| objects::namespace(&format!("ns-{i}"))), CONCURRENCY).await?;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let owner = RawRequest::new(Method::POST, PATH.to_owned()).json(&owner);
    let owners = stream::iter(&planes).map(|plane| plane.json(owner.clone())).buffered(CONCURRENCY);
    let owners: Vec<serde_json::Value> = owners.try_collect().await?;
    let owned = planes.iter().zip(&owners).flat_map(|(plane, owner)| {
        let uid = &owner["metadata"]["uid"];
        (0..OWNED).map(move |i| (plane.clone(), config_map(&format!("owned-{i}"), uid.clone())))
    });
    load::send(subject, owned, CONCURRENCY).await?;
    Ok(())
}

/// A ConfigMap that belongs to the owner of this uid.
fn config_map(name: &str, uid: serde_json::Value) -> RawRequest {
    let owners = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"key": "value"},
        "metadata": {"name": name, "ownerReferences": owners},
    });
    RawRequest::new(Method::POST, PATH.to_owned()).json(&object)
}

/// The controller manager's process, which ends with this.
struct Manager(Child);

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
