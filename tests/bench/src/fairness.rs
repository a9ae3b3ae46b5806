//! What one plane that asks for far more than its share does to the others.
//!
//! Four planes send a request each now and then, alone and beside a fifth that sends twenty times as much, of the most
//! expensive requests that there are: lists of all of its objects, whole, compressed and with selectors that give nothing, as a Table and
//! as YAML, deletions of all that a selector gives, applies and changes of objects, of a few hundred KiB too and checked by a
//! policy, watches that begin with a list, documents of discovery and OpenAPI. Alone and beside it take turns,
//! several times in one run and each time the other first, so that what else the machine does meets both alike. The flood's
//! client is a process of its own that runs when nothing else does, since it would be another machine's.

use crate::goals;
use crate::load;
use crate::mixed::Random;
use crate::objects::{self, CONFIG_MAPS};
use crate::options::Options;
use crate::projects::Projects;
use crate::report::{Report, Value};
use crate::stats::Samples;
use crate::subject::{Kind, Subject};
use anyhow::{Context, Result};
use freehold_client::{Client, Config, RawRequest};
use futures_util::{StreamExt as _, stream};
use http::Method;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Planes that send a little.
const PLANES: usize = 4;
/// How much more at a time the one plane sends than each of the others.
const TIMES: usize = 20;
/// Objects that the one plane has to list.
const OBJECTS: usize = 5_000;
const NAMESPACE: &str = "app";
const FLOODER: &str = "flooder";
/// From the end of one request of a plane to the beginning of its next.
const PAUSE: Duration = Duration::from_millis(4);
/// How long the one plane is at it before the others are measured, or has been silent.
const BEFORE: Duration = Duration::from_secs(1);
/// How often the others are measured alone and beside it.
const ROUNDS: usize = 8;
const MERGE: &str = "application/merge-patch+json";
/// Large objects that the one plane changes, how many fields each has, and of how many bytes.
const LARGE: usize = 4;
const FIELDS: usize = 4_000;
const FIELD: usize = 100;
/// What the one plane has checked of each change.
const CHECK: &str = "object.?data.orValue({}).all(key, key.size() < 100)";

/// Measures one server.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let subject = Subject::start(kind, options)?;
    let root = subject.root();
    let mut names: Vec<String> = (0..PLANES).map(|i| format!("quiet-{i}")).collect();
    names.push(FLOODER.to_owned());
    let made = Projects::open(root.clone()).await?.make_all(&names, options.concurrency).await;
    subject.explain(made)?;
    // As their own people: the platform's administrators wait for nobody.
    let paths: Option<Vec<PathBuf>> = names.iter().map(|name| subject.kubeconfig_of(name)).collect();
    let paths = paths.context("projects have kubeconfigs")?;
    let clients: Result<Vec<Client>> = paths.iter().map(|path| client(path)).collect();
    let clients = clients?;
    let (flooder, quiet) = clients.split_last().context("there is a flooder")?;
    let namespaces = clients.iter().map(|client| (client.clone(), objects::namespace(NAMESPACE)));
    load::send(&subject, namespaces, options.concurrency).await?;
    let few = quiet.iter().flat_map(|client| (0..10).map(|i| (client.clone(), create(i))));
    load::send(&subject, few, options.concurrency).await?;
    let many = (0..OBJECTS).map(|i| (flooder.clone(), create(i)));
    load::send(&subject, many, options.concurrency).await?;

    let large = (0..LARGE).map(|i| (flooder.clone(), large(Method::POST, i, 0)));
    load::send(&subject, large, options.concurrency).await?;
    subject.explain(policy(flooder).await)?;

    let requests = (options.requests / PLANES / 2).max(100);
    let kubeconfig = paths.last().context("there is a flooder")?;
    // What is done first is slower: it is not counted.
    subject.explain(quietly(quiet, requests / 4).await)?;
    let mut phases = [Phase::default(), Phase::default()];
    for round in 0..ROUNDS {
        for flooded in [round % 2 == 1, round % 2 == 0] {
            let flood = flooded.then(|| Flood::start(kubeconfig)).transpose()?;
            tokio::time::sleep(BEFORE).await;
            let (before, begun) = (subject.cpu()?, Instant::now());
            let times = subject.explain(quietly(quiet, requests).await)?;
            let cpu = subject.cpu()?.zip(before).map(|(after, before)| after.saturating_sub(before));
            phases[usize::from(flooded)].add(times, cpu, begun.elapsed());
            drop(flood);
        }
    }
    tell(kind, phases, report);
    Ok(())
}

