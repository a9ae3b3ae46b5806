//! What a class allows each of its planes, and how requests share a server.

use crate::storm::runtime;
use crate::{PATIENCE, contains_all, text};
use freehold_client::{Client, RawRequest, Resource};
use freehold_tests_integration::{Held, Http, Kubectl, Server, World, facts, until};
use futures_util::future::join_all;
use http::HeaderValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;

facts!(world:
    a_class_limits_what_its_planes_hold,
    the_last_places_of_a_plane_go_to_as_many_as_there_are,
    a_class_limits_requests_and_watches_of_its_planes,
    an_object_may_be_too_large_for_its_plane,
    an_owner_reads_what_the_plane_uses_and_the_provider_who_uses_most,
    planes_begin_with_the_flow_schemas_of_kubernetes,
    a_priority_level_of_the_planes_own_is_followed,
);

const MAPS: Resource = Resource::namespaced("", "v1", "configmaps");
const OF_DEFAULT: &str = "/api/v1/namespaces/default/configmaps";

/// A project whose class has these limits.
fn limited(world: &World, name: &str, limits: &str) -> Kubectl {
    let admin = world.admin();
    admin.apply(&format!(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: ControlPlaneClass\nmetadata: {{name: {name}}}\n\
         spec: {{limits: {limits}}}\n---\n\
         apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {{name: {name}}}\n---\n\
         apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {{name: {name}}}\n\
         spec: {{ownerRef: {{kind: Organization, name: {name}}}, controlPlane: {{class: {name}}}}}\n"
    ));
    world.wait_ready(name);
    world.server().project(name)
}

fn own(metrics: &str, line: &str) -> Option<f64> {
    metrics.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
}

fn metrics(kubectl: &Kubectl) -> String {
    let answer = Http::of(kubectl).get("/metrics");
    answer.body.as_str().unwrap_or_else(|| panic!("{}", answer.body)).to_owned()
}

fn a_class_limits_what_its_planes_hold(world: &World) {
    let limits = "{objects: 3, customResourceDefinitions: 0, webhooks: 1}";
    let kubectl = limited(world, "few", limits);
    for name in ["a", "b", "c"] {
        kubectl.ok(&["create", "configmap", name]);
    }
    let refused = kubectl.fails(&["create", "configmap", "d"]);
    let words =
        "exceeded limit of this control plane, requested: objects=1, used: objects=3, limited: objects=3";
    contains_all(&refused, &["is forbidden", words]);
    let dry = kubectl.fails(&["create", "configmap", "d", "--dry-run=server"]);
    contains_all(&dry, &[words]);
    kubectl.ok(&["label", "configmap", "a", "x=y"]);
    kubectl.ok(&["delete", "configmap", "a"]);
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.x.example"},
        "spec": {
            "group": "x.example", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }],
        },
    });
    let apply = |object: &Value| kubectl.run_with_input(&["create", "-f", "-"], &object.to_string());
    contains_all(&apply(&definition).expect_failure(), &["limited: customresourcedefinitions=0"]);
    let hook = |name: &str| {
        json!({
            "name": format!("{name}.x.example"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Ignore",
        })
    };
    let hooks = |count: usize| {
        let all: Vec<Value> = (0..count).map(|n| hook(&format!("h{n}"))).collect();
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "hooks"}, "webhooks": all,
        })
    };
    contains_all(&apply(&hooks(2)).expect_failure(), &["requested: webhooks=2, used: webhooks=0"]);
    apply(&hooks(1)).expect_ok();
    contains_all(&kubectl.fails(&["create", "configmap", "e"]), &[words]);
    world.admin().ok(&[
        "patch",
        "cpc",
        "few",
        "--type=merge",
        "-p",
        "{\"spec\":{\"limits\":{\"objects\":4}}}",
    ]);
    kubectl.ok(&["create", "configmap", "e"]);
    contains_all(&kubectl.fails(&["create", "configmap", "f"]), &["used: objects=4, limited: objects=4"]);
}

fn the_last_places_of_a_plane_go_to_as_many_as_there_are(world: &World) {
    let kubectl = limited(world, "last-places", "{objects: 20}");
    let client = Server::client_of(&kubectl);
    let codes = runtime().block_on(async {
        let mut tasks = JoinSet::new();
        for number in 0..100 {
            let client = client.clone();
            tasks.spawn(async move {
                let name = format!("m-{number}");
                let metadata = json!({"name": name, "namespace": "default"});
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
                client.create(&MAPS, &object).await.map_or_else(|error| error.code(), |_| 201)
            });
        }
        tasks.join_all().await
    });
    let of = |wanted: u16| codes.iter().filter(|code| **code == wanted).count();
    assert_eq!((of(201), of(403)), (20, 80), "{codes:?}");
    assert_eq!(own(&metrics(&kubectl), "freehold_plane_used{resource=\"objects\"}"), Some(20.0));
}

