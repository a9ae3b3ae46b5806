//! Aggregated servers of a project: somebody else's, and such as do what no well-kept server does.

use crate::aggregation::{GROUP, expose, reason, registration};
use crate::{PATIENCE, contains_all, items, names, row, text};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_tests_integration::{
    Engine, Extension, Held, Http, Kubectl, Options, Rogue, Server, Way, facts, until,
};
use serde_json::json;
use std::path::PathBuf;

facts!(engine:
    somebody_elses_extension_server_serves_a_project,
    rogue_servers_harm_requests_that_match_them_alone,
    a_server_is_told_who_asks_and_where_and_upgrades_pass,
    a_dedicated_control_plane_has_servers_of_its_own,
    addresses_that_only_the_server_reaches_are_not_asked,
);

/// A server that lets its control planes reach loopback addresses, with a project.
pub(crate) fn server(engine: Engine) -> (Server, Kubectl) {
    server_reaching(engine, "127.0.0.0/8,::1/128")
}

fn server_reaching(engine: Engine, networks: &str) -> (Server, Kubectl) {
    let args = ["--outbound-networks", networks].map(str::to_owned).into();
    let server = Server::start(Options { engine, args, ..Options::default() });
    let manifests = "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}\n\
        spec: {type: Standard}\n---\napiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\n\
        metadata: {name: web}\nspec: {ownerRef: {kind: Organization, name: acme}}\n";
    server.kubectl().apply(manifests);
    server.kubectl().ok(&["wait", "--for=condition=Ready", "project/web", "--timeout=120s"]);
    let kubectl = server.project("web");
    (server, kubectl)
}

/// What an extension server needs in its control plane, as Kubernetes documents it, and its kubeconfig.
pub(crate) fn account(server: &Server, kubectl: &Kubectl) -> PathBuf {
    kubectl.ok(&["create", "namespace", "wardle"]);
    kubectl.ok(&["-n", "wardle", "create", "serviceaccount", "apiserver"]);
    let subject = "--serviceaccount=wardle:apiserver";
    kubectl.ok(&[
        "create",
        "clusterrolebinding",
        "wardle:delegator",
        "--clusterrole=system:auth-delegator",
        subject,
    ]);
    kubectl.ok(&[
        "-n",
        "kube-system",
        "create",
        "rolebinding",
        "wardle-auth-reader",
        "--role=extension-apiserver-authentication-reader",
        subject,
    ]);
    kubectl.ok(&["create", "clusterrole", "wardle", "--verb=get,list,watch", "--resource=namespaces,validatingadmissionpolicies,validatingadmissionpolicybindings,mutatingwebhookconfigurations,validatingwebhookconfigurations,mutatingadmissionpolicies,mutatingadmissionpolicybindings"]);
    kubectl.ok(&["create", "clusterrolebinding", "wardle", "--clusterrole=wardle", subject]);
    let token = kubectl.ok(&["-n", "wardle", "create", "token", "apiserver", "--duration=1h"]);
    let own = kubectl.json(&["config", "view", "--raw", "--minify"]);
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": own["clusters"][0]["cluster"]}],
        "users": [{"name": "u", "user": {"token": token.trim()}}],
    });
    let path = server.folder().join("extension.kubeconfig");
    std::fs::write(&path, config.to_string()).expect("the test's folder can be written");
    path
}

const FLUNDER: &str = "apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: one, namespace: default, labels: {a: b}}\n\
    spec: {reference: other}\n";