/// Whether a request was a write, and how long it took.
type Took = (bool, Duration);

/// What was measured alone, or beside the flood.
#[derive(Default)]
struct Phase {
    times: Vec<Took>,
    p99s: Vec<Duration>,
    cpu: Duration,
    time: Duration,
}

impl Phase {
    fn add(&mut self, times: Vec<Took>, cpu: Option<Duration>, time: Duration) {
        self.p99s.push(times.iter().map(|(_, time)| *time).collect::<Samples>().p99());
        self.times.extend(times);
        self.cpu += cpu.unwrap_or_default();
        self.time += time;
    }

    fn samples(&self) -> Samples {
        self.times.iter().map(|(_, time)| *time).collect()
    }

    /// The samples of reads, or of writes, which wait for the disk.
    fn samples_of(&self, writes: bool) -> Samples {
        self.times.iter().filter(|(write, _)| *write == writes).map(|(_, time)| *time).collect()
    }

    /// What part of a processor the server took.
    fn load(&self) -> f64 {
        100.0 * self.cpu.as_secs_f64() / self.time.as_secs_f64().max(1e-9)
    }
}

fn tell(kind: Kind, [alone, beside]: [Phase; 2], report: &mut Report) {
    let title = format!("{PLANES} planes, beside one that sends {TIMES} times as much, of what costs most");
    report.add(&title, "time of each request alone, median / p99", kind, Value::spread(&alone.samples()));
    report.add(
        &title,
        "time of each request beside it, median / p99",
        kind,
        Value::spread(&beside.samples()),
    );
    for (what, writes) in [("read", false), ("write", true)] {
        for (when, phase) in [("alone", &alone), ("beside it", &beside)] {
            let row = format!("time of each {what} {when}, median / p99");
            report.add(&title, &row, kind, Value::spread(&phase.samples_of(writes)));
        }
    }
    report.add(&title, "the server's load alone, of one processor", kind, Value::Percent(alone.load()));
    report.add(&title, "the server's load beside it, of one processor", kind, Value::Percent(beside.load()));
    let more = |beside: Duration, alone: Duration| {
        100.0 * (beside.as_secs_f64() / alone.as_secs_f64().max(1e-9) - 1.0)
    };
    let mut rounds: Vec<f64> = beside.p99s.iter().zip(&alone.p99s).map(|(b, a)| more(*b, *a)).collect();
    rounds.sort_by(f64::total_cmp);
    let at = |share: usize| rounds.get(rounds.len() * share / 4).copied().unwrap_or_default();
    report.add(
        &title,
        "p99 beside it, more than alone, of single rounds: first quartile",
        kind,
        Value::Percent(at(1)),
    );
    report.add(
        &title,
        "p99 beside it, more than alone, of single rounds: third quartile",
        kind,
        Value::Percent(at(3)),
    );
    let all = more(beside.samples().p99(), alone.samples().p99());
    report.reach(&goals::FAIRNESS, kind, Value::Percent(all));
}

fn client(kubeconfig: &Path) -> Result<Client> {
    Ok(Client::new(&Config::from_kubeconfig(kubeconfig)?)?)
}

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// A request whose answer is to be compressed.
fn compressed(mut request: RawRequest) -> RawRequest {
    request.headers.insert(http::header::ACCEPT_ENCODING, http::HeaderValue::from_static("gzip"));
    request
}

fn accepting(request: RawRequest, accept: &'static str) -> RawRequest {
    RawRequest { accept, ..request }
}

fn large_name(number: usize) -> String {
    format!("large-{number}")
}

/// Makes or replaces a large object.
fn large(method: Method, number: usize, round: usize) -> RawRequest {
    let name = large_name(number);
    let data: serde_json::Map<_, _> =
        (0..FIELDS).map(|n| (format!("f{n}"), format!("{round:0>FIELD$}").into())).collect();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    let path = match method {
        Method::POST => CONFIG_MAPS.resource.collection_path(Some(NAMESPACE)),
        _ => CONFIG_MAPS.resource.object_path(Some(NAMESPACE), &name, None),
    };
    RawRequest::new(method, path).json(&object)
}

