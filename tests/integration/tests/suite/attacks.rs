//! What somebody with all rights in a project of their own could try against another one, trick by trick. The tricks of the
//! wire are in `attacks_wire`, the plain requests with a stranger's identity in `isolation`.

use crate::{PATIENCE, contains_all, names, text};
use freehold_tests_integration::{HookServer, Http, Kubectl, World, facts, until};
use http::Method;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

facts!(world:
    forged_front_proxy_headers_make_nobody_of_anybody,
    forged_extras_of_impersonation_stay_in_their_project,
    impersonating_an_admin_is_being_one_of_the_own_project,
    a_token_for_another_audience_is_refused,
    a_token_that_says_itself_how_it_is_checked_is_refused,
    a_certificate_that_a_project_signed_for_a_mighty_group_is_of_that_project,
    expired_and_early_certificates_are_refused,
    a_continue_token_of_another_project_leads_nowhere,
    a_made_up_continue_token_leads_into_no_other_namespace,
    a_resource_version_of_another_project_shows_nothing_of_it,
    an_owner_in_another_project_is_no_owner,
    a_finalizer_of_one_project_holds_nothing_in_another,
    selectors_and_names_never_lead_out_of_a_project,
    a_webhook_gets_no_credentials_and_calls_back_in_circles_alone,
);

/// What must never be seen, and the same in base64, as Secrets have it.
const TREASURE: &str = "the-victims-treasure";
const ENCODED: &str = "dGhlLXZpY3RpbXMtdHJlYXN1cmU";

/// Whether something of the victim's can be read in a text.
pub(crate) fn leaks(text: &str) -> bool {
    text.contains(TREASURE) || text.contains(ENCODED)
}

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// The attacker's project and the victim's, which has a Secret `treasure` and ConfigMaps `treasure-1` to `treasure-5`.
pub(crate) fn parties(world: &World) -> (Kubectl, Kubectl) {
    let victim = world.prepared("attacked", |kubectl| {
        let literal = format!("--from-literal=key={TREASURE}");
        kubectl.ok(&["create", "secret", "generic", "treasure", &literal]);
        for nth in 1..=5 {
            kubectl.ok(&["create", "configmap", &format!("treasure-{nth}"), &literal]);
        }
    });
    (world.project("attacker"), victim)
}

/// Every place that is not the attacker's own.
fn elsewhere(world: &World) -> Vec<String> {
    let plane = world.uid("attacked");
    vec![
        "/projects/attacked".into(),
        format!("/planes/{plane}"),
        "/planes/core".into(),
        "/planes/infra".into(),
        "/organizations/tests".into(),
        String::new(),
    ]
}

fn assert_refused(http: &Http, what: &str) {
    for path in [SECRETS, "/api/v1/secrets", "/api"] {
        let answer = http.get(path);
        assert!([401, 403].contains(&answer.code), "{what}: {path} gave {} {}", answer.code, answer.body);
    }
}

fn who_am_i(http: &Http) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    http.json(Method::POST, WHO_AM_I, &review).body["status"]["userInfo"].clone()
}

/// A request by HTTP/1.1 with further lines in its head; gives the whole answer.
pub(crate) fn with_lines(kubectl: &Kubectl, method: &str, path: &str, lines: &[&str], body: &str) -> String {
    let mut wire = freehold_tests_integration::Wire::http1(kubectl);
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {}\r\n{}content-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n{lines}\r\n{body}",
        wire.authority,
        wire.authorization(),
        body.len()
    );
    wire.send(head.as_bytes()).expect("the request is sent");
    wire.rest()
}

