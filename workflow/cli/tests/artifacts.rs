//! Artifacts, kept results and kept logs by way of an S3-compatible server and of a shared volume, with the real program: server,
//! controllers and a node.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freehold_tests_harness::{Engine, Kubectl, Server, free_port, freehold_binary, tool, until};
use freehold_workflow_store::{Credentials, Database, Location, LogStore, Scope};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(120);
const SECRET: &str = "a-secret-of-this-test";

/// A process that ends with its test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command, log: &Path) -> Self {
        let file = std::fs::File::create(log).unwrap();
        let started = command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).spawn();
        Self(started.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

struct Home {
    server: Server,
    project: Kubectl,
    folder: tempfile::TempDir,
    endpoint: String,
    running: Vec<Running>,
}

impl Home {
    fn start() -> Self {
        let server = Server::start(Engine::Embedded);
        let kubectl = server.kubectl();
        kubectl.apply(
            "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}",
        );
        kubectl.apply(
            "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: web}\nspec: {ownerRef: {kind: Organization, name: acme}}",
        );
        let project = server.project("web");
        let folder = tempfile::tempdir().unwrap();
        let mut home = Self { server, project, folder, endpoint: String::new(), running: Vec::new() };
        home.store();
        let kubeconfig = home.project.kubeconfig().to_owned();
        let installed = Command::new(freehold_binary())
            .args(["workflow", "install", "--kubeconfig"])
            .arg(&kubeconfig)
            .output();
        assert!(installed.unwrap().status.success());
        let logs = home.logs();
        let database = home.folder.path().join("history.db");
        let mut controller = Command::new(freehold_binary());
        controller.args(["workflow", "controller", "--logs", &logs, "--database"]).arg(&database);
        controller.arg("--kubeconfig").arg(&kubeconfig);
        controller.envs([("AWS_ACCESS_KEY_ID", "tester"), ("AWS_SECRET_ACCESS_KEY", SECRET)]);
        home.run(&mut controller, "controller");
        let program = format!("freehold={}", freehold_binary().display());
        let mut node = Command::new(freehold_binary());
        node.args(["node", "--image", "busybox=/usr/bin/env", "--image", &program, "--kubeconfig"])
            .arg(&kubeconfig);
        node.current_dir(home.folder.path());
        home.run(&mut node, "node");
        home
    }

    fn run(&mut self, command: &mut Command, name: &str) {
        let started = Running::start(command, &self.folder.path().join(format!("{name}.log")));
        self.running.push(started);
    }

    /// Starts the S3-compatible server, with a bucket.
    fn store(&mut self) {
        let port = free_port();
        let (data, beside) = (self.folder.path().join("data"), self.folder.path().join("beside"));
        std::fs::create_dir_all(data.join("artifacts")).unwrap();
        std::fs::create_dir(&beside).unwrap();
        let mut server = Command::new(tool("FREEHOLD_TEST_VERSITYGW", "versitygw"));
        server.args([
            "--access",
            "tester",
            "--secret",
            SECRET,
            "--port",
            &format!("127.0.0.1:{port}"),
            "posix",
            "--sidecar",
        ]);
        server.arg(&beside).arg(&data);
        self.run(&mut server, "store");
        until("the store listens", PATIENCE, || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        self.endpoint = format!("http://127.0.0.1:{port}");
    }

    fn logs(&self) -> String {
        format!("s3://artifacts/logs?endpoint={}", self.endpoint)
    }

    fn apply(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        // The server validates; kubectl would read the whole OpenAPI document first.
        let file = self.folder.path().join("objects.json");
        std::fs::write(&file, list.to_string()).unwrap();
        self.project.ok(&["apply", "--validate=false", "-f", file.to_str().unwrap()]);
    }

    /// Runs a DAG to its end.
    fn ended(&self, namespace: &str, dag: &str, run: &str, parameters: &Value) -> Value {
        self.apply(&[json!({
            "apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAGRun", "metadata": {"name": run, "namespace": namespace},
            "spec": {"dag": dag, "parameters": parameters},
        })]);
        let mut last = Value::Null;
        let begun = std::time::Instant::now();
        while begun.elapsed() < PATIENCE {
            last = self.get(namespace, "dagrun", run);
            if last["status"]["finishedAt"].is_string() {
                return last;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let log = |name: &str| std::fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        panic!("{run}: {last}\n{}\n{}\n{}", log("controller.log"), log("node.log"), self.server.log());
    }

    fn get(&self, namespace: &str, kind: &str, name: &str) -> Value {
        let text = self.project.ok(&["get", "-n", namespace, kind, name, "-o", "json"]);
        serde_json::from_str(&text).unwrap()
    }
}

/// A script that runs as a process of this machine, in a folder.
fn script(name: &str, folder: &Path, text: &str, more: Value) -> Value {
    let script = text.replace("HERE", &folder.display().to_string());
    let mut task = json!({"name": name, "image": "busybox", "script": script});
    let more: Value =
        serde_json::from_str(&more.to_string().replace("HERE", &folder.display().to_string())).unwrap();
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

/// Tasks that hand files and folders on.
fn spec(folder: &Path) -> Value {
    json!({"parameters": [{"name": "word", "default": "one"}], "podRetention": "Keep", "tasks": [
        script("make", folder,
            "mkdir -p HERE/out/below && echo $(params.word) > HERE/out/below/word && head -c 12000000 /dev/zero > HERE/out/zeros \
             && echo $(params.word) > HERE/note && echo made && test -z \"$FREEHOLD_ARTIFACTS\"",
            json!({"memoize": {"key": "$(params.word)"}, "artifacts": {"outputs": [
                {"name": "tree", "path": "HERE/out"},
                {"name": "note", "path": "HERE/note", "archive": "None", "key": "notes/$(params.word)"},
                {"name": "none", "path": "HERE/missing", "optional": true},
            ]}})),
        script("each", folder, "echo $(item) > HERE/part-$(item)", json!({
            "forEach": {"range": {"count": 2}}, "runAfter": ["make"],
            "artifacts": {"outputs": [{"name": "part", "path": "HERE/part-$(item)"}]},
        })),
        script("use", folder,
            "test \"$(cat HERE/in-$(run.name)/below/word)\" = $(params.word) && test $(wc -c < HERE/in-$(run.name)/zeros) = 12000000 \
             && test \"$(cat HERE/noted)\" = $(params.word) && test \"$(cat HERE/parts-$(run.name)/1)\" = 1",
            json!({"artifacts": {"inputs": [
                {"name": "tree", "path": "HERE/in-$(run.name)", "key": "$(tasks.make.outputs.tree)"},
                {"name": "note", "path": "HERE/noted", "key": "named/notes/$(params.word)"},
                {"name": "parts", "path": "HERE/parts-$(run.name)", "key": "$(tasks.each.outputs.part)"},
                {"name": "none", "path": "HERE/none", "key": "named/nothing", "optional": true},
            ]}})),
    ]})
}

fn dag(namespace: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAG", "metadata": {"name": name, "namespace": namespace}, "spec": spec})
}

fn configuration(namespace: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "workflow-artifacts", "namespace": namespace}, "data": data})
}

#[test]
fn artifacts_results_and_logs_go_through_a_store_whose_credentials_no_pod_has() {
    let home = Home::start();
    let here = home.folder.path().join("files");
    std::fs::create_dir(&here).unwrap();
    home.apply(&[
        dag("default", "files", &spec(&here)),
        configuration(
            "default",
            json!({"endpoint": home.endpoint, "bucket": "artifacts", "prefix": "kept", "pathStyle": "true"}),
        ),
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "workflow.freehold.dev/s3",
            "metadata": {"name": "workflow-artifacts", "namespace": "default"},
            "stringData": {"accessKeyId": "tester", "secretAccessKey": SECRET},
        }),
    ]);
    let run = home.ended("default", "files", "first", &json!([]));
    assert_eq!(run["status"]["phase"], "Succeeded", "{run}");
    assert!(home.folder.path().join("data/artifacts/kept").is_dir());
    let pods = home.project.ok(&["get", "pods", "-o", "json"]);
    assert!(!pods.contains(SECRET) && !pods.contains("X-Amz-Signature"), "{pods}");
    let secrets = || home.project.ok(&["get", "secrets", "-o", "name"]);
    until("Secrets of Pods go with them", PATIENCE, || (secrets().lines().count() == 1).then_some(()));
    // The second run takes the first task's result, with its artifacts.
    let again = home.ended("default", "files", "second", &json!([]));
    let task = |run: &Value, name: &str| {
        run["status"]["tasks"].as_array().unwrap().iter().find(|task| task["name"] == name).unwrap().clone()
    };
    assert_eq!(
        (&again["status"]["phase"], &task(&again, "make")["reason"]),
        (&json!("Succeeded"), &json!("Memoized")),
        "{again}"
    );
    let other = home.ended("default", "files", "third", &json!([{"name": "word", "value": "two"}]));
    assert_eq!(
        (&other["status"]["phase"], &task(&other, "make")["reason"]),
        (&json!("Succeeded"), &Value::Null),
        "{other}"
    );
    // Logs are in the store, where they are read and searched.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let credentials =
        Credentials { access_key: "tester".into(), secret_key: SECRET.into(), session_token: None };
    runtime.block_on(async {
        let location = Location::parse(home.folder.path().join("history.db").to_str().unwrap()).unwrap();
        let database = Database::open(&location).await.unwrap();
        let logs = LogStore::open(&home.logs(), credentials).unwrap();
        let scope = Scope::plane("core");
        let records =
            database.logs(&scope, run["metadata"]["uid"].as_str().unwrap(), Some("make")).await.unwrap();
        let record = records.iter().find(|record| record.container == "main").expect("the log is kept");
        assert_eq!(logs.read(&record.location, 0, 100).await.unwrap().unwrap(), b"made\n");
        assert_eq!(logs.read(&record.location, 2, 2).await.unwrap().unwrap(), b"de");
        assert_eq!(logs.length(&record.location).await.unwrap(), Some(5));
        assert_eq!(logs.search(&record.location, "mad", 0, 10).await.unwrap().len(), 1);
        large(&logs).await;
        given_up(&logs, &home.folder.path().join("data/artifacts")).await;
        logs.remove(&record.location).await.unwrap();
        assert_eq!(logs.length(&record.location).await.unwrap(), None);
    });
}