fn somebody_elses_extension_server_serves_a_project(engine: Engine) {
    let (server, kubectl) = server(engine);
    let extension = Extension::start(&account(&server, &kubectl), "api.wardle.svc");
    kubectl.apply(
        &json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "api", "namespace": "wardle"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}})
        .to_string(),
    );
    for (version, priority) in [("v1alpha1", 200), ("v1beta1", 300)] {
        let object = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.wardle.example.com")},
            "spec": {"group": "wardle.example.com", "version": version, "groupPriorityMinimum": 2000,
                "versionPriority": priority, "caBundle": STANDARD.encode(extension.ca_pem()),
                "service": {"namespace": "wardle", "name": "api", "port": extension.port()}},
        });
        kubectl.apply(&object.to_string());
    }
    kubectl.ok(&[
        "wait",
        "--for=condition=Available",
        "apiservice/v1alpha1.wardle.example.com",
        "apiservice/v1beta1.wardle.example.com",
        "--timeout=120s",
    ]);

    // Discovery, both ways; kubectl asks for the aggregated form first.
    let listed = until("its resources are discovered", PATIENCE, || {
        // It fails where something is known as stale only.
        let listed = kubectl.run(&["api-resources", "--api-group=wardle.example.com", "-o", "name"]);
        (listed.success && listed.stdout.contains("fischers")).then_some(listed.stdout)
    });
    contains_all(&listed, &["fischers.wardle.example.com", "flunders.wardle.example.com"]);
    let http = Http::of(&kubectl);
    let group = http.get("/apis/wardle.example.com").body;
    assert_eq!(text(&group, "/preferredVersion/version"), "v1beta1");

    // Verbs, by a user whom the server asks the project about.
    contains_all(&kubectl.apply(FLUNDER), &["flunder.wardle.example.com/one created"]);
    let table = kubectl.ok(&["get", "flunders"]);
    row(&table, "one");
    kubectl.ok(&["label", "flunder", "one", "c=d"]);
    let found = kubectl.json(&["get", "flunders", "-l", "c=d", "-A"]);
    assert_eq!(names(&found), ["one"]);
    until("its kinds are explained", PATIENCE, || {
        let explained = kubectl.run(&["explain", "flunder.spec"]).stdout;
        ["Flunder", "reference"].iter().all(|part| explained.contains(part)).then_some(())
    });
    let noted = "jsonpath={.metadata.annotations.noted}{\"\\n\"}";
    let one = "--field-selector=metadata.name=one";
    let watch = kubectl.background(&["get", "flunders", one, "--watch", "-o", noted]);
    kubectl.ok(&["annotate", "flunder", "one", "noted=seen"]);
    watch.wait_for("seen");
    drop(watch);
    let invalid = kubectl.run_with_input(
        &["create", "-f", "-"],
        &FLUNDER.replace("reference: other", "reference: other, referenceType: Wrong"),
    );
    let _ = invalid.expect_failure();

    // The project's rules come first, the server's own questions after them.
    kubectl.ok(&["-n", "default", "create", "serviceaccount", "reader"]);
    let token = kubectl.ok(&["-n", "default", "create", "token", "reader"]);
    let reader = Http::with_token(&kubectl, &format!("{}/projects/web", server.url()), token.trim());
    let path = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders";
    let refused = reader.get(path);
    assert_eq!(refused.code, 403);
    contains_all(
        text(&refused.body, "/message"),
        &["cannot list resource \"flunders\" in API group \"wardle.example.com\""],
    );
    kubectl.ok(&[
        "-n",
        "default",
        "create",
        "role",
        "flunders",
        "--verb=list",
        "--resource=flunders.wardle.example.com",
    ]);
    kubectl.ok(&[
        "-n",
        "default",
        "create",
        "rolebinding",
        "flunders",
        "--role=flunders",
        "--serviceaccount=default:reader",
    ]);
    let allowed = until("the server has learned it, too", PATIENCE, || {
        let answer = reader.get(path);
        (answer.code == 200).then_some(answer)
    });
    assert_eq!(items(&allowed.body).count(), 1);

    // OpenAPI.
    let index = http.get("/openapi/v3").body;
    let url = until("its OpenAPI is found", PATIENCE, || {
        let index = http.get("/openapi/v3").body;
        let url = text(&index["paths"]["apis/wardle.example.com/v1alpha1"], "/serverRelativeURL").to_owned();
        (!url.is_empty()).then_some(url)
    });
    contains_all(&url, &["/projects/web/openapi/v3/apis/wardle.example.com/v1alpha1?hash="]);
    drop(index);
    let document = http.get("/openapi/v3/apis/wardle.example.com/v1alpha1").body;
    assert!(document["paths"].get("/apis/wardle.example.com/v1alpha1/fischers").is_some());
    // A server that takes its time is left out of an answer.
    let merged = until("it is merged into the OpenAPI of all", PATIENCE, || {
        let merged = http.get("/openapi/v2").body;
        merged["paths"].get("/apis/wardle.example.com/v1alpha1/fischers").is_some().then_some(merged)
    });
    assert!(merged["paths"].get("/api/v1/namespaces").is_some());

    // It goes away: the project goes on, and says so.
    drop(extension);
    until("it is known to be away", PATIENCE, || {
        let object = kubectl.json(&["get", "apiservice", "v1alpha1.wardle.example.com"]);
        (text(&object["status"]["conditions"][0], "/status") == "False").then_some(())
    });
    assert_eq!(http.get(path).code, 503);
    kubectl.ok(&["get", "namespaces"]);
    drop(server);
}

