//! Doc comments stand alone: shown for one item, without its neighbours, each makes sense.

use freehold_tests_tidy::{
    docs::{Doc, docs},
    workspace::{SourceFile, files},
};

/// How a comment that leans on its neighbour begins.
const LEANING: &[&str] = &["The same", "That of", "Those of", "Of", "And", "Likewise", "As above"];

/// The least words of a public function's comment.
const LEAST_WORDS: usize = 4;

/// What is wrong with a comment, if anything.
fn fault(doc: &Doc, is_test: bool) -> Option<&'static str> {
    let first = doc.text.first().map_or("", String::as_str);
    let leans = |start: &&str| {
        first.strip_prefix(start).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    };
    if LEANING.iter().any(leans) {
        return Some("leans on its neighbour: begin with the noun or verb of the item itself");
    }
    if is_test || !doc.is_public_function() {
        return None;
    }
    if doc.words() < LEAST_WORDS {
        return Some("is too short: say what the function returns or does, with units and limits");
    }
    let is_silent = doc.returns_result() && !doc.tells_errors();
    is_silent.then_some("has no `# Errors`: say which errors the function returns, and when")
}

fn faults(file: &SourceFile) -> Vec<String> {
    let is_test = file.is_test() || !file.path.contains("/src/");
    let wrong = docs(&file.text).into_iter().filter_map(|doc| {
        let why = fault(&doc, is_test)?;
        Some(format!("{}:{} {:?} {why}", file.path, doc.line, doc.text.first().map_or("", String::as_str)))
    });
    wrong.collect()
}

#[test]
fn doc_comments_stand_alone_and_public_functions_tell_their_errors() {
    let wrong: Vec<String> = files(&[".rs"]).into_iter().flat_map(|file| faults(&file)).collect();
    assert!(wrong.is_empty(), "{} doc comments:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_fault_is_found_in_what_leans_is_short_or_hides_errors() {
    let rows = [
        ("/// Of a plane.\nname: String,\n", true),
        ("/// Office hours.\nname: String,\n", false),
        ("/// Its name.\npub fn name() -> u8 {\n", true),
        ("/// The name of the plane.\npub fn name() -> u8 {\n", false),
        ("/// Reads the plane's name.\npub fn name() -> Result<u8> {\n", true),
        ("/// Reads the plane's name.\n///\n/// # Errors\n/// None.\npub fn name() -> Result<u8> {\n", false),
    ];
    for (source, expected) in rows {
        let found = docs(source);
        assert_eq!(fault(&found[0], false).is_some(), expected, "{source}");
    }
}
