//! The engine finds the nodes that kube-scheduler found, in recorded cases.
//!
//! `FREEHOLD_RECORD_SCHEDULER=1 cargo test -p freehold-scheduler --test recorded` records them anew, with kube-apiserver, etcd and
//! kube-scheduler in `.tools/bin`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod generate;
mod record;

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use freehold_scheduler::engine::{Pod, Snapshot, Verdict, Volumes, filter};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;

fn file() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/recorded/cases.jsonl.gz"))
}

fn list<'a>(world: &'a Value, name: &str) -> &'a [Value] {
    world[name].as_array().unwrap()
}

/// Runs a check of each case of the recording; gives how many there are, and what was wrong.
fn each(check: impl Fn(&Value, &Snapshot, &Verdict) -> Option<String>) -> (usize, Vec<String>) {
    let reader = BufReader::new(GzDecoder::new(std::fs::File::open(file()).unwrap()));
    let (mut count, mut wrong) = (0, Vec::new());
    for (nth, line) in reader.lines().enumerate() {
        let world: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let mut snapshot = Snapshot::new(list(&world, "nodes"), list(&world, "pods"))
            .with_namespaces(list(&world, "namespaces"));
        snapshot.volumes =
            Volumes::new(list(&world, "claims"), list(&world, "volumes"), list(&world, "classes"));
        for case in list(&world, "cases") {
            count += 1;
            let verdict = filter(&Pod::read(&case["pod"]), &snapshot);
            let name = case["pod"]["metadata"]["name"].as_str().unwrap_or_default();
            wrong.extend(check(case, &snapshot, &verdict).map(|what| format!("world {nth}, {name}: {what}")));
        }
    }
    (count, wrong)
}

#[test]
fn the_same_nodes_are_feasible_as_for_kube_scheduler() {
    if std::env::var_os("FREEHOLD_RECORD_SCHEDULER").is_some() {
        let out = std::fs::File::create(file()).unwrap();
        let mut out = GzEncoder::new(out, Compression::best());
        record::record(&mut out);
        out.finish().unwrap();
    }
    let (count, wrong) = each(|case, snapshot, verdict| {
        let found: Vec<&str> = verdict.feasible.iter().map(|place| &*snapshot.nodes[*place].name).collect();
        let recorded: Vec<&str> = list(case, "nodes").iter().filter_map(Value::as_str).collect();
        (found != recorded).then(|| {
            format!(
                "found {found:?}, kube-scheduler {recorded:?}; {} / {}",
                verdict.message(),
                case["message"]
            )
        })
    });
    assert!(count >= 1000, "only {count} cases are recorded");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_pod_that_fits_nowhere_is_told_what_kube_scheduler_tells_it() {
    let (_, wrong) = each(|case, _, verdict| {
        let recorded = case["message"].as_str()?;
        let own = verdict.message();
        (own != recorded.trim_end()).then(|| format!("\n  {own}\n  {recorded}"))
    });
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
