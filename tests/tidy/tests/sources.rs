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

/// Code that treats all kinds alike: what is special about one is a column of a table.
const GENERIC: &[&str] = &[
    "apiserver/operation/src/",
    "apiserver/registry/src/across.rs",
    "apiserver/registry/src/conversion",
    "apiserver/registry/src/convert.rs",
    "apiserver/registry/src/delete.rs",
    "apiserver/registry/src/draft.rs",
    "apiserver/registry/src/get.rs",
    "apiserver/registry/src/import.rs",
    "apiserver/registry/src/list.rs",
    "apiserver/registry/src/preconditions.rs",
    "apiserver/registry/src/prepare.rs",
    "apiserver/registry/src/select.rs",
    "apiserver/registry/src/shown.rs",
    "apiserver/registry/src/validate.rs",
    "apiserver/registry/src/watch.rs",
    "apiserver/registry/src/write.rs",
    "apiserver/server/src/bodies.rs",
    "apiserver/server/src/dispatch.rs",
    "apiserver/server/src/events.rs",
    "apiserver/server/src/output.rs",
    "apiserver/server/src/watch.rs",
];

/// Lines of it that name a kind all the same. It only gets shorter.
const NAMED_KINDS: &[&str] = &[
    // `/namespaces/NAME` is both the path of a namespace and of what is in it.
    "apiserver/server/src/dispatch.rs: let own_name = ty.group.is_empty() && ty.plural == \"namespaces\";",
];

#[test]
fn generic_code_names_no_kind() {
    let mut found = Vec::new();
    for file in
        files(&[".rs"]).into_iter().filter(|file| GENERIC.iter().any(|path| file.path.starts_with(path)))
    {
        let blanked = without_tests(&blank(&file.text));
        for (line, code) in file.text.lines().zip(blanked.lines()) {
            if ["plural == ", "plural != ", "plural.as_str()"].iter().any(|word| code.contains(word)) {
                found.push(format!("{}: {}", file.path, line.trim()));
            }
        }
    }
    found.retain(|line| !line.contains("plural == other.") && !line.contains("plural == own."));
    let new: Vec<_> = found.iter().filter(|line| !NAMED_KINDS.contains(&line.as_str())).cloned().collect();
    report("names a kind; make it a column of `apiserver/registry/src/strategy`", &new);
    let gone = NAMED_KINDS.iter().filter(|line| !found.iter().any(|known| known == *line));
    report("is gone: take it out of NAMED_KINDS", &gone.map(|line| (*line).to_owned()).collect::<Vec<_>>());
}
