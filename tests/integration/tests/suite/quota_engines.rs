//! Quota at any concurrency, on each engine, with the server killed in between: never more than there is, and all of it.

use crate::quota::{MAP_KIND, bucket, grant, organization, policy, registration};
use crate::storm::{client, runtime};
use crate::{PATIENCE, items, text};
use freehold_client::{Client, Config, Resource};
use freehold_tests_integration::{Engine, Server, facts, until};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

facts!(engine:
    a_thousand_claims_on_the_last_hundred_units_get_a_hundred,
    claims_are_exact_though_the_server_is_killed_among_them,
    a_hundred_objects_fit_a_quota_of_a_hundred_whoever_comes_first,
);

const MAPS: Resource = Resource::namespaced("", "v1", "configmaps");

/// A server with an organization and a project, in which each ConfigMap claims one of a hundred units.
fn with_a_hundred(engine: Engine) -> Server {
    let server = Server::start(engine);
    let admin = server.kubectl();
    admin.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}\n",
    );
    admin.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: web}\n\
         spec: {ownerRef: {kind: Organization, name: acme}}\n",
    );
    admin.ok(&["wait", "--for=condition=Ready", "project/web", "organization/acme", "--timeout=60s"]);
    admin.apply(&registration("units", "Organization", MAP_KIND));
    admin.apply(&grant("acme", &organization("acme"), "units", 100));
    admin.apply(&policy("units", "acme", "{resourceType: units, amount: 1}"));
    server
}

/// What came of a request: its status, 0 where there was no answer. Who is told to come again does.
async fn create(client: &Client, namespace: &str, name: &str) -> u16 {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
    });
    loop {
        match client.create(&MAPS, &object).await {
            Ok(_) => return 201,
            Err(error) if error.code() == 429 => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(error) => return error.code(),
        }
    }
}

/// Creates so many ConfigMaps at once; gives how many were made and how many refused.
fn create_all(
    client: &Client,
    (namespace, prefix): (&str, &str),
    count: usize,
    made: &Arc<AtomicUsize>,
) -> (usize, usize) {
    let codes = runtime().block_on(async {
        let mut tasks = JoinSet::new();
        for number in 0..count {
            let (client, made, namespace) = (client.clone(), made.clone(), namespace.to_owned());
            let name = format!("paid-{prefix}-{number}");
            tasks.spawn(async move {
                let code = create(&client, &namespace, &name).await;
                made.fetch_add(usize::from(code == 201), Ordering::Relaxed);
                code
            });
        }
        tasks.join_all().await
    });
    let of = |wanted: u16| codes.iter().filter(|code| **code == wanted).count();
    (of(201), of(403))
}

/// Bucket, claims and objects have to agree.
fn check_books(server: &Server) -> i64 {
    let admin = server.kubectl();
    let [limit, allocated, available, claims] = bucket(&admin, "acme", "units").expect("a bucket");
    assert_eq!((limit, allocated + available, claims), (100, 100, allocated));
    let there = server.project("web").json(&["get", "configmaps", "-n", "default"]);
    let paid = items(&there).filter(|map| text(map, "/metadata/name").starts_with("paid")).count();
    let listed = admin.json(&["get", "resourceclaims.quota.freehold.dev", "-n", "organization-acme"]);
    assert_eq!((paid as i64, items(&listed).count() as i64), (allocated, allocated));
    allocated
}

fn a_thousand_claims_on_the_last_hundred_units_get_a_hundred(engine: Engine) {
    let server = with_a_hundred(engine);
    let client = Server::client_of(&server.project("web"));
    let outcome = create_all(&client, ("default", "a"), 1000, &Arc::default());
    assert_eq!(outcome, (100, 900));
    assert_eq!(check_books(&server), 100);
    server.project("web").ok(&["delete", "configmap", "--all", "-n", "default"]);
    assert_eq!(check_books(&server), 0);
}

fn claims_are_exact_though_the_server_is_killed_among_them(engine: Engine) {
    let mut server = with_a_hundred(engine);
    let made = Arc::<AtomicUsize>::default();
    for round in ["a", "b"] {
        // The killed server may have granted many before it was.
        if check_books(&server) > 80 {
            break;
        }
        let client = Server::client_of(&server.project("web"));
        let (counted, before) = (made.clone(), made.load(Ordering::Relaxed));
        let writers = std::thread::spawn(move || create_all(&client, ("default", round), 300, &counted));
        until("some are made", PATIENCE, || (made.load(Ordering::Relaxed) >= before + 20).then_some(()));
        server.kill();
        writers.join().expect("writers end");
        server.restart();
        let there = check_books(&server);
        assert!(there >= made.load(Ordering::Relaxed) as i64, "what was acknowledged is there");
    }
    let client = Server::client_of(&server.project("web"));
    let left = 100 - check_books(&server);
    let (got, refused) = create_all(&client, ("default", "c"), 500, &made);
    assert_eq!((got as i64, refused as i64), (left, 500 - left));
    assert_eq!(check_books(&server), 100);
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
    assert_eq!(create_all(&client, ("tight", "t"), 300, &Arc::default()), (100, 200));
    let used = kubectl.json(&["get", "quota", "tight", "-n", "tight"]);
    assert_eq!(text(&used, "/status/used/count~1configmaps"), "101");
}