fn forged_front_proxy_headers_make_nobody_of_anybody(world: &World) {
    let (attacker, _) = parties(world);
    let forged = [
        "x-remote-user: freehold-admin",
        "x-remote-group: system:masters",
        "X-Remote-Extra-Freehold.dev%2Fplane: core",
        "x-remote-uid: 0",
        "x-forwarded-for: 127.0.0.1",
        "x-original-uri: /planes/core/api/v1/secrets",
        "x-rewrite-url: /planes/core/api/v1/secrets",
    ];
    for place in elsewhere(world) {
        let answer = with_lines(&attacker, "GET", &format!("{place}{SECRETS}"), &forged, "");
        assert!(
            answer.starts_with("HTTP/1.1 401 ") || answer.starts_with("HTTP/1.1 403 "),
            "{place}: {answer}"
        );
    }
    let own = format!("/projects/attacker{WHO_AM_I}");
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let answer = with_lines(&attacker, "POST", &own, &forged, &review);
    contains_all(&answer, &["HTTP/1.1 201 ", text(&who_am_i(&Http::of(&attacker)), "/username")]);
    assert!(!answer.contains("freehold-admin") && !answer.contains("\"core\""), "{answer}");
}

fn forged_extras_of_impersonation_stay_in_their_project(world: &World) {
    let (attacker, _) = parties(world);
    let lines = [
        "impersonate-user: jane",
        "impersonate-group: system:masters",
        "impersonate-extra-freehold.dev%2fplane: core",
        "impersonate-extra-resourcemanager.freehold.dev%2fproject: attacked",
    ];
    for place in elsewhere(world) {
        let answer = with_lines(&attacker, "GET", &format!("{place}{SECRETS}"), &lines, "");
        assert!(
            answer.starts_with("HTTP/1.1 401 ") || answer.starts_with("HTTP/1.1 403 "),
            "{place}: {answer}"
        );
    }
    // Without the user that they belong to they are a mistake, as in Kubernetes.
    let alone = with_lines(&attacker, "GET", &format!("/projects/attacker{SECRETS}"), &lines[1..], "");
    assert!(alone.starts_with("HTTP/1.1 4") || alone.starts_with("HTTP/1.1 500 "), "{alone}");
}

fn impersonating_an_admin_is_being_one_of_the_own_project(world: &World) {
    let (attacker, _) = parties(world);
    let names =
        ["freehold-admin", "system:apiserver", "freehold-apiserver", "system:kube-controller-manager"];
    for name in names {
        let mask = [&*format!("impersonate-user: {name}"), "impersonate-group: system:masters"];
        let own = with_lines(&attacker, "GET", "/projects/attacker/api/v1/secrets", &mask, "");
        assert!(own.starts_with("HTTP/1.1 200 ") && !leaks(&own), "{name}: {own}");
        for place in elsewhere(world) {
            let answer = with_lines(&attacker, "GET", &format!("{place}/api/v1/secrets"), &mask, "");
            let refused = answer.starts_with("HTTP/1.1 401 ") || answer.starts_with("HTTP/1.1 403 ");
            assert!(refused, "{name} at {place}: {answer}");
        }
    }
}

fn a_token_for_another_audience_is_refused(world: &World) {
    let (attacker, _) = parties(world);
    attacker.ok(&["create", "serviceaccount", "audience"]);
    let url = format!("{}/projects/attacker", world.server().url());
    for audience in ["https://somewhere.example", "attacked", "/projects/attacked"] {
        let token = attacker.ok(&["create", "token", "audience", "--audience", audience]);
        assert_eq!(Http::with_token(&attacker, &url, token.trim()).get("/api").code, 401, "{audience}");
    }
    let token = attacker.ok(&["create", "token", "audience"]);
    assert_eq!(Http::with_token(&attacker, &url, token.trim()).get("/api").code, 200);
    // Nor does it count when it is changed: another plane in its claims, no signature, another algorithm.
    let mut parts: Vec<String> = token.trim().split('.').map(str::to_owned).collect();
    let none = base64url(&json!({"alg": "none", "typ": "JWT"}).to_string());
    let mut forged = vec![format!("{none}.{}.", parts[1]), format!("{none}.{}.{}", parts[1], parts[2])];
    let claims = base64::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, &parts[1]).expect("claims");
    let claims = String::from_utf8_lossy(&claims);
    for plane in ["core", &world.uid("attacked")] {
        parts[1] = base64url(&claims.replace(&world.uid("attacker"), plane));
        forged.push(parts.join("."));
    }
    for token in forged {
        for place in elsewhere(world).into_iter().chain(["/projects/attacker".to_owned()]) {
            let url = format!("{}{place}", world.server().url());
            assert_eq!(Http::with_token(&attacker, &url, &token).get(SECRETS).code, 401, "{place}: {token}");
        }
    }
}

