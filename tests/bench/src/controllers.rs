//! What controllers have to do when much is deleted: a namespace of many objects, and an owner of many; and whether another
//! plane waits for them meanwhile.

use crate::goals;
use crate::load;
use crate::objects::{self, CONFIG_MAPS};
use crate::options::Options;
use crate::projects::Projects;
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::subject::{Kind, Subject};
use anyhow::{Result, bail};
use freehold_client::{Client, RawRequest, Resource};
use http::Method;
use serde_json::json;
use std::time::{Duration, Instant};

/// The plane that others' deletions must not slow.
const OTHER: &str = "bystander";
/// Requests at once that fill a namespace.
const CONCURRENCY: usize = 32;
/// How long anything may take before the run is given up.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often is looked whether something is gone.
const PERIOD: Duration = Duration::from_millis(10);
const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");

/// Measures one server.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let subject = Subject::start(kind, options)?;
    let plane = subject.plane().await?;
    Projects::reopen(subject.root()).await?.make(OTHER, "Shared").await?;
    let other = subject.root().at(&format!("/projects/{OTHER}"));
    let title = format!("Deletions of {} objects", options.objects);
    let full = fill(&subject, &plane, options, "full", false).await?;
    let cpu = subject.cpu()?;
    plane.request(&deletion(&NAMESPACES, None, &full, "Background")).await?;
    let (took, meanwhile) =
        watch(&plane, &other, options, RawRequest::get(NAMESPACES.object_path(None, &full, None))).await?;
    report.add(&title, "a namespace with them, until it is gone", kind, Value::Time(took));
    report.add(&title, "server CPU for each object", kind, subject.cpu_each(cpu, options.objects)?);
    report.add(
        &title,
        "meanwhile another plane's namespace of one object, median / p99",
        kind,
        Value::spread(&meanwhile),
    );
    if options.objects >= goals::size::OBJECTS {
        report.reach(&goals::NAMESPACE_DELETED, kind, Value::Time(took));
        report.reach(&goals::OTHER_NAMESPACE, kind, Value::Time(meanwhile.p99()));
    }
    let owned = fill(&subject, &plane, options, "owned", true).await?;
    let cpu = subject.cpu()?;
    plane.request(&deletion(&CONFIG_MAPS.resource, Some(&owned), "owner", "Background")).await?;
    let last = CONFIG_MAPS.list(&owned, "?labelSelector=app%3Dbench&limit=1");
    let (took, meanwhile) = watch(&plane, &other, options, last).await?;
    report.add(&title, "an owner of them, until all are gone", kind, Value::Time(took));
    report.add(&title, "server CPU for each of its objects", kind, subject.cpu_each(cpu, options.objects)?);
    report.add(&title, "meanwhile another plane's namespace, median / p99", kind, Value::spread(&meanwhile));
    if options.objects >= goals::size::OBJECTS {
        report.reach(&goals::OWNER_COLLECTED, kind, Value::Time(took));
    }
    Ok(())
}

/// A namespace with as many objects as the run has, all of one owner if asked for.
async fn fill(
    subject: &Subject,
    plane: &Client,
    options: &Options,
    name: &str,
    owned: bool,
) -> Result<String> {
    let namespace = options.namespace(name);
    plane.request(&objects::namespace(&namespace)).await?;
    let path = CONFIG_MAPS.resource.collection_path(Some(&namespace));
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}});
    let owner = plane.json(RawRequest::new(Method::POST, path.clone()).json(&owner)).await?;
    let references =
        json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}]);
    let object = |number: usize| {
        let mut object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "a".repeat(1024)},
            "metadata": {"name": format!("object-{number}"), "labels": {"app": "bench"}},
        });
        if owned {
            object["metadata"]["ownerReferences"] = references.clone();
        }
        RawRequest::new(Method::POST, path.clone()).json(&object)
    };
    load::send_all(subject, plane, (0..options.objects).map(object), CONCURRENCY).await?;
    Ok(namespace)
}

fn deletion(resource: &Resource, namespace: Option<&str>, name: &str, propagation: &str) -> RawRequest {
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation});
    RawRequest::new(Method::DELETE, resource.object_path(namespace, name, None)).json(&body)
}

/// Waits until `what` is gone; meanwhile makes and deletes namespaces of one object elsewhere. Gives both times.
async fn watch(
    plane: &Client,
    other: &Client,
    options: &Options,
    what: RawRequest,
) -> Result<(Duration, Samples)> {
    let begun = Instant::now();
    let gone = async {
        while !is_gone(plane, &what).await? {
            if begun.elapsed() > PATIENCE {
                bail!("not gone after {} s", PATIENCE.as_secs());
            }
            tokio::time::sleep(PERIOD).await;
        }
        Ok(begun.elapsed())
    };
    tokio::pin!(gone);
    let mut meanwhile = Vec::new();
    loop {
        let one = one_namespace(other, options, meanwhile.len());
        tokio::select! {
            took = one => meanwhile.push(took?),
            took = &mut gone => return Ok((took?, meanwhile.into_iter().collect())),
        }
    }
}

async fn is_gone(plane: &Client, what: &RawRequest) -> Result<bool> {
    match plane.json(what.clone()).await {
        Ok(answer) => Ok(answer["items"].as_array().is_some_and(Vec::is_empty)),
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Makes a namespace with an object, deletes it, and gives how long it took to be gone.
async fn one_namespace(other: &Client, options: &Options, number: usize) -> Result<Duration> {
    let namespace = options.namespace(&format!("other-{number}"));
    other.request(&objects::namespace(&namespace)).await?;
    other.request(&CONFIG_MAPS.create(&namespace, "one")).await?;
    let begun = Instant::now();
    other.request(&deletion(&NAMESPACES, None, &namespace, "Background")).await?;
    let get = RawRequest::get(NAMESPACES.object_path(None, &namespace, None));
    while !is_gone(other, &get).await? {
        tokio::time::sleep(PERIOD).await;
    }
    Ok(begun.elapsed())
}
