//! An organization's audit trail can't be flooded, read by a successor, forged with headers or dodged by another path to the
//! same change.

use crate::{PATIENCE, attacks::with_lines, contains_all, items, text};
use freehold_tests_integration::{Engine, Http, Kubectl, Options, Server, World, facts, until};
use http::Method;
use serde_json::{Value, json};
use std::collections::HashSet;

facts!(world:
    a_flood_of_strangers_leaves_the_trail_of_members_as_it_was,
    a_successor_of_the_same_name_reads_nothing_of_its_predecessor,
    nobody_says_themselves_where_a_request_came_from,
    each_kind_of_change_leaves_an_event_for_its_owner,
    refusals_name_who_asked_and_not_whom_they_wanted_to_be,
    what_is_done_in_a_dedicated_project_is_in_the_trail_like_elsewhere,
);
mod proxied {
    use super::*;
    facts!(engine: a_trusted_proxy_says_where_a_request_came_from, a_refusal_is_in_the_trail_beside_a_policy_of_the_operator);
}

const EVENTS: &str = "/apis/audit.k8s.io/v1/events";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const RESOURCES: &str = "/apis/resourcemanager.freehold.dev/v1alpha1";

/// All events of an organization, over all pages.
pub(crate) fn trail(admin: &Kubectl, organization: &str) -> Vec<Value> {
    let http = Http::of(admin);
    let (mut events, mut from) = (Vec::new(), String::new());
    loop {
        let page = http.get(&format!("/organizations/{organization}{EVENTS}?continue={from}"));
        assert_eq!(page.code, 200, "{}", page.body);
        events.extend(items(&page.body).cloned());
        from = text(&page.body, "/metadata/continue").to_owned();
        if from.is_empty() {
            return events;
        }
    }
}

/// Waits for an event of an organization.
pub(crate) fn event(admin: &Kubectl, organization: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    until(&format!("{what} is in the trail of {organization}"), PATIENCE, || {
        trail(admin, organization).into_iter().find(|event| is(event))
    })
}

fn is_about(name: &str) -> impl Fn(&Value) -> bool + '_ {
    move |event| event["objectRef"]["name"] == name
}

fn a_flood_of_strangers_leaves_the_trail_of_members_as_it_was(world: &World) {
    world.organization("flooded", &["flooded-a"]);
    world.organization("flooding", &["flooding-a"]);
    let (admin, project) = (world.admin(), world.server().project("flooded-a"));
    project.ok(&["create", "configmap", "before-the-flood"]);
    event(&admin, "flooded", "what a member did", is_about("before-the-flood"));
    let before = trail(&admin, "flooded").len();

    let url = format!("{}/projects/flooded-a", world.server().url());
    let strangers = [
        ("nobody", Http::with_token(&project, &url, ""), 403),
        ("a bad token", Http::with_token(&project, &url, "no-token"), 401),
        ("another organization", Http::of_elsewhere(&world.server().project("flooding-a"), &url), 401),
        ("a user of nothing", Http::of_elsewhere(&world.server().person("nobody1"), &url), 403),
    ];
    let long = crate::noise(7, 4_000).replace(|c: char| !c.is_ascii_alphanumeric(), "x");
    for nth in 0..600 {
        for (who, http, code) in &strangers {
            let read = http.get(&format!("/api/v1/namespaces/default/secrets/{long}?x={nth}{long}"));
            assert_eq!(read.code, *code, "{who}");
            if nth % 10 == 0 {
                let written = http.json(Method::POST, MAPS, &json!({"metadata": {"name": long}}));
                assert_eq!(written.code, *code, "{who}");
            }
        }
    }
    project.ok(&["create", "configmap", "after-the-flood"]);
    event(&admin, "flooded", "what a member did then", is_about("after-the-flood"));
    let left_out = |event: &Value| event["annotations"]["audit.freehold.dev/left-out"].is_string();
    event(&admin, "flooded", "how many were left out", left_out);

    let events = trail(&admin, "flooded");
    assert!(events.iter().any(is_about("before-the-flood")), "what a member did is there still");
    let added = events.len() - before;
    assert!(added < 400, "{added} of more than 2,400 refusals are kept");
    for event in &events {
        let (bytes, uri) = (event.to_string().len(), text(event, "/requestURI").len());
        assert!(bytes < 4_000 && uri < 400, "{bytes} bytes: {event}");
    }
}

