//! A Job and its pods, counted.

use super::indexes::Indexes;
use super::policy::{Backoff, Verdict, judge};
use freehold_controllers_context::job_pod::JobPod;
use freehold_controllers_context::object::{int, items, text};
use freehold_controllers_context::pods::{Phase, PodView};
use freehold_machinery::{Value, meta};
use freehold_runtime::Key;
use jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

pub(super) type Pod = (Key, Arc<PodView>);

/// A pod that the Job controls.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobsPod<'a> {
    pub(super) key: &'a Key,
    pub(super) view: &'a PodView,
    pub(super) job: &'a JobPod,
}

impl<'a> JobsPod<'a> {
    pub(super) fn of((key, view): &'a Pod) -> Option<Self> {
        Some(Self { key, view, job: view.job.as_deref()? })
    }

    pub(super) fn uid(&self) -> &'a str {
        &self.view.uid
    }

    /// Whether it was told to end and has not.
    pub(super) fn is_terminating(&self) -> bool {
        self.view.deleting && !matches!(self.view.phase, Phase::Succeeded | Phase::Failed)
    }
}

/// What is known of a Job.
pub(super) struct Observed<'a> {
    pub(super) job: &'a Value,
    /// The pods that it controls.
    pub(super) pods: &'a [Pod],
    /// Failures in a row, up to the last reconcile.
    pub(super) backoff: Backoff,
    pub(super) now: Timestamp,
}

/// What decisions about a Job are made from.
pub(super) struct Facts<'a> {
    pub(super) job: &'a Value,
    pub(super) now: Timestamp,
    /// Its pods; by their index, where they have one.
    pub(super) pods: Vec<JobsPod<'a>>,
    pub(super) active: Vec<JobsPod<'a>>,
    pub(super) ready: i64,
    pub(super) terminating: i64,
    /// Ended pods, those that are not counted in the status yet among them.
    pub(super) succeeded: i64,
    pub(super) failed: i64,
    pub(super) backoff: Backoff,
    /// The indexes of an Indexed Job.
    pub(super) indexed: Option<Indexed<'a>>,
}

/// The indexes of an Indexed Job.
pub(super) struct Indexed<'a> {
    pub(super) completions: i64,
    /// Those that the status names.
    pub(super) before: Indexes,
    pub(super) succeeded: Indexes,
    /// With a backoff limit for each index: those that failed for good.
    pub(super) failed: Option<Indexes>,
    /// The last failed pod of indexes that wait for another one: it carries their count of failures.
    pub(super) waiting: HashMap<i64, JobsPod<'a>>,
}

impl<'a> Facts<'a> {
    /// Counts. Fails, with a message, for a Job that makes no sense.
    pub(super) fn of(observed: &Observed<'a>) -> Result<Self, String> {
        let job = observed.job;
        let mode = text(job, "/spec/completionMode");
        if !matches!(mode, "" | "NonIndexed" | "Indexed") {
            return Err("Skipped Job sync because completion mode is unknown".to_owned());
        }
        let completions = int(job, "/spec/completions");
        if mode == "Indexed" && completions.is_none() {
            return Err("Skipped Job sync because an Indexed Job needs completions".to_owned());
        }
        let completions = completions.filter(|_| mode == "Indexed");
        let mut pods: Vec<JobsPod<'a>> = observed.pods.iter().filter_map(JobsPod::of).collect();
        if completions.is_some() {
            pods.sort_by_key(|p| p.job.index.unwrap_or(-1));
        }
        let active: Vec<JobsPod<'a>> = pods.iter().copied().filter(|p| p.view.is_active()).collect();
        let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        let mut facts = Self {
            job,
            now: observed.now,
            ready: count(active.iter().filter(|p| p.view.ready).count()),
            terminating: count(pods.iter().filter(|p| p.is_terminating()).count()),
            pods,
            active,
            succeeded: 0,
            failed: 0,
            backoff: observed.backoff,
            indexed: None,
        };
        facts.count(completions);
        if let Some(completions) = completions {
            facts.count_indexes(completions);
        }
        Ok(facts)
    }