/// A log of several parts.
async fn large(logs: &LogStore) {
    let key = freehold_workflow_store::LogKey { plane: "p", run: "r", pod_uid: "u", container: "large" };
    let mut writer = logs.append(&key).await.unwrap();
    let line = format!("{}\n", "x".repeat(99));
    for n in 0..200_000 {
        let line = if n == 150_000 { line.replacen("xxx", "hit", 1) } else { line.clone() };
        writer.write(line.as_bytes()).await.unwrap();
    }
    writer.finish().await.unwrap();
    let location = writer.location().to_owned();
    assert_eq!(logs.length(&location).await.unwrap(), Some(20_000_000));
    let found = logs.search(&location, "hit", 0, 10).await.unwrap();
    assert_eq!(
        found.iter().map(|found| (found.line, found.offset)).collect::<Vec<_>>(),
        [(150_001, 15_000_000)]
    );
}

/// A log whose writing breaks off leaves nothing.
async fn given_up(logs: &LogStore, bucket: &Path) {
    let key = freehold_workflow_store::LogKey { plane: "p", run: "r", pod_uid: "u", container: "broken" };
    let mut writer = logs.append(&key).await.unwrap();
    writer.write(&vec![b'x'; 20 << 20]).await.unwrap();
    assert!(bytes_below(bucket) > 16 << 20, "parts are there");
    let before = bytes_below(bucket);
    writer.abort().await.unwrap();
    assert!(bytes_below(bucket) + (16 << 20) <= before, "parts are gone");
    assert_eq!(logs.length(writer.location()).await.unwrap(), None);
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => bytes_below(&entry.path()),
        _ => entry.metadata().map_or(0, |of| of.len()),
    };
    entries.map(size).sum()
}

#[test]
fn artifacts_go_through_a_shared_volume() {
    let home = Home::start();
    let (here, shared) = (home.folder.path().join("files"), home.folder.path().join("shared"));
    std::fs::create_dir(&here).unwrap();
    std::fs::create_dir(&shared).unwrap();
    home.apply(&[
        dag("default", "files", &spec(&here)),
        configuration("default", json!({"volume": json!({"hostPath": {"path": shared}}).to_string()})),
    ]);
    let run = home.ended("default", "files", "first", &json!([]));
    assert_eq!(run["status"]["phase"], "Succeeded", "{run}");
    let uid = home.project.ok(&["get", "namespace", "default", "-o", "jsonpath={.metadata.uid}"]);
    assert!(shared.join(format!("core/default/{uid}/named/notes/one")).is_file());
}