fn a_successor_of_the_same_name_reads_nothing_of_its_predecessor(world: &World) {
    let admin = world.admin();
    let uid = || text(&admin.json(&["get", "organization", "oldco"]), "/metadata/uid").to_owned();
    world.organization("oldco", &["oldproj"]);
    let first = uid();
    world.server().project("oldproj").ok(&["create", "configmap", "project-falcon-acquisition"]);
    event(&admin, "oldco", "what the predecessor did", is_about("project-falcon-acquisition"));
    admin.ok(&["delete", "project", "oldproj"]);
    admin.ok(&["delete", "organization", "oldco"]);

    world.organization("oldco", &[]);
    let second = uid();
    assert_ne!(first, second);
    let http = Http::of(&admin);
    let seen = trail(&admin, "oldco");
    let strange = seen.iter().find(|event| event.to_string().contains("oldproj"));
    assert!(strange.is_none(), "{strange:?}");
    // A place in the one trail is none in the other.
    let list = |token: &str| http.get(&format!("/organizations/oldco{EVENTS}?continue={token}")).code;
    assert_eq!((list(&format!("{second}.{:016}", 0)), list(&format!("{first}.{:016}", 0))), (200, 400));
    admin.ok(&["-n", "organization-oldco", "create", "configmap", "the-successors"]);
    event(&admin, "oldco", "what the successor did", is_about("the-successors"));
    // What is not read by anybody is not kept either.
    let key = format!("system/audit/{first}/");
    until("the predecessor's trail is gone from the store", PATIENCE, || {
        (!stored(&http).contains(&key)).then_some(())
    });
    assert!(stored(&http).contains(&format!("system/audit/{second}/")));
}

/// Keys and values of the store, as a backup has them.
fn stored(http: &Http) -> String {
    let backup = http.get("/backup");
    assert_eq!(backup.code, 200);
    backup.body.as_str().unwrap_or_default().to_owned()
}

fn nobody_says_themselves_where_a_request_came_from(world: &World) {
    world.organization("sourced", &["sourced-a"]);
    let (admin, project) = (world.admin(), world.server().project("sourced-a"));
    let forged = ["x-forwarded-for: 8.8.8.8, 127.0.0.1", "x-real-ip: 9.9.9.9", "forwarded: for=7.7.7.7"];
    let body = json!({"metadata": {"name": "sourced"}}).to_string();
    let made = with_lines(&project, "POST", &format!("/projects/sourced-a{MAPS}"), &forged, &body);
    contains_all(&made, &["HTTP/1.1 201 "]);
    let event = event(&admin, "sourced", "the change", is_about("sourced"));
    assert_eq!(event["sourceIPs"], json!(["127.0.0.1"]));
}

fn start(engine: Engine, args: &[String]) -> (Server, Kubectl) {
    let server = Server::start(Options { engine, args: args.to_vec(), ..Options::default() });
    server.kubectl().apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}\n---\n\
         apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: web}\n\
         spec: {ownerRef: {kind: Organization, name: acme}}\n",
    );
    let web = server.project("web");
    (server, web)
}

fn a_trusted_proxy_says_where_a_request_came_from(engine: Engine) {
    let (server, web) = start(engine, &["--audit-trusted-proxies=127.0.0.0/8,192.0.2.0/24".to_owned()]);
    let lines = ["x-forwarded-for: 8.8.8.8, 203.0.113.9, 192.0.2.1"];
    let body = json!({"metadata": {"name": "proxied"}}).to_string();
    contains_all(
        &with_lines(&web, "POST", &format!("/projects/web{MAPS}"), &lines, &body),
        &["HTTP/1.1 201 "],
    );
    let event = event(&server.kubectl(), "acme", "the change", is_about("proxied"));
    assert_eq!(event["sourceIPs"], json!(["203.0.113.9", "192.0.2.1", "127.0.0.1"]));
}

fn a_refusal_is_in_the_trail_beside_a_policy_of_the_operator(engine: Engine) {
    let folder = tempfile::TempDir::new().expect("a test fails by panicking");
    let policy = folder.path().join("policy.yaml");
    let rules = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: Metadata\n";
    std::fs::write(&policy, rules).expect("a test fails by panicking");
    let args = [
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", folder.path().join("audit.log").display()),
    ];
    let (server, web) = start(engine, &args);
    web.fails(&["get", "configmap", "refused-beside-a-policy", "--as", "mallory"]);
    let refused = event(&server.kubectl(), "acme", "the refusal", is_about("refused-beside-a-policy"));
    assert_eq!(refused["responseStatus"]["code"], 403);
}

