//! The proxy in front of a project of a real Freehold and of a real kube-apiserver, and a project without a proxy, with `kubectl`
//! and with a hostile member.

#[path = "../../controllers/tests/tenants/site.rs"]
#[allow(dead_code, reason = "the controllers' tests ask for more of it")]
mod site;

use freehold_client::{Client, Config, Identity, RawRequest};
use freehold_machinery::Value;
use freehold_pki::{Authority, ClientName, Credentials, KubeconfigParams, kubeconfig};
use freehold_tenancy_proxy::{Proxy, ProxyMetrics};
use freehold_tests_harness::{Kubectl, until};
use futures_util::StreamExt as _;
use site::{PATIENCE, Site};
use std::time::Duration;
use tokio::net::TcpListener;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Ann owns acme, Bob views globex, Eve is nobody's, Root may do anything.
const SETUP: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: people}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: ann, namespace: people}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: bob, namespace: people}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: eve, namespace: people}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: root, namespace: people}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: proxy, namespace: people}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: proxy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'tenancy.freehold.dev:proxy'}
subjects: [{kind: ServiceAccount, name: proxy, namespace: people}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: proxy-certificates}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: 'tenancy.freehold.dev:proxy-certificates'}
subjects: [{kind: ServiceAccount, name: proxy, namespace: people}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: root}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: root, namespace: people}]
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: fast}, provisioner: example.com/none}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: slow-globex}, provisioner: example.com/none}
---
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Tenant
metadata: {name: acme}
spec:
  members:
    - {role: owner, subjects: [{kind: ServiceAccount, name: ann, namespace: people}]}
    - {role: viewer, subjects: [{kind: User, name: cert-ann}]}
  namespaces: {declared: [{name: a}, {name: b}]}
  classes: {storage: {allowed: [fast]}}
---
apiVersion: tenancy.freehold.dev/v1alpha1
kind: Tenant
metadata: {name: globex}
spec:
  members: [{role: viewer, subjects: [{kind: ServiceAccount, name: bob, namespace: people}]}]
  namespaces: {declared: [{name: x}]}
  classes: {storage: {allowed: [slow-globex]}}
";

/// A running proxy.
struct Front<'a> {
    site: &'a Site,
    url: String,
    ca: String,
    /// Authority of client certificates; `None` where the server itself answers.
    clients: Option<Authority>,
}

impl<'a> Front<'a> {
    fn start(site: &'a Site) -> Self {
        let authority = Authority::generate("test-proxy").expect("an authority");
        let clients = Authority::generate("test-clients").expect("an authority");
        let pair = authority.issue_server(&["127.0.0.1"], DAY).expect("a certificate");
        let config = Config::from_kubeconfig(site.kubectl.kubeconfig()).expect("a kubeconfig");
        let config = Config { identity: Identity::Token(token(site, "proxy")), ..config };
        let listener = site.wait(TcpListener::bind("127.0.0.1:0")).expect("a free port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let proxy = Proxy {
            listener,
            cert_pem: pair.cert_pem.clone(),
            key_pem: pair.key_pem.to_string(),
            client_ca_pem: clients.cert_pem().to_owned(),
            metrics: ProxyMetrics::default(),
            config: config.clone(),
        };
        let mut scope = site.scope();
        let client = Client::new(&config).expect("a client");
        scope.planes = freehold_runtime::Planes::one(client, freehold_machinery::PlaneId::core(), "");
        let _guard = site.runtime().enter();
        proxy.start(&scope).expect("the proxy starts");
        Self { site, url, ca: authority.cert_pem().to_owned(), clients: Some(clients) }
    }

    /// No proxy at all: the server itself filters.
    fn built_in(site: &'a Site) -> Self {
        let config = Config::from_kubeconfig(site.kubectl.kubeconfig()).expect("a kubeconfig");
        Self { site, url: config.server, ca: config.ca_pem, clients: None }
    }

    fn kubectl(&self, name: &str, user: Credentials<'_>) -> Kubectl {
        let params = KubeconfigParams {
            name,
            server: &self.url,
            tls_server_name: "",
            ca_pem: &self.ca,
            user,
            namespace: "default",
        };
        let path = self.site.folder().join(format!("proxy-{name}.kubeconfig"));
        std::fs::write(&path, kubeconfig(&params)).expect("the test's folder can be written");
        Kubectl::new(path, self.site.folder().join("home"))
    }

    /// `kubectl` of a service account, through the proxy.
    fn person(&self, name: &str) -> Kubectl {
        self.kubectl(name, Credentials::Token(&token(self.site, name)))
    }

