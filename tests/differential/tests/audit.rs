//! The audit events of requests are those that kube-apiserver writes for the same requests and policy.
//!
//! `FREEHOLD_DIFFERENTIAL_WRITE=1` records them anew, with the real program from `.tools/bin`.

use freehold_client::{Client, RawRequest};
use freehold_tests_differential::{Normal, path};
use freehold_tests_harness::{Engine, Kube, KubeOptions, Kubectl, Options, Server, until};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

const AGENT: &str = "audited/1.0";
const PATIENCE: Duration = Duration::from_secs(60);
const PROJECT: &str = "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}\n---\n\
    apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: same}\n\
    spec: {ownerRef: {kind: Organization, name: acme}}\n";

const MAPS: &str = "/api/v1/namespaces/audited/configmaps";
const JSON: &str = "application/json";

/// Method, path, media type and body, and further headers.
type Sent = (Method, String, &'static str, Value, Vec<(&'static str, &'static str)>);

fn requests() -> Vec<Sent> {
    let at = |rest: &str| format!("{MAPS}{rest}");
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}});
    let none = Value::Null;
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    vec![
        (
            Method::POST,
            "/api/v1/namespaces".into(),
            JSON,
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "audited"}}),
            vec![],
        ),
        (Method::POST, at(""), JSON, map("a"), vec![]),
        (Method::POST, at(""), JSON, map("a"), vec![]),
        (
            Method::POST,
            at(""),
            JSON,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "A b"}}),
            vec![],
        ),
        (Method::POST, at(""), JSON, json!({"apiVersion": "v1", "kind": "Pod"}), vec![]),
        (Method::POST, at("?dryRun=All"), JSON, map("dry"), vec![]),
        (Method::GET, at("/a"), JSON, none.clone(), vec![]),
        (Method::GET, at("/absent"), JSON, none.clone(), vec![]),
        (Method::GET, at(""), JSON, none.clone(), vec![]),
        (Method::GET, at("?fieldSelector=metadata.name%3Da"), JSON, none.clone(), vec![("accept", table)]),
        (Method::PUT, at("/a"), JSON, map("a"), vec![]),
        (Method::PATCH, at("/a"), "application/merge-patch+json", json!({"data": {"c": "d"}}), vec![]),
        (
            Method::PATCH,
            at("/a"),
            "application/json-patch+json",
            json!([{"op": "remove", "path": "/data/c"}]),
            vec![],
        ),
        (
            Method::PATCH,
            at("/a?fieldManager=me&force=true"),
            "application/apply-patch+yaml",
            map("a"),
            vec![],
        ),
        (
            Method::DELETE,
            at("/a"),
            JSON,
            json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}),
            vec![],
        ),
        (Method::DELETE, at("/a"), JSON, none.clone(), vec![]),
        (Method::DELETE, at(""), JSON, none.clone(), vec![]),
        (Method::GET, at("?watch=true&timeoutSeconds=1"), JSON, none.clone(), vec![]),
        (
            Method::POST,
            "/api/v1/namespaces/audited/secrets".into(),
            JSON,
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"p": "c2VjcmV0"}}),
            vec![],
        ),
        (Method::GET, "/version".into(), JSON, none.clone(), vec![]),
        (Method::GET, "/apis/apps/v1".into(), JSON, none.clone(), vec![]),
        (Method::GET, "/apis/absent.example/v1/things".into(), JSON, none.clone(), vec![]),
        (
            Method::POST,
            "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews".into(),
            JSON,
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}),
            vec![],
        ),
        (
            Method::GET,
            at(""),
            JSON,
            none.clone(),
            vec![("impersonate-user", "jane"), ("impersonate-group", "devs")],
        ),
    ]
}

fn run(client: &Client) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
    for (at, (method, path, content_type, body, headers)) in requests().into_iter().enumerate() {
        let mut request = RawRequest::new(method, path);
        request.content_type = content_type;
        if !body.is_null() {
            request = request.json(&body);
        }
        let agent = format!("{AGENT} {at:02}");
        request.headers = headers
            .into_iter()
            .chain([("user-agent", agent.as_str())])
            .map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_str(v).expect("a header")))
            .collect::<HeaderMap>();
        runtime.block_on(client.once(&request)).expect("an answer");
    }
}

/// The events of the requests, once the last request's and so many are there, without what differs each time.
fn events(log: &Path, count: usize) -> Vec<Value> {
    let last = format!("{AGENT} {:02}", requests().len() - 1);
    let ours = |event: &Value| event["userAgent"].as_str().is_some_and(|agent| agent.starts_with(AGENT));
    let all = until("the events are written", PATIENCE, || {
        let text = fs::read_to_string(log).unwrap_or_default();
        let all: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let complete = all.iter().filter(|event| ours(event)).count() >= count;
        (complete && all.iter().any(|event| event["userAgent"] == last.as_str())).then_some(all)
    });
    let mut events: Vec<Value> = all.into_iter().filter(ours).map(normal).collect();
    // Requests of other connections may be written in between.
    events.sort_by_key(|event| (event["userAgent"].to_string(), event["stage"] != "ResponseStarted"));
    events
}

