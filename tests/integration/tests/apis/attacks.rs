//! What a provider or a consumer could try to see or do more than it may.

use crate::{
    DATABASES, GROUP, IN_DEFAULT, Parties, SECRETS, condition, database, export, is_refused, limit, names,
};
use freehold_tests_integration::{Http, World, facts};
use http::Method;
use serde_json::json;

const MERGE: &str = "application/merge-patch+json";

facts!(world:
    a_provider_reads_nothing_that_no_consumer_accepted,
    a_provider_makes_no_identities_of_a_consumer,
    a_provider_reaches_only_the_objects_that_a_claim_is_about,
    a_provider_leads_out_of_its_view_by_no_path,
    a_continue_token_of_one_view_opens_in_no_other,
    what_a_provider_writes_gives_no_rights_in_the_consumers_plane,
    a_consumer_binds_no_export_that_it_may_not,
    a_forged_status_binds_nothing,
    a_hostile_schema_is_refused,
    a_suspended_consumer_shows_nothing,
    a_provider_passes_the_gates_of_the_consumers_plane,
    what_a_provider_does_in_a_consumer_is_in_its_trail,
);

fn a_provider_reads_nothing_that_no_consumer_accepted(world: &World) {
    let parties = Parties::new(world, "unaccepted");
    parties.bind(&parties.consumer);
    parties.consumer.ok(&["create", "secret", "generic", "own", "--from-literal=a=treasure"]);
    for view in [parties.in_view(None), parties.in_view(Some(1))] {
        for path in [
            SECRETS,
            "/api/v1/secrets",
            "/api/v1/configmaps",
            "/api/v1/pods",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        ] {
            let answer = view.get(path);
            assert!(is_refused(&answer), "{path}: {} {}", answer.code, answer.body);
            assert!(!answer.body.to_string().contains("treasure"));
        }
        let made = view.json(
            Method::POST,
            SECRETS,
            &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}),
        );
        assert!(is_refused(&made), "{}", made.body);
    }
    // Of two consumers, the one that accepted nothing shows nothing.
    let accepted = json!([{"resource": "configmaps", "verbs": ["get", "list"]}]);
    parties.other.apply(&parties.binding(&accepted).to_string());
    let list = parties.in_view(None).get("/api/v1/configmaps").body;
    let planes: std::collections::BTreeSet<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["metadata"]["annotations"]["resourcemanager.freehold.dev/project"].to_string())
        .collect();
    assert_eq!(planes.into_iter().collect::<Vec<_>>(), [format!("{:?}", parties.names[2])]);
    let refused = parties.in_view(Some(2)).send(
        Method::DELETE,
        "/api/v1/namespaces/default/configmaps/kube-root-ca.crt",
        "",
        "",
    );
    assert_eq!(refused.code, 403);
    assert!(
        refused.body["message"]
            .as_str()
            .unwrap()
            .contains("has not accepted a claim of APIExport \"pg\" to delete it"),
        "{}",
        refused.body
    );
    // What a consumer accepts and the export does not claim is nothing either.
    let more = json!([{"resource": "pods", "verbs": ["*"]}, {"resource": "configmaps", "verbs": ["*"]}]);
    parties.other.apply(&parties.binding(&more).to_string());
    assert!(is_refused(&parties.in_view(Some(2)).get("/api/v1/pods")));
}

fn a_provider_makes_no_identities_of_a_consumer(world: &World) {
    let parties = Parties::new(world, "identities");
    let accepted = json!([{"resource": "secrets", "verbs": ["get", "create", "update", "patch"], "labels": {"db": "yes"}}]);
    parties.consumer.apply(&parties.binding(&accepted).to_string());
    parties.consumer.ok(&["create", "serviceaccount", "boss"]);
    let secret = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
            "metadata": {"name": name, "labels": {"db": "yes"}, "annotations": {"kubernetes.io/service-account.name": "boss"}}})
    };
    let view = parties.in_view(Some(1));
    let bootstrap = json!({"apiVersion": "v1", "kind": "Secret", "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": "bootstrap-token-abcdef", "labels": {"db": "yes"}}});
    for body in [secret("steal"), bootstrap] {
        let made = view.json(Method::POST, SECRETS, &body);
        assert_eq!(made.code, 403, "{}", made.body);
        assert!(made.body["message"].as_str().unwrap().contains("identities"), "{}", made.body);
    }
    // Nor does it make one of the consumer's another account's.
    parties.consumer.apply(&secret("given").to_string());
    let other = r#"{"metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}}}"#;
    let patched = view.send(Method::PATCH, &format!("{SECRETS}/given"), MERGE, other);
    assert!(patched.body.to_string().contains("identities"), "{}", patched.body);
    assert_eq!(view.json(Method::PUT, &format!("{SECRETS}/given"), &secret("given")).code, 403);
}

