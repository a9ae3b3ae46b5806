//! Three servers on an etcd of three members, behind a balancer that sends each connection elsewhere: nobody can tell
//! them apart, also when servers and members are killed.

use crate::{PATIENCE, contains_all, items, names, text};
use freehold_client::{Client, Config, Error, Identity, ListOptions, Patch, PatchOptions, Resource};
use freehold_client::{WatchEvent, WatchOptions};
use freehold_tests_integration::history::{History, Outcome, Read, Seen, Write};
use freehold_tests_integration::{Fleet, freehold_binary, until};
use serde_json::{Value, json};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use tokio::task::JoinSet;

const SERVERS: usize = 3;
const WRITERS: u64 = 4;
const KEYS: u64 = 5;
const NAMESPACE: &str = "default";
/// Writes that are acknowledged before a server is killed, and again before it is back.
const WRITES: u64 = 40;
const MAPS: Resource = Resource::namespaced("", "v1", "configmaps");

fn admin(fleet: &Fleet, url: &str) -> Config {
    let config = Config::from_kubeconfig(fleet.join("admin.kubeconfig")).expect("a kubeconfig");
    Config { server: url.to_owned(), ..config }
}

fn client(config: &Config) -> Client {
    Client::new(config).expect("a configuration that can be used")
}

fn version(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().expect("a resource version is a number")
}

fn map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"v": value}})
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads start")
}

#[test]
fn servers_on_one_etcd_are_one_server() {
    let mut fleet = Fleet::start(SERVERS, 2);
    runtime().block_on(async {
        let clients: Vec<Client> =
            (0..SERVERS).map(|nth| client(&admin(&fleet, &fleet.server_url(nth)))).collect();
        what_one_wrote_all_read(&clients).await;
        pages_and_watches_go_on_elsewhere(&clients).await;
        a_token_is_one_everywhere(&fleet, &clients).await;
    });
    projects_work_whichever_manager_leads(&mut fleet);
    servers_with_other_authorities_are_refused(&fleet);
}

async fn what_one_wrote_all_read(clients: &[Client]) {
    for nth in 0..30 {
        let (writer, reader) = (&clients[nth % 3], &clients[(nth + 1) % 3]);
        let name = format!("seen-{nth}");
        let made = writer.create(&MAPS, &map(&name, "1")).await.expect("it is made");
        let found = reader.get(&MAPS, Some(NAMESPACE), &name).await.expect("it is there at once");
        assert_eq!(found, made);
        // The revision is all that a precondition needs, whoever gave it.
        let mut changed = found;
        changed["data"]["v"] = "2".into();
        let changed = clients[(nth + 2) % 3].update(&MAPS, &changed).await.expect("nobody else wrote");
        assert!(version(&changed) > version(&made));
        let late = writer.update(&MAPS, &made).await.expect_err("it is overtaken");
        assert!(late.is_conflict(), "{late}");
        let options =
            ListOptions { resource_version: version(&changed).to_string(), ..ListOptions::default() };
        let list = reader.list(&MAPS, Some(NAMESPACE), &options).await.expect("not older than that");
        assert!(list.items.iter().any(|item| version(item) == version(&changed)));
    }
}

async fn pages_and_watches_go_on_elsewhere(clients: &[Client]) {
    let mut options = ListOptions { limit: 4, ..ListOptions::default() };
    let mut found = Vec::new();
    let mut at = String::new();
    for nth in 0.. {
        let page = clients[nth % 3].list(&MAPS, Some(NAMESPACE), &options).await.expect("a page");
        // What is written between pages is not in them.
        let between = map(&format!("between-{nth}"), "1");
        clients[(nth + 1) % 3].create(&MAPS, &between).await.expect("it is made");
        found.extend(page.items.iter().map(|item| text(item, "/metadata/name").to_owned()));
        at = page.resource_version;
        if page.continue_token.is_empty() {
            break;
        }
        options.continue_token = page.continue_token;
    }
    assert_eq!(found.iter().filter(|name| name.starts_with("seen-")).count(), 30);
    assert!(!found.iter().any(|name| name.starts_with("between-")), "{found:?}");
    // Each of the others goes on where the list was.
    let mut seen = Vec::new();
    for other in clients {
        let options = WatchOptions { resource_version: at.clone(), ..WatchOptions::default() };
        let mut watch = other.watch(&MAPS, Some(NAMESPACE), &options).await.expect("it can be watched");
        let mut versions = Vec::new();
        while versions.len() < 5 {
            if let WatchEvent::Added(object) = watch.next().await.expect("it goes on").expect("no error") {
                versions.push(version(&object));
            }
        }
        seen.push(versions);
    }
    assert!(seen.iter().all(|versions| *versions == seen[0]), "{seen:?}");
}

