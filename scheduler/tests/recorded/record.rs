//! Records on which nodes the real kube-scheduler would put Pods: an extender is asked after its own filters, with the nodes that
//! these let pass.

use crate::generate::{Generated, Generator, NAMESPACES, classes};
use freehold_client::{Client, DeleteOptions, ListOptions, Patch, PatchOptions, Resource};
use freehold_tests_harness::{Kube, KubeOptions, Random, tool, until};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;

static NODES: Resource = Resource::cluster("", "v1", "nodes");
static PODS: Resource = Resource::namespaced("", "v1", "pods");
static SPACES: Resource = Resource::cluster("", "v1", "namespaces");
static CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims");
static VOLUMES: Resource = Resource::cluster("", "v1", "persistentvolumes");
static CLASSES: Resource = Resource::cluster("storage.k8s.io", "v1", "storageclasses");

const WORLDS: usize = 36;
const TRIED: usize = 34;
const SENTINEL: &str = "z-sentinel";
const CANARY: &str = "z-canary";
const PATIENCE: Duration = Duration::from_secs(60);

/// The nodes that each Pod, by uid, was asked about first.
type Asked = Arc<Mutex<HashMap<String, Vec<String>>>>;

fn field<'a>(object: &'a Value, name: &str) -> &'a Value {
    let map = object.as_object().into_iter().flatten();
    map.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or(&Value::Null, |(_, value)| value)
}

/// Answers requests on a connection, until it is closed.
fn answer(stream: TcpStream, asked: &Asked) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let (mut length, mut line) = (0, String::new());
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let request: Value = serde_json::from_slice(&body).unwrap_or_default();
        let uid = field(&request, "pod")["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let names = field(&request, "nodenames").as_array().cloned().unwrap_or_default();
        let mut names: Vec<String> = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        names.sort();
        let failed: HashMap<&str, &str> = names.iter().map(|name| (&**name, "recorded")).collect();
        let answer = json!({"NodeNames": [], "FailedNodes": failed}).to_string();
        write!(
            writer,
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
            answer.len()
        )?;
        asked.lock().unwrap().entry(uid).or_insert(names);
    }
}

struct Scheduler(Child);

impl Drop for Scheduler {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_scheduler(kube: &Kube, port: u16) -> Scheduler {
    let config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kube.admin_kubeconfig(), "qps": 2000, "burst": 4000},
        "leaderElection": {"leaderElect": false}, "percentageOfNodesToScore": 100,
        "profiles": [{
            "schedulerName": "default-scheduler", "plugins": {"postFilter": {"disabled": [{"name": "*"}]}},
        }],
        "extenders": [{
            "urlPrefix": format!("http://127.0.0.1:{port}"), "filterVerb": "filter", "nodeCacheCapable": true,
            "weight": 1, "httpTimeout": "10s",
        }],
    });
    let path = kube.folder().join("scheduler.yaml");
    std::fs::write(&path, config.to_string()).unwrap();
    let log = std::fs::File::create("/tmp/freehold-recorded-kube-scheduler.log").unwrap();
    let mut command = Command::new(tool("FREEHOLD_TEST_KUBE_SCHEDULER", "kube-scheduler"));
    command.arg(format!("--config={}", path.display())).arg("--secure-port=0").stdin(Stdio::null());
    Scheduler(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

/// Records worlds and answers, a JSON object a line.
pub(crate) fn record(mut out: impl Write) {
    let disabled = "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection,Priority,\
                    DefaultTolerationSeconds,PersistentVolumeClaimResize";
    let kube = Kube::start(KubeOptions { args: vec![disabled.to_owned()], ..KubeOptions::default() });
    let asked = Asked::default();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let asked = answers.clone();
            std::thread::spawn(move || answer(stream, &asked));
        }
    });
    let _scheduler = start_scheduler(&kube, port);
    let (runtime, client) = (Runtime::new().unwrap(), kube.client());
    let recorder = Recorder { runtime, client, asked };
    for (nth, name) in NAMESPACES.iter().enumerate().skip(1) {
        let labels = json!({"team": if nth == 1 { "one" } else { "two" }});
        let space =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        recorder.create(&SPACES, &[space]);
    }
    recorder.create(&CLASSES, &classes());
    let mut generator = Generator(Random::new(7));
    for nth in 0..WORLDS {
        let line = recorder.world(generator.world(TRIED));
        eprintln!("world {nth}: {} cases", line["cases"].as_array().map_or(0, Vec::len));
        writeln!(out, "{line}").unwrap();
    }
}

