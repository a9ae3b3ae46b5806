//! Quota at any concurrency, on each engine, with the server killed in between: never more than there is, and all of it.

use crate::quota::{MAP_KIND, bucket, grant, organization, policy, registration};
use crate::storm::{client, runtime};
use crate::{PATIENCE, items, text};
use freehold_client::{Client, Config, Resource};
use freehold_tests_integration::{Engine, Fleet, Kubectl, Server, facts, until};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

facts!(engine:
    a_thousand_claims_on_the_last_hundred_units_get_a_hundred,
    a_thousand_claims_get_a_hundred_though_the_server_is_killed_among_them,
    a_hundred_objects_fit_a_quota_of_a_hundred_whoever_comes_first,
    a_fork_is_claimed_once_though_the_server_is_killed_in_it,
    one_of_many_services_gets_the_port_and_the_address_that_all_ask_for,
);

const MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
const SERVICES: Resource = Resource::namespaced("", "v1", "services");
const SERVICES_AT_ONCE: usize = 60;

/// A server with an organization and a project, in which each ConfigMap claims one of a hundred units.
fn with_a_hundred(engine: Engine) -> Server {
    let server = Server::start(engine);
    grant_a_hundred(&server.kubectl());
    server
}

fn grant_a_hundred(admin: &Kubectl) {
    admin.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}\n",
    );
    admin.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: web}\n\
         spec: {ownerRef: {kind: Organization, name: acme}}\n",
    );
    admin.ok(&["wait", "--for=condition=Ready", "project/web", "organization/acme", "--timeout=120s"]);
    admin.apply(&registration("units", "Organization", MAP_KIND));
    admin.apply(&grant("acme", &organization("acme"), "units", 100));
    admin.apply(&policy("units", "acme", "{resourceType: units, amount: 1}"));
}

/// What a client does that gets no answer, as the server was killed.
#[derive(Clone, Copy)]
enum Lost {
    /// It asks again; what is there then was made.
    AskedAgain,
    GivenUp,
}

/// What came of a request: its status, 0 where there was no answer. Who is told to come again does, and who is told that nobody
/// knows whether it was made asks again: what is there then was.
async fn create(client: &Client, namespace: &str, name: &str, lost: Lost) -> u16 {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
    });
    let (begun, mut unknown) = (Instant::now(), false);
    loop {
        let Err(error) = client.create(&MAPS, &object).await else { return 201 };
        match (error.code(), lost) {
            (409, _) if unknown => return 201,
            (429, _) => {}
            // The store did not say in time whether it happened.
            (504, _) if begun.elapsed() < 2 * PATIENCE => unknown = true,
            (code, Lost::AskedAgain) if code != 403 && begun.elapsed() < 2 * PATIENCE => unknown = true,
            (code, _) => return code,
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Creates so many ConfigMaps at once; gives how many were made and how many refused.
fn create_all(
    client: &Client,
    (namespace, prefix): (&str, &str),
    count: usize,
    lost: Lost,
    made: &Arc<AtomicUsize>,
) -> (usize, usize) {
    let codes = runtime().block_on(async {
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let (client, made, namespace) = (client.clone(), made.clone(), namespace.to_owned());
            let name = format!("paid-{prefix}-{number}");
            tasks.spawn(async move {
                let code = create(&client, &namespace, &name, lost).await;
                made.fetch_add(usize::from(code == 201), Ordering::Relaxed);
                code
            });
        }
        tasks.join_all().await
    });
    let of = |wanted: u16| codes.iter().filter(|code| **code == wanted).count();
    (of(201), of(403))
}

/// How many objects that claim there are.
fn check_paid(server: &Server) -> usize {
    let there = server.project("web").json(&["get", "configmaps", "-n", "default"]);
    items(&there).filter(|map| text(map, "/metadata/name").starts_with("paid")).count()
}

/// Bucket, claims and objects have to agree.
fn check_books(server: &Server) -> i64 {
    check(&server.kubectl(), &server.project("web"))
}

fn check(admin: &Kubectl, project: &Kubectl) -> i64 {
    let [limit, allocated, available, claims] = bucket(admin, "acme", "units").expect("a bucket");
    assert_eq!((limit, allocated + available, claims), (100, 100, allocated));
    let there = project.json(&["get", "configmaps", "-n", "default"]);
    let paid = items(&there).filter(|map| text(map, "/metadata/name").starts_with("paid")).count();
    let listed = admin.json(&["get", "resourceclaims.quota.freehold.dev", "-n", "organization-acme"]);
    assert_eq!((paid as i64, items(&listed).count() as i64), (allocated, allocated));
    allocated
}

fn a_thousand_claims_on_the_last_hundred_units_get_a_hundred(engine: Engine) {
    let server = with_a_hundred(engine);
    let client = Server::client_of(&server.project("web"));
    let outcome = create_all(&client, ("default", "a"), 1000, Lost::GivenUp, &Arc::default());
    assert_eq!(outcome, (100, 900));
    assert_eq!(check_books(&server), 100);
    server.project("web").ok(&["delete", "configmap", "--all", "-n", "default"]);
    assert_eq!(check_books(&server), 0);
}

fn a_thousand_claims_get_a_hundred_though_the_server_is_killed_among_them(engine: Engine) {
    let mut server = with_a_hundred(engine);
    let client = Server::client_of(&server.project("web"));
    let made = Arc::<AtomicUsize>::default();
    let counted = made.clone();
    let writers =
        std::thread::spawn(move || create_all(&client, ("default", "a"), 1000, Lost::AskedAgain, &counted));
    for so_many in [10, 50] {
        until("some are made", PATIENCE, || (made.load(Ordering::Relaxed) >= so_many).then_some(()));
        server.kill();
        let acknowledged = made.load(Ordering::Relaxed);
        server.restart();
        assert!(check_paid(&server) >= acknowledged, "what was acknowledged is there");
    }
    assert_eq!(writers.join().expect("writers end"), (100, 900));
    assert_eq!(check_books(&server), 100);
}

fn one_of_many_services_gets_the_port_and_the_address_that_all_ask_for(engine: Engine) {
    let server = Server::start(engine);
    let clients = [server.client()];
    runtime().block_on(only_one_service_gets(&clients, "node-port", &node_port(30_123)));
    runtime().block_on(only_one_service_gets(&clients, "address", &json!({"clusterIP": "10.96.9.9"})));
}

/// The spec of a Service that asks for a node port.
pub(crate) fn node_port(port: u16) -> Value {
    json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]})
}

