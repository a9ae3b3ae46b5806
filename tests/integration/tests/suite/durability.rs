//! What was acknowledged stays, a stop is quick, and what can't be served is said in one line.

use crate::storm::{Storm, setting};
use crate::{PATIENCE, contains_all, names, noise};
use freehold_client::Config;
use freehold_tests_integration::{Engine, Http, Random, Server, facts, freehold_binary, until};
use http::Method;
use serde_json::json;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

facts!(engine:
    writes_that_were_acknowledged_outlive_kill_9,
    a_storm_of_writes_outlives_a_server_that_is_killed_again_and_again,
    a_stop_does_not_wait_for_watches_and_a_start_finds_everything,
    what_is_printed_at_the_start_can_be_followed,
    a_second_server_on_the_same_data_is_refused,
);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// How many writes are acknowledged before the server is killed.
const WRITES: usize = 60;

fn writes_that_were_acknowledged_outlive_kill_9(engine: Engine) {
    let mut server = Server::start(engine);
    for round in 0..2 {
        let (done, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let http = Http::of(&server.kubectl());
                let (done, count, acknowledged) = (done.clone(), count.clone(), acknowledged.clone());
                std::thread::spawn(move || {
                    write_until(&http, &format!("r{round}-w{writer}"), &done, &count, &acknowledged)
                })
            })
            .collect();
        until("enough writes", PATIENCE, || (count.load(Ordering::Relaxed) >= WRITES).then_some(()));
        server.kill();
        done.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("each answer that came was a success");
        }
        server.restart();
        let there = server.kubectl().json(&["get", "configmaps"]);
        let there = names(&there);
        let acknowledged = acknowledged.lock().map(|names| names.clone()).unwrap_or_default();
        assert!(acknowledged.len() >= WRITES);
        for name in &acknowledged {
            assert!(there.contains(&&**name), "{name} was acknowledged and is gone");
        }
    }
    server.kubectl().ok(&["create", "configmap", "after"]);
}

/// Killed in the middle of what writers and watchers do, again and again; `FREEHOLD_FAULT_ROUNDS` makes it longer.
fn a_storm_of_writes_outlives_a_server_that_is_killed_again_and_again(engine: Engine) {
    let (rounds, seed) = (setting("FREEHOLD_FAULT_ROUNDS", 4), setting("FREEHOLD_FAULT_SEED", 3));
    let mut random = Random::new(seed);
    let mut server = Server::start(engine);
    let config = Config::from_kubeconfig(server.admin_kubeconfig()).expect("a kubeconfig");
    let mut storm = Storm::start(config);
    for round in 0..rounds {
        storm.progress(1 + random.below(60));
        if round % (rounds / 5).max(1) == 0 {
            storm.watch();
        }
        server.kill();
        server.restart();
    }
    storm.check(&format!("{engine:?}, seed {seed}"));
}

/// Creates ConfigMaps one after the other, noting each that was acknowledged.
fn write_until(
    http: &Http,
    prefix: &str,
    done: &AtomicBool,
    count: &AtomicUsize,
    acknowledged: &Mutex<Vec<String>>,
) {
    let mut number = 0;
    while !done.load(Ordering::Relaxed) {
        let name = format!("{prefix}-{number}");
        let Some(answer) = http.try_json(Method::POST, MAPS, &json!({"metadata": {"name": name}})) else {
            return;
        };
        assert_eq!(answer.code, 201, "{}", answer.body);
        if let Ok(mut names) = acknowledged.lock() {
            names.push(name);
        }
        count.fetch_add(1, Ordering::Relaxed);
        number += 1;
    }
}

/// The harness insists on an end, which a server that waited for its watches would not come to.
fn a_stop_does_not_wait_for_watches_and_a_start_finds_everything(engine: Engine) {
    let mut server = Server::start(engine);
    let kubectl = server.kubectl();
    kubectl.ok(&["create", "configmap", "kept"]);
    let version = kubectl.json(&["get", "configmap", "kept"])["metadata"]["resourceVersion"].clone();
    let watch = kubectl.background(&["get", "configmaps", "--watch"]);
    watch.wait_for("kept");
    server.stop();
    drop(watch);
    server.restart();
    assert_eq!(kubectl.json(&["get", "configmap", "kept"])["metadata"]["resourceVersion"], version);
}

fn what_is_printed_at_the_start_can_be_followed(engine: Engine) {
    let server = Server::start(engine);
    // The line for scripts comes first, and then what is for people.
    let is_command = |line: &&str| line.trim().starts_with("kubectl ");
    until("commands to try", PATIENCE, || {
        (server.log().lines().filter(is_command).count() >= 2).then_some(())
    });
    let log = server.log();
    let (url, kubeconfig) = (server.url(), server.admin_kubeconfig());
    let kubeconfig = kubeconfig.canonicalize().unwrap_or(kubeconfig);
    let ready = format!("ready url={url} kubeconfig={}", kubeconfig.display());
    assert!(log.lines().any(|line| line == ready), "no line {ready:?} in\n{log}");
    contains_all(&log, &[&format!("export KUBECONFIG={}", kubeconfig.display())]);
    server.kubectl().ok(&["api-resources", "--api-group=resourcemanager.freehold.dev"]);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(&kubeconfig).expect("the kubeconfig is there").permissions(),
    );
    assert_eq!(mode & 0o077, 0, "others may not read the admin's key");
}

