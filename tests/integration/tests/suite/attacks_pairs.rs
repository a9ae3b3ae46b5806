//! What somebody with all files of a dedicated pair could try: they are a tenant of their own plane, and nobody elsewhere.

use crate::attacks::{WHO_AM_I, parties};
use crate::{PATIENCE, contains_all, items, text};
use base64::{Engine as _, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD};
use freehold_apiserver_storage::{Change, Commit, Expect, Key, KeyRange, Range, Store, StoreError};
use freehold_apiserver_storage_etcd::{Etcd, EtcdOptions};
use freehold_client::{Client, Config, Identity, RawRequest};
use freehold_pki::{Authority, ClientName, Pair, PlaneBinding, PrivateKey};
use freehold_tests_integration::{Http, Kubectl, World, facts, until};
use http::{HeaderMap, HeaderName, Method};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use rustls::{RootCertStore, server::WebPkiClientVerifier};
use rustls_pki_types::{CertificateDer, UnixTime, pem::PemObject as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;

facts!(world:
    a_pair_that_was_taken_over_is_one_tenant,
    a_project_whose_pair_does_not_answer_goes_on_where_it_is,
    who_trusts_the_clients_of_one_project_refuses_those_of_others,
    certificates_of_a_projects_authority_are_believed_in_its_plane_alone,
);

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

/// All files of a pair, by Secret and name.
type Files = BTreeMap<(String, String), String>;

/// The plane of a project, and everything that its pair has.
struct Taken {
    plane: String,
    endpoint: String,
    files: Files,
}

impl Taken {
    fn of(world: &World, project: &str) -> Self {
        let plane = world.uid(project);
        let infra = world.at("/planes/infra");
        let secrets = infra.json(&["get", "secrets", "--namespace", &format!("project-{plane}")]);
        let mut files = Files::new();
        for secret in items(&secrets) {
            for (name, data) in secret["data"].as_object().expect("a Secret has data") {
                let bytes = BASE64_STANDARD.decode(data.as_str().expect("text")).expect("base64");
                let key = (text(secret, "/metadata/name").to_owned(), name.clone());
                files.insert(key, String::from_utf8(bytes).expect("text"));
            }
        }
        let status = infra.json(&["get", "projectcontrolplane", &plane]);
        Self { plane, endpoint: text(&status, "/status/endpoint").to_owned(), files }
    }

    fn file(&self, secret: &str, name: &str) -> &str {
        &self.files[&(secret.to_owned(), name.to_owned())]
    }

    fn pair(&self, secret: &str) -> Pair {
        let file = |name| self.file(secret, name).to_owned();
        Pair { cert_pem: file("tls.crt"), key_pem: file("tls.key") }
    }

    /// A token that its key signs, of a service account of any plane.
    fn forge(&self, plane: &str, namespace: &str, uid: &str, key_id: Option<String>) -> String {
        let key =
            PrivateKey::from_pem(self.file("service-account-key", "service-account.key")).expect("a key");
        let own = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(key.public_der().expect("a public key")));
        let now = jiff::Timestamp::now().as_second();
        let claims = json!({
            "aud": ["https://kubernetes.default.svc"], "iss": format!("https://freehold.local/planes/{plane}"),
            "sub": format!("system:serviceaccount:{namespace}:default"),
            "iat": now, "nbf": now, "exp": now + 3600, "jti": "forged", "freehold.dev": {"plane": plane},
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": "default", "uid": uid}},
        });
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(key_id.unwrap_or(own));
        encode(&header, &claims, &EncodingKey::from_ec_pem(key.pem().as_bytes()).expect("a key"))
            .expect("a token")
    }
}

fn project(name: &str, organization: &str, mode: &str) -> String {
    format!(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {{name: {name}}}\nspec:\n  \
         ownerRef: {{kind: Organization, name: {organization}}}\n  controlPlane: {{mode: {mode}}}\n"
    )
}

fn becomes(world: &World, name: &str, mode: &str) {
    let patch = format!("{{\"spec\":{{\"controlPlane\":{{\"mode\":\"{mode}\"}}}}}}");
    world.admin().ok(&["patch", "project", name, "--type=merge", "--patch", &patch]);
    until(&format!("{name} is {mode}"), PATIENCE, || {
        let now = world.admin().json(&["get", "project", name]);
        let ready = items(&json!({"items": now["status"]["conditions"]})).any(|c| {
            c["type"] == "Ready"
                && c["status"] == "True"
                && c["observedGeneration"] == now["metadata"]["generation"]
        });
        (ready && text(&now, "/status/controlPlane/mode") == mode).then_some(())
    });
}

