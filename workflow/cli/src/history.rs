//! History of what controllers do: runs and attempts into the database, logs of Pods into files before they go.

use async_trait::async_trait;
use freehold_client::{Client, RawRequest, Resource};
use freehold_machinery::{PlaneId, Value};
use freehold_runtime::{Error, Key};
use freehold_workflow_api::{DAGRun, TaskStatus, names};
use freehold_workflow_controller::{Observer, namespace_uid};
use freehold_workflow_store::{
    Counts, LogKey, LogRecord, LogStore, LogWriter, Phase, Record, Recorder, RunRecord, TaskRecord,
};
use futures_util::{Stream, StreamExt as _, future::try_join_all};
use std::time::Duration;

const PODS: Resource = Resource::namespaced("", "v1", "pods");
const RUNS: Resource =
    Resource::namespaced(freehold_workflow_api::GROUP, freehold_workflow_api::VERSION, "dagruns");
/// How long one container's log may take: a Pod is held up no longer.
const LOG_TIMEOUT: Duration = Duration::from_secs(30);

/// Keeps history in a database, and logs in a folder where one is given.
#[derive(Debug)]
pub struct History {
    recorder: Recorder,
    logs: Option<LogStore>,
}

impl History {
    /// A history that writes through `recorder`.
    pub fn new(recorder: Recorder, logs: Option<LogStore>) -> Self {
        Self { recorder, logs }
    }

    async fn record(&self, records: Vec<Record>) -> Result<(), Error> {
        try_join_all(records.into_iter().map(|record| self.recorder.record(record))).await?;
        Ok(())
    }

    /// Reads the log of one container to its end, and returns what is known of it.
    async fn keep_log(
        &self,
        files: &LogStore,
        client: &Client,
        run: &Key,
        pod: &Value,
        container: &str,
    ) -> Result<(String, u64, u64), Error> {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        let path = PODS.object_path(run.ns(), text("name"), Some("log"));
        let mut stream = client
            .download(&RawRequest::get(format!("{path}?container={container}")))
            .await?
            .into_stream()
            .boxed();
        let plane = run.plane.to_string();
        let run_uid = pod["metadata"]["labels"][names::RUN_UID].as_str().unwrap_or_default();
        let key = LogKey { plane: &plane, run: run_uid, pod_uid: text("uid"), container };
        let mut writer = files.append(&key).await?;
        let copied = copy(&mut stream, &mut writer, container).await;
        if let Err(error) = &copied
            && let Err(left) = writer.abort().await
        {
            tracing::warn!(container, %error, %left, "failed to give up a log; the bucket's rules have to remove its parts");
        }
        copied?;
        Ok((writer.location().to_owned(), writer.bytes(), writer.lines()))
    }
}

/// Writes a log to its end, or as far as it comes in time.
async fn copy<B: AsRef<[u8]>>(
    stream: &mut (impl Stream<Item = Result<B, freehold_client::Error>> + Unpin),
    writer: &mut LogWriter,
    container: &str,
) -> Result<(), Error> {
    // What an earlier attempt has written is not written again.
    let mut skip = usize::try_from(writer.bytes()).unwrap_or(usize::MAX);
    let until = tokio::time::Instant::now() + LOG_TIMEOUT;
    loop {
        let chunk = match tokio::time::timeout_at(until, stream.next()).await {
            Ok(Some(chunk)) => chunk?,
            Ok(None) => break,
            Err(_) => {
                tracing::warn!(container, "the log did not come to its end in 30 s; what came is kept");
                break;
            }
        };
        let chunk = chunk.as_ref();
        let known = skip.min(chunk.len());
        skip -= known;
        writer.write(&chunk[known..]).await?;
    }
    tokio::time::timeout(LOG_TIMEOUT, writer.finish())
        .await
        .map_err(|_| "the store of logs does not answer")??;
    Ok(())
}

#[async_trait]
impl Observer for History {
    async fn recorded(&self, plane: &PlaneId, namespace_uid: &str, run: &DAGRun) -> Result<(), Error> {
        self.record(records_of(plane.as_str(), namespace_uid, run)).await
    }

