//! Client libraries against a project plane: the programs in `clients/`, each with facts of its own, which it prints as
//! `ok NAME`. `tools/get clients` gets what they need into `.tools/clients`.

use freehold_tests_harness::{Engine, Kubectl, Options, Server, freehold_binary};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, Weak};

/// The domain of the projects' hosts: half of the clients reach their project by it, the others by its path.
const DOMAIN: &str = "clients.example";

/// The clients' tests run beside each other, on one server; the last one stops it.
static SERVER: Mutex<Weak<Server>> = Mutex::new(Weak::new());

fn server() -> Arc<Server> {
    let mut current = SERVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(server) = current.upgrade() {
        return server;
    }
    let args = ["--domain", DOMAIN].map(str::to_owned).to_vec();
    let server = Arc::new(Server::start(Options { engine: Engine::Embedded, args, ..Options::default() }));
    server.kubectl().apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: clients}\n",
    );
    *current = Arc::downgrade(&server);
    server
}

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients")
}

/// What `tools/get clients` got.
fn tools(path: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/clients").join(path);
    assert!(path.exists(), "there is no {}: `tools/get clients` gets it", path.display());
    path
}

/// Runs a client's program in a project of its own, and counts the facts that hold.
fn holds(client: &str, at_host: bool, command: &mut Command, least: usize) {
    let server = server();
    server.kubectl().apply(&format!(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {{name: {client}}}\n\
         spec: {{ownerRef: {{kind: Organization, name: clients}}}}\n"
    ));
    let kubectl = if at_host { server.project_at_host(client, DOMAIN, true) } else { server.project(client) };
    let ran = command
        .env("KUBECONFIG", kubectl.kubeconfig())
        .env("HOME", server.folder().join("home"))
        .output()
        .unwrap_or_else(|e| panic!("{command:?} can't be run: {e}"));
    let out = String::from_utf8_lossy(&ran.stdout);
    let held = out.lines().filter(|line| line.starts_with("ok ")).count();
    if !ran.status.success() || held < least {
        server.keep();
        let err = String::from_utf8_lossy(&ran.stderr);
        panic!("{client}: {held} facts hold of at least {least}, {}\n{out}{err}", ran.status);
    }
}

#[test]
fn go_clients_and_controllers_work() {
    holds("go", true, &mut Command::new(tools("go")), 12);
}

#[test]
fn a_manager_of_go_reconciles_all_consumers_of_an_export_over_one_watch() {
    let ran = Command::new(tools("provider"))
        .args(["-test.v", "-test.timeout=30m"])
        .env("FREEHOLD_BIN", freehold_binary())
        .output()
        .unwrap_or_else(|e| panic!("the test of clients/go can't be run: {e}"));
    let out = String::from_utf8_lossy(&ran.stdout);
    print!("{out}");
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && out.contains("--- PASS: "), "{}\n{out}{err}", ran.status);
}

#[test]
fn rust_clients_and_controllers_work() {
    holds("rust", true, &mut Command::new(tools("rust")), 26);
}

/// Consumers in the test of `clients/rust`.
const CONSUMERS: usize = 20;

/// Makes a project that exports databases, and projects that bind them and have one each, all of one name. Returns the
/// provider.
fn published(server: &Server) -> Kubectl {
    let project = |name: &str| {
        format!(
            "---\napiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {{name: {name}}}\n\
             spec: {{ownerRef: {{kind: Organization, name: clients}}}}\n"
        )
    };
    let names: Vec<String> = (0..CONSUMERS).map(|nth| format!("shop-{nth}")).collect();
    let projects: String = names.iter().map(|name| project(name)).collect();
    server.kubectl().apply(&(projects + &project("dbaas")));
    server.kubectl().ok(&["wait", "--for=condition=Ready", "project", "--all", "--timeout=120s"]);
    let provider = server.project("dbaas");
    provider.apply(include_str!("../clients/databases.yaml"));
    for name in names {
        let at = format!("{}/projects/{name}", server.url());
        let consumer = server.kubectl().with(&["--server", &at]);
        consumer.apply(
            "apiVersion: apis.freehold.dev/v1alpha1\nkind: APIBinding\nmetadata: {name: postgres}\n\
             spec: {export: {project: dbaas, name: postgres}}\n",
        );
        consumer.apply(
            "apiVersion: db.example.com/v1\nkind: Database\nmetadata: {name: orders, namespace: default}\n\
             spec: {size: 1}\n",
        );
    }
    provider
}

#[test]
fn kube_works_on_all_consumers_of_an_export_over_one_watch() {
    let server = server();
    let provider = published(&server);
    let mut example = Command::new(tools("databases"))
        .args(["dbaas", "postgres", &CONSUMERS.to_string()])
        .env("KUBECONFIG", provider.kubeconfig())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("the example can't be run: {e}"));
    let mut line = String::new();
    BufReader::new(example.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line.trim(), format!("{CONSUMERS} databases of all consumers are up"));
    let metrics = server.kubectl().ok(&["get", "--raw", "/metrics"]);
    let watches = metrics.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{") && line.contains("resource=\"databases\"")
    });
    let count: u32 = watches.filter_map(|line| line.rsplit(' ').next()?.parse::<u32>().ok()).sum();
    drop(example.stdin.take());
    example.wait().unwrap();
    assert_eq!(count, 1, "watches of databases");
    let phase = ["get", "database", "orders", "-o", "jsonpath={.status.phase}"];
    let at = format!("{}/projects/shop-7", server.url());
    assert_eq!(server.kubectl().with(&["--server", &at]).ok(&phase), "up in shop-7");
}

#[test]
fn python_clients_work() {
    holds(
        "python",
        false,
        Command::new(tools("python/bin/python")).arg(clients().join("python/facts.py")),
        11,
    );
}

#[test]
fn node_clients_work() {
    // Beside the packages that it imports.
    let program = tools("node").join("facts.mjs");
    std::fs::copy(clients().join("node/facts.js"), &program).unwrap();
    holds("node", true, Command::new("node").arg(program), 9);
}

#[test]
fn java_clients_work() {
    let libraries = format!("{}/*", tools("java").display());
    let mut command = Command::new("java");
    command.args(["-XX:TieredStopAtLevel=1", "-cp", &libraries]).arg(clients().join("java/Facts.java"));
    holds("java", false, &mut command, 9);
}