/// What the server says of a token below a path: the name that it has there, or the code.
fn name_of(world: &World, path: &str, token: &str) -> Result<String, u16> {
    let url = format!("{}{path}", world.server().url());
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = Http::with_token(&world.admin(), &url, token).json(Method::POST, WHO_AM_I, &review);
    match answer.code {
        201 => Ok(text(&answer.body, "/status/userInfo/username").to_owned()),
        code => Err(code),
    }
}

fn key_ids(world: &World, project: &str) -> Vec<String> {
    let path = format!("/projects/{project}/openid/v1/jwks");
    let keys = world.server().project(project).ok(&["get", "--raw", &path]);
    let keys: Value = serde_json::from_str(&keys).expect("a JSON Web Key Set");
    let mut ids: Vec<String> =
        keys["keys"].as_array().expect("keys").iter().map(|key| text(key, "/kid").to_owned()).collect();
    ids.sort();
    ids
}

fn a_pair_that_was_taken_over_is_one_tenant(world: &World) {
    let (_, victim) = parties(world);
    world.organization("taken", &["taken"]);
    world.admin().apply(&project("taken-too", "taken", "Dedicated"));
    let own = world.server().project("taken");
    let token = || own.ok(&["create", "token", "default"]).trim().to_owned();
    let before = token();
    let published = key_ids(world, "taken");
    becomes(world, "taken", "Dedicated");
    world.wait_ready("taken-too");
    let during = token();
    let account = "system:serviceaccount:default:default";
    let believed = |when: &str| {
        for token in [&before, &during] {
            assert_eq!(name_of(world, "/projects/taken", token).as_deref(), Ok(account), "{when}");
            assert_eq!(name_of(world, "/projects/taken-too", token), Err(401), "{when}");
            assert_eq!(name_of(world, "/projects/attacked", token), Err(401), "{when}");
        }
        assert_eq!(key_ids(world, "taken"), published, "{when}");
    };
    believed("while it is dedicated");
    let (taken, other) = (Taken::of(world, "taken"), Taken::of(world, "taken-too"));
    no_file_is_the_platforms(world, &taken, &other);
    its_key_signs_for_no_other_plane(world, &taken, &victim);
    its_certificates_are_nothing_elsewhere(world, &taken, &other);
    its_store_is_its_objects(world, &taken, &other);
    becomes(world, "taken", "Shared");
    believed("when it is shared again");
    for project in ["taken", "taken-too"] {
        world.admin().ok(&["delete", "project", project, "--timeout=120s"]);
    }
}

fn no_file_is_the_platforms(world: &World, taken: &Taken, other: &Taken) {
    let keys = |text: &str| -> Vec<Vec<u8>> {
        PrivateKey::all_from_pem(text)
            .unwrap_or_default()
            .iter()
            .map(|key| key.public_der().expect("public"))
            .collect()
    };
    let mut foreign: Vec<Vec<u8>> = other.files.values().flat_map(|text| keys(text)).collect();
    for file in ["ca.key", "front-proxy-ca.key", "service-account.key"] {
        let text = std::fs::read_to_string(world.server().data_dir().join("pki").join(file)).expect("a key");
        foreign.extend(keys(&text));
    }
    assert!(foreign.len() > 6);
    for (file, text) in &taken.files {
        assert!(keys(text).iter().all(|key| !foreign.contains(key)), "{file:?}");
    }
    // Nobody else's name stands in what it serves with, since the authority is the whole server's.
    let serving =
        freehold_pki::certificates_der(taken.file("apiserver-serving", "tls.crt")).expect("a certificate");
    let names = freehold_pki::CertificateInfo::parse(&serving[0]).expect("a certificate").names;
    assert!(names.dns.iter().all(|name| name.contains(&taken.plane)) && names.ips.is_empty(), "{names:?}");
}

