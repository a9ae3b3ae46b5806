//! The server beside a real Freehold: forwarded rights in a project, and accounts of its own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freehold_client::{Client, Config, Identity, RawRequest};
use freehold_tests_harness::{Engine, Kubectl, Server, until};
use freehold_workflow_server::{App, Authentication, Options, Serving, create_account, serve};
use freehold_workflow_store::{
    Counts, Cursor, Database, Location, LogFiles, LogKey, LogRecord, LogStore, Phase, Record, Role,
    RunRecord, Scope, TaskRecord,
};
use http::Method;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const PLANE: &str = "web";

/// A server under test, with its history.
struct Under {
    url: String,
    database: Database,
    token: CancellationToken,
    _serving: Serving,
    _folder: tempfile::TempDir,
}

impl Drop for Under {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

impl Under {
    async fn start(api: Config, authentication: Authentication) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Database::open(&Location::File(folder.path().join("history.db"))).await.unwrap();
        let logs = folder.path().join("logs");
        let logs = LogStore::Folder(LogFiles::new(&logs));
        fill(&database, &logs, &Client::new(&api).unwrap()).await;
        let options = Options {
            api,
            plane: PLANE.into(),
            database: database.clone(),
            logs: Some(logs),
            authentication,
            secure_cookies: false,
        };
        let token = CancellationToken::new();
        let serving = serve(App::new(options).unwrap(), "127.0.0.1:0".parse().unwrap(), None, token.clone())
            .await
            .unwrap();
        Self {
            url: format!("http://{}", serving.address),
            database,
            token,
            _serving: serving,
            _folder: folder,
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        token: &str,
        body: Value,
        headers: &[(&'static str, &str)],
    ) -> (u16, String) {
        let identity = if token.is_empty() { Identity::None } else { Identity::Token(token.to_owned()) };
        let client = Client::new(&Config::new(self.url.clone(), "", identity)).unwrap();
        let mut request = RawRequest::new(method, path);
        if !body.is_null() {
            request = request.json(&body);
        }
        for (name, value) in headers {
            request.headers.insert(*name, value.parse().unwrap());
        }
        let answer = client.once(&request).await.unwrap();
        (answer.status.as_u16(), String::from_utf8_lossy(&answer.body).into_owned())
    }

    async fn get(&self, path: &str, token: &str) -> (u16, Value) {
        let (status, body) = self.send(Method::GET, path, token, Value::Null, &[]).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }

    async fn post(&self, path: &str, token: &str, body: Value) -> (u16, Value) {
        let (status, body) = self.send(Method::POST, path, token, body, &[]).await;
        (status, serde_json::from_str(&body).unwrap_or(Value::String(body)))
    }
}

/// A run in each of two namespaces, with an attempt and a log.
async fn fill(database: &Database, files: &LogStore, client: &Client) {
    let now = 1_795_478_400_000;
    let mut records: Vec<Record> = Vec::new();
    for namespace in ["team-a", "team-b"] {
        let uid = format!("run-{namespace}");
        let found = client.get_path(&format!("/api/v1/namespaces/{namespace}")).await.unwrap();
        let namespace_uid = found["metadata"]["uid"].as_str().unwrap().to_owned();
        let key = LogKey { plane: PLANE, run: &uid, pod_uid: &format!("pod-{namespace}"), container: "main" };
        let mut writer = files.append(&key).await.unwrap();
        writer.write(b"first line\nsecond line: error\n").await.unwrap();
        writer.finish().await.unwrap();
        records.push(Record::Run(RunRecord {
            plane: PLANE.into(),
            namespace: namespace.into(),
            namespace_uid: namespace_uid.clone(),
            uid: uid.clone(),
            name: "r".into(),
            dag: "build".into(),
            phase: Phase::Succeeded,
            created_at: now,
            started_at: Some(now),
            ended_at: Some(now + 1000),
            counts: Counts { total: 1, succeeded: 1, ..Counts::default() },
            ..RunRecord::default()
        }));
        records.push(Record::Task(TaskRecord {
            plane: PLANE.into(),
            namespace: namespace.into(),
            namespace_uid: namespace_uid.clone(),
            run: uid.clone(),
            run_created_at: now,
            task: "a".into(),
            phase: Phase::Succeeded,
            pod_uid: format!("pod-{namespace}"),
            ended_at: Some(now + 1000),
            ..TaskRecord::default()
        }));
        records.push(Record::Log(LogRecord {
            plane: PLANE.into(),
            namespace: namespace.into(),
            namespace_uid: namespace_uid.clone(),
            run: uid,
            run_created_at: now,
            task: "a".into(),
            container: "main".into(),
            pod_uid: format!("pod-{namespace}"),
            location: writer.location().to_owned(),
            bytes: 30,
            lines: 2,
            complete: true,
            ..LogRecord::default()
        }));
    }
    database.write(records, None).await.unwrap();
}

const RIGHTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: team-a}
---
apiVersion: v1
kind: Namespace
metadata: {name: team-b}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: viewer, namespace: team-a}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: editor, namespace: team-a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: viewer, namespace: team-a}
rules:
- {apiGroups: [workflow.freehold.dev], resources: [dags, dagruns], verbs: [get, list, watch]}
- {apiGroups: [''], resources: [pods/log, namespaces], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: editor, namespace: team-a}
rules:
- {apiGroups: [workflow.freehold.dev], resources: [dags, dagruns], verbs: ['*']}
- {apiGroups: [''], resources: [namespaces], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: team-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: viewer}
subjects: [{kind: ServiceAccount, name: viewer, namespace: team-a}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: editor, namespace: team-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: editor}
subjects: [{kind: ServiceAccount, name: editor, namespace: team-a}]
";

