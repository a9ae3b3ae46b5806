//! Custom resource definitions by the thousand: what each further one costs in one plane, whether it slows others, and
//! what the same one costs in each of many planes.

use crate::goals;
use crate::load::{self, Cost};
use crate::objects::{self, CONFIG_MAPS};
use crate::options::Options;
use crate::projects::Projects;
use crate::report::{Report, Value};
use crate::subject::{Kind, PROJECT, Subject};
use anyhow::Result;
use freehold_client::{Client, RawRequest};
use http::Method;
use serde_json::{Value as Json, json};

/// Definitions in one plane.
const DEFINITIONS: usize = 1000;
/// Fields of each, every one with a rule.
const FIELDS: usize = 20;
/// Planes that get the same one at once.
const CONCURRENCY: usize = 16;
const TITLE: &str = "1,000 CRDs in one plane, each with 20 fields and 20 rules";
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Measures one server; only those that have planes get the second half.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let subject = Subject::start(kind, options)?;
    let plane = subject.plane().await?;
    one_plane(&subject, &plane, options, report).await?;
    if Kind::FREEHOLD.contains(&kind) {
        many_planes(&subject, options, report).await?;
    }
    Ok(())
}

/// A definition of its own: no two have the same rules.
fn definition(number: usize) -> Json {
    let field = |i: usize| {
        let rule = format!("self != 'no-{number}-{i}' && self.size() > {}", i % 3);
        let schema = json!({
            "type": "string", "maxLength": 64, "pattern": "^[a-z-]+$", "description": "What it is about, in some words.",
            "x-kubernetes-validations": [{"rule": rule, "message": "is not acceptable"}],
        });
        (format!("field{i}"), schema)
    };
    let fields: serde_json::Map<String, Json> = (0..FIELDS).map(field).collect();
    let plural = format!("bench{number}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.crds.bench.example.com")},
        "spec": {
            "group": "crds.bench.example.com", "scope": "Namespaced",
            "names": {"plural": plural, "kind": format!("Bench{number}")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}}}},
            }],
        },
    })
}

fn install(number: usize) -> RawRequest {
    RawRequest::new(Method::POST, PATH).json(&definition(number))
}

async fn one_plane(subject: &Subject, plane: &Client, options: &Options, report: &mut Report) -> Result<()> {
    let kind = subject.kind;
    let namespace = options.namespace("crds");
    plane.request(&objects::namespace(&namespace)).await?;
    plane.request(&CONFIG_MAPS.create(&namespace, "other")).await?;
    let get = || (0..options.requests).map(|_| (plane.clone(), CONFIG_MAPS.get(&namespace, "other")));
    let before: Cost = load::send(subject, get(), 1).await?;
    // The first one makes the server load what all share.
    plane.request(&install(0)).await?;
    let memory = subject.memory(options).await?.map(|m| m.resident);
    let installs = (1..=DEFINITIONS).map(|number| (plane.clone(), install(number)));
    let cost: Cost = load::send(subject, installs, 1).await?;
    report.add(TITLE, "installed, median / p99", kind, Value::spread(&cost.each));
    report.add(TITLE, "server CPU to install each", kind, cost.cpu);
    report.reach(&goals::CRD_INSTALL, kind, Value::Time(cost.each.p99()));
    let grown = subject.memory(options).await?.map(|m| m.resident).zip(memory);
    let each = grown.map(|(now, then)| Value::Bytes((now - then) / 1000));
    report.add(TITLE, "resident memory of each further one", kind, each);
    report.reach(&goals::CRD_MEMORY, kind, each);
    report.add(TITLE, "get of a ConfigMap before, median / p99", kind, Value::spread(&before.each));
    report.add(TITLE, "server CPU of such a get, before", kind, before.cpu);
    let after = match Kind::FREEHOLD.contains(&kind) {
        true => beside_none(subject, &namespace, options, report).await?,
        false => load::send(subject, get(), 1).await?,
    };
    report.add(TITLE, "get of a ConfigMap with them, median / p99", kind, Value::spread(&after.each));
    report.add(TITLE, "server CPU of such a get, with them", kind, after.cpu);
    let used = (1..=DEFINITIONS).map(|number| {
        let path = format!("/apis/crds.bench.example.com/v1/namespaces/{namespace}/bench{number}s");
        let body = json!({
            "apiVersion": "crds.bench.example.com/v1", "kind": format!("Bench{number}"), "metadata": {"name": "one"},
            "spec": {"field0": "yes", "field1": "yes"},
        });
        (plane.clone(), RawRequest::new(Method::POST, path).json(&body))
    });
    let first: Cost = load::send(subject, used, 1).await?;
    report.add(TITLE, "first object of each, median / p99", kind, Value::spread(&first.each));
    let grown = subject.memory(options).await?.map(|m| m.resident).zip(memory);
    let each = grown.map(|(now, then)| Value::Bytes((now - then) / 1000));
    report.add(TITLE, "resident memory of each, once all are used", kind, each);
    Ok(())
}