    /// Adds up what the status has, what it is about to have, and what ended since.
    fn count(&mut self, completions: Option<i64>) {
        let (succeeded, failed) = (self.uncounted("succeeded"), self.uncounted("failed"));
        let valid = |p: &&JobsPod<'_>| {
            p.job.tracked && completions.is_none_or(|n| p.job.index.is_some_and(|index| index < n))
        };
        let new = |counted: &HashSet<&str>, ended: &dyn Fn(&JobsPod<'_>) -> bool| {
            let new = self.pods.iter().filter(valid).filter(|p| !counted.contains(p.uid()) && ended(p));
            new.copied().collect::<Vec<_>>()
        };
        let new_succeeded = new(&succeeded, &|p| p.view.phase == Phase::Succeeded);
        let new_failed = new(&failed, &|p| self.has_failed(p));
        let counts = new_failed.iter().filter(|p| judge(self.job, p).counts()).count();
        let total = |field: &str, new: usize, uncounted: usize| {
            int(self.job, field).unwrap_or(0) + i64::try_from(new + uncounted).unwrap_or(i64::MAX)
        };
        let ends = |pods: &[JobsPod<'_>]| pods.iter().map(|p| p.job.finished).collect::<Vec<_>>();
        let backoff = self.backoff.after(&ends(&new_succeeded), &ends(&new_failed));
        let (new_succeeded, counted) = (new_succeeded.len(), (succeeded.len(), failed.len()));
        self.succeeded = total("/status/succeeded", new_succeeded, counted.0);
        self.failed = total("/status/failed", counts, counted.1);
        self.backoff = backoff;
    }

    fn count_indexes(&mut self, completions: i64) {
        let uncounted = |p: &&JobsPod<'a>| p.job.tracked && p.job.index.is_some_and(|i| i < completions);
        let before = Indexes::parse(text(self.job, "/status/completedIndexes"), completions);
        let tracked = || self.pods.iter().filter(uncounted);
        let new = tracked().filter(|p| p.view.phase == Phase::Succeeded).filter_map(|p| p.job.index);
        let succeeded = before.with(new);
        let failed = int(self.job, "/spec/backoffLimitPerIndex").map(|limit| {
            let before = Indexes::parse(text(self.job, "/status/failedIndexes"), completions);
            before.with(tracked().filter(|p| self.index_failed(p, limit)).filter_map(|p| p.job.index))
        });
        let waiting = match &failed {
            Some(failed) => self.waiting(tracked(), |index| succeeded.has(index) || failed.has(index)),
            None => HashMap::new(),
        };
        self.succeeded = succeeded.total();
        self.indexed = Some(Indexed { completions, before, succeeded, failed, waiting });
    }

    fn index_failed(&self, pod: &JobsPod<'_>, limit: i64) -> bool {
        self.has_failed(pod)
            && match judge(self.job, pod) {
                Verdict::FailIndex => true,
                verdict => verdict.counts() && pod.job.failures >= limit,
            }
    }

