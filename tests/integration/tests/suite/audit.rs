//! The audit log: what is recorded of which requests and where, that no secret is in it, and what an organization's owner
//! reads of its own.

use crate::{PATIENCE, contains_all, items, text};
use freehold_tests_integration::{Engine, HookServer, Http, Options, Reply, Server, facts, until};
use serde_json::{Value, json};
use std::{fs, path::Path};
use tempfile::TempDir;

facts!(engine:
    events_have_their_stages_and_say_whose_they_are,
    no_secret_is_in_an_event_at_any_level,
    a_webhook_gets_lists_and_one_that_hangs_holds_nobody_up,
    an_event_that_is_too_large_for_its_sink_comes_without_its_objects,
);

/// What a kubectl could show of a secret.
const SECRET: &str = "hunter2-is-not-to-be-seen";
/// Its base64.
const ENCODED: &str = "aHVudGVyMi1pcy1ub3QtdG8tYmUtc2Vlbg==";

/// A server with a policy, and further arguments.
fn audited(engine: Engine, folder: &TempDir, rules: &str, args: &[String]) -> Server {
    let policy = folder.path().join("policy.yaml");
    fs::write(&policy, format!("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n{rules}\n"))
        .expect("a test fails by panicking");
    let log = folder.path().join("audit.log");
    let mut all = vec![
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", log.display()),
    ];
    all.extend_from_slice(args);
    Server::start(Options { engine, args: all, ..Options::default() })
}

fn events(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("audit.log")).unwrap_or_default();
    // The last line may still be written.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

const PROJECT: &str = "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}\n---\n\
    apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: web}\n\
    spec: {ownerRef: {kind: Organization, name: acme}}\n";

fn project(server: &Server) -> freehold_tests_integration::Kubectl {
    server.kubectl().apply(PROJECT);
    server.kubectl().ok(&["wait", "--for=condition=Ready", "project/web", "--timeout=120s"]);
    server.project("web")
}