/// Gets in the plane that has the definitions, and in one that has none, in turns: a server that has just taken in a
/// thousand of them has work of its own, which is not that of these requests.
async fn beside_none(
    subject: &Subject,
    namespace: &str,
    options: &Options,
    report: &mut Report,
) -> Result<Cost> {
    const NONE: &str = "crds-none";
    let projects = Projects::reopen(subject.root()).await?;
    subject.explain(projects.make_all(&[NONE.to_owned()], 1).await)?;
    let [with, none] = [PROJECT, NONE].map(|name| subject.root().at(&format!("/projects/{name}")));
    none.request(&objects::namespace(namespace)).await?;
    none.request(&CONFIG_MAPS.create(namespace, "other")).await?;
    let gets = |plane: &Client| -> Vec<_> {
        (0..options.requests).map(|_| (plane.clone(), CONFIG_MAPS.get(namespace, "other"))).collect()
    };
    let [with, none] = load::in_turns(subject, [gets(&with), gets(&none)]).await?;
    let row = "server CPU of such a get in a plane without any, in turns with those in it";
    report.add(TITLE, row, subject.kind, none.cpu);
    Ok(with)
}

async fn many_planes(subject: &Subject, options: &Options, report: &mut Report) -> Result<()> {
    let (kind, title) = (subject.kind, format!("The same CRD in {} planes", options.planes));
    let projects = Projects::reopen(subject.root()).await?;
    let names: Vec<String> = (0..options.planes).map(|i| format!("crd-{i}")).collect();
    subject.explain(projects.make_all(&names, 64).await)?;
    let root = subject.root();
    let planes = || names.iter().map(|name| root.at(&format!("/projects/{name}")));
    // Each plane is in memory before and after: what differs is the definition and its types.
    let list =
        || planes().map(|plane| (plane, RawRequest::get("/apis/crds.bench.example.com/v1".to_owned())));
    load::send(
        subject,
        planes().map(|plane| (plane, RawRequest::get("/api/v1/namespaces".to_owned()))),
        CONCURRENCY,
    )
    .await?;
    let before = subject.memory(options).await?.map(|m| m.resident);
    let cost: Cost = load::send(subject, planes().map(|plane| (plane, install(0))), CONCURRENCY).await?;
    report.add(&title, "server CPU to install it in one more", kind, cost.cpu);
    load::send(subject, list(), CONCURRENCY).await?;
    let grown = subject.memory(options).await?.map(|m| m.resident).zip(before);
    let count = i64::try_from(options.planes.max(1)).unwrap_or(i64::MAX);
    let each = grown.map(|(now, then)| Value::Bytes((now - then) / count));
    report.add(&title, "resident memory of each plane more than without it", kind, each);
    let size = i64::try_from(definition(0).to_string().len()).unwrap_or(0);
    report.add(&title, "of which its text", kind, Value::Bytes(size));
    Ok(())
}