const DAG: &str = "
apiVersion: workflow.freehold.dev/v1alpha1
kind: DAG
metadata: {name: build, namespace: team-a}
spec: {schedule: '*/5 * * * *', tasks: [{name: a, image: busybox}, {name: b, image: busybox, runAfter: [a]}]}
";

/// The kinds, namespaces and accounts of the tests, in the core plane.
fn prepare(server: &Server) -> Kubectl {
    let kubectl = server.kubectl();
    for crd in freehold_workflow_api::crds() {
        kubectl.apply(&crd.to_string());
    }
    kubectl.apply(RIGHTS);
    until("the kinds are served", Duration::from_secs(30), || {
        kubectl.run_with_input(&["apply", "-f", "-"], DAG).success.then_some(())
    });
    kubectl
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_have_the_rights_that_the_api_gives_them() {
    let server = Server::start(Engine::Embedded);
    let kubectl = prepare(&server);
    let token = |name: &str| kubectl.ok(&["create", "token", name, "-n", "team-a"]).trim().to_owned();
    let (viewer, editor) = (token("viewer"), token("editor"));
    let api = Config::from_kubeconfig(server.admin_kubeconfig()).unwrap();
    let under = Under::start(api, Authentication::Forward).await;

    // The history.
    assert_eq!(under.get("/api/v1/history/runs?namespace=team-a", "").await.0, 401);
    assert_eq!(under.get("/api/v1/history/runs?namespace=team-a", "nonsense").await.0, 401);
    let (status, page) =
        under.get("/api/v1/history/runs?namespace=team-a&dag=build&phase=Succeeded", &viewer).await;
    assert_eq!(
        (status, page["items"].as_array().map(Vec::len), &page["items"][0]["uid"]),
        (200, Some(1), &json!("run-team-a"))
    );
    for forbidden in [
        "/api/v1/history/runs?namespace=team-b",
        "/api/v1/history/runs",
        "/api/v1/namespaces/team-b/history/runs/run-team-b/tasks",
        "/api/v1/namespaces/team-b/history/logs/pod-team-b/main",
        "/api/v1/statistics/days",
        "/compat/kontroler/api/v1/dag/runs/0",
    ] {
        let (status, body) = under.get(forbidden, &viewer).await;
        assert_eq!((status, &body["reason"]), (403, &json!("Forbidden")), "{forbidden}");
    }
    // Another namespace's run is not in one's own.
    assert_eq!(under.get("/api/v1/namespaces/team-a/history/runs/run-team-b", &viewer).await.0, 404);
    assert_eq!(under.get("/api/v1/namespaces/team-a/history/logs/pod-team-b/main", &viewer).await.0, 404);
    assert_eq!(under.get("/api/v1/history/runs?namespace=team-a&from=yesterday", &viewer).await.0, 400);

    // Kept logs: ranges and search.
    let log = "/api/v1/namespaces/team-a/history/logs/pod-team-a/main";
    let (status, part) = under.send(Method::GET, log, &viewer, Value::Null, &[("range", "bytes=6-9")]).await;
    assert_eq!((status, part.as_str()), (206, "line"));
    assert_eq!(under.send(Method::GET, log, &viewer, Value::Null, &[("range", "bytes=99-")]).await.0, 416);
    let (_, found) = under.get(&format!("{log}/search?text=error"), &viewer).await;
    assert_eq!(found["items"], json!([{"line": 2, "offset": 11, "text": "second line: error"}]));
    assert_eq!(under.get(log, &editor).await.0, 403, "editors of this test may not read logs");

    // Changes, in the caller's name.
    let stream_client =
        Client::new(&Config::new(under.url.clone(), "", Identity::Token(viewer.clone()))).unwrap();
    let stream =
        stream_client.download(&RawRequest::get("/api/v1/namespaces/team-a/watch/runs")).await.unwrap();
    let run = json!({"parameters": {}, "name": "first"});
    assert_eq!(under.post("/api/v1/namespaces/team-a/dags/build/run", &viewer, run.clone()).await.0, 403);
    let (status, made) = under.post("/api/v1/namespaces/team-a/dags/build/run", &editor, run.clone()).await;
    assert_eq!((status, &made["spec"]["dag"]), (201, &json!("build")));
    assert_eq!(under.post("/api/v1/namespaces/team-a/dags/build/run", &editor, run).await.0, 409);
    let act = |action: &'static str| format!("/api/v1/namespaces/team-a/runs/first/actions/{action}");
    assert_eq!(under.post(&act("stop"), &editor, Value::Null).await.1["spec"]["state"], "Stopped");
    assert_eq!(under.post(&act("retry"), &editor, Value::Null).await.1["spec"]["retry"]["count"], 1);
    assert_eq!(under.post(&act("stop"), &viewer, Value::Null).await.0, 403);
    let suspended = under.post("/api/v1/namespaces/team-a/dags/build/suspend", &editor, Value::Null).await.1;
    assert_eq!(suspended["spec"]["suspended"], true);
    events_of(stream, &["event: added", "\"name\":\"first\"", "event: modified"]).await;
    assert_eq!(
        under.get("/api/v1/namespaces/team-a/runs?limit=1", &viewer).await.1["items"][0]["metadata"]["name"],
        "first"
    );
    assert_eq!(
        under.post("/api/v1/auth/login", "", json!({"name": "admin", "password": "adminpassword"})).await.0,
        404
    );
    assert_eq!(under.get("/openapi.json", "").await.1["openapi"], "3.1.0");
}

/// What somebody with the rights of one namespace tries to get at the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_of_one_namespace_gets_nothing_of_another() {
    let server = Server::start(Engine::Embedded);
    let kubectl = prepare(&server);
    let viewer = kubectl.ok(&["create", "token", "viewer", "-n", "team-a"]).trim().to_owned();
    let api = Config::from_kubeconfig(server.admin_kubeconfig()).unwrap();
    let under = Under::start(api, Authentication::Forward).await;
    let history = "/api/v1/namespaces/team-a/history";
    // Rows of others by their ids, in every route that takes one.
    for path in [
        format!("{history}/runs/run-team-b"),
        format!("{history}/logs/pod-team-b/main"),
        format!("{history}/logs/pod-team-b/main/search?text=error"),
    ] {
        assert_eq!(under.get(&path, &viewer).await.0, 404, "{path}");
    }
    for path in [format!("{history}/runs/run-team-b/tasks"), format!("{history}/runs/run-team-b/logs")] {
        let (status, page) = under.get(&path, &viewer).await;
        assert_eq!((status, &page["items"]), (200, &json!([])), "{path}");
    }
    // Texts that are code elsewhere: SQL, paths, patterns.
    for text in [
        "x'%20OR%20'1'='1",
        "'%3B%20DROP%20TABLE%20runs%3B--",
        "run-team-a'%20UNION%20SELECT%20*%20FROM%20runs--",
        "%25",
        "_",
        "*",
    ] {
        for path in [
            format!("/api/v1/history/runs?namespace=team-a&dag={text}"),
            format!("/api/v1/history/runs?namespace=team-a&name={text}"),
            format!("/api/v1/statistics/days?namespace=team-a&dag={text}"),
        ] {
            let (status, page) = under.get(&path, &viewer).await;
            let is_empty = page["items"].as_array().is_some_and(|items| items.is_empty());
            assert!(status == 400 || (status == 200 && is_empty), "{path}: {status} {page}");
        }
        let (status, _) = under.get(&format!("{history}/runs/{text}"), &viewer).await;
        assert!(matches!(status, 400 | 404), "{text}: {status}");
    }
    for namespace in
        ["team-a'%20OR%20namespace='team-b", "team-a,team-b", "team-b%00", "", "team-a%2F..%2Fteam-b"]
    {
        let (status, body) = under.get(&format!("/api/v1/history/runs?namespace={namespace}"), &viewer).await;
        assert!(matches!(status, 400 | 403), "{namespace:?}: {status} {body}");
    }
    // Paths that lead out of a namespace, or of the folder of logs.
    for path in [
        "/api/v1/namespaces/team-a/pods/..%2F..%2F..%2Fteam-b%2Fpods%2Fx/log",
        "/api/v1/namespaces/team-a/pods/../log",
        "/api/v1/namespaces/team-a/runs/%2e%2e",
        "/api/v1/namespaces/team-a%2F..%2Fteam-b/runs",
        "/api/v1/namespaces/team-a/history/logs/..%2F..%2Fhistory.db/main",
        "/api/v1/namespaces/team-a/history/logs/%2E%2E/%2E%2E",
        "/api/v1/namespaces/team-a/history/logs/pod-team-a/..%5C..%5Chistory.db",
    ] {
        let (status, _) = under.get(path, &viewer).await;
        assert!(matches!(status, 400 | 403 | 404), "{path}: {status}");
    }
    // Cursors that were made by hand show no more than the scope does.
    let far = Cursor { at: i64::MAX, key: "\u{10ffff}".into() }.encode();
    let (status, page) =
        under.get(&format!("/api/v1/history/runs?namespace=team-a&after={far}"), &viewer).await;
    let namespaces: Vec<&Value> =
        page["items"].as_array().unwrap().iter().map(|run| &run["namespace"]).collect();
    assert_eq!((status, namespaces), (200, vec![&json!("team-a")]));
    let quoted = Cursor { at: 0, key: "') OR 1=1 --".into() }.encode();
    let (_, page) =
        under.get(&format!("/api/v1/history/runs?namespace=team-a&after={quoted}"), &viewer).await;
    assert_eq!(page["items"], json!([]));
    let long = "a".repeat(5000);
    for after in ["e30", "bnVsbA", "!!!", &long] {
        assert_eq!(
            under.get(&format!("/api/v1/history/runs?namespace=team-a&after={after}"), &viewer).await.0,
            400
        );
    }
    // Kontroler's routes know no namespaces: they are for those who may read all.
    for path in
        ["dag/run/run-team-a", "dag/run/all/run-team-b", "dag/run/task/run-team-b/a", "stats/dashboard"]
    {
        assert_eq!(under.get(&format!("/compat/kontroler/api/v1/{path}"), &viewer).await.0, 403, "{path}");
    }
    // Who gets the name of a namespace that is gone gets nothing of what was kept of it.
    assert_eq!(under.get(&format!("{history}/runs/run-team-a"), &viewer).await.0, 200);
    kubectl.ok(&["delete", "namespace", "team-a", "--wait"]);
    kubectl.apply(RIGHTS);
    let viewer = kubectl.ok(&["create", "token", "viewer", "-n", "team-a"]).trim().to_owned();
    for path in [format!("{history}/runs/run-team-a"), format!("{history}/logs/pod-team-a/main")] {
        assert_eq!(under.get(&path, &viewer).await.0, 404, "{path}");
    }
    for path in [
        "/api/v1/history/runs?namespace=team-a",
        "/api/v1/statistics/days?namespace=team-a&from=2026-11-20T00:00:00Z",
    ] {
        let (status, page) = under.get(path, &viewer).await;
        assert_eq!((status, &page["items"]), (200, &json!([])), "{path}");
    }
    let log = "/compat/kontroler/api/v1/logs/run/run-team-b/pod/pod-team-b";
    assert_eq!(under.get(log, &viewer).await.0, 403);
    assert_eq!(
        under.database.run(&Scope::plane(PLANE), "run-team-b").await.unwrap().map(|r| r.uid),
        Some("run-team-b".into())
    );
}