/// Heads that name a key, or a way to check the signature, of the attacker's own (RFC 8725, section 2).
fn a_token_that_says_itself_how_it_is_checked_is_refused(world: &World) {
    use jsonwebtoken::{Algorithm, EncodingKey, crypto::sign};
    let (attacker, _) = parties(world);
    let token = attacker.ok(&["create", "token", "default"]);
    let parts: Vec<&str> = token.trim().split('.').collect();
    let head = base64::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, parts[0]).expect("a head");
    let head: Value = serde_json::from_slice(&head).expect("a head in JSON");
    let url = format!("{}/projects/attacker", world.server().url());
    let with = |field: &str, value: Value| {
        let mut head = head.clone();
        head[field] = value;
        format!("{}.{}", base64url(&head.to_string()), parts[1])
    };
    let mut forged = Vec::new();
    // What everybody knows as a secret that is shared.
    let keys = attacker.ok(&["get", "--raw", "/projects/attacker/openid/v1/jwks"]);
    let public = serde_json::from_str::<Value>(&keys).expect("keys in JSON")["keys"][0].clone();
    assert!(public.is_object(), "{public}");
    let known = |field: &str| text(&public, field).to_owned();
    for algorithm in ["HS256", "hs256", "none", "nOnE", "None", ""] {
        let signed = with("alg", algorithm.into());
        for secret in [public.to_string(), known("/n"), known("/x"), known("/kid"), String::new()] {
            let key = EncodingKey::from_secret(secret.as_bytes());
            let mac = sign(signed.as_bytes(), &key, Algorithm::HS256).expect("a signature");
            forged.extend([format!("{signed}.{mac}"), format!("{signed}."), signed.clone()]);
        }
    }
    let own = freehold_pki::PrivateKey::generate().expect("a key");
    let key = EncodingKey::from_ec_pem(own.pem().as_bytes()).expect("a key");
    for (field, value) in [
        ("jwk", public.clone()),
        ("jku", json!("https://127.0.0.1:1/jwks")),
        ("x5u", json!("https://127.0.0.1:1/chain")),
        ("kid", json!("../../../../dev/null")),
        ("kid", json!(["a", "b"])),
        ("alg", json!("ES256")),
        ("crit", json!(["exp"])),
    ] {
        let signed = with(field, value);
        let signature = sign(signed.as_bytes(), &key, Algorithm::ES256).expect("a signature");
        forged.extend([format!("{signed}.{signature}"), format!("{signed}.{}", parts[2])]);
    }
    assert_eq!(Http::with_token(&attacker, &url, token.trim()).get("/api").code, 200, "as it is it counts");
    // What is the token itself, written again, is not forged.
    for token in forged.iter().filter(|forged| *forged != token.trim()) {
        assert_eq!(Http::with_token(&attacker, &url, token).get("/api").code, 401, "{token}");
    }
}

fn base64url(text: &str) -> String {
    base64::Engine::encode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, text)
}