/// Creates Services at once that ask for the same, by turns on each of some servers: one is made, and the others are invalid.
pub(crate) async fn only_one_service_gets(clients: &[Client], prefix: &str, spec: &Value) {
    let mut tasks = JoinSet::new();
    for number in 0..SERVICES_AT_ONCE {
        let client = clients[number % clients.len()].clone();
        let mut object = json!({
            "apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80}]},
            "metadata": {"name": format!("{prefix}-{number}"), "namespace": "default"},
        });
        spec.as_object().into_iter().flatten().for_each(|(k, v)| object["spec"][k] = v.clone());
        tasks.spawn(async move { client.create(&SERVICES, &object).await.map_err(|error| error.code()) });
    }
    let outcomes = tasks.join_all().await;
    let made = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let invalid = outcomes.iter().filter(|outcome| matches!(outcome, Err(422))).count();
    assert_eq!((made, invalid), (1, SERVICES_AT_ONCE - 1), "{outcomes:?}");
}

fn a_hundred_objects_fit_a_quota_of_a_hundred_whoever_comes_first(engine: Engine) {
    let server = Server::start(engine);
    let kubectl = server.kubectl();
    kubectl.ok(&["create", "namespace", "tight"]);
    kubectl.ok(&["create", "quota", "tight", "--hard=count/configmaps=101", "-n", "tight"]);
    until("it is counted", PATIENCE, || {
        let quota = kubectl.json(&["get", "quota", "tight", "-n", "tight"]);
        (text(&quota, "/status/used/count~1configmaps") == "1").then_some(())
    });
    let config = Config::from_kubeconfig(server.admin_kubeconfig()).expect("a kubeconfig");
    let client = client(&config);
    assert_eq!(create_all(&client, ("tight", "t"), 300, Lost::GivenUp, &Arc::default()), (100, 200));
    let used = kubectl.json(&["get", "quota", "tight", "-n", "tight"]);
    assert_eq!(text(&used, "/status/used/count~1configmaps"), "101");
}