fn a_provider_reaches_only_the_objects_that_a_claim_is_about(world: &World) {
    let parties = Parties::new(world, "selected");
    let accepted = json!([{"resource": "secrets", "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"], "labels": {"db": "yes"}}]);
    parties.consumer.apply(&parties.binding(&accepted).to_string());
    parties.consumer.ok(&["create", "secret", "generic", "own", "--from-literal=a=treasure"]);
    let view = parties.in_view(Some(1));
    let secret = |name: &str, labels| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "labels": labels}});
    assert_eq!(view.json(Method::POST, SECRETS, &secret("given", json!({"db": "yes"}))).code, 201);
    assert_eq!(view.json(Method::POST, SECRETS, &secret("other", json!({}))).code, 403);
    for list in [
        view.get(SECRETS),
        view.get("/api/v1/secrets?fieldSelector=metadata.name=own"),
        parties.in_view(None).get("/api/v1/secrets?labelSelector=!db"),
    ] {
        assert!(!list.body.to_string().contains("own"), "{}", list.body);
    }
    assert_eq!(names(&view.get(SECRETS).body), ["given"]);
    let own = format!("{SECRETS}/own");
    assert_eq!(view.get(&own).code, 403);
    assert_eq!(view.send(Method::DELETE, &own, "", "").code, 403);
    assert_eq!(
        view.json(Method::PUT, &own, &secret("own", json!({"db": "yes"}))).code,
        403,
        "it does not make it its own"
    );
    assert_eq!(view.send(Method::DELETE, SECRETS, "", "").code, 403, "nor all at once");
    let unlabel = r#"{"metadata": {"labels": {"db": null}}}"#;
    let patched = view.send(Method::PATCH, &format!("{SECRETS}/given"), MERGE, unlabel);
    assert!(
        patched.body.to_string().contains("not among the objects"),
        "nor does it take one out: {}",
        patched.body
    );
    let data = r#"{"stringData": {"user": "orders"}}"#;
    assert_eq!(view.send(Method::PATCH, &format!("{SECRETS}/given"), MERGE, data).code, 200);
    assert_eq!(parties.consumer.ok(&["get", "secret", "own", "-o", "jsonpath={.data.a}"]), "dHJlYXN1cmU=");
}

fn a_provider_leads_out_of_its_view_by_no_path(world: &World) {
    let parties = Parties::new(world, "paths");
    parties.bind(&parties.consumer);
    let http = Http::of_elsewhere(&parties.provider, &parties.url);
    let base = format!("/services/apiexports/{}/pg", parties.names[0]);
    let plane = world.uid(&parties.names[2]);
    for path in [
        format!("{base}/clusters/{}{DATABASES}", parties.names[2]),
        format!("{base}/planes/{plane}{DATABASES}"),
        format!("{base}/planes/core/api/v1/secrets"),
        format!("{base}/clusters/*/clusters/{}{DATABASES}", parties.names[1]),
        format!("{base}/../other{DATABASES}"),
        format!("/services/apiexports/{}/none{DATABASES}", parties.names[0]),
        format!("/services/apiexports/{}/pg{DATABASES}", parties.names[1]),
    ] {
        let answer = http.get(&path);
        assert!([400, 401, 403, 404].contains(&answer.code), "{path}: {} {}", answer.code, answer.body);
    }
    let stranger = world.person("nobody-of-apis", &base).run(&["get", "--raw", DATABASES]);
    assert!(!stranger.success);
}