fn normal(mut event: Value) -> Value {
    for field in ["auditID", "requestReceivedTimestamp", "stageTimestamp", "user"] {
        event.as_object_mut().expect("an object").remove(field);
    }
    let uri = event["requestURI"].as_str().unwrap_or_default().to_owned();
    let start = ["/api/", "/apis/", "/version"].iter().filter_map(|part| uri.rfind(part)).min().unwrap_or(0);
    event["requestURI"] = uri[start..].into();
    if let Some(annotations) = event.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|key, _| {
            !key.starts_with("audit.freehold.dev/") && !key.starts_with("apiserver.latency")
        });
        if annotations.is_empty() {
            event.as_object_mut().expect("an object").remove("annotations");
        }
    }
    if let Some(user) = event.get_mut("impersonatedUser").and_then(Value::as_object_mut) {
        user.retain(|key, _| ["username", "groups"].contains(&key.as_str()));
    }
    if event["objectRef"]["resource"] == "secrets" {
        for object in ["requestObject", "responseObject"] {
            if let Some(data) = event.pointer_mut(&format!("/{object}/data/p")) {
                *data = "<redacted>".into();
            }
        }
    }
    // What a controller makes there comes when it comes, and items of typed lists say their kind in one of the two alone.
    if let Some(items) = event.pointer_mut("/responseObject/items").and_then(Value::as_array_mut) {
        items.retain(|item| item["metadata"]["name"] != "kube-root-ca.crt");
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.retain(|field, _| !["apiVersion", "kind"].contains(&field.as_str()));
        }
    }
    Normal::new().value(&mut event);
    event
}

fn args(folder: &Path) -> (Vec<String>, PathBuf) {
    let log = folder.join("audit.log");
    let policy = path("audit/policy.yaml");
    let args = vec![
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    (args, log)
}

fn record(file: &Path) {
    let folder = tempfile::TempDir::new().expect("a directory");
    let (args, log) = args(folder.path());
    let kube = Kube::start(KubeOptions { args, ..KubeOptions::default() });
    run(&kube.client());
    let text = serde_json::to_string_pretty(&events(&log, 0)).expect("events are JSON");
    fs::write(file, format!("{text}\n")).expect("the file can be written");
}

/// The places at which two values differ.
fn differences(place: &str, theirs: &Value, ours: &Value, found: &mut Vec<String>) {
    match (theirs, ours) {
        (Value::Object(a), Value::Object(b)) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                let null = Value::Null;
                differences(
                    &format!("{place}/{key}"),
                    a.get(key).unwrap_or(&null),
                    b.get(key).unwrap_or(&null),
                    found,
                );
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                differences(&format!("{place}/{at}"), a, b, found);
            }
        }
        _ if theirs == ours => {}
        _ => found.push(format!("{place}: {theirs} is {ours} here")),
    }
}

/// What differs on purpose, by the end of its place: a body is recorded as it was sent, where kube-apiserver has decoded it and
/// filled in its defaults, and so leaves out what is of another kind.
const MEANT: [&str; 7] = [
    "/requestObject/metadata/labels",
    "/requestObject/spec",
    "/requestObject/status",
    "/requestObject/type",
    " 22/requestObject/metadata",
    " 04/requestObject",
    " 14/requestObject/apiVersion",
];

#[test]
fn audit_events_are_those_of_kube_apiserver() {
    let file = path("audit/recorded.json");
    if std::env::var_os("FREEHOLD_DIFFERENTIAL_WRITE").is_some() && Kube::is_available() {
        record(&file);
    }
    let theirs: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(&file).expect("events that were recorded")).expect("JSON");
    let folder = tempfile::TempDir::new().expect("a directory");
    let (args, log) = args(folder.path());
    let server = Server::start(Options { engine: Engine::Embedded, args, ..Options::default() });
    server.kubectl().apply(PROJECT);
    let project: Kubectl = server.project("same");
    run(&Server::client_of(&project));
    let ours = events(&log, theirs.len());
    let heads = |events: &[Value]| -> Vec<String> {
        events.iter().map(|e| format!("{} {} {}", e["userAgent"], e["stage"], e["level"])).collect()
    };
    assert_eq!(heads(&theirs), heads(&ours));
    let mut found = Vec::new();
    for (theirs, ours) in theirs.iter().zip(&ours) {
        differences(theirs["userAgent"].as_str().unwrap_or_default(), theirs, ours, &mut found);
    }
    found.retain(|place| {
        !MEANT.iter().any(|meant| place.split(": ").next().is_some_and(|p| p.ends_with(meant)))
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}