async fn a_token_is_one_everywhere(fleet: &Fleet, clients: &[Client]) {
    let accounts = Resource::namespaced("", "v1", "serviceaccounts");
    let ask = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = clients[0]
        .create_subresource(&accounts, Some(NAMESPACE), "default", "token", &ask)
        .await
        .expect("a token is given");
    let token = text(&token, "/status/token").to_owned();
    let review = Resource::cluster("authentication.k8s.io", "v1", "selfsubjectreviews");
    for nth in 0..SERVERS {
        let identity = Identity::Token(token.clone());
        let other = client(&Config { identity, ..admin(fleet, &fleet.server_url(nth)) });
        let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let who = other.create(&review, &who).await.expect("it is taken");
        assert_eq!(text(&who, "/status/userInfo/username"), "system:serviceaccount:default:default");
    }
}

fn project(name: &str) -> String {
    format!(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {{name: acme}}\n\
         spec: {{type: Standard}}\n---\n\
         apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {{name: {name}}}\n\
         spec: {{ownerRef: {{kind: Organization, name: acme}}}}\n"
    )
}

fn projects_work_whichever_manager_leads(fleet: &mut Fleet) {
    let kubectl = fleet.kubectl();
    kubectl.apply(&project("one"));
    kubectl.ok(&["wait", "--for=condition=Ready", "project/one", "--timeout=60s"]);
    let holder = || {
        let lease = kubectl.json(&["get", "lease", "freehold-controller-manager", "--namespace=kube-system"]);
        text(&lease, "/spec/holderIdentity").to_owned()
    };
    let first = holder();
    assert!(!first.is_empty());
    // One of the two leads: after the other has taken over, too.
    fleet.stop_manager(0, true);
    until("a manager leads", PATIENCE, || (!holder().is_empty()).then_some(()));
    fleet.start_manager(0);
    fleet.stop_manager(1, true);
    let second =
        until("the other leads", PATIENCE, || Some(holder()).filter(|now| !now.is_empty() && *now != first));
    // One that is killed gives nothing back: its time has to pass.
    fleet.start_manager(1);
    fleet.stop_manager(0, false);
    until("the first leads again", PATIENCE, || Some(holder()).filter(|now| *now != second));
    fleet.start_manager(0);
    kubectl.apply(&project("two"));
    kubectl.ok(&["wait", "--for=condition=Ready", "project/two", "--timeout=60s"]);
    let secret = ["get", "secret", "two-kubeconfig", "--namespace=organization-acme", "-o", "name"];
    contains_all(&kubectl.ok(&secret), &["two-kubeconfig"]);
}

fn servers_with_other_authorities_are_refused(fleet: &Fleet) {
    let other = fleet.join("other");
    let make = Command::new(freehold_binary()).arg("pki").arg("--dir").arg(&other).status();
    assert!(make.is_ok_and(|status| status.success()));
    let refused = Command::new(freehold_binary())
        .args(["apiserver", "--listen", "127.0.0.1:0", "--etcd", &fleet.etcd_urls()])
        .arg("--pki-dir")
        .arg(&other)
        .output()
        .expect("freehold can be run");
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert_eq!(words.lines().count(), 1, "one clear line, not\n{words}");
    contains_all(&words, &["another ca.crt", "--pki-dir", "--replace-authorities"]);
}

/// What the tasks of the run under faults share.
struct Run {
    config: Config,
    over: AtomicBool,
    acknowledged: AtomicU64,
}

