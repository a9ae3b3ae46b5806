//! A trace of each run in OpenTelemetry's protocol: the run is a span, each attempt of a task one below it.
//!
//! Sent as OTLP/HTTP in JSON to one collector that the operator names, in batches. Traces that do not get there are dropped and
//! counted: runs do not wait for them.
//!
//! <https://opentelemetry.io/docs/specs/otlp/#otlphttp>

use crate::figures::Figures;
use freehold_machinery::{PlaneId, Value, time};
use freehold_workflow_api::{DAGRun, Phase};
use freehold_workflow_outbound::{Body, Outbound, Request, sign::sha256};
use http::{HeaderValue, Method};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Runs that wait to be sent.
const WAITING: usize = 1024;
/// Runs of one request.
const BATCH: usize = 64;
/// How long a request may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often it is tried.
const ATTEMPTS: u32 = 3;

/// Takes runs that are over.
#[derive(Debug)]
pub(crate) struct Tracer {
    sender: mpsc::Sender<Value>,
}

impl Tracer {
    /// Starts sending to a collector (`http://collector:4318`), wherever it is: the operator names it. `None` for an empty text.
    pub(crate) fn for_operator(
        endpoint: &str,
        figures: &Arc<Figures>,
        token: &CancellationToken,
    ) -> Option<Self> {
        if endpoint.is_empty() {
            return None;
        }
        let outbound = Outbound::new("any".parse().unwrap_or_default(), "");
        let (sender, receiver) = mpsc::channel(WAITING);
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        tokio::spawn(send(url, outbound, figures.clone(), receiver, token.clone()));
        Some(Self { sender })
    }

    /// Sends the trace of a run, if there is room.
    pub(crate) fn trace(&self, plane: &PlaneId, run: &DAGRun, figures: &Figures) {
        if self.sender.try_send(spans(plane, run).into()).is_err() {
            figures.traces.dropped.add();
        }
    }
}

async fn send(
    url: String,
    outbound: Outbound,
    figures: Arc<Figures>,
    mut receiver: mpsc::Receiver<Value>,
    token: CancellationToken,
) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let count = tokio::select! {
            count = receiver.recv_many(&mut batch, BATCH) => count,
            () = token.cancelled() => return,
        };
        if count == 0 {
            return;
        }
        let spans: Vec<Value> =
            batch.drain(..).flat_map(|spans| spans.as_array().cloned().unwrap_or_default()).collect();
        let body = export(&spans).to_string();
        let mut wait = Duration::from_millis(500);
        for attempt in 1..=ATTEMPTS {
            let mut request = Request {
                body: Body::Bytes(body.clone().into()),
                ..Request::new(Method::POST, url.as_str())
            };
            request.headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let sent = async { outbound.send(request).await?.succeeded().await };
            let failed = match tokio::time::timeout(TIMEOUT, sent).await {
                Ok(Ok(_)) => {
                    (0..count).for_each(|_| figures.traces.delivered.add());
                    break;
                }
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            figures.traces.failed.add();
            if attempt == ATTEMPTS {
                (0..count).for_each(|_| figures.traces.dropped.add());
                tracing::warn!(url, error = failed, runs = count, "failed to send traces; they are dropped");
                break;
            }
            tokio::time::sleep(wait).await;
            wait *= 4;
        }
    }
}

/// One request of the protocol.
fn export(spans: &[Value]) -> Value {
    json!({"resourceSpans": [{
        "resource": {"attributes": [text("service.name", "freehold-workflow")]},
        "scopeSpans": [{"scope": {"name": "freehold-workflow", "version": env!("CARGO_PKG_VERSION")}, "spans": spans}],
    }]})
}