fn refusals_name_who_asked_and_not_whom_they_wanted_to_be(world: &World) {
    world.organization("framing", &["framing-a"]);
    let (admin, project) = (world.admin(), world.server().project("framing-a"));
    project.fails(&["get", "configmap", "framed", "--as", "organization:framing:innocent"]);
    let refused = event(&admin, "framing", "the refusal", is_about("framed"));
    assert_ne!(refused["user"]["username"], "organization:framing:innocent");
    assert_eq!(refused["impersonatedUser"]["username"], "organization:framing:innocent");
}

fn what_is_done_in_a_dedicated_project_is_in_the_trail_like_elsewhere(world: &World) {
    let admin = world.admin();
    admin.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: apart}\n---\n\
         apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: apart-a}\n\
         spec: {ownerRef: {kind: Organization, name: apart}, controlPlane: {mode: Dedicated}}\n",
    );
    world.wait_ready("apart-a");
    let project = world.server().project("apart-a");
    let body = json!({"metadata": {"name": "made-apart"}}).to_string();
    let forged = ["x-forwarded-for: 8.8.8.8"];
    let made = with_lines(&project, "POST", &format!("/projects/apart-a{MAPS}"), &forged, &body);
    contains_all(&made, &["HTTP/1.1 201 "]);
    // Bodies go to the pair unread, so what is made has no name.
    let is_it = |event: &Value| event["verb"] == "create" && event["objectRef"]["resource"] == "configmaps";
    let seen = event(&admin, "apart", "the change", is_it);
    assert_eq!(seen["sourceIPs"], json!(["127.0.0.1"]));
    // The pair refuses it, and the core server's trail has it.
    project.fails(&["get", "configmap", "refused-apart", "--as", "mallory"]);
    world.person("nobody2", "/projects/apart-a").fails(&["get", "configmap", "strange-apart"]);
    for name in ["refused-apart", "strange-apart"] {
        let refused = event(&admin, "apart", "the refusal", is_about(name));
        assert_eq!(refused["responseStatus"]["code"], 403, "{name}");
    }
    admin.ok(&["delete", "project", "apart-a", "--wait=false"]);
}

