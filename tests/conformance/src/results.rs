//! `results.json`: what passes, what fails and why.

use crate::suite::Suite;
use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The outcome of all suites.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// How many tests passed, a test counting once in each suite.
    pub(crate) passed: usize,
    /// How many failed.
    pub(crate) failed: usize,
    /// The tests, by suite and name.
    pub(crate) tests: Vec<Test>,
}

/// The outcome of one test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Test {
    /// Its full name.
    pub(crate) name: String,
    /// The suite that it ran in.
    pub(crate) suite: Suite,
    /// How it ended.
    pub(crate) result: Outcome,
    /// Why it failed; empty if it passed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) reason: String,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    /// Well.
    Passed,
    /// Not well, or it did not run.
    Failed,
}

impl Test {
    /// Whether it passed.
    pub(crate) fn passed(&self) -> bool {
        self.result == Outcome::Passed
    }
}

impl Results {
    /// Sorted and counted.
    pub(crate) fn new(mut tests: Vec<Test>) -> Self {
        tests.sort_by(|a, b| (a.suite, &a.name).cmp(&(b.suite, &b.name)));
        let passed = tests.iter().filter(|test| test.passed()).count();
        Self { passed, failed: tests.len() - passed, tests }
    }

    /// Results that were committed; none where there is no file yet.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                serde_json::from_str(&text).with_context(|| format!("{} is no result", path.display()))
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(e).with_context(|| path.display().to_string()),
        }
    }

    /// Writes them to be committed.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| path.display().to_string())
    }

    /// Takes the outcome of the tests that ran again.
    pub(crate) fn merge(&mut self, newer: Self) {
        let mut tests = std::mem::take(&mut self.tests);
        tests.retain(|old| !newer.tests.iter().any(|new| (new.suite, &new.name) == (old.suite, &old.name)));
        tests.extend(newer.tests);
        *self = Self::new(tests);
    }

    /// Whether a test passed.
    pub(crate) fn passed(&self, suite: Suite, name: &str) -> bool {
        self.tests.iter().any(|test| test.suite == suite && test.name == name && test.passed())
    }

    /// Tests that passed before and do not now.
    pub(crate) fn lost_since(&self, before: &Self) -> Vec<&Test> {
        self.tests.iter().filter(|test| !test.passed() && before.passed(test.suite, &test.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(name: &str, result: Outcome) -> Test {
        Test { name: name.into(), suite: Suite::Api, result, reason: String::new() }
    }

    #[test]
    fn a_test_that_fails_again_is_not_lost_and_one_that_passed_is() {
        let before = Results::new(vec![test("a", Outcome::Passed), test("b", Outcome::Failed)]);
        let mut after = before.clone();
        after.merge(Results::new(vec![test("a", Outcome::Failed), test("b", Outcome::Failed)]));
        let lost: Vec<_> = after.lost_since(&before).iter().map(|test| test.name.clone()).collect();
        assert_eq!(lost, ["a"]);
    }

    #[test]
    fn what_did_not_run_keeps_its_outcome() {
        let mut results = Results::new(vec![test("a", Outcome::Passed), test("b", Outcome::Failed)]);
        results.merge(Results::new(vec![test("b", Outcome::Passed)]));
        assert_eq!((results.passed, results.failed), (2, 0));
    }

    #[test]
    fn results_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        assert_eq!(Results::read(&path).unwrap(), Results::default());
        let results = Results::new(vec![test("a", Outcome::Failed)]);
        results.write(&path).unwrap();
        assert_eq!(Results::read(&path).unwrap(), results);
    }
}
