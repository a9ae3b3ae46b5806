//! Planes by the thousand: how fast they are made, filled and deleted, what they cost while nobody uses them, and how
//! soon one answers that is not in memory.

use crate::goals::{self, size};
use crate::load;
use crate::mixed::Random;
use crate::objects::{self, CONFIG_MAPS};
use crate::options::Options;
use crate::process;
use crate::projects::{Outcome, Projects};
use crate::report::{Report, Value};
use crate::subject::{Kind, Subject};
use anyhow::Result;
use freehold_client::{Client, RawRequest};
use std::time::Duration;

/// Objects of each plane, beside its namespace and its RBAC binding.
const OBJECTS: usize = 5;
const NAMESPACE: &str = "app";
/// How many projects, or requests to planes, are under way at once.
const CONCURRENCY: usize = 64;
/// How many planes that are not in memory are asked for something.
const FIRST_REQUESTS: usize = 1000;
/// Measures one engine.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let mut subject = Subject::start(kind, options)?;
    let projects = Projects::open(subject.root()).await?;
    // What the first project makes the server load is no cost of each.
    projects.make("first", "Shared").await?;
    let names: Vec<String> = (0..options.planes).map(|i| format!("p-{i}")).collect();
    let before = subject.memory(options).await?.map(|m| m.resident);
    let disk = subject.disk();

    made(&subject, &projects, &names, report).await?;
    filled(&subject, &names, report).await?;
    idle(&subject, options, before, disk, report).await?;
    drop(projects);
    subject.restart();
    let started = subject.started_in();
    let title = title(options.planes);
    report.add(&title, "`freehold up` on their data, until it is ready", kind, started.map(Value::Time));
    if options.planes == size::SOME_PLANES {
        report.reach(&goals::RESTART, kind, started.map(Value::Time));
    }
    let memory = subject.memory(options).await?.map(|m| Value::Bytes(m.resident));
    report.add(&title, "resident memory of the server after that start", kind, memory);
    first_requests(&subject, &names, report).await?;
    deleted(&subject, &names, options, report).await
}

fn title(planes: usize) -> String {
    format!(
        "{planes} shared planes, each with a namespace, an RBAC binding and {OBJECTS} ConfigMaps of 1 KiB"
    )
}

async fn made(subject: &Subject, projects: &Projects, names: &[String], report: &mut Report) -> Result<()> {
    let (cpu, own) = (subject.cpu()?, process::cpu(std::process::id()));
    let made = projects.make_all(names, CONCURRENCY).await;
    let made: Outcome = subject.explain(made)?;
    let (kind, title) = (subject.kind, title(names.len()));
    report.add(
        &title,
        format!("planes created a second, {CONCURRENCY} at a time"),
        kind,
        Value::Rate(made.rate()),
    );
    report.add(&title, "created to Ready, median / p99", kind, Value::spread(&made.each));
    report.add(&title, "server CPU to create each", kind, subject.cpu_each(cpu, names.len())?);
    let own = process::cpu(std::process::id()).zip(own).map(|(now, before)| now.saturating_sub(before));
    let own = own.map(|own| Value::Cpu(own.div_f64(names.len().max(1) as f64)));
    report.add(&title, "the client's CPU to create each, beside it", kind, own);
    if names.len() == size::SOME_PLANES {
        report.reach(&goals::PLANES_CREATED, kind, Value::Rate(made.rate()));
    }
    Ok(())
}

/// A client of each plane, as the admin of the platform.
fn planes<'a>(root: &'a Client, names: &'a [String]) -> impl Iterator<Item = Client> + 'a {
    names.iter().map(|name| root.at(&format!("/projects/{name}")))
}

async fn filled(subject: &Subject, names: &[String], report: &mut Report) -> Result<()> {
    let root = subject.root();
    let namespaces = planes(&root, names).map(|plane| (plane, objects::namespace(NAMESPACE)));
    load::send(subject, namespaces, CONCURRENCY).await?;
    // In pieces, so that the client does not hold all requests at once.
    for some in names.chunks(1000) {
        let requests = planes(&root, some).flat_map(|plane| {
            let object = |i| CONFIG_MAPS.create(NAMESPACE, &format!("object-{i}"));
            let all = (0..OBJECTS).map(object).chain([objects::role_binding(NAMESPACE)]);
            all.map(move |request| (plane.clone(), request)).collect::<Vec<(Client, RawRequest)>>()
        });
        load::send(subject, requests, CONCURRENCY).await?;
    }
    let made = Value::Count(names.len());
    report.add(&title(names.len()), "planes that exist", subject.kind, made);
    if names.len() >= size::PLANES {
        report.reach(&goals::PLANES, subject.kind, made);
    }
    Ok(())
}

