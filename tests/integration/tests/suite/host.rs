//! The server as a part of another cluster's API: behind a real kube-apiserver, for that one's users.

use crate::{PATIENCE, contains_all, names, text};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_pki::{Authority, ClientName, Pair, write_private};
use freehold_tests_integration::{
    Background, Engine, Held, Kube, KubeOptions, Kubectl, Options, Server, facts, until,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

facts!(engine: users_of_a_host_cluster_reach_projects_through_it);

const DAY: Duration = Duration::from_secs(24 * 3600);
const LONG: &str = "/apis/resourcemanager.freehold.dev/v1alpha1";

/// A kube-apiserver with the server behind it.
struct World {
    // The server goes first: it watches the other.
    server: Server,
    kube: Kube,
    proxies: Authority,
    folder: TempDir,
}

fn manifest(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/host-cluster").join(name);
    std::fs::read_to_string(path).expect("a manifest")
}

fn issue(authority: &Authority, user: &str) -> Pair {
    authority.issue_client(&ClientName { user, groups: &[], plane: None }, DAY).expect("a certificate")
}

impl World {
    fn start(engine: Engine) -> Self {
        let folder =
            tempfile::Builder::new().prefix("freehold-host-").tempdir().expect("a temporary directory");
        let proxies = Authority::generate("front-proxies").expect("an authority");
        let proxy = issue(&proxies, "front-proxy");
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            write_private(&path, text.as_bytes()).expect("the test's folder can be written");
            path.display().to_string()
        };
        let args = [
            ("requestheader-client-ca-file", file("proxies.crt", proxies.cert_pem())),
            ("requestheader-allowed-names", "front-proxy".to_owned()),
            ("requestheader-username-headers", "X-Remote-User".to_owned()),
            ("requestheader-uid-headers", "X-Remote-Uid".to_owned()),
            ("requestheader-group-headers", "X-Remote-Group".to_owned()),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-".to_owned()),
            ("proxy-client-cert-file", file("proxy.crt", &proxy.cert_pem)),
            ("proxy-client-key-file", file("proxy.key", &proxy.key_pem)),
        ];
        let args = args.into_iter().map(|(flag, value)| format!("--{flag}={value}")).collect();
        let kube = Kube::start(KubeOptions { args, ..KubeOptions::default() });
        let host = kube.kubectl();
        host.apply(&manifest("namespace.yaml"));
        host.apply(&manifest("rbac.yaml"));
        let token = host.ok(&["-n", "freehold-system", "create", "token", "freehold"]);
        let cluster = host.json(&["config", "view", "--raw", "--minify"])["clusters"][0]["cluster"].clone();
        let kubeconfig = kubeconfig(&cluster, &json!({"token": token.trim()}));
        let args = [
            "--host-kubeconfig".to_owned(),
            file("freehold.kubeconfig", &kubeconfig.to_string()),
            "--serving-names".to_owned(),
            "freehold.freehold-system.svc".to_owned(),
        ];
        let server = Server::start(Options { engine, args: args.into(), ..Options::default() });
        Self { server, kube, proxies, folder }
    }

    /// Registers the server, as it is deployed but for where it is.
    fn register(&self) {
        let host = self.kube.kubectl();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "freehold", "namespace": "freehold-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"}});
        host.apply(&service.to_string());
        let ca = std::fs::read(self.server.data_dir().join("pki/ca.crt")).expect("the server's authority");
        let port = self.server.url().rsplit(':').next().unwrap_or_default();
        let registration = manifest("apiservice.yaml")
            .replace("REPLACE_WITH_BASE64_OF_CA_CRT", &STANDARD.encode(ca))
            .replace("port: 443", &format!("port: {port}"));
        host.apply(&registration);
        let name = "apiservice/v1alpha1.resourcemanager.freehold.dev";
        host.ok(&["wait", "--for=condition=Available", name, "--timeout=120s"]);
        // Discovery and documents of others' servers are fetched in a host's own time.
        until("the host tells of the types", PATIENCE, || {
            let kinds = host.run(&["api-resources", "--api-group=resourcemanager.freehold.dev"]);
            let all = ["organizations", "projects"].iter().all(|kind| kinds.stdout.contains(kind));
            (all && host.run(&["explain", "project.spec"]).success).then_some(())
        });
    }

    /// `kubectl` through the host below a path of it.
    fn through_host(&self, path: &str) -> Kubectl {
        self.kube.kubectl().with(&["--server", &format!("{}{LONG}{path}", self.kube.url())])
    }

    /// The status line of the server's own answer to who shows a certificate and writes these lines.
    fn asked(&self, pair: Option<&Pair>, path: &str, lines: &[&str]) -> String {
        let own = self.server.kubectl().json(&["config", "view", "--raw", "--minify"]);
        let encoded = |pem: &str| STANDARD.encode(pem);
        let user = pair.map_or(json!({}), |pair| {
            json!({"client-certificate-data": encoded(&pair.cert_pem), "client-key-data": encoded(&pair.key_pem)})
        });
        let path_of = self.folder.path().join("asked.kubeconfig");
        let config = kubeconfig(&own["clusters"][0]["cluster"], &user);
        std::fs::write(&path_of, config.to_string()).expect("the test's folder can be written");
        let kubectl = self.server.kubectl_with(path_of);
        let head = Held::get(&kubectl, &format!("{}{path}", self.server.url()), lines).head();
        head.split_whitespace().nth(1).unwrap_or_default().to_owned()
    }
}

fn kubeconfig(cluster: &Value, user: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    })
}

