//! What a Job's status says, in two steps: ended pods are noted as not counted yet, then their finalizers go, then they
//! count. Whatever stops in between, each pod counts once.

use super::decide::{Chosen, Condition, Manage, completed};
use super::facts::{Facts, JobsPod};
use freehold_controllers_context::pods::Phase;
use freehold_machinery::{Map, Value, time};
use freehold_runtime::EventType;
use freehold_runtime::conditions::find;
use jiff::Timestamp;
use serde_json::json;
use std::collections::HashSet;

/// Pods that the status names as not counted yet, at most.
const MAX_UNCOUNTED: usize = 500;

/// What became of [`Manage`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Done {
    pub(super) created: i64,
    pub(super) removed: i64,
    pub(super) removed_ready: i64,
}

/// What follows for the status.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Tracking {
    /// What is written before finalizers go.
    pub(super) before: Value,
    /// The pods whose finalizers go.
    pub(super) release: Vec<Chosen>,
    /// What is written when they are gone.
    pub(super) after: Value,
    /// What is told when `before` was written, and when `after` was.
    pub(super) events: [Vec<Event>; 2],
}

pub(super) type Event = (EventType, String, String);

pub(super) fn track(facts: &Facts<'_>, end: Option<Condition>, manage: &Manage, done: Done) -> Tracking {
    let mut tracking = Tracking { before: status(facts), ..Tracking::default() };
    let active = i64::try_from(facts.active.len()).unwrap_or(i64::MAX) + done.created - done.removed;
    let terminating = facts.terminating + done.removed;
    let mut end = match (end, manage) {
        // What could not be deleted is deleted and counted next time.
        (Some(end), Manage::End(pods)) => Some(end).filter(|_| pods.len() as i64 == done.removed),
        (end, _) => end.or_else(|| completed(facts, active)),
    };
    let is_over = end.is_some() || matches!(manage, Manage::End(_));
    if !is_over && !facts.is_deleting() {
        suspension(facts, &mut tracking);
    }
    let status = &mut tracking.before;
    number(status, "active", active);
    status["ready"] = (facts.ready - done.removed_ready).max(0).into();
    status["terminating"] = terminating.into();
    let complete = note(facts, end.as_ref(), &mut tracking);
    tracking.after = if let Some(end) = &mut end {
        announce(facts, &mut tracking.before, end);
        let mut after = counted(&tracking.before, facts, &tracking.release);
        if complete && terminating == 0 && is_counted(&after) {
            finish(facts, &mut after, end);
            tracking.events[1] = farewell(facts, &after, end);
        }
        after
    } else {
        counted(&tracking.before, facts, &tracking.release)
    };
    tracking
}

/// The status as it is, with what it has from the first reconcile on, and without uids whose pods count already.
fn status(facts: &Facts<'_>) -> Value {
    let mut status = facts.job["status"].clone();
    if !status.is_object() {
        status = json!({});
    }
    if !status["startTime"].is_string() && !facts.is_suspended() {
        status["startTime"] = time::format_seconds(facts.now).into();
    }
    if !status["uncountedTerminatedPods"].is_object() {
        status["uncountedTerminatedPods"] = json!({});
    }
    counted(&status, facts, &[])
}

/// Moves what is noted as uncounted to the numbers, except for pods that keep their finalizers.
fn counted(status: &Value, facts: &Facts<'_>, released: &[Chosen]) -> Value {
    let released: HashSet<&str> = released.iter().map(|p| p.uid.as_str()).collect();
    let held: HashSet<&str> = facts
        .pods
        .iter()
        .filter(|p| p.job.tracked && !released.contains(p.uid()))
        .map(JobsPod::uid)
        .collect();
    let mut status = status.clone();
    for which in ["succeeded", "failed"] {
        let noted = status["uncountedTerminatedPods"][which].as_array().cloned().unwrap_or_default();
        let all = noted.len();
        let left: Vec<Value> =
            noted.into_iter().filter(|uid| uid.as_str().is_some_and(|uid| held.contains(uid))).collect();
        let more = i64::try_from(all - left.len()).unwrap_or(i64::MAX);
        if more > 0 {
            let before = status[which].as_i64().unwrap_or(0);
            number(&mut status, which, before + more);
        }
        match status["uncountedTerminatedPods"].as_object_mut() {
            Some(uncounted) if left.is_empty() => drop(uncounted.remove(which)),
            Some(uncounted) => drop(uncounted.insert(which.to_owned(), left.into())),
            None => {}
        }
    }
    status
}

fn is_counted(status: &Value) -> bool {
    status["uncountedTerminatedPods"].as_object().is_none_or(Map::is_empty)
}

