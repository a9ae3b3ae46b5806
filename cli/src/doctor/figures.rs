//! What a server's metrics say of its store and of webhooks.

use super::finding::{Finding, finding};
use std::collections::BTreeMap;

/// Seconds that 99 of 100 writes to the store should not exceed.
const SLOW_STORE: f64 = 0.6;
/// Seconds that 99 of 100 calls of a webhook should not exceed.
const SLOW_WEBHOOK: f64 = 2.5;
/// Fewer calls or writes than this say nothing.
const FEW: f64 = 20.0;
/// Webhooks that are named.
const MOST_NAMED: usize = 10;

/// Counts below each bound of a histogram, in seconds.
type Buckets = Vec<(f64, f64)>;

/// The labels of a sample, and its value.
fn sample(line: &str) -> Option<(BTreeMap<&str, &str>, f64)> {
    let (labels, value) = line.split_once('{')?.1.rsplit_once("} ")?;
    let pairs = labels.split("\",").filter_map(|pair| pair.trim_end_matches('"').split_once("=\""));
    Some((pairs.collect(), value.split(' ').next()?.parse().ok()?))
}

/// Histograms of a metric, added up by what `key` makes of their labels; those without a key are left out.
fn histograms(
    text: &str,
    metric: &str,
    key: impl Fn(&BTreeMap<&str, &str>) -> Option<String>,
) -> BTreeMap<String, Buckets> {
    let mut found: BTreeMap<String, Buckets> = BTreeMap::new();
    let prefix = format!("{metric}_bucket{{");
    for (labels, count) in text.lines().filter(|line| line.starts_with(&prefix)).filter_map(sample) {
        let bound = labels.get("le").and_then(|bound| match *bound {
            "+Inf" => Some(f64::INFINITY),
            bound => bound.parse().ok(),
        });
        let (Some(bound), Some(key)) = (bound, key(&labels)) else { continue };
        let buckets = found.entry(key).or_default();
        match buckets.iter_mut().find(|(own, _)| *own == bound) {
            Some((_, own)) => *own += count,
            None => buckets.push((bound, count)),
        }
    }
    found.values_mut().for_each(|buckets| buckets.sort_by(|a, b| a.0.total_cmp(&b.0)));
    found
}

/// The bound that 99 of 100 do not exceed; none where there are too few.
fn bound(buckets: &Buckets) -> Option<f64> {
    let all = buckets.last().map(|(_, count)| *count).filter(|all| *all >= FEW)?;
    buckets.iter().find(|(_, count)| *count >= all * 0.99).map(|(bound, _)| *bound)
}

/// A bound as people say it.
fn told(bound: f64) -> String {
    if bound.is_finite() {
        format!("up to {bound} s")
    } else {
        "more than all bounds that are counted".to_owned()
    }
}

/// How long writes to the store take, since the server began.
pub(super) fn store(text: &str) -> Finding {
    let writes = |labels: &BTreeMap<&str, &str>| {
        let operation = labels.get("operation")?;
        ["create", "update", "delete"].contains(operation).then(String::new)
    };
    let found = histograms(text, "etcd_request_duration_seconds", writes);
    let outcome = match found.get("").and_then(bound) {
        None => Ok("too few writes to tell".to_owned()),
        Some(bound) if bound > SLOW_STORE => Err(format!(
            "1 in 100 writes takes {}: look at the disks of the store (etcd_disk_wal_fsync_duration_seconds) and at who else uses them",
            told(bound)
        )),
        Some(bound) => Ok(format!("99 of 100 writes take {}", told(bound))),
    };
    finding("store", outcome)
}

/// Webhooks that keep their writers waiting, since the server began.
pub(super) fn webhooks(text: &str) -> Finding {
    let name = |labels: &BTreeMap<&str, &str>| labels.get("name").map(|name| (*name).to_owned());
    let found = histograms(text, "apiserver_admission_webhook_admission_duration_seconds", name);
    let slow = found.iter().filter_map(|(name, buckets)| Some((name, bound(buckets)?)));
    let slow: Vec<String> = slow
        .filter(|(_, bound)| *bound > SLOW_WEBHOOK)
        .map(|(name, bound)| format!("{name} takes {}", told(bound)))
        .collect();
    let outcome = match slow.len() {
        0 => Ok(format!("none of {} is slow", found.len())),
        count => Err(format!(
            "of 100 calls 1 of {}{}: its project should look at it, or give it a timeoutSeconds",
            slow[..count.min(MOST_NAMED)].join(", "),
            if count > MOST_NAMED { format!(" and {} more", count - MOST_NAMED) } else { String::new() }
        )),
    };
    finding("webhooks", outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A histogram's lines: how many calls took at most a tenth of a second, and how many up to 10 s.
    fn lines(metric: &str, labels: &str, fast: u32, all: u32) -> String {
        format!(
            "{metric}_bucket{{{labels},le=\"0.1\"}} {fast}\n{metric}_bucket{{{labels},le=\"10.0\"}} {all}\n\
             {metric}_bucket{{{labels},le=\"+Inf\"}} {all}\n"
        )
    }

    #[test]
    fn a_store_is_judged_by_its_writes() {
        let metric = "etcd_request_duration_seconds";
        let reads = lines(metric, "operation=\"get\",group=\"\"", 0, 900);
        let quick = lines(metric, "operation=\"create\",group=\"a,b\"", 100, 100);
        assert_eq!(store(&reads).outcome, Ok("too few writes to tell".to_owned()));
        assert_eq!(
            store(&(reads.clone() + &quick)).outcome,
            Ok("99 of 100 writes take up to 0.1 s".to_owned())
        );
        let slow = quick + &lines(metric, "operation=\"update\",group=\"\"", 0, 5);
        assert!(store(&slow).outcome.unwrap_err().contains("up to 10 s"));
    }

    #[test]
    fn webhooks_that_hang_are_named() {
        let metric = "apiserver_admission_webhook_admission_duration_seconds";
        let text = lines(metric, "name=\"quick.example\",type=\"admit\"", 100, 100)
            + &lines(metric, "name=\"hangs.example\",type=\"validating\"", 50, 100)
            + &lines(metric, "name=\"rare.example\",type=\"validating\"", 0, 3);
        let told = webhooks(&text).outcome.unwrap_err();
        assert!(told.contains("hangs.example takes up to 10 s") && !told.contains("quick"), "{told}");
        assert!(!told.contains("rare"), "{told}");
        assert_eq!(webhooks("").outcome, Ok("none of 0 is slow".to_owned()));
    }
}
