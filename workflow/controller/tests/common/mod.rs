//! A plane with the workflow kinds, controllers that can be lost at any write, and a kubelet that ends Pods at once.

#![allow(dead_code, reason = "each test uses a part")]

use freehold_client::{Client, ListOptions, Patch, PatchOptions, Resource};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Informer, Interest, Metrics, Outcome, Planes, Queue, Scope, Shares, Sharing};
use freehold_tests_harness::{Engine, Kube, KubeOptions, Options as ServerOptions, Server, until};
use freehold_workflow_api::names;
use freehold_workflow_controller::{Options, PARTS, Started, start};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) const RUNS: Resource = Resource::namespaced("workflow.freehold.dev", "v1alpha1", "dagruns");
pub(crate) const DAGS: Resource = Resource::namespaced("workflow.freehold.dev", "v1alpha1", "dags");
pub(crate) const PODS: Resource = Resource::namespaced("", "v1", "pods");
pub(crate) const REVISIONS: Resource = Resource::namespaced("apps", "v1", "controllerrevisions");
const CRDS: Resource = Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");
const NAMESPACES: Resource = Resource::cluster("", "v1", "namespaces");
/// How long anything may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What keeps the plane.
pub(crate) enum Place {
    Freehold(Box<Server>),
    Kube(Box<Kube>),
}

/// Controllers under way.
pub(crate) struct Controllers {
    token: CancellationToken,
    tasks: TaskTracker,
}

/// A plane with everything around it.
pub(crate) struct Home {
    pub(crate) runtime: Runtime,
    pub(crate) client: Client,
    pub(crate) place: Place,
    pub(crate) kubeconfig: std::path::PathBuf,
    kubelet: CancellationToken,
    controllers: Mutex<Option<Controllers>>,
    begun: Arc<Mutex<Vec<(String, u32)>>>,
    ended: Ended,
}

/// Uids of Pods that were ended, by namespace and name.
type Ended = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// A DAG in the namespace `default`.
pub(crate) fn dag(name: &str, spec: Value) -> Value {
    json!({"apiVersion": DAGS.api_version(), "kind": "DAG", "metadata": {"name": name, "namespace": "default"}, "spec": spec})
}

/// A task with an image.
pub(crate) fn task(name: &str, after: &[&str]) -> Value {
    json!({"name": name, "image": "busybox", "command": ["true"], "runAfter": after})
}

impl Home {
    /// A project plane of a real Freehold server.
    pub(crate) fn freehold() -> Self {
        // Webhooks of these tests are on this machine.
        let args = vec!["--outbound-networks=public,127.0.0.0/8".to_owned()];
        let server =
            Server::start(ServerOptions { engine: Engine::Embedded, args, ..ServerOptions::default() });
        let kubectl = server.kubectl();
        kubectl.apply(
            "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}",
        );
        kubectl.apply(
            "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: web}\nspec: {ownerRef: {kind: Organization, name: acme}}",
        );
        let kubectl = server.project("web");
        let client = Server::client_of(&kubectl);
        Self::with(client, kubectl.kubeconfig().to_owned(), Place::Freehold(Box::new(server)))
    }

    /// A real kube-apiserver, if there is one.
    pub(crate) fn kube() -> Option<Self> {
        if !Kube::is_available() {
            eprintln!("left out: there is no kube-apiserver; `tools/get kube-apiserver` builds it");
            return None;
        }
        let kube = Kube::start(KubeOptions::default());
        Some(Self::with(kube.client(), kube.admin_kubeconfig(), Place::Kube(Box::new(kube))))
    }

