//! Kubernetes' own conformance tests, run against a project plane of the real `freehold up`.
//!
//! `make conformance` builds Kubernetes' test binary (its version is in `go.mod`) and its controller manager, runs the
//! tests named in `suites/`, and writes `results.json`. A run fails if a test fails that passed in the committed
//! results: the list of what fails only shrinks. `make conformance ARGS="--only ResourceQuota"` runs some and writes
//! nothing. After the suites kube-controller-manager works for a while in a plane, once with JSON and once with protobuf;
//! `make conformance ARGS="--controllers 600"` does that alone, for ten minutes each.
//!
//! Must not know anything of Freehold beyond its program and its API.

mod controllers;
mod names;
mod plane;
mod report;
mod results;
mod suite;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use freehold_tests_harness::{Options as ServerOptions, Server};
use plane::Plane;
use results::Results;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use suite::Suite;

/// How long kube-controller-manager works after the suites, with each content type.
const CONTROLLERS: Duration = Duration::from_secs(60);

/// Runs Kubernetes' conformance tests.
#[derive(Parser)]
#[command(name = "freehold-conformance")]
struct Options {
    /// Runs these suites alone.
    #[arg(long, value_delimiter = ',')]
    suite: Vec<Suite>,
    /// Runs the tests whose names contain this, and writes nothing.
    #[arg(long)]
    only: Vec<String>,
    /// Runs the tests that fail in the committed results, and writes nothing.
    #[arg(long)]
    failing: bool,
    /// Lets kube-controller-manager work for so many seconds with each content type, and runs no suite.
    #[arg(long)]
    controllers: Option<u64>,
    /// How many tests run at once.
    #[arg(long, default_value_t = 4)]
    procs: usize,
    /// What the server logs.
    #[arg(long, default_value = "info")]
    log: String,
    /// Where logs and reports are kept.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/conformance"))]
    output: PathBuf,
    /// The committed results.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/results.json"))]
    results: PathBuf,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(seconds) = options.controllers {
        return work(&options, Duration::from_secs(seconds));
    }
    let before = Results::read(&options.results)?;
    let mut after = before.clone();
    let wanted = if options.suite.is_empty() { Suite::ALL.to_vec() } else { options.suite.clone() };
    for suite in wanted {
        let names: Vec<&str> =
            suite.names().filter(|name| selected(&options, &before, suite, name)).collect();
        if names.is_empty() {
            continue;
        }
        let (results, took) = run(&options, suite, &names).with_context(|| format!("suite {suite}"))?;
        summarize(suite, &results, took);
        after.merge(results);
    }
    let lost = after.lost_since(&before);
    if lost.is_empty() && options.only.is_empty() && !options.failing {
        after.write(&options.results)?;
    }
    for test in &lost {
        println!("passed before, and fails now: {} ({}): {}", test.name, test.suite, test.reason);
    }
    if !lost.is_empty() {
        bail!("{} tests that passed before fail", lost.len());
    }
    let all = options.suite.is_empty() && options.only.is_empty() && !options.failing;
    if all { work(&options, CONTROLLERS) } else { Ok(()) }
}

/// Lets kube-controller-manager work with each content type.
fn work(options: &Options, time: Duration) -> Result<()> {
    for (name, content_type) in controllers::CONTENT_TYPES {
        let folder = options.output.join(format!("controllers-{name}"));
        std::fs::create_dir_all(&folder)?;
        let server = Server::start(ServerOptions { log: options.log.clone(), ..ServerOptions::default() });
        let flag = format!("--kube-api-content-type={content_type}");
        let mut plane = Plane::with_controllers(&server, &folder, &[&flag])?;
        let done = controllers::work(&mut plane, time).with_context(|| format!("controllers with {name}"))?;
        println!("controllers with {name}: {done}, logs in {}", folder.display());
    }
    Ok(())
}

fn selected(options: &Options, before: &Results, suite: Suite, name: &str) -> bool {
    let named = options.only.is_empty() || options.only.iter().any(|part| name.contains(part.as_str()));
    named && (!options.failing || !before.passed(suite, name))
}

/// Runs tests against a new project of a new server.
fn run(options: &Options, suite: Suite, names: &[&str]) -> Result<(Results, Duration)> {
    let folder = options.output.join(suite.to_string());
    std::fs::create_dir_all(&folder)?;
    // Where Pods of a node on this machine are, and where projects have hosts.
    let args =
        ["--outbound-networks=public,127.64.0.0/10", "--domain", plane::DOMAIN].map(str::to_owned).to_vec();
    let server = Server::start(ServerOptions { args, log: options.log.clone(), ..ServerOptions::default() });
    let plane = Plane::new(&server, suite, &folder)?;
    println!("{suite}: {} tests, logs in {}", names.len(), folder.display());
    let begun = Instant::now();
    let report = plane.test(names, suite.procs(options.procs))?;
    let took = begun.elapsed();
    std::fs::write(folder.join("server.log"), server.log())?;
    Ok((report::results(&report, suite, names)?, took))
}

fn summarize(suite: Suite, results: &Results, took: Duration) {
    for test in results.tests.iter().filter(|test| !test.passed()) {
        println!("failed: {}\n    {}", test.name, test.reason);
    }
    let (passed, failed) = (results.passed, results.failed);
    println!("{suite}: {passed} passed, {failed} failed, in {:.0} s", took.as_secs_f64());
}