struct Recorder {
    runtime: Runtime,
    client: Client,
    asked: Asked,
}

impl Recorder {
    /// Creates objects, one after the other; says which are refused.
    fn create(&self, resource: &Resource, objects: &[Value]) {
        for object in objects {
            if let Err(error) = self.runtime.block_on(self.client.create(resource, object)) {
                eprintln!("left out: {error}");
            }
        }
    }

    fn list(&self, resource: &Resource) -> Vec<Value> {
        let list = self.runtime.block_on(self.client.list_all(resource, None, &ListOptions::default()));
        let mut items = list.unwrap().items;
        for item in &mut items {
            let metadata = item["metadata"].as_object_mut().unwrap();
            metadata
                .retain(|key, _| matches!(&**key, "name" | "namespace" | "labels" | "annotations" | "uid"));
        }
        items
    }

    fn asked_about(&self, uid: &str) -> Option<Vec<String>> {
        self.asked.lock().unwrap().get(uid).cloned()
    }

    fn world(&self, world: Generated) -> Value {
        self.create(&VOLUMES, &world.volumes);
        for volume in self.list(&VOLUMES) {
            let bound = !volume["spec"]["claimRef"].is_null();
            let status = json!({"status": {"phase": if bound { "Bound" } else { "Available" }}});
            let name = volume["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let patch = Patch::Merge(status);
            let options = PatchOptions::status();
            let patched = self.client.patch(&VOLUMES, None, &name, &patch, &options);
            self.runtime.block_on(patched).unwrap();
        }
        self.create(&CLAIMS, &world.claims);
        self.create(&NODES, &world.nodes);
        self.create(&PODS, &world.pods);
        let amounts = json!({"cpu": "1", "memory": "1Gi", "pods": "110"});
        let sentinel = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": SENTINEL, "labels": {"sentinel": "yes"}},
            "spec": {"taints": [{"key": "sentinel", "effect": "NoSchedule"}]}, "status": {"allocatable": amounts, "capacity": amounts},
        });
        self.create(&NODES, &[sentinel]);
        let canary = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": CANARY, "namespace": "default"},
            "spec": {
                "nodeSelector": {"sentinel": "yes"}, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "c", "image": "none"}], "terminationGracePeriodSeconds": 0,
            },
        });
        self.create(&PODS, &[canary]);
        let uid = |pod: &Value| pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        until("kube-scheduler has seen the world", PATIENCE, || {
            let canary = self.list(&PODS).into_iter().find(|pod| pod["metadata"]["name"] == CANARY)?;
            self.asked_about(&uid(&canary))
        });
        self.delete_canary();
        let state = json!({
            "nodes": self.list(&NODES), "pods": self.list(&PODS), "namespaces": self.list(&SPACES),
            "claims": self.list(&CLAIMS), "volumes": self.list(&VOLUMES), "classes": self.list(&CLASSES),
        });
        self.create(&PODS, &world.tried);
        let cases = until("every Pod was tried", PATIENCE, || self.cases());
        self.clear();
        let mut state = state;
        state["cases"] = cases.into();
        state
    }

    fn delete_canary(&self) {
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        let deleted = self.client.delete(&PODS, Some("default"), CANARY, &options);
        self.runtime.block_on(deleted).unwrap();
    }

    /// What became of each Pod that waits; `None` while one was not tried.
    fn cases(&self) -> Option<Vec<Value>> {
        let pods = self.list(&PODS);
        let waiting = pods.into_iter().filter(|pod| pod["spec"]["nodeName"].is_null());
        let case = |mut pod: Value| {
            let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let scheduled = conditions.into_iter().find(|one| one["type"] == "PodScheduled")?;
            pod["status"] = json!({});
            Some(match self.asked_about(&uid) {
                Some(nodes) => json!({"pod": pod, "nodes": nodes}),
                None => json!({"pod": pod, "nodes": [], "message": scheduled["message"]}),
            })
        };
        waiting.map(case).collect()
    }

    fn clear(&self) {
        let options = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        let all = ListOptions::default();
        for name in NAMESPACES {
            for resource in [&PODS, &CLAIMS] {
                let deleted = self.client.delete_collection(resource, Some(name), &options, &all);
                self.runtime.block_on(deleted).unwrap();
            }
        }
        for resource in [&VOLUMES, &NODES] {
            self.runtime.block_on(self.client.delete_collection(resource, None, &options, &all)).unwrap();
        }
        until("everything is gone", PATIENCE, || {
            [&PODS, &NODES, &VOLUMES, &CLAIMS].iter().all(|one| self.list(one).is_empty()).then_some(())
        });
    }
}