fn events_have_their_stages_and_say_whose_they_are(engine: Engine) {
    let folder = TempDir::new().expect("a test fails by panicking");
    let rules = "- level: None\n  users: ['system:freehold:controller-manager']\n- level: Metadata";
    let server = audited(engine, &folder, rules, &[]);
    let web = project(&server);
    web.ok(&["create", "configmap", "seen", "--from-literal=a=b"]);
    web.fails(&["get", "configmap", "absent"]);
    web.fails(&["get", "configmap", "seen", "--as", "nobody"]);
    web.ok(&["get", "--raw", "/projects/web/api/v1/configmaps?watch=true&timeoutSeconds=1"]);
    let nobody = Http::with_token(&web, &format!("{}/projects/web", server.url()), "no-token");
    assert_eq!(nobody.get("/api/v1/configmaps").code, 401);

    let of = |test: &dyn Fn(&Value) -> bool| -> Vec<Value> {
        until("events are written", PATIENCE, || {
            let found: Vec<Value> = events(folder.path()).into_iter().filter(|event| test(event)).collect();
            let ended =
                found.iter().any(|e| e["stage"] == "ResponseComplete" || e["responseStatus"]["code"] == 401);
            ended.then_some(found)
        })
    };
    let stages = |events: &[Value]| events.iter().map(|e| text(e, "/stage").to_owned()).collect::<Vec<_>>();

    let made = of(&|e| e["verb"] == "create" && e["objectRef"]["name"] == "seen");
    let about = &made.last().expect("a test fails by panicking");
    let id = about["auditID"].clone();
    let made = of(&|e| e["auditID"] == id);
    assert_eq!(stages(&made), ["RequestReceived", "ResponseComplete"]);
    let last = &made[1];
    assert_eq!(last["objectRef"]["resource"], "configmaps");
    assert_eq!(last["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(last["annotations"]["authorization.k8s.io/decision"], "allow");
    assert_eq!(last["annotations"]["audit.freehold.dev/organization"], "acme");
    assert_eq!(last["annotations"]["audit.freehold.dev/project"], "web");
    assert_eq!(text(last, "/annotations/audit.freehold.dev~1plane"), uid(&server));
    assert_eq!(last["sourceIPs"], json!(["127.0.0.1"]));
    assert!(last.get("requestObject").is_none() && last.get("responseObject").is_none(), "{last}");

    let absent = of(&|e| e["objectRef"]["name"] == "absent");
    let status = &absent.last().expect("a test fails by panicking")["responseStatus"];
    assert_eq!((&status["reason"], &status["code"]), (&json!("NotFound"), &json!(404)));
    let refused = of(&|e| e["impersonatedUser"]["username"] == "nobody");
    let last = refused.last().expect("a test fails by panicking");
    assert_eq!(last["annotations"]["authorization.k8s.io/decision"], "forbid");
    let watched = of(&|e| {
        e["verb"] == "watch"
            && e["objectRef"]["resource"] == "configmaps"
            && text(e, "/userAgent").starts_with("kubectl")
    });
    let id = watched[0]["auditID"].clone();
    let watched = of(&|e| e["auditID"] == id);
    assert_eq!(stages(&watched), ["RequestReceived", "ResponseStarted", "ResponseComplete"]);
    let unknown = of(&|e| e["responseStatus"]["code"] == 401);
    assert_eq!(stages(&unknown), ["ResponseStarted"]);
    assert_eq!(unknown[0]["responseStatus"]["message"], "Authentication failed, attempted: bearer");
    assert_eq!(unknown[0]["user"], json!({}));
}

fn uid(server: &Server) -> String {
    text(&server.kubectl().json(&["get", "project", "web"]), "/metadata/uid").to_owned()
}

fn no_secret_is_in_an_event_at_any_level(engine: Engine) {
    let folder = TempDir::new().expect("a test fails by panicking");
    let server = audited(engine, &folder, "- level: RequestResponse", &[]);
    let web = project(&server);
    let manifest =
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{password: {SECRET}}}\n");
    web.apply(&manifest);
    web.ok(&[
        "patch",
        "secret",
        "s",
        "--type=merge",
        "-p",
        &format!(r#"{{"stringData":{{"other":"{SECRET}"}}}}"#),
    ]);
    let operations = format!(r#"[{{"op":"add","path":"/data/more","value":"{ENCODED}"}}]"#);
    web.ok(&["patch", "secret", "s", "--type=json", "-p", &operations]);
    web.ok(&["get", "secret", "s", "-o", "yaml"]);
    web.ok(&["get", "secrets"]);
    web.ok(&["get", "secrets", "-A", "-o", "json"]);
    let at = Http::of(&web);
    let broken = at.send(
        http::Method::POST,
        "/api/v1/namespaces/default/secrets",
        "application/json",
        format!(r#"{{"kind":"Secret","data":{{"password":"{ENCODED}""#),
    );
    assert_eq!(broken.code, 400);
    let wrong = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "w"}, "data": {"password": SECRET}});
    assert_eq!(at.json(http::Method::POST, "/api/v1/namespaces/default/secrets", &wrong).code, 400);
    let token = web.ok(&["create", "token", "default"]);
    let review = json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": token.trim()}});
    assert_eq!(at.json(http::Method::POST, "/apis/authentication.k8s.io/v1/tokenreviews", &review).code, 201);
    assert_eq!(at.get(&format!("/api/v1/namespaces?access_token={}", token.trim())).code, 200);
    web.ok(&["delete", "secret", "s"]);

    let done = |e: &Value| {
        e["verb"] == "delete" && e["objectRef"]["name"] == "s" && e["stage"] == "ResponseComplete"
    };
    let seen = until("the last event is written", PATIENCE, || {
        let seen = events(folder.path());
        seen.iter().any(done).then_some(seen)
    });
    let all = fs::read_to_string(folder.path().join("audit.log")).expect("a test fails by panicking");
    for hidden in [SECRET, ENCODED, token.trim()] {
        let line = all.lines().find(|line| line.contains(hidden));
        assert!(line.is_none(), "{hidden} is in {line:?}");
    }
    let of_it = |e: &&Value| e["objectRef"]["resource"] == "secrets" && e["objectRef"]["name"] == "s";
    let made = seen.iter().filter(of_it).find(|e| e["responseStatus"]["code"] == 201);
    let made = made.expect("the secret was made");
    assert_eq!(made["responseObject"]["data"]["password"], "<redacted>");
    assert_eq!(made["requestObject"]["metadata"]["name"], "s");
    assert!(
        !server.log().contains(SECRET) && !server.log().contains(token.trim()),
        "no secret is in the log"
    );
}

fn a_webhook_gets_lists_and_one_that_hangs_holds_nobody_up(engine: Engine) {
    let folder = TempDir::new().expect("a test fails by panicking");
    let hook = HookServer::start(|path, _| match path {
        "/hang" => Reply::Hang,
        _ => Reply::Json(json!({})),
    });
    let start = |path: &str, more: &[&str]| {
        let config = folder.path().join(format!("hook{}.kubeconfig", path.replace('/', "-")));
        fs::write(&config, hook.kubeconfig(path)).expect("a test fails by panicking");
        let mut args = vec![
            format!("--audit-webhook-config-file={}", config.display()),
            "--audit-webhook-batch-max-wait=100ms".to_owned(),
        ];
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        audited(engine, &folder, "- level: Metadata", &args)
    };
    let server = start("/audit", &[]);
    server.kubectl().ok(&["create", "configmap", "told"]);
    until("the webhook is told", PATIENCE, || {
        let told =
            |event: &Value| event["objectRef"]["name"] == "told" && event["stage"] == "ResponseComplete";
        hook.seen().iter().any(|list| list["kind"] == "EventList" && items(list).any(told)).then_some(())
    });
    drop(server);
    // What the server itself asks for as it starts is enough to fill so small a buffer, so only this one has it.
    let server = start("/hang", &["--audit-webhook-batch-buffer-size=10"]);
    for at in 0..30 {
        server.kubectl().ok(&["create", "configmap", &format!("not-held-up-{at}")]);
    }
    counted(&server, &["apiserver_audit_event_total", "apiserver_audit_error_total{plugin=\"buffered\"}"]);
}

fn an_event_that_is_too_large_for_its_sink_comes_without_its_objects(engine: Engine) {
    let folder = TempDir::new().expect("a test fails by panicking");
    let args =
        ["--audit-log-truncate-enabled".to_owned(), "--audit-log-truncate-max-event-size=5000".to_owned()];
    let rules = "- level: RequestResponse\n  resources: [{resources: [configmaps]}]\n- level: Metadata";
    let server = audited(engine, &folder, rules, &args);
    let admin = server.kubectl();
    for (name, bytes) in [("small", 100), ("large", 6_000)] {
        admin.ok(&["create", "configmap", name, &format!("--from-literal=a={}", crate::noise(1, bytes))]);
    }
    let written = |name: &str| {
        until(&format!("the event of {name}"), PATIENCE, || {
            let of = |event: &Value| {
                event["objectRef"]["name"] == name
                    && event["stage"] == "ResponseComplete"
                    && event["verb"] == "create"
            };
            events(folder.path()).into_iter().find(of)
        })
    };
    let (small, large) = (written("small"), written("large"));
    assert_eq!(small["requestObject"]["metadata"]["name"], "small");
    assert!(small["annotations"]["audit.k8s.io/truncated"].is_null(), "{small}");
    assert_eq!(large["annotations"]["audit.k8s.io/truncated"], "true");
    assert!(large["requestObject"].is_null() && large["responseObject"].is_null(), "{large}");
    assert_eq!(large["level"], "RequestResponse");
    // What is large without objects can't be made smaller: it is counted.
    let path = format!("/api/v1/configmaps?labelSelector=a%21%3D{}", "x".repeat(6_000));
    Http::of(&admin).get(&path);
    counted(
        &server,
        &[
            "apiserver_audit_error_total{plugin=\"truncate\"}",
            "apiserver_audit_level_total{level=\"RequestResponse\"}",
            "apiserver_audit_requests_rejected_total 0",
        ],
    );
}

/// Waits until the server's metrics have all of these: what becomes of an event is counted behind the request.
fn counted(server: &Server, parts: &[&str]) {
    until(&format!("the metrics have {parts:?}"), PATIENCE, || {
        let metrics = server.kubectl().ok(&["get", "--raw", "/metrics"]);
        parts.iter().all(|part| metrics.contains(part)).then_some(())
    });
}

/// What owners read.
mod trail {
    use super::{Value, contains_all, items, json, text, until};
    use crate::PATIENCE;
    use freehold_tests_integration::{World, facts};

    facts!(world: an_owner_lists_and_watches_what_was_done_in_the_organization);

    fn an_owner_lists_and_watches_what_was_done_in_the_organization(world: &World) {
        world.organization("recorded", &["recorded-a"]);
        world.organization("unrecorded", &["unrecorded-a"]);
        let membership = |user: &str, role: &str| {
            format!(
                "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: OrganizationMembership\n\
             metadata: {{name: {user}, namespace: organization-recorded}}\n\
             spec: {{organizationRef: {{name: recorded}}, userRef: {{name: {user}}}, roles: [{role}]}}\n"
            )
        };
        world.admin().apply(&format!(
            "{}---\n{}",
            membership("olga", "owner"),
            membership("victor", "viewer")
        ));
        let events = "/apis/audit.k8s.io/v1/events";
        let (project, other) = (world.server().project("recorded-a"), world.server().project("unrecorded-a"));
        project.ok(&["create", "configmap", "in-the-trail"]);
        other.ok(&["create", "configmap", "in-anothers-trail"]);
        project.fails(&["get", "secrets", "--as", "mallory"]);
        let view = world.at("/organizations/recorded").with(&["--as", "olga"]);
        let list = until("both are in the trail", PATIENCE, || {
            let list: Value = serde_json::from_str(&view.ok(&[
                "get",
                "--raw",
                &format!("/organizations/recorded{events}"),
            ]))
            .ok()?;
            let has = |test: &dyn Fn(&Value) -> bool| items(&list).any(test);
            let both = has(&|e| e["objectRef"]["name"] == "in-the-trail")
                && has(&|e| e["impersonatedUser"]["username"] == "mallory");
            both.then_some(list)
        });
        assert_eq!(list["kind"], "EventList");
        for event in items(&list) {
            assert_eq!(event["annotations"]["audit.freehold.dev/organization"], "recorded", "{event}");
            assert!(!text(event, "/user/username").starts_with("system:freehold:"), "{event}");
        }
        let path = format!("/organizations/recorded{events}?project=nothing");
        let none: Value =
            serde_json::from_str(&view.ok(&["get", "--raw", &path])).expect("a test fails by panicking");
        assert_eq!(none["items"], json!([]));
        let version = text(&list, "/metadata/resourceVersion");
        let path = format!("/organizations/recorded{events}?watch=true&resourceVersion={version}");
        let watch = view.background(&["get", "--raw", &path]);
        other.ok(&["create", "configmap", "in-anothers-trail-again"]);
        project.ok(&["create", "configmap", "watched-in-the-trail"]);
        watch.wait_for("watched-in-the-trail");
        assert!(!watch.printed().contains("in-anothers-trail"), "{}", watch.printed());
        let viewer = world.at("/organizations/recorded").with(&["--as", "victor"]);
        contains_all(
            &viewer.fails(&["get", "--raw", &format!("/organizations/recorded{events}")]),
            &["Forbidden"],
        );
    }
}