impl Run {
    /// A connection of its own for each request, so that each goes to another server.
    fn client(&self) -> Client {
        client(&self.config)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// How a write ended, as its answer says.
fn outcome(answer: &Result<Value, Error>) -> Outcome {
    match answer {
        Ok(object) => Outcome::Acknowledged(version(object)),
        Err(error) if matches!(error.code(), 404 | 409 | 429) => Outcome::Refused,
        Err(error) if error.is_transient() => Outcome::Unknown,
        Err(error) => panic!("{error}"),
    }
}

/// Writes until the run is over: with what it read as a precondition, or as a patch without one.
async fn write(run: Arc<Run>, writer: u64) -> History {
    let mut history = History::default();
    let mut number = 0;
    while !run.is_over() {
        number += 1;
        let (name, value) = (format!("key-{}", (number * 7 + writer) % KEYS), format!("{writer}-{number}"));
        let begun = Instant::now();
        let Ok(found) = run.client().get_opt(&MAPS, Some(NAMESPACE), &name).await else { continue };
        let read = found.as_ref().map(|map| (text(map, "/data/v").to_owned(), version(map)));
        history.reads.push(Read { key: name.clone(), begun, found: read });
        let begun = Instant::now();
        let (client, wanted) = (run.client(), map(&name, &value));
        let answer = match found {
            None => client.create(&MAPS, &wanted).await,
            Some(_) if number % 2 == 0 => {
                let patch = Patch::Merge(json!({"data": {"v": value}}));
                client.patch(&MAPS, Some(NAMESPACE), &name, &patch, &PatchOptions::default()).await
            }
            Some(mut map) => {
                map["data"]["v"] = value.as_str().into();
                client.update(&MAPS, &map).await
            }
        };
        let outcome = outcome(&answer);
        if matches!(outcome, Outcome::Acknowledged(_)) {
            run.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
        history.writes.push(Write { key: name, value, begun, ended: Instant::now(), outcome });
    }
    history
}

/// Watches through the balancer, goes on elsewhere when a watch breaks, and ends with the object that is called `end`.
async fn watch(run: Arc<Run>, after: u64) -> History {
    let mut seen = Vec::new();
    let mut at = after;
    loop {
        let options = WatchOptions { resource_version: at.to_string(), ..WatchOptions::default() };
        let mut watch = match run.client().watch(&MAPS, Some(NAMESPACE), &options).await {
            Ok(watch) => watch,
            Err(error) if error.is_transient() => continue,
            Err(error) => panic!("{error}"),
        };
        while let Some(Ok(event)) = watch.next().await {
            let object = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => object,
                WatchEvent::Bookmark { resource_version, .. } => {
                    at = resource_version.parse().expect("a number");
                    continue;
                }
                // A server that stops says so in its watches.
                WatchEvent::Error(status) if status.code >= 500 => break,
                other => panic!("{other:?}"),
            };
            at = version(&object);
            let (key, value) =
                (text(&object, "/metadata/name").to_owned(), text(&object, "/data/v").to_owned());
            let ends = key == "end";
            seen.push(Seen { revision: at, key, value: Some(value) });
            if ends {
                return History { watchers: vec![(after, seen)], ..History::default() };
            }
        }
    }
}

#[test]
fn nothing_is_lost_repeated_or_reordered_while_servers_and_members_of_etcd_die() {
    let rounds =
        std::env::var("FREEHOLD_FAULT_ROUNDS").ok().map_or(3, |text| text.parse().expect("a number"));
    let mut fleet = Fleet::start(SERVERS, 0);
    let runtime = runtime();
    let config = admin(&fleet, &fleet.url());
    let run = Arc::new(Run { config, over: AtomicBool::new(false), acknowledged: AtomicU64::new(0) });
    let now = || async {
        let options = ListOptions::default();
        let list = run.client().list(&MAPS, Some(NAMESPACE), &options).await.expect("a list");
        list.resource_version.parse::<u64>().expect("a number")
    };
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let after = runtime.block_on(now());
        tasks.spawn_on(watch(run.clone(), after), runtime.handle());
    }
    for writer in 0..WRITERS {
        tasks.spawn_on(write(run.clone(), writer), runtime.handle());
    }
    let progress = || {
        let wanted = run.acknowledged.load(Ordering::Relaxed) + WRITES;
        let done = || (run.acknowledged.load(Ordering::Relaxed) >= wanted).then_some(());
        until("writes are acknowledged", PATIENCE, done);
    };
    for round in 0..rounds {
        progress();
        let after = runtime.block_on(now());
        tasks.spawn_on(watch(run.clone(), after), runtime.handle());
        // Fixed, and yet no server is spared.
        let victim = (round * 2 + 1) % SERVERS;
        fleet.kill(victim);
        progress();
        fleet.etcd().kill(round % 3);
        progress();
        fleet.restart(victim);
        fleet.etcd().restart(round % 3);
        fleet.etcd().wait_until_healthy();
    }
    progress();
    run.over.store(true, Ordering::Relaxed);
    let history = runtime.block_on(finish(&run, tasks));
    let (acknowledged, refused, unknown) = history.outcomes();
    eprintln!("{acknowledged} acknowledged, {refused} refused, {unknown} unknown");
    assert!(acknowledged > 0 && unknown < acknowledged);
    history.check().unwrap_or_else(|wrong| panic!("{wrong}"));
    let there = fleet.kubectl().json(&["get", "configmaps"]);
    assert_eq!(names(&there).iter().filter(|name| name.starts_with("key-")).count() as u64, KEYS);
    assert_eq!(items(&there).filter(|item| text(item, "/metadata/name") == "end").count(), 1);
}

/// Ends the run: writers stop, then an object that watchers wait for is made.
async fn finish(run: &Run, mut tasks: JoinSet<History>) -> History {
    let mut history = History::default();
    for _ in 0..WRITERS {
        // Writers are the ones that end by themselves.
        let ended = tokio::time::timeout(PATIENCE, tasks.join_next()).await.expect("writers end");
        history.merge(ended.expect("there are writers").expect("no writer fails"));
    }
    let begun = Instant::now();
    let end = run.client().create(&MAPS, &map("end", "end")).await;
    let outcome = outcome(&end);
    let (key, value) = ("end".to_owned(), "end".to_owned());
    history.writes.push(Write { key, value, begun, ended: Instant::now(), outcome });
    let rest = tokio::time::timeout(PATIENCE, tasks.join_all()).await.expect("watchers see the end");
    rest.into_iter().for_each(|part| history.merge(part));
    let list = run.client().list(&MAPS, Some(NAMESPACE), &ListOptions::default()).await.expect("a list");
    let of_test = |item: &&Value| !text(item, "/data/v").is_empty();
    history.last = list
        .items
        .iter()
        .filter(of_test)
        .map(|item| {
            (text(item, "/metadata/name").to_owned(), (text(item, "/data/v").to_owned(), version(item)))
        })
        .collect();
    history
}
