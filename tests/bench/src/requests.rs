//! Requests in one shared project, by one client over HTTP/2: time, rate, and the server's CPU for each.
//!
//! The client runs beside the server and takes its share of the machine; the server's CPU is what compares best between
//! machines. It has in it what the controllers make of a change.

use crate::projects::Projects;
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::world::World;
use crate::{Options, process};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use freehold_client::{Client, RawRequest, Resource, WatchEvent, WatchOptions, WatchStream};
use freehold_tests_harness::Server;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

const CONFIGMAPS: Resource = Resource::namespaced("", "v1", "configmaps");
const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
/// Lists of so many objects are read.
const LISTS: [usize; 2] = [1_000, 10_000];
/// How often each list is read.
const LIST_READS: usize = 20;
/// How many objects are made at once where their making is not what is measured.
const FILL: usize = 32;
/// So many watch the same object.
const WATCHERS: usize = 100;
/// Events that each of them gets.
const EVENTS: usize = 200;

/// A client of the project, and the process that serves it.
struct Bench<'a> {
    client: Client,
    pid: u32,
    options: &'a Options,
}

/// Measures requests.
pub(crate) async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    report.section("Requests: ConfigMaps of 1 KiB in one shared project, one client, HTTP/2 over TLS");
    let world = World::start(options)?;
    Projects::open(world.client()).await?.make("web", "Shared").await?;
    let client = Server::client_of(&world.project("web"));
    let bench = Bench { client, pid: world.pid(), options };
    bench.writes_and_gets(report).await?;
    bench.lists(report).await?;
    bench.one_watcher(report).await?;
    bench.many_watchers(report).await?;
    let memory = world.memory(options, "after the requests").await;
    report.add("resident memory of the server then", Value::Bytes(memory.resident));
    Ok(())
}

