//! What a Job needs: whether it is over, and which pods are to come and go.

use super::facts::{Facts, JobsPod};
use super::pod::New;
use super::policy::{Backoff, restarts_exceed, success};
use freehold_controllers_context::object::{int, text};
use freehold_controllers_context::pods::worth;
use freehold_machinery::time;
use freehold_runtime::conditions;
use std::collections::HashSet;
use std::time::Duration;

/// Pods made or deleted by one reconcile.
pub(super) const BURST: usize = 500;
/// Changes of pods are looked at together.
pub(super) const BATCH: Duration = Duration::from_secs(1);

/// A condition to be: `SuccessCriteriaMet`, `FailureTarget` or, once that was told, `Failed`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) type_: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
}

impl Condition {
    fn failure(reason: &str, message: impl Into<String>) -> Self {
        Self { type_: "FailureTarget", reason: reason.into(), message: message.into() }
    }

    fn success(reason: &str, message: impl Into<String>) -> Self {
        Self { type_: "SuccessCriteriaMet", reason: reason.into(), message: message.into() }
    }
}

/// What is to be done with pods.
#[derive(Debug, PartialEq)]
pub(super) enum Manage {
    /// Nothing.
    Nothing,
    /// The Job is over: these are deleted, and counted later.
    End(Vec<Chosen>),
    /// These are too many: they are deleted and not counted.
    Remove(Vec<Chosen>),
    /// So many are missing: each with its index and the failures that it inherits.
    Create(Vec<New>),
}

/// A pod that was chosen to go.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) ready: bool,
    pub(super) tracked: bool,
}

impl Chosen {
    pub(super) fn of(pod: &JobsPod<'_>) -> Self {
        let (name, uid) = (pod.key.name.to_string(), pod.uid().to_owned());
        Self { name, uid, ready: pod.view.ready, tracked: pod.job.tracked }
    }
}

/// What was decided.
#[derive(Debug, PartialEq)]
pub(super) struct Decision {
    /// How the Job ends, if it does.
    pub(super) end: Option<Condition>,
    pub(super) manage: Manage,
    /// When to look again without a cause.
    pub(super) again: Option<Duration>,
}

pub(super) fn decide(facts: &Facts<'_>) -> Decision {
    let end = end(facts);
    let mut again = if end.is_none() { deadline(facts) } else { None };
    let manage = match &end {
        Some(_) => Manage::End(facts.active.iter().map(Chosen::of).collect()),
        None if facts.is_deleting() => Manage::Nothing,
        None => {
            let (manage, wait) = manage(facts);
            again = [again, wait].into_iter().flatten().min();
            manage
        }
    };
    Decision { end, manage, again }
}

/// How long the Job may still be active.
fn deadline(facts: &Facts<'_>) -> Option<Duration> {
    let seconds = int(facts.job, "/spec/activeDeadlineSeconds").and_then(|s| u64::try_from(s).ok())?;
    if facts.is_suspended() {
        return None;
    }
    let started = time::parse(text(facts.job, "/status/startTime")).unwrap_or(facts.now);
    let passed = Duration::try_from(facts.now.duration_since(started)).unwrap_or(Duration::ZERO);
    Some(Duration::from_secs(seconds).saturating_sub(passed))
}

/// Whether the Job is over before all its pods have succeeded. What was said once stays.
fn end(facts: &Facts<'_>) -> Option<Condition> {
    let told = |type_: &str| {
        let condition = conditions::find(&facts.job["status"]["conditions"], type_)?;
        let copy = |field: &str| text(condition, field).to_owned();
        (condition["status"] == "True").then(|| (copy("/reason"), copy("/message")))
    };
    if let Some((reason, message)) = told("SuccessCriteriaMet") {
        return Some(Condition { type_: "SuccessCriteriaMet", reason, message });
    }
    if let Some((reason, message)) = told("FailureTarget") {
        return Some(Condition { type_: "Failed", reason, message });
    }
    failure(facts).or_else(|| end_of_indexes(facts))
}

