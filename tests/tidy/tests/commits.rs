//! Subjects of commits: `area: imperative ...`, short enough for one line of a log.
//!
//! `FREEHOLD_COMMITS` names the range that is held (`main..HEAD`, or what was pushed); without it the last commits are.

use freehold_tests_tidy::workspace::top;
use std::process::Command;

/// How many commits are held where no range is given.
const LAST: &str = "-50";
/// Characters of a subject.
const MAX_SUBJECT: usize = 72;
/// Verbs that end as others do in the past or in progress.
const VERBS: &[&str] = &[
    "bring", "embed", "exceed", "feed", "need", "ping", "proceed", "seed", "shed", "speed", "spring",
    "succeed",
];
/// First words that tell of a change instead of asking for it.
const TELLING: &[&str] = &[
    "adds", "allows", "changes", "fixes", "it", "makes", "moves", "only", "removes", "the", "this",
    "updates", "uses", "what", "who", "wip",
];

/// Why a subject is refused.
fn fault(subject: &str) -> Option<&'static str> {
    let Some((area, rest)) = subject.split_once(": ") else { return Some("has no `area: `") };
    let is_area = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "/-_., ".contains(c);
    if area.is_empty() || !area.chars().all(is_area) {
        return Some("has an area that is not lower case");
    }
    let first = rest.split([' ', ',']).next().unwrap_or_default();
    let is_tense = (first.ends_with("ed") || first.ends_with("ing")) && !VERBS.contains(&first);
    if first.is_empty() || first.starts_with(char::is_uppercase) || is_tense || TELLING.contains(&first) {
        return Some("does not go on with an imperative: `area: add the thing`");
    }
    if rest.ends_with('.') {
        return Some("ends in a full stop");
    }
    (subject.chars().count() > MAX_SUBJECT).then_some("has more than 72 characters")
}

#[test]
fn subjects_of_commits_name_an_area_and_an_imperative() {
    let range = std::env::var("FREEHOLD_COMMITS").ok().filter(|range| !range.is_empty());
    let range = range.as_deref().unwrap_or(LAST);
    let mut git = Command::new("git");
    let output = git.args(["log", "--no-merges", "--format=%h %s", range]).current_dir(top()).output();
    // A source archive has no history.
    let Some(output) = output.ok().filter(|_| top().join(".git").exists()) else { return };
    assert!(output.status.success(), "git log {range}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let subjects = text.lines().filter_map(|line| line.split_once(' '));
    let wrong: Vec<String> = subjects
        .filter_map(|(hash, subject)| Some(format!("{hash} {subject:?} {}", fault(subject)?)))
        .collect();
    assert!(wrong.is_empty(), "subjects of commits, in {range}:\n{}", wrong.join("\n"));
}

#[test]
fn a_subject_is_an_area_an_imperative_and_at_most_72_characters() {
    let long = format!("cache: skip {}", "x".repeat(MAX_SUBJECT));
    let rows = [
        ("cache: skip the change lookup for empty collections", true),
        ("apiserver/server, cache: embed the version", true),
        ("tools/profile: take 300 projects from YAML", true),
        ("Cache: skip it", false),
        ("cache: Skip it", false),
        ("cache: skipped it", false),
        ("cache: adds a lookup", false),
        ("cache: skip it.", false),
        ("skip it", false),
        ("wip", false),
        (long.as_str(), false),
    ];
    for (subject, expected) in rows {
        assert_eq!(fault(subject).is_none(), expected, "{subject}");
    }
}
