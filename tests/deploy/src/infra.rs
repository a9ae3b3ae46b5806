//! Core servers on an etcd, and beside them a cluster for dedicated pairs: a real kube-apiserver and a real
//! kube-controller-manager, with `freehold node` in place of nodes.

use crate::pods::text;
use freehold_tests_harness::{Etcd, Kube, KubeOptions, Kubectl, free_port, freehold_binary, tool, until};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// How long programs may take to be ready.
const PATIENCE: Duration = Duration::from_secs(120);
/// Controllers of the cluster: those that pairs need.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller,namespace-controller,serviceaccount-controller,\
                           disruption-controller,garbage-collector-controller,endpointslice-controller";

/// Lets Pods onto a node once its kubelet says that it is ready.
const NODE_LIFECYCLE: &str = ",node-lifecycle-controller";

/// A process that is killed when this is dropped.
pub struct Process(Child);

impl Process {
    /// Starts a program whose output goes into a file.
    pub fn start(command: &mut Command, log: &Path) -> Self {
        let file = File::options().create(true).append(true).open(log).expect("a log");
        command.stdin(Stdio::null()).stdout(file.try_clone().expect("a second handle")).stderr(file);
        let child = command.spawn();
        Self(child.unwrap_or_else(|error| panic!("{command:?} can't be run: {error}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A core server with its controllers.
pub struct Core {
    // Processes first: they go before what they use.
    _processes: Vec<Process>,
    _etcd: Etcd,
    /// `https://ADDRESS:PORT`.
    pub url: String,
    folder: PathBuf,
}

impl Core {
    /// Starts a core server that listens at an address of this machine, and waits until it is ready.
    pub fn start(folder: &Path, address: &str) -> Self {
        let etcd = Etcd::start(folder);
        let url = format!("https://{address}:{}", free_port());
        let mut core = Self { _processes: Vec::new(), _etcd: etcd, url, folder: folder.to_owned() };
        std::fs::create_dir_all(folder.join("home")).expect("the test's folder can be written");
        let mut pki = core.freehold("pki");
        pki.arg("--dir").arg(folder.join("pki")).args(["--server", &core.url]);
        let (made, printed) = crate::run(pki.arg("--admin-kubeconfig").arg(core.kubeconfig()));
        assert!(made, "freehold pki fails:\n{printed}");
        let listen = core.url.trim_start_matches("https://");
        let mut server = core.freehold("apiserver");
        server.args(["--listen", listen, "--external-url", &core.url, "--etcd", &core._etcd.url()]);
        server.arg("--pki-dir").arg(folder.join("pki"));
        let mut controllers = core.freehold("controller-manager");
        controllers.arg("--kubeconfig").arg(core.kubeconfig()).arg("--pki-dir").arg(folder.join("pki"));
        core._processes.push(Process::start(&mut server, &folder.join("core.log")));
        let kubectl = core.kubectl();
        until("the core server is ready", PATIENCE, || {
            kubectl.run(&["get", "--raw", "/readyz"]).success.then_some(())
        });
        core._processes.push(Process::start(&mut controllers, &folder.join("controllers.log")));
        core
    }

    /// A command of the program.
    pub fn freehold(&self, command: &str) -> Command {
        let mut program = Command::new(freehold_binary());
        program.arg(command).env("FREEHOLD_LOG", "info");
        program
    }

    /// Path of the kubeconfig of the core's administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("admin.kubeconfig")
    }

    /// `kubectl` as the administrator.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(self.kubeconfig(), self.folder.join("home"))
    }

    /// `kubectl` in a project.
    pub fn project(&self, name: &str) -> Kubectl {
        let mut command = self.freehold("kubeconfig");
        command.arg(name).env("KUBECONFIG", self.kubeconfig());
        let (made, text) = crate::run(command.env("FREEHOLD_LOG", "error"));
        assert!(made, "freehold kubeconfig {name}:\n{text}");
        let path = self.folder.join(format!("{name}.kubeconfig"));
        std::fs::write(&path, text).expect("the test's folder can be written");
        Kubectl::new(path, self.folder.join("home"))
    }

    /// Starts the provisioner for a cluster.
    pub fn provision(&self, infra: &Path, image: &str, more: &[String]) -> Process {
        let mut command = self.freehold("provisioner");
        command.arg("--kubeconfig").arg(self.kubeconfig()).arg("--infra-kubeconfig").arg(infra);
        command.arg("--pki-dir").arg(self.folder.join("pki")).args(["--image", image]).args(more);
        Process::start(&mut command, &self.folder.join("provisioner.log"))
    }
}

/// A cluster for pairs.
pub struct Infra {
    _processes: Vec<Process>,
    /// Its server.
    pub kube: Kube,
}

impl Infra {
    /// Starts a server and its controllers.
    pub fn start(folder: &Path, options: KubeOptions) -> Self {
        let kube = Kube::start(options);
        let mut manager =
            Command::new(tool("FREEHOLD_TEST_KUBE_CONTROLLER_MANAGER", "kube-controller-manager"));
        manager.arg("--kubeconfig").arg(kube.admin_kubeconfig()).args([
            "--leader-elect=false",
            "--secure-port=0",
            &format!(
                "--controllers={CONTROLLERS}{}",
                if Sandbox::find().is_some() { NODE_LIFECYCLE } else { "" }
            ),
        ]);
        let manager = Process::start(&mut manager, &folder.join("kube-controller-manager.log"));
        Self { _processes: vec![manager], kube }
    }

    /// Whether its programs are there (`tools/get kube-apiserver kube-controller-manager` builds them).
    pub fn is_available() -> bool {
        let manager = crate::top().join(".tools/bin/kube-controller-manager");
        Kube::is_available() && manager.is_file()
    }

    /// Starts `freehold node` in place of a kubelet: `image` is this program.
    pub fn add_node(&mut self, folder: &Path, image: &str) {
        let program = freehold_binary().display().to_string();
        let mut node = Command::new(&program);
        node.arg("node").arg("--kubeconfig").arg(self.kube.admin_kubeconfig());
        node.arg("--data-dir").arg(folder.join("node")).args(["--image", &format!("{image}={program}")]);
        node.env("FREEHOLD_LOG", "info");
        self._processes.push(Process::start(&mut node, &folder.join("node.log")));
    }

    /// `kubectl` in the cluster.
    pub fn kubectl(&self) -> Kubectl {
        self.kube.kubectl()
    }

    /// Starts a real kubelet and a scheduler in the sandbox of `tools/node`, and waits until the node is ready.
    pub fn add_kubelet(&mut self, sandbox: &Sandbox) {
        let kubeconfig = self.kube.admin_kubeconfig();
        let folder = &sandbox.folder;
        let mut kubelet = Command::new("kubelet");
        kubelet.arg("--config").arg(folder.join("kubelet.yaml")).arg("--kubeconfig").arg(&kubeconfig);
        kubelet.arg("--root-dir").arg(folder.join("kubelet"));
        // By default kubelet keeps certificates in the machine's own /var/lib/kubelet.
        kubelet.arg("--cert-dir").arg(folder.join("kubelet/pki"));
        kubelet.args(["--hostname-override=node", &format!("--node-ip={}", sandbox.address)]);
        let mut scheduler = Command::new("kube-scheduler");
        scheduler.arg("--kubeconfig").arg(&kubeconfig).args(["--leader-elect=false", "--secure-port=0"]);
        self._processes.push(Process::start(&mut kubelet, &folder.join("kubelet.log")));
        self._processes.push(Process::start(&mut scheduler, &folder.join("kube-scheduler.log")));
        let kubectl = self.kubectl();
        until("the node is ready", PATIENCE, || {
            kubectl.run(&["wait", "--for=condition=Ready", "node/node", "--timeout=2s"]).success.then_some(())
        });
    }
}

/// What `tools/node` has made for a kubelet.
pub struct Sandbox {
    /// Where containerd's socket and the kubelet's configuration are.
    pub folder: PathBuf,
    /// The address of the node, which Pods reach.
    pub address: String,
}

impl Sandbox {
    /// The sandbox that this test runs in, if it runs in one.
    pub fn find() -> Option<Self> {
        let folder = std::env::var_os("FREEHOLD_NODE_FOLDER")?;
        let address = std::env::var("FREEHOLD_NODE_ADDRESS").ok()?;
        Some(Self { folder: folder.into(), address })
    }

    /// Runs `ctr` among the images of the kubelet.
    pub fn ctr(&self, args: &[&str]) {
        let mut ctr = Command::new("ctr");
        ctr.arg("--address").arg(self.folder.join("containerd.sock")).args(["--namespace", "k8s.io"]);
        let (done, printed) = crate::run(ctr.args(args));
        assert!(done, "ctr {args:?}:\n{printed}");
    }
}

/// A folder of a test, which is kept when the test fails.
pub struct Folder(Option<TempDir>);

impl Folder {
    /// Makes a new folder for one test.
    pub fn new() -> Self {
        Self(Some(tempfile::Builder::new().prefix("freehold-pairs-").tempdir().expect("a directory")))
    }

    /// Path of the folder, absolute.
    pub fn path(&self) -> PathBuf {
        self.0.as_ref().map(|folder| folder.path().to_owned()).expect("it is there until the end")
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(folder) = self.0.take().filter(|_| std::thread::panicking()) {
            eprintln!("logs of this test are kept in {}", folder.keep().display());
        }
    }
}

/// The condition of an object, as `STATUS REASON MESSAGE`; empty where there is none.
pub fn condition(object: &serde_json::Value, type_: &str) -> String {
    let list = object["status"]["conditions"].as_array();
    let found = list.into_iter().flatten().find(|condition| condition["type"] == type_);
    found.map_or_else(String::new, |found| {
        ["status", "reason", "message"].map(|field| text(&found[field])).join(" ")
    })
}
