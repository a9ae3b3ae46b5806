//! Freehold's controllers and the real kube-controller-manager, each in a project of one server: both are given the same
//! objects, and what they make of them is compared field by field.
//!
//! `make conformance` runs it, and sets `FREEHOLD_TEST_CONTROLLERS`, without which it does nothing. Pods run nowhere: their
//! statuses are written as a node would write them. Names, uids and times that a controller invents are told apart by what
//! they belong to.

#[path = "controllers/rollout.rs"]
mod rollout;
#[path = "controllers/volumes.rs"]
mod volumes;

use freehold_tests_harness::{Engine, Kubectl, Server, tool};
use regex::Regex;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const OBJECTS: &str = include_str!("controllers/objects.yaml");
const PROJECTS: &str = include_str!("controllers/projects.yaml");
/// What differs on purpose, each line a regular expression.
const DIFFERENCES: &str = include_str!("controllers/differences.txt");
/// What is compared.
const KINDS: &str = "deployments,replicasets,jobs,cronjobs,pods,poddisruptionbudgets,serviceaccounts,configmaps,endpoints,endpointslices,resourcequotas";
const NAMESPACE: &str = "compare";
const PATIENCE: Duration = Duration::from_secs(180);

/// What is done to the objects, one step after the other.
const STEPS: &[(&str, &[&[&str]])] = &[
    ("made", &[]),
    (
        "rolled out",
        &[
            &["set", "image", "deployment/web", "*=registry.example/x:2"],
            &["set", "image", "deployment/again", "*=registry.example/x:2"],
            &["patch", "job", "later", "--type=merge", "-p", r#"{"spec":{"suspend":false}}"#],
        ],
    ),
    (
        "scaled, paused and rolled back",
        &[
            &["scale", "deployment/web", "--replicas=2"],
            &["rollout", "undo", "deployment/again"],
            &["rollout", "pause", "deployment/still"],
        ],
    ),
    (
        "deleted",
        &[
            &["delete", "deployment", "web", "--cascade=orphan"],
            &["delete", "deployment", "again", "--cascade=background", "--wait=false"],
            &["delete", "configmap", "owner", "--wait=false"],
            &["delete", "job", "plain", "--cascade=foreground", "--wait=false"],
        ],
    ),
];

struct External(Child);

impl Drop for External {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn controllers_make_of_objects_what_kube_controller_manager_makes() {
    if std::env::var_os("FREEHOLD_TEST_CONTROLLERS").is_none() {
        return;
    }
    let server = Server::start(Engine::Embedded);
    server.kubectl().apply(PROJECTS);
    let ours = observe(&server.project("own"));
    let kubectl = server.project("external");
    let _running = start_external(&server, &kubectl);
    let theirs = observe(&kubectl);
    let known: Vec<Regex> = DIFFERENCES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| Regex::new(line).expect("a regular expression"))
        .collect();
    let found = differences(&ours, &theirs);
    let unknown: Vec<&String> = found.iter().filter(|line| !known.iter().any(|k| k.is_match(line))).collect();
    assert!(
        unknown.is_empty(),
        "{} differences:\n{}",
        unknown.len(),
        unknown.iter().map(|l| l.as_str()).collect::<Vec<_>>().join("\n")
    );
}

fn start_external(server: &Server, kubectl: &Kubectl) -> External {
    start_external_with(server, kubectl, &["--controllers=*,-node-lifecycle-controller".to_owned()])
}

fn start_external_with(server: &Server, kubectl: &Kubectl, args: &[String]) -> External {
    let log = std::fs::File::create(server.folder().join("kube-controller-manager.log")).expect("a log");
    let child = Command::new(tool("FREEHOLD_TEST_KUBE_CONTROLLER_MANAGER", "kube-controller-manager"))
        .arg("--kubeconfig")
        .arg(kubectl.kubeconfig())
        .arg("--root-ca-file")
        .arg(server.data_dir().join("pki/ca.crt"))
        .args(["--leader-elect=false", "--secure-port=0"])
        .args(args)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        .spawn()
        .expect("kube-controller-manager runs");
    External(child)
}

/// Goes through the steps in a project; gives what is there after each.
fn observe(project: &Kubectl) -> Value {
    project.ok(&["create", "namespace", NAMESPACE]);
    let kubectl = project.with(&["--namespace", NAMESPACE]);
    let until = Instant::now() + PATIENCE;
    while !kubectl.run(&["get", "serviceaccount", "default"]).success {
        assert!(Instant::now() < until, "no service account");
    }
    kubectl.apply(OBJECTS);
    own(&kubectl);
    let mut seen = Map::new();
    for (name, commands) in STEPS {
        for command in *commands {
            kubectl.ok(command);
        }
        settle(&kubectl, name);
        seen.insert((*name).to_owned(), normal(&kubectl));
    }
    Value::Object(seen)
}

/// Gives the ConfigMap `owned` its owners, by the uids that they have here.
fn own(kubectl: &Kubectl) {
    let owner = kubectl.json(&["get", "configmap", "owner"]);
    for (name, uid) in
        [("owned", text(&owner, "/metadata/uid")), ("lost", "00000000-0000-0000-0000-000000000000")]
    {
        let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}]);
        let patch = json!({"metadata": {"ownerReferences": reference}}).to_string();
        kubectl.run(&["patch", "configmap", name, "--type=merge", "-p", &patch]);
    }
}

