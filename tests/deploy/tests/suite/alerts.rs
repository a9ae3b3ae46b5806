//! Each alert fires on the fault that it names, and none on a healthy installation: by promtool.

use freehold_tests_deploy::{NAMESPACE, RELEASE, chart, run, top};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// An alert, the series of its fault (name, component, further labels, values for each minute), and the minute at which it
/// fires.
type Fault = (&'static str, &'static [(&'static str, &'static str, &'static str, &'static str)], u32);

/// What each alert names.
const FAULTS: [Fault; 14] = [
    ("FreeholdDown", &[("up", "apiserver", "pod=\"a\"", "0x20")], 5),
    (
        "FreeholdServerDown",
        &[("up", "apiserver", "pod=\"a\"", "0x20"), ("up", "apiserver", "pod=\"b\"", "1x20")],
        15,
    ),
    (
        "FreeholdErrors",
        &[
            ("apiserver_request_total", "apiserver", "code=\"503\"", "0+60x30"),
            ("apiserver_request_total", "apiserver", "code=\"200\"", "0+600x30"),
        ],
        25,
    ),
    (
        "FreeholdSlow",
        &[
            ("apiserver_request_sli_duration_seconds_bucket", "apiserver", "verb=\"GET\",le=\"1\"", "0+1x30"),
            (
                "apiserver_request_sli_duration_seconds_bucket",
                "apiserver",
                "verb=\"GET\",le=\"5\"",
                "0+100x30",
            ),
            (
                "apiserver_request_sli_duration_seconds_bucket",
                "apiserver",
                "verb=\"GET\",le=\"+Inf\"",
                "0+100x30",
            ),
        ],
        25,
    ),
    (
        "FreeholdRequestsRejected",
        &[(
            "apiserver_flowcontrol_rejected_requests_total",
            "apiserver",
            "priority_level=\"p\",reason=\"queue-full\"",
            "0+300x30",
        )],
        25,
    ),
    (
        "FreeholdCacheTooSmall",
        &[
            ("freehold_cache_evictions_total", "apiserver", "pod=\"a\"", "0+300x60"),
            ("freehold_cache_bytes", "apiserver", "pod=\"a\"", "99x60"),
            ("freehold_cache_budget_bytes", "apiserver", "pod=\"a\"", "100x60"),
        ],
        50,
    ),
    (
        "FreeholdStoreSlow",
        &[
            (
                "etcd_request_duration_seconds_bucket",
                "apiserver",
                "operation=\"create\",le=\"0.5\"",
                "0+1x30",
            ),
            (
                "etcd_request_duration_seconds_bucket",
                "apiserver",
                "operation=\"create\",le=\"2\"",
                "0+100x30",
            ),
            (
                "etcd_request_duration_seconds_bucket",
                "apiserver",
                "operation=\"create\",le=\"+Inf\"",
                "0+100x30",
            ),
        ],
        25,
    ),
    ("FreeholdNoLeader", &[("leader_election_master_status", "controller-manager", "pod=\"a\"", "0x20")], 10),
    (
        "FreeholdSubsystemsNoLeader",
        &[("leader_election_master_status", "subsystems", "pod=\"a\",name=\"freehold-run-tenancy\"", "0x20")],
        10,
    ),
    (
        "FreeholdReconcileErrors",
        &[(
            "freehold_controller_reconcile_errors_total",
            "controller-manager",
            "controller=\"c\"",
            "0+300x60",
        )],
        45,
    ),
    (
        "FreeholdReconcilePanics",
        &[(
            "freehold_controller_reconcile_panics_total",
            "controller-manager",
            "controller=\"c\"",
            "0 0 1 1 1 1",
        )],
        4,
    ),
    (
        "FreeholdQueueGrows",
        &[("freehold_controller_queue_depth", "controller-manager", "controller=\"c\"", "5000x30")],
        20,
    ),
    ("FreeholdEtcdNoLeader", &[("etcd_server_has_leader", "etcd", "pod=\"a\"", "0x10")], 5),
    (
        "FreeholdEtcdNearlyFull",
        &[
            ("etcd_mvcc_db_total_size_in_bytes", "etcd", "pod=\"a\"", "90x30"),
            ("etcd_server_quota_backend_bytes", "etcd", "pod=\"a\"", "100x30"),
        ],
        20,
    ),
];