    /// The latest failed pod of each index that has no active one and is not through.
    fn waiting<'p>(
        &self,
        tracked: impl Iterator<Item = &'p JobsPod<'a>>,
        through: impl Fn(i64) -> bool,
    ) -> HashMap<i64, JobsPod<'a>>
    where
        'a: 'p,
    {
        let active: HashSet<i64> = self.active.iter().filter_map(|p| p.job.index).collect();
        let mut last: HashMap<i64, JobsPod<'a>> = HashMap::new();
        for pod in tracked.filter(|p| self.has_failed(p)) {
            let Some(index) = pod.job.index.filter(|i| !active.contains(i) && !through(*i)) else { continue };
            let age = |p: &JobsPod<'_>| (p.job.failures + p.job.ignored, p.job.finished);
            let known = last.entry(index).or_insert(*pod);
            if age(known) <= age(pod) {
                *known = *pod;
            }
        }
        last
    }

    /// Uids in `status.uncountedTerminatedPods`.
    pub(super) fn uncounted(&self, which: &str) -> HashSet<&'a str> {
        let list = items(self.job, &format!("/status/uncountedTerminatedPods/{which}"));
        list.iter().filter_map(Value::as_str).collect()
    }

    /// Whether a pod failed, or was told to end where that counts as failing.
    pub(super) fn has_failed(&self, pod: &JobsPod<'_>) -> bool {
        pod.view.phase == Phase::Failed
            || (!self.replaces_failed_alone() && pod.view.deleting && pod.view.phase != Phase::Succeeded)
    }

    /// Whether pods are replaced only when they have ended.
    pub(super) fn replaces_failed_alone(&self) -> bool {
        text(self.job, "/spec/podReplacementPolicy") == "Failed"
            || self.job["spec"]["podFailurePolicy"].is_object()
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.job["spec"]["suspend"] == true
    }

    pub(super) fn is_deleting(&self) -> bool {
        meta::is_deleting(self.job)
    }

    pub(super) fn parallelism(&self) -> i64 {
        int(self.job, "/spec/parallelism").unwrap_or(1).max(0)
    }

    /// Failures that the Job may have. Where each index has a limit there is none for all, unless it says so.
    pub(super) fn backoff_limit(&self) -> i64 {
        let default = if self.job["spec"]["backoffLimitPerIndex"].is_i64() { i64::from(i32::MAX) } else { 6 };
        int(self.job, "/spec/backoffLimit").unwrap_or(default)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use freehold_machinery::PlaneId;

    /// A pod in words.
    #[derive(Clone, Debug)]
    pub(in super::super) struct Made {
        pub(in super::super) phase: Phase,
        pub(in super::super) index: Option<i64>,
        pub(in super::super) failures: i64,
        pub(in super::super) finished: i64,
        pub(in super::super) exits: Vec<(String, i64)>,
        pub(in super::super) disrupted: bool,
        pub(in super::super) deleting: bool,
        pub(in super::super) counted: bool,
        pub(in super::super) ready: bool,
        pub(in super::super) restarts: i64,
    }

    impl Default for Made {
        fn default() -> Self {
            Self {
                phase: Phase::Failed,
                index: None,
                failures: 0,
                finished: 0,
                exits: Vec::new(),
                disrupted: false,
                deleting: false,
                counted: false,
                ready: false,
                restarts: 0,
            }
        }
    }

    impl Made {
        pub(in super::super) fn phase(phase: Phase) -> Self {
            Self { phase, ..Self::default() }
        }

        pub(in super::super) fn at(phase: Phase, index: i64) -> Self {
            Self { phase, index: Some(index), ..Self::default() }
        }
    }

    /// Pods `p0`, `p1`, ... with uids `u0`, `u1`, ...
    pub(in super::super) fn made(pods: &[Made]) -> Vec<Pod> {
        let one = |(at, made): (usize, &Made)| {
            let conditions =
                if made.disrupted { vec![("DisruptionTarget".into(), "True".into())] } else { vec![] };
            let job = JobPod {
                tracked: !made.counted,
                index: made.index,
                failures: made.failures,
                finished: Timestamp::from_second(made.finished).unwrap(),
                exits: made.exits.clone(),
                conditions,
                restarts: made.restarts,
                ..JobPod::default()
            };
            let view = PodView {
                uid: format!("u{at}"),
                owner: "u".into(),
                phase: made.phase,
                deleting: made.deleting,
                ready: made.ready,
                job: Some(Box::new(job)),
                ..PodView::default()
            };
            (Key::new(PlaneId::core(), "n", &format!("p{at}")), Arc::new(view))
        };
        pods.iter().enumerate().map(one).collect()
    }
}