/// Makes a plane's ConfigMaps be checked by a policy.
async fn policy(client: &Client) -> Result<()> {
    const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]});
    let objects = [
        (
            "validatingadmissionpolicies",
            json!({"metadata": {"name": "checked"}, "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": CHECK}]}}),
        ),
        (
            "validatingadmissionpolicybindings",
            json!({"metadata": {"name": "checked"}, "spec": {
            "policyName": "checked", "validationActions": ["Deny"]}}),
        ),
    ];
    for (resource, object) in objects {
        client.request(&RawRequest::new(Method::POST, format!("{GROUP}/{resource}")).json(&object)).await?;
    }
    Ok(())
}

fn create(number: usize) -> RawRequest {
    CONFIG_MAPS.create(NAMESPACE, &format!("object-{number}"))
}

/// One request after the other in each plane, with a pause between them.
async fn quietly(planes: &[Client], requests: usize) -> Result<Vec<Took>> {
    let one = |(index, client): (usize, &Client)| {
        let client = client.clone();
        async move {
            let mut random = Random(0x9e37_79b9_7f4a_7c15 + index as u64);
            let mut times = Vec::with_capacity(requests);
            for round in 0..requests {
                let name = format!("object-{}", random.below(10));
                let request = match random.below(10) {
                    0..6 => CONFIG_MAPS.get(NAMESPACE, &name),
                    6..8 => CONFIG_MAPS.list(NAMESPACE, ""),
                    _ => CONFIG_MAPS.patch(MERGE, NAMESPACE, &name, round),
                };
                let writes = request.method == Method::PATCH;
                let begun = Instant::now();
                client.request(&request).await?;
                times.push((writes, begun.elapsed()));
                tokio::time::sleep(PAUSE).await;
            }
            Ok(times)
        }
    };
    let all: Vec<Result<Vec<Took>>> =
        stream::iter(planes.iter().enumerate()).map(one).buffer_unordered(PLANES).collect().await;
    let all: Result<Vec<Vec<Took>>> = all.into_iter().collect();
    Ok(all?.into_iter().flatten().collect())
}

/// The process that floods.
struct Flood(Child);

impl Flood {
    fn start(kubeconfig: &Path) -> Result<Self> {
        let program = std::env::current_exe()?;
        let child =
            Command::new("chrt").args(["--idle", "0"]).arg(program).arg("--flood").arg(kubeconfig).spawn();
        Ok(Self(child.context("the flooding process")?))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the flooding process does until it is ended: as many requests as it gets answers to.
pub(crate) async fn flood(kubeconfig: &Path) -> Result<()> {
    let client = client(kubeconfig)?;
    let requests = (0usize..).map(|round| {
        let name = format!("object-{}", round % OBJECTS);
        match round % 16 {
            0 => CONFIG_MAPS.list(NAMESPACE, ""),
            1 => compressed(CONFIG_MAPS.list(NAMESPACE, "?limit=1000")),
            2 => CONFIG_MAPS.list(NAMESPACE, "?labelSelector=nobody%3Dhas"),
            3 => CONFIG_MAPS
                .list(NAMESPACE, "?fieldSelector=metadata.name%3D%3Dnobody%2Cmetadata.namespace%21%3Dhas"),
            4 => CONFIG_MAPS.delete_selected(NAMESPACE, "nobody%3Dhas"),
            5 => accepting(CONFIG_MAPS.list(NAMESPACE, "?watch=true&timeoutSeconds=1"), TABLE),
            6 => CONFIG_MAPS.apply(NAMESPACE, &name, round),
            7 => CONFIG_MAPS.patch(MERGE, NAMESPACE, &name, round),
            8 => accepting(CONFIG_MAPS.list(NAMESPACE, "?limit=500"), TABLE),
            9 => accepting(CONFIG_MAPS.list(NAMESPACE, "?limit=500"), "application/yaml"),
            10 => RawRequest::get("/openapi/v2"),
            11 => RawRequest::get("/apis"),
            12 | 13 => large(Method::PUT, round % LARGE, round),
            14 => CONFIG_MAPS.apply(NAMESPACE, &large_name(round % LARGE), round),
            _ => CONFIG_MAPS.patch(MERGE, NAMESPACE, &large_name(round % LARGE), round),
        }
    });
    let sent = stream::iter(requests).map(|request| {
        let client = client.clone();
        // Refused or not, the next one follows.
        async move { drop(client.once(&request).await) }
    });
    sent.buffer_unordered(TIMES).for_each(|()| std::future::ready(())).await;
    Ok(())
}