/// Streams that nobody reads take nothing from others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_left_unread_leave_places_for_others() {
    let server = Server::start(Engine::Embedded);
    let kubectl = prepare(&server);
    let token = |name: &str| kubectl.ok(&["create", "token", name, "-n", "team-a"]).trim().to_owned();
    let (viewer, editor) = (token("viewer"), token("editor"));
    let api = Config::from_kubeconfig(server.admin_kubeconfig()).unwrap();
    let under = Under::start(api, Authentication::Forward).await;
    let watch = RawRequest::get("/api/v1/namespaces/team-a/watch/runs");
    let client = |token: &str| {
        Client::new(&Config::new(under.url.clone(), "", Identity::Token(token.to_owned()))).unwrap()
    };
    let hostile = client(&viewer);
    let mut unread = Vec::new();
    let refused = loop {
        match hostile.download(&watch).await {
            Ok(stream) => unread.push(stream),
            Err(error) => break error,
        }
        assert!(unread.len() < 200, "streams have no limit");
    };
    assert_eq!(refused.code(), 429, "{refused}");
    // Others are served, and so is whoever closes one.
    let stream = client(&editor).download(&watch).await.unwrap();
    let run = json!({"parameters": {}, "name": "seen"});
    assert_eq!(under.post("/api/v1/namespaces/team-a/dags/build/run", &editor, run).await.0, 201);
    events_of(stream, &["\"name\":\"seen\""]).await;
    drop(unread);
    let mut last = None;
    for _ in 0..100 {
        match hostile.download(&watch).await {
            Ok(_) => return,
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no place was given back: {last:?}");
}

async fn events_of(stream: freehold_client::Download, wanted: &[&str]) {
    use futures_util::StreamExt as _;
    let mut stream = Box::pin(stream.into_stream());
    let mut seen = String::new();
    let reading = async {
        while !wanted.iter().all(|text| seen.contains(text)) {
            let Some(Ok(chunk)) = stream.next().await else { return };
            seen.push_str(&String::from_utf8_lossy(&chunk));
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("events in time");
    assert!(wanted.iter().all(|text| seen.contains(text)), "{seen}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_have_roles_and_none_is_there_before_it_is_created() {
    let server = Server::start(Engine::Embedded);
    prepare(&server);
    let api = Config::from_kubeconfig(server.admin_kubeconfig()).unwrap();
    let under = Under::start(api, Authentication::StandAlone(None)).await;
    let login = |name: &str, password: &str| json!({"username": name, "password": password});
    let compat = "/compat/kontroler/api/v1";

    assert_eq!(under.post(&format!("{compat}/auth/login"), "", login("admin", "adminpassword")).await.0, 401);
    assert!(create_account(&under.database, "root1", "short", Role::Admin).await.is_err());
    create_account(&under.database, "root1", "correct horse battery", Role::Admin).await.unwrap();
    let (status, answer) =
        under.post("/api/v1/auth/login", "", login("root1", "correct horse battery")).await;
    assert_eq!((status, &answer["role"]), (200, &json!("admin")));
    let admin = answer["token"].as_str().unwrap().to_owned();
    let new = json!({"username": "eve", "password": "another long one", "role": "viewer"});
    assert_eq!(under.post(&format!("{compat}/auth/create"), &admin, new).await.0, 201);
    let eve = under.post("/api/v1/auth/login", "", login("eve", "another long one")).await.1["token"]
        .as_str()
        .unwrap()
        .to_owned();

    // Roles.
    assert_eq!(under.get("/api/v1/accounts", &eve).await.0, 403);
    assert_eq!(under.post("/api/v1/namespaces/team-a/dags/build/run", &eve, json!({})).await.0, 403);
    let (status, runs) = under.get(&format!("{compat}/dag/runs/0"), &eve).await;
    assert_eq!((status, runs.as_array().map(Vec::len)), (200, Some(2)));
    assert_eq!(runs[0]["status"], "success");
    let (_, all) = under.get(&format!("{compat}/dag/run/all/run-team-a"), &eve).await;
    assert_eq!(
        (&all["connections"]["b"], &all["taskInfo"]["a"]["status"]),
        (&json!(["a"]), &json!("success"))
    );
    let (_, meta) = under.get(&format!("{compat}/dag/meta/0"), &eve).await;
    assert_eq!(
        (&meta["dags"][0]["dagId"], &meta["dags"][0]["isSuspended"]),
        (&json!("team-a.build"), &json!(false))
    );
    let (status, made) = under
        .post(
            &format!("{compat}/dag/run/create"),
            &admin,
            json!({"name": "build", "runName": "x", "namespace": "team-a", "parameters": {}}),
        )
        .await;
    assert_eq!(status, 201, "{made}");
    assert!(made["runId"].is_string());
    assert_eq!(under.get(&format!("{compat}/stats/dashboard"), &eve).await.1["dag_count"], 1);
    let log = format!("{compat}/logs/run/run-team-a/pod/pod-team-a");
    assert_eq!(under.send(Method::GET, &log, &eve, Value::Null, &[]).await.0, 200);

    // Tokens: rotation, a cookie from another site, a new password, and too many failures.
    let second =
        under.post("/api/v1/auth/rotate", &eve, Value::Null).await.1["token"].as_str().unwrap().to_owned();
    assert_eq!(under.get("/api/v1/auth/self", &eve).await.0, 401);
    assert_eq!(under.get("/api/v1/auth/self", &second).await.1["role"], "viewer");
    let cookie = format!("freehold-workflow={second}");
    let from_elsewhere = [("cookie", cookie.as_str()), ("origin", "https://evil.example")];
    assert_eq!(
        under.send(Method::POST, "/api/v1/auth/logout", "", Value::Null, &from_elsewhere).await.0,
        403
    );
    let change = json!({"oldPassword": "another long one", "password": "yet another one"});
    assert_eq!(under.post("/api/v1/auth/password", &second, change).await.0, 204);
    assert_eq!(under.get("/api/v1/auth/self", &second).await.0, 401);
    for _ in 0..10 {
        assert_eq!(under.post("/api/v1/auth/login", "", login("eve", "wrong wrong wrong")).await.0, 401);
    }
    assert_eq!(under.post("/api/v1/auth/login", "", login("eve", "yet another one")).await.0, 429);
}