fn a_certificate_that_a_project_signed_for_a_mighty_group_is_of_that_project(world: &World) {
    let (attacker, _) = parties(world);
    for (name, user, group) in [
        ("mighty", "freehold-admin", "system:masters"),
        ("plane", "plane:core", "system:masters"),
        ("server", "freehold-apiserver", "system:masters"),
    ] {
        let key = freehold_pki::PrivateKey::generate().expect("a key");
        let groups = [group.to_owned()];
        let client = freehold_pki::ClientName { user, groups: &groups, plane: None };
        let request = freehold_pki::csr::request(&key, &client, &[] as &[&str]).expect("a request");
        let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": name}, "spec": {"signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
            "request": base64::Engine::encode(&base64::prelude::BASE64_STANDARD, request)}});
        let made = attacker.run_with_input(&["create", "-f", "-"], &object.to_string());
        if !made.success {
            contains_all(&made.stderr, &["orbidden"]);
            continue;
        }
        attacker.ok(&["certificate", "approve", name]);
        let signed = until("it is signed or refused", PATIENCE, || {
            let object = attacker.json(&["get", "csr", name]);
            let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let failed = conditions.iter().any(|one| text(one, "/type") == "Failed");
            let certificate = text(&object, "/status/certificate").to_owned();
            (failed || !certificate.is_empty()).then_some(certificate)
        });
        if signed.is_empty() {
            continue;
        }
        let signed = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, signed).expect("base64");
        let pair = freehold_pki::Pair {
            cert_pem: String::from_utf8_lossy(&signed).into_owned(),
            key_pem: key.pem().to_owned(),
        };
        for place in elsewhere(world) {
            let url = format!("{}{place}", world.server().url());
            assert_refused(&Http::with_certificate(&attacker, &url, &pair), &format!("{name} at {place}"));
        }
    }
}

/// A client certificate that the server's own authority signed, with times of our choice.
fn certificate(world: &World, begins: i32, ends: i32) -> freehold_pki::Pair {
    let file = |name: &str| {
        std::fs::read_to_string(world.server().data_dir().join("pki").join(name))
            .expect("the server's authority")
    };
    let key = KeyPair::from_pem(&file("ca.key")).expect("a key");
    let issuer = Issuer::from_ca_cert_pem(&file("ca.crt"), key).expect("an authority");
    let own = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "root");
    params.distinguished_name.push(DnType::OrganizationName, "system:masters");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = rcgen::date_time_ymd(begins, 1, 1);
    params.not_after = rcgen::date_time_ymd(ends, 1, 1);
    let signed = params.signed_by(&own, &issuer).expect("a certificate");
    freehold_pki::Pair { cert_pem: signed.pem(), key_pem: own.serialize_pem() }
}

fn expired_and_early_certificates_are_refused(world: &World) {
    let url = world.server().url();
    let ask = |pair: &freehold_pki::Pair| {
        Http::with_certificate(&world.admin(), url, pair).try_get("/api/v1/secrets")
    };
    let valid = ask(&certificate(world, 2020, 2035)).expect("an answer");
    assert_eq!(valid.code, 200, "the same with the right times counts: {}", valid.body);
    for (begins, ends) in [(2015, 2020), (2034, 2035)] {
        // The handshake ends, or the request is refused.
        let code = ask(&certificate(world, begins, ends)).map(|answer| answer.code);
        assert!(code.is_none_or(|code| code == 401), "{begins} to {ends}: {code:?}");
    }
}

fn a_continue_token_of_another_project_leads_nowhere(world: &World) {
    let (attacker, victim) = parties(world);
    let page = Http::of(&victim).get(&format!("{MAPS}?limit=2"));
    let token = text(&page.body, "/metadata/continue").to_owned();
    assert!(!token.is_empty(), "{}", page.body);
    let own = Http::of(&attacker);
    for path in [MAPS, "/api/v1/configmaps", SECRETS] {
        let answer = own.get(&format!("{path}?limit=2&continue={token}"));
        let names = names(&answer.body).join(" ");
        assert!(!names.contains("treasure") && !leaks(&answer.body.to_string()), "{names}");
    }
    for token in ["eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi8ifQ", "%00", "..%2f..%2fplanes"]
    {
        let answer = own.get(&format!("{MAPS}?limit=2&continue={token}"));
        assert!([400, 410].contains(&answer.code), "{token}: {} {}", answer.code, answer.body);
    }
}