fn text(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// So many hexadecimal digits that follow from words.
fn id(words: &[&str], digits: usize) -> String {
    let mut id = sha256(words.join("\n").as_bytes());
    id.truncate(digits);
    id
}

/// The spans of a run: those of tasks that its status shows, and its own.
fn spans(plane: &PlaneId, run: &DAGRun) -> Vec<Value> {
    let (metadata, status) = (&run.metadata, &run.status);
    let restart = run.spec.retry.as_ref().map_or(0, |retry| retry.count).to_string();
    let trace = id(&[&metadata.uid, &restart], 32);
    let root = id(&[&metadata.uid, &restart, "run"], 16);
    let nanos =
        |at: &Option<String>| at.as_deref().and_then(time::parse).map(|at| at.as_nanosecond().to_string());
    let state = |phase: Phase, message: &str| match phase {
        Phase::Succeeded => json!({"code": 1}),
        Phase::Failed => json!({"code": 2, "message": message}),
        _ => json!({}),
    };
    let mut all = Vec::with_capacity(status.tasks.len() + 1);
    let end = nanos(&status.finished_at);
    all.push(json!({
        "traceId": trace, "spanId": root, "kind": 1,
        "name": if run.spec.dag.is_empty() { &metadata.name } else { &run.spec.dag },
        "startTimeUnixNano": nanos(&status.started_at).or_else(|| end.clone()), "endTimeUnixNano": end,
        "status": state(status.phase, &status.message),
        "attributes": [
            text("k8s.namespace.name", &metadata.namespace), text("workflow.plane", plane.as_str()),
            text("workflow.dag", &run.spec.dag), text("workflow.run", &metadata.name), text("workflow.run.uid", &metadata.uid),
            text("workflow.phase", &format!("{:?}", status.phase)),
        ],
    }));
    for task in status.tasks.iter().filter(|task| task.started_at.is_some()) {
        let attempt = task.attempt.to_string();
        let mut attributes = vec![
            text("workflow.task", &task.name),
            text("workflow.phase", &format!("{:?}", task.phase)),
            json!({"key": "workflow.attempt", "value": {"intValue": attempt}}),
        ];
        if !task.pod.is_empty() {
            attributes.push(text("k8s.pod.name", &task.pod));
        }
        if let Some(code) = task.exit_code {
            attributes.push(json!({"key": "workflow.exit_code", "value": {"intValue": code.to_string()}}));
        }
        all.push(json!({
            "traceId": trace, "spanId": id(&[&metadata.uid, &restart, &task.name, &attempt], 16), "parentSpanId": root,
            "kind": 1, "name": task.name, "startTimeUnixNano": nanos(&task.started_at),
            "endTimeUnixNano": nanos(&task.finished_at).or_else(|| end.clone()),
            "status": state(task.phase, &task.message), "attributes": attributes,
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_span_with_its_tasks_below() {
        let run: DAGRun = serde_json::from_value(json!({
            "metadata": {"name": "r", "namespace": "n", "uid": "u"}, "spec": {"dag": "d"},
            "status": {"phase": "Failed", "message": "task a failed", "startedAt": "2026-11-24T10:00:00.5Z", "finishedAt": "2026-11-24T10:00:02Z",
                "tasks": [{"name": "a", "phase": "Failed", "startedAt": "2026-11-24T10:00:01Z", "finishedAt": "2026-11-24T10:00:02Z", "exitCode": 3, "pod": "p"},
                          {"name": "b", "phase": "Skipped"}]},
        }))
        .unwrap();
        let spans = spans(&"web".parse().unwrap(), &run);
        assert_eq!(spans.len(), 2);
        let (root, task) = (&spans[0], &spans[1]);
        let length = |value: &Value| value.as_str().unwrap().len();
        assert_eq!((length(&root["traceId"]), length(&root["spanId"])), (32, 16));
        assert!(root["traceId"].as_str().unwrap().bytes().all(|c| c.is_ascii_hexdigit()));
        assert_eq!((&task["parentSpanId"], &task["traceId"]), (&root["spanId"], &root["traceId"]));
        assert_ne!(task["spanId"], root["spanId"]);
        assert_eq!(root["startTimeUnixNano"], "1795514400500000000");
        assert_eq!(task["status"]["code"], 2);
        assert_eq!(export(&spans)["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().len(), 2);
    }
}