    async fn pod_ended(&self, client: &Client, run: &Key, pod: &str, run_uid: &str) -> Result<(), Error> {
        let Some(files) = &self.logs else { return Ok(()) };
        let Some(object) = client.get_opt(&PODS, run.ns(), pod).await? else { return Ok(()) };
        let Some(of) = self.about(client, run, run_uid).await? else { return Ok(()) };
        for container in containers_of(&object) {
            let kept = match self.keep_log(files, client, run, &object, &container).await {
                Ok(kept) => kept,
                Err(error) if is_gone(&error) => continue,
                Err(error) => return Err(error),
            };
            let record = log_record(run, &object, &of, &container, kept);
            self.recorder.record(record).await?;
        }
        Ok(())
    }
}

/// What logs of a run are kept by.
struct About {
    uid: String,
    created_at: i64,
    namespace_uid: String,
}

impl History {
    /// What the logs of a run are kept by; `None` where it is gone.
    async fn about(&self, client: &Client, run: &Key, uid: &str) -> Result<Option<About>, Error> {
        let found = client.get_opt(&RUNS, run.ns(), &run.name).await?;
        let Some(found) = found.filter(|found| found["metadata"]["uid"] == uid) else { return Ok(None) };
        let created = found["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        let namespace_uid = namespace_uid(client, &run.namespace, created).await?;
        Ok(namespace_uid.zip(millis(Some(created))).map(|(namespace_uid, created_at)| About {
            uid: uid.to_owned(),
            created_at,
            namespace_uid,
        }))
    }
}

/// Whether a container has no log, or its Pod is gone.
fn is_gone(error: &Error) -> bool {
    error
        .downcast_ref::<freehold_client::Error>()
        .is_some_and(|error| error.is_not_found() || error.code() == 400)
}

/// The containers of a Pod that began.
fn containers_of(pod: &Value) -> Vec<String> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    let statuses = lists.iter().flat_map(|list| pod["status"][*list].as_array().into_iter().flatten());
    let began = statuses.filter(|status| {
        status["state"]["running"].is_object() || status["state"]["terminated"]["startedAt"].is_string()
    });
    began.filter_map(|status| status["name"].as_str().map(str::to_owned)).collect()
}

fn log_record(run: &Key, pod: &Value, of: &About, container: &str, kept: (String, u64, u64)) -> LogRecord {
    let metadata = &pod["metadata"];
    let node = metadata["annotations"][names::NODE].as_str().unwrap_or_default();
    let (location, bytes, lines) = kept;
    LogRecord {
        plane: run.plane.to_string(),
        namespace: run.namespace.to_string(),
        namespace_uid: of.namespace_uid.clone(),
        run: of.uid.clone(),
        run_created_at: of.created_at,
        task: metadata["labels"][names::TASK].as_str().unwrap_or(&run.name).to_owned(),
        attempt: node.rsplit('.').next().and_then(|attempt| attempt.parse().ok()).unwrap_or(0),
        restart: 0,
        pod: metadata["name"].as_str().unwrap_or_default().to_owned(),
        pod_uid: metadata["uid"].as_str().unwrap_or_default().to_owned(),
        container: container.to_owned(),
        location,
        bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        lines: i64::try_from(lines).unwrap_or(i64::MAX),
        complete: true,
    }
}

fn millis(text: Option<&str>) -> Option<i64> {
    text?.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_millisecond)
}

fn phase(phase: freehold_workflow_api::Phase) -> Phase {
    use freehold_workflow_api::Phase as Api;
    match phase {
        Api::Pending => Phase::Pending,
        Api::Queued => Phase::Queued,
        Api::Running => Phase::Running,
        Api::Suspended => Phase::Suspended,
        Api::Succeeded => Phase::Succeeded,
        Api::Failed => Phase::Failed,
        Api::Skipped => Phase::Skipped,
        Api::Stopped => Phase::Stopped,
    }
}