    /// `kubectl` of the holder of a client certificate, through the proxy.
    fn certified(&self, user: &str, groups: &[&str]) -> Kubectl {
        let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
        let name = ClientName { user, groups: &groups, plane: None };
        let clients = self.clients.as_ref().expect("a proxy");
        let pair = clients.issue_client(&name, DAY).expect("a certificate");
        let user = Credentials::ClientCert { cert_pem: &pair.cert_pem, key_pem: &pair.key_pem };
        self.kubectl(&name.user.replace(':', "-"), user)
    }

    /// Sends a `GET` as a service account, and returns the status and all that comes.
    fn get(
        &self,
        identity: &Identity,
        path: &str,
        headers: &[(&'static str, &'static str)],
    ) -> (u16, String) {
        let config = Config::new(&self.url, &self.ca, identity.clone());
        let client = Client::new(&config).expect("a client");
        let mut request = RawRequest::get(path);
        for (name, value) in headers {
            request.headers.append(*name, http::HeaderValue::from_static(value));
        }
        self.site.wait(async {
            let (status, _, body) = client.forward(&request).await.expect("an answer");
            let pieces: Vec<_> = Box::pin(body.into_stream()).collect().await;
            let bytes: Vec<u8> = pieces.into_iter().filter_map(Result::ok).flatten().collect();
            (status.as_u16(), String::from_utf8_lossy(&bytes).into_owned())
        })
    }
}

fn token(site: &Site, name: &str) -> String {
    site.kubectl.ok(&["create", "token", name, "-n", "people"]).trim().to_owned()
}

fn names(text: &str) -> Vec<&str> {
    text.lines().map(|line| line.rsplit('/').next().unwrap_or_default()).collect()
}

fn members_see_what_is_theirs<'s>(site: &'s Site, start: impl Fn(&'s Site) -> Front<'s>) {
    site.start();
    site.apply(SETUP);
    for namespace in ["acme-a", "acme-b", "globex-x"] {
        site.condition(&["namespace", namespace], "tenancy.freehold.dev/Ready", "True", "Ready");
        site.kubectl.ok(&["create", "configmap", &format!("in-{namespace}"), "-n", namespace]);
        site.kubectl.ok(&["label", "configmap", &format!("in-{namespace}"), "t=1", "-n", namespace]);
    }
    let front = start(site);
    let (ann, bob, eve, root) =
        (front.person("ann"), front.person("bob"), front.person("eve"), front.person("root"));
    until("the proxy knows the tenants", PATIENCE, || ann.run(&["get", "ns"]).success.then_some(()));

    // Namespaces.
    for args in [&["get", "ns", "-o", "name"][..], &["get", "ns", "-o", "name", "--chunk-size=1"]] {
        assert_eq!(names(&ann.ok(args)), ["acme-a", "acme-b"], "{}", site.name);
    }
    assert!(ann.ok(&["get", "ns"]).contains("STATUS"), "a table has its columns");
    assert_eq!(names(&bob.ok(&["get", "ns", "-o", "name"])), ["globex-x"]);
    assert!(eve.fails(&["get", "ns"]).contains("forbidden"));
    assert!(names(&root.ok(&["get", "ns", "-o", "name"])).contains(&"people"), "who may see all does");

    // Classes and tenants.
    assert_eq!(names(&ann.ok(&["get", "storageclasses", "-o", "name"])), ["fast"]);
    let table = ann.ok(&["get", "storageclasses"]);
    assert!(table.contains("example.com/none") && !table.contains("globex"), "{table}");
    assert_eq!(ann.ok(&["get", "storageclass", "fast", "-o", "name"]), "storageclass.storage.k8s.io/fast\n");
    assert!(ann.fails(&["get", "storageclass", "slow-globex"]).contains("forbidden"));
    assert_eq!(names(&ann.ok(&["get", "tenants", "-o", "name"])), ["acme"]);
    assert!(eve.fails(&["get", "storageclasses"]).contains("forbidden"));

    // A namespaced kind in all of one's own namespaces.
    let all = ["get", "configmaps", "-A", "-l", "t=1", "-o", "name"];
    assert_eq!(names(&ann.ok(&all)), ["in-acme-a", "in-acme-b"]);
    let paged: Vec<&str> = all.iter().copied().chain(["--chunk-size=1"]).collect();
    assert_eq!(names(&ann.ok(&paged)), ["in-acme-a", "in-acme-b"]);
    let table = ann.ok(&["get", "configmaps", "-A", "-l", "t=1"]);
    assert!(table.contains("NAMESPACE") && table.contains("acme-b") && !table.contains("globex"), "{table}");
    assert!(bob.fails(&["get", "secrets", "-A"]).contains("forbidden"), "a viewer's rights decide");
    assert!(ann.fails(&["get", "nodes"]).contains("forbidden"));

    // All else has the member's own identity.
    ann.ok(&["create", "configmap", "own", "-n", "acme-a"]);
    assert!(ann.fails(&["create", "configmap", "own", "-n", "globex-x"]).contains("people:ann"));
    assert!(ann.fails(&["get", "ns", "--as", "root"]).contains("cannot impersonate"));

    watches_follow(site, &ann);
    nothing_of_others_is_shown(&front);
    if front.clients.is_some() {
        certificates_are_impersonated(&front);
    }
    members_that_left_see_nothing(site, &ann);
}

