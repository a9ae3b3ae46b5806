//! A node against a real server: Pods come, run, are probed, die, come back, and go.

use freehold_client::{Client, Config as ClientConfig, DeleteOptions, Identity, RawRequest, Resource};
use freehold_node::{Config, Images, LogServer};
use freehold_pki::{Authority, ClientName};
use freehold_tests_harness::{Engine, Server};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const PODS: Resource = Resource::namespaced("", "v1", "pods");
const NODES: Resource = Resource::cluster("", "v1", "nodes");
const SECRETS: Resource = Resource::namespaced("", "v1", "secrets");
const EVENTS: Resource = Resource::namespaced("", "v1", "events");
const NODE: &str = "test-node";
const PATIENCE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);

struct Running {
    token: CancellationToken,
    task: tokio::task::JoinHandle<()>,
    logs: Client,
}

impl Running {
    /// A node that offers a shell as image `shell`.
    async fn start(server: &Server, data_dir: &Path) -> Self {
        let ca = Authority::generate("test").expect("an authority");
        let serving = ca.issue_server(&["127.0.0.1"], DAY).expect("a certificate");
        let config = Config {
            client: server.client(),
            base_path: "/planes/infra".into(),
            node_name: NODE.into(),
            takes_waiting: true,
            data_dir: data_dir.to_owned(),
            images: Images::new([("shell".to_owned(), PathBuf::from("/bin/sh"))]),
            logs: LogServer {
                listen: ([127, 0, 0, 1], 0).into(),
                cert_pem: serving.cert_pem,
                key_pem: serving.key_pem,
                client_ca_pem: ca.cert_pem().to_owned(),
                client_names: vec!["apiserver".into()],
            },
            service: Some(("api.example".into(), 6443)),
        };
        let node = config.build().await.expect("a node");
        let user = ClientName { user: "apiserver", ..ClientName::default() };
        let pair = ca.issue_client(&user, DAY).expect("a certificate");
        let identity = Identity::ClientCert { cert_pem: pair.cert_pem, key_pem: pair.key_pem };
        let url = format!("https://{}", node.logs_at());
        let logs = Client::new(&ClientConfig::new(url, ca.cert_pem(), identity)).expect("a client");
        let token = CancellationToken::new();
        let task = tokio::spawn(node.run(token.clone()));
        Self { token, task, logs }
    }

    async fn stop(self) {
        self.token.cancel();
        self.task.await.expect("a node that ends well");
    }

