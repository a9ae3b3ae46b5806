//! What tests of `deploy/` share: rendering the chart, reading its values, and running a Pod's containers as processes.
//!
//! Failures are panics that show what was asked and what came: this crate is for tests alone.

pub mod infra;
pub mod pods;
pub mod prometheus;
pub mod values;

use freehold_tests_harness::tool;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release and the namespace that the kustomize base is rendered with.
pub const RELEASE: &str = "freehold";
/// See [`RELEASE`].
pub const NAMESPACE: &str = "freehold-system";

/// The top folder of the workspace.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder of the Helm chart.
pub fn chart() -> PathBuf {
    top().join("deploy/chart/freehold")
}

/// The values files of `ci/`, in the order of their names.
pub fn values_files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(chart().join("ci")).expect("deploy/chart/freehold/ci is there");
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// Runs a program; gives whether it succeeded, and all that it printed.
pub fn run(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?} can't be run: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

/// A `helm` command, which keeps nothing of its own.
pub fn helm(args: &[&str]) -> Command {
    let mut command = Command::new(tool("FREEHOLD_TEST_HELM", "helm"));
    let nowhere = std::env::temp_dir().join("freehold-helm");
    command.args(args).env("HOME", &nowhere).env("HELM_CACHE_HOME", nowhere.join("cache"));
    command
}

/// The text of the chart's objects; `args` are further arguments of `helm template`.
pub fn render_text(release: &str, args: &[&str]) -> String {
    let chart = chart().display().to_string();
    let mut command = helm(&["template", release, &chart, "--namespace", NAMESPACE]);
    let (success, text) = run(command.args(args));
    assert!(success, "helm template {args:?} failed:\n{text}");
    text
}

/// Renders the chart with Helm and returns its objects.
pub fn render(release: &str, args: &[&str]) -> Vec<Value> {
    parse(&render_text(release, args))
}

/// The objects of a text of YAML documents.
pub fn parse(text: &str) -> Vec<Value> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).unwrap_or_else(|e| panic!("no YAML ({e}):\n{text}"));
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// The object of a kind and name.
pub fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("there is no {kind} {name}"))
}