fn its_key_signs_for_no_other_plane(world: &World, taken: &Taken, victim: &Kubectl) {
    let admin = world.admin();
    let uid = |kubectl: &Kubectl, namespace: &str| {
        let account = kubectl.json(&["get", "serviceaccount", "default", "--namespace", namespace]);
        text(&account, "/metadata/uid").to_owned()
    };
    let own = world.server().project("taken");
    let at_home = taken.forge(&taken.plane, "default", &uid(&own, "default"), None);
    assert!(name_of(world, "/projects/taken", &at_home).is_ok(), "it is the tenant's own");
    let infra = world.at("/planes/infra");
    let organization = "organization-taken";
    let victims = [
        (world.uid("attacked"), "/projects/attacked", "default", uid(victim, "default")),
        (
            world.uid("taken-too"),
            "/projects/taken-too",
            "default",
            uid(&world.server().project("taken-too"), "default"),
        ),
        ("core".to_owned(), "", "default", uid(&admin, "default")),
        ("core".to_owned(), "", organization, uid(&admin, organization)),
        ("core".to_owned(), "/organizations/taken", organization, uid(&admin, organization)),
        ("infra".to_owned(), "/planes/infra", "default", uid(&infra, "default")),
    ];
    let known = key_ids(world, "attacked");
    for (plane, path, namespace, uid) in &victims {
        for key_id in std::iter::once(None).chain(known.iter().cloned().map(Some)) {
            let token = taken.forge(plane, namespace, uid, key_id.clone());
            for path in [*path, "/projects/taken", "", "/projects/attacked"] {
                assert_eq!(name_of(world, path, &token), Err(401), "{plane} at {path:?} with {key_id:?}");
            }
        }
    }
    for path in
        ["/projects/attacked", "/projects/taken-too", "/planes/core", "/planes/infra", "/organizations/taken"]
    {
        assert_eq!(name_of(world, path, &at_home), Err(401), "{path}");
    }
    // The root leads an account to its own plane, where it is who it is.
    assert!(name_of(world, "", &at_home).is_ok());
    let read = |path: &str| {
        let url = format!("{}{path}", world.server().url());
        Http::with_token(&world.admin(), &url, &at_home).get("/api/v1/namespaces/kube-system").code
    };
    assert_eq!((read(""), read("/projects/taken")), (403, 403), "with the rights that it has there");
}

fn its_certificates_are_nothing_elsewhere(world: &World, taken: &Taken, other: &Taken) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let headers: HeaderMap = [
        ("x-remote-user", "admin"),
        ("x-remote-group", "system:masters"),
        ("x-remote-extra-iam.freehold.dev%2fgranted", "yes"),
    ]
    .map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a value")))
    .into_iter()
    .collect();
    let code = |config: Config, path: &str| -> Option<u16> {
        let client = Client::new(&config).ok()?;
        let request = RawRequest { headers: headers.clone(), ..RawRequest::new(Method::GET, path) };
        match runtime.block_on(client.request(&request)) {
            Ok(answer) => Some(answer.status.as_u16()),
            Err(error) if error.code() > 0 => Some(error.code()),
            // The handshake was refused.
            Err(_) => None,
        }
    };
    let core = Config::from_kubeconfig(world.server().admin_kubeconfig()).expect("a kubeconfig");
    let neighbour =
        Config::from_kubeconfig_text(other.file("admin-kubeconfig", "kubeconfig")).expect("a kubeconfig");
    for secret in [
        "apiserver-etcd-client",
        "apiserver-proxy-client",
        "admin-client",
        "controller-manager-client",
        "apiserver-serving",
    ] {
        let Pair { cert_pem, key_pem } = taken.pair(secret);
        let with = |config: &Config| Config {
            identity: Identity::ClientCert { cert_pem: cert_pem.clone(), key_pem: key_pem.clone() },
            ..config.clone()
        };
        for path in
            ["", "/projects/attacked", "/projects/taken-too", "/planes/core", "/planes/infra", "/planes/-"]
        {
            let found = code(with(&core), &format!("{path}{SECRETS}"));
            assert!(matches!(found, None | Some(401 | 403)), "{secret} at {path:?}: {found:?}");
        }
        let found = code(with(&neighbour), SECRETS);
        assert!(matches!(found, None | Some(401 | 403)), "{secret} at {}: {found:?}", other.endpoint);
    }
    assert_eq!(code(neighbour, SECRETS), Some(200), "the neighbour's own certificate is good there");
}

