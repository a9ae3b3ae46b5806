//! What the tests share: a Freehold project and a kube-apiserver with the subsystem's kinds, and controllers in this
//! process.
#![allow(dead_code)]

use freehold_client::{Client, Config};
use freehold_machinery::{PlaneId, Value};
use freehold_runtime::{Metrics, Planes, Scope};
use freehold_tests_harness::{Engine, Kube, KubeOptions, Kubectl, Server, until};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a condition may take on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// An API that the controllers work on.
pub(crate) struct Api {
    pub(crate) name: &'static str,
    pub(crate) kubectl: Kubectl,
    pub(crate) client: Client,
    // Kept alive for the test.
    _server: Option<Server>,
    _kube: Option<Kube>,
}

/// A Freehold project and, where the program is there, a real kube-apiserver.
pub(crate) fn apis() -> Vec<Api> {
    let mut apis = vec![freehold()];
    if Kube::is_available() {
        apis.push(kube());
    } else {
        eprintln!("left out: there is no kube-apiserver; `tools/get kube-apiserver` builds it");
    }
    apis
}

/// A project of a Freehold server, with the kinds of the subsystem.
pub(crate) fn freehold() -> Api {
    let server = Server::start(Engine::Embedded);
    server.kubectl().apply(
        "---\n{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Organization, metadata: {name: acme}}\n---\n\
         apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: web}\n\
         spec: {ownerRef: {kind: Organization, name: acme}}",
    );
    let kubectl = server.project("web");
    prepared("freehold", kubectl, Some(server), None)
}

fn kube() -> Api {
    let kube = Kube::start(KubeOptions::default());
    prepared("kube", kube.kubectl(), None, Some(kube))
}

fn prepared(name: &'static str, kubectl: Kubectl, server: Option<Server>, kube: Option<Kube>) -> Api {
    let config = Config::from_kubeconfig(kubectl.kubeconfig()).expect("a kubeconfig");
    let client = Client::new(&config).expect("a kubeconfig that can be used");
    for crd in freehold_tenancy_api::crds() {
        kubectl.apply(&crd.to_string());
    }
    for crd in freehold_tenancy_api::crds() {
        let name = format!("crd/{}", crd["metadata"]["name"].as_str().expect("a name"));
        kubectl.ok(&["wait", "--for=condition=Established", "--timeout=60s", &name]);
    }
    Api { name, kubectl, client, _server: server, _kube: kube }
}

/// Controllers that run until this is dropped, as a process does until it is killed.
pub(crate) struct Running {
    runtime: Option<tokio::runtime::Runtime>,
}

impl Running {
    /// Runs what `start` starts over the API.
    pub(crate) fn start(api: &Api, start: impl FnOnce(&Scope)) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let scope = Scope {
            planes: Planes::one(fresh_client(api), plane(), ""),
            metrics: Metrics::default(),
            folder: None,
            tasks: TaskTracker::new(),
            token: CancellationToken::new(),
        };
        let guard = runtime.enter();
        start(&scope);
        drop(guard);
        Self { runtime: Some(runtime) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Tasks end at their next await, whatever they are in the middle of.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(5));
        }
    }
}

/// Connections belong to the runtime that opened them.
pub(crate) fn fresh_client(api: &Api) -> Client {
    Client::new(&Config::from_kubeconfig(api.kubectl.kubeconfig()).expect("a kubeconfig")).expect("a client")
}

pub(crate) fn plane() -> PlaneId {
    "p".parse().expect("a name")
}

impl Api {
    /// Applies YAML. `kubectl` takes text that begins with a brace for JSON.
    pub(crate) fn apply(&self, yaml: &str) {
        self.kubectl.apply(&format!("---\n{yaml}"));
    }

    /// A field of an object, by JSONPath.
    pub(crate) fn field(&self, namespace: &str, object: &str, path: &str) -> String {
        let path = format!("jsonpath={{{path}}}");
        let output = self.kubectl.run(&["get", "-n", namespace, object, "-o", &path]);
        if output.success { output.stdout } else { String::new() }
    }

    /// Waits until a field has a value.
    pub(crate) fn wait_field(&self, namespace: &str, object: &str, path: &str, value: &str) {
        let mut last = String::new();
        let what = format!("{}: {object} in {namespace}: {path} is {value}", self.name);
        until_or(
            &what,
            || {
                last = self.field(namespace, object, path);
                (last == value).then_some(())
            },
            || {
                format!(
                    "it is {:?}\n{}",
                    self.field(namespace, object, path),
                    self.kubectl.run(&["get", "-n", namespace, object, "-o", "yaml"]).stdout
                )
            },
        );
    }

    /// Objects of a namespace that no other object controls, without what each write changes.
    pub(crate) fn content(&self, namespace: &str, kinds: &str) -> Vec<Value> {
        let list = self.kubectl.json(&["get", "-n", namespace, kinds]);
        let mut items = list["items"].as_array().cloned().unwrap_or_default();
        items.retain(|item| item["metadata"]["ownerReferences"].is_null());
        for item in &mut items {
            // Counted up by the server with each change of a template.
            if let Some(annotations) = item["metadata"]["annotations"].as_object_mut() {
                annotations.remove("deprecated.daemonset.template.generation");
            }
            for field in ["resourceVersion", "managedFields", "generation", "uid", "creationTimestamp"] {
                freehold_machinery::meta::remove(item, field);
            }
            if let Some(object) = item.as_object_mut() {
                object.remove("status");
            }
        }
        items
    }
}

fn until_or(what: &str, look: impl FnMut() -> Option<()>, tell: impl Fn() -> String) {
    let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| until(what, PATIENCE, look)));
    assert!(looked.is_ok(), "{what}: {}", tell());
}