fn a_class_limits_requests_and_watches_of_its_planes(world: &World) {
    let kubectl = limited(world, "slow", "{watches: 1}");
    let at = format!("{}/projects/slow{OF_DEFAULT}?watch=true", world.server().url());
    let mut first = Held::get(&kubectl, &at, &[]);
    contains_all(&first.head(), &["200 OK"]);
    let http = Http::of(&kubectl);
    let refused = http.get(&format!("{OF_DEFAULT}?watch=true"));
    assert_eq!(refused.code, 429, "{}", refused.body);
    contains_all(&refused.body.to_string(), &["requested: watches=1, used: watches=1, limited: watches=1"]);
    drop(first);
    until("the place of the watch is free", PATIENCE, || {
        let again = http.get(&format!("{OF_DEFAULT}?watch=true&timeoutSeconds=1"));
        (again.code == 200).then_some(())
    });
    let kubectl = limited(world, "slower", "{requestsPerSecond: 5}");
    let client = Server::client_of(&kubectl);
    // Many at once: however slow the machine is, one after the other need not come to six in a second.
    let refused = runtime().block_on(async {
        loop {
            let request = RawRequest::get(OF_DEFAULT);
            let answers = join_all((0..50).map(|_| client.once(&request))).await;
            let mut answers = answers.into_iter().map(|answer| answer.expect("an answer"));
            if let Some(refused) = answers.find(|answer| answer.status.as_u16() == 429) {
                return refused;
            }
        }
    });
    assert_eq!(refused.headers["retry-after"], "1");
    contains_all(&String::from_utf8_lossy(&refused.body), &["limited: requestsPerSecond=5"]);
}

fn an_object_may_be_too_large_for_its_plane(world: &World) {
    let kubectl = limited(world, "large", "{objectBytes: 3000, bytes: 5000}");
    let create = |name: &str, bytes: usize| {
        let data = crate::noise(bytes as u64, bytes);
        let literal = format!("--from-literal=k={}", data.replace(['=', '\'', '\\'], "x"));
        kubectl.run(&["create", "configmap", name, &literal])
    };
    contains_all(&create("a", 3500).expect_failure(), &["Request entity too large", "can have 3000"]);
    create("a", 1500).expect_ok();
    create("b", 1500).expect_ok();
    contains_all(&create("c", 1500).expect_failure(), &["limited: bytes=5000"]);
    kubectl.ok(&["delete", "configmap", "a"]);
    create("c", 1500).expect_ok();
}

fn an_owner_reads_what_the_plane_uses_and_the_provider_who_uses_most(world: &World) {
    let kubectl = limited(world, "measured", "{objects: 50}");
    kubectl.ok(&["create", "configmap", "a"]);
    kubectl.ok(&["get", "configmaps"]);
    let text = metrics(&kubectl);
    assert!(own(&text, "freehold_plane_requests_total").is_some_and(|requests| requests >= 2.0), "{text}");
    assert_eq!(own(&text, "freehold_plane_limit{resource=\"objects\"}"), Some(50.0), "{text}");
    assert!(!text.contains("process_"), "the server's metrics are no business of a project: {text}");
    let whole = metrics(&world.admin());
    assert!(whole.contains("freehold_top_plane_cost_seconds_total{plane="), "{whole}");
}

fn planes_begin_with_the_flow_schemas_of_kubernetes(world: &World) {
    let kubectl = world.project("flows");
    let schemas = kubectl.ok(&["get", "flowschemas", "-o", "name"]);
    for name in
        ["exempt", "probes", "system-leader-election", "service-accounts", "global-default", "catch-all"]
    {
        assert!(schemas.lines().any(|line| line.ends_with(&format!("/{name}"))), "{schemas}");
    }
    let levels = kubectl.ok(&["get", "prioritylevelconfigurations", "-o", "name"]);
    assert_eq!((schemas.lines().count(), levels.lines().count()), (11, 8));
    let schema = |name: &str| text(&kubectl.json(&["get", "flowschema", name]), "/metadata/uid").to_owned();
    let client = Server::client_of(&kubectl);
    assert_eq!(matched(&client, None).1, schema("exempt"), "who may do anything");
    assert_eq!(
        matched(&client, Some("jane")),
        (403, schema("global-default")),
        "refused, and told all the same"
    );
}

/// The status of a list as somebody, and the uid of the flow schema that it matched.
fn matched(client: &Client, user: Option<&'static str>) -> (u16, String) {
    let mut request = RawRequest::get(OF_DEFAULT);
    if let Some(user) = user {
        request.headers.insert("impersonate-user", HeaderValue::from_static(user));
    }
    let answer = runtime().block_on(client.once(&request)).expect("an answer");
    let uid = answer.headers.get("x-kubernetes-pf-flowschema-uid").and_then(|uid| uid.to_str().ok());
    (answer.status.as_u16(), uid.unwrap_or_default().to_owned())
}

fn a_priority_level_of_the_planes_own_is_followed(world: &World) {
    let kubectl = world.project("own-flows");
    kubectl.apply(
        "apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: PriorityLevelConfiguration\nmetadata: {name: none}\n\
         spec: {type: Limited, limited: {nominalConcurrencyShares: 0, limitResponse: {type: Reject}, \
         borrowingLimitPercent: 0}}\n---\n\
         apiVersion: flowcontrol.apiserver.k8s.io/v1\nkind: FlowSchema\nmetadata: {name: jane}\n\
         spec:\n  matchingPrecedence: 5\n  priorityLevelConfiguration: {name: none}\n  rules:\n  \
         - subjects: [{kind: User, user: {name: jane}}]\n    \
         resourceRules: [{verbs: ['*'], apiGroups: ['*'], resources: [configmaps], namespaces: ['*']}]\n",
    );
    let schema = text(&kubectl.json(&["get", "flowschema", "jane"]), "/metadata/uid").to_owned();
    let client = Server::client_of(&kubectl);
    assert_eq!(matched(&client, Some("jane")), (429, schema), "a level without seats lets nobody in");
    assert_eq!(matched(&client, Some("joe")).0, 403, "others are not concerned");
    assert_eq!(matched(&client, None).0, 200);
}