fn its_store_is_its_objects(world: &World, taken: &Taken, other: &Taken) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let pair = taken.pair("apiserver-etcd-client");
    let plane = |id: &str| id.parse().expect("a plane");
    let own = plane(&taken.plane);
    let options = EtcdOptions {
        ca: Some(taken.file("apiserver-etcd-client", "ca.crt").into()),
        identity: Some((pair.cert_pem.into(), pair.key_pem.into())),
        home: KeyRange::plane(&own),
        ..EtcdOptions::new([world.server().url()])
    };
    runtime.block_on(async {
        let store = Etcd::connect(options).await.expect("it reaches its store");
        let key = |text: String| Key::from_store(text.into());
        let put = |key: Key, value: &[u8]| Change::Put(key, value.to_vec().into());
        let denied = async |changes: Vec<Change>, what: &str| {
            let refused = store.commit(Commit { expect: vec![], changes }).await;
            assert!(matches!(refused, Err(StoreError::Denied(_))), "{what}: {refused:?}");
        };
        let map = |name: &str, inside: &str| {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": inside, "namespace": "default", "uid": "u"}});
            put(key(format!("planes/{own}/core/configmaps/default/{name}")), &[&[1][..], object.to_string().as_bytes()].concat())
        };
        let stack = json!({"layer": "snapshot-of-others", "operation": "x"}).to_string();
        for record in [".stack", ".class", ".layer", ".classes/default", ".planes/x", ".x/core/a", "../core/core/secrets/default/x"] {
            let changes = |plane: &str| vec![put(key(format!("planes/{plane}/{record}")), stack.as_bytes())];
            denied(changes(&taken.plane), record).await;
            denied(changes(&other.plane), record).await;
            denied(changes("core"), record).await;
            denied(vec![map("beside", "beside"), Change::Delete(key(format!("planes/{own}/{record}")))], record).await;
        }
        for foreign in [
            format!("planes/{}/core/configmaps/default/x", other.plane),
            "planes/core/iam.freehold.dev/policybindings/freehold-system/x".to_owned(),
            format!("layers/snapshot-x/.planes/{own}"),
            format!("system/usage/{own}"),
            format!("system/allocations/{}", other.plane),
            "system/layers/base".to_owned(),
            "system/authorities".to_owned(),
        ] {
            denied(vec![put(key(foreign.clone()), b"\x01{}")], &foreign).await;
            denied(vec![Change::Delete(key(foreign.clone()))], &foreign).await;
            let peek = Commit { expect: vec![Expect { key: key(foreign.clone()), modified: 0 }], changes: vec![] };
            let peeked = store.commit(peek).await;
            assert!(matches!(peeked, Err(StoreError::Denied(_))), "{foreign}: {peeked:?}");
        }
        for range in [KeyRange::plane(&own), KeyRange::plane_objects(&own), KeyRange::all_planes(), KeyRange::everything()] {
            denied(vec![Change::DeleteRange(range)], "a range").await;
        }
        for range in [KeyRange::plane(&plane(&other.plane)), KeyRange::plane(&plane("core")), KeyRange::everything(), KeyRange::all_layers()] {
            let read = store.range(Range::all(range.clone())).await;
            assert!(matches!(read, Err(StoreError::Denied(_))), "{range:?}");
            assert!(store.watch(range, 1, true).await.is_err());
        }
        // What it writes is an object of that place, or nothing.
        let deep = format!("\x01{{\"metadata\":{{\"name\":\"a\",\"namespace\":\"default\"}},\"x\":{}{}}}", "[".repeat(200), "]".repeat(200));
        for value in [&b""[..], b"\x00more", b"\x01", b"\x01{", b"\x01[]", b"\x02{}", b"\x90x", b"\x93\0\0\0\0", b"\xff", deep.as_bytes()] {
            denied(vec![put(key(format!("planes/{own}/core/configmaps/default/a")), value)], "garbage").await;
        }
        denied(vec![map("a", "b")], "an object under another's key").await;
        denied(vec![put(Key::allocations(&own), b"more")], "content in an empty record").await;
        assert!(store.compact(1).await.is_err());
        let written = store.commit(Commit { expect: vec![], changes: vec![map("mine", "mine")] }).await;
        assert!(written.is_ok(), "it is the tenant's own: {written:?}");
    });
    contains_all(&world.server().project("taken").ok(&["get", "configmap", "mine", "-o", "name"]), &["mine"]);
    let log = world.server().log();
    let skipped = log.lines().filter(|line| line.contains("skipped") && line.contains(&taken.plane));
    assert_eq!(skipped.collect::<Vec<_>>(), [""; 0], "nothing of it was stored");
}

