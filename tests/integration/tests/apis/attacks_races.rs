//! Projects that are made anew under a name, and deletions beside writes.

use crate::{DATABASES, GROUP, IN_DEFAULT, Parties, condition, database, export, names, schema, widely};
use freehold_tests_integration::{Http, World, facts};
use http::Method;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

facts!(world:
    a_provider_made_anew_under_its_name_inherits_no_consumer,
    a_consumer_made_anew_under_its_name_shows_nothing_to_the_provider,
    objects_made_while_a_binding_is_deleted_are_not_stranded,
    an_export_and_a_binding_that_race_leave_nothing_that_is_served_without_it,
);

/// Deletes a project, and makes one of its name in another organization.
fn made_anew(world: &World, project: &str, organization: &str) {
    world.admin().ok(&["delete", "project", project, "--timeout=120s"]);
    World::gone(&world.admin(), &["project", project]);
    world.organization(organization, &[project]);
}

fn a_provider_made_anew_under_its_name_inherits_no_consumer(world: &World) {
    let parties = Parties::new(world, "anew");
    parties.bind(&parties.consumer);
    parties.consumer.apply(&database("orders", 1).to_string());
    made_anew(world, &parties.names[0], "squatters");
    let squatter = world.server().project(&parties.names[0]);
    squatter.apply(&schema("v1.databases.db.example.com", &widely()).to_string());
    squatter.apply(&export("pg", "consumers-anew", &json!([])).to_string());
    let at = |path: &str| Http::of_elsewhere(&squatter, &format!("{}{path}", parties.url));
    assert_eq!(names(&at(&parties.view(None)).get(DATABASES).body), Vec::<&str>::new());
    assert_eq!(at(&parties.view(Some(1))).get(DATABASES).code, 404);
    let consumer = Http::of(&parties.consumer);
    assert_eq!(consumer.get(DATABASES).code, 404, "its binding is of the project that is gone");
    parties.consumer.ok(&["label", "apibinding", "pg", "touched=yes"]);
    let binding = consumer.get(&format!("{GROUP}/apibindings/pg")).body;
    assert_eq!(condition(&binding, "Bound").1, "ExportNotFound", "{binding}");
    assert_eq!(consumer.get(DATABASES).code, 404);
}

fn a_consumer_made_anew_under_its_name_shows_nothing_to_the_provider(world: &World) {
    let parties = Parties::new(world, "reborn");
    parties.bind(&parties.consumer);
    parties.consumer.apply(&database("orders", 1).to_string());
    assert_eq!(names(&parties.in_view(Some(1)).get(DATABASES).body), ["orders"]);
    made_anew(world, &parties.names[1], "reborn-elsewhere");
    let project = world.server().project(&parties.names[1]);
    project.ok(&["create", "configmap", "own"]);
    for path in [DATABASES, IN_DEFAULT, "/api/v1/configmaps"] {
        assert_eq!(parties.in_view(Some(1)).get(path).code, 404, "{path}");
    }
    assert_eq!(names(&parties.in_view(None).get(DATABASES).body), Vec::<&str>::new());
    // Its new organization may not bind the export.
    let refused =
        Http::of(&project).json(Method::POST, &format!("{GROUP}/apibindings"), &parties.binding(&json!([])));
    assert_eq!(refused.code, 403, "{}", refused.body);
}

fn objects_made_while_a_binding_is_deleted_are_not_stranded(world: &World) {
    let parties = Parties::new(world, "race");
    let path = format!("{GROUP}/apibindings/pg");
    for round in 0..8 {
        parties.bind(&parties.consumer);
        let (stop, made) = (AtomicBool::new(false), AtomicUsize::new(0));
        let deleted = std::thread::scope(|scope| {
            for writer in 0..3 {
                let (stop, made, consumer) = (&stop, &made, &parties.consumer);
                scope.spawn(move || {
                    let http = Http::of(consumer);
                    for nth in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let one = database(&format!("r{round}-{writer}-{nth}"), 1);
                        let answer = http.json(Method::POST, IN_DEFAULT, &one);
                        made.fetch_add(usize::from(answer.code == 201), Ordering::Relaxed);
                        // What is there keeps the binding: it goes again, so that the deletion has its moments.
                        http.send(Method::DELETE, &format!("{IN_DEFAULT}/r{round}-{writer}-{nth}"), "", "");
                    }
                });
            }
            let http = Http::of(&parties.consumer);
            let deleted = (0..2000).any(|_| http.send(Method::DELETE, &path, "", "").code == 200);
            stop.store(true, Ordering::Relaxed);
            deleted
        });
        assert!(deleted, "the binding was never without objects; {} were made", made.load(Ordering::Relaxed));
        assert_eq!(parties.in_view(None).get(DATABASES).body["items"], json!([]));
        parties.bind(&parties.consumer);
        let left = Http::of(&parties.consumer).get(DATABASES).body;
        assert_eq!(names(&left), Vec::<&str>::new(), "round {round}: what was acknowledged was out of reach");
    }
}

fn an_export_and_a_binding_that_race_leave_nothing_that_is_served_without_it(world: &World) {
    let parties = Parties::new(world, "dual");
    let export_path = format!("{GROUP}/apiexports/pg");
    for _ in 0..5 {
        std::thread::scope(|scope| {
            scope.spawn(|| Http::of(&parties.provider).send(Method::DELETE, &export_path, "", ""));
            let path = format!("{GROUP}/apibindings");
            Http::of(&parties.consumer).json(Method::POST, &path, &parties.binding(&json!([])));
        });
        let is_there = Http::of(&parties.provider).get(&export_path).code == 200;
        let binding = Http::of(&parties.consumer).get(&format!("{GROUP}/apibindings/pg"));
        let served = Http::of(&parties.consumer).get(DATABASES).code;
        match (is_there, binding.code) {
            (true, 200) => assert_eq!(served, 200),
            _ => assert_eq!(served, 404, "{}", binding.body),
        }
        Http::of(&parties.consumer).send(Method::DELETE, &format!("{GROUP}/apibindings/pg"), "", "");
        parties.provider.apply(&export("pg", "consumers-dual", &json!([])).to_string());
    }
}
