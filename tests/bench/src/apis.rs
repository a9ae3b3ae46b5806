//! A kind that one project publishes and others consume by the thousand: what a binding costs, how soon it is served, how
//! soon a new schema is, and what the provider's view of all consumers takes.

use crate::goals::{self, size};
use crate::load;
use crate::options::Options;
use crate::projects;
use crate::projects::Projects;
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::subject::{Kind, Subject};
use anyhow::{Context, Result, ensure};
use freehold_client::{Client, ListOptions, RawRequest, Resource, WatchOptions, WatchStream};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use serde_json::json;
use std::time::{Duration, Instant};

const GROUP: &str = "apis.freehold.dev";
const API: &str = "apis.freehold.dev/v1alpha1";
const SCHEMAS: Resource = Resource::cluster(GROUP, "v1alpha1", "apiresourceschemas");
const EXPORTS: Resource = Resource::cluster(GROUP, "v1alpha1", "apiexports");
const BINDINGS: Resource = Resource::cluster(GROUP, "v1alpha1", "apibindings");
const GADGETS: Resource = Resource::namespaced("gadgets.bench.freehold.dev", "v1", "gadgets");
const MERGE: &str = "application/merge-patch+json";
const NAMESPACE: &str = "default";
/// The provider's project.
const PROVIDER: &str = "provider";
/// Objects of each consumer.
const OBJECTS: usize = 10;
/// Consumers whose binding is timed one after the other; the rest is bound many at a time.
const TIMED: usize = 1000;
/// How many requests are under way at once.
const CONCURRENCY: usize = 64;
/// How long something may take to be served, before the run fails.
const PATIENCE: Duration = Duration::from_secs(120);
/// How an event of interest begins.
const MODIFIED: &[u8] = b"{\"type\":\"MODIFIED\"";

/// Measures one engine.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let mut subject = Subject::start(kind, options)?;
    let names: Vec<String> = (0..options.planes).map(|nth| format!("c-{nth}")).collect();
    let opened = Projects::open(subject.root()).await?;
    opened.make(PROVIDER, "Shared").await?;
    let made = opened.make_all(&names, CONCURRENCY).await;
    subject.explain(made)?;
    drop(opened);
    publish(&subject.root().at(&format!("/projects/{PROVIDER}"))).await?;
    let part = Part { names, title: title(options.planes), is_whole: options.planes >= size::SOME_PLANES };
    subject.restart();
    let before = (subject.memory(options).await?.map(|m| m.resident), objects(&subject).await?);
    part.bound(&subject, report).await?;
    subject.restart();
    part.cost(&subject, options, before, report).await?;
    part.filled(&subject).await?;
    subject.restart();
    part.viewed(&subject, options, report).await?;
    part.changed(&subject, report).await
}

/// What is measured.
struct Part {
    /// The consumers.
    names: Vec<String>,
    title: String,
    /// Whether it is as large as goals are about.
    is_whole: bool,
}

fn title(planes: usize) -> String {
    format!("A kind that {planes} planes consume, each with {OBJECTS} objects of it")
}

/// The kind in its `nth` state: each has one more field, with a default.
fn schema(nth: usize) -> serde_json::Value {
    let more = (1..=nth).map(|field| (format!("field{field}"), json!({"type": "integer", "default": field})));
    let mut fields: serde_json::Map<_, _> = more.collect();
    fields.insert("text".to_owned(), json!({"type": "string"}));
    json!({
        "apiVersion": API, "kind": "APIResourceSchema",
        "metadata": {"name": format!("v{nth}.gadgets.{}", GADGETS.group)},
        "spec": {
            "group": GADGETS.group, "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "default": {}, "properties": fields}},
            }}}],
        },
    })
}

fn names_of(nth: usize) -> serde_json::Value {
    json!([format!("v{nth}.gadgets.{}", GADGETS.group)])
}

async fn publish(provider: &Client) -> Result<()> {
    for nth in [0, 1] {
        provider.create(&SCHEMAS, &schema(nth)).await?;
    }
    let export = json!({
        "apiVersion": API, "kind": "APIExport", "metadata": {"name": "gadgets"},
        "spec": {"schemas": names_of(0), "consumers": {"organizations": [projects::ORGANIZATION]}},
    });
    provider.create(&EXPORTS, &export).await?;
    Ok(())
}