impl Bench<'_> {
    async fn writes_and_gets(&self, report: &mut Report) -> Result<()> {
        self.namespace("requests").await?;
        for (name, request) in
            [("create", create as fn(&str, &str) -> RawRequest), ("update", update), ("get", get)]
        {
            let of = |prefix: &'static str| move |index| request("requests", &format!("{prefix}-{index}"));
            self.both(report, name, of("one"), of("many")).await?;
        }
        Ok(())
    }

    /// Measures one kind of request, sent one after the other and then several at a time.
    async fn both(
        &self,
        report: &mut Report,
        name: &str,
        one: impl Fn(usize) -> RawRequest,
        many: impl Fn(usize) -> RawRequest,
    ) -> Result<()> {
        let (count, concurrency) = (self.options.requests, self.options.concurrency);
        let cpu = process::cpu(self.pid);
        let alone = self.send(count, 1, one).await?;
        report.add_samples(&format!("{name}, one after the other"), &alone);
        report.add(format!("{name}, server CPU for each"), self.cpu_since(cpu, count));
        let (cpu, begun) = (process::cpu(self.pid), Instant::now());
        let together = self.send(count, concurrency, many).await?;
        let rate = count as f64 / begun.elapsed().as_secs_f64();
        report.add(format!("{name}, {concurrency} at a time"), Value::Rate(rate));
        report.add(format!("{name}, {concurrency} at a time, p99"), Value::Time(together.p99()));
        report
            .add(format!("{name}, {concurrency} at a time, server CPU for each"), self.cpu_since(cpu, count));
        Ok(())
    }

    async fn send(
        &self,
        count: usize,
        concurrency: usize,
        request: impl Fn(usize) -> RawRequest,
    ) -> Result<Samples> {
        let requests: Vec<RawRequest> = (0..count).map(request).collect();
        let times = stream::iter(&requests).map(|request| self.timed(request)).buffer_unordered(concurrency);
        let times: Vec<Duration> = times.try_collect().await?;
        Ok(times.into_iter().collect())
    }

    async fn timed(&self, request: &RawRequest) -> Result<Duration> {
        let begun = Instant::now();
        self.client.request(request).await.with_context(|| format!("{} {}", request.method, request.path))?;
        Ok(begun.elapsed())
    }

    fn cpu_since(&self, before: Duration, operations: usize) -> Value {
        let used = process::cpu(self.pid).saturating_sub(before);
        Value::Time(used / u32::try_from(operations.max(1)).unwrap_or(u32::MAX))
    }

    async fn namespace(&self, name: &str) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        self.client.create(&NAMESPACES, &object).await?;
        Ok(())
    }

    async fn lists(&self, report: &mut Report) -> Result<()> {
        for count in LISTS {
            let namespace = format!("list-{count}");
            self.namespace(&namespace).await?;
            self.send(count, FILL, |i| create(&namespace, &format!("object-{i}"))).await?;
            let request = RawRequest::get(CONFIGMAPS.collection_path(Some(&namespace)));
            let bytes = self.client.request(&request).await?.body.len();
            let cpu = process::cpu(self.pid);
            let times = self.send(LIST_READS, 1, |_| request.clone()).await?;
            report.add_samples(&format!("list of {count}"), &times);
            report.add(format!("list of {count}, server CPU"), self.cpu_since(cpu, LIST_READS));
            report.add(format!("list of {count}, size"), Value::Bytes(i64::try_from(bytes)?));
        }
        Ok(())
    }

    /// From sending an update to having its event.
    async fn one_watcher(&self, report: &mut Report) -> Result<()> {
        let times = self.events("one-watcher", 1).await?;
        report.add_samples("update to event, one watcher", &times.1);
        Ok(())
    }

    async fn many_watchers(&self, report: &mut Report) -> Result<()> {
        let cpu = process::cpu(self.pid);
        let (each, last) = self.events("many-watchers", WATCHERS).await?;
        report.add_samples(&format!("update to event, {WATCHERS} watchers, each"), &each);
        report.add_samples(&format!("update to event, {WATCHERS} watchers, the last"), &last);
        let name = format!("{WATCHERS} watchers, server CPU for each update with its events");
        report.add(name, self.cpu_since(cpu, EVENTS));
        Ok(())
    }

    /// Updates one object again and again; the times until each watcher, and until the last, has the event.
    async fn events(&self, namespace: &str, watchers: usize) -> Result<(Samples, Samples)> {
        self.namespace(namespace).await?;
        self.client.request(&create(namespace, "watched")).await?;
        let (sender, mut seen) = mpsc::unbounded_channel();
        for _ in 0..watchers {
            let watch = self.client.watch(&CONFIGMAPS, Some(namespace), &WatchOptions::default()).await?;
            tokio::spawn(tell_modified(watch, sender.clone()));
        }
        let (mut each, mut last) = (Vec::new(), Vec::new());
        for round in 0..EVENTS {
            let request = marked(namespace, "watched", round);
            let begun = Instant::now();
            self.client.request(&request).await?;
            let mut latest = Duration::ZERO;
            for _ in 0..watchers {
                let arrived = tokio::time::timeout(Duration::from_secs(10), seen.recv()).await?;
                let took = arrived.context("all watches ended")?.duration_since(begun);
                latest = latest.max(took);
                each.push(took);
            }
            last.push(latest);
        }
        ensure!(seen.is_empty(), "more events than updates");
        Ok((each.into_iter().collect(), last.into_iter().collect()))
    }
}

async fn tell_modified(mut watch: WatchStream, seen: mpsc::UnboundedSender<Instant>) {
    while let Some(Ok(event)) = watch.next().await {
        if matches!(event, WatchEvent::Modified(_)) && seen.send(Instant::now()).is_err() {
            return;
        }
    }
}

/// A ConfigMap whose data is 1 KiB.
fn body(namespace: &str, name: &str, fill: char) -> Bytes {
    let text = fill.to_string().repeat(1024);
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "bench"}},
        "data": {"text": text},
    });
    Bytes::from(object.to_string())
}

fn create(namespace: &str, name: &str) -> RawRequest {
    let path = CONFIGMAPS.collection_path(Some(namespace));
    RawRequest { body: body(namespace, name, 'a'), ..RawRequest::new(Method::POST, path) }
}

fn update(namespace: &str, name: &str) -> RawRequest {
    let path = CONFIGMAPS.object_path(Some(namespace), name, None);
    RawRequest { body: body(namespace, name, 'b'), ..RawRequest::new(Method::PUT, path) }
}

/// An update that differs from the one before.
fn marked(namespace: &str, name: &str, round: usize) -> RawRequest {
    let fill = if round.is_multiple_of(2) { 'c' } else { 'd' };
    RawRequest { body: body(namespace, name, fill), ..update(namespace, name) }
}

fn get(namespace: &str, name: &str) -> RawRequest {
    RawRequest::get(CONFIGMAPS.object_path(Some(namespace), name, None))
}
