//! The first run of `docs/workflow.md`, as it is printed there, on a project of a real Freehold with `freehold node`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use freehold_tests_harness::{Engine, Server, freehold_binary};
use std::fs::File;
use std::path::Path;
use std::process::Command;

/// Seconds that the walk may take.
const PATIENCE: &str = "60";

/// The blocks of commands of the section `## First run`.
fn blocks(page: &str) -> String {
    let walk = page.split("## First run\n").nth(1).expect("the page has a first run");
    let walk = walk.split("\n## ").next().unwrap_or_default();
    walk.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn a_newcomer_walks_through_a_first_run() {
    let server = Server::start(Engine::Embedded);
    let kubectl = server.kubectl();
    kubectl.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Organization\nmetadata: {name: acme}",
    );
    kubectl.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: web}\nspec: {ownerRef: {kind: Organization, name: acme}}",
    );
    let project = server.project("web");
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| folder.path().join(name);
    std::fs::create_dir(place("programs")).unwrap();
    std::os::unix::fs::symlink(freehold_binary(), place("programs/freehold")).unwrap();
    std::os::unix::fs::symlink(repository().join("examples"), place("examples")).unwrap();
    std::fs::copy(project.kubeconfig(), place("project.kubeconfig")).unwrap();
    let page = std::fs::read_to_string(repository().join("docs/workflow.md")).unwrap();
    let script = format!("set -eu\ntrap 'kill $(jobs -p)' EXIT\nset -x\n{}", blocks(&page));
    // A file and no pipe: whatever outlives the script would keep a pipe open.
    let file = File::create(place("printed")).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let status = Command::new("timeout")
        .args([PATIENCE, "bash", "-c", &script])
        .current_dir(folder.path())
        .env("PATH", format!("{}:{path}", place("programs").display()))
        .env("HOME", place("home"))
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .status()
        .expect("timeout and bash can be run");
    let printed = std::fs::read_to_string(place("printed")).unwrap();
    assert!(status.success(), "{status}: {printed}");
    assert!(printed.contains("first Succeeded 5/5"), "{printed}");
}