fn a_continue_token_of_one_view_opens_in_no_other(world: &World) {
    let (one, two) = (Parties::new(world, "token-a"), Parties::new(world, "token-b"));
    for parties in [&one, &two] {
        parties.bind(&parties.consumer);
        for nth in 0..3 {
            parties.consumer.apply(&database(&format!("db-{nth}"), 1).to_string());
        }
    }
    let page = one.in_view(None).get(&format!("{DATABASES}?limit=1")).body;
    let token = page["metadata"]["continue"].as_str().unwrap();
    for http in [two.in_view(None), one.in_view(Some(1)), Http::of(&one.consumer)] {
        let answer = http.get(&format!("{DATABASES}?limit=1&continue={token}"));
        assert_eq!(answer.code, 400, "{}", answer.body);
    }
}

fn what_a_provider_writes_gives_no_rights_in_the_consumers_plane(world: &World) {
    let parties = Parties::new(world, "rights");
    let claims = json!([{"group": "rbac.authorization.k8s.io", "resource": "clusterrolebindings", "verbs": ["*"]},
        {"resource": "serviceaccounts", "verbs": ["*"]}]);
    let tag = "consumers-rights";
    parties.provider.apply(&export("pg", tag, &claims).to_string());
    parties.consumer.apply(&parties.binding(&claims).to_string());
    let view = parties.in_view(Some(1));
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "mine"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}});
    let answer = view.json(Method::POST, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding);
    assert!([403, 404].contains(&answer.code), "{}", answer.body);
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let answer = view.json(Method::POST, "/api/v1/namespaces/default/serviceaccounts/default/token", &token);
    assert_eq!(answer.code, 403, "{}", answer.body);
}

fn a_consumer_binds_no_export_that_it_may_not(world: &World) {
    let (one, two) = (Parties::new(world, "may"), Parties::new(world, "may-not"));
    let stranger = Http::of(&two.consumer);
    let path = format!("{GROUP}/apibindings");
    let refused = stranger.json(Method::POST, &path, &one.binding(&json!([])));
    assert_eq!(refused.code, 403, "{}", refused.body);
    let mut absent = one.binding(&json!([]));
    absent["spec"]["export"]["name"] = "absent".into();
    let told = stranger.json(Method::POST, &path, &absent);
    let message =
        |body: &serde_json::Value| body["message"].as_str().unwrap_or_default().replace("absent", "pg");
    assert_eq!(
        (told.code, message(&told.body)),
        (403, message(&refused.body)),
        "it does not tell which exports there are"
    );
    assert_eq!(names(&stranger.get(&path).body), Vec::<&str>::new());
    assert_eq!(stranger.get(DATABASES).code, 404);
    // Whom the provider no longer lets in stays, and nobody new comes.
    one.bind(&one.consumer);
    one.provider.ok(&[
        "patch",
        "apiexport",
        "pg",
        "--type=merge",
        "-p",
        r#"{"spec":{"consumers":{"organizations":[]}}}"#,
    ]);
    assert_eq!(Http::of(&one.other).json(Method::POST, &path, &one.binding(&json!([]))).code, 403);
    assert_eq!(Http::of(&one.consumer).get(DATABASES).code, 200);
}

fn a_forged_status_binds_nothing(world: &World) {
    let (one, two) = (Parties::new(world, "proof"), Parties::new(world, "forger"));
    one.bind(&one.consumer);
    let status = Http::of(&one.consumer).get(&format!("{GROUP}/apibindings/pg")).body["status"].clone();
    // The forger has a binding of its own, and gives it the status of the other one.
    two.bind(&two.consumer);
    let forger = Http::of(&two.consumer);
    let path = format!("{GROUP}/apibindings/pg/status");
    let patch = json!({"status": status}).to_string();
    let answer = forger.send(Method::PATCH, &path, "application/merge-patch+json", patch);
    let now = forger.get(&format!("{GROUP}/apibindings/pg")).body;
    assert_ne!(now["status"]["plane"], status["plane"], "{} {}", answer.code, now);
    forger.json(Method::POST, IN_DEFAULT, &database("forged", 1));
    assert_eq!(names(&one.in_view(None).get(DATABASES).body), Vec::<&str>::new());
}

