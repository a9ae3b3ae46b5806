//! A real Prometheus with the chart's rules.

use crate::infra::Process;
use freehold_tests_harness::{free_port, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// How long Prometheus may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often everything is scraped and evaluated.
const INTERVAL: &str = "500ms";

/// Values with which the chart has each of its components, and a rule for each.
pub const EVERYTHING: [&str; 2] = [
    "--set",
    "monitoring.enabled=true,backup.enabled=true,scheduler.enabled=true,provisioner.enabled=true,\
     provisioner.infraKubeconfigSecret=infra,subsystems.enabled={tenancy,workflow},syncer.enabled=true,\
     syncer.clusterIP=10.96.0.50,console.enabled=true,console.url=https://console.example,\
     console.tlsSecret=console-tls",
];

/// Path of a program of the Debian package, where `tools/get prometheus` has unpacked it.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = crate::top().join(".tools/bin").join(name);
    path.is_file().then_some(path)
}

/// The rules of the chart with further arguments of `helm template`: the spec of its PrometheusRule.
pub fn rules(args: &[&str]) -> Value {
    let objects = crate::render(crate::RELEASE, args);
    crate::find(&objects, "PrometheusRule", crate::RELEASE)["spec"].clone()
}

/// All rules of all groups.
pub fn each(rules: &Value) -> impl Iterator<Item = &Value> {
    let groups = rules["groups"].as_array().into_iter().flatten();
    groups.flat_map(|group| group["rules"].as_array().into_iter().flatten())
}

/// The rules with every minute of a range or of patience made a second.
pub fn hastened(rules: &Value) -> Value {
    let mut rules = rules.clone();
    let ranges = regex::Regex::new(r"\[(\d+)m\]").expect("an expression");
    let groups = rules["groups"].as_array_mut().into_iter().flatten();
    for rule in groups.flat_map(|group| group["rules"].as_array_mut().into_iter().flatten()) {
        let text = rule["expr"].as_str().unwrap_or_default();
        rule["expr"] = json!(ranges.replace_all(text, "[${1}s]"));
        if let Some(patience) = rule["for"].as_str() {
            rule["for"] = json!(patience.replace('m', "s"));
        }
    }
    rules
}

/// What a server answers to a GET without TLS.
///
/// # Errors
/// It can't be reached.
pub fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

/// A Prometheus that runs until this is dropped.
pub struct Prometheus {
    _process: Process,
    port: u16,
}

impl Prometheus {
    /// Starts it with hastened rules; a target is a component of the chart, and the address of its metrics.
    pub fn start(program: &Path, folder: &Path, rules: &Value, targets: &[(&str, String)]) -> Self {
        let write = |name: &str, content: Value| {
            let path = folder.join(name);
            std::fs::write(&path, content.to_string()).expect("the test's folder can be written");
            path
        };
        // JSON is YAML.
        let rules = write("rules.yaml", hastened(rules));
        let job = |(component, address): &(&str, String)| {
            let labels = json!({"namespace": crate::NAMESPACE, "pod": format!("{component}-0")});
            let target = json!({"targets": [address], "labels": labels});
            json!({"job_name": format!("{}-{component}", crate::RELEASE), "static_configs": [target]})
        };
        let config = json!({
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": [rules],
            "scrape_configs": targets.iter().map(job).collect::<Vec<_>>(),
        });
        let config = write("prometheus.yaml", config);
        let port = free_port();
        let mut command = Command::new(program);
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
        command.arg(format!("--web.listen-address=127.0.0.1:{port}"));
        let log = folder.join("prometheus.log");
        let prometheus = Self { _process: Process::start(&mut command, &log), port };
        until("Prometheus is ready", PATIENCE, || {
            get(port, "/-/ready").ok().filter(|answer| answer.contains("Ready")).map(drop)
        });
        prometheus
    }

    /// Names of the alerts that fire.
    pub fn firing(&self) -> BTreeSet<String> {
        let answer = get(self.port, "/api/v1/alerts").expect("Prometheus answers");
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
        let alerts = answer["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| crate::pods::text(&alert["labels"]["alertname"])).collect()
    }

    /// The number that a query gives; none where it gives no series.
    pub fn number(&self, query: &str) -> Option<f64> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = get(self.port, &format!("/api/v1/query?query={escaped}")).expect("Prometheus answers");
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|e| panic!("{e}: {answer}"));
        answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_become_seconds() {
        let rules =
            json!({"groups": [{"rules": [{"expr": "rate(a[10m]) > 5", "for": "15m"}, {"expr": "b"}]}]});
        let expected =
            json!({"groups": [{"rules": [{"expr": "rate(a[10s]) > 5", "for": "15s"}, {"expr": "b"}]}]});
        assert_eq!(hastened(&rules), expected);
    }
}
