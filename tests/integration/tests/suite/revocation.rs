//! Each kind of identity ends with what it rests on: its requests are refused, and what it watches ends. The time that took
//! is printed; how long it may take is measured on a machine at rest (`docs/benchmarks.md`), not here.

use crate::access::{becomes, member};
use crate::authentication::{Provider, write};
use crate::{PATIENCE, text};
use freehold_tests_integration::{Background, Engine, Http, Kubectl, Options, Server, facts, until};
use http::Method;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use serde_json::json;
use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

facts!(engine:
    watches_end_with_the_token_that_began_them,
    watches_end_when_their_credential_has_expired,
);

const NAMESPACE: &str = "organization-ends";
/// How long credentials live that are to expire; longer where a machine is too busy to begin a watch in that time.
/// All end within what is waited for.
const LIVES: [u64; 3] = [12, 24, 48];

fn start(engine: Engine) -> Server {
    let args = vec!["--outbound-networks=public,127.0.0.0/8".to_owned()];
    let server = Server::start(Options { engine, args, ..Options::default() });
    let kubectl = server.kubectl();
    kubectl.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: ends}\n---\n\
         apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: ends-web}\n\
         spec: {ownerRef: {kind: Organization, name: ends}}\n",
    );
    kubectl.ok(&["wait", "--for=condition=Ready", "project/ends-web", "--timeout=120s"]);
    server
}

/// A watch of somebody who is allowed it.
fn allowed(kubectl: &Kubectl) -> Background {
    becomes(kubectl, &["get", "configmaps"], true);
    watched(kubectl)
}

fn watched(kubectl: &Kubectl) -> Background {
    kubectl.background(&["get", "--raw", "/projects/ends-web/api/v1/configmaps?watch=true"])
}

/// Somebody in the project, by a token.
fn with_token(server: &Server, token: &str) -> Kubectl {
    server.kubectl_with_token(token).with(&["--server", &format!("{}/projects/ends-web", server.url())])
}

/// Takes something away, and waits until the watch has ended and its user is refused.
fn ends(what: &str, kubectl: &Kubectl, watch: &mut Background, take: impl FnOnce()) {
    watch.wait_for("kube-root-ca.crt");
    take();
    let begun = Instant::now();
    watch.wait_for_end();
    let closed = begun.elapsed();
    becomes(kubectl, &["get", "configmaps"], false);
    println!("{what}: the watch ended after {} ms", closed.as_millis());
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().expect("after 1970").as_secs()
}

fn watches_end_with_the_token_that_began_them(engine: Engine) {
    let server = start(engine);
    let (admin, project) = (server.kubectl(), server.project("ends-web"));
    project.ok(&[
        "create",
        "clusterrolebinding",
        "all",
        "--clusterrole=view",
        "--group=system:serviceaccounts",
    ]);
    let account = |name: &str| project.ok(&["create", "serviceaccount", name]);
    let token = |args: &[&str]| {
        let made = project.ok(&[&["create", "token"], args].concat());
        with_token(&server, made.trim())
    };
    account("gone");
    let plain = token(&["gone"]);
    ends("a ServiceAccount", &plain, &mut allowed(&plain), || {
        project.ok(&["delete", "serviceaccount", "gone"]);
    });
    account("bound");
    project.ok(&["create", "secret", "generic", "key"]);
    let by_secret = token(&["bound", "--bound-object-kind=Secret", "--bound-object-name=key"]);
    ends("a Secret that a token is bound to", &by_secret, &mut allowed(&by_secret), || {
        project.ok(&["delete", "secret", "key"]);
    });
    project.apply(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: runs}\n\
         spec: {serviceAccountName: bound, containers: [{name: a, image: a}]}\n",
    );
    let by_pod = token(&["bound", "--bound-object-kind=Pod", "--bound-object-name=runs"]);
    ends("a Pod that a token is bound to", &by_pod, &mut allowed(&by_pod), || {
        project.ok(&["delete", "pod", "runs", "--force", "--grace-period=0"]);
    });
    // Nobody else's watch ended with them.
    let stays = token(&["bound"]);
    let other = allowed(&stays);
    other.wait_for("kube-root-ca.crt");
    the_issuer_of_an_organization_goes(&server);
    who_is_impersonated_goes_with_who_asks(&server);
    project.ok(&["create", "configmap", "after-all"]);
    other.wait_for("after-all");
    admin.ok(&["get", "projects"]);
    the_key_of_tokens_is_changed(&server, &project, (&stays, other));
}

