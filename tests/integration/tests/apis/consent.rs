//! What a consumer agrees to, and what an export brings with it.

use crate::{
    DATABASES, GROUP, IN_DEFAULT, PATIENCE, Parties, SECRETS, condition, database, export, is_refused,
};
use freehold_tests_integration::{Http, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    terms_are_shown_and_have_to_be_accepted_before_anything_is_bound,
    default_claims_count_unless_they_are_rejected,
    default_claims_that_come_later_are_not_accepted_by_anybody,
    an_export_adds_to_the_roles_of_consumers_what_its_own_kinds_are_about,
    an_export_is_bound_by_projects_with_the_labels_that_it_wants,
);

const MERGE: &str = "application/merge-patch+json";

fn terms_are_shown_and_have_to_be_accepted_before_anything_is_bound(world: &World) {
    let parties = Parties::new(world, "terms");
    let set = |text: &str| {
        let patch = json!({"spec": {"terms": text}}).to_string();
        parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &patch]);
        parties.provider.json(&["get", "apiexport", "pg"])["status"]["terms"].as_str().unwrap().to_owned()
    };
    let digest = set("Objects are seen by our staff.");
    parties.bind(&parties.consumer);
    let consumer = Http::of(&parties.consumer);
    let at = format!("{GROUP}/apibindings/pg");
    let binding = consumer.get(&at).body;
    assert_eq!(condition(&binding, "Bound"), ("False".to_owned(), "TermsNotAccepted".to_owned()));
    let text = binding["status"]["conditions"].to_string();
    assert!(text.contains("Objects are seen by our staff.") && text.contains(&digest), "{text}");
    assert_eq!(consumer.get(DATABASES).code, 404);
    let accept = |digest: &str| {
        let patch = json!({"spec": {"acceptedTerms": digest}}).to_string();
        let answer = consumer.send(Method::PATCH, &at, MERGE, patch);
        assert_eq!(answer.code, 200, "{}", answer.body);
        answer.body
    };
    assert_eq!(condition(&accept("sha256:other"), "Bound").1, "TermsNotAccepted");
    assert_eq!(condition(&accept(&digest), "Bound").0, "True");
    assert_eq!(consumer.json(Method::POST, IN_DEFAULT, &database("orders", 3)).code, 201);
    // Terms that change take nothing from who is bound, and are told.
    let later = set("Objects are sold.");
    assert_ne!(later, digest);
    assert_eq!(consumer.get(DATABASES).code, 200);
    let told =
        consumer.send(Method::PATCH, &at, MERGE, r#"{"metadata":{"labels":{"a":"b"}}}"#.to_owned()).body;
    assert_eq!(
        (condition(&told, "Bound").0, condition(&told, "Ready").1),
        ("True".into(), "TermsChanged".into())
    );
}

/// An export of the provider with a default claim about namespaces.
fn with_defaults(parties: &Parties, defaults: &Value) -> Value {
    let consumers = format!("consumers-{}", parties.names[0].trim_start_matches("provider-"));
    let mut export = export("pg", &consumers, &json!([]));
    export["spec"]["defaultClaims"] = defaults.clone();
    export
}

fn default_claims_count_unless_they_are_rejected(world: &World) {
    let parties = Parties::new(world, "defaults");
    let namespaces = json!([{"resource": "namespaces", "verbs": ["get", "list"]}]);
    for forbidden in [
        json!([{"resource": "secrets", "verbs": ["get"]}]),
        json!([{"resource": "configmaps", "verbs": ["update"], "labels": {"a": "b"}}]),
        json!([{"group": "rbac.authorization.k8s.io", "resource": "clusterroles", "verbs": ["get"]}]),
        json!([{"resource": "namespaces", "verbs": ["*"]}]),
    ] {
        let refused = parties
            .provider
            .run_with_input(&["apply", "-f", "-"], &with_defaults(&parties, &forbidden).to_string());
        assert!(refused.expect_failure().contains("spec.defaultClaims[0]"));
    }
    parties.provider.apply(&with_defaults(&parties, &namespaces).to_string());
    parties.bind(&parties.consumer);
    let mut rejecting = parties.binding(&json!([]));
    rejecting["spec"]["rejectedClaims"] = namespaces.clone();
    parties.other.apply(&rejecting.to_string());
    assert_eq!(parties.in_view(Some(1)).get("/api/v1/namespaces").code, 200);
    assert!(is_refused(&parties.in_view(Some(2)).get("/api/v1/namespaces")));
    for kubectl in [&parties.consumer, &parties.other] {
        assert_eq!(condition(&kubectl.json(&["get", "apibinding", "pg"]), "Ready").0, "True");
    }
    // Rejected later, it ends.
    parties.consumer.apply(&rejecting.to_string());
    until("the claim ends", PATIENCE, || {
        is_refused(&parties.in_view(Some(1)).get("/api/v1/namespaces")).then_some(())
    });
}