/// Two servers on one etcd, and one of them is killed among a thousand claims: what both granted together is exact.
#[test]
fn two_servers_grant_a_hundred_of_a_hundred() {
    let mut fleet = Fleet::start(2, 1);
    let admin = fleet.kubectl();
    grant_a_hundred(&admin);
    let config = Config::from_kubeconfig(fleet.join("admin.kubeconfig")).expect("a kubeconfig");
    let of = |nth: usize| {
        client(&Config { server: format!("{}/projects/web", fleet.server_url(nth)), ..config.clone() })
    };
    let made = Arc::<AtomicUsize>::default();
    let writers: Vec<_> = ["a", "b"]
        .into_iter()
        .enumerate()
        .map(|(nth, prefix)| {
            let (client, counted) = (of(nth), made.clone());
            std::thread::spawn(move || create_all(&client, ("default", prefix), 500, Lost::GivenUp, &counted))
        })
        .collect();
    until("some are made", PATIENCE, || (made.load(Ordering::Relaxed) >= 20).then_some(()));
    fleet.kill(0);
    for writer in writers {
        writer.join().expect("writers end");
    }
    let survivor = of_project(&fleet, 1);
    // What the killed server had begun and not answered may be there too, with its claim or not at all.
    let left = 100 - check(&admin, &survivor);
    assert!(100 - left >= made.load(Ordering::Relaxed) as i64, "what was acknowledged is there");
    fleet.restart(0);
    let client =
        client(&Config { server: format!("{}/projects/web", fleet.server_url(0)), ..config.clone() });
    let (got, refused) = create_all(&client, ("default", "c"), 200, Lost::GivenUp, &made);
    assert_eq!((got as i64, refused as i64), (left, 200 - left));
    assert_eq!(check(&admin, &survivor), 100);
}

/// `kubectl` as the admin, in the project at one server.
fn of_project(fleet: &Fleet, nth: usize) -> Kubectl {
    let url = format!("{}/projects/web", fleet.server_url(nth));
    fleet.kubectl().with(&["--server", &url])
}

/// A fork is claimed in several commits; killed before, among or after them, it ends with each of its objects claimed once, and
/// one that is too large with none.
fn a_fork_is_claimed_once_though_the_server_is_killed_in_it(engine: Engine) {
    const OBJECTS: i64 = 150;
    let mut server = with_a_hundred(engine);
    let admin = server.kubectl();
    let of = |count: i64, limit: i64| Some([limit, count, limit - count, count]);
    admin.apply(&grant("acme", &organization("acme"), "units", 400));
    let maps: Vec<_> = (0..OBJECTS)
        .map(|nth| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("paid-{nth}")}}))
        .collect();
    server.project("web").apply(&json!({"apiVersion": "v1", "kind": "List", "items": maps}).to_string());
    assert_eq!(bucket(&admin, "acme", "units"), of(OBJECTS, 400));
    let fork = |name: &str| {
        admin.apply(&format!(
            "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {{name: {name}}}\n\
             spec: {{ownerRef: {{kind: Organization, name: acme}}, controlPlane: {{from: {{project: web}}}}}}\n"
        ));
    };
    for (round, pause) in [20, 60, 120].into_iter().enumerate() {
        let name = format!("copy-{round}");
        fork(&name);
        std::thread::sleep(Duration::from_millis(pause));
        server.kill();
        server.restart();
        admin.ok(&["wait", "--for=condition=Ready", &format!("project/{name}"), "--timeout=120s"]);
        assert_eq!(bucket(&admin, "acme", "units"), of(2 * OBJECTS, 400), "after {pause} ms");
        admin.ok(&["delete", "project", &name, "--timeout=120s"]);
        assert_eq!(bucket(&admin, "acme", "units"), of(OBJECTS, 400), "after {pause} ms");
    }
    admin.apply(&grant("acme", &organization("acme"), "units", 200));
    fork("too-large");
    let reason = "--for=jsonpath={.status.conditions[?(@.type=='Ready')].reason}=QuotaExceeded";
    admin.ok(&["wait", reason, "project/too-large", "--timeout=120s"]);
    assert_eq!(bucket(&admin, "acme", "units"), of(OBJECTS, 200));
    admin.ok(&["delete", "project", "too-large", "--timeout=120s"]);
    assert_eq!(bucket(&admin, "acme", "units"), of(OBJECTS, 200));
}
