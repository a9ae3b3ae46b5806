//! Three servers on an etcd of three members, behind a balancer that sends each connection elsewhere: nobody can tell
//! them apart, also when servers and members are killed.

use crate::quota_engines::{node_port, only_one_service_gets};
use crate::storm::{MAPS, NAMESPACE, Storm, client, map, runtime, setting, version};
use crate::{PATIENCE, contains_all, text};
use freehold_client::{Client, Config, Identity, List, ListOptions, Resource};
use freehold_client::{WatchEvent, WatchOptions};
use freehold_tests_integration::{Cluster, Fleet, Options, Random, Server, freehold_binary, until};
use serde_json::{Value, json};
use std::{process::Command, time::Instant};

const SERVERS: usize = 3;
/// Writes that are acknowledged before a server is killed, and again before it is back.
const WRITES: u64 = 40;

fn admin(fleet: &Fleet, url: &str) -> Config {
    let config = Config::from_kubeconfig(fleet.join("admin.kubeconfig")).expect("a kubeconfig");
    Config { server: url.to_owned(), ..config }
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
        only_one_service_gets(&clients, "node-port", &node_port(30_124)).await;
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
        let list = not_older(reader, &options).await;
        assert!(list.items.iter().any(|item| version(item) == version(&changed)));
    }
}

/// A list of a server that may not have seen so much yet: it waits for a while, and says then that it is to be asked again.
async fn not_older(client: &Client, options: &ListOptions) -> List {
    let begun = Instant::now();
    loop {
        match client.list(&MAPS, Some(NAMESPACE), options).await {
            Ok(list) => return list,
            Err(error) => assert!(error.code() == 504 && begun.elapsed() < PATIENCE, "{error}"),
        }
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
    kubectl.ok(&["wait", "--for=condition=Ready", "project/one", "--timeout=120s"]);
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
    kubectl.ok(&["wait", "--for=condition=Ready", "project/two", "--timeout=120s"]);
    let secret = ["get", "secret", "two-kubeconfig", "--namespace=organization-acme", "-o", "name"];
    contains_all(&kubectl.ok(&secret), &["two-kubeconfig"]);
}

/// Everything in two processes, of which one works: shared projects go on with the other, and dedicated ones once the
/// machine of the first has ended what it ran.
#[test]
fn several_ups_on_one_etcd_take_turns() {
    let etcd = Cluster::start(1, &[]);
    let pki = tempfile::tempdir().expect("a temporary directory");
    let dir = pki.path().display().to_string();
    let made = Command::new(freehold_binary()).args(["pki", "--dir", &dir]).status();
    assert!(made.is_ok_and(|status| status.success()));
    let args = ["--etcd".to_owned(), etcd.urls().join(","), "--pki-dir".to_owned(), dir];
    let start = || Server::start(Options { args: args.to_vec(), ..Options::default() });
    let mut servers = [start(), start()];
    let identity = |server: &Server| std::fs::read_to_string(server.data_dir().join("identity"));
    let identities = servers.each_ref().map(|server| identity(server).expect("each has a name"));
    let leader = |server: &Server| {
        let lease = ["get", "lease", "freehold-controller-manager", "--namespace=kube-system", "-o", "json"];
        let output = server.kubectl().run(&lease);
        let lease: Value = serde_json::from_str(&output.stdout).ok()?;
        identities.iter().position(|identity| identity.trim() == text(&lease, "/spec/holderIdentity"))
    };
    let first = until("one leads", PATIENCE, || leader(&servers[0]));
    let other = 1 - first;
    let kubectl = servers[other].kubectl();
    kubectl.apply(&project("one"));
    kubectl.apply(&project("heavy").replace("acme}}", "acme}, controlPlane: {mode: Dedicated}}"));
    kubectl.ok(&["wait", "--for=condition=Ready", "project/one", "project/heavy", "--timeout=120s"]);
    let heavy = kubectl.with(&["--server", &format!("{}/projects/heavy", servers[other].url())]);
    until("the pair answers", PATIENCE, || {
        let made = heavy.run(&["create", "configmap", "kept"]);
        (made.success || made.stderr.contains("already exists")).then_some(())
    });
    servers[first].kill();
    until("the other leads", PATIENCE, || (leader(&servers[other]) == Some(other)).then_some(()));
    kubectl.apply(&project("two"));
    kubectl.ok(&["wait", "--for=condition=Ready", "project/two", "--timeout=120s"]);
    servers[first].restart();
    until("the pair answers", PATIENCE, || heavy.run(&["get", "configmap", "kept"]).success.then_some(()));
    // One that is stopped hands over at once.
    servers[other].stop();
    let kubectl = servers[first].kubectl();
    kubectl.apply(&project("three"));
    kubectl.ok(&["wait", "--for=condition=Ready", "project/three", "--timeout=120s"]);
    let heavy = kubectl.with(&["--server", &format!("{}/projects/heavy", servers[first].url())]);
    until("the pair answers", PATIENCE, || heavy.run(&["get", "configmap", "kept"]).success.then_some(()));
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

#[test]
fn nothing_is_lost_repeated_or_reordered_while_servers_and_members_of_etcd_die() {
    let (rounds, seed) = (setting("FREEHOLD_FAULT_ROUNDS", 3), setting("FREEHOLD_FAULT_SEED", 5));
    let mut random = Random::new(seed);
    let mut fleet = Fleet::start(SERVERS, 0);
    let mut storm = Storm::start(admin(&fleet, &fleet.url()));
    for round in 0..rounds {
        storm.progress(WRITES);
        if round % (rounds / 5).max(1) == 0 {
            storm.watch();
        }
        let (server, member) = (random.index(SERVERS), random.index(3));
        fleet.kill(server);
        storm.progress(random.below(WRITES));
        fleet.etcd().kill(member);
        storm.progress(WRITES);
        if random.below(2) == 0 {
            // Another one, too: then one is left.
            fleet.kill((server + 1) % SERVERS);
            storm.progress(random.below(WRITES));
            fleet.restart((server + 1) % SERVERS);
        }
        fleet.restart(server);
        fleet.etcd().restart(member);
        fleet.etcd().wait_until_healthy();
    }
    storm.check(&format!("seed {seed}"));
}
