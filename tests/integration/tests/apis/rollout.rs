//! Rollouts of an export's schemas over its consumers.

use crate::{
    DATABASES, GROUP, IN_DEFAULT, PATIENCE, Parties, classes, condition, database, names, schema, widely,
};
use freehold_tests_integration::{Http, Kubectl, World, facts, until};
use http::Method;
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const NEXT: &str = "v2.databases.db.example.com";

facts!(world:
    a_rollout_reaches_consumers_stage_by_stage,
    a_stage_whose_objects_do_not_fit_halts_with_their_names,
    a_rollout_that_is_reverted_gives_the_current_schemas_back,
    a_rollout_that_breaks_objects_needs_a_reason_that_is_audited,
    a_failing_condition_of_objects_or_of_the_provider_reverts_where_the_spec_says_so,
    a_rollout_keeps_what_it_rests_on,
    no_status_of_a_client_skips_a_stage,
    a_provider_sees_both_versions_during_a_rollout,
    a_project_that_has_an_export_from_its_class_is_in_stages_too,
    roles_that_an_export_gains_reach_consumers_in_a_stage,
);

/// The wide schema with backups, seven of them where nothing is said.
fn with_backups() -> Value {
    let mut more = widely();
    more["properties"]["spec"]["properties"]["backups"] = json!({"type": "integer", "default": 7});
    more
}

/// The wide schema with a bound of sizes.
fn small() -> Value {
    let mut small = widely();
    small["properties"]["spec"]["properties"]["size"]["maximum"] = json!(9);
    small
}