/// The first key signs and the others are believed: what is taken out is believed no longer, for the watches that it began either.
fn the_key_of_tokens_is_changed(
    server: &Server,
    project: &Kubectl,
    (stays, mut other): (&Kubectl, Background),
) {
    let file = server.data_dir().join("pki/service-account.key");
    let put = |text: &str| freehold_pki::write_private(&file, text.as_bytes()).expect("a file is written");
    let old = fs::read_to_string(&file).expect("the key");
    let new = freehold_pki::PrivateKey::generate().expect("a key");
    put(&format!("{}{old}", new.pem()));
    // Each key of the platform is published with the one that a pair of the project would sign with.
    until("both keys are believed", PATIENCE, || {
        let keys = project.ok(&["get", "--raw", "/projects/ends-web/openid/v1/jwks"]);
        (keys.matches("\"kid\"").count() == 4).then_some(())
    });
    let of_new = with_token(server, project.ok(&["create", "token", "bound"]).trim());
    let newer = watched(&of_new);
    newer.wait_for("kube-root-ca.crt");
    project.ok(&["create", "configmap", "both-keys"]);
    other.wait_for("both-keys");
    ends("the key of tokens", stays, &mut other, || put(new.pem()));
    project.ok(&["create", "configmap", "one-key"]);
    newer.wait_for("one-key");
}

/// Makes the organization believe a provider, whose user jane may view a project.
fn jane_may_view(server: &Server, provider: &Provider) {
    let object = json!({
        "apiVersion": "iam.freehold.dev/v1alpha1", "kind": "IdentityProvider",
        "metadata": {"name": "login", "namespace": NAMESPACE},
        "spec": {"issuer": provider.issuer(), "claimMappings": {"username": {"claim": "sub", "prefix": ""}}},
    });
    server.kubectl().apply(&object.to_string());
    let bound =
        ["create", "clusterrolebinding", "jane", "--clusterrole=view", "--user=organization:ends:jane"];
    server.project("ends-web").ok(&bound);
}

fn the_issuer_of_an_organization_goes(server: &Server) {
    let (admin, provider) = (server.kubectl(), Provider::start());
    jane_may_view(server, &provider);
    let jane = with_token(server, &provider.token(json!({"sub": "jane"})));
    ends("an organization's issuer", &jane, &mut allowed(&jane), || {
        admin.ok(&["delete", "identityprovider", "login", "--namespace", NAMESPACE]);
    });
}

fn who_is_impersonated_goes_with_who_asks(server: &Server) {
    let (admin, project) = (server.kubectl(), server.project("ends-web"));
    admin.apply(&member("ends", "asks", "viewer"));
    project.ok(&[
        "create",
        "clusterrole",
        "be",
        "--verb=impersonate",
        "--resource=users",
        "--resource-name=other",
    ]);
    project.ok(&["create", "clusterrolebinding", "be", "--clusterrole=be", "--user=asks"]);
    project.ok(&["create", "clusterrolebinding", "other", "--clusterrole=view", "--user=other"]);
    let url = format!("{}/projects/ends-web", server.url());
    let other = server.person("asks").with(&["--server", &url, "--as", "other"]);
    ends("the right to be somebody else", &other, &mut allowed(&other), || {
        project.ok(&["delete", "clusterrolebinding", "be"]);
    });
}

