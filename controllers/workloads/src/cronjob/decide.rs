//! What a CronJob needs.

use super::at;
use super::schedule::Times;
use crate::job::ended;
use freehold_controllers_context::object::{int, items, text};
use freehold_machinery::{Value, meta, time};
use freehold_machinery_cron::{Schedule, Zone};
use freehold_runtime::EventType;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// What is known of a CronJob.
pub(super) struct Observed<'a> {
    pub(super) cron: &'a Value,
    /// The Jobs that it controls.
    pub(super) jobs: &'a [Arc<Value>],
    pub(super) now: Timestamp,
}

/// A Job to be deleted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Old {
    pub(super) name: String,
    pub(super) uid: String,
}

/// A Job to be made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    pub(super) at: Timestamp,
    pub(super) zone: Zone,
    pub(super) name: String,
    /// These are deleted before.
    pub(super) replaces: Vec<Old>,
}

pub(super) type Event = (EventType, &'static str, String);

/// What is to be done.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Decision {
    /// Ended Jobs beyond the limits of the history.
    pub(super) delete: Vec<Old>,
    /// The status before Jobs are deleted and started.
    pub(super) status: Value,
    pub(super) start: Option<Start>,
    pub(super) events: Vec<Event>,
    /// When to look again.
    pub(super) again: Option<Duration>,
}

pub(super) fn decide(observed: &Observed<'_>) -> Decision {
    let cron = observed.cron;
    let mut decision = Decision { status: cron["status"].clone(), ..Decision::default() };
    if !decision.status.is_object() {
        decision.status = json!({});
    }
    clean_up(observed, &mut decision);
    follow(observed, &mut decision);
    if !meta::is_deleting(cron) {
        schedule(observed, &mut decision);
    }
    decision
}

fn clean_up(observed: &Observed<'_>, decision: &mut Decision) {
    for (limit, type_) in [("successfulJobsHistoryLimit", "Complete"), ("failedJobsHistoryLimit", "Failed")] {
        let limit = int(observed.cron, &format!("/spec/{limit}")).and_then(|n| usize::try_from(n).ok());
        let Some(limit) = limit else { continue };
        let mut over: Vec<&Arc<Value>> =
            observed.jobs.iter().filter(|job| ended(job).is_some_and(|c| c["type"] == type_)).collect();
        over.sort_by_key(|job| {
            let started = text(job, "/status/startTime");
            (started.is_empty(), started, meta::name(job))
        });
        let surplus = over.len().saturating_sub(limit);
        decision.delete.extend(over.into_iter().take(surplus).map(|job| old(job)));
    }
}

fn old(job: &Value) -> Old {
    let text = |field: &str| text(job, field).to_owned();
    if job["metadata"].is_object() {
        Old { name: text("/metadata/name"), uid: text("/metadata/uid") }
    } else {
        Old { name: text("/name"), uid: text("/uid") }
    }
}

/// Brings the list of active Jobs and the time of the last success up to date.
fn follow(observed: &Observed<'_>, decision: &mut Decision) {
    for job in observed.jobs {
        let listed = is_active(&decision.status, meta::uid(job));
        let name = meta::name(job);
        let Some(end) = ended(job) else {
            if !listed {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                decision.events.push((EventType::Warning, "UnexpectedJob", message));
            }
            continue;
        };
        if listed {
            forget(&mut decision.status, meta::uid(job));
            let message = format!("Saw completed job: {name}, condition: {}", text(end, "/type"));
            decision.events.push((EventType::Normal, "SawCompletedJob", message));
        }
        let completed = text(job, "/status/completionTime");
        let last = text(&decision.status, "/lastSuccessfulTime");
        if end["type"] == "Complete" && time::parse(completed) > time::parse(last) {
            decision.status["lastSuccessfulTime"] = completed.into();
        }
    }
    for lost in items(observed.cron, "/status/active") {
        if !observed.jobs.iter().any(|job| meta::uid(job) == text(lost, "/uid")) {
            forget(&mut decision.status, text(lost, "/uid"));
            let message = format!("Active job went missing: {}", text(lost, "/name"));
            decision.events.push((EventType::Normal, "MissingJob", message));
        }
    }
}

