//! The server, the controllers in this process, and the node that is played.

use freehold_client::{Client, DeleteOptions, Identity, ListOptions, Patch, PatchOptions, Resource};
use freehold_controller_manager::{Config, KUBERNETES_CONTROLLERS, Manager};
use freehold_pki::{Authority, ClientName};
use freehold_tests_harness::{Engine, Options, Server};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// The controllers that run in this process, and so not in the server's.
const OWN: &[&str] = &[
    "replication-controller",
    "stateful-set",
    "daemon-set",
    "horizontal-pod-autoscaler",
    "node-lifecycle",
    "taint-eviction",
    "ephemeral-volume",
    "token-cleaner",
];
/// How long something may take.
const PATIENCE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How often the node looks for pods.
const PERIOD: Duration = Duration::from_millis(50);

pub(crate) const PODS: Resource = Resource::namespaced("", "v1", "pods");
pub(crate) const CLAIMS: Resource = Resource::namespaced("", "v1", "persistentvolumeclaims");
pub(crate) const NODES: Resource = Resource::cluster("", "v1", "nodes");
pub(crate) const REVISIONS: Resource = Resource::namespaced("apps", "v1", "controllerrevisions");
const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
const ORGANIZATIONS: Resource =
    Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "organizations");
const PROJECTS: Resource = Resource::cluster("resourcemanager.freehold.dev", "v1alpha1", "projects");

static WORLD: Mutex<Weak<World>> = Mutex::new(Weak::new());

/// A server with a project, shared by the tests that run at the same time.
pub(crate) struct World {
    runtime: Runtime,
    token: CancellationToken,
    project: Client,
    _server: Server,
}

/// A namespace of the project, whose pods are played.
pub(crate) struct Namespace {
    world: Arc<World>,
    pub(crate) client: Client,
    pub(crate) name: String,
    token: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.token.cancel();
    }
}

fn world() -> Arc<World> {
    let mut current = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    current.upgrade().unwrap_or_else(|| {
        let world = Arc::new(World::start());
        *current = Arc::downgrade(&world);
        world
    })
}

impl World {
    fn start() -> Self {
        let others: Vec<&str> = KUBERNETES_CONTROLLERS.iter().filter(|c| !OWN.contains(c)).copied().collect();
        let args = vec![format!("--controllers={}", others.join(","))];
        let server = Server::start(Options { engine: Engine::Embedded, args, ..Options::default() });
        let pki = |name: &str| std::fs::read_to_string(server.data_dir().join("pki").join(name)).unwrap();
        let (ca, key) = (pki("ca.crt"), pki("ca.key"));
        let groups = ["system:masters".to_owned()];
        let name = ClientName { user: "system:freehold:controller-manager", groups: &groups, plane: None };
        let pair = Authority::from_pem(&ca, &key).unwrap().issue_client(&name, DAY).unwrap();
        let identity = Identity::ClientCert { cert_pem: pair.cert_pem, key_pem: pair.key_pem };
        let client = freehold_client::Config::new(server.url(), &ca, identity);
        let mut config = Config::new(client, server.url(), &ca, None);
        config.controllers = OWN.iter().map(|name| (*name).to_owned()).collect();
        let (runtime, token) = (Runtime::new().unwrap(), CancellationToken::new());
        let manager = {
            let _inside = runtime.enter();
            Manager::new(config).unwrap()
        };
        runtime.spawn(manager.run(token.clone()));
        runtime.block_on(create_project(&server.client()));
        let project = Server::client_of(&server.project("workloads"));
        Self { runtime, token, project, _server: server }
    }
}

async fn create_project(core: &Client) {
    let api = "resourcemanager.freehold.dev/v1alpha1";
    let organization = json!({"apiVersion": api, "kind": "Organization", "metadata": {"name": "tests"}});
    core.create(&ORGANIZATIONS, &organization).await.unwrap();
    let project = json!({
        "apiVersion": api, "kind": "Project", "metadata": {"name": "workloads"},
        "spec": {"ownerRef": {"kind": "Organization", "name": "tests"}},
    });
    core.create(&PROJECTS, &project).await.unwrap();
}

/// Runs a test in a new namespace whose name begins with `name`.
pub(crate) fn within<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Arc<Namespace>) -> F) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let world = world();
    let shared = world.clone();
    world.runtime.block_on(async move {
        let client = shared.project.clone();
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        client.create(&NAMESPACES, &object).await.unwrap();
        let token = CancellationToken::new();
        let namespace = Arc::new(Namespace { world: shared, client, name, token });
        namespace
            .until("a service account", async || {
                let accounts = Resource::namespaced("", "v1", "serviceaccounts");
                namespace.client.get_opt(&accounts, Some(&namespace.name), "default").await.unwrap()
            })
            .await;
        test(namespace).await;
    });
}