/// Plays the pods until everything has come to rest: nothing was written between several looks, and each object says that it
/// is where it should be.
fn settle(kubectl: &Kubectl, step: &str) {
    let until = Instant::now() + PATIENCE;
    let (mut last, mut since) = (String::new(), Instant::now());
    loop {
        let all = kubectl.json(&["get", KINDS]);
        let played = play(kubectl, &all);
        let versions: String = items(&all).iter().map(|o| text(o, "/metadata/resourceVersion")).collect();
        if played || versions != last {
            (last, since) = (versions, Instant::now());
        } else if since.elapsed() > Duration::from_secs(4) && items(&all).iter().all(is_settled) {
            return;
        }
        assert!(Instant::now() < until, "{step}: not at rest: {}", unsettled(&all));
    }
}

fn unsettled(all: &Value) -> String {
    let waits = items(all).iter().filter(|o| !is_settled(o));
    waits.map(|o| format!("\n{} {}", name(o), o["status"])).collect()
}

fn is_settled(object: &Value) -> bool {
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let is = |types: &[&str]| {
        let list = object.pointer("/status/conditions").and_then(Value::as_array);
        list.into_iter().flatten().any(|c| types.contains(&text(c, "/type")) && c["status"] == "True")
    };
    if object["metadata"].get("deletionTimestamp").is_some() {
        return false;
    }
    match text(object, "/kind") {
        "Deployment" => {
            number("/status/observedGeneration") == number("/metadata/generation")
                && number("/status/availableReplicas") == number("/spec/replicas")
                && number("/status/replicas") == number("/spec/replicas")
        }
        "Job" => {
            is(&["Complete", "Failed", "Suspended"])
                && (!is(&["Suspended"]) || object["spec"]["suspend"] == true)
        }
        "PodDisruptionBudget" => number("/status/observedGeneration") == number("/metadata/generation"),
        _ => true,
    }
}

