//! What is kept of a Job's pod beside what is kept of every pod.

use crate::object::{int, items, text};
use freehold_machinery::{Value, meta, time};
use jiff::{SignedDuration, Timestamp};

/// The finalizer that keeps a pod until its Job has counted it.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";
/// The annotation and label of an Indexed Job's pod.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// The annotation that carries how often the pods of an index failed before.
pub const FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// The annotation that carries how many of those failures the pod failure policy ignored.
pub const IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// What a Job reads of its pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobPod {
    /// Whether it carries [`TRACKING`]: it has not been counted yet.
    pub tracked: bool,
    /// Its completion index, for pods of Indexed Jobs.
    pub index: Option<i64>,
    /// How often pods of its index failed before.
    pub failures: i64,
    /// How many of those failures the pod failure policy ignores.
    pub ignored: i64,
    /// When it ended, as well as that can be told.
    pub finished: Timestamp,
    /// Containers that ended with a code other than 0, ordinary ones before initializing ones.
    pub exits: Vec<(String, i64)>,
    /// Types and states of its conditions.
    pub conditions: Vec<(String, String)>,
    /// Restarts of all its containers.
    pub restarts: i64,
}

impl JobPod {
    /// Returns what Jobs read of a pod.
    pub fn of(pod: &Value) -> Self {
        let count = |name: &str| {
            let text = meta::annotation(pod, name)?;
            text.parse::<i32>().ok().filter(|n| *n >= 0).map(i64::from)
        };
        let statuses = || {
            items(pod, "/status/containerStatuses").iter().chain(items(pod, "/status/initContainerStatuses"))
        };
        let exit = |status: &Value| {
            let code = int(status, "/state/terminated/exitCode").filter(|code| *code != 0)?;
            Some((text(status, "/name").to_owned(), code))
        };
        let condition = |c: &Value| (text(c, "/type").to_owned(), text(c, "/status").to_owned());
        Self {
            tracked: is_tracked(pod),
            index: count(INDEX),
            failures: count(FAILURES).unwrap_or(0),
            ignored: count(IGNORED).unwrap_or(0),
            finished: finished(pod),
            exits: statuses().filter_map(exit).collect(),
            conditions: items(pod, "/status/conditions").iter().map(condition).collect(),
            restarts: statuses().filter_map(|s| int(s, "/restartCount")).sum(),
        }
    }
}

/// Whether a pod waits to be counted by a Job.
pub fn is_tracked(pod: &Value) -> bool {
    meta::finalizers(pod).contains(&TRACKING)
}

/// The end of its last container, else of its readiness, else of its time to end, else its beginning.
fn finished(pod: &Value) -> Timestamp {
    let ready = || {
        let ready = items(pod, "/status/conditions").iter().find(|c| c["type"] == "Ready")?;
        time::parse(text(ready, "/lastTransitionTime")).filter(|_| ready["status"] == "False")
    };
    let told = || {
        let at = time::parse(meta::text(pod, "deletionTimestamp"))?;
        let grace = int(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0);
        at.checked_sub(SignedDuration::from_secs(grace)).ok()
    };
    let created = || time::parse(meta::text(pod, "creationTimestamp"));
    last_container(pod).or_else(ready).or_else(told).or_else(created).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// When the last of its containers ended, sidecars among them; `None` while one has not.
fn last_container(pod: &Value) -> Option<Timestamp> {
    let sidecars: Vec<&str> = items(pod, "/spec/initContainers")
        .iter()
        .filter(|c| c["restartPolicy"] == "Always")
        .map(|c| text(c, "/name"))
        .collect();
    let initial = items(pod, "/status/initContainerStatuses").iter();
    let statuses = items(pod, "/status/containerStatuses")
        .iter()
        .chain(initial.filter(|s| sidecars.contains(&text(s, "/name"))));
    let mut last = None;
    for status in statuses {
        last = last.max(Some(time::parse(text(status, "/state/terminated/finishedAt"))?));
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_ended_with_its_last_container_or_what_comes_nearest() {
        let at = |second: i64| time::format_seconds(Timestamp::from_second(second).unwrap());
        let ended = |name: &str, second| json!({"name": name, "state": {"terminated": {"finishedAt": at(second), "exitCode": 3}}});
        let mut pod = json!({"metadata": {"creationTimestamp": at(1)}, "status": {}});
        let mut seen = vec![JobPod::of(&pod).finished];
        pod["metadata"]["deletionTimestamp"] = at(40).into();
        pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
        seen.push(JobPod::of(&pod).finished);
        pod["status"]["conditions"] =
            json!([{"type": "Ready", "status": "False", "lastTransitionTime": at(20)}]);
        seen.push(JobPod::of(&pod).finished);
        pod["status"]["containerStatuses"] = json!([ended("a", 30), ended("b", 29)]);
        seen.push(JobPod::of(&pod).finished);
        assert_eq!(seen.iter().map(|t| t.as_second()).collect::<Vec<_>>(), [1, 10, 20, 30]);
        assert_eq!(JobPod::of(&pod).exits, [("a".to_owned(), 3), ("b".to_owned(), 3)]);
    }

    #[test]
    fn numbers_in_annotations_that_make_no_sense_count_as_absent() {
        let pod = |index: &str| json!({"metadata": {"annotations": {INDEX: index, FAILURES: "2"}, "finalizers": [TRACKING]}});
        for (index, expected) in [("3", Some(3)), ("-1", None), ("x", None), ("99999999999", None)] {
            assert_eq!(JobPod::of(&pod(index)).index, expected, "{index}");
        }
        let seen = JobPod::of(&pod("0"));
        assert!(seen.tracked);
        assert_eq!((seen.failures, seen.ignored), (2, 0));
    }
}