/// Notes pods that ended, and whose finalizers may go. `false`: there are more than one status takes.
fn note(facts: &Facts<'_>, end: Option<&Condition>, tracking: &mut Tracking) -> bool {
    let (noted_succeeded, noted_failed) = (facts.uncounted("succeeded"), facts.uncounted("failed"));
    let mut new_indexes = Vec::new();
    let room = |status: &Value, indexes: usize| {
        let noted = |which| status["uncountedTerminatedPods"][which].as_array().map_or(0, Vec::len);
        indexes + noted("succeeded") + noted("failed") < MAX_UNCOUNTED
    };
    let failing = end.is_some_and(|end| end.type_ != "SuccessCriteriaMet");
    let mut complete = true;
    for pod in facts.pods.iter().filter(|p| p.job.tracked) {
        let failed = facts.has_failed(pod);
        if !may_go(facts, end, pod, failed) {
            continue;
        }
        tracking.release.push(Chosen::of(pod));
        let index = pod.job.index;
        let valid = facts.indexed.as_ref().is_none_or(|i| index.is_some_and(|index| index < i.completions));
        let uid = pod.uid();
        let status = &mut tracking.before;
        if pod.view.phase == Phase::Succeeded && !noted_failed.contains(uid) {
            match (&facts.indexed, index) {
                (Some(indexed), Some(index)) if valid && !indexed.before.has(index) => {
                    new_indexes.push(index)
                }
                (None, _) if !noted_succeeded.contains(uid) => uncounted(status, "succeeded", uid),
                _ => {}
            }
        } else if (failed || failing)
            && valid
            && !noted_failed.contains(uid)
            && super::policy::judge(facts.job, pod).counts()
        {
            uncounted(status, "failed", uid);
        }
        if !room(&tracking.before, new_indexes.len()) {
            complete = false;
            break;
        }
    }
    if let Some(indexed) = &facts.indexed {
        let succeeded = indexed.succeeded.with(new_indexes);
        number(&mut tracking.before, "succeeded", succeeded.total());
        let list = succeeded.to_string();
        set_or_remove(&mut tracking.before, "completedIndexes", (!list.is_empty()).then(|| list.into()));
        let failed = indexed.failed.as_ref().map(|failed| failed.to_string().into());
        set_or_remove(&mut tracking.before, "failedIndexes", failed);
    }
    complete
}

/// Whether a pod needn't be kept: it was taken into account, or nobody will.
fn may_go(facts: &Facts<'_>, end: Option<&Condition>, pod: &JobsPod<'_>, failed: bool) -> bool {
    if facts.is_deleting() || end.is_some() || pod.view.phase == Phase::Succeeded {
        return true;
    }
    let carries = || {
        let waiting = facts.indexed.as_ref().and_then(|i| i.waiting.get(&pod.job.index?));
        waiting.is_some_and(|waiting| waiting.uid() == pod.uid())
    };
    failed && !carries()
}

fn uncounted(status: &mut Value, which: &str, uid: &str) {
    let list = &mut status["uncountedTerminatedPods"][which];
    match list.as_array_mut() {
        Some(list) => list.push(uid.into()),
        None => *list = json!([uid]),
    }
}

/// Tells how the Job is going to end, before it has.
fn announce(facts: &Facts<'_>, status: &mut Value, end: &mut Condition) {
    if end.type_ == "Failed" {
        return;
    }
    if find(&status["conditions"], end.type_).is_none() {
        push(status, condition(end.type_, "True", &end.reason, &end.message, facts.now));
    }
    end.type_ = if end.type_ == "FailureTarget" { "Failed" } else { "Complete" };
}

fn finish(facts: &Facts<'_>, status: &mut Value, end: &Condition) {
    ensure(status, condition(end.type_, "True", &end.reason, &end.message, facts.now));
    if end.type_ == "Complete" {
        status["completionTime"] = time::format_seconds(facts.now).into();
    }
}

fn farewell(facts: &Facts<'_>, status: &Value, end: &Condition) -> Vec<Event> {
    if end.type_ != "Complete" {
        return vec![(EventType::Warning, end.reason.clone(), end.message.clone())];
    }
    let mut events = Vec::new();
    let wanted = facts.job["spec"]["completions"].as_i64();
    if wanted.is_some_and(|wanted| status["succeeded"].as_i64().unwrap_or(0) > wanted) {
        let message = "Too many succeeded pods running after completion count reached";
        events.push((EventType::Warning, "TooManySucceededPods".to_owned(), message.to_owned()));
    }
    events.push((EventType::Normal, "Completed".to_owned(), "Job completed".to_owned()));
    events
}

/// Says whether the Job is suspended. Its time begins anew when it is not any more.
fn suspension(facts: &Facts<'_>, tracking: &mut Tracking) {
    let status = &mut tracking.before;
    let (state, reason, message, event) = match facts.is_suspended() {
        true => ("True", "JobSuspended", "Job suspended", "Suspended"),
        false => ("False", "JobResumed", "Job resumed", "Resumed"),
    };
    if !ensure(status, condition("Suspended", state, reason, message, facts.now)) {
        return;
    }
    let started = (!facts.is_suspended()).then(|| time::format_seconds(facts.now).into());
    set_or_remove(status, "startTime", started);
    tracking.events[0].push((EventType::Normal, event.to_owned(), message.to_owned()));
}

fn condition(type_: &str, status: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let at = time::format_seconds(now);
    json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastProbeTime": at, "lastTransitionTime": at,
    })
}

/// Adds or replaces a condition; one that is false is not begun with. Gives whether anything changed.
fn ensure(status: &mut Value, new: Value) -> bool {
    let found =
        status["conditions"].as_array_mut().and_then(|l| l.iter_mut().find(|c| c["type"] == new["type"]));
    match found {
        Some(old) if ["status", "reason", "message"].iter().all(|field| old[*field] == new[*field]) => false,
        Some(old) => {
            *old = new;
            true
        }
        None if new["status"] == "False" => false,
        None => {
            push(status, new);
            true
        }
    }
}

fn push(status: &mut Value, condition: Value) {
    match status["conditions"].as_array_mut() {
        Some(list) => list.push(condition),
        None => status["conditions"] = json!([condition]),
    }
}

/// Zero is left out, as Kubernetes does.
fn number(status: &mut Value, field: &str, number: i64) {
    set_or_remove(status, field, (number != 0).then(|| number.into()));
}

fn set_or_remove(status: &mut Value, field: &str, value: Option<Value>) {
    match (value, status.as_object_mut()) {
        (Some(value), Some(status)) => drop(status.insert(field.to_owned(), value)),
        (None, Some(status)) => drop(status.remove(field)),
        (_, None) => {}
    }
}