/// The records of a run's status: the run, and the tasks that the status shows.
fn records_of(plane: &str, namespace_uid: &str, run: &DAGRun) -> Vec<Record> {
    let (metadata, status) = (&run.metadata, &run.status);
    let now = jiff::Timestamp::now().as_millisecond();
    let created_at = millis(metadata.creation_timestamp.as_deref()).unwrap_or(now);
    let restart = run.spec.retry.as_ref().map_or(0, |retry| i64::from(retry.count));
    let is_over = status.phase.is_over();
    let parameters: serde_json::Map<String, Value> = run
        .spec
        .parameters
        .iter()
        .filter_map(|given| Some((given.name.clone(), given.value.clone()?)))
        .collect();
    let counts = &status.counts;
    let record = RunRecord {
        plane: plane.to_owned(),
        namespace: metadata.namespace.clone(),
        namespace_uid: namespace_uid.to_owned(),
        uid: metadata.uid.clone(),
        name: metadata.name.clone(),
        dag: run.spec.dag.clone(),
        phase: phase(status.phase),
        reason: status.reason.clone(),
        message: status.message.clone(),
        trigger: trigger(run).to_owned(),
        restart,
        revision: now,
        created_at,
        started_at: millis(status.started_at.as_deref()),
        ended_at: is_over.then(|| millis(status.finished_at.as_deref()).unwrap_or(now)),
        counts: Counts {
            total: counts.total.into(),
            succeeded: counts.succeeded.into(),
            failed: counts.failed.into(),
            skipped: counts.skipped.into(),
        },
        parameters: if parameters.is_empty() { String::new() } else { Value::Object(parameters).to_string() },
    };
    let tasks = status.tasks.iter().filter(|task| task.started_at.is_some() || task.phase.is_over());
    let tasks = tasks.map(|task| Record::Task(task_record(&record, task, now)));
    std::iter::once(Record::Run(record.clone())).chain(tasks.collect::<Vec<_>>()).collect()
}

fn trigger(run: &DAGRun) -> &'static str {
    if run.metadata.annotations.contains_key(names::TICK) {
        "schedule"
    } else if run.metadata.owner_references.iter().any(|owner| owner.kind == "DAGRun") {
        "dag"
    } else {
        "user"
    }
}

fn task_record(run: &RunRecord, task: &TaskStatus, now: i64) -> TaskRecord {
    TaskRecord {
        plane: run.plane.clone(),
        namespace: run.namespace.clone(),
        namespace_uid: run.namespace_uid.clone(),
        run: run.uid.clone(),
        run_created_at: run.created_at,
        task: task.name.clone(),
        restart: run.restart,
        attempt: task.attempt.into(),
        phase: phase(task.phase),
        reason: task.reason.clone(),
        message: task.message.clone(),
        pod: task.pod.clone(),
        pod_uid: String::new(),
        node: String::new(),
        exit_code: task.exit_code.map(i64::from),
        queued_at: None,
        started_at: millis(task.started_at.as_deref()),
        ended_at: task.phase.is_over().then(|| millis(task.finished_at.as_deref()).unwrap_or(now)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_becomes_a_run_and_its_attempts() {
        let run: DAGRun = serde_json::from_value(json!({
            "apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAGRun",
            "metadata": {"name": "r", "namespace": "n", "uid": "u", "creationTimestamp": "2026-11-24T10:00:00Z",
                "annotations": {names::TICK: "2026-11-24T10:00:00Z"}},
            "spec": {"dag": "d", "parameters": [{"name": "a", "value": 1}, {"name": "s", "valueFrom": {"secretKeyRef": {"name": "x", "key": "y"}}}]},
            "status": {"phase": "Failed", "startedAt": "2026-11-24T10:00:01Z", "finishedAt": "2026-11-24T10:00:09Z",
                "counts": {"total": 2, "failed": 1}, "tasks": [
                    {"name": "t", "phase": "Failed", "attempt": 1, "exitCode": 3, "startedAt": "2026-11-24T10:00:02Z", "finishedAt": "2026-11-24T10:00:08Z"},
                    {"name": "later", "phase": "Pending"}]},
        }))
        .unwrap();
        let records = records_of("p", "n1", &run);
        let (Record::Run(run), Record::Task(task)) = (&records[0], &records[1]) else {
            panic!("{records:?}")
        };
        assert_eq!(
            (records.len(), run.trigger.as_str(), run.duration_millis(), run.queue_millis()),
            (2, "schedule", Some(8000), Some(1000))
        );
        assert_eq!(run.parameters, "{\"a\":1}", "values of Secrets stay where they are");
        assert_eq!(
            (task.attempt, task.exit_code, task.ended_at),
            (1, Some(3), run.ended_at.map(|end| end - 1000))
        );
    }
}
