//! The console in Chromium beside planes by the thousand: how soon its pages are there, how soon an event is on screen, and
//! what viewers cost the server.
//!
//! `console/tests/figures.js` starts the server and the browser and measures; this part reads its figures. It needs
//! Node.js, Chromium (`tools/get node chromium`) and the console's packages (`make console`).

use crate::goals;
use crate::options::Options;
use crate::report::{Report, Value};
use crate::subject::Kind;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The table of the figures.
const TITLE: &str = "The console in Chromium";
/// How figures of switches to pages begin.
const SWITCH: &str = "switch to ";
/// Viewers of one project.
const VIEWERS: usize = 100;

/// A figure, as the script prints it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Figure {
    /// Milliseconds.
    Times { name: String, p50: f64, p99: f64 },
    /// Bytes of memory.
    Memory { name: String, bytes: i64 },
    /// Hundredths of a processor.
    Processor { name: String, percent: f64 },
}

impl Figure {
    fn value(&self) -> (&str, Value) {
        let time = |milliseconds: f64| Duration::from_secs_f64(milliseconds.max(0.0) / 1e3);
        match self {
            Self::Times { name, p50, p99 } => (name, Value::Spread(time(*p50), time(*p99))),
            Self::Memory { name, bytes } => (name, Value::Bytes(*bytes)),
            Self::Processor { name, percent } => (name, Value::Percent(*percent)),
        }
    }
}

/// Measures the console with so many projects as `--planes` says.
pub(crate) async fn measure(kind: Kind, options: &Options, report: &mut Report) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console");
    ensure!(folder.join("node_modules").exists(), "the console's packages are missing: make console");
    let output = Command::new("node")
        .args(["tests/figures.js", "--json"])
        .current_dir(&folder)
        .env("FREEHOLD_BIN", freehold_tests_harness::freehold_binary())
        .env("FREEHOLD_CONSOLE_PROJECTS", options.planes.to_string())
        .env("FREEHOLD_CONSOLE_VIEWERS", VIEWERS.to_string())
        .stderr(Stdio::inherit())
        .output()
        .context("node can't be run: tools/get node chromium")?;
    ensure!(output.status.success(), "tests/figures.js failed");
    let text = String::from_utf8(output.stdout).context("figures are no text")?;
    let mut slowest_switch = None;
    for line in text.lines() {
        let figure: Figure = serde_json::from_str(line).with_context(|| format!("no figure: {line}"))?;
        let (name, value) = figure.value();
        report.add(TITLE, name, kind, value);
        if let Some(goal) = goal(name, options.planes) {
            report.reach(goal, kind, reached(value));
        }
        if let (true, Value::Time(p99)) = (name.starts_with(SWITCH), reached(value)) {
            slowest_switch = slowest_switch.max(Some(p99));
        }
    }
    if options.planes >= goals::size::PLANES {
        report.reach(&goals::SWITCH, kind, slowest_switch.map(Value::Time));
    }
    Ok(())
}

/// The goal that a figure is about; those of times are for very many planes.
fn goal(name: &str, planes: usize) -> Option<&'static goals::Goal> {
    let many = planes >= goals::size::PLANES;
    match name {
        "first view" => many.then_some(&goals::FIRST_VIEW),
        "event on screen, from its request" => many.then_some(&goals::ON_SCREEN),
        "memory of viewers" => Some(&goals::VIEWERS_MEMORY),
        "processor of viewers" => Some(&goals::VIEWERS_PROCESSOR),
        _ => None,
    }
}

/// What is held against a goal: of times the 99th percentile.
fn reached(value: Value) -> Value {
    match value {
        Value::Spread(_, p99) => Value::Time(p99),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_as_the_script_prints_them() {
        let read = |text: &str| {
            let figure: Figure = serde_json::from_str(text).unwrap();
            let (name, value) = figure.value();
            format!("{name}: {value}")
        };
        assert_eq!(read(r#"{"name":"first view","p50":264,"p99":378.5}"#), "first view: 264 ms / 378 ms");
        assert_eq!(read(r#"{"name":"memory of viewers","bytes":9500000}"#), "memory of viewers: 9.5 MB");
        assert_eq!(read(r#"{"name":"processor of viewers","percent":3.2}"#), "processor of viewers: 3 %");
    }
}
