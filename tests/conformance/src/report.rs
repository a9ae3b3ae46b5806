//! Ginkgo's JSON report, as far as it says which tests passed and why others did not.

use crate::results::{Outcome, Results, Test};
use crate::suite::Suite;
use anyhow::{Context as _, Result};
use serde::Deserialize;

/// How much of a failure's message is kept, in characters.
const REASON: usize = 400;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Report {
    #[serde(default)]
    spec_reports: Option<Vec<Spec>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    state: String,
    #[serde(default)]
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
    #[serde(default)]
    location: Location,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct Location {
    file_name: String,
    line_number: u64,
}

impl Spec {
    fn name(&self) -> String {
        let texts = self.container_hierarchy_texts.iter().flatten().chain([&self.leaf_node_text]);
        texts.filter(|text| !text.is_empty()).cloned().collect::<Vec<_>>().join(" ")
    }

    fn reason(&self) -> String {
        let Some(failure) = &self.failure else { return self.state.clone() };
        let message = failure.message.split_whitespace().collect::<Vec<_>>().join(" ");
        let file = failure.location.file_name.rsplit("kubernetes@").next().unwrap_or_default();
        let file = file.split_once('/').map_or(file, |(_, path)| path);
        let message: String = message.chars().take(REASON).collect();
        format!("{message} ({file}:{})", failure.location.line_number)
    }
}

/// The outcome of each of the tests that were to run; one that the report doesn't have did not run.
pub(crate) fn results(report: &str, suite: Suite, names: &[&str]) -> Result<Results> {
    let reports: Vec<Report> = serde_json::from_str(report).context("ginkgo's report")?;
    let specs: Vec<Spec> =
        reports.into_iter().flat_map(|report| report.spec_reports.unwrap_or_default()).collect();
    let tests = names.iter().map(|name| {
        let ran = specs.iter().find(|spec| spec.name() == *name);
        let passed = ran.is_some_and(|spec| spec.state == "passed");
        Test {
            name: (*name).to_owned(),
            suite,
            result: if passed { Outcome::Passed } else { Outcome::Failed },
            reason: match ran {
                _ if passed => String::new(),
                Some(spec) => spec.reason(),
                None => "did not run".to_owned(),
            },
        }
    });
    Ok(Results::new(tests.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"[{"SpecReports": [
        {"ContainerHierarchyTexts": ["[sig-a] A", ""], "LeafNodeText": "works", "State": "passed"},
        {"ContainerHierarchyTexts": ["[sig-a] A"], "LeafNodeText": "breaks", "State": "failed", "Failure":
            {"Message": "no\n  such", "Location": {"FileName": "/m/k8s.io/kubernetes@v1.0.0/test/a.go", "LineNumber": 7}}}
    ]}]"#;

    #[test]
    fn a_report_gives_outcomes_and_reasons() {
        let names = ["[sig-a] A works", "[sig-a] A breaks", "[sig-a] A hides"];
        let results = results(REPORT, Suite::Api, &names).unwrap();
        assert_eq!((results.passed, results.failed), (1, 2));
        let reasons: Vec<_> = results.tests.iter().map(|test| test.reason.as_str()).collect();
        assert_eq!(reasons, ["no such (test/a.go:7)", "did not run", ""]);
    }
}
