//! Webhooks of providers that convert badly, or never.

use crate::{
    DATABASES, IN_DEFAULT, PATIENCE, Parties, SECRETS, conversion,
    conversion::{by, converted, published, second, v2},
    database, names,
};
use freehold_tests_integration::{Answer, HookServer, Http, Reply, World, facts, until};
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

facts!(world:
    a_conversion_that_hangs_holds_up_its_own_version_alone,
    a_conversion_that_hangs_keeps_nothing_from_being_deleted,
    a_conversion_that_lies_is_refused_and_changes_nothing,
    a_conversion_sees_nothing_of_who_has_left,
);

/// How long a provider's webhook may take.
const TIMEOUT: Duration = Duration::from_secs(10);

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}})
}

fn a_conversion_that_hangs_holds_up_its_own_version_alone(world: &World) {
    let server = HookServer::start(|_, _| Reply::Hang);
    let parties = published(world, "conv-hangs", &by(&server.by_url("/hang")));
    let (http, other) = (Http::of(&parties.consumer), Http::of(&parties.other));
    parties.consumer.apply(&database("orders", 3).to_string());
    parties.other.apply(&database("orders", 3).to_string());
    std::thread::scope(|scope| {
        let held: Vec<_> =
            (0..4).map(|_| scope.spawn(|| Http::of(&parties.consumer).get(&v2(IN_DEFAULT)).code)).collect();
        until("the webhook is asked", PATIENCE, || (!server.seen().is_empty()).then_some(()));
        let begun = Instant::now();
        for nth in 0..10 {
            assert_eq!(http.json(Method::POST, SECRETS, &secret(&format!("free-{nth}"))).code, 201);
            assert_eq!(
                http.get(&format!("{IN_DEFAULT}/orders")).code,
                200,
                "the stored version needs nobody"
            );
            assert_eq!(other.json(Method::POST, SECRETS, &secret(&format!("free-{nth}"))).code, 201);
        }
        assert_eq!(parties.in_view(None).get(DATABASES).code, 200);
        assert!(begun.elapsed() < TIMEOUT, "what is free does not wait for what hangs");
        held.into_iter().for_each(|one| assert_eq!(one.join().unwrap(), 500));
    });
    // From then on nobody waits for it, but for one request now and then.
    let begun = Instant::now();
    let refused: Vec<_> = (0..20).map(|_| other.get(&v2(IN_DEFAULT))).collect();
    assert!(refused.iter().all(|answer| answer.code == 500));
    assert!(begun.elapsed() < 3 * TIMEOUT, "{:?}", begun.elapsed());
    let rests = |answer: &&Answer| answer.body.to_string().contains("asked again in a few seconds");
    assert!(refused.iter().filter(rests).count() >= 15, "{:?}", refused.last().map(|one| &one.body));
}

fn a_conversion_that_hangs_keeps_nothing_from_being_deleted(world: &World) {
    let server = HookServer::start(|_, _| Reply::Hang);
    let parties = published(world, "conv-deletes", &by(&server.by_url("/hang")));
    let http = Http::of(&parties.consumer);
    for name in ["one", "two", "three"] {
        parties.consumer.apply(&database(name, 3).to_string());
    }
    let deleted = http.send(Method::DELETE, &v2(&format!("{IN_DEFAULT}/one")), "", "");
    assert_eq!(deleted.code, 200, "{}", deleted.body);
    assert_eq!(http.send(Method::DELETE, &v2(IN_DEFAULT), "", "").code, 200);
    assert_eq!(names(&http.get(DATABASES).body), Vec::<&str>::new());
    // A namespace goes with what is in it.
    parties.consumer.ok(&["create", "namespace", "going"]);
    let mut inside = database("inside", 3);
    inside["metadata"]["namespace"] = "going".into();
    parties.consumer.apply(&inside.to_string());
    parties.consumer.ok(&["delete", "namespace", "going", "--timeout=120s"]);
    // So does a binding with its objects.
    parties.consumer.apply(&database("last", 3).to_string());
    say_of_objects(&parties, "Delete");
    parties.consumer.ok(&["delete", "apibinding", "pg", "--timeout=120s"]);
}