/// How many objects are stored in all planes together, as the server's metrics say.
async fn objects(subject: &Subject) -> Result<i64> {
    let page = subject.root().request(&RawRequest::get("/metrics".to_owned())).await?;
    let text = String::from_utf8_lossy(&page.body).into_owned();
    let lines = text.lines().filter(|line| line.starts_with("apiserver_storage_objects{"));
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() as i64)
}

fn binding() -> RawRequest {
    let object = json!({
        "apiVersion": API, "kind": "APIBinding", "metadata": {"name": "gadgets"},
        "spec": {"export": {"project": PROVIDER, "name": "gadgets"}},
    });
    RawRequest::new(Method::POST, BINDINGS.collection_path(None)).json(&object)
}

fn gadget(nth: usize, text: &str) -> serde_json::Value {
    json!({
        "apiVersion": GADGETS.api_version(), "kind": "Gadget",
        "metadata": {"name": format!("gadget-{nth}"), "namespace": NAMESPACE}, "spec": {"text": text},
    })
}

/// Sends a request until it succeeds.
async fn served(client: &Client, request: &RawRequest) -> Result<Vec<u8>> {
    let asked = async {
        loop {
            if let Ok(answer) = client.request(request).await {
                return answer.body.to_vec();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asked).await.with_context(|| format!("{} is not served", request.path))
}

impl Part {
    fn planes(&self, root: &Client) -> impl Iterator<Item = Client> {
        self.names.iter().map(|name| root.at(&format!("/projects/{name}"))).collect::<Vec<_>>().into_iter()
    }

    /// The time from the request for a binding until a list of the kind is answered.
    async fn bound(&self, subject: &Subject, report: &mut Report) -> Result<()> {
        let root = subject.root();
        let list = RawRequest::get(GADGETS.collection_path(Some(NAMESPACE)));
        let mut times = Vec::new();
        for plane in self.planes(&root).take(TIMED) {
            let begun = Instant::now();
            plane.request(&binding()).await?;
            served(&plane, &list).await?;
            times.push(begun.elapsed());
        }
        let rest = self.planes(&root).skip(TIMED).map(|plane| (plane, binding()));
        load::send(subject, rest, CONCURRENCY).await?;
        let times: Samples = times.into_iter().collect();
        let row = "binding to a list of the kind that is answered, median / p99";
        report.add(&self.title, row, subject.kind, Value::spread(&times));
        if self.is_whole {
            report.reach(&goals::API_BOUND, subject.kind, Value::Time(times.p99()));
        }
        Ok(())
    }

    /// Memory and objects of each binding, after a start that read all of them.
    async fn cost(
        &self,
        subject: &Subject,
        options: &Options,
        before: (Option<i64>, i64),
        report: &mut Report,
    ) -> Result<()> {
        let count = i64::try_from(self.names.len().max(1)).unwrap_or(i64::MAX);
        let memory = subject.memory(options).await?.map(|m| m.resident);
        let each = memory.zip(before.0).map(|(now, then)| Value::Bytes((now - then) / count));
        let row = "resident memory of each binding, after a start";
        report.add(&self.title, row, subject.kind, each);
        let grown = objects(subject).await? - before.1;
        let keys = Value::Count(usize::try_from(grown / count).unwrap_or_default());
        report.add(&self.title, "objects that are stored for each binding", subject.kind, keys);
        if self.is_whole {
            report.reach(&goals::API_MEMORY, subject.kind, each);
        }
        Ok(())
    }

    async fn filled(&self, subject: &Subject) -> Result<()> {
        let root = subject.root();
        for some in self.names.chunks(1000) {
            let of = |name: &String| {
                let plane = root.at(&format!("/projects/{name}"));
                let path = GADGETS.collection_path(Some(NAMESPACE));
                let made = move |nth| RawRequest::new(Method::POST, path.clone()).json(&gadget(nth, "made"));
                (0..OBJECTS).map(made).map(move |request| (plane.clone(), request)).collect::<Vec<_>>()
            };
            load::send(subject, some.iter().flat_map(of), CONCURRENCY).await?;
        }
        Ok(())
    }

    /// The provider's first list, and events of its watch.
    async fn viewed(&self, subject: &Subject, options: &Options, report: &mut Report) -> Result<()> {
        let (root, kind) = (subject.root(), subject.kind);
        let view = root.at(&format!("/services/apiexports/{PROVIDER}/gadgets"));
        let begun = Instant::now();
        let whole = view.download(&RawRequest::get(GADGETS.collection_path(None))).await?;
        let bytes: usize = whole
            .into_stream()
            .map_ok(|piece| piece.len())
            .try_fold(0, async |sum, some| Ok(sum + some))
            .await?;
        let took = begun.elapsed();
        report.add(&self.title, "the provider's first list of all, after a start", kind, Value::Time(took));
        let size = i64::try_from(bytes).unwrap_or(i64::MAX);
        report.add(&self.title, "its answer", kind, Value::Bytes(size));
        let begun = Instant::now();
        let list =
            view.list_all(&GADGETS, None, &ListOptions { limit: 500, ..ListOptions::default() }).await?;
        let expected = self.names.len() * OBJECTS;
        ensure!(list.items.len() == expected, "{} of {expected} objects were listed", list.items.len());
        report.add(&self.title, "the same in pages of 500, parsed", kind, Value::Time(begun.elapsed()));
        let from = WatchOptions {
            resource_version: list.resource_version,
            timeout_seconds: 3600,
            ..WatchOptions::default()
        };
        drop(list.items);
        let watch = view.watch(&GADGETS, None, &from).await?;
        let times = self.events(&root, watch, options.events).await;
        let times = subject.explain(times)?;
        let row = "a consumer's write to the provider's watch over all, median / p99";
        report.add(&self.title, row, kind, Value::spread(&times));
        if self.is_whole {
            report.reach(&goals::API_LIST, kind, Value::Time(took));
            report.reach(&goals::API_EVENT, kind, Value::Time(times.p99()));
        }
        Ok(())
    }

    /// The time from a consumer's request to the event, one after the other.
    async fn events(&self, root: &Client, mut watch: WatchStream, count: usize) -> Result<Samples> {
        let mut times = Vec::new();
        // What a plane's first request loads is no part of it.
        let planes: Vec<Client> = self.planes(root).take(100).collect();
        for round in 0..count + planes.len() {
            let plane = &planes[round % planes.len()];
            let path = GADGETS.object_path(Some(NAMESPACE), "gadget-0", None);
            let text = json!({"spec": {"text": format!("round {round}")}});
            let mut request = RawRequest::new(Method::PATCH, path).json(&text);
            request.content_type = MERGE;
            let begun = Instant::now();
            let writing = plane.request(&request);
            let seen = async {
                while let Some(line) = watch.next_line().await {
                    if line?.starts_with(MODIFIED) {
                        return Ok(Instant::now());
                    }
                }
                anyhow::bail!("the provider's watch ended")
            };
            let both = async { tokio::try_join!(async { Ok(writing.await?) }, seen) };
            let (_, at) = tokio::time::timeout(PATIENCE, both).await.context("no event came")??;
            if round >= planes.len() {
                times.push(at.duration_since(begun));
            }
        }
        Ok(times.into_iter().collect())
    }

    /// The time from a new schema until an object of each consumer has its default.
    async fn changed(&self, subject: &Subject, report: &mut Report) -> Result<()> {
        let root = subject.root();
        let path = GADGETS.object_path(Some(NAMESPACE), "gadget-1", None);
        let get = &RawRequest::get(path);
        let begun = Instant::now();
        let patch = freehold_client::Patch::Merge(json!({"spec": {"schemas": names_of(1)}}));
        let provider = root.at(&format!("/projects/{PROVIDER}"));
        provider.patch(&EXPORTS, None, "gadgets", &patch, &Default::default()).await?;
        let patched = begun.elapsed();
        let seen = stream::iter(self.planes(&root)).map(|plane| async move {
            let answer = served(&plane, get).await?;
            let object: serde_json::Value = serde_json::from_slice(&answer)?;
            ensure!(object["spec"]["field1"] == 1, "an old schema is served: {object}");
            Ok(())
        });
        let all: Result<Vec<()>> = seen.buffer_unordered(CONCURRENCY).try_collect().await;
        subject.explain(all)?;
        let (kind, took) = (subject.kind, begun.elapsed());
        report.add(&self.title, "a new schema is accepted", kind, Value::Time(patched));
        report.add(&self.title, "a request in each plane after that, all of it", kind, Value::Time(took));
        if self.is_whole {
            report.reach(&goals::API_SCHEMA, kind, Value::Time(took));
        }
        Ok(())
    }
}