/// A watch by a credential that lives for that many seconds, once it has begun.
fn begun(what: &str, make: impl Fn(u64) -> Kubectl) -> (Kubectl, Background, u64) {
    for seconds in LIVES {
        let until = now() + seconds;
        let kubectl = make(until);
        let mut watch = watched(&kubectl);
        while now() < until {
            if watch.printed().contains("kube-root-ca.crt") {
                return (kubectl, watch, until);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        watch.wait_for_end();
    }
    panic!("{what}: no watch began before its credential had ended");
}

fn watches_end_when_their_credential_has_expired(engine: Engine) {
    let server = start(engine);
    let (admin, provider) = (server.kubectl(), Provider::start());
    jane_may_view(&server, &provider);
    admin.apply(&member("ends", "carl", "viewer"));
    admin.apply(&service_account());
    until("what is allowed counts", PATIENCE, || {
        let jane = with_token(&server, &provider.token(json!({"sub": "jane"})));
        jane.run(&["get", "configmaps"]).success.then_some(())
    });
    let started = [
        (
            "a token of an issuer",
            begun("a token", |ends| {
                with_token(&server, &provider.token(json!({"sub": "jane", "exp": ends})))
            }),
        ),
        ("a certificate", begun("a certificate", |ends| of_certificate(&server, ends))),
        ("a key of a service account", begun("a key", |ends| with_token(&server, &key(&server, ends)))),
    ];
    for (what, (kubectl, mut watch, until)) in started {
        watch.wait_for_end();
        println!("{what}: the watch had ended at {} s after its expiry", now().saturating_sub(until));
        // Of an expired certificate the handshake says so.
        assert!(!kubectl.run(&["get", "configmaps"]).success, "{what}");
    }
}

fn service_account() -> String {
    format!(
        "---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: ServiceAccount, metadata: {{name: ci, namespace: {NAMESPACE}}}, spec: {{}}}}
---\n{{apiVersion: iam.freehold.dev/v1alpha1, kind: PolicyBinding, metadata: {{name: ci, namespace: {NAMESPACE}}},
  spec: {{roleRef: {{name: viewer, namespace: freehold-system}}, subjects: [{{kind: ServiceAccount, name: ci}}],
         target: {{kind: Project, name: ends-web}}}}}}\n"
    )
}

/// The token of a key that ends then, in seconds since 1970.
fn key(server: &Server, ends: u64) -> String {
    let path = format!("/apis/iam.freehold.dev/v1alpha1/namespaces/{NAMESPACE}/serviceaccountkeys");
    let date = jiff::Timestamp::from_second(i64::try_from(ends).expect("a time")).expect("a time");
    let key = json!({
        "apiVersion": "iam.freehold.dev/v1alpha1", "kind": "ServiceAccountKey",
        "metadata": {"name": format!("until-{ends}")},
        "spec": {"serviceAccountRef": {"name": "ci"}, "expirationDate": date.to_string()},
    });
    let made = Http::of(&server.kubectl()).json(Method::POST, &path, &key);
    assert_eq!(made.code, 201, "{}", made.body);
    let token = text(&made.body, "/status/token").to_owned();
    until("the key is known", PATIENCE, || {
        with_token(server, &token).run(&["get", "configmaps"]).success.then_some(()).or_else(|| {
            // It may be over before it is known, on a busy machine.
            (now() >= ends).then_some(())
        })
    });
    token
}

/// A member of the organization, by a certificate of the platform's authority that ends then.
fn of_certificate(server: &Server, ends: u64) -> Kubectl {
    let file =
        |name: &str| fs::read_to_string(server.data_dir().join("pki").join(name)).expect("an authority");
    let issuer =
        Issuer::from_ca_cert_pem(&file("ca.crt"), KeyPair::from_pem(&file("ca.key")).expect("a key"));
    let own = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "carl");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = (SystemTime::UNIX_EPOCH + Duration::from_secs(ends)).into();
    let signed = params.signed_by(&own, &issuer.expect("an authority")).expect("a certificate");
    let url = format!("{}/projects/ends-web", server.url());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": server.data_dir().join("pki/ca.crt")}}],
        "users": [{"name": "u", "user": {
            "client-certificate": write(server.folder(), &format!("carl-{ends}.crt"), &signed.pem()),
            "client-key": write(server.folder(), &format!("carl-{ends}.key"), &own.serialize_pem()),
        }}],
    });
    server.kubectl_with(write(server.folder(), &format!("carl-{ends}"), &kubeconfig.to_string()))
}
