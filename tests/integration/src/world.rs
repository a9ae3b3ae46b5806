//! One server for each engine, shared by the tests that run at the same time; each test keeps to its own projects or
//! namespaces. The last test that holds it stops it.

use freehold_tests_harness::{Engine, Kubectl, Options, Server};
use serde_json::Value;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// The organization of projects that tests do not place themselves.
const ORGANIZATION: &str = "tests";

static WORLDS: [Mutex<Weak<World>>; 2] = [const { Mutex::new(Weak::new()) }; 2];

/// A server and the projects on it.
pub struct World {
    server: Server,
    engine: Engine,
    projects: Mutex<HashMap<String, Arc<OnceLock<Kubectl>>>>,
}

/// A hold on a world. When the test that holds it fails, logs and data are kept.
pub struct Shared(Arc<World>);

/// The world of an engine: the one that other tests are using, or a new one.
pub fn world(engine: Engine) -> Shared {
    let mut current = locked(&WORLDS[usize::from(engine == Engine::Etcd)]);
    if let Some(world) = current.upgrade() {
        return Shared(world);
    }
    // Webhooks of tests are on this machine.
    let args = vec!["--outbound-networks=public,127.0.0.0/8".to_owned()];
    let options = Options { engine, args, ..Options::default() };
    let world = Arc::new(World { server: Server::start(options), engine, projects: Mutex::default() });
    // Once, not by whichever tests come first at the same time.
    world.organization(ORGANIZATION, &[]);
    *current = Arc::downgrade(&world);
    Shared(world)
}

/// A lock says nothing about the test that failed while it held it.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deref for Shared {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.server.keep();
        }
    }
}

impl World {
    /// The server that the tests of an engine share.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// What keeps its objects.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// `kubectl` as the admin, in the core plane.
    pub fn admin(&self) -> Kubectl {
        self.server.kubectl()
    }

    /// `kubectl` as the admin below a path of the server: `/planes/infra`, `/organizations/acme`.
    pub fn at(&self, path: &str) -> Kubectl {
        self.admin().with(&["--server", &format!("{}{path}", self.server.url())])
    }

    /// `kubectl` as a user of the platform below a path of the server.
    pub fn person(&self, user: &str, path: &str) -> Kubectl {
        self.server.person(user).with(&["--server", &format!("{}{path}", self.server.url())])
    }

    /// Makes an organization with projects, and waits until they are ready.
    pub fn organization(&self, name: &str, projects: &[&str]) {
        let mut manifests = organization(name);
        for project in projects {
            manifests += &format!("---\n{}", shared_project(project, name));
        }
        self.admin().apply(&manifests);
        for project in projects {
            self.wait_ready(project);
        }
    }

    /// Waits until a project is ready.
    pub fn wait_ready(&self, project: &str) {
        self.admin().ok(&["wait", "--for=condition=Ready", &format!("project/{project}"), "--timeout=120s"]);
    }

    /// `kubectl` with the kubeconfig of a project, which is made when it is asked for first.
    pub fn project(&self, name: &str) -> Kubectl {
        self.prepared(name, |_| {})
    }

    /// `kubectl` with the kubeconfig of a project, which `prepare` changes before any test gets it.
    pub fn prepared(&self, name: &str, prepare: impl FnOnce(&Kubectl)) -> Kubectl {
        let slot = locked(&self.projects).entry(name.to_owned()).or_default().clone();
        let make = || {
            self.admin().apply(&shared_project(name, ORGANIZATION));
            self.wait_ready(name);
            let kubectl = self.server.project(name);
            prepare(&kubectl);
            kubectl
        };
        slot.get_or_init(make).clone()
    }

    /// `kubectl` in a new namespace of a project.
    pub fn namespace(&self, project: &str, namespace: &str) -> Kubectl {
        let kubectl = self.project(project);
        kubectl.ok(&["create", "namespace", namespace]);
        kubectl.with(&["--namespace", namespace])
    }

    /// The uid of a project, which is the identifier of its plane.
    pub fn uid(&self, project: &str) -> String {
        text(&self.admin().json(&["get", "project", project]), "/metadata/uid")
    }

    /// Waits until `kubectl get` finds no such thing.
    pub fn gone(kubectl: &Kubectl, what: &[&str]) {
        let args: Vec<&str> = ["get"].into_iter().chain(what.iter().copied()).collect();
        let args: Vec<&str> = args.into_iter().chain(["--ignore-not-found", "-o", "name"]).collect();
        freehold_tests_harness::until(
            &format!("{what:?} are gone"),
            std::time::Duration::from_secs(120),
            || {
                let output = kubectl.run(&args);
                (output.success && output.stdout.is_empty()).then_some(())
            },
        );
    }
}

/// The manifest of an organization.
pub(crate) fn organization(name: &str) -> String {
    format!(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {{name: {name}}}\n\
         spec: {{type: Standard}}\n"
    )
}

/// The manifest of a shared project.
pub(crate) fn shared_project(name: &str, organization: &str) -> String {
    format!(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {{name: {name}}}\n\
         spec: {{ownerRef: {{kind: Organization, name: {organization}}}}}\n"
    )
}

/// The string at a JSON pointer; a panic where there is none.
fn text(value: &Value, pointer: &str) -> String {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("nothing at {pointer} of {value}")).to_owned()
}
