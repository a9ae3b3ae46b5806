//! What controllers hand out: tokens in Secrets, and certificates of nodes.

use crate::{PATIENCE, contains_all, text};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_tests_integration::{Http, Kubectl, World, facts, until};
use serde_json::{Value, json};

facts!(world:
    a_secret_for_a_service_account_gets_a_token_and_goes_with_the_account,
    a_node_gets_its_certificate_when_its_requester_may_ask_for_it,
);

fn secret(kubectl: &Kubectl, name: &str, account: &str) {
    let annotations = json!({"kubernetes.io/service-account.name": account});
    kubectl.apply(
        &json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "annotations": annotations},
            "type": "kubernetes.io/service-account-token",
        })
        .to_string(),
    );
}

/// The data of a Secret, decoded, once it has a token.
fn token(kubectl: &Kubectl, name: &str) -> [String; 3] {
    until(&format!("{name} has a token"), PATIENCE, || {
        let secret = kubectl.json(&["get", "secret", name]);
        let field = |key: &str| {
            let text = secret["data"][key].as_str().unwrap_or_default();
            String::from_utf8(BASE64_STANDARD.decode(text).expect("base64")).expect("text")
        };
        (!field("token").is_empty()).then(|| [field("token"), field("namespace"), field("ca.crt")])
    })
}

fn a_secret_for_a_service_account_gets_a_token_and_goes_with_the_account(world: &World) {
    let kubectl = world.namespace("credentials", "tokens");
    kubectl.ok(&["create", "serviceaccount", "robot"]);
    secret(&kubectl, "robot-token", "robot");
    let [first, namespace, ca] = token(&kubectl, "robot-token");
    assert_eq!(namespace, "tokens");
    contains_all(&ca, &["BEGIN CERTIFICATE"]);
    let url = format!("{}/projects/credentials", world.server().url());
    let who = |token: &str| {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let answer = Http::with_token(&kubectl, &url, token).json(http::Method::POST, path, &review);
        (answer.code, text(&answer.body, "/status/userInfo/username").to_owned())
    };
    assert_eq!(who(&first), (201, "system:serviceaccount:tokens:robot".to_owned()));
    // Who takes the token out gets a new one; the Secret's end is the token's.
    kubectl.ok(&["patch", "secret", "robot-token", "--type=merge", "-p", r#"{"data":{"token":null}}"#]);
    let [second, ..] = token(&kubectl, "robot-token");
    kubectl.ok(&[
        "patch",
        "serviceaccount",
        "robot",
        "--type=merge",
        "-p",
        r#"{"secrets":[{"name":"robot-token"},{"name":"other"}]}"#,
    ]);
    kubectl.ok(&["delete", "secret", "robot-token"]);
    until("the token is worth nothing", PATIENCE, || (who(&second).0 == 401).then_some(()));
    until("the account does not list it any more", PATIENCE, || {
        let account = kubectl.json(&["get", "serviceaccount", "robot"]);
        (account["secrets"] == json!([{"name": "other"}])).then_some(())
    });
    secret(&kubectl, "robot-again", "robot");
    token(&kubectl, "robot-again");
    kubectl.ok(&["delete", "serviceaccount", "robot"]);
    World::gone(&kubectl, &["secret", "robot-again"]);
    secret(&kubectl, "of-nobody", "absent");
    World::gone(&kubectl, &["secret", "of-nobody"]);
}

/// Asks, as a user, for the certificate of a node.
fn ask(kubectl: &Kubectl, user: &str, name: &str, node: &str) -> freehold_pki::PrivateKey {
    let key = freehold_pki::PrivateKey::generate().expect("a key");
    let groups = ["system:nodes".to_owned()];
    let client = freehold_pki::ClientName { user: node, groups: &groups, plane: None };
    let request = freehold_pki::csr::request(&key, &client, &[] as &[&str]).expect("a request");
    let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name}, "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["client auth", "digital signature"], "request": BASE64_STANDARD.encode(request)}});
    let made = kubectl.run_with_input(&["create", "--as", user, "-f", "-"], &object.to_string());
    assert!(made.success, "{}", made.stderr);
    key
}

fn conditions(kubectl: &Kubectl, name: &str) -> (Value, String) {
    let csr = kubectl.json(&["get", "csr", name]);
    (csr["status"]["conditions"].clone(), text(&csr, "/status/certificate").to_owned())
}

fn a_node_gets_its_certificate_when_its_requester_may_ask_for_it(world: &World) {
    let kubectl = world.project("credentials");
    for (role, resources) in [
        ("asks", "certificatesigningrequests"),
        ("asks-for-nodes", "certificatesigningrequests,certificatesigningrequests/nodeclient"),
    ] {
        let resources: Vec<String> = resources
            .split(',')
            .map(|resource| match resource.split_once('/') {
                Some((name, sub)) => format!("{name}.certificates.k8s.io/{sub}"),
                None => format!("{resource}.certificates.k8s.io"),
            })
            .collect();
        let resources = format!("--resource={}", resources.join(","));
        kubectl.ok(&["create", "clusterrole", role, "--verb=create", &resources]);
        kubectl.ok(&[
            "create",
            "clusterrolebinding",
            role,
            &format!("--clusterrole={role}"),
            &format!("--user=who-{role}"),
        ]);
    }
    ask(&kubectl, "who-asks", "not-allowed", "system:node:a");
    let key = ask(&kubectl, "who-asks-for-nodes", "allowed", "system:node:b");
    let signed = until("it is approved and signed", PATIENCE, || {
        let (conditions, certificate) = conditions(&kubectl, "allowed");
        (conditions[0]["reason"] == "AutoApproved" && !certificate.is_empty()).then_some(certificate)
    });
    let signed = BASE64_STANDARD.decode(signed).expect("base64");
    let pair = freehold_pki::Pair {
        cert_pem: String::from_utf8_lossy(&signed).into_owned(),
        key_pem: key.pem().to_owned(),
    };
    let url = format!("{}/projects/credentials", world.server().url());
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = Http::with_certificate(&kubectl, &url, &pair).json(
        http::Method::POST,
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        &review,
    );
    assert_eq!(text(&answer.body, "/status/userInfo/username"), "system:node:b", "{answer:?}");
    // The other was made before and is of a user who may not: nobody has decided on it.
    assert_eq!(conditions(&kubectl, "not-allowed"), (Value::Null, String::new()));
    // What a node serves with is signed by nobody, whoever approves: the authority is the server's own.
    kubectl.ok(&["certificate", "approve", "not-allowed"]);
    until("an approval by hand counts", PATIENCE, || {
        Some(conditions(&kubectl, "not-allowed").1).filter(|certificate| !certificate.is_empty())
    });
}