fn a_second_server_on_the_same_data_is_refused(engine: Engine) {
    let server = Server::start(engine);
    let data = server.data_dir();
    let output = up(&data, "127.0.0.1:0", &[]);
    let path = data.canonicalize().unwrap_or(data);
    let words = format!("is in use by process {}", server.pid());
    contains_all(&output, &[path.to_str().expect("a path of text"), &words]);
    server.kubectl().ok(&["get", "namespaces"]);
}

/// A limit of file sizes stands for a full disk, as it does to the system.
#[test]
fn a_full_disk_refuses_writes_and_serves_reads_until_there_is_room() {
    let server = Server::start(Engine::Embedded);
    let kubectl = server.kubectl();
    let http = Http::of(&kubectl);
    kubectl.ok(&["create", "configmap", "before"]);
    limit_files(server.pid(), "300000");
    let large = |number: u64| {
        let data = noise(number, 100_000);
        json!({"metadata": {"name": format!("large-{number}")}, "data": {"a": data}})
    };
    let refused =
        (0..50).map(|number| http.json(Method::POST, MAPS, &large(number))).find(|answer| answer.code != 201);
    let refused = refused.expect("the limit has an effect");
    assert_eq!(
        (refused.code, &refused.body["reason"]),
        (507, &json!("InsufficientStorage")),
        "{}",
        refused.body
    );
    assert_eq!(http.json(Method::POST, MAPS, &json!({"metadata": {"name": "small"}})).code, 507);
    kubectl.ok(&["get", "configmap", "before"]);
    assert_eq!(http.get("/livez").code, 200);
    limit_files(server.pid(), "unlimited");
    until("there is room again", PATIENCE, || {
        // 409: one of them was written, and its answer was lost as the store was opened again.
        let code = http.json(Method::POST, MAPS, &json!({"metadata": {"name": "small"}})).code;
        [201, 409].contains(&code).then_some(())
    });
}

/// Sets how large files of a process can become.
fn limit_files(pid: u32, limit: &str) {
    let arguments = ["--pid".to_owned(), pid.to_string(), format!("--fsize={limit}:")];
    let status = Command::new("prlimit").args(arguments).status();
    assert!(status.expect("prlimit (util-linux) is installed").success());
}

/// Runs `freehold up` where it has to fail; gives the one line that it says.
fn up(data: &Path, listen: &str, more: &[&str]) -> String {
    let mut child = Command::new(freehold_binary())
        .arg("up")
        .arg("--data-dir")
        .arg(data)
        .args(["--listen", listen])
        .args(more)
        .env("FREEHOLD_LOG", "error")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("freehold can be run");
    let begun = Instant::now();
    while child.try_wait().ok().flatten().is_none() {
        if begun.elapsed() > PATIENCE {
            // Ends the wait below; the assertions then tell what is wrong.
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("it has ended");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(!out.contains("ready "), "{out}");
    let lines: Vec<&str> = err.lines().collect();
    assert_eq!(lines.len(), 1, "one clear line, not\n{err}");
    assert!(lines[0].starts_with("freehold: "), "{err}");
    err.into_owned()
}

fn folder() -> std::path::PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("freehold-durability-{}-{number}", std::process::id()))
}

#[test]
fn a_port_in_use_is_said_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let data = folder();
    contains_all(&up(&data, &address, &[]), &[&address, "in use"]);
    std::fs::remove_dir_all(data).unwrap();
}

#[test]
fn an_unusable_data_directory_is_said_in_one_line() {
    let data = folder();
    std::fs::write(&data, "a file").unwrap();
    let path = data.display().to_string();
    contains_all(&up(&data, "127.0.0.1:0", &[]), &[&path]);
    std::fs::remove_file(&data).unwrap();
    std::fs::create_dir_all(data.join("pki")).unwrap();
    std::fs::write(data.join("pki/ca.crt"), "not a certificate").unwrap();
    std::fs::write(data.join("pki/ca.key"), "not a key").unwrap();
    contains_all(&up(&data, "127.0.0.1:0", &[]), &["ca.crt"]);
    std::fs::remove_dir_all(&data).unwrap();
}

#[test]
fn an_etcd_that_is_not_there_is_tried_for_a_while_and_then_told() {
    // A port that no program takes by chance.
    let url = "http://127.0.0.1:1";
    let data = folder();
    let begun = Instant::now();
    contains_all(&up(&data, "127.0.0.1:0", &["--etcd", url]), &[url]);
    assert!(begun.elapsed() > Duration::from_secs(5), "it was tried only {:?}", begun.elapsed());
    std::fs::remove_dir_all(data).unwrap();
}