    /// The log, once it has so many lines: a probe may be answered before what was printed was read.
    async fn lines(&self, path: &str, count: usize) -> String {
        let begun = Instant::now();
        loop {
            let log = self.log(path).await;
            if log.lines().count() >= count || begun.elapsed() > PATIENCE {
                return log;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn log(&self, path: &str) -> String {
        let answer = self.logs.request(&RawRequest::get(format!("/containerLogs/{path}"))).await;
        answer.map_or_else(|e| e.to_string(), |answer| String::from_utf8_lossy(&answer.body).into_owned())
    }
}

/// Waits until an object is as wanted.
async fn until(
    what: &str,
    client: &Client,
    resource: &Resource,
    name: &str,
    is: impl Fn(&Value) -> bool,
) -> Value {
    let begun = Instant::now();
    let mut poll = tokio::time::interval(Duration::from_millis(20));
    loop {
        poll.tick().await;
        let object =
            client.get_opt(resource, Some("default"), name).await.expect("an answer").unwrap_or_default();
        if is(&object) {
            return object;
        }
        assert!(begun.elapsed() < PATIENCE, "in vain: {what}\n{object:#}");
    }
}

fn pod(name: &str, container: Value, more: Value) -> Value {
    let mut spec = more;
    spec["nodeName"] = NODE.into();
    spec["containers"] = json!([container]);
    for (field, value) in [("name", "main"), ("image", "shell")] {
        spec["containers"][0][field] = value.into();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

fn is_ready(pod: &Value) -> bool {
    pod["status"]["containerStatuses"][0]["ready"] == true && pod["status"]["phase"] == "Running"
}

fn pid(pod: &Value) -> i32 {
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default();
    id.strip_prefix("process://").and_then(|pid| pid.parse().ok()).expect("a running container has a process")
}

fn kill(pid: i32) {
    let killed = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.is_ok_and(|status| status.success()));
}

fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

fn forever(script: &str) -> Value {
    json!({"args": ["-c", format!("{script}; trap 'exit 0' TERM; while :; do sleep 0.05; done")]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_lives_and_dies_as_in_a_cluster() {
    let server = Server::start(Engine::Embedded);
    let client = server.client().at("/planes/infra");
    let data = server.folder().join("test-node");
    let node = Running::start(&server, &data).await;
    until("the node registers", &client, &NODES, NODE, |n| n["status"]["conditions"][2]["status"] == "True")
        .await;

    runs_with_its_environment_and_volumes(&client, &node).await;
    comes_back_when_killed(&client, &node).await;
    ends_with_its_phase(&client).await;
    waits_for_what_is_missing(&client).await;
    let survivor = is_ended_by_the_next_life_of_its_node(&client, &server, &data, node).await;
    assert!(!runs(survivor), "stopping the node stops its Pods");
}

async fn runs_with_its_environment_and_volumes(client: &Client, node: &Running) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"},
        "stringData": {"key": "from a secret"},
    });
    client.create(&SECRETS, &secret).await.expect("a Secret");
    let script = "echo ip=$IP arg=$1 api=$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT; cat \"$2\"; echo; cat $FILE; echo; sleep 0.2; echo > /tmp/ignored 2>/dev/null; touch ready";
    let mut container = forever(script);
    for arg in ["main", "$(IP):80", "/etc/secret/key"] {
        container["args"].as_array_mut().expect("a list").push(arg.into());
    }
    container["env"] = json!([
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "FILE", "value": "/etc/secret/key"},
    ]);
    container["volumeMounts"] = json!([{"name": "v", "mountPath": "/etc/secret"}]);
    container["readinessProbe"] = json!({"exec": {"command": ["test", "-e", "ready"]}});
    let more = json!({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]});
    client.create(&PODS, &pod("full", container, more)).await.expect("a Pod");
    let seen = until("it is ready", client, &PODS, "full", is_ready).await;
    let ip = seen["status"]["podIP"].as_str().expect("an address");
    assert!(ip.starts_with("127."), "{ip}");
    let log = node.lines("default/full/main", 3).await;
    assert_eq!(log, format!("ip={ip} arg={ip}:80 api=api.example:6443\nfrom a secret\nfrom a secret\n"));
    assert_eq!(node.log("default/full/main?tailLines=1").await, "from a secret\n");
    client.delete(&PODS, Some("default"), "full", &DeleteOptions::default()).await.expect("a deletion");
    until("it is gone", client, &PODS, "full", Value::is_null).await;
    assert!(!runs(pid(&seen)), "the API says so only after its process has ended");
}

async fn comes_back_when_killed(client: &Client, node: &Running) {
    client.create(&PODS, &pod("phoenix", forever("echo run"), json!({}))).await.expect("a Pod");
    let first = until("it runs", client, &PODS, "phoenix", is_ready).await;
    // It runs before its shell does anything.
    assert_eq!(node.lines("default/phoenix/main", 1).await, "run\n");
    kill(pid(&first));
    let again = |p: &Value| is_ready(p) && p["status"]["containerStatuses"][0]["restartCount"] == 1;
    let second = until("it is back", client, &PODS, "phoenix", again).await;
    assert_ne!(pid(&first), pid(&second));
    let status = &second["status"]["containerStatuses"][0];
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 137);
    assert_eq!(node.lines("default/phoenix/main?previous=true", 1).await, "run\n");
    assert_eq!(second["status"]["podIP"], first["status"]["podIP"]);
    client.delete(&PODS, Some("default"), "phoenix", &DeleteOptions::default()).await.expect("a deletion");
    until("it is gone", client, &PODS, "phoenix", Value::is_null).await;
}

async fn ends_with_its_phase(client: &Client) {
    let never = json!({"restartPolicy": "Never"});
    for (name, script, phase) in [("good", "exit 0", "Succeeded"), ("bad", "exit 3", "Failed")] {
        client
            .create(&PODS, &pod(name, json!({"args": ["-c", script]}), never.clone()))
            .await
            .expect("a Pod");
        until(phase, client, &PODS, name, |p| p["status"]["phase"] == phase).await;
        client.delete(&PODS, Some("default"), name, &DeleteOptions::default()).await.expect("a deletion");
        until("it is gone", client, &PODS, name, Value::is_null).await;
    }
}

async fn waits_for_what_is_missing(client: &Client) {
    let mut unknown = pod("unknown", json!({}), json!({}));
    unknown["spec"]["containers"][0]["image"] = "nobody/knows:1".into();
    client.create(&PODS, &unknown).await.expect("a Pod");
    let reason = |p: &Value| p["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone();
    until("it can't be pulled", client, &PODS, "unknown", |p| reason(p) == "ImagePullBackOff").await;
    let told = |e: &Value| e["reason"] == "Failed" && e["involvedObject"]["name"] == "unknown";
    let begun = Instant::now();
    while !client
        .list(&EVENTS, Some("default"), &Default::default())
        .await
        .expect("events")
        .items
        .iter()
        .any(told)
    {
        assert!(begun.elapsed() < PATIENCE, "no event tells of it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    client.delete(&PODS, Some("default"), "unknown", &DeleteOptions::default()).await.expect("a deletion");
    until("it is gone", client, &PODS, "unknown", Value::is_null).await;

    let volume = json!({"volumes": [{"name": "v", "secret": {"secretName": "late"}}]});
    client.create(&PODS, &pod("patient", forever(":"), volume)).await.expect("a Pod");
    until("it is pending", client, &PODS, "patient", |p| {
        p["status"]["phase"] == "Pending" && p["status"]["podIP"].is_string()
    })
    .await;
    let secret =
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late", "namespace": "default"}});
    client.create(&SECRETS, &secret).await.expect("a Secret");
    until("it runs", client, &PODS, "patient", is_ready).await;
    client.delete(&PODS, Some("default"), "patient", &DeleteOptions::default()).await.expect("a deletion");
}

async fn is_ended_by_the_next_life_of_its_node(
    client: &Client,
    server: &Server,
    data: &Path,
    node: Running,
) -> i32 {
    let patient = json!({"terminationGracePeriodSeconds": 600});
    client.create(&PODS, &pod("tough", forever("echo life"), patient)).await.expect("a Pod");
    let first = until("it runs", client, &PODS, "tough", is_ready).await;
    node.stop().await;
    assert!(!runs(pid(&first)), "the process ends with the node");
    let node = Running::start(server, data).await;
    let again = |p: &Value| is_ready(p) && p["status"]["containerStatuses"][0]["restartCount"] == 1;
    let second = until("it runs again", client, &PODS, "tough", again).await;
    assert_eq!(second["status"]["podIP"], first["status"]["podIP"], "its address stays");
    let begun = Instant::now();
    node.stop().await;
    // A process that ignores SIGTERM has ten minutes by its Pod; a node that stops does not wait for that.
    assert!(begun.elapsed() < 2 * PATIENCE);
    pid(&second)
}
