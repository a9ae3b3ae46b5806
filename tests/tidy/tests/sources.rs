//! Proportions and habits of the source, as CONTRIBUTING.md has them.

use freehold_tests_tidy::source::{blank, functions, without_tests};
use freehold_tests_tidy::workspace::{files, top};

/// Lines of a function outside tests.
const MAX_FUNCTION: usize = 80;

fn report(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

#[test]
fn no_function_is_longer_than_80_lines() {
    let mut long = Vec::new();
    for file in files(&[".rs"]).into_iter().filter(|file| !file.is_test()) {
        for function in functions(&without_tests(&blank(&file.text))) {
            if function.lines > MAX_FUNCTION {
                long.push(format!(
                    "{}:{} {} has {} lines",
                    file.path, function.line, function.name, function.lines
                ));
            }
        }
    }
    report("too long", &long);
}

#[test]
fn every_module_says_what_it_is_for() {
    let silent = files(&[".rs"]).into_iter().filter(|file| file.path.contains("/src/") && !file.is_test());
    let silent = silent.filter(|file| !file.text.starts_with("//!"));
    report("does not open with `//!`", &silent.map(|file| file.path).collect::<Vec<_>>());
}

#[test]
fn nothing_is_unwrapped_unfinished_or_unsafe() {
    // Put together here, so that this file does not name them itself.
    let words = [
        ".unwrap(".to_owned() + ")",
        "todo!(".into(),
        "unimplemented!(".into(),
        "dbg!(".into(),
        "unsafe {".into(),
    ];
    let mut found = Vec::new();
    for file in files(&[".rs"]).into_iter().filter(|file| !file.is_test()) {
        let text = without_tests(&blank(&file.text));
        for (number, line) in text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                found.push(format!("{}:{} {word}", file.path, number + 1));
            }
        }
    }
    report("not outside tests", &found);
}

#[test]
fn nothing_is_left_for_later_and_no_test_is_ignored() {
    let words = [["TO", "DO"], ["FIX", "ME"], ["#[ign", "ore"], ["for ", "now"]].map(|parts| parts.concat());
    let mut found = Vec::new();
    for file in files(&[".rs"]) {
        for (number, line) in file.text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                found.push(format!("{}:{} {word:?}", file.path, number + 1));
            }
        }
    }
    report("to be finished", &found);
}

#[test]
fn no_path_of_one_machine_is_named() {
    let paths = ["work", "root"].map(|folder| format!("/{folder}/"));
    let mut found = Vec::new();
    for file in
        files(&[".rs", ".toml", ".md", ".sh", ".yaml", ".json", "Makefile", "get", ".ts", ".tsx", ".go"])
    {
        for (number, line) in file.text.lines().enumerate() {
            if paths.iter().any(|path| line.contains(path.as_str())) {
                found.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    report("paths of one machine", &found);
}

#[test]
fn the_documents_are_there() {
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "LICENSE",
        "deny.toml",
        "Makefile",
    ] {
        let length = std::fs::metadata(top().join(name)).map_or(0, |file| file.len());
        assert!(length > 100, "{name} is missing or empty");
    }
}
