//! The walk of `docs/tenancy.md`, as it is printed there: on a project of a real Freehold, and on a real kube-apiserver.

#[path = "../../controllers/tests/tenants/site.rs"]
#[allow(dead_code, reason = "the controllers' tests ask for more of it")]
mod site;

use freehold_tests_harness::{crds, freehold_binary};
use site::Site;
use std::path::Path;
use std::process::Command;

/// The blocks of commands of the section `## A walk`.
fn blocks(page: &str) -> Vec<&str> {
    let walk = page.split("## A walk\n").nth(1).expect("the page has a walk");
    let walk = walk.split("\n## ").next().unwrap_or_default();
    walk.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Installs Argo CD's definition of projects.
fn install_argo_cd(site: &Site) {
    let known = crds().into_iter().find(|crd| crd.object["metadata"]["name"] == "appprojects.argoproj.io");
    let crd = known.expect("`tools/get crds` gets the definitions of Argo CD");
    site.kubectl.ok(&["apply", "--server-side", "-f", &crd.path.display().to_string()]);
    site.kubectl.ok(&["create", "namespace", "argocd"]);
}

fn walk(site: &Site) {
    let page = std::fs::read_to_string(repository().join("docs/tenancy.md")).expect("the page");
    let folder = site.folder();
    let programs = folder.join("programs");
    std::fs::create_dir_all(&programs).expect("a directory");
    let link = |target: &Path, name: &Path| std::os::unix::fs::symlink(target, name).expect("a link");
    link(&freehold_binary(), &programs.join("freehold"));
    link(&repository().join("examples"), &folder.join("examples"));
    std::fs::copy(site.kubectl.kubeconfig(), folder.join("project.kubeconfig")).expect("a copy");
    let tools = repository().join(".tools/bin");
    let path = std::env::var("PATH").unwrap_or_default();
    install_argo_cd(site);
    let script = format!("set -eu\ntrap 'kill $(jobs -p)' EXIT\nset -x\n{}", blocks(&page).concat());
    let output = Command::new("bash")
        .args(["-c", &script])
        .current_dir(&folder)
        .env("PATH", format!("{}:{}:{path}", programs.display(), tools.display()))
        .env("HOME", folder.join("home"))
        .output()
        .expect("bash can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (printed, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {printed}\n{errors}", site.name);
    assert!(errors.contains("exceeded quota of tenant \"acme\": secrets"), "{}: {errors}", site.name);
    assert!(printed.contains("refused, as it should be"), "{}: {printed}", site.name);
    assert!(printed.contains("namespace   acme-dev (Ready)"), "{}: {printed}", site.name);
}

#[test]
fn a_newcomer_walks_through_a_project() {
    walk(&Site::freehold());
}

#[test]
fn a_newcomer_walks_through_a_kube_apiserver() {
    if let Some(site) = Site::kube() {
        walk(&site);
    }
}