fn users_of_a_host_cluster_reach_projects_through_it(engine: Engine) {
    let world = World::start(engine);
    world.register();
    projects_are_made_through_the_host(&world);
    a_project_is_used_through_the_host(&world);
    the_host_says_what_its_users_may_do(&world);
    only_the_hosts_front_proxy_speaks_for_them(&world);
}

fn projects_are_made_through_the_host(world: &World) {
    let host = world.kube.kubectl();
    host.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}\n\
         spec: {type: Standard}\n---\napiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\n\
         metadata: {name: web}\nspec: {ownerRef: {kind: Organization, name: acme}}\n",
    );
    host.ok(&["wait", "--for=condition=Ready", "project/web", "--timeout=120s"]);
    assert_eq!(names(&host.json(&["get", "projects"])), ["web"]);
    contains_all(&host.ok(&["get", "organizations,projects"]), &["acme", "web"]);
    contains_all(&host.ok(&["api-resources", "--api-group=resourcemanager.freehold.dev"]), &["projects"]);
    contains_all(&host.ok(&["explain", "project.spec"]), &["ownerRef"]);
}

fn a_project_is_used_through_the_host(world: &World) {
    for form in ["control-plane", "proxy"] {
        let kubectl = world.through_host(&format!("/projects/web/{form}"));
        contains_all(&kubectl.ok(&["api-resources"]), &["configmaps", "deployments"]);
        kubectl.apply(&format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {form}, namespace: default}}\ndata: {{a: b}}\n"
        ));
        kubectl.ok(&[
            "apply",
            "--server-side",
            "--force-conflicts",
            "-f",
            manifest_of(world, form).to_str().unwrap_or_default(),
        ]);
        assert_eq!(text(&kubectl.json(&["get", "configmap", form]), "/data/a"), "c");
        let printed = "jsonpath={.metadata.labels.seen}{\"\\n\"}";
        // Of a single object kubectl drops the first event, whatever it tells; of a list it goes on from the list.
        let one = format!("--field-selector=metadata.name={form}");
        let watch: Background = kubectl.background(&["get", "configmaps", &one, "--watch", "-o", printed]);
        kubectl.ok(&["label", "configmap", form, "seen=yes"]);
        watch.wait_for("yes");
        contains_all(&kubectl.ok(&["explain", "configmap.data"]), &["map[string]string"]);
        kubectl.ok(&["delete", "configmap", form]);
    }
    // The host itself has none of this.
    let own = world.kube.kubectl().json(&["get", "configmaps", "-n", "default"]);
    assert!(!names(&own).contains(&"proxy"));
    let organization = world.through_host("/organizations/acme/control-plane");
    assert_eq!(names(&organization.json(&["get", "projects"])), ["web"]);
}

fn manifest_of(world: &World, name: &str) -> PathBuf {
    let path = world.folder.path().join(format!("{name}.yaml"));
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"},
        "data": {"a": "c"}});
    std::fs::write(&path, object.to_string()).expect("the test's folder can be written");
    path
}

fn the_host_says_what_its_users_may_do(world: &World) {
    let host = world.kube.kubectl();
    let jane = world.through_host("/projects/web/proxy").with(&["--as", "jane"]);
    let why = jane.fails(&["get", "configmaps"]);
    contains_all(&why, &["projects/proxy", "jane"]);
    let front = issue(&world.proxies, "front-proxy");
    let path = format!("{LONG}/projects/web/proxy/api/v1/namespaces/default/configmaps");
    let speaks = ["x-remote-user: jane", "x-remote-group: system:authenticated"];
    assert_eq!(
        world.asked(Some(&front), &path, &speaks),
        "403",
        "it asks the host, whatever that asked before"
    );
    host.ok(&[
        "create",
        "clusterrole",
        "reader",
        "--verb=get",
        "--resource=projects.resourcemanager.freehold.dev/proxy",
        "--resource-name=web",
    ]);
    host.ok(&["create", "clusterrolebinding", "reader", "--clusterrole=reader", "--user=jane"]);
    until("the host's answer counts", PATIENCE, || {
        (world.asked(Some(&front), &path, &speaks) == "200").then_some(())
    });
    jane.ok(&["get", "configmaps"]);
    let _ = jane.fails(&["create", "configmap", "not-allowed"]);
    let projects = format!("{LONG}/projects");
    assert_eq!(world.asked(Some(&front), &projects, &speaks), "403");
    assert_eq!(world.asked(Some(&front), &format!("{LONG}/projects/web/control-plane/api"), &speaks), "403");
}

fn only_the_hosts_front_proxy_speaks_for_them(world: &World) {
    let path = format!("{LONG}/projects");
    let speaks = ["x-remote-user: admin", "x-remote-group: system:masters"];
    let [front, other] = ["front-proxy", "someone"].map(|name| issue(&world.proxies, name));
    assert_eq!(world.asked(Some(&front), &path, &speaks), "200");
    assert_ne!(world.asked(None, &path, &speaks), "200");
    assert_ne!(world.asked(Some(&other), &path, &speaks), "200", "its name is not allowed");
    // The ConfigMap is followed.
    let names = json!({"data": {"requestheader-allowed-names": "[\"front-proxy\",\"someone\"]"}});
    world.kube.kubectl().ok(&[
        "-n",
        "kube-system",
        "patch",
        "configmap",
        "extension-apiserver-authentication",
        "--patch",
        &names.to_string(),
    ]);
    until("the other name is allowed", PATIENCE, || {
        (world.asked(Some(&other), &path, &speaks) == "200").then_some(())
    });
}
