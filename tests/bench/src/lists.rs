//! Lists of many objects, and what it costs to keep them: memory and disk.

use crate::goals::{self, size};
use crate::load;
use crate::objects::{self, CONFIG_MAPS, CUSTOM, Type};
use crate::options::Options;
use crate::report::{Report, Value};
use crate::subject::{Kind, Subject};
use anyhow::Result;
use freehold_client::Client;

/// How often each list is read.
const READS: usize = 40;
/// How many objects are made at once.
const FILL: usize = 32;
const PAGE: &str = "?limit=500";

/// Measures one server.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let mut subject = Subject::start(kind, options)?;
    let client = subject.plane().await?;
    objects::define(&client).await?;
    let namespace = options.namespace("lists");
    client.request(&objects::namespace(&namespace)).await?;
    kept(&mut subject, &client, &namespace, options, report).await?;
    fill(&subject, &client, &CONFIG_MAPS, &namespace, options.objects).await?;
    for ty in [&CUSTOM, &CONFIG_MAPS] {
        lists(&subject, &client, ty, &namespace, options, report).await?;
    }
    client.request(&objects::delete_namespace(&namespace)).await?;
    Ok(())
}

/// What so many custom resources add to the memory of a server that has been started anew and has listed them once, and
/// to the disk.
async fn kept(
    subject: &mut Subject,
    client: &Client,
    namespace: &str,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let before = settled(subject, client, namespace, options).await?;
    let disk = subject.disk();
    fill(subject, client, &CUSTOM, namespace, options.objects).await?;
    let (kind, title) = (subject.kind, format!("{} custom resources of 1 KiB", options.objects));
    let written = subject.disk().zip(disk).map(|(now, before)| Value::Bytes(now - before));
    report.add(&title, "disk that they took when written", kind, written);
    let Some((after, before)) = settled(subject, client, namespace, options).await?.zip(before) else {
        return Ok(());
    };
    report.add(&title, "resident memory of the server with them, listed once", kind, Value::Bytes(after));
    let grown = Value::Bytes(after - before);
    report.add(&title, "of which theirs", kind, grown);
    if options.objects == size::OBJECTS {
        report.reach(&goals::CACHED, kind, grown);
    }
    Ok(())
}

/// Resident memory after a start and one list; `None` where the server is not ours to start.
async fn settled(
    subject: &mut Subject,
    client: &Client,
    namespace: &str,
    options: &Options,
) -> Result<Option<i64>> {
    if !subject.restart() {
        return Ok(None);
    }
    let list = client.request(&CUSTOM.list(namespace, "")).await.map(drop);
    subject.explain(list.map_err(Into::into))?;
    Ok(subject.memory(options).await?.map(|memory| memory.resident))
}

async fn fill(subject: &Subject, client: &Client, ty: &Type, namespace: &str, count: usize) -> Result<()> {
    let requests = (0..count).map(|index| ty.create(namespace, &format!("object-{index:06}")));
    load::send_all(subject, client, requests, FILL).await.map(drop)
}

async fn lists(
    subject: &Subject,
    client: &Client,
    ty: &Type,
    namespace: &str,
    options: &Options,
    report: &mut Report,
) -> Result<()> {
    let (kind, count) = (subject.kind, options.objects);
    let size = client.request(&ty.list(namespace, "")).await?.body.len();
    report.add(
        &format!("Lists of {count} objects of 1 KiB: size"),
        ty.name,
        kind,
        Value::Bytes(i64::try_from(size)?),
    );
    for (name, query, latest) in [
        ("the latest", "", true),
        ("at resourceVersion=0", "?resourceVersion=0", false),
        ("its first page of 500", PAGE, false),
        ("of one name", "?fieldSelector=metadata.name%3Dobject-000007", false),
        ("of a label that none has", "?labelSelector=app%3Dnone", false),
    ] {
        let requests = std::iter::repeat_with(|| ty.list(namespace, query)).take(READS);
        let cost = load::send_all(subject, client, requests, 1).await?;
        let row = format!("{}, {name}", ty.name);
        report.add(&format!("Lists of {count} objects of 1 KiB: server CPU of each"), &row, kind, cost.cpu);
        let title = format!("Lists of {count} objects of 1 KiB: time of each, median / p99");
        report.add(&title, &row, kind, Value::spread(&cost.each));
        if latest && !ty.built_in && count == size::OBJECTS {
            report.reach(&goals::LIST, kind, cost.cpu);
        }
    }
    Ok(())
}