/// Anybody can write a continue token: it says where a list goes on, and not in which namespace.
fn a_made_up_continue_token_leads_into_no_other_namespace(world: &World) {
    let owner = world.project("paging");
    for namespace in ["aaa", "mmm", "zzz"] {
        owner.ok(&["create", "namespace", namespace]);
        let literal = format!("--from-literal=key={}", if namespace == "mmm" { "own" } else { TREASURE });
        owner.ok(&["-n", namespace, "create", "secret", "generic", "kept", &literal]);
    }
    owner.ok(&[
        "-n",
        "mmm",
        "create",
        "rolebinding",
        "own",
        "--clusterrole=admin",
        "--serviceaccount=mmm:default",
    ]);
    owner.ok(&["-n", "mmm", "wait", "--for=create", "serviceaccount/default", "--timeout=120s"]);
    let token = owner.ok(&["-n", "mmm", "create", "token", "default"]);
    let url = format!("{}/projects/paging", world.server().url());
    let http = Http::with_token(&owner, &url, token.trim());
    let path = "/api/v1/namespaces/mmm/secrets?limit=5";
    until("the binding counts", PATIENCE, || (http.get(path).code == 200).then_some(()));
    let version = text(&http.get(path).body, "/metadata/resourceVersion").parse::<u64>().expect("a number");
    let long = "m".repeat(4000);
    for start in [
        "",
        "/",
        "aaa",
        "aaa/",
        "aaa/kept",
        "mmm",
        "mmm/",
        "mmm\0",
        "mmm/kept",
        "mmm0",
        "n",
        "zzz/kept",
        "\u{10ffff}",
        &long,
    ] {
        for revision in [0, version, version - 1, 1, u64::MAX] {
            let made_up = base64url(&json!({"v": "freehold/v1", "rv": revision, "start": start}).to_string());
            let answer = http.get(&format!("{path}&continue={made_up}"));
            let said = format!("{start:?} at {revision}: {} {}", answer.code, answer.body);
            assert!([200, 400, 410, 504].contains(&answer.code), "{said}");
            assert!(!leaks(&answer.body.to_string()), "{said}");
        }
    }
}

fn a_resource_version_of_another_project_shows_nothing_of_it(world: &World) {
    let (attacker, victim) = parties(world);
    let version =
        text(&victim.json(&["get", "configmap", "treasure-1"]), "/metadata/resourceVersion").to_owned();
    let earlier = version.parse::<u64>().expect("a number") - 1;
    victim.ok(&["annotate", "configmap", "treasure-1", "touched=yes", "--overwrite"]);
    let own = Http::of(&attacker);
    for query in [
        format!("resourceVersion={version}&resourceVersionMatch=Exact"),
        format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"),
        format!("watch=1&timeoutSeconds=1&resourceVersion={earlier}"),
        "watch=1&timeoutSeconds=1&resourceVersion=1".to_owned(),
        "watch=1&timeoutSeconds=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan".to_owned(),
    ] {
        let answer = own.get(&format!("/api/v1/configmaps?{query}"));
        assert!(!leaks(&answer.body.to_string()), "{query}: {}", answer.body);
    }
}

fn an_owner_in_another_project_is_no_owner(world: &World) {
    let (attacker, victim) = parties(world);
    let owner = victim.json(&["get", "configmap", "treasure-2"]);
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "treasure-2", "uid": owner["metadata"]["uid"],
        "controller": true, "blockOwnerDeletion": true}]);
    let object = json!({"metadata": {"name": "adopted", "ownerReferences": reference}});
    assert_eq!(Http::of(&attacker).json(Method::POST, MAPS, &object).code, 201);
    // Its owner is not there: it goes, as in Kubernetes.
    World::gone(&attacker, &["configmap", "adopted"]);
    let after = victim.json(&["get", "configmap", "treasure-2"]);
    assert_eq!(after["metadata"]["resourceVersion"], owner["metadata"]["resourceVersion"]);
}