fn watches_follow(site: &Site, ann: &Kubectl) {
    let namespaces = ann.background(&["get", "ns", "-w", "-o", "name"]);
    namespaces.wait_for("acme-b");
    let objects = ann.background(&["get", "configmaps", "-A", "-l", "t=1", "-w", "-o", "name"]);
    objects.wait_for("in-acme-b");
    site.apply(
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: unseen-globex, namespace: globex-x, labels: {t: '1'}}}\n---\n\
         {apiVersion: v1, kind: ConfigMap, metadata: {name: seen, namespace: acme-b, labels: {t: '1'}}}",
    );
    objects.wait_for("seen");
    assert!(!objects.printed().contains("globex"), "{}", objects.printed());
    let patch = r#"{"spec": {"namespaces": {"declared": [{"name": "x"}, {"name": "y"}]}}}"#;
    site.kubectl.ok(&["patch", "tenant", "globex", "--type=merge", "-p", patch]);
    site.condition(&["namespace", "globex-y"], "tenancy.freehold.dev/Ready", "True", "Ready");
    let patch = r#"{"spec": {"namespaces": {"declared": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}}}"#;
    site.kubectl.ok(&["patch", "tenant", "acme", "--type=merge", "-p", patch]);
    namespaces.wait_for("acme-c");
    assert!(!namespaces.printed().contains("globex"), "{}", namespaces.printed());
    site.condition(&["namespace", "acme-c"], "tenancy.freehold.dev/Ready", "True", "Ready");
}

