//! Backups: made while a server serves, or of what it left; restored as a whole or not at all.

use crate::{PATIENCE, contains_all, names, noise};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use freehold_tests_integration::{Engine, Http, Options, Server, facts, freehold_binary, until};
use http::Method;
use serde_json::json;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

facts!(engine:
    a_backup_of_a_serving_server_is_one_revision_and_another_server_goes_on_from_it,
    a_backup_is_for_admins_and_for_whom_it_was_granted_to,
    a_backup_that_is_torn_or_not_one_is_never_restored,
);

/// The prefix of a store that is restored into an etcd.
pub(crate) const RESTORED: &str = "/restored/";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Pairs of objects, the second of a pair made after the first was acknowledged, until told to end.
fn write_pairs(http: &Http, done: &AtomicBool, count: &AtomicUsize) {
    for nth in 0.. {
        for half in ["first", "second"] {
            let object =
                json!({"metadata": {"name": format!("{half}-{nth:05}")}, "data": {"fill": "x".repeat(500)}});
            assert_eq!(http.json(Method::POST, MAPS, &object).code, 201);
        }
        count.store(nth + 1, Ordering::Relaxed);
        if done.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn run(args: &[&str]) -> (bool, String) {
    let output = Command::new(freehold_binary()).args(args).output().expect("freehold can be run");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

fn a_backup_of_a_serving_server_is_one_revision_and_another_server_goes_on_from_it(engine: Engine) {
    let mut server = Server::start(engine);
    server.kubectl().ok(&["create", "configmap", "kept", "--from-literal=a=b"]);
    let (done, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let writer = {
        let (http, done, count) = (Http::of(&server.kubectl()), done.clone(), count.clone());
        std::thread::spawn(move || write_pairs(&http, &done, &count))
    };
    let at_least =
        |pairs| until("writes", PATIENCE, || (count.load(Ordering::Relaxed) >= pairs).then_some(()));
    at_least(20);
    let before = count.load(Ordering::Relaxed);
    let file = server.folder().join("backup");
    let made = server.freehold(&["backup", text(&file)]);
    assert!(made.success, "{}", made.stderr);
    at_least(before + 20);
    done.store(true, Ordering::Relaxed);
    writer.join().expect("each write was acknowledged");
    let last: u64 =
        version(&server, "second-00000").max(version(&server, &format!("second-{:05}", before + 10)));
    let kept = version(&server, "kept");
    server.stop();

    let offline = server.folder().join("offline");
    let restored = restore_of(&server, engine, &file);
    if engine == Engine::Embedded {
        let (good, said) = run(&["backup", "--data-dir", text(&server.data_dir()), text(&offline)]);
        assert!(good && offline.exists(), "{said}");
    }
    let kubectl = restored.kubectl();
    let there = kubectl.json(&["get", "configmaps"]);
    let there = names(&there);
    let halves = |half: &str| there.iter().filter(|name| name.starts_with(half)).count();
    let (first, second) = (halves("first-"), halves("second-"));
    assert!(second >= before && (first == second || first == second + 1), "{first} and {second} of {before}");
    if engine == Engine::Embedded {
        assert_eq!(version(&restored, "kept"), kept, "objects keep their resource versions");
    }
    kubectl.ok(&["create", "configmap", "after"]);
    assert!(version(&restored, "after") > last, "a revision came twice");
    let watched = Http::of(&kubectl).get(&format!("{MAPS}?watch=1&resourceVersion={last}"));
    assert!(watched.code == 410 || watched.body.to_string().contains("410"), "{watched:?}");
}

fn version(server: &Server, name: &str) -> u64 {
    let object = server.kubectl().json(&["get", "configmap", name]);
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a resource version")
}

/// A server on a store that was restored from a backup.
fn restore_of(lost: &Server, engine: Engine, file: &Path) -> Server {
    let mut server = stopped_restore_of(lost, engine, file);
    server.restart();
    server
}

/// Restores a backup of a lost server without starting the new one.
pub(crate) fn stopped_restore_of(lost: &Server, engine: Engine, file: &Path) -> Server {
    let mut server = Server::start(Options { engine, ..Options::default() });
    server.stop();
    match (engine, server.etcd_url()) {
        (Engine::Embedded, _) => {
            let data = server.data_dir();
            std::fs::remove_dir_all(data.join("store")).expect("its store can be removed");
            let (good, said) = run(&["restore", "--data-dir", text(&data), text(file)]);
            assert!(good, "{said}");
            let (good, said) = run(&["restore", "--data-dir", text(&data), text(file)]);
            assert!(!good && said.contains("is not empty"), "{said}");
        }
        (_, url) => {
            let url = url.expect("an etcd");
            let (good, said) = run(&["restore", "--etcd", &url, text(file)]);
            assert!(!good && said.contains("not empty"), "{said}");
            let prefix = RESTORED;
            let ahead = ["--bump-revision", "2000"];
            let there = ["restore", "--etcd", &url, "--etcd-prefix", prefix, text(file)];
            let (good, said) = run(&[&there[..], &ahead].concat());
            assert!(good, "{said}");
            server.add_args(&["--etcd-prefix", prefix]);
        }
    }
    std::fs::remove_dir_all(server.data_dir().join("pki")).expect("its keys can be removed");
    copy(&lost.data_dir().join("pki"), &server.data_dir().join("pki"));
    server
}

pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder can be made");
    for entry in std::fs::read_dir(from).expect("a folder can be read").flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("a file can be copied");
    }
}

fn a_backup_is_for_admins_and_for_whom_it_was_granted_to(engine: Engine) {
    let server = Server::start(engine);
    let admin = server.kubectl();
    admin.ok(&["create", "serviceaccount", "saver"]);
    let token = admin.ok(&["create", "token", "saver"]);
    let http = Http::with_token(&admin, server.url(), token.trim());
    let ask = || http.get("/backup").code;
    assert_eq!(ask(), 403);
    admin.ok(&["create", "clusterrole", "backups", "--verb=get", "--non-resource-url=/backup"]);
    admin.ok(&[
        "create",
        "clusterrolebinding",
        "b",
        "--clusterrole=backups",
        "--serviceaccount=default:saver",
    ]);
    until("it is granted", PATIENCE, || (ask() == 200).then_some(()));
}

fn a_backup_that_is_torn_or_not_one_is_never_restored(engine: Engine) {
    let server = Server::start(engine);
    let file = server.folder().join("backup");
    let made = server.freehold(&["backup", text(&file)]);
    assert!(made.success, "{}", made.stderr);
    let bytes = std::fs::read(&file).expect("the backup can be read");
    let mut changed = bytes.clone();
    changed[bytes.len() / 2] ^= 1;
    let data = server.folder().join("empty");
    let rows: [(&[u8], &str); 3] =
        [(&bytes[..bytes.len() - 7], "truncated"), (&changed, "corrupt"), (b"kind: List", "not an archive")];
    for (content, why) in rows {
        std::fs::write(&file, content).expect("the test's folder can be written");
        let (good, said) = run(&["restore", "--data-dir", text(&data), text(&file)]);
        assert!(!good && !data.join("store/db").exists(), "{said}");
        contains_all(&said, &[text(&file), why]);
    }
    if engine == Engine::Embedded {
        let (good, said) = run(&["backup", "--data-dir", text(&server.data_dir()), text(&file)]);
        assert!(!good && said.contains("is in use by process"), "{said}");
    }
}

/// Asks etcd itself, through its gateway for JSON, how many keys there are from one on up to another.
fn count(etcd: &Http, [from, to]: [&str; 2]) -> u64 {
    let range = json!({"key": BASE64_STANDARD.encode(from), "range_end": BASE64_STANDARD.encode(to), "count_only": true});
    let answer = etcd.json(Method::POST, "/v3/kv/range", &range);
    assert_eq!(answer.code, 200, "{answer:?}");
    answer.body["count"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

#[test]
fn a_restore_into_an_etcd_that_was_killed_is_begun_anew_by_the_next_one() {
    let mut server = Server::start(Engine::Etcd);
    let http = Http::of(&server.kubectl());
    for nth in 0..300 {
        let object =
            json!({"metadata": {"name": format!("n{nth:03}")}, "data": {"fill": noise(nth, 30_000)}});
        assert_eq!(http.json(Method::POST, MAPS, &object).code, 201);
    }
    let file = server.folder().join("backup");
    let made = server.freehold(&["backup", text(&file)]);
    assert!(made.success, "{}", made.stderr);
    server.stop();
    let url = server.etcd_url().expect("an etcd");
    let etcd = Http::plain(&url);
    let restore =
        ["restore", "--etcd", &url, "--etcd-prefix", "/half/", "--bump-revision", "3000", text(&file)];
    // Killed while revisions are made up for, and while objects are written.
    let moments = [["/half/system/restore", "/half/system/restore\0"], ["/half/planes/", "/half/planes0"]];
    for moment in moments {
        let mut child = Command::new(freehold_binary()).args(restore).spawn().expect("freehold can be run");
        // Where the machine stood still meanwhile it may have ended: then the next one finds all of it.
        until("the restore is so far", PATIENCE, || {
            let ended = child.try_wait().expect("a child can be waited for").is_some();
            (ended || count(&etcd, moment) > 0).then_some(())
        });
        child.kill().expect("it can be killed");
        child.wait().expect("it ends");
        if count(&etcd, moments[0]) > 0 {
            let data = server.folder().join("other");
            let up =
                ["up", "--listen", "127.0.0.1:0", "--etcd", &url, "--etcd-prefix", "/half/", "--data-dir"];
            let (good, said) = run(&[&up[..], &[text(&data)]].concat());
            assert!(!good && said.contains("run `freehold restore` again"), "{said}");
            assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        }
    }
    if count(&etcd, moments[0]) > 0 {
        let (good, said) = run(&restore);
        assert!(good, "{said}");
    }
    server.add_args(&["--etcd-prefix", "/half/"]);
    server.restart();
    let there = server.kubectl().json(&["get", "configmaps"]);
    assert_eq!(names(&there).iter().filter(|name| name.starts_with('n')).count(), 300);
}