    fn with(client: Client, kubeconfig: std::path::PathBuf, place: Place) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let home = Self {
            runtime,
            client,
            place,
            kubeconfig,
            kubelet: CancellationToken::new(),
            controllers: Mutex::default(),
            begun: Arc::default(),
            ended: Arc::default(),
        };
        for crd in freehold_workflow_api::crds() {
            home.block(home.client.create(&CRDS, &crd)).expect("a definition");
        }
        for plural in ["dags", "dagruns", "dagtasks", "clusterdagtasks"] {
            let kind = Resource::namespaced("workflow.freehold.dev", "v1alpha1", plural);
            home.until("kinds are served", || {
                home.block(home.client.list(&kind, None, &ListOptions::default())).ok()
            });
        }
        home.until("the namespace is there", || {
            home.block(home.client.get(&NAMESPACES, None, "default")).ok()
        });
        home.kubelet();
        home
    }

    pub(crate) fn block<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    pub(crate) fn until<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        until(what, PATIENCE, look)
    }

    fn plane() -> PlaneId {
        "p".parse().expect("a plane")
    }

    /// Starts controllers, beside any that are there.
    pub(crate) fn start_with(&self, client: Client, options: Options) -> Controllers {
        self.begin(client, options).0
    }

    /// Starts controllers that divide the work with others of this kind.
    pub(crate) fn start_sharing(&self, identity: &str, options: Options) -> Controllers {
        let shares = Shares::new(PARTS);
        let options = Options { shares: Some(shares.clone()), ..options };
        let (controllers, started) = self.begin(self.client.clone(), options);
        let started = Arc::new(started);
        let sharing = Sharing::new(self.client.clone(), "freehold-workflow", identity, shares);
        let _inside = self.runtime.enter();
        let working = sharing.run(controllers.token.clone(), move |change| started.moved(change));
        controllers.tasks.spawn(working);
        controllers
    }

    fn begin(&self, client: Client, options: Options) -> (Controllers, Started) {
        let (token, tasks) = (CancellationToken::new(), TaskTracker::new());
        let planes = Planes::one(client, Self::plane(), "");
        let _inside = self.runtime.enter();
        let started = start(
            &Scope {
                planes,
                metrics: Metrics::default(),
                folder: None,
                tasks: tasks.clone(),
                token: token.clone(),
            },
            options,
        );
        (Controllers { token, tasks }, started)
    }

    /// Starts controllers.
    pub(crate) fn start(&self) {
        *self.controllers.lock() =
            Some(self.start_with(self.client.clone(), Options { http: true, ..Options::default() }));
    }

    /// Stops controllers.
    pub(crate) fn stop(&self) {
        if let Some(controllers) = self.controllers.lock().take() {
            self.end(controllers);
        }
    }

    /// Stops controllers that were started beside others.
    pub(crate) fn end(&self, controllers: Controllers) {
        controllers.token.cancel();
        controllers.tasks.close();
        self.block(controllers.tasks.wait());
    }

    /// Ends each Pod once: as its annotation `test/exit` says (a code, or codes by attempt), with the termination message that
    /// `test/message` has. Deletes Pods that nobody holds any more, as kubelets do.
    fn kubelet(&self) {
        let queue = Queue::new();
        let planes = Planes::one(self.client.clone(), Self::plane(), "");
        let mut informer = Informer::new(&planes, Interest::objects(PODS).labels(names::RUN_UID));
        informer.enqueue_into(&queue);
        let store = informer.store();
        let (token, client, begun) = (self.kubelet.clone(), self.client.clone(), self.begun.clone());
        let ended = self.ended.clone();
        self.runtime.spawn(informer.run(token.clone()));
        self.runtime.spawn(async move {
            let controller = freehold_runtime::Controller::new("kubelet", queue).workers(16);
            controller
                .run(token, move |key| {
                    let (client, begun, pod) = (client.clone(), begun.clone(), store.get(&key));
                    let ended = ended.clone();
                    async move {
                        let Some(pod) = pod else { return Ok(Outcome::Done) };
                        if meta::is_deleting(&pod) && meta::finalizers(&pod).is_empty() {
                            let options = freehold_client::DeleteOptions { grace_period_seconds: Some(0), ..Default::default() };
                            let _ = client.delete(&PODS, key.ns(), &key.name, &options).await;
                            return Ok(Outcome::Done);
                        }
                        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
                        let exit = meta::annotation(&pod, "test/exit").unwrap_or("0");
                        if matches!(phase, "Succeeded" | "Failed") || exit == "never" {
                            return Ok(Outcome::Done);
                        }
                        let attempt = meta::annotation(&pod, names::NODE).and_then(|node| node.rsplit('.').next()?.parse().ok()).unwrap_or(0);
                        let codes: Vec<i64> = exit.split(',').filter_map(|code| code.parse().ok()).collect();
                        let code = codes.get(attempt as usize).or(codes.last()).copied().unwrap_or(0);
                        let task = meta::label(&pod, names::TASK).unwrap_or_default().to_owned();
                        let message = meta::annotation(&pod, "test/message").unwrap_or_default();
                        let status = json!({"status": {
                            "phase": if code == 0 { "Succeeded" } else { "Failed" },
                            "containerStatuses": [{
                                "name": "main", "image": "busybox", "imageID": "", "ready": false, "restartCount": 0,
                                "state": {"terminated": {"exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }, "message": message}},
                            }],
                        }});
                        match client.patch(&PODS, key.ns(), &key.name, &Patch::Merge(status), &PatchOptions::status()).await {
                            Ok(_) => {
                                begun.lock().push((task, attempt));
                                let name = format!("{}/{}", key.namespace, key.name);
                                ended.lock().entry(name).or_default().insert(meta::uid(&pod).to_owned());
                            }
                            Err(error) if error.is_not_found() => {}
                            Err(error) => return Err(error.into()),
                        }
                        Ok(Outcome::Done)
                    }
                })
                .await;
        });
    }

    /// Creates an object.
    pub(crate) fn create(&self, object: &Value) -> Value {
        let plural = match object["kind"].as_str().unwrap_or_default() {
            "ConfigMap" => Resource::namespaced("", "v1", "configmaps"),
            kind => {
                let namespaced = kind != "ClusterDAGTask";
                Resource::dynamic(
                    "workflow.freehold.dev",
                    "v1alpha1",
                    format!("{}s", kind.to_lowercase()),
                    namespaced,
                )
            }
        };
        self.block(self.client.create(&plural, object)).unwrap_or_else(|error| panic!("{error}: {object}"))
    }

    /// Creates a run of a DAG, with further fields of its spec.
    pub(crate) fn run(&self, dag: &str, name: &str, more: Value) -> Value {
        let mut spec = json!({"dag": dag});
        spec.as_object_mut().expect("a map").extend(more.as_object().expect("a map").clone());
        self.create(&json!({
            "apiVersion": RUNS.api_version(), "kind": "DAGRun", "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        }))
    }

    pub(crate) fn get(&self, run: &str) -> Value {
        self.block(self.client.get(&RUNS, Some("default"), run)).expect("a run")
    }

    /// Waits until a run's status is as wanted.
    pub(crate) fn is(&self, run: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let begun = std::time::Instant::now();
        loop {
            if let Ok(found) = self.block(self.client.get(&RUNS, Some("default"), run)) {
                if wanted(&found["status"]) {
                    return found;
                }
                last = found;
            }
            assert!(begun.elapsed() < PATIENCE, "{run}: {what}: {last}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until a run is over.
    pub(crate) fn ended(&self, run: &str) -> Value {
        self.is(run, "it ends", |status| status["finishedAt"].is_string())
    }

    /// Changes a run's spec.
    pub(crate) fn patch(&self, run: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.block(self.client.patch(&RUNS, Some("default"), run, &patch, &PatchOptions::default()))
            .expect("a change");
    }

    /// Runs of a DAG.
    pub(crate) fn runs(&self, dag: &str) -> Vec<Value> {
        let runs = self
            .block(self.client.list_all(&RUNS, Some("default"), &ListOptions::default()))
            .expect("runs")
            .items;
        runs.into_iter().filter(|run| run["spec"]["dag"] == dag).collect()
    }

    /// Creates many runs of a DAG, some at once.
    pub(crate) fn run_many(&self, dag: &str, count: usize) {
        use futures_util::StreamExt as _;
        let create = |n: usize| {
            let run = json!({
                "apiVersion": RUNS.api_version(), "kind": "DAGRun",
                "metadata": {"name": format!("{dag}-{n}"), "namespace": "default"}, "spec": {"dag": dag},
            });
            async move { self.client.create(&RUNS, &run).await.map(drop).expect("a run") }
        };
        self.block(futures_util::stream::iter(0..count).map(create).buffer_unordered(16).collect::<Vec<_>>());
    }

    /// Suspends a DAG.
    pub(crate) fn suspend(&self, dag: &str) {
        let patch = Patch::Merge(json!({"spec": {"suspended": true}}));
        self.block(self.client.patch(&DAGS, Some("default"), dag, &patch, &PatchOptions::default()))
            .expect("a change");
    }

    /// Runs controllers for a time in a runtime of their own, which then ends with all that they do.
    pub(crate) fn lose_after(&self, time: Duration) {
        let runtime = Runtime::new().expect("a runtime");
        let config = freehold_client::Config::from_kubeconfig(&self.kubeconfig).expect("a kubeconfig");
        let client = Client::new(&config).expect("a client");
        let planes = Planes::one(client, Self::plane(), "");
        {
            let _inside = runtime.enter();
            let scope = Scope {
                planes,
                metrics: Metrics::default(),
                folder: None,
                tasks: TaskTracker::new(),
                token: CancellationToken::new(),
            };
            start(&scope, Options::default());
        }
        // How long it lives is what the test is about.
        std::thread::sleep(time);
        runtime.shutdown_background();
    }

    /// The tasks whose Pods ended, in that order.
    pub(crate) fn begun(&self) -> Vec<String> {
        self.begun.lock().iter().map(|(task, _)| task.clone()).collect()
    }

    /// The tasks and attempts whose Pods ended.
    pub(crate) fn attempts(&self) -> Vec<(String, u32)> {
        self.begun.lock().clone()
    }

    /// How many Pods each name had that were ended, by namespace and name.
    pub(crate) fn pods_of_names(&self) -> BTreeMap<String, usize> {
        self.ended.lock().iter().map(|(name, uids)| (name.clone(), uids.len())).collect()
    }

    pub(crate) fn pods(&self) -> Vec<Value> {
        self.block(self.client.list_all(&PODS, Some("default"), &ListOptions::default())).expect("Pods").items
    }

    /// Notes from now on how long it takes from the end of a Pod to the creation of the next one of its run.
    pub(crate) fn gaps(&self) -> Arc<Mutex<Vec<Duration>>> {
        use freehold_client::{WatchEvent, WatchOptions};
        let (gaps, client) = (Arc::<Mutex<Vec<Duration>>>::default(), self.client.clone());
        let listed =
            self.block(client.list_all(&PODS, Some("default"), &ListOptions::default())).expect("Pods");
        let noted = gaps.clone();
        self.runtime.spawn(async move {
            let options =
                WatchOptions { resource_version: listed.resource_version, ..WatchOptions::default() };
            let mut watch = client.watch(&PODS, Some("default"), &options).await.expect("a watch");
            let mut last: BTreeMap<String, std::time::Instant> = BTreeMap::new();
            while let Some(Ok(event)) = watch.next().await {
                let (WatchEvent::Added(pod) | WatchEvent::Modified(pod)) = event else { continue };
                let run = meta::label(&pod, names::RUN_UID).unwrap_or_default().to_owned();
                if pod["status"]["phase"] == "Succeeded" {
                    // It comes again while it is let go.
                    if !meta::is_deleting(&pod) {
                        last.insert(run, std::time::Instant::now());
                    }
                } else if let Some(at) = last.remove(&run) {
                    noted.lock().push(at.elapsed());
                }
            }
        });
        gaps
    }

    /// Waits until all Pods are gone.
    pub(crate) fn no_pods_left(&self) {
        self.until("Pods are deleted", || self.pods().is_empty().then_some(()));
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.kubelet.cancel();
        if let Some(controllers) = self.controllers.lock().take() {
            controllers.token.cancel();
        }
    }
}