fn rollout(spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "apis.freehold.dev/v1alpha1", "kind": "APIRollout", "metadata": {"name": "next"},
        "spec": {"export": "pg", "schemas": [NEXT], "stages": [{"labels": {"ring": "canary"}}, {"percent": 100}]},
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

/// Binds the export in both projects, the first one as a canary, and publishes the next schema.
fn prepared(world: &World, tag: &str, next: &Value) -> Parties {
    let parties = Parties::new(world, tag);
    let mut binding = parties.binding(&json!([]));
    binding["metadata"]["labels"] = json!({"ring": "canary"});
    parties.consumer.apply(&binding.to_string());
    parties.bind(&parties.other);
    parties.provider.apply(&schema(NEXT, next).to_string());
    parties
}

fn current(parties: &Parties) -> Value {
    Http::of(&parties.provider).get(&format!("{GROUP}/apirollouts/next")).body
}

/// Waits until the rollout has a phase, and gives it.
fn until_phase(parties: &Parties, phase: &str) -> Value {
    until(&format!("the rollout is {phase}"), PATIENCE, || {
        Some(current(parties)).filter(|found| found["status"]["phase"] == phase)
    })
}

/// Waits until a stage of the rollout is served, and gives it.
fn until_stage(parties: &Parties, stage: u64) -> Value {
    until(&format!("stage {stage} is served"), PATIENCE, || {
        Some(current(parties)).filter(|found| found["status"]["stage"] == stage)
    })
}

/// What the provider says of the health of its rollout.
fn say(parties: &Parties, status: &str) {
    let healthy = json!({"type": "Healthy", "status": status, "reason": "Measured", "message": "errors",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = json!({"status": {"conditions": [healthy]}}).to_string();
    let path = format!("{GROUP}/apirollouts/next/status");
    let said = Http::of(&parties.provider).send(Method::PATCH, &path, MERGE, patch);
    assert_eq!(said.code, 200, "{}", said.body);
}

/// The backups of a new database, as a project's schema has them.
fn backups(kubectl: &Kubectl, name: &str) -> Value {
    let made = Http::of(kubectl).json(Method::POST, IN_DEFAULT, &database(name, 3));
    assert_eq!(made.code, 201, "{}", made.body);
    made.body["spec"]["backups"].clone()
}

fn a_rollout_reaches_consumers_stage_by_stage(world: &World) {
    let parties = prepared(world, "stages", &with_backups());
    parties.provider.apply(&rollout(&json!({"health": {"condition": "Healthy"}})).to_string());
    let found = until_stage(&parties, 1);
    assert_eq!(
        (&found["status"]["updated"], &found["status"]["consumers"]),
        (&json!(1), &json!(2)),
        "{found}"
    );
    assert_eq!(backups(&parties.consumer, "early"), 7);
    assert_eq!(backups(&parties.other, "late"), Value::Null);
    assert_eq!(names(&parties.in_view(None).get(DATABASES).body).len(), 2);
    let table = parties.provider.ok(&["get", "apirollouts"]);
    for column in ["EXPORT", "PHASE", "STAGE", "UPDATED", "CONSUMERS"] {
        assert!(table.contains(column), "{table}");
    }
    say(&parties, "True");
    parties.provider.ok(&["wait", "--for=condition=Complete", "apirollout/next", "--timeout=120s"]);
    let export = Http::of(&parties.provider).get(&format!("{GROUP}/apiexports/pg")).body;
    assert_eq!(export["spec"]["schemas"], json!([NEXT]));
    assert_eq!(backups(&parties.other, "later"), 7);
    let late = Http::of(&parties.other).get(&format!("{IN_DEFAULT}/late")).body;
    assert_eq!(late["spec"]["backups"], 7, "what was written before is read as the schema is now");
    assert_eq!(current(&parties)["status"]["updated"], 2);
    parties.provider.ok(&["delete", "apirollout", "next"]);
}

fn a_stage_whose_objects_do_not_fit_halts_with_their_names(world: &World) {
    let parties = prepared(world, "halts", &small());
    let health = json!({"health": {"condition": "Healthy", "timeoutSeconds": 0}});
    parties.provider.apply(&rollout(&json!({"health": {"condition": "Healthy"}})).to_string());
    until_stage(&parties, 1);
    let wrong = Http::of(&parties.consumer).json(Method::POST, IN_DEFAULT, &database("large", 30));
    assert_eq!(wrong.code, 422, "{}", wrong.body);
    parties.other.apply(&database("large", 30).to_string());
    say(&parties, "True");
    parties.provider.apply(&rollout(&health).to_string());
    let halted = until_phase(&parties, "Halted");
    let message = halted["status"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("other-halts/default/large"), "{halted}");
    assert_eq!(
        (&halted["status"]["stage"], &halted["status"]["updated"]),
        (&json!(1), &json!(1)),
        "{halted}"
    );
    assert_eq!(condition(&halted, "Complete"), ("False".to_owned(), "Halted".to_owned()));
    parties.other.ok(&["patch", "database", "large", "--type=merge", "-p", r#"{"spec":{"size":9}}"#]);
    // A change of the spec sets it going again.
    parties
        .provider
        .apply(&rollout(&json!({"health": {"condition": "Healthy", "timeoutSeconds": 60}})).to_string());
    until_phase(&parties, "Complete");
}

fn a_rollout_that_is_reverted_gives_the_current_schemas_back(world: &World) {
    let parties = prepared(world, "reverts", &with_backups());
    parties.provider.apply(&rollout(&json!({"health": {"condition": "Healthy"}})).to_string());
    until_stage(&parties, 1);
    assert_eq!(backups(&parties.consumer, "early"), 7);
    let refused = parties.provider.fails(&["delete", "apirollout", "next"]);
    assert!(refused.contains("consumers have its schemas"), "{refused}");
    parties.provider.ok(&[
        "patch",
        "apirollout",
        "next",
        "--type=merge",
        "-p",
        r#"{"spec":{"revert":true}}"#,
    ]);
    let reverted = until_phase(&parties, "Reverted");
    assert_eq!((&reverted["status"]["stage"], &reverted["status"]["updated"]), (&json!(0), &json!(0)));
    assert_eq!(backups(&parties.consumer, "later"), Value::Null);
    parties.provider.ok(&["delete", "apirollout", "next"]);
}

fn a_rollout_that_breaks_objects_needs_a_reason_that_is_audited(world: &World) {
    let parties = prepared(world, "forced", &small());
    parties.other.apply(&database("large", 30).to_string());
    let http = Http::of(&parties.provider);
    let path = format!("{GROUP}/apirollouts");
    let refused = http.json(Method::POST, &path, &rollout(&json!({})));
    assert_eq!(refused.code, 422, "{}", refused.body);
    for part in ["spec.size: maximum was tightened to 9", "other-forced/default/large", "spec.force.reason"] {
        assert!(refused.body["message"].to_string().contains(part), "{part} is missing in {}", refused.body);
    }
    let made = http.json(Method::POST, &path, &rollout(&json!({"force": {"reason": "agreed-with-all"}})));
    assert_eq!(made.code, 201, "{}", made.body);
    until_phase(&parties, "Complete");
    assert_eq!(Http::of(&parties.other).json(Method::POST, IN_DEFAULT, &database("more", 30)).code, 422);
    let trail =
        Http::of_elsewhere(&world.admin(), &format!("{}/organizations/providers-forced", parties.url));
    until("the trail has the reason", PATIENCE, || {
        trail.get("/apis/audit.k8s.io/v1/events").body.to_string().contains("agreed-with-all").then_some(())
    });
}

fn a_failing_condition_of_objects_or_of_the_provider_reverts_where_the_spec_says_so(world: &World) {
    let mut next = with_backups();
    let conditions = json!({"type": "array", "items": {"type": "object",
        "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}});
    next["properties"]["status"]["properties"]["conditions"] = conditions;
    let parties = prepared(world, "unhealthy", &next);
    let health = json!({"condition": "Healthy", "objectCondition": "Ready"});
    parties.provider.apply(&rollout(&json!({"health": health, "onFailure": "Revert"})).to_string());
    until_stage(&parties, 1);
    say(&parties, "False");
    let reverted = until_phase(&parties, "Reverted");
    assert_eq!(reverted["status"]["reason"], "Unhealthy", "{reverted}");
    parties.provider.ok(&["delete", "apirollout", "next"]);
    // An object in a stage that is not Ready holds the next one up.
    let patient = json!({"condition": "Healthy", "objectCondition": "Ready", "timeoutSeconds": 600});
    parties.provider.apply(&rollout(&json!({"health": patient, "onFailure": "Revert"})).to_string());
    until_stage(&parties, 1);
    parties.consumer.apply(&database("sick", 1).to_string());
    let set = |status: &str| {
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}}).to_string();
        let path = format!("{IN_DEFAULT}/sick/status");
        let done = parties.in_view(Some(1)).send(Method::PATCH, &path, MERGE, patch);
        assert_eq!(done.code, 200, "{}", done.body);
    };
    set("False");
    say(&parties, "True");
    until("the next stage is refused", PATIENCE, || {
        let status = current(&parties)["status"].clone();
        let message = status["message"].as_str().unwrap_or_default().to_owned();
        (status["stage"] == 1 && message.contains("consumer-unhealthy/default/sick")).then_some(())
    });
    set("True");
    until_phase(&parties, "Complete");
}

fn a_rollout_keeps_what_it_rests_on(world: &World) {
    let parties = prepared(world, "rests", &with_backups());
    let http = Http::of(&parties.provider);
    let path = format!("{GROUP}/apirollouts");
    for (change, part) in [
        (json!({"export": "none"}), "there is no APIExport"),
        (json!({"schemas": ["none"]}), "there is no APIResourceSchema"),
        (json!({"schemas": ["v1.databases.db.example.com"]}), "the export's schemas already"),
        (json!({"stages": []}), "spec.stages"),
        (json!({"stages": [{}]}), "one of percent, organizations and labels"),
        (json!({"stages": [{"percent": 101}]}), "percent"),
    ] {
        let refused = http.json(Method::POST, &path, &rollout(&change));
        assert_eq!(refused.code, 422, "{change}: {}", refused.body);
        assert!(refused.body["message"].to_string().contains(part), "{part}: {}", refused.body);
    }
    let held = json!({"health": {"condition": "Healthy"}});
    assert_eq!(http.json(Method::POST, &path, &rollout(&held)).code, 201);
    until_stage(&parties, 1);
    let mut second = rollout(&held);
    second["metadata"]["name"] = "second".into();
    let refused = http.json(Method::POST, &path, &second);
    assert_eq!(refused.code, 409, "{}", refused.body);
    let refused = parties.provider.fails(&["delete", "apiresourceschema", NEXT]);
    assert!(refused.contains("APIRollout \"next\" names it"), "{refused}");
    parties.provider.apply(&schema("v3.databases.db.example.com", &with_backups()).to_string());
    let patch = json!({"spec": {"schemas": ["v3.databases.db.example.com"]}}).to_string();
    let refused = parties.provider.fails(&["patch", "apiexport", "pg", "--type=merge", "-p", &patch]);
    assert!(refused.contains("is changing the schemas"), "{refused}");
    let moved = json!({"spec": {"stages": [{"percent": 1}]}}).to_string();
    let refused = parties.provider.fails(&["patch", "apirollout", "next", "--type=merge", "-p", &moved]);
    assert!(refused.contains("stages is immutable"), "{refused}");
}

fn no_status_of_a_client_skips_a_stage(world: &World) {
    let parties = prepared(world, "skips", &small());
    let mut paused = rollout(&json!({"paused": true}));
    // A status that comes with a new object counts for nothing.
    paused["status"] = json!({"phase": "Progressing", "stage": 2});
    let http = Http::of(&parties.provider);
    assert_eq!(http.json(Method::POST, &format!("{GROUP}/apirollouts"), &paused).code, 201);
    assert_eq!(until_phase(&parties, "Paused")["status"]["stage"], 0);
    parties.consumer.apply(&database("large", 30).to_string());
    let path = format!("{GROUP}/apirollouts/next/status");
    for (stage, part) in
        [(2, "the next stage is 1"), (20, "the next stage is 1"), (1, "consumer-skips/default/large")]
    {
        let patch = json!({"status": {"phase": "Progressing", "stage": stage}}).to_string();
        let refused = http.send(Method::PATCH, &path, MERGE, patch);
        assert_eq!(refused.code, 422, "{stage}: {}", refused.body);
        assert!(refused.body["message"].to_string().contains(part), "{part}: {}", refused.body);
    }
    for odd in [r#"{"status": "x"}"#, r#"{"status": [1]}"#] {
        let refused = http.send(Method::PATCH, &path, MERGE, odd.to_owned());
        assert_eq!(refused.code, 422, "{odd}: {}", refused.body);
    }
    // A consumer can't reach for another one's stage, nor for the rollout.
    let consumer =
        Http::of_elsewhere(&parties.consumer, &format!("{}/projects/{}", parties.url, parties.names[0]));
    assert_eq!(consumer.get(&path).code, 401);
}

fn a_provider_sees_both_versions_during_a_rollout(world: &World) {
    let parties = Parties::new(world, "versions");
    let mut binding = parties.binding(&json!([]));
    binding["metadata"]["labels"] = json!({"ring": "canary"});
    parties.consumer.apply(&binding.to_string());
    parties.bind(&parties.other);
    parties.other.apply(&database("old", 1).to_string());
    let mut two = schema(NEXT, &widely());
    let mut second = two["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    two["spec"]["versions"][0]["storage"] = false.into();
    two["spec"]["versions"].as_array_mut().unwrap().push(second);
    parties.provider.apply(&two.to_string());
    parties.provider.apply(&rollout(&json!({"health": {"condition": "Healthy"}})).to_string());
    until_stage(&parties, 1);
    let v2 = |path: &str| path.replace("/v1/", "/v2/");
    let mut new = database("new", 2);
    new["apiVersion"] = "db.example.com/v2".into();
    assert_eq!(Http::of(&parties.consumer).json(Method::POST, &v2(IN_DEFAULT), &new).code, 201);
    assert_eq!(Http::of(&parties.other).get(&v2(DATABASES)).code, 404);
    for path in [DATABASES.to_owned(), v2(DATABASES)] {
        let list = parties.in_view(None).get(&path);
        let mut found = names(&list.body);
        found.sort_unstable();
        assert_eq!(found, ["new", "old"], "{path}: {}", list.body);
    }
    assert_eq!(parties.in_view(Some(1)).get(&format!("{}/new", v2(IN_DEFAULT))).code, 200);
    assert_eq!(parties.in_view(Some(2)).get(&format!("{}/old", v2(IN_DEFAULT))).code, 404);
    say(&parties, "False");
    until_phase(&parties, "Halted");
    parties.provider.ok(&[
        "patch",
        "apirollout",
        "next",
        "--type=merge",
        "-p",
        r#"{"spec":{"revert":true}}"#,
    ]);
    until_phase(&parties, "Reverted");
    // What was stored in the version that is gone is read in the one that is there.
    let http = Http::of(&parties.consumer);
    let kept = http.get(&format!("{IN_DEFAULT}/new"));
    assert_eq!((kept.code, &kept.body["apiVersion"]), (200, &json!("db.example.com/v1")), "{}", kept.body);
    for list in [http.get(DATABASES).body, parties.in_view(None).get(DATABASES).body] {
        let items = list["items"].as_array().unwrap();
        assert!(items.iter().all(|item| item["apiVersion"] == "db.example.com/v1"), "{list}");
    }
    let watching =
        parties.consumer.background(&["get", "databases", "--watch", "-o", "jsonpath={.apiVersion}{'\\n'}"]);
    watching.wait_for("db.example.com/v1");
    assert_eq!(http.get(&v2(DATABASES)).code, 404);
    let patch = json!({"spec": {"size": 5}}).to_string();
    let patched = http.send(Method::PATCH, &format!("{IN_DEFAULT}/new"), MERGE, patch);
    assert_eq!((patched.code, &patched.body["apiVersion"]), (200, &json!("db.example.com/v1")));
    let deleted = http.send(Method::DELETE, &format!("{IN_DEFAULT}/new"), "", "");
    assert_eq!(deleted.code, 200, "{}", deleted.body);
}

fn a_project_that_has_an_export_from_its_class_is_in_stages_too(world: &World) {
    let parties = prepared(world, "byclass", &with_backups());
    world.admin().apply(&classes::class(&parties, "rolled", &json!({})).to_string());
    world.admin().apply(&classes::class(&parties, "held", &json!({})).to_string());
    let classed = classes::project(world, "byclass", "rolled");
    let late = classes::project_named(world, "late-byclass", "byclass", "held");
    let backups_in = |http: &Http, name: &str| {
        let made = http.json(Method::POST, IN_DEFAULT, &database(name, 3));
        assert_eq!(made.code, 201, "{}", made.body);
        made.body["spec"]["backups"].clone()
    };
    assert_eq!(backups_in(&classed, "before"), Value::Null);
    // The label of the binding that its projects see names the class.
    let stages = json!([{"labels": {"apis.freehold.dev/class": "rolled"}}, {"percent": 100}]);
    parties
        .provider
        .apply(&rollout(&json!({"stages": stages, "health": {"condition": "Healthy"}})).to_string());
    let found = until_stage(&parties, 1);
    assert_eq!(
        (&found["status"]["updated"], &found["status"]["consumers"]),
        (&json!(1), &json!(4)),
        "{found}"
    );
    assert_eq!(backups_in(&classed, "early"), 7);
    assert_eq!(classed.get(&format!("{IN_DEFAULT}/before")).body["spec"]["backups"], 7);
    assert_eq!(backups_in(&late, "early"), Value::Null, "another class is in no stage yet");
    assert_eq!(backups(&parties.other, "early"), Value::Null);
    assert_eq!(names(&parties.in_view(None).get(DATABASES).body).len(), 4);
    say(&parties, "True");
    parties.provider.ok(&["wait", "--for=condition=Complete", "apirollout/next", "--timeout=120s"]);
    until("the other class has the schemas", PATIENCE, || {
        let read = late.get(&format!("{IN_DEFAULT}/early")).body;
        (read["spec"]["backups"] == 7).then_some(())
    });
    assert_eq!(backups_in(&late, "late"), 7);
}

fn roles_that_an_export_gains_reach_consumers_in_a_stage(world: &World) {
    let parties = prepared(world, "rolesstage", &with_backups());
    parties.provider.apply(&rollout(&json!({"health": {"condition": "Healthy"}})).to_string());
    until_stage(&parties, 1);
    let kubectls = [&parties.consumer, &parties.other];
    for kubectl in kubectls {
        kubectl.ok(&["create", "serviceaccount", "viewer"]);
        let subject = "--serviceaccount=default:viewer";
        kubectl.ok(&["create", "rolebinding", "viewer", "--clusterrole=view", subject]);
    }
    let may = |kubectl: &Kubectl| {
        let who = "--as=system:serviceaccount:default:viewer";
        kubectl.run(&["auth", "can-i", "get", "databases.db.example.com", who]).stdout.trim() == "yes"
    };
    assert!(kubectls.iter().all(|kubectl| !may(kubectl)));
    for (roles, expected) in
        [(json!([{"role": "view", "resources": ["databases"], "verbs": ["get"]}]), true), (json!([]), false)]
    {
        let patch = json!({"spec": {"roles": roles}}).to_string();
        parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &patch]);
        for kubectl in kubectls {
            until("the roles count", PATIENCE, || (may(kubectl) == expected).then_some(()));
        }
    }
}