fn nothing_of_others_is_shown(front: &Front<'_>) {
    let client = front.site.client();
    let page = client.get_path("/api/v1/namespaces?limit=1");
    let admin: Value = front.site.runtime().block_on(page).expect("a page");
    let token_of_admin = admin["metadata"]["continue"].as_str().expect("there are more").to_owned();
    let revision = admin["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    // ["0","globex-x",""] and ["0","globex-x","TOKEN"]
    let forged = ["WyIwIiwiZ2xvYmV4LXgiLCIiXQ", "WyIwIiwiZ2xvYmV4LXgiLCJUT0tFTiJd"];
    let label = "labelSelector=tenancy.freehold.dev%2Ftenant%3Dglobex";
    let mut paths: Vec<String> = [
        format!("/api/v1/namespaces?{label}"),
        format!("/api/v1/namespaces?{label}&labelSelector="),
        format!("/api/v1/namespaces?labelSelector=&{label}"),
        "/api/v1/namespaces?label%53elector=tenancy.freehold.dev%2Ftenant".to_owned(),
        "/api/v1/namespaces?labelSelector=x+in+(a".to_owned(),
        "/api/v1/namespaces?labelSelector=!x),tenancy.freehold.dev%2Ftenant".to_owned(),
        "/api/v1/namespaces?fieldSelector=metadata.name%3Dglobex-x".to_owned(),
        format!("/api/v1/namespaces?continue={token_of_admin}&limit=500"),
        format!("/api/v1/namespaces?resourceVersion={revision}&resourceVersionMatch=Exact"),
        "/api/v1/namespaces?resourceVersion=0".to_owned(),
        "/api/v1/namespaces?watch=1&timeoutSeconds=1".to_owned(),
        "/api/v1/namespaces?watch=true&timeoutSeconds=1&resourceVersion=0&fieldSelector=metadata.name%3Dglobex-x".to_owned(),
        format!("/api/v1/namespaces?watch&timeoutSeconds=1&{label}"),
        "/api/v1/namespaces?watch=1&timeoutSeconds=1&resourceVersion=1".to_owned(),
        "/api/v1/watch/namespaces?timeoutSeconds=1".to_owned(),
        "/api/v1/watch/namespaces/globex-x?timeoutSeconds=1".to_owned(),
        "/api/v1/namespaces/".to_owned(),
        "/api/v1//namespaces".to_owned(),
        "/api/v1/./namespaces".to_owned(),
        "/api/v1/x/../namespaces".to_owned(),
        "/api/v1/%6eamespaces".to_owned(),
        "/api/v1/namespaces%2Fglobex-x".to_owned(),
        "/api/v1/namespaces/acme-a/../globex-x/configmaps".to_owned(),
        "/api/v1/namespaces/acme-a/%2e%2e/globex-x/configmaps".to_owned(),
        "/api/v1/namespaces/acme-a%2F..%2Fglobex-x/configmaps".to_owned(),
        "/api/v1/configmaps?fieldSelector=metadata.namespace%3Dglobex-x".to_owned(),
        format!("/api/v1/configmaps?continue={token_of_admin}"),
        "/api/v1/configmaps?watch=1&timeoutSeconds=1".to_owned(),
        format!("/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion={revision}"),
        "/apis/storage.k8s.io/v1/storageclasses?fieldSelector=metadata.name%3Dslow-globex".to_owned(),
        "/apis/storage.k8s.io/v1/storageclasses?limit=1".to_owned(),
        "/apis/storage.k8s.io/v1/storageclasses?includeObject=None".to_owned(),
        "/apis/storage.k8s.io/v1/storageclasses?watch=1&timeoutSeconds=1&includeObject=None".to_owned(),
        "/apis/storage.k8s.io/v1/storageclasses/slow-globex".to_owned(),
        "/apis/tenancy.freehold.dev/v1alpha1/tenants/globex".to_owned(),
        "/apis/tenancy.freehold.dev/v1alpha1/tenants?watch=1&timeoutSeconds=1".to_owned(),
    ]
    .into();
    paths.extend(forged.map(|token| format!("/api/v1/configmaps?continue={token}")));
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let ann = Identity::Token(token(front.site, "ann"));
    for path in &paths {
        // Watches take their time.
        let accepts = ["application/json", table, "application/vnd.kubernetes.protobuf"];
        for accept in accepts.iter().take(if path.contains("timeoutSeconds") { 1 } else { accepts.len() }) {
            let (status, text) = front.get(&ann, path, &[("accept", accept)]);
            // Messages name what was asked for; objects would have a uid.
            let shown = text.contains("globex") && (status == 200 || text.contains("\"uid\""));
            assert!(!shown, "{}: {path} ({accept}): {status} {text}", front.site.name);
        }
    }
    let whoever = Identity::Token(token(front.site, "root"));
    let (_, all) = front.get(&whoever, "/api/v1/namespaces", &[]);
    assert!(
        all.contains("\"globex-x\"") && all.contains("\"uid\""),
        "what is looked for would be found: {all}"
    );
    // Identities by headers, as a member and as nobody.
    let root = "system:serviceaccount:people:root";
    let hostile: [&[(&'static str, &'static str)]; 5] = [
        &[("impersonate-user", root)],
        &[("impersonate-user", "system:admin"), ("impersonate-group", "system:masters")],
        &[("x-remote-user", root), ("x-remote-group", "system:masters")],
        &[("impersonate-user", "system:serviceaccount:people:bob")],
        &[("x-remote-user", "bob"), ("x-forwarded-for", "127.0.0.1")],
    ];
    for headers in hostile {
        for identity in [&ann, &Identity::None, &Identity::Token("forged".to_owned())] {
            let (status, text) = front.get(identity, "/api/v1/namespaces", headers);
            assert!(!text.contains("\"globex-x\""), "{}: {headers:?} {status} {text}", front.site.name);
        }
    }
    assert!(matches!(front.get(&Identity::None, "/api/v1/namespaces", &[]).0, 401 | 403));
}

fn certificates_are_impersonated(front: &Front<'_>) {
    let ann = front.certified("cert-ann", &["devs"]);
    assert_eq!(names(&ann.ok(&["get", "ns", "-o", "name"])), ["acme-a", "acme-b", "acme-c"]);
    assert!(ann.fails(&["create", "configmap", "mine", "-n", "acme-a"]).contains("cert-ann"));
    assert!(ann.fails(&["get", "ns", "--as", "system:admin"]).contains("impersonat"));
    for (user, groups) in [("root", &["system:masters"][..]), ("system:serviceaccount:people:root", &[])] {
        let refused = front.certified(user, groups).fails(&["get", "ns"]);
        assert!(refused.contains("never impersonated"), "{refused}");
    }
}

fn members_that_left_see_nothing(site: &Site, ann: &Kubectl) {
    let front_path = "/api/v1/namespaces?watch=1&timeoutSeconds=300";
    let watch = ann.background(&["get", "--raw", front_path]);
    watch.wait_for("acme-b");
    site.kubectl.ok(&["patch", "tenant", "acme", "--type=merge", "-p", r#"{"spec": {"members": []}}"#]);
    watch.wait_for("what is yours has changed");
    assert!(ann.fails(&["get", "ns"]).contains("forbidden"));
}

#[test]
fn members_of_a_project_see_what_is_theirs() {
    let site = Site::freehold();
    members_see_what_is_theirs(&site, Front::start);
}

#[test]
fn members_of_a_project_see_what_is_theirs_without_a_proxy() {
    let site = Site::freehold();
    members_see_what_is_theirs(&site, Front::built_in);
    nobody_sees_more_than_the_right_to_list_what_is_visible(&site);
}

/// The verb alone shows nothing, and what it shows is pages and watches of what may be read.
fn nobody_sees_more_than_the_right_to_list_what_is_visible(site: &Site) {
    site.apply(
        "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: lists}, rules: [{apiGroups: ['*'], resources: ['*'], verbs: [listvisible]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: lists}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lists}, subjects: [{kind: ServiceAccount, name: eve, namespace: people}]}",
    );
    let front = Front::built_in(site);
    let eve = front.person("eve");
    for what in [
        &["get", "ns"][..],
        &["get", "configmaps", "-A"],
        &["get", "crds"],
        &["delete", "configmaps", "-A", "--all"],
    ] {
        assert!(eve.fails(what).contains("forbidden"), "{what:?}");
    }
    // From now on eve views one namespace of hers and reads one object by name.
    site.apply(
        "{apiVersion: v1, kind: Namespace, metadata: {name: hers}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: eve, namespace: hers}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, subjects: [{kind: ServiceAccount, name: eve, namespace: people}]}",
    );
    until("eve sees her namespace", PATIENCE, || eve.run(&["get", "ns"]).success.then_some(()));
    assert_eq!(names(&eve.ok(&["get", "ns", "-o", "name"])), ["hers"]);
    for n in 0..3 {
        site.kubectl.ok(&["create", "configmap", &format!("m{n}"), "-n", "hers"]);
    }
    let identity = Identity::Token(token(site, "eve"));
    let page = |path: &str| {
        let (status, text) = front.get(&identity, path, &[]);
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str::<Value>(&text).expect("a list")
    };
    let first = page("/api/v1/configmaps?limit=2&labelSelector=!kube");
    assert_eq!(first["items"].as_array().map(Vec::len), Some(2));
    assert!(first["metadata"]["remainingItemCount"].is_null(), "{}", first["metadata"]);
    let token = first["metadata"]["continue"].as_str().expect("a further page").to_owned();
    let second = page(&format!("/api/v1/configmaps?limit=2&labelSelector=!kube&continue={token}"));
    assert!(second["metadata"]["continue"].is_null(), "what is hidden makes no page: {}", second["metadata"]);
    // A watch from a list goes on; from a time when she saw nothing it does not.
    let seen = first["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    let (_, text) = front.get(
        &identity,
        &format!("/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion={seen}"),
        &[],
    );
    assert!(!text.contains("ERROR"), "{text}");
    let (status, text) =
        front.get(&identity, "/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=2", &[]);
    assert!(status == 410 || text.contains("\"code\":410"), "{status} {text}");
    // What comes to be hers is announced, and nothing is said any more when it is taken away.
    let watch = eve.background(&["get", "--raw", "/api/v1/configmaps?watch=1&timeoutSeconds=300"]);
    watch.wait_for("m2");
    site.kubectl.ok(&["create", "namespace", "hers-too"]);
    site.kubectl.ok(&["create", "configmap", "joined", "-n", "hers-too"]);
    site.kubectl.ok(&[
        "create",
        "rolebinding",
        "eve",
        "-n",
        "hers-too",
        "--clusterrole=view",
        "--serviceaccount=people:eve",
    ]);
    watch.wait_for("joined");
    site.kubectl.ok(&["delete", "rolebinding", "eve", "-n", "hers-too"]);
    watch.wait_for("what is yours has changed");
}

#[test]
fn members_of_a_kube_apiserver_see_what_is_theirs() {
    if let Some(site) = Site::kube() {
        members_see_what_is_theirs(&site, Front::start);
    }
}