fn rogue_servers_harm_requests_that_match_them_alone(engine: Engine) {
    let (server, kubectl) = server(engine);
    expose(&kubectl, "rogue", "localhost");
    let rogue = Rogue::start("rogue.default.svc", |head| {
        let path = head.split_whitespace().nth(1).unwrap_or_default().split('?').next().unwrap_or_default();
        let version = path.split('/').nth(3).unwrap_or_default().to_owned();
        let answers = json!({"kind": "APIResourceList", "resources": [{"name": "things", "verbs": ["get", "list"], "kind": "Thing"}]});
        match path.rsplit('/').next().unwrap_or_default() {
            "hangs" => Way::Hang,
            "hangs-up" => Way::HangUp,
            "floods" => Way::Flood,
            "slow" => Way::Slow,
            "lies" => Way::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort".to_vec()),
            "babbles" => Way::Raw(vec![0xff; 100_000]),
            "redirects" => Way::Raw(
                b"HTTP/1.1 302 Found\r\nlocation: https://169.254.169.254/\r\ncontent-length: 0\r\n\r\n"
                    .to_vec(),
            ),
            "page" => Way::Raw(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-security-policy: script-src 'unsafe-inline'\r\n\
                set-cookie: session=theirs\r\ncontent-length: 26\r\n\r\n<script>alert(1)</script>\n"
                    .to_vec(),
            ),
            "apis" => Way::Flood,
            _ if version == "v1" => Way::Json(answers),
            _ => match version.as_str() {
                "v2" => Way::Hang,
                "v3" => Way::HangUp,
                "v4" => Way::Flood,
                _ => Way::Raw(b"nonsense\r\n\r\n".to_vec()),
            },
        }
    });
    let service = json!({"namespace": "default", "name": "rogue", "port": rogue.port()});
    let bundle = json!({"caBundle": STANDARD.encode(rogue.ca_pem())});
    for version in ["v1", "v2", "v3", "v5"] {
        kubectl.apply(&registration(version, &service, &bundle).to_string());
    }
    kubectl.apply(
        &registration("v6", &service, &json!({"caBundle": STANDARD.encode(other_authority())})).to_string(),
    );
    assert_eq!(reason(&kubectl, "v1", "Passed"), "all checks passed");
    for (version, part) in [
        ("v2", "deadline exceeded"),
        ("v3", "EOF"),
        ("v5", "failing or missing response"),
        ("v6", "x509: certificate signed by unknown authority"),
    ] {
        // Where the machine is busy it may say first that the time was up.
        until(&format!("{version} is refused with {part:?}"), PATIENCE * 2, || {
            reason(&kubectl, version, "FailedDiscoveryCheck").contains(part).then_some(())
        });
    }
    let http = Http::of(&kubectl);
    let at = |what: &str| format!("/apis/{GROUP}/v1/{what}");
    assert_eq!(http.get(&at("hangs-up")).code, 503);
    assert_eq!(http.get(&at("babbles")).code, 503);
    let redirected = http.get(&at("redirects"));
    assert_eq!(redirected.code, 502);
    let why = "the backend attempted to redirect this request, which is not permitted";
    contains_all(text(&redirected.body, "/message"), &[why]);

    // A page of its own runs nothing at this address, where the console is, and leaves and learns no cookie.
    let page = format!("{}/projects/web{}", server.url(), at("page"));
    let head = Held::get(&kubectl, &page, &["cookie: session=ours"]).head().to_ascii_lowercase();
    contains_all(
        &head,
        &["200", "content-security-policy: default-src 'none'; frame-ancestors 'none'; sandbox"],
    );
    assert!(!head.contains("set-cookie") && !head.contains("unsafe-inline"), "{head}");
    assert!(!rogue.heads().iter().any(|head| head.contains("session=ours")), "a cookie was passed on");

    // What comes slowly, or without end, comes to who asked for it.
    let endless = ["slow", "floods"].map(|what| {
        let mut held = Held::get(&kubectl, &format!("{}/projects/web{}", server.url(), at(what)), &[]);
        contains_all(&held.head(), &["200"]);
        held
    });
    assert_eq!(http.get(&at("things")).code, 200);
    kubectl.ok(&["get", "namespaces"]);
    drop(endless);

    // Requests that hang take no places of others: more of them than all requests have together.
    let url = format!("{}/projects/web{}", server.url(), at("hangs"));
    let hanging: Vec<_> = (0..450).map(|_| Held::get(&kubectl, &url, &[])).collect();
    until("the server has them", PATIENCE, || {
        (rogue.heads().iter().filter(|head| head.contains("/hangs ")).count() >= 400).then_some(())
    });
    kubectl.ok(&["get", "namespaces"]);
    kubectl.ok(&["create", "configmap", "goes-on"]);
    server.kubectl().ok(&["get", "projects"]);
    contains_all(&kubectl.ok(&["api-resources"]), &["configmaps", "deployments"]);
    drop(hanging);
}