async fn idle(
    subject: &Subject,
    options: &Options,
    before: Option<i64>,
    disk: Option<i64>,
    report: &mut Report,
) -> Result<()> {
    let (kind, title) = (subject.kind, title(options.planes));
    let each = |grown: i64| Value::Bytes(grown / i64::try_from(options.planes.max(1)).unwrap_or(i64::MAX));
    tokio::time::sleep(Duration::from_secs(options.settle)).await;
    let memory = subject.memory(options).await?.map(|m| m.resident);
    report.add(&title, "resident memory of the server, all of them idle", kind, memory.map(Value::Bytes));
    report.add(
        &title,
        "resident memory of each",
        kind,
        memory.zip(before).map(|(now, then)| each(now - then)),
    );
    let on_disk = subject.disk().zip(disk).map(|(now, then)| each(now - then));
    report.add(&title, "disk of each", kind, on_disk);
    let cpu = subject.cpu()?;
    tokio::time::sleep(Duration::from_secs(10)).await;
    let used = subject.cpu()?.zip(cpu).map(|(now, then)| Value::Time(now.saturating_sub(then)));
    report.add(&title, "CPU time in 10 s of rest", kind, used);
    if options.planes >= size::PLANES {
        report.reach(&goals::PLANES_MEMORY, kind, memory.map(Value::Bytes));
    }
    Ok(())
}

/// Asks planes of a server that has just been started for an object, one after the other.
async fn first_requests(subject: &Subject, names: &[String], report: &mut Report) -> Result<()> {
    let (root, mut random) = (subject.root(), Random(7));
    // The connection is no part of it.
    root.request(&objects::namespace("warm")).await?;
    let mut asked: Vec<usize> = (0..FIRST_REQUESTS).map(|_| random.below(names.len())).collect();
    asked.sort_unstable();
    asked.dedup();
    let requests = asked.iter().map(|index| {
        (root.at(&format!("/projects/{}", names[*index])), CONFIG_MAPS.get(NAMESPACE, "object-3"))
    });
    let cost = load::send(subject, requests, 1).await?;
    let (kind, title) = (subject.kind, title(names.len()));
    report.add(
        &title,
        "first request to a plane that is not in memory, median / p99",
        kind,
        Value::spread(&cost.each),
    );
    report.add(&title, "server CPU of that", kind, cost.cpu);
    if names.len() >= size::SOME_PLANES {
        report.reach(&goals::FIRST_REQUEST, kind, Value::Time(cost.each.p99()));
    }
    Ok(())
}

async fn deleted(subject: &Subject, names: &[String], options: &Options, report: &mut Report) -> Result<()> {
    let projects = Projects::reopen(subject.root()).await?;
    let cpu = subject.cpu()?;
    let names = &names[..names.len().min(size::SOME_PLANES)];
    let gone = projects.delete_all(names, CONCURRENCY).await;
    let gone: Outcome = subject.explain(gone)?;
    let (kind, title) = (subject.kind, title(options.planes));
    report.add(
        &title,
        format!("deleted a second with their objects, {CONCURRENCY} at a time"),
        kind,
        Value::Rate(gone.rate()),
    );
    report.add(&title, "time of each deletion, median / p99", kind, Value::spread(&gone.each));
    report.add(&title, "server CPU to delete each", kind, subject.cpu_each(cpu, names.len())?);
    if names.len() == size::SOME_PLANES {
        report.reach(&goals::PLANES_DELETED, kind, Value::Time(gone.total));
    }
    let memory = subject.memory(options).await?.map(|m| Value::Bytes(m.resident));
    report.add(&title, "resident memory of the server after that", kind, memory);
    Ok(())
}