/// Says what becomes of the consumer's objects with its binding.
fn say_of_objects(parties: &Parties, what: &str) {
    let patch = format!(r#"{{"spec":{{"objects":"{what}"}}}}"#);
    parties.consumer.ok(&["patch", "apibinding", "pg", "--type=merge", "-p", &patch]);
}

fn a_conversion_that_lies_is_refused_and_changes_nothing(world: &World) {
    let server = HookServer::start(|path, review| match path {
        "/renames" => converted(review, |objects| objects[0]["metadata"]["name"] = "other".into()),
        "/moves" => converted(review, |objects| objects[0]["metadata"]["namespace"] = "kube-system".into()),
        "/swaps" => converted(review, |objects| objects[0]["metadata"]["uid"] = "other".into()),
        "/turns" => converted(review, |objects| objects[0]["kind"] = "Secret".into()),
        "/loses" => converted(review, |objects| drop(objects.pop())),
        "/doubles" => converted(review, |objects| objects.push(objects[0].clone())),
        "/hangs-up" => Reply::HangUp,
        "/huge" => Reply::Endless,
        "/page" => Reply::Text(200, "<html>".into()),
        "/owns" => converted(review, |objects| {
            let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"});
            objects[0]["metadata"]["ownerReferences"] = json!([owner]);
            objects[0]["metadata"]["finalizers"] = json!(["example.com/held"]);
            objects[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
            objects[0]["metadata"]["generation"] = 77.into();
        }),
        _ => converted(review, |_| {}),
    });
    let parties = published(world, "conv-lies", &by(&server.by_url("/convert")));
    let http = Http::of(&parties.consumer);
    parties.consumer.apply(&database("orders", 3).to_string());
    let before = http.get(&format!("{IN_DEFAULT}/orders")).body;
    let publish = |way: &str, nth: usize| {
        let mut changed = conversion::two_versions(&by(&server.by_url(way)));
        let name = format!("w{nth}.databases.db.example.com");
        changed["metadata"]["name"] = name.clone().into();
        parties.provider.apply(&changed.to_string());
        let patch = json!({"spec": {"schemas": [name]}}).to_string();
        parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &patch]);
    };
    let ways =
        ["/renames", "/moves", "/swaps", "/turns", "/loses", "/doubles", "/hangs-up", "/huge", "/page"];
    for (nth, way) in ways.into_iter().enumerate() {
        publish(way, nth);
        let read = http.get(&v2(&format!("{IN_DEFAULT}/orders")));
        assert_eq!(read.code, 500, "{way}: {}", read.body);
        assert!(
            read.body["message"].as_str().unwrap().contains("conversion webhook"),
            "{way}: {}",
            read.body
        );
        let put = http.json(Method::POST, &v2(IN_DEFAULT), &second("new", "1Gi"));
        assert_eq!(put.code, 500, "{way}: {}", put.body);
        assert_eq!(http.get(&v2(IN_DEFAULT)).code, 500, "{way}: no list is answered by halves");
        assert_eq!(http.get(&format!("{IN_DEFAULT}/orders")).body, before, "{way}");
    }
    // Of metadata it changes labels and annotations, and nothing else.
    publish("/owns", ways.len());
    let read = http.get(&v2(&format!("{IN_DEFAULT}/orders"))).body;
    for field in ["ownerReferences", "finalizers", "deletionTimestamp"] {
        assert_eq!(read["metadata"][field], Value::Null, "{read}");
    }
    assert_eq!(read["metadata"]["generation"], before["metadata"]["generation"]);
}

fn a_conversion_sees_nothing_of_who_has_left(world: &World) {
    let server = HookServer::start(|_, review| converted(review, |_| {}));
    let parties = published(world, "conv-left", &by(&server.by_url("/convert")));
    parties.consumer.apply(&database("treasure", 3).to_string());
    parties.other.apply(&database("plain", 3).to_string());
    say_of_objects(&parties, "Keep");
    parties.consumer.ok(&["delete", "apibinding", "pg"]);
    let calls = server.seen().len();
    let list = parties.in_view(None).get(&v2(DATABASES)).body;
    assert_eq!(names(&list), ["plain"], "{list}");
    let seen = serde_json::to_string(&server.seen()[calls..]).unwrap();
    assert!(seen.contains("plain") && !seen.contains("treasure"), "{seen}");
    // Nor do readers of all planes send it anything.
    let calls = server.seen().len();
    world.admin().run(&["get", "--raw", "/planes/*/apis/db.example.com/v2/databases"]);
    assert_eq!(server.seen().len(), calls);
}
