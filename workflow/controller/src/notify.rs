//! Webhooks at the ends of runs.
//!
//! What is still to be delivered stands in the status of the run, from the write that says that the run is over: a restart
//! loses nothing. A delivery is taken out when its server has answered; one that dies between has its id twice, by which
//! receivers tell. Each is tried for a day. A run is not deleted by its history or age before.

use crate::kinds::{RUNS, SECRETS};
use crate::runs::Runs;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use freehold_client::{Client, Error, Patch, PatchOptions};
use freehold_machinery::{Value, time};
use freehold_runtime::{Controller, EventType, Key, Outcome, Presence, Reconciled, Scope};
use freehold_workflow_api::{DAGRun, Delivery, Phase, RunWebhook};
use freehold_workflow_engine::{Plan, names::digest};
use freehold_workflow_outbound::{Body, Outbound, Request, signature};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use jiff::Timestamp;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Notifications of one plane that are sent at once.
const WORKERS: usize = 8;
/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(15);
/// How long it is tried.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// How long it is waited before the second attempt, and the longest wait.
const WAITS: (u64, u64) = (5, 3600);
/// Characters of a failure that the status keeps.
const MAX_MESSAGE: usize = 200;

/// What is to be delivered at a run's end.
pub(crate) fn deliveries(plan: &Plan, uid: &str, restart: u32, phase: Phase) -> Vec<Delivery> {
    let webhooks = plan.spec().notifications.iter().flat_map(|notifications| &notifications.webhooks);
    let wanted = (0u32..).zip(webhooks).filter(|(_, webhook)| webhook.on.includes(phase == Phase::Succeeded));
    let made = wanted.map(|(n, _)| Delivery {
        id: format!("msg_{}", digest(&[uid, &restart.to_string(), &n.to_string()])),
        webhook: n,
        ..Delivery::default()
    });
    made.collect()
}

/// Starts the controller of notifications.
pub(crate) fn start(scope: &Scope, runs: Arc<Runs>) {
    let controller = Controller::new("workflow-notify", runs.notify_queue.clone())
        .workers(WORKERS)
        .metrics(&scope.metrics);
    let token = scope.token.clone();
    scope.tasks.spawn(async move {
        if !runs.runs.synced(&token).await {
            return;
        }
        controller.run(token, move |key| work(runs.clone(), key)).await;
    });
}

/// Delivers what a run's end is told by, if its plane and its share of the work are here.
async fn work(runs: Arc<Runs>, key: Key) -> Reconciled {
    match runs.planes.presence(&key.plane) {
        Presence::Arriving => return Ok(Outcome::After(Duration::from_millis(100))),
        Presence::Here if !runs.planes.is_handed_over(&key.plane) => {}
        _ => return Ok(Outcome::Done),
    }
    let (planes, plane) = (runs.planes.clone(), key.plane.clone());
    let working = planes.work(&plane, runs.options.shared(&key, runs.deliver(&key)));
    // What others have they deliver; what comes later is looked at again.
    working.await.flatten().unwrap_or(Ok(Outcome::Done))
}

/// What became of an attempt.
enum Attempt {
    Delivered,
    /// It is tried again.
    Failed(String),
    /// It is not.
    Refused(String),
}