fn a_finalizer_of_one_project_holds_nothing_in_another(world: &World) {
    let (attacker, victim) = parties(world);
    for kubectl in [&attacker, &victim] {
        kubectl.ok(&["create", "configmap", "held"]);
    }
    let patch = r#"{"metadata":{"finalizers":["example.com/for-ever","kubernetes"]}}"#;
    attacker.ok(&["patch", "configmap", "held", "--type=merge", "-p", patch]);
    attacker.ok(&["delete", "configmap", "held", "--wait=false"]);
    victim.ok(&["delete", "configmap", "held", "--timeout=120s"]);
    attacker.ok(&["patch", "configmap", "held", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    World::gone(&attacker, &["configmap", "held"]);
}

fn selectors_and_names_never_lead_out_of_a_project(world: &World) {
    let (attacker, _) = parties(world);
    let own = Http::of(&attacker);
    let plane = world.uid("attacked");
    for path in [
        "/api/v1/secrets?fieldSelector=metadata.namespace%3D..%2F..%2Fattacked".to_owned(),
        "/api/v1/secrets?fieldSelector=metadata.name%3Dtreasure".to_owned(),
        format!("/api/v1/secrets?labelSelector=plane%3D{plane}"),
        format!("/api/v1/namespaces/{plane}/secrets"),
        format!("/api/v1/namespaces/{plane}%2Fdefault/secrets/treasure"),
        format!("/api/v1/namespaces/default/secrets/..%2F..%2F..%2F{plane}%2Fsecrets%2Fdefault%2Ftreasure"),
        "/api/v1/namespaces/default%00/secrets/treasure".to_owned(),
        "/api/v1/namespaces/*/secrets/treasure".to_owned(),
        "/apis/resourcemanager.freehold.dev/v1alpha1/projects/attacked".to_owned(),
        "/apis/infrastructure.freehold.dev/v1alpha1/projectcontrolplanes".to_owned(),
        "/backup".to_owned(),
        "/encryption".to_owned(),
    ] {
        let answer = own.get(&path);
        let body = answer.body.to_string();
        assert!(!leaks(&body) && names(&answer.body).is_empty(), "{path}: {} {body}", answer.code);
        assert!(answer.code == 200 || answer.code >= 400, "{path}: {}", answer.code);
    }
}

fn a_webhook_gets_no_credentials_and_calls_back_in_circles_alone(world: &World) {
    let (_, victim) = parties(world);
    // In a project of its own: it refuses what other tests make.
    let attacker = world.project("attacker-by-webhook");
    // Each call makes another object of the kind that the webhook is called for, until one is refused.
    let calls = Arc::new(AtomicUsize::new(0));
    let own = Arc::new(Http::of(&attacker));
    let server = {
        let (calls, own) = (calls.clone(), own.clone());
        HookServer::admission(move |_| {
            let nth = calls.fetch_add(1, Ordering::SeqCst);
            let own = own.clone();
            // On a thread of its own: whoever calls back waits for the answer that it holds up.
            let object = json!({"metadata": {"name": format!("circle-{nth}")}});
            let again = std::thread::spawn(move || own.json(Method::POST, MAPS, &object).code);
            drop(again);
            json!({"allowed": nth >= 50})
        })
    };
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "circle"}, "webhooks": [{"name": "circle.example.com", "clientConfig": server.by_url("/"),
        "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 30,
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}]}]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(own.json(Method::POST, hooks, &hook).code, 201);
    let first = own.json(Method::POST, MAPS, &json!({"metadata": {"name": "begin"}}));
    assert_eq!(first.code, 400, "{}", first.body);
    victim.ok(&["create", "configmap", "meanwhile"]);
    victim.ok(&["delete", "configmap", "meanwhile"]);
    until("the circle went on", PATIENCE, || (calls.load(Ordering::SeqCst) > 20).then_some(()));
    assert_eq!(own.json(Method::DELETE, &format!("{hooks}/circle"), &json!({})).code, 200);
    for review in server.seen() {
        let review = review.to_string();
        assert!(!review.contains("Bearer") && !review.contains("PRIVATE KEY") && !leaks(&review));
    }
}
