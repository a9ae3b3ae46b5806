//! Programs that run beside the server while tenancy is measured.

use anyhow::{Context, Result};
use freehold_tests_harness::{freehold_binary, tool};
use std::path::Path;
use std::process::{Child, Command};

/// A program that ends with this.
pub(super) struct Program(pub(super) Child);

impl Program {
    pub(super) fn start(kubeconfig: &Path, args: &[&str]) -> Result<Self> {
        let child = Command::new(freehold_binary()).args(args).env("KUBECONFIG", kubeconfig).spawn();
        Ok(Self(child.with_context(|| format!("freehold {}", args.join(" ")))?))
    }

    /// kube-apiserver's own controllers, as far as tenancy rests on them.
    pub(super) fn manager(kubeconfig: &Path) -> Result<Self> {
        let program = tool("FREEHOLD_TEST_KUBE_CONTROLLER_MANAGER", "kube-controller-manager");
        let child = Command::new(program)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args([
                "--controllers=clusterrole-aggregation-controller,namespace-controller,resourcequota-controller",
                "--leader-elect=false",
                "--secure-port=0",
                "--kube-api-qps=1000",
                "--kube-api-burst=2000",
            ])
            .spawn();
        Ok(Self(child.context("kube-controller-manager")?))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