fn a_hostile_schema_is_refused(world: &World) {
    let parties = Parties::new(world, "hostile");
    let http = Http::of(&parties.provider);
    let path = format!("{GROUP}/apiresourceschemas");
    let mut costly = crate::schema(
        "v8.databases.db.example.com",
        &json!({"type": "object", "properties": {"spec": {
        "type": "object", "properties": {"a": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}}},
        "x-kubernetes-validations": [{"rule": "self.a.all(x, self.a.all(y, x.all(z, y.all(w, w.contains(z)))))"}]}}}),
    );
    let refused = http.json(Method::POST, &path, &costly);
    assert_eq!(refused.code, 422, "{}", refused.body);
    assert!(refused.body.to_string().contains("cost"), "{}", refused.body);
    costly["spec"]["versions"] = json!([]);
    assert_eq!(http.json(Method::POST, &path, &costly).code, 422);
    costly = crate::schema("v9.pods", &crate::widely());
    costly["spec"]["group"] = "apps".into();
    costly["spec"]["names"] = json!({"plural": "deployments", "kind": "Deployment"});
    let taken = http.json(Method::POST, &path, &costly);
    if taken.code == 201 {
        let all = json!({"spec": {"schemas": ["v9.pods"]}}).to_string();
        parties.provider.ok(&["patch", "apiexport", "pg", "--type=merge", "-p", &all]);
        parties.bind(&parties.consumer);
        let binding = Http::of(&parties.consumer).get(&format!("{GROUP}/apibindings/pg")).body;
        assert_eq!(condition(&binding, "Bound").1, "NamingConflict");
    }
}

fn a_suspended_consumer_shows_nothing(world: &World) {
    let parties = Parties::new(world, "suspended");
    parties.bind(&parties.consumer);
    parties.consumer.apply(&database("orders", 1).to_string());
    assert_eq!(names(&parties.in_view(None).get(DATABASES).body), ["orders"]);
    let patch = json!({"spec": {"suspension": {"reason": "unpaid"}}}).to_string();
    world.admin().ok(&["patch", "project", &parties.names[1], "--type=merge", "-p", &patch]);
    assert_eq!(names(&parties.in_view(None).get(DATABASES).body), Vec::<&str>::new());
    let one = parties.in_view(Some(1));
    for answer in [
        one.get(DATABASES),
        one.get(&format!("{IN_DEFAULT}/orders")),
        one.json(Method::POST, IN_DEFAULT, &database("x", 1)),
    ] {
        assert_eq!(answer.code, 403, "{}", answer.body);
    }
}

fn what_a_provider_does_in_a_consumer_is_in_its_trail(world: &World) {
    let parties = Parties::new(world, "trail");
    parties.bind(&parties.consumer);
    assert_eq!(
        parties.in_view(Some(1)).json(Method::POST, IN_DEFAULT, &database("by-provider", 1)).code,
        201
    );
    let trail = Http::of_elsewhere(&world.admin(), &format!("{}/organizations/consumers-trail", parties.url));
    freehold_tests_integration::until("the trail has it", crate::PATIENCE, || {
        let events = trail.get("/apis/audit.k8s.io/v1/events").body.to_string();
        (events.contains("by-provider") || events.contains(&parties.view(Some(1)))).then_some(())
    });
}

fn a_provider_passes_the_gates_of_the_consumers_plane(world: &World) {
    let parties = Parties::new(world, "gates");
    parties.bind(&parties.consumer);
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "small"},
        "spec": {"failurePolicy": "Fail", "validations": [{"expression": "object.spec.size < 5", "message": "too large for us"}],
            "matchConstraints": {"resourceRules": [{"apiGroups": ["db.example.com"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["databases"]}]}}});
    let bound = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "small"},
        "spec": {"policyName": "small", "validationActions": ["Deny"]}});
    parties.consumer.apply(&policy.to_string());
    parties.consumer.apply(&bound.to_string());
    let view = parties.in_view(Some(1));
    freehold_tests_integration::until("the policy counts", crate::PATIENCE, || {
        let refused = view.json(Method::POST, IN_DEFAULT, &database("large", 7));
        (refused.code == 422 && refused.body.to_string().contains("too large for us")).then_some(())
    });
    limit(&parties.consumer, "none", "count/databases.db.example.com=0");
    let over = view.json(Method::POST, IN_DEFAULT, &database("small", 1));
    assert!(over.code == 403 && over.body.to_string().contains("exceeded quota"), "{}", over.body);
}
