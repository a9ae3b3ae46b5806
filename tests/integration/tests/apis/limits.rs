//! What a provider lets its consumers have.

use crate::{DATABASES, IN_DEFAULT, Parties, database};
use freehold_tests_integration::{Http, Kubectl, World, facts};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    a_provider_limits_each_project_and_organization_exactly,
    a_limit_counts_what_was_there_before_it,
);

fn set(parties: &Parties, limits: &Value) {
    let patch = json!({"spec": {"limits": limits}}).to_string();
    parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &patch]);
}

/// How many of some creates at once were answered with 201; the others with 403.
fn create_at_once(kubectl: &Kubectl, tag: &str, count: usize) -> usize {
    std::thread::scope(|scope| {
        let creates: Vec<_> = (0..count)
            .map(|nth| {
                scope.spawn(move || {
                    let made = Http::of(kubectl).json(
                        Method::POST,
                        IN_DEFAULT,
                        &database(&format!("{tag}-{nth}"), 1),
                    );
                    assert!(matches!(made.code, 201 | 403), "{}", made.body);
                    made.code == 201
                })
            })
            .collect();
        creates.into_iter().map(|create| usize::from(create.join().unwrap())).sum()
    })
}

/// What a provider counts, `(consumer, allocated, limit)`.
fn usage(world: &World, tag: &str) -> Vec<(String, i64, i64)> {
    let buckets = world.admin().json(&[
        "get",
        "allowancebuckets.quota.freehold.dev",
        "-n",
        &format!("organization-providers-{tag}"),
    ]);
    let one = |bucket: &Value| {
        let number = |field: &str| bucket["status"][field].as_i64().unwrap_or_default();
        let name = bucket["spec"]["consumerRef"]["name"].as_str().unwrap_or_default().to_owned();
        (name, number("allocated"), number("limit"))
    };
    let mut usage: Vec<_> = buckets["items"].as_array().unwrap().iter().map(one).collect();
    usage.sort();
    usage
}

fn a_provider_limits_each_project_and_organization_exactly(world: &World) {
    let parties = Parties::new(world, "limited");
    set(
        &parties,
        &json!([
            {"resource": "databases", "count": 3},
            {"resource": "databases", "per": "Organization", "count": 5},
        ]),
    );
    parties.bind(&parties.consumer);
    parties.bind(&parties.other);
    assert_eq!(create_at_once(&parties.consumer, "a", 8), 3);
    assert_eq!(create_at_once(&parties.other, "b", 8), 2);
    let over = Http::of(&parties.other).json(Method::POST, IN_DEFAULT, &database("more", 1));
    let why = over.body["message"].as_str().unwrap().to_owned();
    for part in [
        "exceeded quota of organization \"consumers-limited\"",
        "used: provider-limited/pg/databases.db.example.com=5",
        "limited: provider-limited/pg/databases.db.example.com=5",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    let expected = [("consumer-limited", 3, 3), ("consumers-limited", 5, 5), ("other-limited", 2, 3)];
    let expected: Vec<_> = expected.map(|(name, used, limit)| (name.to_owned(), used, limit)).into();
    assert_eq!(usage(world, "limited"), expected);
    // A delete gives back at once, and a change of an object is no other one.
    let list = Http::of(&parties.consumer).get(DATABASES).body;
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
    parties.consumer.ok(&["patch", "database", name, "--type=merge", "-p", r#"{"spec":{"size":2}}"#]);
    parties.consumer.ok(&["delete", "database", name]);
    assert_eq!(create_at_once(&parties.other, "c", 4), 1);
    // More for one of them.
    set(
        &parties,
        &json!([{"resource": "databases", "count": 3, "overrides": {parties.names[2].clone(): 7}}]),
    );
    assert_eq!(create_at_once(&parties.other, "d", 8), 4);
    assert_eq!(create_at_once(&parties.consumer, "e", 4), 1);
}

fn a_limit_counts_what_was_there_before_it(world: &World) {
    let parties = Parties::new(world, "early");
    parties.bind(&parties.consumer);
    assert_eq!(create_at_once(&parties.consumer, "a", 3), 3);
    let limits = json!([{"resource": "databases", "count": 4}]);
    set(&parties, &limits);
    assert_eq!(create_at_once(&parties.consumer, "b", 4), 1);
    // What came and went while there was no limit is counted when there is one again.
    set(&parties, &json!([]));
    assert_eq!(create_at_once(&parties.consumer, "c", 2), 2);
    set(&parties, &limits);
    assert_eq!(create_at_once(&parties.consumer, "d", 2), 0);
    for name in ["c-0", "c-1", "a-0"] {
        parties.consumer.ok(&["delete", "database", name]);
    }
    assert_eq!(create_at_once(&parties.consumer, "e", 2), 1);
}
