//! Jobs: pods that run until enough of them have succeeded
//! (<https://kubernetes.io/docs/concepts/workloads/controllers/job/>).
//!
//! Completion is counted over the pods that are there, so pods of a running Job must not be removed; indexed
//! completion and pod failure policies are not handled: such Jobs get the condition `Failed` and say so.

use crate::context::{Context, Reconcile};
use crate::expectations::Expectations;
use crate::kinds::{JOBS, PODS};
use crate::object::{int, status_patch, text};
use crate::pods::{Phase, PodView, new_pod};
use freehold_client::{Client, DeleteOptions, Error, PatchOptions, Propagation};
use freehold_controller_manager_runtime::{
    EventType, Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store, conditions,
};
use freehold_machinery::{Value, meta, time};
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;

/// Pods made by one reconcile.
const BURST: i64 = 100;

type Pod = (Key, Arc<PodView>);

/// What is known of a Job.
struct Observed<'a> {
    job: &'a Value,
    pods: Vec<Pod>,
    now: Timestamp,
}

/// What can be done for a Job.
#[derive(Debug, PartialEq)]
enum Action {
    Create(i64),
    Delete(Vec<(Key, String)>),
    /// It is over for long enough.
    DeleteJob,
    SetStatus(Value),
    Event(EventType, &'static str, String),
}

#[derive(Debug, Default, PartialEq)]
struct Decision {
    actions: Vec<Action>,
    again: Option<Duration>,
}

/// How a Job ended.
struct End {
    type_: &'static str,
    reason: &'static str,
    message: String,
}

/// The pods of a Job by how they are.
struct Counts<'a> {
    active: Vec<&'a Pod>,
    succeeded: i64,
    failed: i64,
    ready: i64,
}

impl<'a> Counts<'a> {
    fn of(pods: &'a [Pod]) -> Self {
        let in_phase = |phase: Phase| pods.iter().filter(|(_, pod)| pod.phase == phase).count();
        let active: Vec<&Pod> = pods.iter().filter(|(_, pod)| pod.is_active()).collect();
        // A pod that was told to end before it did counts as failed.
        let ended_early =
            pods.iter().filter(|(_, p)| p.deleting && !matches!(p.phase, Phase::Succeeded | Phase::Failed));
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        Self {
            ready: number(active.iter().filter(|(_, pod)| pod.ready).count()),
            succeeded: number(in_phase(Phase::Succeeded)),
            failed: number(in_phase(Phase::Failed) + ended_early.count()),
            active,
        }
    }
}

fn decide(observed: &Observed<'_>) -> Decision {
    let Observed { job, pods, now } = observed;
    if meta::is_deleting(job) || !job["spec"].is_object() {
        return Decision::default();
    }
    if let Some(ended) = ended_at(job) {
        return expire(job, ended, *now);
    }
    let counts = Counts::of(pods);
    let suspended = job["spec"]["suspend"] == true;
    let end = end_of(job, &counts, *now);
    let mut actions = Vec::new();
    let missing = missing(job, &counts);
    if end.is_some() || suspended || missing < 0 {
        let surplus =
            if end.is_some() || suspended { counts.active.len() } else { missing.unsigned_abs() as usize };
        let gone = counts
            .active
            .iter()
            .take(surplus)
            .map(|(key, pod)| (key.clone(), pod.uid.clone()))
            .collect::<Vec<_>>();
        if !gone.is_empty() {
            actions.push(Action::Delete(gone));
        }
    } else if missing > 0 {
        actions.push(Action::Create(missing.min(BURST)));
    }
    finish(job, &counts, end.as_ref(), suspended, *now, &mut actions);
    Decision { actions, again: if end.is_none() { deadline(job, *now) } else { None } }
}

/// How many pods are too few; negative: too many.
fn missing(job: &Value, counts: &Counts<'_>) -> i64 {
    let parallelism = int(job, "/spec/parallelism").unwrap_or(1).max(0);
    let active = i64::try_from(counts.active.len()).unwrap_or(i64::MAX);
    let wanted = match int(job, "/spec/completions") {
        Some(completions) => parallelism.min((completions - counts.succeeded).max(0)),
        // Without a number the first success says that the work is done: those that run may end.
        None if counts.succeeded > 0 => active.min(parallelism),
        None => parallelism,
    };
    wanted - active
}

