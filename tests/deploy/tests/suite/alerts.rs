//! Each alert fires on the fault that it names, and stays silent on what is nearly one: by promtool.

use freehold_tests_deploy::prometheus::{EVERYTHING, each, program, rules};
use freehold_tests_deploy::{NAMESPACE, RELEASE, parse, pods::text, run, top};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;

/// Faults, what is nearly one, and a healthy installation.
const CASES: &str = include_str!("alerts.yaml");

/// The series of a case in promtool's words: its own, and healthy ones of other metrics.
fn series(own: &Value, healthy: &Value) -> Value {
    let rows = |of: &Value| of.as_array().cloned().unwrap_or_default();
    let metric = |row: &Value| (row[0].clone(), row[1].clone());
    let replaced: Vec<_> = rows(own).iter().map(metric).collect();
    let kept = rows(healthy).into_iter().filter(|row| !replaced.contains(&metric(row)));
    let written = rows(own).into_iter().chain(kept).map(|row| {
        let [component, name, labels, values] = [0, 1, 2, 3].map(|place| text(&row[place]));
        let job =
            if component.is_empty() { String::new() } else { format!("job=\"{RELEASE}-{component}\",") };
        json!({"series": format!("{name}{{namespace=\"{NAMESPACE}\",{job}{labels}}}"), "values": values})
    });
    written.collect()
}

/// One test of promtool: which alerts fire at a minute.
fn case(name: &str, series: &Value, minute: u64, alerts: &[&str]) -> Value {
    let samples =
        alerts.iter().map(|alert| json!({"labels": format!("{{alertname=\"{alert}\"}}"), "value": 1}));
    json!({
        "name": name,
        "interval": "1m",
        "input_series": series,
        "promql_expr_test": [{
            "expr": "count by (alertname) (ALERTS{alertstate=\"firing\"}) > bool 0",
            "eval_time": format!("{minute}m"),
            "exp_samples": samples.collect::<Vec<_>>(),
        }],
    })
}

/// The tests of one alert: its fault, the moment before it is a fault for long enough, and what is nearly one.
fn cases(alert: &str, about: &Value, healthy: &Value) -> [Value; 2] {
    let minute = about["minute"].as_u64().unwrap_or_else(|| panic!("{alert} has no minute"));
    [
        case(&format!("{alert} on its fault"), &series(&about["fault"], healthy), minute, &[alert]),
        case(&format!("{alert} nearly"), &series(&about["near"], healthy), minute, &[]),
    ]
}

#[test]
fn each_alert_fires_on_its_fault_alone() {
    let Some(promtool) = program("promtool") else {
        eprintln!("left out: there is no promtool; `tools/get prometheus` unpacks it");
        return;
    };
    let (rules, known) = (rules(&EVERYTHING), parse(CASES).remove(0));
    let names = each(&rules).map(|rule| text(&rule["alert"]));
    let faults = known["faults"].as_object().expect("faults");
    assert_eq!(names.collect::<BTreeSet<_>>(), faults.keys().cloned().collect(), "each alert has its fault");
    let healthy = &known["healthy"];
    let mut tests: Vec<Value> =
        faults.iter().flat_map(|(alert, about)| cases(alert, about, healthy)).collect();
    for minute in [1, 20, 60, 115] {
        tests.push(case("a healthy installation", &series(&json!([]), healthy), minute, &[]));
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let write = |name: &str, content: &Value| {
        std::fs::write(folder.path().join(name), content.to_string())
            .expect("the test's folder can be written");
    };
    write("rules.yaml", &rules);
    write("tests.yaml", &json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}));
    let path = folder.path().join("tests.yaml");
    let (passed, printed) = run(Command::new(promtool).args(["test", "rules"]).arg(path));
    assert!(passed, "{printed}");
}

#[test]
fn each_alert_has_a_section_in_the_runbook_and_leads_there() {
    let page = std::fs::read_to_string(top().join("docs/alerts.md")).expect("docs/alerts.md is there");
    let sections: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .filter(|name| name.starts_with("Freehold"))
        .collect();
    let rules = rules(&EVERYTHING);
    let alerts: BTreeSet<String> = each(&rules).map(|rule| text(&rule["alert"])).collect();
    assert_eq!(sections, alerts.iter().map(String::as_str).collect());
    for rule in each(&rules) {
        let expected = format!("docs/alerts.md#{}", text(&rule["alert"]).to_lowercase());
        assert_eq!(rule["annotations"]["runbook_url"], expected.as_str());
    }
}