impl Runs {
    async fn deliver(&self, key: &Key) -> Reconciled {
        let Some(view) = self.runs.get(key).filter(|view| view.untold && view.over) else {
            return Ok(Outcome::Done);
        };
        let client = self.client(key);
        let Some(object) = client.get_opt(&RUNS, key.ns(), &key.name).await? else {
            return Ok(Outcome::Done);
        };
        let Ok(run) = serde_json::from_value::<DAGRun>(object) else { return Ok(Outcome::Done) };
        // While it runs again, its end is not to be told.
        if run.metadata.uid != view.uid || run.status.deliveries.is_empty() || !run.status.phase.is_over() {
            return Ok(Outcome::Done);
        }
        let plan = match self.definitions.again(&client, key, &run, &run.status.revision).await {
            Ok((plan, _)) => Some(plan),
            Err(crate::definition::Problem::Failed(error)) => return Err(error.into()),
            Err(_) => None,
        };
        let webhooks = plan.iter().flat_map(|plan| &plan.spec().notifications).flat_map(|n| &n.webhooks);
        let webhooks: Vec<&RunWebhook> = webhooks.collect();
        let ended = run.status.finished_at.as_deref().and_then(time::parse).unwrap_or_default();
        let (mut left, mut next): (Vec<Delivery>, Option<Duration>) = (Vec::new(), None);
        let mut tried = false;
        for mut delivery in run.status.deliveries.clone() {
            let now = Timestamp::now();
            let due = delivery.next_attempt.as_deref().and_then(time::parse).unwrap_or(now);
            let mut wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
            // One at a time, so that servers that hang hold up no other run's.
            if wait.is_zero() && tried {
                wait = Duration::from_millis(100);
            }
            if !wait.is_zero() {
                next = Some(next.map_or(wait, |next| next.min(wait)));
                left.push(delivery);
                continue;
            }
            tried = true;
            let attempt = match webhooks.get(delivery.webhook as usize) {
                Some(webhook) => self.attempt(&client, key, &run, webhook, &delivery).await?,
                None => Attempt::Refused("its definition is gone".into()),
            };
            let is_late = now.duration_since(ended).unsigned_abs() > PATIENCE;
            match attempt {
                Attempt::Delivered => self.figures.notifications.delivered.add(),
                Attempt::Failed(why) if !is_late => {
                    self.figures.notifications.failed.add();
                    let wait = backoff(&delivery);
                    next = Some(next.map_or(wait, |next| next.min(wait)));
                    delivery.attempts += 1;
                    let at = now
                        .checked_add(jiff::SignedDuration::try_from(wait).unwrap_or_default())
                        .unwrap_or(now);
                    delivery.next_attempt = Some(time::format_seconds(at));
                    delivery.message = why.chars().take(MAX_MESSAGE).collect();
                    left.push(delivery);
                }
                Attempt::Failed(why) | Attempt::Refused(why) => {
                    self.figures.notifications.dropped.add();
                    self.tell(&client, &run, &why).await;
                }
            }
        }
        self.put_deliveries(&client, key, &run, &left).await?;
        Ok(next.map_or(Outcome::Done, Outcome::After))
    }

    async fn attempt(
        &self,
        client: &Client,
        key: &Key,
        run: &DAGRun,
        webhook: &RunWebhook,
        delivery: &Delivery,
    ) -> Result<Attempt, Error> {
        let body = body(run).to_string();
        let seconds = Timestamp::now().as_second();
        let mut headers = HeaderMap::new();
        let mut add = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        add("content-type", "application/json");
        add("webhook-id", &delivery.id);
        add("webhook-timestamp", &seconds.to_string());
        if let Some(source) = &webhook.secret_key_ref {
            let found = client.get_opt(&SECRETS, key.ns(), &source.name).await?;
            let text = found.as_ref().and_then(|secret| secret["data"][&source.key].as_str());
            let secret = text.and_then(|text| BASE64.decode(text).ok());
            let Some(secret) = secret.filter(|secret| !secret.is_empty()) else {
                return Ok(Attempt::Failed(format!("Secret {:?} has no key {:?}", source.name, source.key)));
            };
            let secret = signature::key(&String::from_utf8_lossy(&secret));
            add("webhook-signature", &signature::sign(&secret, &delivery.id, seconds, body.as_bytes()));
        }
        let request = Request {
            headers,
            body: Body::Bytes(body.into()),
            ..Request::new(Method::POST, webhook.url.as_str())
        };
        let outbound = self.outbound.on_behalf_of(key.plane.as_str());
        Ok(match tokio::time::timeout(TIMEOUT, outbound.send(request)).await {
            Err(_) => Attempt::Failed("no answer in time".into()),
            // What the server says is not repeated: it may be of a network that only the controllers see.
            Ok(Err(error)) => Attempt::Failed(error.to_string()),
            Ok(Ok(answer)) if answer.status.is_success() => Attempt::Delivered,
            Ok(Ok(answer)) if answer.status == StatusCode::GONE => {
                Attempt::Refused("the server wants no more (410)".into())
            }
            Ok(Ok(answer)) => Attempt::Failed(format!("the server answered {}", answer.status)),
        })
    }

