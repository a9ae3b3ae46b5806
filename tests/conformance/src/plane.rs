//! The project plane under test, with what a suite needs beside it.

use crate::names;
use crate::suite::{Suite, focus};
use anyhow::{Context as _, Result, bail};
use freehold_tests_harness::{Kubectl, Server, freehold_binary, tool};
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The domain of the projects' hosts.
pub(crate) const DOMAIN: &str = "conformance.example";

/// An organization with one project in each of the classes that suites need.
const PROJECTS: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: ControlPlaneClass
metadata: {name: external}
spec: {description: Another controller manager works in it, controllers: External}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: conformance}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: own}
spec: {ownerRef: {kind: Organization, name: conformance}}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: external}
spec: {ownerRef: {kind: Organization, name: conformance}, controlPlane: {class: external}}
";

/// The one node that the tests are shown; nothing runs on it.
const NODE: &str = "
apiVersion: v1
kind: Node
metadata: {name: nowhere, labels: {kubernetes.io/hostname: nowhere}}
";
const NODE_STATUS: &str = r#"{"status": {
  "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"},
  "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
  "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a node for tests"}]
}}"#;

/// Programs in a cluster find their service account at a fixed path: they get it there, in a mount namespace of their own.
/// Who may make one without a user namespace does, because in one nobody listens on ports below 1024. The project's
/// host, which nobody resolves, leads to the server through a proxy.
const IN_CLUSTER: &str = r#"#!/bin/sh
export KUBERNETES_SERVICE_HOST=HOST KUBERNETES_SERVICE_PORT=443 HTTPS_PROXY=PROXY NO_PROXY=127.0.0.0/8
account=$(ls -d "$PWD"/../../volumes/kube-api-access-* 2>/dev/null | head -1)
how="--user --map-root-user --mount"
unshare --mount true 2>/dev/null && how=--mount
exec unshare $how sh -c '
  files=/var/run/secrets/kubernetes.io/serviceaccount copy=$(mktemp -d)
  cp "$0"/* "$copy" && mount -t tmpfs none /run && mkdir -p $files && cp "$copy"/* $files && rm -r "$copy"
  exec PROGRAM "$@"' "$account" "$@"
"#;

/// A program as it runs in a Pod of a project.
fn in_cluster(program: &Path, project: &str, proxy: &str) -> Result<String> {
    let program = program.canonicalize().with_context(|| program.display().to_string())?;
    let host = format!("{project}.{DOMAIN}");
    Ok(IN_CLUSTER
        .replace("PROGRAM", &program.display().to_string())
        .replace("=HOST", &format!("={host}"))
        .replace("=PROXY", &format!("={proxy}")))
}

/// What Pods run that only wait.
const PAUSE: &str = "#!/bin/sh\nexec sleep infinity\n";

/// Which controllers run: none that looks after nodes, which report nothing here, and not the one that takes tokens away of
/// which nobody says that they are used.
const CONTROLLERS: &str =
    "--controllers=*,-node-lifecycle-controller,-legacy-serviceaccount-token-cleaner-controller";

/// Where the controller manager logs, in the folder of a plane.
const CONTROLLERS_LOG: &str = "kube-controller-manager.log";

/// How long a program may take to stop.
const STOP: Duration = Duration::from_secs(10);

/// A project plane, and the programs that work in it. Dropping it ends those.
pub(crate) struct Plane {
    kubectl: Kubectl,
    folder: PathBuf,
    programs: Vec<Child>,
}

/// A proxy that leads to a server, whatever host is asked for.
fn proxy_to(server: &Server) -> Result<String> {
    let address = server.url().trim_start_matches("https://").parse().context("the server's address")?;
    Ok(names::lead_to(address)?)
}

impl Plane {
    /// Makes a project and starts what the suite needs.
    pub(crate) fn new(server: &Server, suite: Suite, folder: &Path) -> Result<Self> {
        server.kubectl().apply(PROJECTS);
        let external = suite == Suite::KubeControllerManager;
        let project = if external { "external" } else { "own" };
        let proxy = proxy_to(server)?;
        // At the root of a host: `kubectl proxy`, which a test starts, leaves out the path of a server's address. Freehold's
        // own node, which runs Pods, has only DNS to find hosts.
        let kubectl = match suite.has_node() {
            true => server.project(project),
            false => server.project_at_host(project, DOMAIN, false).with_variable("HTTPS_PROXY", &proxy),
        };
        kubectl.apply(NODE);
        kubectl.ok(&["patch", "node", "nowhere", "--subresource=status", "--type=merge", "-p", NODE_STATUS]);
        // New nodes are tainted as not ready; what takes the taint away is the controller that looks after nodes.
        kubectl.ok(&["patch", "node", "nowhere", "--type=merge", "-p", r#"{"spec": {"taints": null}}"#]);
        let mut plane = Self { kubectl, folder: folder.to_owned(), programs: Vec::new() };
        if external {
            plane.start_controllers(server, &[])?;
        }
        if suite.has_node() {
            let image = |variable, name| in_cluster(&tool(variable, name), project, &proxy);
            let etcd = format!("#!/bin/sh\nexec {} \"$@\"\n", tool("FREEHOLD_TEST_ETCD", "etcd").display());
            plane.start_node(&[
                ("e2e-test-images/agnhost", &image("FREEHOLD_TEST_AGNHOST", "agnhost")?),
                (
                    "e2e-test-images/sample-apiserver",
                    &image("FREEHOLD_TEST_SAMPLE_APISERVER", "sample-apiserver")?,
                ),
                ("etcd", &etcd),
                ("pause", PAUSE),
            ])?;
        }
        Ok(plane)
    }

    /// A project for the real kube-controller-manager with these flags, and a node that runs its Pods.
    pub(crate) fn with_controllers(server: &Server, folder: &Path, flags: &[&str]) -> Result<Self> {
        server.kubectl().apply(PROJECTS);
        let kubectl = server.project("external");
        let mut plane = Self { kubectl, folder: folder.to_owned(), programs: Vec::new() };
        plane.start_node(&[("pause", PAUSE), ("true", "#!/bin/sh\nexit 0\n")])?;
        plane.start_controllers(server, flags)?;
        Ok(plane)
    }

    /// `kubectl` in the project.
    pub(crate) fn kubectl(&self) -> &Kubectl {
        &self.kubectl
    }

    /// What the controller manager has logged, and whether all programs still run.
    pub(crate) fn controllers(&mut self) -> Result<(String, bool)> {
        let log = std::fs::read_to_string(self.folder.join(CONTROLLERS_LOG))?;
        Ok((log, self.programs.iter_mut().all(|program| matches!(program.try_wait(), Ok(None)))))
    }

    /// A node of the project, that runs scripts as the images of registry.k8s.io that they are named after.
    fn start_node(&mut self, images: &[(&str, &str)]) -> Result<()> {
        let log = File::create(self.folder.join("node.log"))?;
        let mut flags = Vec::new();
        for (image, script) in images {
            let path = self.folder.join(image.rsplit('/').next().unwrap_or(image));
            std::fs::write(&path, script)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
            flags.push(format!("--image=registry.k8s.io/{image}={}", path.display()));
        }
        let child = Command::new(freehold_binary())
            .args(["node", "--log=info", "--kubeconfig"])
            .arg(self.kubectl.kubeconfig())
            .arg("--data-dir")
            .arg(self.folder.join("node"))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("freehold node can't be run")?;
        self.programs.push(child);
        Ok(())
    }

    /// The real kube-controller-manager.
    fn start_controllers(&mut self, server: &Server, flags: &[&str]) -> Result<()> {
        let log = File::create(self.folder.join(CONTROLLERS_LOG))?;
        let pki = server.data_dir().join("pki");
        let child = Command::new(tool("FREEHOLD_TEST_KUBE_CONTROLLER_MANAGER", "kube-controller-manager"))
            .arg("--kubeconfig")
            .arg(self.kubectl.kubeconfig())
            .arg("--root-ca-file")
            .arg(pki.join("ca.crt"))
            .args([CONTROLLERS, "--leader-elect=false", "--secure-port=0"])
            .args(flags)
            .envs(self.kubectl.variables())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("kube-controller-manager can't be run")?;
        self.programs.push(child);
        Ok(())
    }

    /// Runs tests, `procs` at once, and gives ginkgo's report.
    pub(crate) fn test(&self, names: &[&str], procs: usize) -> Result<String> {
        let report = self.folder.join("report.json");
        // One of an earlier run would be taken for that of this one.
        let _ = std::fs::remove_file(&report);
        let log = File::create(self.folder.join("tests.log"))?;
        let status = Command::new(tool("FREEHOLD_TEST_GINKGO", "ginkgo"))
            .args([&format!("--procs={procs}"), "--no-color", "--silence-skips", "--timeout=2h"])
            .arg(format!("--output-dir={}", self.folder.display()))
            .arg("--json-report=report.json")
            .args(focus(names))
            .arg(tool("FREEHOLD_TEST_E2E", "e2e.test"))
            .arg("--")
            .arg(format!("--kubeconfig={}", self.kubectl.kubeconfig().display()))
            .args([
                "--provider=skeleton",
                "--num-nodes=0",
                "--allowed-not-ready-nodes=-1",
                "--minStartupPods=0",
            ])
            .arg("--dump-logs-on-failure=false")
            .env("KUBECONFIG", self.kubectl.kubeconfig())
            .envs(self.kubectl.variables())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()
            .context("ginkgo can't be run")?;
        if !report.is_file() {
            bail!("no report, {status}: see {}", self.folder.join("tests.log").display());
        }
        Ok(std::fs::read_to_string(report)?)
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        for program in &mut self.programs {
            // It may have ended by itself. A node that is told to stop ends its Pods.
            let _ = Command::new("kill").arg(program.id().to_string()).status();
            let until = Instant::now() + STOP;
            while matches!(program.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
            }
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}