fn default_claims_that_come_later_are_not_accepted_by_anybody(world: &World) {
    let parties = Parties::new(world, "later");
    parties.bind(&parties.consumer);
    let namespaces = json!([{"resource": "namespaces", "verbs": ["get", "list"]}]);
    parties.provider.apply(&with_defaults(&parties, &namespaces).to_string());
    parties.consumer.ok(&["label", "apibinding", "pg", "seen=yes"]);
    assert!(is_refused(&parties.in_view(Some(1)).get("/api/v1/namespaces")));
    assert_eq!(condition(&parties.consumer.json(&["get", "apibinding", "pg"]), "Ready").1, "ClaimsPending");
    // Nor does a consumer's status say what it accepts.
    let forged = json!({"status": {"defaultClaims": [{"resource": "secrets", "verbs": ["get", "list"]}]}});
    Http::of(&parties.consumer).send(
        Method::PATCH,
        &format!("{GROUP}/apibindings/pg/status"),
        MERGE,
        forged.to_string(),
    );
    assert!(is_refused(&parties.in_view(Some(1)).get(SECRETS)));
}

fn an_export_adds_to_the_roles_of_consumers_what_its_own_kinds_are_about(world: &World) {
    let parties = Parties::new(world, "roles");
    let kubectl = &parties.consumer;
    for (account, role) in [("viewer", "view"), ("editor", "edit")] {
        kubectl.ok(&["create", "serviceaccount", account]);
        let subject = format!("--serviceaccount=default:{account}");
        kubectl.ok(&["create", "rolebinding", account, &format!("--clusterrole={role}"), &subject]);
    }
    let may = |account: &str, verb: &str, what: &str| {
        let who = format!("--as=system:serviceaccount:default:{account}");
        let (resource, subresource) = what.split_once('/').unwrap_or((what, ""));
        let of = format!("--subresource={subresource}");
        kubectl.run(&["auth", "can-i", verb, resource, &of, &who]).stdout.trim() == "yes"
    };
    parties.bind(kubectl);
    assert!(!may("viewer", "get", "databases.db.example.com"));
    let secrets_before = may("viewer", "get", "secrets");
    let set = |roles: &Value| {
        let patch = json!({"spec": {"roles": roles}}).to_string();
        parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &patch]);
    };
    // Of what a hostile provider names only the exported kinds count.
    set(&json!([
        {"role": "view", "resources": ["databases", "secrets", "*", "clusterroles"], "verbs": ["get", "list"]},
        {"role": "edit", "resources": ["databases/status"], "verbs": ["patch"]},
    ]));
    until("viewers may look", PATIENCE, || may("viewer", "get", "databases.db.example.com").then_some(()));
    assert_eq!(may("viewer", "get", "secrets"), secrets_before);
    assert!(!may("viewer", "get", "clusterroles.rbac.authorization.k8s.io"));
    assert!(!may("viewer", "delete", "databases.db.example.com"));
    assert!(may("editor", "get", "databases.db.example.com"), "edit contains view");
    assert!(may("editor", "patch", "databases.db.example.com/status"));
    assert!(!may("viewer", "patch", "databases.db.example.com/status"));
    set(&json!([]));
    until("the rights end", PATIENCE, || (!may("viewer", "get", "databases.db.example.com")).then_some(()));
    // A consumer's own definition of that name is nothing of the provider's.
    let own = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "databases.db.example.com"}, "spec": crate::schema("x", &crate::widely())["spec"],
    });
    parties.other.apply(&own.to_string());
    set(&json!([{"role": "view", "resources": ["databases"], "verbs": ["get"]}]));
    parties.bind(&parties.other);
    parties.other.ok(&["create", "serviceaccount", "viewer"]);
    parties.other.ok(&[
        "create",
        "rolebinding",
        "viewer",
        "--clusterrole=view",
        "--serviceaccount=default:viewer",
    ]);
    let who = "--as=system:serviceaccount:default:viewer";
    let answer = parties.other.run(&["auth", "can-i", "get", "databases.db.example.com", who]);
    assert_eq!(answer.stdout.trim(), "no");
}

fn an_export_is_bound_by_projects_with_the_labels_that_it_wants(world: &World) {
    let parties = Parties::new(world, "labels");
    let consumers = json!({"organizations": ["consumers-labels"], "labels": {"tier": "gold"}});
    let patch = json!({"spec": {"consumers": consumers}}).to_string();
    parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &patch]);
    let bind = || {
        let http = Http::of(&parties.consumer);
        http.json(Method::POST, &format!("{GROUP}/apibindings"), &parties.binding(&json!([])))
    };
    let refused = bind();
    assert_eq!(refused.code, 403, "{}", refused.body);
    world.admin().ok(&["label", "project", &parties.names[1], "tier=gold"]);
    let bound = bind();
    assert_eq!((bound.code, condition(&bound.body, "Bound").0), (201, "True".to_owned()), "{}", bound.body);
    // The label alone opens nothing to who is of another organization.
    world.organization("strangers-labels", &["stranger-labels"]);
    world.admin().ok(&["label", "project", "stranger-labels", "tier=gold"]);
    let stranger = Http::of(&world.server().project("stranger-labels"));
    let refused = stranger.json(Method::POST, &format!("{GROUP}/apibindings"), &parties.binding(&json!([])));
    assert_eq!(refused.code, 403, "{}", refused.body);
}