fn failure(facts: &Facts<'_>) -> Option<Condition> {
    let judged = facts.pods.iter().filter(|p| facts.has_failed(p)).find_map(|p| {
        match super::policy::judge(facts.job, p) {
            super::policy::Verdict::FailJob(why) => Some(why),
            _ => None,
        }
    });
    if let Some(why) = judged {
        return Some(Condition::failure("PodFailurePolicy", why));
    }
    let limit = facts.backoff_limit();
    if facts.failed > limit || restarts_exceed(facts.job, limit, &facts.pods) {
        let message = "Job has reached the specified backoff limit";
        return Some(Condition::failure("BackoffLimitExceeded", message));
    }
    let started = !text(facts.job, "/status/startTime").is_empty();
    (started && deadline(facts).is_some_and(|left| left.is_zero()))
        .then(|| Condition::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
}

fn end_of_indexes(facts: &Facts<'_>) -> Option<Condition> {
    let indexed = facts.indexed.as_ref()?;
    if let Some(failed) = indexed.failed.as_ref().map(super::indexes::Indexes::total) {
        if int(facts.job, "/spec/maxFailedIndexes").is_some_and(|limit| failed > limit) {
            let message = "Job has exceeded the specified maximal number of failed indexes";
            return Some(Condition::failure("MaxFailedIndexesExceeded", message));
        }
        if failed > 0 && failed + indexed.succeeded.total() >= indexed.completions {
            return Some(Condition::failure("FailedIndexes", "Job has failed indexes"));
        }
    }
    let message = success(facts.job, indexed.completions, &indexed.succeeded)?;
    Some(Condition::success("SuccessPolicy", message))
}

/// Whether all is done, with so many pods active.
pub(super) fn completed(facts: &Facts<'_>, active: i64) -> Option<Condition> {
    let enough = match int(facts.job, "/spec/completions") {
        // Without a number the first success says that the work is done, and the rest may end.
        None => facts.succeeded > 0,
        Some(completions) => facts.succeeded >= completions,
    };
    (enough && active == 0)
        .then(|| Condition::success("CompletionsReached", "Reached expected number of succeeded pods"))
}

fn manage(facts: &Facts<'_>) -> (Manage, Option<Duration>) {
    let active = facts.active.len();
    if facts.is_suspended() {
        return (remove(facts, active), None);
    }
    let have = i64::try_from(active).unwrap_or(i64::MAX);
    let wanted = match int(facts.job, "/spec/completions") {
        None if facts.succeeded > 0 => have,
        None => facts.parallelism(),
        Some(completions) => (completions - facts.succeeded).clamp(0, facts.parallelism()),
    };
    let surplus = remove(facts, usize::try_from(have - wanted).unwrap_or(0));
    if surplus != Manage::Nothing {
        return (surplus, None);
    }
    let waits_for = if facts.replaces_failed_alone() { facts.terminating } else { 0 };
    let missing = usize::try_from(wanted - waits_for - have).unwrap_or(0).min(BURST);
    if missing == 0 {
        return (Manage::Nothing, None);
    }
    match &facts.indexed {
        Some(indexed) if indexed.failed.is_some() => create_indexes(facts, missing),
        indexed => {
            let left = facts.backoff.left(facts.now);
            if !left.is_zero() {
                return (Manage::Nothing, Some(left.max(BATCH)));
            }
            let new = match indexed {
                None => vec![New::default(); missing],
                Some(_) => pending(facts, missing)
                    .into_iter()
                    .map(|index| New { index: Some(index), failures: None })
                    .collect(),
            };
            (if new.is_empty() { Manage::Nothing } else { Manage::Create(new) }, None)
        }
    }
}

/// Where each index has its own limit it has its own wait, and its pods inherit its failures.
fn create_indexes(facts: &Facts<'_>, missing: usize) -> (Manage, Option<Duration>) {
    let Some(indexed) = &facts.indexed else { return (Manage::Nothing, None) };
    let (mut new, mut wait) = (Vec::new(), None::<Duration>);
    for index in pending(facts, missing) {
        let last = indexed.waiting.get(&index);
        let left = Backoff::of_index(last).left(facts.now);
        if !left.is_zero() {
            wait = Some(wait.map_or(left, |w| w.min(left)));
            continue;
        }
        let failures = last.map_or((0, 0), |pod| {
            let (counted, ignored) = (pod.job.failures, pod.job.ignored);
            if super::policy::judge(facts.job, pod).counts() {
                (counted + 1, ignored)
            } else {
                (counted, ignored + 1)
            }
        });
        new.push(New { index: Some(index), failures: Some(failures) });
    }
    let wait = wait.map(|w| w.max(BATCH));
    if new.is_empty() { (Manage::Nothing, wait) } else { (Manage::Create(new), wait) }
}

/// The first indexes that have neither a pod nor an end.
fn pending(facts: &Facts<'_>, count: usize) -> Vec<i64> {
    let Some(indexed) = &facts.indexed else { return Vec::new() };
    let mut taken = indexed.succeeded.with(facts.active.iter().filter_map(|p| p.job.index));
    if facts.replaces_failed_alone() {
        taken = taken.with(facts.pods.iter().filter(|p| p.is_terminating()).filter_map(|p| p.job.index));
    }
    if let Some(failed) = &indexed.failed {
        taken = taken.union(failed);
    }
    taken.first_missing(count, indexed.completions)
}

/// At least `count` active pods go: of an Indexed Job all with a wrong index or one that is there twice, then those that
/// are missed least.
fn remove(facts: &Facts<'_>, count: usize) -> Manage {
    let mut ranked: Vec<&JobsPod<'_>> = facts.active.iter().collect();
    ranked.sort_by(|a, b| worth(a.view, b.view).then_with(|| a.key.cmp(b.key)));
    let mut gone: Vec<&JobsPod<'_>> = Vec::new();
    if let Some(indexed) = &facts.indexed {
        // The most worthy pod of each index stays.
        let mut seen = HashSet::new();
        let (mut left, mut wrong) = (Vec::new(), Vec::new());
        for pod in ranked.into_iter().rev() {
            let fits = pod.job.index.is_some_and(|index| index < indexed.completions && seen.insert(index));
            if fits { left.push(pod) } else { wrong.push(pod) }
        }
        left.reverse();
        wrong.reverse();
        (gone, ranked) = (wrong, left);
    }
    let more = count.saturating_sub(gone.len());
    gone.extend(ranked.into_iter().take(more));
    gone.truncate(if facts.is_suspended() { usize::MAX } else { BURST });
    if gone.is_empty() { Manage::Nothing } else { Manage::Remove(gone.into_iter().map(Chosen::of).collect()) }
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::{Made, made};
    use super::super::facts::{Observed, Pod};
    use super::super::pod::pod;
    use super::super::policy::Backoff;
    use super::super::track::{Done, Tracking, track};
    use super::*;
    use freehold_controllers_context::object::items;
    use freehold_controllers_context::pods::Phase;
    use freehold_machinery::Value;
    use jiff::Timestamp;
    use serde_json::json;

    fn job(spec: Value) -> Value {
        json!({"metadata": {"name": "j", "namespace": "n", "uid": "u"}, "spec": spec, "status": {"startTime": "1970-01-01T00:01:00Z"}})
    }

    /// What is decided 100 seconds after the beginning of time, and what follows when all of it is done.
    fn decided(job: &Value, pods: &[Pod], backoff: Backoff) -> (Decision, Tracking) {
        let now = Timestamp::from_second(100).unwrap();
        let facts = Facts::of(&Observed { job, pods, backoff, now }).unwrap();
        let decision = decide(&facts);
        let done = match &decision.manage {
            Manage::Nothing => Done::default(),
            Manage::Create(new) => Done { created: new.len() as i64, ..Done::default() },
            Manage::End(gone) | Manage::Remove(gone) => {
                Done { removed: gone.len() as i64, ..Done::default() }
            }
        };
        let tracking = track(&facts, decision.end.clone(), &decision.manage, done);
        (decision, tracking)
    }

    fn plain(job: &Value, pods: &[Made]) -> (Decision, Tracking) {
        decided(job, &made(pods), Backoff::default())
    }

    fn created(decision: &Decision) -> Vec<Option<i64>> {
        match &decision.manage {
            Manage::Create(new) => new.iter().map(|n| n.index).collect(),
            _ => Vec::new(),
        }
    }

    fn names(pods: &[Chosen]) -> Vec<&str> {
        pods.iter().map(|p| p.name.as_str()).collect()
    }

    /// The conditions of a status, `Type:Reason`.
    fn told(status: &Value) -> Vec<String> {
        items(status, "/conditions")
            .iter()
            .map(|c| format!("{}:{}", text(c, "/type"), text(c, "/reason")))
            .collect()
    }

    use Phase::{Failed, Running, Succeeded};

    #[test]
    fn as_many_pods_run_as_are_wanted_and_still_to_do() {
        let rows: [(Value, &[Phase], usize, usize); 8] = [
            // spec, pods, created, removed
            (json!({"parallelism": 2, "completions": 5}), &[], 2, 0),
            (json!({"parallelism": 3, "completions": 5}), &[Running, Succeeded, Succeeded, Succeeded], 1, 0),
            (json!({"parallelism": 3}), &[Running], 2, 0),
            (json!({"parallelism": 3}), &[Running, Succeeded], 0, 0),
            (json!({"parallelism": 1, "completions": 5}), &[Running, Running], 0, 1),
            (json!({"parallelism": 0, "completions": 5}), &[Running], 0, 1),
            (json!({"suspend": true, "completions": 5}), &[Running, Running], 0, 2),
            (json!({}), &[], 1, 0),
        ];
        for (spec, phases, made, removed) in rows {
            let pods: Vec<Made> = phases.iter().map(|p| Made::phase(*p)).collect();
            let (decision, _) = plain(&job(spec.clone()), &pods);
            let gone = if let Manage::Remove(gone) = &decision.manage { gone.len() } else { 0 };
            assert_eq!((created(&decision).len(), gone), (made, removed), "{spec} {phases:?}");
        }
    }

    #[test]
    fn a_pod_counts_once_its_finalizer_is_gone_and_not_before() {
        let job = job(json!({"completions": 2, "parallelism": 2, "backoffLimit": 3}));
        let (_, tracking) = plain(&job, &[Made::phase(Succeeded), Made::phase(Failed), Made::phase(Running)]);
        assert_eq!(
            tracking.before["uncountedTerminatedPods"],
            json!({"succeeded": ["u0"], "failed": ["u1"]})
        );
        assert!(tracking.before["succeeded"].is_null());
        assert_eq!(names(&tracking.release), ["p0", "p1"]);
        assert_eq!((&tracking.after["succeeded"], &tracking.after["failed"]), (&json!(1), &json!(1)));
        assert_eq!(tracking.after["uncountedTerminatedPods"], json!({}));

        // It stopped in between: one finalizer is gone, the other is not.
        let mut again = job.clone();
        again["status"] = tracking.before;
        let pods =
            [Made { counted: true, ..Made::phase(Succeeded) }, Made::phase(Failed), Made::phase(Running)];
        let (_, tracking) = plain(&again, &pods);
        assert_eq!(tracking.before["uncountedTerminatedPods"], json!({"failed": ["u1"]}));
        assert_eq!((&tracking.after["succeeded"], &tracking.after["failed"]), (&json!(1), &json!(1)));
    }

    #[test]
    fn a_job_is_over_in_two_steps() {
        let job = job(json!({"completions": 1}));
        let (decision, tracking) = plain(&job, &[Made::phase(Succeeded)]);
        assert_eq!(decision.manage, Manage::Nothing);
        assert_eq!(told(&tracking.before), ["SuccessCriteriaMet:CompletionsReached"]);
        assert_eq!(
            told(&tracking.after),
            ["SuccessCriteriaMet:CompletionsReached", "Complete:CompletionsReached"]
        );
        assert_eq!(tracking.after["completionTime"], "1970-01-01T00:01:40Z");
        assert_eq!(tracking.events[1][0].1, "Completed");
        // Its pods have to be gone.
        let (decision, tracking) =
            plain(&job, &[Made::phase(Succeeded), Made { deleting: true, ..Made::phase(Running) }]);
        assert_eq!(decision.end, None);
        assert_eq!(told(&tracking.after), ["SuccessCriteriaMet:CompletionsReached"]);
        assert_eq!((&tracking.after["terminating"], &tracking.after["failed"]), (&json!(1), &json!(1)));
    }

    #[test]
    fn failures_end_a_job() {
        let failed = |codes: &[i64]| Made {
            exits: codes.iter().map(|c| ("c".into(), *c)).collect(),
            ..Made::default()
        };
        let policy = json!({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
            {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}]});
        let rows: [(Value, Vec<Made>, &str); 7] = [
            (json!({"backoffLimit": 1}), vec![failed(&[1]), failed(&[1])], "BackoffLimitExceeded"),
            (json!({"backoffLimit": 1}), vec![failed(&[1])], ""),
            (json!({"backoffLimit": 1, "podFailurePolicy": policy}), vec![failed(&[7]), failed(&[7])], ""),
            (json!({"backoffLimit": 9, "podFailurePolicy": policy}), vec![failed(&[42])], "PodFailurePolicy"),
            (json!({"activeDeadlineSeconds": 40}), vec![Made::phase(Running)], "DeadlineExceeded"),
            (json!({"activeDeadlineSeconds": 40, "suspend": true}), vec![], ""),
            (
                json!({"backoffLimit": 2, "template": {"spec": {"restartPolicy": "OnFailure"}}}),
                vec![Made { restarts: 2, ..Made::phase(Running) }],
                "BackoffLimitExceeded",
            ),
        ];
        for (spec, pods, reason) in rows {
            let (decision, tracking) = plain(&job(spec.clone()), &pods);
            assert_eq!(decision.end.as_ref().map_or("", |end| end.reason.as_str()), reason, "{spec}");
            if !reason.is_empty() {
                assert_eq!(told(&tracking.before), [format!("FailureTarget:{reason}")]);
                let running = pods.iter().any(|p| p.phase == Running);
                // Pods that run still have to end.
                let expected = if running { vec![] } else { vec![format!("Failed:{reason}")] };
                assert_eq!(told(&tracking.after)[1..], expected);
            }
        }
        let (decision, _) = plain(&job(json!({"activeDeadlineSeconds": 60})), &[Made::phase(Running)]);
        assert_eq!(decision.again, Some(Duration::from_secs(20)));
    }

    #[test]
    fn indexes_are_worked_through_in_order_and_each_once() {
        let spec = json!({"completionMode": "Indexed", "completions": 6, "parallelism": 3});
        let mut job = job(spec);
        job["status"]["completedIndexes"] = "0,2".into();
        job["status"]["succeeded"] = 2.into();
        let pods =
            [Made::at(Running, 1), Made::at(Succeeded, 3), Made::at(Succeeded, 2), Made::at(Succeeded, 9)];
        let (decision, tracking) = plain(&job, &pods);
        assert_eq!(created(&decision), [Some(4), Some(5)]);
        assert_eq!(
            (&tracking.after["completedIndexes"], &tracking.after["succeeded"]),
            (&json!("0,2,3"), &json!(3))
        );
        // What is there twice, or has no place, goes.
        let twice = [
            Made::at(Running, 1),
            Made { ready: true, ..Made::at(Running, 1) },
            Made::at(Running, 7),
            Made::phase(Running),
        ];
        let (decision, _) = plain(&job, &twice);
        let Manage::Remove(gone) = &decision.manage else { panic!("{decision:?}") };
        let mut gone = names(gone);
        gone.sort_unstable();
        assert_eq!(gone, ["p0", "p2", "p3"]);
    }

    #[test]
    fn each_index_has_its_own_limit_and_its_own_wait() {
        let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": 1});
        let pods = [
            Made { failures: 1, ..Made::at(Failed, 0) },
            Made { finished: 50, ..Made::at(Failed, 1) },
            Made { finished: 95, ..Made::at(Failed, 2) },
            Made::at(Succeeded, 3),
        ];
        let (decision, tracking) = plain(&job(spec.clone()), &pods);
        // 0 failed for good, 1 has waited for long enough, 2 has not.
        assert_eq!(decision.manage, Manage::Create(vec![New { index: Some(1), failures: Some((1, 0)) }]));
        assert_eq!(decision.again, Some(Duration::from_secs(5)));
        assert_eq!(tracking.after["failedIndexes"], "0");
        assert_eq!(
            names(&tracking.release),
            ["p0", "p3"],
            "the others carry their failures until they are replaced"
        );

        let last = [Made { failures: 1, ..Made::at(Failed, 0) }, Made::at(Succeeded, 1)];
        let mut two = job(spec);
        two["spec"]["completions"] = 2.into();
        assert_eq!(plain(&two, &last).0.end.unwrap().reason, "FailedIndexes");
        two["spec"]["completions"] = 4.into();
        two["spec"]["maxFailedIndexes"] = 0.into();
        assert_eq!(plain(&two, &last).0.end.unwrap().reason, "MaxFailedIndexesExceeded");
    }

    #[test]
    fn a_success_policy_ends_an_indexed_job_and_its_other_pods_do_not_fail() {
        let job = job(json!({
            "completionMode": "Indexed", "completions": 3, "parallelism": 3,
            "successPolicy": {"rules": [{"succeededIndexes": "1"}]},
        }));
        let (decision, tracking) = plain(&job, &[Made::at(Running, 0), Made::at(Succeeded, 1)]);
        let Manage::End(gone) = &decision.manage else { panic!("{decision:?}") };
        assert_eq!(names(gone), ["p0"]);
        assert_eq!(told(&tracking.before), ["SuccessCriteriaMet:SuccessPolicy"]);
        assert!(tracking.after["failed"].is_null());
    }

    #[test]
    fn failed_pods_are_waited_for_before_others_are_made() {
        let job = job(json!({"completions": 3, "parallelism": 3}));
        let failed = [Made { finished: 95, ..Made::default() }];
        let (decision, _) = plain(&job, &failed);
        assert_eq!((&decision.manage, decision.again), (&Manage::Nothing, Some(Duration::from_secs(5))));
        let (decision, _) = decided(&job, &made(&failed), Backoff { failures: 1, last: None });
        assert_eq!(decision.again, Some(Duration::from_secs(15)));
    }

    #[test]
    fn pods_that_are_still_ending_are_replaced_as_the_policy_says() {
        let ending = [Made { deleting: true, ..Made::phase(Running) }];
        let spec = |policy: &str| json!({"completions": 2, "parallelism": 2, "podReplacementPolicy": policy});
        let (decision, tracking) = plain(&job(spec("TerminatingOrFailed")), &ending);
        assert_eq!(decision.again, None, "it ended long ago");
        assert_eq!((created(&decision).len(), &tracking.after["failed"]), (2, &json!(1)));
        let (decision, tracking) = plain(&job(spec("Failed")), &ending);
        assert_eq!((created(&decision).len(), &tracking.after["failed"]), (1, &Value::Null));
        assert_eq!(tracking.after["terminating"], 1);
    }

    #[test]
    fn a_suspended_job_says_so_and_its_time_begins_anew() {
        let mut job = job(json!({"suspend": true}));
        let (_, tracking) = plain(&job, &[Made::phase(Running)]);
        assert_eq!(told(&tracking.before), ["Suspended:JobSuspended"]);
        assert!(tracking.before["startTime"].is_null() && tracking.before["active"].is_null());
        assert_eq!(tracking.events[0][0].1, "Suspended");
        job["status"] = tracking.after;
        job["status"]["terminating"] = 0.into();
        assert_eq!(plain(&job, &[]).1.before, job["status"]);
        job["spec"]["suspend"] = false.into();
        let (_, tracking) = plain(&job, &[]);
        assert_eq!(told(&tracking.before), ["Suspended:JobResumed"]);
        assert_eq!(tracking.before["startTime"], "1970-01-01T00:01:40Z");
    }

    #[test]
    fn a_job_that_makes_no_sense_is_told_of() {
        for spec in [json!({"completionMode": "Strange"}), json!({"completionMode": "Indexed"})] {
            let (job, now) = (job(spec), Timestamp::UNIX_EPOCH);
            assert!(Facts::of(&Observed { job: &job, pods: &[], backoff: Backoff::default(), now }).is_err());
        }
        let broken = json!({"metadata": {}, "spec": 3, "status": "x"});
        let (decision, tracking) = plain(&broken, &[]);
        assert_eq!(created(&decision).len(), 1);
        assert_eq!(tracking.before["active"], 1);
    }

    #[test]
    fn an_indexed_pod_knows_its_index() {
        let made = pod(
            &json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x".repeat(70), "namespace": "n", "uid": "u"},
                "spec": {"template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}},
            }),
            New { index: Some(12), failures: Some((2, 1)) },
        );
        assert_eq!(made["metadata"]["finalizers"], json!(["batch.kubernetes.io/job-tracking"]));
        assert_eq!(made["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"], "12");
        assert_eq!(made["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"], "2");
        assert_eq!(made["metadata"]["generateName"].as_str().unwrap().len(), 58);
        assert_eq!(made["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
    }
}