fn schedule(observed: &Observed<'_>, decision: &mut Decision) {
    let (cron, now) = (observed.cron, observed.now);
    let warn = |reason, message: String| (EventType::Warning, reason, message);
    let named = text(cron, "/spec/timeZone");
    let Some(zone) = (if named.is_empty() { Some(Zone::UTC) } else { Zone::named(named) }) else {
        let message = format!("invalid timeZone: {named:?}: unknown time zone {named}");
        return decision.events.push(warn("UnknownTimeZone", message));
    };
    if cron["spec"]["suspend"] == true {
        return;
    }
    let written = text(cron, "/spec/schedule");
    if written.contains("TZ") {
        let message = format!(
            "CRON_TZ or TZ used in schedule {written:?} is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        );
        decision.events.push(warn("UnsupportedSchedule", message));
    }
    let schedule = match Schedule::parse(written) {
        Ok(schedule) => schedule,
        Err(why) => {
            let message = format!("unparseable schedule: {written:?} : {why}");
            return decision.events.push(warn("UnparseableSchedule", message));
        }
    };
    let begun = text(&cron["status"], "/lastScheduleTime");
    let begun = if begun.is_empty() { meta::text(cron, "creationTimestamp") } else { begun };
    let since = time::parse(begun).unwrap_or(now);
    let deadline = int(cron, "/spec/startingDeadlineSeconds");
    // Nothing from before the deadline is started.
    let earliest = deadline.and_then(|s| now.checked_sub(SignedDuration::from_secs(s)).ok());
    let times = Times { schedule: &schedule, zone, since: earliest.map_or(since, |e| e.max(since)), now };
    let recent = match times.recent() {
        Ok(recent) => recent,
        Err(why) => {
            return decision
                .events
                .push(warn("InvalidSchedule", format!("invalid schedule: {written} : {why}")));
        }
    };
    if recent.many {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        decision.events.push(warn("TooManyMissedTimes", message.to_owned()));
    }
    decision.again = Times { since, ..times }.wait();
    let Some(due) = recent.time else { return };
    start(observed, decision, due, zone, deadline);
}

fn start(
    observed: &Observed<'_>,
    decision: &mut Decision,
    due: Timestamp,
    zone: Zone,
    deadline: Option<i64>,
) {
    let (cron, now) = (observed.cron, observed.now);
    if deadline.is_some_and(|s| due + SignedDuration::from_secs(s.clamp(0, 1 << 40)) < now) {
        let message =
            format!("Missed scheduled time to start a job: {}", due.strftime("%a, %d %b %Y %H:%M:%S +0000"));
        return decision.events.push((EventType::Warning, "MissSchedule", message));
    }
    let name = format!("{}-{}", meta::name(cron), due.as_second() / 60);
    let active = items(&decision.status, "/active");
    let processed = time::parse(text(cron, "/status/lastScheduleTime")) == Some(due);
    if processed || active.iter().any(|job| text(job, "/name") == name) {
        return;
    }
    let replaces = match text(cron, "/spec/concurrencyPolicy") {
        "Forbid" if !active.is_empty() => {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            return decision.events.push((EventType::Normal, "JobAlreadyActive", message.to_owned()));
        }
        "Replace" => active.iter().map(old).collect(),
        _ => Vec::new(),
    };
    decision.start = Some(Start { at: due, zone, name, replaces });
}

fn is_active(status: &Value, uid: &str) -> bool {
    items(status, "/active").iter().any(|job| text(job, "/uid") == uid)
}

/// Takes a Job from the active ones.
pub(super) fn forget(status: &mut Value, uid: &str) {
    let Some(active) = status["active"].as_array_mut() else { return };
    active.retain(|job| text(job, "/uid") != uid);
    if active.is_empty()
        && let Some(status) = status.as_object_mut()
    {
        status.remove("active");
    }
}

/// Adds a Job that was started for a time.
pub(super) fn note(status: &mut Value, job: &Value, time: Timestamp) {
    if !is_active(status, meta::uid(job)) {
        let reference = json!({
            "apiVersion": "batch/v1", "kind": "Job", "name": meta::name(job), "namespace": meta::namespace(job),
            "uid": meta::uid(job), "resourceVersion": meta::resource_version(job),
        });
        match status["active"].as_array_mut() {
            Some(active) => active.push(reference),
            None => status["active"] = json!([reference]),
        }
    }
    status["lastScheduleTime"] = at(time);
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATED: &str = "2026-01-01T10:00:30Z";

    fn cron(change: impl FnOnce(&mut Value)) -> Value {
        let mut cron = json!({
            "metadata": {"name": "c", "namespace": "n", "uid": "u", "creationTimestamp": CREATED},
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {}}}, "status": {},
        });
        change(&mut cron);
        cron
    }

    fn job(name: &str, end: Option<&str>) -> Arc<Value> {
        let conditions = end.map(|t| json!([{"type": t, "status": "True"}])).unwrap_or(json!([]));
        let status =
            json!({"conditions": conditions, "startTime": CREATED, "completionTime": "2026-01-01T10:00:50Z"});
        Arc::new(json!({"metadata": {"name": name, "uid": name, "namespace": "n"}, "status": status}))
    }

    fn decided(cron: &Value, jobs: &[Arc<Value>], now: &str) -> Decision {
        decide(&Observed { cron, jobs, now: now.parse().unwrap() })
    }

    fn reasons(decision: &Decision) -> Vec<&str> {
        decision.events.iter().map(|(_, reason, _)| *reason).collect()
    }

    #[test]
    fn a_job_is_started_once_for_each_time() {
        let mut made = cron(|_| {});
        let first = decided(&made, &[], "2026-01-01T10:01:00Z");
        let start = first.start.unwrap();
        assert_eq!(start.name, format!("c-{}", start.at.as_second() / 60));
        assert_eq!(first.again, Some(Duration::from_millis(60_100)));
        let mut status = first.status;
        note(&mut status, &job("j1", None), start.at);
        made["status"] = status;
        assert_eq!(made["status"]["lastScheduleTime"], "2026-01-01T10:01:00Z");
        let second = decided(&made, &[job("j1", None)], "2026-01-01T10:01:10Z");
        assert_eq!(
            (second.start, second.status, second.again),
            (None, made["status"].clone(), Some(Duration::from_millis(50_100)))
        );
        assert_eq!(decided(&made, &[], CREATED).start, None);
    }

    #[test]
    fn running_jobs_are_left_replaced_or_waited_for() {
        let now = "2026-01-01T10:02:10Z";
        for (policy, started, replaced, reason) in [
            ("Allow", true, 0, None),
            ("Forbid", false, 0, Some("JobAlreadyActive")),
            ("Replace", true, 1, None),
        ] {
            let cron = cron(|c| {
                c["spec"]["concurrencyPolicy"] = policy.into();
                c["status"]["active"] = json!([{"name": "j1", "uid": "j1"}]);
            });
            let decision = decided(&cron, &[job("j1", None)], now);
            assert_eq!(
                decision.start.as_ref().map(|s| s.replaces.len()),
                started.then_some(replaced),
                "{policy}"
            );
            assert_eq!(reasons(&decision), reason.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_cannot_be_scheduled_is_told_of_and_left_alone() {
        let rows: [(Value, &[&str]); 6] = [
            (cron(|c| c["spec"]["schedule"] = "nonsense".into()), &["UnparseableSchedule"]),
            (cron(|c| c["spec"]["schedule"] = "0 0 31 2 *".into()), &["InvalidSchedule"]),
            (cron(|c| c["spec"]["timeZone"] = "Mars/Base".into()), &["UnknownTimeZone"]),
            (cron(|c| c["spec"]["suspend"] = true.into()), &[]),
            (cron(|c| c["metadata"]["deletionTimestamp"] = CREATED.into()), &[]),
            (cron(|c| c["spec"] = Value::Null), &["UnparseableSchedule"]),
        ];
        for (cron, expected) in rows {
            let decision = decided(&cron, &[], "2026-01-01T10:05:00Z");
            assert_eq!((decision.start.clone(), reasons(&decision)), (None, expected.to_vec()), "{cron}");
        }
    }

    #[test]
    fn a_missed_start_is_made_up_for_within_its_deadline() {
        let hourly = |deadline: Value| {
            cron(|c| {
                c["spec"]["schedule"] = "0 * * * *".into();
                c["spec"]["startingDeadlineSeconds"] = deadline;
            })
        };
        let now = "2026-01-01T11:10:00Z";
        assert!(decided(&hourly(json!(null)), &[], now).start.is_some());
        assert!(decided(&hourly(json!(700)), &[], now).start.is_some());
        assert_eq!(decided(&hourly(json!(500)), &[], now).start, None);
        let many = decided(&cron(|_| {}), &[], "2026-01-01T14:00:00Z");
        assert!(many.start.is_some());
        assert_eq!(reasons(&many), ["TooManyMissedTimes"]);
    }

    #[test]
    fn ended_jobs_leave_the_list_and_the_oldest_go() {
        let cron = cron(|c| {
            c["spec"]["suspend"] = true.into();
            c["spec"]["successfulJobsHistoryLimit"] = 1.into();
            c["spec"]["failedJobsHistoryLimit"] = 0.into();
            c["status"]["active"] = json!([{"name": "b", "uid": "b"}, {"name": "gone", "uid": "gone"}]);
        });
        let jobs = [
            job("a", Some("Complete")),
            job("b", Some("Complete")),
            job("c", Some("Failed")),
            job("d", None),
        ];
        let decision = decided(&cron, &jobs, CREATED);
        let names: Vec<&str> = decision.delete.iter().map(|old| old.name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(reasons(&decision), ["SawCompletedJob", "UnexpectedJob", "MissingJob"]);
        assert_eq!(decision.status, json!({"lastSuccessfulTime": "2026-01-01T10:00:50Z"}));
    }
}