    /// Writes what is left to be delivered, unless the run has begun again meanwhile.
    async fn put_deliveries(
        &self,
        client: &Client,
        key: &Key,
        run: &DAGRun,
        left: &[Delivery],
    ) -> Result<(), Error> {
        if run.status.deliveries == left {
            return Ok(());
        }
        let value = match left.is_empty() {
            true => json!({"op": "remove", "path": "/status/deliveries"}),
            false => json!({"op": "replace", "path": "/status/deliveries", "value": left}),
        };
        let patch = Patch::Json(json!([
            {"op": "test", "path": "/metadata/uid", "value": run.metadata.uid},
            {"op": "test", "path": "/status/deliveries", "value": run.status.deliveries},
            value,
        ]));
        match client.patch(&RUNS, key.ns(), &key.name, &patch, &PatchOptions::status()).await {
            Err(error) if error.is_not_found() || error.code() == 422 => Ok(()),
            written => written.map(drop),
        }
    }

    /// Says that a notification was given up.
    async fn tell(&self, client: &Client, run: &DAGRun, why: &str) {
        let about = json!({
            "apiVersion": RUNS.api_version(), "kind": "DAGRun",
            "metadata": {"name": run.metadata.name, "namespace": run.metadata.namespace, "uid": run.metadata.uid},
        });
        let message = format!("a notification was given up: {why}");
        self.recorder.event(client, &about, EventType::Warning, "NotificationFailed", &message).await;
    }
}

/// How long it is waited after a failed attempt: three times as long each time, a little spread.
fn backoff(delivery: &Delivery) -> Duration {
    let seconds = WAITS.0.saturating_mul(3u64.saturating_pow(delivery.attempts.min(20))).min(WAITS.1);
    let spread = delivery.id.bytes().map(u64::from).sum::<u64>() % 10;
    Duration::from_millis(seconds * (1000 + spread * 10))
}

/// What a server is told.
fn body(run: &DAGRun) -> Value {
    let (metadata, status) = (&run.metadata, &run.status);
    json!({
        "type": if status.phase == Phase::Succeeded { "workflow.run.succeeded" } else { "workflow.run.failed" },
        "timestamp": status.finished_at,
        "data": {
            "namespace": metadata.namespace, "run": metadata.name, "uid": metadata.uid, "dag": run.spec.dag,
            "phase": status.phase, "reason": status.reason, "message": status.message,
            "startedAt": status.started_at, "finishedAt": status.finished_at,
            "counts": status.counts, "tasks": status.tasks,
        },
    })
}

/// A client for servers that tenants name.
pub(crate) fn outbound(options: &crate::Options) -> Outbound {
    Outbound::new(options.networks.clone(), "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::from_value;

    #[test]
    fn each_end_of_a_run_has_deliveries_of_its_own() {
        let spec = json!({
            "tasks": [{"name": "a", "image": "i"}],
            "notifications": {"webhooks": [{"url": "https://a.example"}, {"url": "https://b.example", "on": "Failure"}]},
        });
        let plan = Plan::compile(from_value(spec).unwrap()).unwrap();
        let first = deliveries(&plan, "u", 0, Phase::Succeeded);
        let failed = deliveries(&plan, "u", 1, Phase::Failed);
        assert_eq!((first.len(), failed.len()), (1, 2));
        assert_ne!(first[0].id, failed[0].id);
        assert_eq!(first, deliveries(&plan, "u", 0, Phase::Succeeded), "a second controller makes the same");
        let waits: Vec<u64> =
            (0..8).map(|attempts| backoff(&Delivery { attempts, ..Delivery::default() }).as_secs()).collect();
        assert_eq!(waits, [5, 15, 45, 135, 405, 1215, 3600, 3600]);
    }
}