impl Namespace {
    /// Waits until `look` gives something.
    pub(crate) async fn until<T>(&self, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look().await {
                return found;
            }
            if begun.elapsed() > PATIENCE {
                let pods = self.list(&PODS).await;
                panic!("waited {PATIENCE:?} in vain: {what}; pods: {}", json!(pods));
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }

    /// Plays a node from now on: pods that are `ready` become so, and those that are being deleted go.
    pub(crate) fn play(&self, ready: impl Fn(&Value) -> bool + Send + Sync + 'static) -> CancellationToken {
        let (client, name) = (self.client.clone(), self.name.clone());
        let token = self.token.child_token();
        let stop = token.clone();
        self.world.runtime.spawn(stop.run_until_cancelled_owned(async move {
            loop {
                let list = client.list_all(&PODS, Some(&name), &ListOptions::default()).await;
                for pod in list.map(|list| list.items).unwrap_or_default() {
                    play_one(&client, &pod, &ready).await;
                }
                tokio::time::sleep(PERIOD).await;
            }
        }));
        token
    }

    pub(crate) async fn create(&self, resource: &Resource, mut object: Value) -> Value {
        object["metadata"]["namespace"] = self.name.clone().into();
        self.client.create(resource, &object).await.unwrap()
    }

    pub(crate) async fn get(&self, resource: &Resource, name: &str) -> Value {
        self.client.get(resource, Some(&self.name), name).await.unwrap()
    }

    pub(crate) async fn patch(&self, resource: &Resource, name: &str, patch: Value) -> Value {
        let options = PatchOptions::default();
        self.client.patch(resource, Some(&self.name), name, &Patch::Merge(patch), &options).await.unwrap()
    }

    pub(crate) async fn list(&self, resource: &Resource) -> Vec<Value> {
        self.client.list_all(resource, Some(&self.name), &ListOptions::default()).await.unwrap().items
    }

    pub(crate) async fn delete(&self, resource: &Resource, name: &str) {
        self.client.delete(resource, Some(&self.name), name, &DeleteOptions::default()).await.unwrap();
    }

    /// The names of all objects of a kind, in order.
    pub(crate) async fn names(&self, resource: &Resource) -> Vec<String> {
        let mut names: Vec<String> = self
            .list(resource)
            .await
            .iter()
            .map(|object| text(object, "/metadata/name").to_owned())
            .collect();
        names.sort_unstable();
        names
    }

    /// Waits until an object's status has these fields.
    pub(crate) async fn reaches(&self, resource: &Resource, name: &str, fields: Value) -> Value {
        let has = |object: &Value| {
            let fields = fields.as_object().into_iter().flatten();
            fields.into_iter().all(|(field, value)| object["status"][field] == *value)
        };
        self.until(&format!("{name} has {fields}"), async || {
            let object = self.get(resource, name).await;
            has(&object).then_some(object)
        })
        .await
    }

    /// Waits until nothing of a kind has changed for a while, which shows that doing it again changes nothing.
    pub(crate) async fn comes_to_rest(&self, resources: &[&Resource]) {
        let mut last = Vec::new();
        let mut since = Instant::now();
        let begun = Instant::now();
        while since.elapsed() < Duration::from_millis(1500) {
            let mut versions = Vec::new();
            for resource in resources {
                let objects = self.list(resource).await;
                versions.extend(objects.iter().map(|o| text(o, "/metadata/resourceVersion").to_owned()));
            }
            if versions != last {
                (last, since) = (versions, Instant::now());
            }
            assert!(begun.elapsed() < PATIENCE, "it does not come to rest");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn play_one(client: &Client, pod: &Value, ready: &impl Fn(&Value) -> bool) {
    let (namespace, name) = (Some(text(pod, "/metadata/namespace")), text(pod, "/metadata/name"));
    if pod.pointer("/metadata/deletionTimestamp").is_some() {
        let at_once = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        // It may be gone by now.
        let _ = client.delete(&PODS, namespace, name, &at_once).await;
        return;
    }
    const TARGET: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/\
                          nodeSelectorTerms/0/matchFields/0/values/0";
    let target = text(pod, TARGET);
    if !target.is_empty() && text(pod, "/spec/nodeName").is_empty() {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": target},
        });
        let _ = client.create_subresource(&PODS, namespace, name, "binding", &binding).await;
        return;
    }
    if text(pod, "/status/phase") == "Pending" && ready(pod) {
        let condition = json!({"type": "Ready", "status": "True", "lastTransitionTime": now()});
        let patch = json!({"status": {"phase": "Running", "conditions": [condition]}});
        let _ = client.patch(&PODS, namespace, name, &Patch::Strategic(patch), &PatchOptions::status()).await;
    }
}

fn now() -> String {
    freehold_machinery::time::format_seconds(jiff::Timestamp::now())
}

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A template of pods with a label and an image.
pub(crate) fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": image}]},
    })
}
