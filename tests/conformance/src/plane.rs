//! The project plane under test, with what a suite needs beside it.

use crate::suite::{Suite, focus};
use anyhow::{Context as _, Result, bail};
use freehold_tests_harness::{Kubectl, Server, tool};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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

/// A project plane, and the programs that work in it. Dropping it ends those.
pub(crate) struct Plane {
    kubectl: Kubectl,
    folder: PathBuf,
    programs: Vec<Child>,
}

impl Plane {
    /// Makes a project and starts what the suite needs.
    pub(crate) fn new(server: &Server, suite: Suite, folder: &Path) -> Result<Self> {
        server.kubectl().apply(PROJECTS);
        let external = suite == Suite::KubeControllerManager;
        let kubectl = server.project(if external { "external" } else { "own" });
        kubectl.apply(NODE);
        kubectl.ok(&["patch", "node", "nowhere", "--subresource=status", "--type=merge", "-p", NODE_STATUS]);
        let mut plane = Self { kubectl, folder: folder.to_owned(), programs: Vec::new() };
        if external {
            plane.start_controllers(server)?;
        }
        Ok(plane)
    }

    /// The real kube-controller-manager, with all of its controllers but those that look after nodes.
    fn start_controllers(&mut self, server: &Server) -> Result<()> {
        let log = File::create(self.folder.join("kube-controller-manager.log"))?;
        let pki = server.data_dir().join("pki");
        let child = Command::new(tool("FREEHOLD_TEST_KUBE_CONTROLLER_MANAGER", "kube-controller-manager"))
            .arg("--kubeconfig")
            .arg(self.kubectl.kubeconfig())
            .arg("--root-ca-file")
            .arg(pki.join("ca.crt"))
            .args(["--controllers=*,-node-lifecycle-controller", "--leader-elect=false", "--secure-port=0"])
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
            // It may have ended by itself.
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}
