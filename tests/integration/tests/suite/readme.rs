//! The README's quick start, as it is printed there.

use crate::contains_all;
use freehold_tests_integration::{Engine, Server, facts, freehold_binary};
use std::{fmt::Write as _, fs, os::unix::fs::symlink, path::Path, process::Command};

facts!(engine: the_commands_of_the_readme_work_as_they_are_printed);

/// The server's URL in the README.
const URL: &str = "https://127.0.0.1:7443";
/// What a comment begins with that says how a command fails.
const FAILURE: &str = "# the server ";

fn the_commands_of_the_readme_work_as_they_are_printed(engine: Engine) {
    let server = Server::start(engine);
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = server.folder().join("clone");
    fs::create_dir_all(folder.join("target/release")).expect("the test's folder can be written");
    symlink(freehold_binary(), folder.join("target/release/freehold")).expect("a link to the program");
    symlink(top.join("examples"), folder.join("examples")).expect("a link to the examples");
    symlink(server.data_dir(), folder.join("data")).expect("a link to the data directory");
    let readme = fs::read_to_string(top.join("README.md")).expect("the README");
    // What is waited for has as long as a busy machine needs.
    let script = script(&readme).replace(URL, server.url()).replace(" --timeout=60s", "");
    let script = script.replace(" wait --for", " wait --timeout=120s --for");
    let run = Command::new("timeout")
        .args(["400", "bash", "-euxo", "pipefail", "-c", &script])
        .current_dir(&folder)
        .env("HOME", &folder)
        .env_remove("KUBECONFIG")
        .output()
        .expect("bash can be run");
    let (out, err) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{}\n{out}\n{err}", run.status);
    contains_all(
        &out,
        &["Lisbon", "project.resourcemanager.freehold.dev/payments condition met", "apiserver-"],
    );
}

#[test]
fn get_started_walks_through_the_readme_and_cleans_up() {
    let server = Server::start(Engine::Embedded);
    let folder = server.folder().join("walk");
    let folder = folder.to_str().expect("a path of text");
    let walked = server.freehold(&["get-started", "--yes", "--dir", folder]).expect_ok();
    contains_all(
        &walked,
        &["$ freehold kubeconfig web > web.kubeconfig", "Lisbon", "payments condition met", "apiserver-"],
    );
    server.freehold(&["get-started", "--clean", "--dir", folder]).expect_ok();
    assert!(!server.kubectl().ok(&["get", "organizations"]).contains("acme"));
}

/// The commands between the quick start's title and the next one, without those that build. A command whose comment tells
/// a failure has to fail, saying that.
fn script(readme: &str) -> String {
    let quick_start =
        readme.split("\n## ").find(|part| part.starts_with("Quick start")).expect("a quick start");
    let blocks = quick_start.split("\n```\n").skip(1).step_by(2).filter(|block| !block.starts_with("make "));
    let mut script = String::new();
    for line in blocks.flat_map(str::lines) {
        // Writing to a String can't fail.
        let _ = match line.split_once(FAILURE) {
            Some((command, rest)) => {
                let expected = format!("{}{rest}", &FAILURE[2..]).replace('\'', r"'\''");
                writeln!(script, "if {command} 2>failure; then exit 9; fi; grep -F '{expected}' failure")
            }
            None => writeln!(script, "{line}"),
        };
    }
    assert!(script.lines().count() > 15, "commands were found:\n{script}");
    script
}