/// An installation in which all is well, for an hour.
const HEALTHY: [(&str, &str, &str, &str); 9] = [
    ("up", "apiserver", "pod=\"a\"", "1x60"),
    ("apiserver_request_total", "apiserver", "code=\"200\"", "0+600x60"),
    ("apiserver_request_total", "apiserver", "code=\"503\"", "0+1x60"),
    ("leader_election_master_status", "controller-manager", "pod=\"a\"", "1x60"),
    ("freehold_controller_reconcile_errors_total", "controller-manager", "controller=\"c\"", "0+10x60"),
    ("freehold_controller_queue_depth", "controller-manager", "controller=\"c\"", "10x60"),
    ("etcd_server_has_leader", "etcd", "pod=\"a\"", "1x60"),
    ("etcd_mvcc_db_total_size_in_bytes", "etcd", "pod=\"a\"", "10x60"),
    ("etcd_server_quota_backend_bytes", "etcd", "pod=\"a\"", "100x60"),
];

fn promtool() -> PathBuf {
    top().join(".tools/node/usr/bin/promtool")
}

/// One test of promtool: series, and how many of some alerts fire at a minute.
fn case(series: &[(&str, &str, &str, &str)], minute: u32, alerts: &str, fire: Option<u32>) -> String {
    let mut text = "  - interval: 1m\n    input_series:\n".to_owned();
    for (name, component, labels, values) in series {
        let own = format!("namespace=\"{NAMESPACE}\",job=\"{RELEASE}-{component}\",{labels}");
        // Writing to a String can't fail.
        let _ = writeln!(text, "      - series: '{name}{{{own}}}'\n        values: '{values}'");
    }
    let expected = fire.map(|count| format!("[{{labels: '{{}}', value: {count}}}]"));
    let _ = writeln!(
        text,
        "    promql_expr_test:\n      - expr: count(ALERTS{{{alerts}alertstate=\"firing\"}})\n        \
         eval_time: {minute}m\n        exp_samples: {}",
        expected.unwrap_or_else(|| "[]".to_owned())
    );
    text
}

#[test]
fn each_alert_fires_on_its_fault_and_none_on_a_healthy_installation() {
    if !promtool().is_file() {
        eprintln!("left out: there is no promtool; `tools/get containerd` unpacks it");
        return;
    }
    let rules = std::fs::read_to_string(chart().join("alerts.yaml")).expect("alerts.yaml is there");
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    assert_eq!(
        names.collect::<BTreeSet<_>>(),
        FAULTS.iter().map(|(name, ..)| *name).collect::<BTreeSet<_>>(),
        "each alert has its fault here"
    );
    let folder = tempfile::tempdir().expect("a temporary directory");
    let rules = rules.replace("NAMESPACE", NAMESPACE).replace("RELEASE", RELEASE);
    std::fs::write(folder.path().join("alerts.yaml"), rules).expect("the test's folder can be written");
    let mut tests = "rule_files: [alerts.yaml]\nevaluation_interval: 1m\ntests:\n".to_owned();
    for (alert, series, minute) in FAULTS {
        tests += &case(series, minute, &format!("alertname=\"{alert}\","), Some(1));
    }
    tests += &case(&HEALTHY, 55, "", None);
    let path = folder.path().join("tests.yaml");
    std::fs::write(&path, &tests).expect("the test's folder can be written");
    let (passed, printed) = run(Command::new(promtool()).args(["test", "rules"]).arg(&path));
    assert!(passed, "{printed}\n{tests}");
}