/// Writes the status of each pod as its label `play` asks; gives whether there was any to write.
fn play(kubectl: &Kubectl, all: &Value) -> bool {
    let mut changed = Vec::new();
    let pods = || items(all).iter().filter(|o| o["kind"] == "Pod");
    let ending = pods().filter(|p| p["metadata"].get("deletionTimestamp").is_some());
    let ending: Vec<String> = ending.map(name).collect();
    if !ending.is_empty() {
        // The node says that they have ended.
        let mut delete = vec!["delete", "pods", "--grace-period=0", "--force", "--ignore-not-found"];
        delete.extend(ending.iter().map(String::as_str));
        kubectl.run(&delete);
        return true;
    }
    for pod in pods().filter(|p| text(p, "/status/phase") == "Pending") {
        let index = text(pod, "/metadata/annotations/batch.kubernetes.io~1job-completion-index");
        let fate = text(pod, "/metadata/labels/play");
        let (phase, code) = match fate {
            "succeed" => ("Succeeded", 0),
            "fail" => ("Failed", 1),
            "fail-42" => ("Failed", 42),
            "fail-index-1" if index == "1" => ("Failed", 1),
            "fail-index-1" => ("Succeeded", 0),
            "succeed-index-0" if index == "0" => ("Succeeded", 0),
            _ => ("Running", 0),
        };
        let mut pod = pod.clone();
        let at = "2026-01-01T00:00:00Z";
        let ip = address(pod_order(&pod));
        for (field, value) in [("phase", json!(phase)), ("podIP", json!(ip)), ("podIPs", json!([{"ip": ip}]))]
        {
            pod["status"][field] = value;
        }
        if phase == "Running" {
            pod["status"]["conditions"] =
                json!([{"type": "Ready", "status": "True", "lastTransitionTime": at}]);
        } else {
            let state = json!({"terminated": {"exitCode": code, "startedAt": at, "finishedAt": at}});
            pod["status"]["containerStatuses"] = json!([{
                "name": "c", "image": "x", "imageID": "", "ready": false, "restartCount": 0, "state": state, "lastState": {},
            }]);
        }
        changed.push(pod);
    }
    if changed.is_empty() {
        return false;
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": changed}).to_string();
    // One of them may be gone by now.
    kubectl.run_with_input(&["replace", "--subresource=status", "-f", "-"], &list);
    true
}

/// All pods of a template have one address: which of them has which is chance.
fn pod_order(pod: &Value) -> usize {
    text(pod, "/metadata/labels/play").len()
}

fn address(order: usize) -> String {
    format!("10.0.0.{}", order + 1)
}

/// Everything that is there, without what is chance or invented.
fn normal(kubectl: &Kubectl) -> Value {
    let all = kubectl.json(&["get", KINDS]);
    // Services own slices; they are not compared, as their addresses are chance.
    let services = kubectl.json(&["get", "services"]);
    let mut words: BTreeMap<String, String> = BTreeMap::new();
    for object in items(&all).iter().chain(items(&services)) {
        let own = name(object);
        if let Some(hash) = object.pointer("/metadata/labels/pod-template-hash").and_then(Value::as_str)
            && object["kind"] == "ReplicaSet"
        {
            let image = text(object, "/spec/template/spec/containers/0/image");
            words.insert(hash.to_owned(), format!("HASH-{}", image.rsplit(':').next().unwrap_or_default()));
        }
        words.insert(
            text(object, "/metadata/uid").to_owned(),
            format!("uid of {}/{own}", text(object, "/kind")),
        );
    }
    let chance = [
        (Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z").expect("a pattern"), "TIME"),
        (Regex::new(r"(HASH-\w+|-\d|job|plain|all|first|strict|each|failing|later|twice|web|headless)-[bcdfghjklmnpqrstvwxz2456789]{5}\b").expect("a pattern"), "$1-RANDOM"),
        // Of one that is gone nothing tells the template.
        (Regex::new(r"ReplicaSet/([a-z]+)-[bcdfghjklmnpqrstvwxz2456789]{5,10}\b").expect("a pattern"), "ReplicaSet/$1-GONE"),
        (Regex::new(r"kube-api-access-\w{5}").expect("a pattern"), "kube-api-access-RANDOM"),
        (Regex::new(r"uid of Pod/[^\x22]*").expect("a pattern"), "uid of Pod"),
    ];
    let mut lists: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for object in items(&all) {
        let mut object = object.clone();
        // In how many steps a ReplicaSet was scaled is chance: what is the same is that its status is of the last one.
        let generation = object["metadata"]["generation"].clone();
        if object["kind"] == "ReplicaSet" && object["status"]["observedGeneration"] == generation {
            object["status"]["observedGeneration"] = "the last".into();
        }
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        for field in ["managedFields", "resourceVersion", "uid", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
        let kind = text(&object, "/kind").to_owned();
        lists.entry(kind).or_default().push(said(&object, &words, &chance));
    }
    let mut events: BTreeSet<String> = BTreeSet::new();
    for event in items(&kubectl.json(&["get", "events"])) {
        let about =
            format!("{}/{}", text(event, "/involvedObject/kind"), text(event, "/involvedObject/name"));
        let line = format!("{} {about} {}", text(event, "/type"), text(event, "/reason"));
        // What is said of a moment in between depends on who was quicker.
        if text(event, "/involvedObject/kind") != "Pod" && text(event, "/reason") != "NoPods" {
            events.insert(said(&line.into(), &words, &chance).as_str().unwrap_or_default().to_owned());
        }
    }
    let mut result = Map::new();
    for (kind, mut list) in lists {
        list.sort_by_key(Value::to_string);
        let mut named: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for object in list {
            named.entry(name(&object)).or_default().push(object);
        }
        result.insert(kind, json!(named));
    }
    result.insert("Event".to_owned(), json!(events));
    Value::Object(result)
}

/// A value with other words for what is invented.
fn said(value: &Value, words: &BTreeMap<String, String>, chance: &[(Regex, &str)]) -> Value {
    let mut text = value.to_string();
    // Twice: what stands for a uid names a ReplicaSet, which is named after the hash of its template.
    for (word, other) in words.iter().chain(words) {
        text = text.replace(word.as_str(), other);
    }
    for (pattern, other) in chance {
        text = pattern.replace_all(&text, *other).into_owned();
    }
    serde_json::from_str(&text).expect("still JSON")
}

fn differences(ours: &Value, theirs: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", ours, theirs, &mut found);
    found
}

fn compare(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let field = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or(Value::Null);
                compare(&format!("{path}/{key}"), &field(a), &field(b), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}/{at}"), a, b, found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push(format!("{path}: ours {a}, theirs {b}")),
    }
}

fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn name(object: &Value) -> String {
    text(object, "/metadata/name").to_owned()
}