/// A request that changes something, and the code of its answer.
type Row = (&'static str, &'static str, &'static str, u16);

const MERGE: &str = "PATCH application/merge-patch+json";
const STRATEGIC: &str = "PATCH application/strategic-merge-patch+json";
const APPLY: &str = "PATCH application/apply-patch+yaml";

/// In a project's plane, as its admin.
const IN_THE_PROJECT: &[Row] = &[
    ("POST", MAPS, r#"{"metadata":{"name":"m"}}"#, 201),
    ("POST", "/api/v1/namespaces/default/configmaps?dryRun=All", r#"{"metadata":{"name":"d"}}"#, 201),
    ("PUT", "/api/v1/namespaces/default/configmaps/m", r#"{"metadata":{"name":"m"},"data":{"a":"b"}}"#, 200),
    (MERGE, "/api/v1/namespaces/default/configmaps/m", r#"{"data":{"a":"c"}}"#, 200),
    (STRATEGIC, "/api/v1/namespaces/default/configmaps/m", r#"{"data":{"a":"d"}}"#, 200),
    (
        APPLY,
        "/api/v1/namespaces/default/configmaps/applied?fieldManager=me",
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"applied"}}"#,
        201,
    ),
    ("DELETE", "/api/v1/namespaces/default/configmaps/applied", "", 200),
    ("DELETE", "/api/v1/namespaces/default/configmaps?labelSelector=none%3Dsuch", "", 200),
    ("POST", "/api/v1/namespaces/default/secrets", r#"{"metadata":{"name":"s"}}"#, 201),
    ("GET", "/api/v1/namespaces/default/secrets/s", "", 200),
    ("GET", "/api/v1/secrets", "", 200),
    ("GET", "/api/v1/watch/namespaces/default/secrets?timeoutSeconds=1", "", 200),
    ("GET", "/api/v1/secrets?watch=true&timeoutSeconds=1", "", 200),
    (
        "POST",
        "/api/v1/namespaces/default/serviceaccounts/default/token",
        r#"{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}"#,
        201,
    ),
    ("POST", "/api/v1/namespaces", r#"{"metadata":{"name":"n"}}"#, 201),
    (
        "PUT",
        "/api/v1/namespaces/n/finalize",
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"},"spec":{"finalizers":["kubernetes"]}}"#,
        200,
    ),
    (MERGE, "/api/v1/namespaces/n/status", r#"{"status":{}}"#, 200),
    ("POST", "/api/v1/nodes", r#"{"metadata":{"name":"node"}}"#, 201),
    (MERGE, "/api/v1/nodes/node/status", r#"{"status":{"capacity":{"cpu":"1"}}}"#, 200),
    ("GET", "/api/v1/nodes/node/proxy/pods", "", 0),
    (
        "POST",
        "/api/v1/namespaces/default/pods",
        r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}"#,
        201,
    ),
    (
        "POST",
        "/api/v1/namespaces/default/pods/p/binding",
        r#"{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"node"}}"#,
        201,
    ),
    (
        STRATEGIC,
        "/api/v1/namespaces/default/pods/p/ephemeralcontainers",
        r#"{"spec":{"ephemeralContainers":[{"name":"e","image":"i"}]}}"#,
        200,
    ),
    (STRATEGIC, "/api/v1/namespaces/default/pods/p/resize", r#"{"spec":{}}"#, 200),
    ("GET", "/api/v1/namespaces/default/pods/p/log", "", 0),
    ("POST", "/api/v1/namespaces/default/pods/p/exec?command=id&stdout=true", "", 0),
    ("GET", "/api/v1/namespaces/default/pods/p/attach?stdout=true", "", 0),
    ("POST", "/api/v1/namespaces/default/pods/p/portforward", "", 0),
    ("GET", "/api/v1/namespaces/default/pods/p/proxy/", "", 0),
    ("GET", "/api/v1/namespaces/default/services/s/proxy/", "", 0),
    (
        "POST",
        "/api/v1/namespaces/default/pods/p/eviction",
        r#"{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"p"}}"#,
        201,
    ),
    ("DELETE", "/api/v1/namespaces/default/events", "", 200),
    ("DELETE", "/apis/coordination.k8s.io/v1/namespaces/default/leases", "", 200),
    (
        "POST",
        "/apis/apps/v1/namespaces/default/deployments",
        r#"{"metadata":{"name":"w"},"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
        201,
    ),
    (MERGE, "/apis/apps/v1/namespaces/default/deployments/w/scale", r#"{"spec":{"replicas":0}}"#, 200),
    (
        "POST",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        r#"{"metadata":{"name":"b"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}}"#,
        201,
    ),
    (
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        r#"{"metadata":{"name":"tens.audited.example"},"spec":{"group":"audited.example","scope":"Namespaced","names":{"plural":"tens","kind":"Ten"},"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}"#,
        201,
    ),
    (
        "POST",
        "/apis/audited.example/v1/namespaces/default/tens",
        r#"{"apiVersion":"audited.example/v1","kind":"Ten","metadata":{"name":"t"}}"#,
        201,
    ),
    (MERGE, "/apis/audited.example/v1/namespaces/default/tens/t/status", r#"{"status":{"a":1}}"#, 200),
    (
        "POST",
        "/apis/apiregistration.k8s.io/v1/apiservices",
        r#"{"metadata":{"name":"v1.served.example"},"spec":{"group":"served.example","version":"v1","groupPriorityMinimum":100,"versionPriority":1,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"none"}}}"#,
        201,
    ),
    ("POST", "/apis/served.example/v1/namespaces/default/things", "{}", 0),
    ("DELETE", "/apis/served.example/v1/namespaces/default/things", "", 0),
    ("GET", "/archive", "", 200),
    ("POST", "/archive", "no archive", 0),
];

/// At the platform, with nothing of the organization in front of the path, and in the organization's view.
const IN_THE_CORE: &[Row] = &[
    (
        "POST",
        "/apis/resourcemanager.freehold.dev/v1alpha1/projects",
        r#"{"apiVersion":"resourcemanager.freehold.dev/v1alpha1","kind":"Project","metadata":{"name":"tabled-ROW"},"spec":{"ownerRef":{"kind":"Organization","name":"tabled"}}}"#,
        201,
    ),
    (
        MERGE,
        "/apis/resourcemanager.freehold.dev/v1alpha1/projects/tabled-a",
        r#"{"metadata":{"labels":{"a":"ROW"}}}"#,
        200,
    ),
    (
        MERGE,
        "/apis/resourcemanager.freehold.dev/v1alpha1/organizations/tabled",
        r#"{"metadata":{"labels":{"a":"ROW"}}}"#,
        200,
    ),
    (
        "POST",
        "/apis/resourcemanager.freehold.dev/v1alpha1/namespaces/organization-tabled/organizationmemberships",
        r#"{"apiVersion":"resourcemanager.freehold.dev/v1alpha1","kind":"OrganizationMembership","metadata":{"name":"m-ROW"},"spec":{"organizationRef":{"name":"tabled"},"userRef":{"name":"ann"},"roles":["viewer"]}}"#,
        201,
    ),
    (
        "POST",
        "/apis/resourcemanager.freehold.dev/v1alpha1/namespaces/organization-tabled/projectsnapshots",
        r#"{"apiVersion":"resourcemanager.freehold.dev/v1alpha1","kind":"ProjectSnapshot","metadata":{"name":"snap-ROW"},"spec":{"projectRef":{"name":"tabled-a"}}}"#,
        201,
    ),
    (
        "POST",
        "/apis/resourcemanager.freehold.dev/v1alpha1/projects",
        r#"{"apiVersion":"resourcemanager.freehold.dev/v1alpha1","kind":"Project","metadata":{"name":"fork-ROW"},"spec":{"ownerRef":{"kind":"Organization","name":"tabled"},"controlPlane":{"from":{"project":"tabled-a"}}}}"#,
        201,
    ),
    ("DELETE", "/apis/resourcemanager.freehold.dev/v1alpha1/projects/fork-LAST", "", 200),
    ("POST", "/api/v1/namespaces/organization-tabled/configmaps", r#"{"metadata":{"name":"c-ROW"}}"#, 201),
    ("GET", "/api/v1/namespaces/organization-tabled/secrets", "", 200),
];

/// Sends the rows, each marked in its query; gives the marks.
fn send(http: &Http, prefix: &str, first: usize, rows: &[Row]) -> Vec<(String, String)> {
    let mut marks = Vec::new();
    for (nth, (method, path, body, code)) in rows.iter().enumerate() {
        let mark = format!("mark={}", first + nth);
        let row = (first + nth).to_string();
        let last = (first + nth - usize::from(nth > 0)).to_string();
        let path = path.replace("LAST", &last);
        let sign = if path.contains('?') { '&' } else { '?' };
        let (method, content_type) = method.split_once(' ').unwrap_or((method, "application/json"));
        let verb: Method = method.parse().expect("a method");
        let content_type = if body.is_empty() { "" } else { content_type };
        let answer =
            http.send(verb, &format!("{prefix}{path}{sign}{mark}"), content_type, body.replace("ROW", &row));
        let what = format!("{method} {prefix}{path}");
        assert!(*code == 0 || answer.code == *code, "{what}: {} {}", answer.code, answer.body);
        marks.push((mark, what));
    }
    marks
}

fn each_kind_of_change_leaves_an_event_for_its_owner(world: &World) {
    world.organization("tabled", &["tabled-a"]);
    let (admin, project) = (world.admin(), world.server().project("tabled-a"));
    let http = Http::of(&admin);
    let mut marks = send(&Http::of(&project), "", 1000, IN_THE_PROJECT);
    marks.extend(send(&http, "", 2000, IN_THE_CORE));
    marks.extend(send(&http, "/organizations/tabled", 3000, IN_THE_CORE));
    let plane = format!("/planes/{}", world.uid("tabled-a"));
    marks.extend(send(
        &http,
        &plane,
        4000,
        &[("DELETE", "/api/v1/namespaces/default/configmaps/m", "", 200)],
    ));
    let secrets = [("GET", "/api/v1/secrets", "", 200)];
    marks.extend(send(&http, "/organizations/tabled", 5000, &secrets));
    // By the long form.
    let long = format!("{RESOURCES}/projects/tabled-a/control-plane");
    marks.extend(send(&http, &long, 6000, &[("POST", MAPS, r#"{"metadata":{"name":"long"}}"#, 201)]));
    let missing = || {
        let events = trail(&admin, "tabled");
        let seen: HashSet<&str> =
            events.iter().filter_map(|event| text(event, "/requestURI").rsplit(['?', '&']).next()).collect();
        let missing = marks.iter().filter(|(mark, _)| !seen.contains(mark.as_str()));
        missing.map(|(_, what)| what.clone()).collect::<Vec<_>>()
    };
    let mut before = Vec::new();
    until("each change is in the trail", PATIENCE, || {
        let missing = missing();
        if missing != before {
            eprintln!("not in the trail yet: {missing:#?}");
            before.clone_from(&missing);
        }
        missing.is_empty().then_some(())
    });
}
