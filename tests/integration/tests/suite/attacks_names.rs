//! Names, groups and extra keys of Freehold's own: nobody gets one by asking, in whatever way; and what Kubernetes' own
//! components are called works in a project, and leaves a trace.

use crate::{
    PATIENCE,
    attacks::{WHO_AM_I, with_lines},
    attacks_audit::event,
    contains_all, text,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_pki::{ClientName, Pair, PrivateKey};
use freehold_tests_integration::{Http, Kubectl, World, facts, until};
use http::Method;
use rcgen::{CertificateParams, DnType, DnValue, KeyPair};
use serde_json::json;

facts!(world:
    components_of_kubernetes_work_in_a_project_and_leave_a_trace,
    no_project_signs_a_certificate_for_a_name_or_group_of_freeholds,
    a_group_in_an_encoding_that_is_not_read_is_not_signed,
    nobody_impersonates_what_freehold_alone_sets,
    no_user_object_is_a_component_of_freehold,
);

fn csr(user: &str, groups: &[&str]) -> (String, String) {
    let key = PrivateKey::generate().expect("a key");
    let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
    let client = ClientName { user, groups: &groups, plane: None };
    let request = freehold_pki::csr::request(&key, &client, &[] as &[&str]).expect("a request");
    (request, key.pem().to_owned())
}

/// Has a request approved and signed: the certificate, or why there is none.
fn sign(project: &Kubectl, name: &str, request: &str) -> Result<String, String> {
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name},
        "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
            "request": BASE64_STANDARD.encode(request),
        },
    });
    let made = project.run_with_input(&["create", "-f", "-"], &object.to_string());
    if !made.success {
        return Err(made.stderr);
    }
    project.ok(&["certificate", "approve", name]);
    until("it is signed or refused", PATIENCE, || {
        let object = project.json(&["get", "csr", name]);
        let failed = object["status"]["conditions"].as_array().into_iter().flatten();
        let failed =
            failed.filter(|one| text(one, "/type") == "Failed").map(|one| text(one, "/message")).next();
        match (failed, text(&object, "/status/certificate")) {
            (Some(why), _) => Some(Err(why.to_owned())),
            (None, "") => None,
            (None, signed) => {
                let pem = BASE64_STANDARD.decode(signed).expect("base64");
                Some(Ok(String::from_utf8(pem).expect("PEM")))
            }
        }
    })
}

fn components_of_kubernetes_work_in_a_project_and_leave_a_trace(world: &World) {
    world.organization("traced", &["traced-a"]);
    let (admin, project) = (world.admin(), world.server().project("traced-a"));
    let url = format!("{}/projects/traced-a", world.server().url());
    for (name, user) in [
        ("manager", "system:kube-controller-manager"),
        ("scheduler", "system:kube-scheduler"),
        ("ghost", "ghost1"),
    ] {
        let (request, key_pem) = csr(user, &["devs"]);
        let cert_pem = sign(&project, name, &request).expect("it is signed");
        let bind = ["create", "clusterrolebinding", name, "--clusterrole=cluster-admin"];
        project.ok(&[&bind[..], &[&format!("--user={user}")]].concat());
        let http = Http::with_certificate(&project, &url, &Pair { cert_pem, key_pem });
        let made = http.json(
            Method::POST,
            "/api/v1/namespaces/default/secrets",
            &json!({"metadata": {"name": format!("made-by-{name}")}}),
        );
        assert_eq!(made.code, 201, "{user}: {}", made.body);
        let about = format!("made-by-{name}");
        let seen = event(&admin, "traced", user, |event| event["objectRef"]["name"] == about.as_str());
        assert_eq!(seen["user"]["username"], user);
    }
}

fn no_project_signs_a_certificate_for_a_name_or_group_of_freeholds(world: &World) {
    let project = world.project("named");
    let rows: [(&str, &[&str]); 8] = [
        ("ghost1", &["system:freehold:controllers"]),
        ("ghost1", &["devs", "freehold:serviceaccounts"]),
        ("ghost1", &["organization:tests:owners"]),
        ("ghost1", &["system:masters"]),
        ("system:freehold:controller-manager", &[]),
        ("freehold:serviceaccount:organization-tests:ci", &[]),
        ("organization:tests:jane", &[]),
        ("aggregator:core", &[]),
    ];
    for (nth, (user, groups)) in rows.into_iter().enumerate() {
        let refused = sign(&project, &format!("reserved-{nth}"), &csr(user, groups).0);
        let why = refused.expect_err(&format!("{user} {groups:?} was signed"));
        assert!(why.contains("reserved") || why.contains("orbidden"), "{user} {groups:?}: {why}");
    }
}

fn a_group_in_an_encoding_that_is_not_read_is_not_signed(world: &World) {
    let project = world.project("named");
    let key = KeyPair::generate().expect("a key");
    for (name, group) in [
        ("encoded-bmp", DnValue::BmpString("system:masters".try_into().expect("a BMP string"))),
        ("encoded-teletex", DnValue::TeletexString("system:masters".try_into().expect("a teletex string"))),
    ] {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "ghost1");
        params.distinguished_name.push(DnType::OrganizationName, group);
        let request = params.serialize_request(&key).expect("a request").pem().expect("PEM");
        let refused = sign(&project, name, &request).expect_err("it was signed");
        let why = ["failed to parse", "encoding", "reserved"];
        assert!(why.iter().any(|why| refused.contains(why)), "{name}: {refused}");
    }
}

fn nobody_impersonates_what_freehold_alone_sets(world: &World) {
    let project = world.project("named");
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).to_string();
    let ask =
        |lines: &[&str]| with_lines(&project, "POST", &format!("/projects/named{WHO_AM_I}"), lines, &body);
    let user = "impersonate-user: jane";
    for refused in [
        &["impersonate-user: system:freehold:controller-manager"][..],
        &[user, "impersonate-group: system:freehold:controllers"],
        &[user, "impersonate-extra-iam.freehold.dev%2fgranted: IAM"],
        &[user, "impersonate-extra-iam.freehold.dev%2fkey: organization-acme/ci"],
        &[user, "impersonate-extra-freehold.dev%2fplane: core"],
        &[user, "impersonate-extra-plane.freehold.dev: core"],
        &[user, "impersonate-extra-PLANE.Freehold.dev: core"],
    ] {
        contains_all(&ask(refused), &["HTTP/1.1 403 ", "reserved"]);
    }
    // Roles are tried out as those whom they are for.
    for allowed in [
        &["impersonate-user: organization:tests:jane"][..],
        &["impersonate-user: freehold:serviceaccount:organization-tests:ci"],
        &["impersonate-user: system:kube-scheduler"],
        &[user, "impersonate-group: system:masters", "impersonate-extra-scopes: a"],
    ] {
        contains_all(&ask(allowed), &["HTTP/1.1 201 "]);
    }
}

fn no_user_object_is_a_component_of_freehold(world: &World) {
    let http = Http::of(&world.admin());
    let make = |name: &str, username: &str| {
        let user = json!({
            "apiVersion": "iam.freehold.dev/v1alpha1", "kind": "User", "metadata": {"name": name},
            "spec": {"username": username, "email": "a@example.com"},
        });
        http.json(Method::POST, "/apis/iam.freehold.dev/v1alpha1/users", &user).code
    };
    assert_eq!(make("component", "system:freehold:controller-manager"), 422);
    assert_eq!(make("store", "plane:core"), 422);
    assert_eq!(make("plain", "organization:tests:plain"), 201);
}