fn a_project_whose_pair_does_not_answer_goes_on_where_it_is(world: &World) {
    world.organization("stays", &["stays"]);
    let own = world.server().project("stays");
    own.ok(&["create", "configmap", "kept"]);
    let infra = world.at("/planes/infra");
    let namespace = format!("project-{}", world.uid("stays"));
    // A pair that starts and is healthy where it runs, and does not believe the core server.
    let command = "object.spec.template.spec.containers[0].command.map(word, \
                   word.startsWith('--front-proxy-names=') ? '--front-proxy-names=nobody' : word)";
    infra.apply(&format!(
        "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {{name: deaf-pair}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}}]}}
  matchConditions: [{{name: one, expression: \"object.metadata.namespace == '{namespace}' && object.metadata.name == 'apiserver'\"}}]
  reinvocationPolicy: Never
  mutations:
  - patchType: JSONPatch
    jsonPatch: {{expression: \"[JSONPatch{{op: 'replace', path: '/spec/template/spec/containers/0/command', value: {command}}}]\"}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {{name: deaf-pair}}
spec: {{policyName: deaf-pair}}
"
    ));
    let admin = world.admin();
    let patch = "{\"spec\":{\"controlPlane\":{\"mode\":\"Dedicated\"}}}";
    admin.ok(&["patch", "project", "stays", "--type=merge", "--patch", patch]);
    let why = until("it is said why it does not move", PATIENCE, || {
        own.ok(&["get", "configmap", "kept"]);
        let conditions = admin.json(&["get", "project", "stays"])["status"]["conditions"].clone();
        let ready = conditions.as_array()?.iter().find(|c| c["type"] == "Ready")?.clone();
        (ready["reason"] == "PairUnreachable").then_some(ready)
    });
    contains_all(text(&why, "/message"), &["the pair at https://", "403 Forbidden to the core server"]);
    assert_eq!(text(&admin.json(&["get", "project", "stays"]), "/status/controlPlane/mode"), "Shared");
    own.ok(&["create", "configmap", "more"]);
    infra.ok(&["delete", "mutatingadmissionpolicybinding,mutatingadmissionpolicy", "deaf-pair"]);
    infra.ok(&["delete", "deployment", "apiserver", "--namespace", &namespace]);
    becomes(world, "stays", "Dedicated");
    own.ok(&["get", "configmap", "kept", "more"]);
    admin.ok(&["delete", "project", "stays", "--timeout=120s"]);
}

/// The certificate of a `kubectl`, with what stands behind it.
fn certificate(kubectl: &Kubectl) -> String {
    match Config::from_kubeconfig(kubectl.kubeconfig()).expect("a kubeconfig").identity {
        Identity::ClientCert { cert_pem, .. } => cert_pem,
        _ => panic!("no certificate"),
    }
}

/// A certificate that is asked for and approved in a project.
fn signed(kubectl: &Kubectl, user: &str) -> String {
    let key = PrivateKey::generate().expect("a key");
    let client = ClientName { user, groups: &[], plane: None };
    let request = freehold_pki::csr::request(&key, &client, &[] as &[&str]).expect("a request");
    kubectl.apply(
        &json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": format!("for-{user}")}, "spec": {
                "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth"],
                "request": BASE64_STANDARD.encode(request)}})
        .to_string(),
    );
    kubectl.ok(&["certificate", "approve", &format!("for-{user}")]);
    until("it is signed", PATIENCE, || {
        let csr = kubectl.json(&["get", "csr", &format!("for-{user}")]);
        let bytes = BASE64_STANDARD.decode(text(&csr, "/status/certificate")).ok()?;
        String::from_utf8(bytes).ok().filter(|pem| !pem.is_empty())
    })
}

fn clients_of(kubectl: &Kubectl) -> String {
    let map =
        kubectl.json(&["get", "configmap", "extension-apiserver-authentication", "--namespace=kube-system"]);
    text(&map, "/data/client-ca-file").to_owned()
}

/// Whether a server that trusts these authorities takes a client's certificate.
fn is_taken(authorities: &str, client: &str) -> bool {
    let ders = |pem: &str| {
        CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>().expect("PEM")
    };
    let mut roots = RootCertStore::empty();
    for der in ders(authorities) {
        roots.add(der).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().expect("a verifier");
    let chain = ders(client);
    verifier.verify_client_cert(&chain[0], &chain[1..], UnixTime::now()).is_ok()
}

fn who_trusts_the_clients_of_one_project_refuses_those_of_others(world: &World) {
    let (own, other) = (world.project("kubelet-like"), world.project("kubelet-unlike"));
    let authority = clients_of(&own);
    assert_eq!(authority, clients_of(&own), "reads of it are equal");
    assert_ne!(authority, clients_of(&other));
    assert!(is_taken(&authority, &certificate(&own)));
    let asked = signed(&own, "jane");
    assert!(is_taken(&authority, &asked), "a certificate that was asked for in the project");
    let leaf = |chain: &str| chain[..chain.find("-----END").expect("PEM") + 25].to_owned();
    assert!(is_taken(&authority, &leaf(&asked)), "without what stands behind it");
    let platform = platform(world);
    let bound = |plane: &str| {
        let plane = Some(PlaneBinding { plane, generation: 0 });
        let name = ClientName { user: "jane", groups: &["system:masters".to_owned()], plane };
        platform.issue_client(&name, std::time::Duration::from_secs(3600)).expect("a certificate").cert_pem
    };
    for (what, foreign) in [
        ("another project's", certificate(&other)),
        ("one asked for in another project", signed(&other, "jane")),
        ("the admin's", certificate(&world.admin())),
        ("a person's", certificate(&world.person("jane", ""))),
        ("one of another project from before", bound(&world.uid("kubelet-unlike"))),
    ] {
        assert!(!is_taken(&authority, &foreign), "{what}");
    }
    // What has an authority above those of projects can't tell them apart, so it is not published.
    for plane in [world.admin(), world.at("/planes/infra")] {
        assert_eq!(clients_of(&plane), "");
    }
}

fn platform(world: &World) -> Authority {
    let pki = |name: &str| {
        std::fs::read_to_string(world.server().data_dir().join("pki").join(name)).expect("a file")
    };
    Authority::from_pem(&pki("ca.crt"), &pki("ca.key")).expect("an authority")
}

fn certificates_of_a_projects_authority_are_believed_in_its_plane_alone(world: &World) {
    world.project("kubelet-like");
    world.project("kubelet-unlike");
    let (own, other) = (world.uid("kubelet-like"), world.uid("kubelet-unlike"));
    let platform = platform(world);
    let masters = ["system:masters".to_owned()];
    let code = |authority: &Authority, plane: Option<&str>, path: &str| {
        let plane = plane.map(|plane| PlaneBinding { plane, generation: 0 });
        let name = ClientName { user: "jane", groups: &masters, plane };
        let pair =
            authority.issue_client(&name, std::time::Duration::from_secs(3600)).expect("a certificate");
        let url = format!("{}{path}", world.server().url());
        Http::with_certificate(&world.admin(), &url, &pair).try_get(SECRETS).map(|answer| answer.code)
    };
    let authority = platform.for_plane(&own).expect("an authority");
    assert_eq!(code(&authority, Some(&own), "/projects/kubelet-like"), Some(200));
    assert_eq!(code(&platform, Some(&own), "/projects/kubelet-like"), Some(200), "one from before");
    // Whatever such an authority signs.
    for plane in [None, Some(other.as_str()), Some("core"), Some("infra")] {
        for path in
            ["", "/projects/kubelet-like", "/projects/kubelet-unlike", "/planes/infra", "/planes/core"]
        {
            let found = code(&authority, plane, path);
            assert!(matches!(found, None | Some(401 | 403)), "{plane:?} at {path:?}: {found:?}");
        }
    }
    for path in ["", "/projects/kubelet-unlike", "/planes/infra", "/organizations/tests"] {
        let found = code(&authority, Some(&own), path);
        assert!(matches!(found, Some(401 | 403)), "{path:?}: {found:?}");
    }
}
