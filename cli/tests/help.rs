//! The program as a person meets it first. That these tests exist makes cargo build the program together with all tests, from
//! dependencies that are compiled once for both.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn freehold(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_freehold")).args(args).output().unwrap()
}

fn help_of(args: &[&str]) -> String {
    let output = freehold(&[args, &["--help"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The names below `Commands:` of a help text, with their descriptions.
fn commands(help: &str) -> Vec<(String, String)> {
    let listed = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let lines = listed.lines().take_while(|line| !line.trim().is_empty());
    let of = |line: &str| {
        line.trim().split_once(' ').map(|(name, about)| (name.to_owned(), about.trim().to_owned()))
    };
    lines.filter_map(of).filter(|(name, _)| name != "help").collect()
}

#[test]
fn each_command_says_what_it_does() {
    let all = commands(&help_of(&[]));
    assert!(all.iter().any(|(name, _)| name == "up"), "{all:?}");
    for (name, about) in &all {
        assert!(about.len() > 15, "freehold {name}: {about:?}");
        assert!(help_of(&[name]).contains("Usage:"), "freehold {name} --help");
    }
}

#[test]
fn unknown_command_is_refused() {
    let output = freehold(&["nonsense"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("nonsense"));
}

#[test]
fn completions_and_man_pages_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let output = freehold(&["completion", shell]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("get-started"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    assert!(freehold(&["man", folder.path().to_str().unwrap()]).status.success());
    let page = std::fs::read_to_string(folder.path().join("freehold-login.1")).unwrap();
    assert!(page.contains("OpenID Connect"), "{page}");
}
