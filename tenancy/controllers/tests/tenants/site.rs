//! Servers that the tests run on: a project of a real Freehold, and a real kube-apiserver with kube-controller-manager.
//!
//! The controllers run in the test's own process.

use freehold_client::{Client, Config, Resource};
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Metrics, Planes, Scope};
use freehold_tests_harness::{Engine, Kube, KubeOptions, Kubectl, Options, Server, tool, until};
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a test waits for a condition. The machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const CRDS: Resource = Resource::cluster("apiextensions.k8s.io", "v1", "customresourcedefinitions");

#[expect(dead_code, reason = "the server lives as long as the site")]
enum Program {
    Freehold(Server),
    Kube(Manager, Kube),
}

/// A real kube-controller-manager. It ends when this is dropped.
struct Manager(Child);

impl Manager {
    fn start(kube: &Kube) -> Self {
        let log = std::fs::File::create(kube.folder().join("kube-controller-manager.log")).expect("a log");
        let controllers = [
            "clusterrole-aggregation-controller",
            "garbage-collector-controller",
            "namespace-controller",
            "resourcequota-controller",
            "serviceaccount-controller",
            "root-ca-certificate-publisher-controller",
            "deployment-controller",
            "replicaset-controller",
            "statefulset-controller",
            "job-controller",
        ];
        let child = Command::new(tool("FREEHOLD_TEST_KUBE_CONTROLLER_MANAGER", "kube-controller-manager"))
            .arg(format!("--kubeconfig={}", kube.admin_kubeconfig().display()))
            .arg(format!("--root-ca-file={}", kube.folder().join("ca.crt").display()))
            .arg(format!("--controllers={}", controllers.join(",")))
            .args([
                "--use-service-account-credentials",
                "--leader-elect=false",
                "--secure-port=0",
                "--concurrent-namespace-syncs=10",
            ])
            .stdout(log.try_clone().expect("a file has a second handle"))
            .stderr(log)
            .spawn()
            .expect("kube-controller-manager starts");
        Self(child)
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server with the subsystem's kinds.
pub(crate) struct Site {
    /// `kubectl` as the admin.
    pub(crate) kubectl: Kubectl,
    /// The name in messages.
    pub(crate) name: &'static str,
    client: Client,
    runtime: Runtime,
    token: CancellationToken,
    program: Program,
}

impl Site {
    /// A project of a real Freehold.
    pub(crate) fn freehold() -> Self {
        let args = vec!["--outbound-networks=public,127.0.0.0/8".to_owned()];
        let server = Server::start(Options { engine: Engine::Embedded, args, ..Options::default() });
        server.kubectl().apply(
            "---\n{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Organization, metadata: {name: acme}, spec: {}}\n---\n\
             {apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Project, metadata: {name: shop}, spec: {ownerRef: {kind: Organization, name: acme}}}",
        );
        let kubectl = server.project("shop");
        Self::new("Freehold", kubectl, Program::Freehold(server))
    }

    /// A real kube-apiserver; `None` where there is none.
    pub(crate) fn kube() -> Option<Self> {
        if !Kube::is_available() {
            eprintln!("left out: there is no kube-apiserver; `tools/get kube-apiserver` builds it");
            return None;
        }
        let kube = Kube::start(KubeOptions::default());
        let kubectl = kube.kubectl();
        let manager = Manager::start(&kube);
        Some(Self::new("kube-apiserver", kubectl, Program::Kube(manager, kube)))
    }

    fn new(name: &'static str, kubectl: Kubectl, program: Program) -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let config = Config::from_kubeconfig(kubectl.kubeconfig()).expect("a kubeconfig that can be read");
        let client = Client::new(&config).expect("a kubeconfig that can be used");
        let runtime = Runtime::new().expect("a runtime");
        let site = Self { kubectl, name, client, runtime, token: CancellationToken::new(), program };
        site.install();
        site.install_roles();
        site
    }

    /// A directory that goes with the site.
    #[allow(dead_code, reason = "each test program uses a part of this module")]
    pub(crate) fn folder(&self) -> PathBuf {
        match &self.program {
            Program::Freehold(server) => server.folder().to_owned(),
            Program::Kube(_, kube) => kube.folder().to_owned(),
        }
    }

    /// Starts the API server again.
    #[allow(dead_code, reason = "each test program uses a part of this module")]
    pub(crate) fn restart(&mut self) {
        match &mut self.program {
            Program::Freehold(server) => server.restart(),
            Program::Kube(_, kube) => kube.restart(),
        }
    }

    /// Ends the API server with SIGKILL, and starts it again.
    #[allow(dead_code, reason = "each test program uses a part of this module")]
    pub(crate) fn kill(&mut self) {
        match &mut self.program {
            Program::Freehold(server) => {
                server.kill();
                server.restart();
            }
            Program::Kube(_, kube) => kube.restart(),
        }
    }

    /// Installs the definitions, and waits until they are served.
    fn install(&self) {
        for crd in freehold_tenancy_api::crds() {
            let name = meta::name(&crd).to_owned();
            self.wait(self.client.apply(&CRDS, "test", &crd)).unwrap_or_else(|e| panic!("{name}: {e}"));
            until(&format!("{name} is established"), PATIENCE, || {
                let crd = self.wait(self.client.get(&CRDS, None, &name)).ok()?;
                let conditions = crd.pointer("/status/conditions")?.as_array()?;
                conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True").then_some(())
            });
        }
    }

    /// Applies manifests as the admin. Input that begins with a brace would be read as JSON.
    pub(crate) fn apply(&self, manifests: &str) {
        self.kubectl.apply(&format!("---\n{manifests}"));
    }

    /// Installs the roles of the subsystem.
    fn install_roles(&self) {
        const ROLES: Resource = Resource::cluster("rbac.authorization.k8s.io", "v1", "clusterroles");
        for role in freehold_tenancy_controllers::roles::roles() {
            self.wait(self.client.apply(&ROLES, "test", &role)).unwrap_or_else(|e| panic!("{role}: {e}"));
        }
    }

    /// A client as the admin.
    #[allow(dead_code, reason = "each test program uses a part of this module")]
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// A scope of tasks that end with the site, or with its own token.
    #[allow(dead_code, reason = "each test program uses a part of this module")]
    pub(crate) fn scope(&self) -> Scope {
        Scope {
            planes: Planes::one(self.client.clone(), PlaneId::core(), ""),
            metrics: Metrics::default(),
            folder: None,
            tasks: TaskTracker::new(),
            token: self.token.child_token(),
        }
    }

    /// The runtime, for tasks of the test.
    #[allow(dead_code, reason = "each test program uses a part of this module")]
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Waits for a future.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Starts the controllers. They stop with the site.
    pub(crate) fn start(&self) -> Scope {
        let scope = self.scope();
        let _guard = self.runtime.enter();
        freehold_tenancy_controllers::start(&scope);
        scope
    }

    /// Reads an object; `None` where it is absent.
    pub(crate) fn get(&self, args: &[&str]) -> Option<Value> {
        let args: Vec<&str> =
            ["get"].iter().chain(args).chain(&["-o", "json", "--ignore-not-found"]).copied().collect();
        let output = self.kubectl.run(&args);
        if !output.success || output.stdout.is_empty() {
            None
        } else {
            serde_json::from_str(&output.stdout).ok()
        }
    }

    /// Waits until an object is as wanted, and returns it.
    pub(crate) fn until(&self, what: &str, args: &[&str], wanted: impl Fn(&Value) -> bool) -> Value {
        let mut last = None;
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(&format!("{}: {what}", self.name), PATIENCE, || {
                last = self.get(args);
                last.clone().filter(|object| wanted(object))
            })
        }));
        looked.unwrap_or_else(|_| panic!("{}: {what}: {}", self.name, last.unwrap_or_default()))
    }

    /// Waits until an object is absent.
    pub(crate) fn gone(&self, what: &str, args: &[&str]) {
        until(&format!("{}: {what}", self.name), PATIENCE, || self.get(args).is_none().then_some(()));
    }

    /// Waits until a condition of an object has a status and a reason.
    pub(crate) fn condition(&self, args: &[&str], type_: &str, status: &str, reason: &str) -> Value {
        self.until(&format!("{args:?} has {type_}={status} ({reason})"), args, |object| {
            let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
            conditions.is_some_and(|list| {
                list.iter().any(|c| c["type"] == type_ && c["status"] == status && c["reason"] == reason)
            })
        })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.token.cancel();
    }
}