fn end_of(job: &Value, counts: &Counts<'_>, now: Timestamp) -> Option<End> {
    let failed = |reason, message: &str| Some(End { type_: "Failed", reason, message: message.to_owned() });
    if text(job, "/spec/completionMode") == "Indexed" || job["spec"]["podFailurePolicy"].is_object() {
        return failed("NotSupported", "indexed completion and pod failure policies are not supported");
    }
    let limit = int(job, "/spec/backoffLimit").unwrap_or(6);
    if counts.failed > limit {
        return failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if deadline(job, now).is_some_and(|left| left.is_zero()) {
        return failed("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    let done = match int(job, "/spec/completions") {
        Some(completions) => counts.succeeded >= completions,
        None => counts.succeeded > 0 && counts.active.is_empty(),
    };
    let reached = "Reached expected number of succeeded pods";
    done.then(|| End { type_: "Complete", reason: "CompletionsReached", message: reached.to_owned() })
}

/// How long the Job may still run, where it has a deadline.
fn deadline(job: &Value, now: Timestamp) -> Option<Duration> {
    let seconds = int(job, "/spec/activeDeadlineSeconds").and_then(|s| u64::try_from(s).ok())?;
    let started = time::parse(text(job, "/status/startTime")).unwrap_or(now);
    Some(Duration::from_secs(seconds).saturating_sub(now.duration_since(started).unsigned_abs()))
}

fn ended_at(job: &Value) -> Option<Timestamp> {
    let list = &job["status"]["conditions"];
    let ended = ["Complete", "Failed"]
        .iter()
        .find_map(|t| conditions::find(list, t).filter(|c| c["status"] == "True"))?;
    Some(time::parse(text(ended, "/lastTransitionTime")).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Deletes a Job that ended, after `ttlSecondsAfterFinished`.
fn expire(job: &Value, ended: Timestamp, now: Timestamp) -> Decision {
    let Some(ttl) = int(job, "/spec/ttlSecondsAfterFinished").and_then(|s| u64::try_from(s).ok()) else {
        return Decision::default();
    };
    let left = Duration::from_secs(ttl).saturating_sub(now.duration_since(ended).unsigned_abs());
    if left.is_zero() {
        Decision { actions: vec![Action::DeleteJob], again: None }
    } else {
        Decision { actions: Vec::new(), again: Some(left) }
    }
}

fn finish(
    job: &Value,
    counts: &Counts<'_>,
    end: Option<&End>,
    suspended: bool,
    now: Timestamp,
    actions: &mut Vec<Action>,
) {
    let mut status = job["status"].clone();
    let at = time::format_seconds(now);
    if text(job, "/status/startTime").is_empty() && !suspended {
        status["startTime"] = at.clone().into();
    }
    let active = if end.is_some() { 0 } else { counts.active.len() as i64 };
    let ready = if end.is_some() { 0 } else { counts.ready };
    for (field, number) in
        [("active", active), ("succeeded", counts.succeeded), ("failed", counts.failed), ("ready", ready)]
    {
        if number != 0 || status.get(field).is_some_and(|old| !old.is_null()) || field == "ready" {
            status[field] = number.into();
        }
    }
    let was_suspended = conditions::is_true(&status["conditions"], "Suspended");
    if suspended != was_suspended {
        let (state, reason, message) = if suspended {
            ("True", "JobSuspended", "Job suspended")
        } else {
            ("False", "JobResumed", "Job resumed")
        };
        set(&mut status, "Suspended", state, reason, message, now);
        actions.push(Action::Event(
            EventType::Normal,
            if suspended { "Suspended" } else { "Resumed" },
            message.to_owned(),
        ));
    }
    if let Some(end) = end {
        set(&mut status, end.type_, "True", end.reason, &end.message, now);
        if end.type_ == "Complete" {
            status["completionTime"] = at.into();
            actions.push(Action::Event(EventType::Normal, "Completed", "Job completed".into()));
        } else {
            actions.push(Action::Event(EventType::Warning, end.reason, end.message.clone()));
        }
    }
    if status != job["status"] {
        actions.push(Action::SetStatus(status));
    }
}

fn set(status: &mut Value, type_: &str, state: &str, reason: &str, message: &str, now: Timestamp) {
    let set = conditions::Set { type_, status: state, reason, message, generation: None };
    conditions::set(&mut status["conditions"], set, now);
    for condition in status["conditions"].as_array_mut().into_iter().flatten().filter(|c| c["type"] == type_)
    {
        condition["lastProbeTime"] = time::format_seconds(now).into();
    }
}

struct Jobs {
    planes: Planes,
    jobs: Store<Value>,
    pods: Store<PodView>,
    written: Expectations<Key>,
    own_written: Expectations<Key>,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let by_uid = |_: &Key, job: &Value| vec![meta::uid(job).to_owned()];
    let mut informer = Informer::new(&context.planes, Interest::objects(JOBS).index(by_uid));
    informer.enqueue_into(&queue);
    let jobs = context.run_informer(informer);
    let (on_pods, owners) = (queue.clone(), jobs.clone());
    context.pods().on_change(move |change| {
        for pod in [&change.old, &change.new].into_iter().flatten().filter(|pod| !pod.owner.is_empty()) {
            for (key, _) in owners.by_index(&change.key.plane, &pod.owner) {
                on_pods.add(key);
            }
        }
    });
    let pods = context.pods().store();
    context.resync(&jobs, &queue);
    let controller = Jobs {
        planes: context.planes.clone(),
        jobs: jobs.clone(),
        pods: pods.clone(),
        written: Expectations::default(),
        own_written: Expectations::default(),
        recorder: Recorder::new("job-controller"),
    };
    context.control("job", 4, &queue, &[&jobs, &pods], controller);
}

impl Reconcile for Jobs {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        if !self.written.are_met(&key, &self.pods) || !self.own_written.are_met(&key, &self.jobs) {
            return Ok(Outcome::After(Duration::from_secs(31)));
        }
        let Some(job) = self.jobs.get(&key) else { return Ok(Outcome::Done) };
        let pods = self.pods.by_index(&key.plane, meta::uid(&job));
        let decision = decide(&Observed { job: &job, pods, now: Timestamp::now() });
        let client = self.planes.client(&key.plane);
        // What fails must not keep the status from being told.
        let mut done = Ok(());
        for action in decision.actions {
            done = done.and(self.act(&client, &key, &job, action).await);
        }
        done?;
        Ok(decision.again.map_or(Outcome::Done, Outcome::After))
    }
}

impl Jobs {
    async fn act(&self, client: &Client, key: &Key, job: &Value, action: Action) -> Result<(), Error> {
        match action {
            Action::Create(count) => self.create(client, key, job, count).await,
            Action::Delete(pods) => {
                for (pod, uid) in pods {
                    absent_is_fine(
                        client.delete(&PODS, pod.ns(), &pod.name, &DeleteOptions::uid(uid)).await,
                    )?;
                }
                Ok(())
            }
            Action::DeleteJob => {
                let options = DeleteOptions::uid(meta::uid(job)).propagation(Propagation::Foreground);
                absent_is_fine(client.delete(&JOBS, key.ns(), &key.name, &options).await).map(drop)
            }
            Action::SetStatus(status) => {
                let (patch, options) = (status_patch(&status), PatchOptions::status());
                let answer = client.patch(&JOBS, key.ns(), &key.name, &patch, &options).await;
                if let Some(answer) = absent_is_fine(answer)? {
                    self.own_written.expect(key, &answer);
                }
                Ok(())
            }
            Action::Event(kind, reason, message) => {
                self.recorder.event(client, job, kind, reason, &message).await;
                Ok(())
            }
        }
    }

    async fn create(&self, client: &Client, key: &Key, job: &Value, count: i64) -> Result<(), Error> {
        let mut pod = new_pod(job, &job["spec"]["template"]);
        let (name, uid) = (meta::name(job), meta::uid(job));
        for (label, value) in [
            ("batch.kubernetes.io/job-name", name),
            ("batch.kubernetes.io/controller-uid", uid),
            ("job-name", name),
            ("controller-uid", uid),
        ] {
            pod["metadata"]["labels"][label] = value.into();
        }
        for _ in 0..count {
            match client.create(&PODS, &pod).await {
                Ok(answer) => {
                    self.written.expect(key, &answer);
                    let message = format!("Created pod: {}", meta::name(&answer));
                    self.recorder.event(client, job, EventType::Normal, "SuccessfulCreate", &message).await;
                }
                Err(error) => {
                    let message = format!("Error creating: {error}");
                    self.recorder.event(client, job, EventType::Warning, "FailedCreate", &message).await;
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

fn absent_is_fine(answer: Result<Value, Error>) -> Result<Option<Value>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if matches!(error.code(), 404 | 409) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_machinery::PlaneId;
    use serde_json::json;

    fn job(spec: Value) -> Value {
        json!({"metadata": {"name": "j", "uid": "u"}, "spec": spec, "status": {}})
    }

    fn pods(phases: &[Phase]) -> Vec<Pod> {
        let one = |(i, phase): (usize, &Phase)| {
            let view =
                PodView { uid: format!("p{i}"), owner: "u".into(), phase: *phase, ..PodView::default() };
            (Key::new(PlaneId::core(), "n", &format!("p{i}")), Arc::new(view))
        };
        phases.iter().enumerate().map(one).collect()
    }

    fn decided(job: &Value, phases: &[Phase]) -> Decision {
        decide(&Observed { job, pods: pods(phases), now: Timestamp::from_second(100).unwrap() })
    }

    fn ended(decision: &Decision) -> Option<(&str, &str)> {
        let status = decision.actions.iter().find_map(|a| match a {
            Action::SetStatus(status) => Some(status),
            _ => None,
        })?;
        let end = status["conditions"].as_array()?.iter().find(|c| c["type"] != "Suspended")?;
        Some((end["type"].as_str()?, end["reason"].as_str()?))
    }

    #[test]
    fn pods_are_made_up_to_parallelism_and_what_is_left_to_do() {
        use Phase::{Failed, Running, Succeeded};
        let rows: [(Value, &[Phase], Option<i64>); 6] = [
            (json!({}), &[], Some(1)),
            (json!({"parallelism": 3, "completions": 5}), &[], Some(3)),
            (
                json!({"parallelism": 3, "completions": 5}),
                &[Succeeded, Succeeded, Succeeded, Running],
                Some(1),
            ),
            (json!({"parallelism": 3, "completions": 5}), &[Failed, Running, Running], Some(1)),
            (json!({"parallelism": 2}), &[Succeeded, Running], None),
            (json!({"parallelism": 0}), &[], None),
        ];
        for (spec, phases, created) in rows {
            let decision = decided(&job(spec.clone()), phases);
            let made =
                decision.actions.iter().find_map(|a| if let Action::Create(n) = a { Some(*n) } else { None });
            assert_eq!(made, created, "{spec} {phases:?}");
        }
    }

    #[test]
    fn a_job_ends_complete_or_failed() {
        use Phase::{Failed, Running, Succeeded};
        type Row<'a> = (Value, &'a [Phase], Option<(&'a str, &'a str)>);
        let rows: [Row<'_>; 6] = [
            (json!({"completions": 2}), &[Succeeded, Succeeded], Some(("Complete", "CompletionsReached"))),
            (json!({"completions": 2}), &[Succeeded, Running], None),
            (json!({}), &[Succeeded], Some(("Complete", "CompletionsReached"))),
            (json!({"completions": 1, "backoffLimit": 1}), &[Failed], None),
            (
                json!({"completions": 1, "backoffLimit": 1}),
                &[Failed, Failed],
                Some(("Failed", "BackoffLimitExceeded")),
            ),
            (json!({"activeDeadlineSeconds": 0}), &[Running], Some(("Failed", "DeadlineExceeded"))),
        ];
        for (spec, phases, end) in rows {
            assert_eq!(ended(&decided(&job(spec.clone()), phases)), end, "{spec} {phases:?}");
        }
    }

    #[test]
    fn a_suspended_job_loses_its_pods_and_resumes() {
        let mut suspended = job(json!({"suspend": true}));
        let decision = decided(&suspended, &[Phase::Running]);
        assert!(matches!(&decision.actions[0], Action::Delete(pods) if pods.len() == 1));
        let Some(Action::SetStatus(status)) = decision.actions.last() else { panic!("{decision:?}") };
        assert!(conditions::is_true(&status["conditions"], "Suspended"));
        suspended["status"] = status.clone();
        suspended["spec"]["suspend"] = false.into();
        assert_eq!(decided(&suspended, &[]).actions[0], Action::Create(1));
    }

    #[test]
    fn a_job_that_ended_is_left_alone_until_its_time_to_live_is_over() {
        let mut over = job(json!({"ttlSecondsAfterFinished": 60}));
        over["status"]["conditions"] =
            json!([{"type": "Complete", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}]);
        assert_eq!(decided(&over, &[]), Decision { actions: vec![], again: Some(Duration::from_secs(20)) });
        over["spec"]["ttlSecondsAfterFinished"] = 40.into();
        assert_eq!(decided(&over, &[]).actions, [Action::DeleteJob]);
    }

    #[test]
    fn a_job_that_makes_no_sense_is_left_alone() {
        assert_eq!(decided(&Value::Null, &[]), Decision::default());
        assert_eq!(
            ended(&decided(&job(json!({"completionMode": "Indexed"})), &[])),
            Some(("Failed", "NotSupported"))
        );
    }
}