fn other_authority() -> String {
    freehold_pki::Authority::generate("other").expect("an authority").cert_pem().to_owned()
}

fn a_server_is_told_who_asks_and_where_and_upgrades_pass(engine: Engine) {
    let (server, kubectl) = server(engine);
    expose(&kubectl, "told", "localhost");
    let rogue = Rogue::start("told.default.svc", |head| match head.contains("upgrade: echo") {
        true => Way::Echo,
        false => Way::Json(json!({"kind": "APIResourceList", "resources": []})),
    });
    let service = json!({"namespace": "default", "name": "told", "port": rogue.port()});
    kubectl.apply(
        &registration("v1", &service, &json!({"caBundle": STANDARD.encode(rogue.ca_pem())})).to_string(),
    );
    reason(&kubectl, "v1", "Passed");
    let plane = text(&server.kubectl().json(&["get", "project", "web"]), "/metadata/uid").to_owned();
    let url = format!("{}/projects/web/apis/{GROUP}/v1/told?x=y%2Fz", server.url());
    let lines = [
        "x-remote-user: forged",
        "x-remote-extra-freehold.dev%2Fproject: forged",
        "connection: upgrade",
        "upgrade: echo",
    ];
    let mut upgraded = Held::get(&kubectl, &url, &lines);
    contains_all(&upgraded.head(), &["HTTP/1.1 101"]);
    assert_eq!(upgraded.echo("ping"), "ping");
    let heads = rogue.heads();
    let head = heads.iter().find(|head| head.contains("/told?")).expect("it came");
    assert!(!head.contains("forged"), "{head}");
    contains_all(
        &head.to_lowercase(),
        &[
            &format!("get /apis/{GROUP}/v1/told?x=y%2fz http/1.1"),
            "x-remote-user: ",
            "x-remote-group: system:masters",
            "x-remote-extra-resourcemanager.freehold.dev%2fproject: web",
            "x-remote-extra-resourcemanager.freehold.dev%2forganization: acme",
            &format!("x-remote-extra-freehold.dev%2fplane: {plane}"),
        ],
    );
}

fn a_dedicated_control_plane_has_servers_of_its_own(engine: Engine) {
    let (server, kubectl) = server(engine);
    let dedicated = json!({"spec": {"controlPlane": {"mode": "Dedicated"}}}).to_string();
    let admin = server.kubectl();
    admin.ok(&["patch", "project", "web", "--type=merge", "--patch", &dedicated]);
    until("the project is dedicated", PATIENCE * 3, || {
        let project = admin.json(&["get", "project", "web"]);
        (text(&project, "/status/controlPlane/mode") == "Dedicated").then_some(())
    });
    expose(&kubectl, "own", "localhost");
    let rogue =
        Rogue::start("own.default.svc", |_| Way::Json(json!({"kind": "APIResourceList", "resources": []})));
    let service = json!({"namespace": "default", "name": "own", "port": rogue.port()});
    kubectl.apply(
        &registration("v1", &service, &json!({"caBundle": STANDARD.encode(rogue.ca_pem())})).to_string(),
    );
    reason(&kubectl, "v1", "Passed");
    assert_eq!(Http::of(&kubectl).get(&format!("/apis/{GROUP}/v1/things")).code, 200);
    let heads = rogue.heads();
    assert!(heads.iter().any(|head| head.contains(&format!("/apis/{GROUP}/v1/things "))), "{heads:?}");
}

fn addresses_that_only_the_server_reaches_are_not_asked(engine: Engine) {
    let (_server, kubectl) = server_reaching(engine, "public");
    let rogue = Rogue::start("inward.default.svc", |_| Way::Json(json!({})));
    expose(&kubectl, "inward", "localhost");
    let service = json!({"namespace": "default", "name": "inward", "port": rogue.port()});
    kubectl.apply(&registration("v1", &service, &json!({"insecureSkipTLSVerify": true})).to_string());
    let message = reason(&kubectl, "v1", "FailedDiscoveryCheck");
    contains_all(&message, &["failing or missing response from https://inward.default.svc"]);
    assert!(rogue.heads().is_empty(), "{message}");
}
