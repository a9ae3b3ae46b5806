//! HorizontalPodAutoscalers: as many replicas as metrics ask for
//! (<https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/>).
//!
//! Each is looked at every 15 s. Pods and metrics are read then, and nothing of them is kept; what was recommended and done
//! lately is kept of each autoscaler that is there.

mod behavior;
mod evaluate;
mod metrics;
mod pods;
mod replicas;

use behavior::{History, Range, Said};
use evaluate::{Evaluated, Failed, Situation, evaluate};
use freehold_client::{Client, Error, ListOptions, PatchOptions, Resource};
use freehold_controllers_context::discovery::group_version;
use freehold_controllers_context::kinds::{AUTOSCALERS, PODS};
use freehold_controllers_context::object::{int, selects, status_patch, text};
use freehold_controllers_context::{Context, Reconcile};
use freehold_machinery::{Value, meta, selector::Labels};
use freehold_runtime::{
    EventType, Informer, Interest, Key, Outcome, Planes, Queue, Reconciled, Recorder, Store, conditions,
};
use jiff::Timestamp;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often each autoscaler is looked at.
const PERIOD: Duration = Duration::from_secs(15);

struct Autoscalers {
    planes: Planes,
    autoscalers: Store<Value>,
    kept: Mutex<HashMap<Key, Kept>>,
    recorder: Recorder,
}

/// What is kept of an autoscaler.
#[derive(Default)]
struct Kept {
    history: History,
    /// The pods that its target has.
    selector: Option<Labels>,
}

/// The scale of a target, with the resource that it is of.
struct Target {
    resource: Resource,
    scale: Value,
}

/// What is to be done with a target, and why.
struct Wanted {
    replicas: i64,
    reason: String,
    scales: bool,
}

/// A status that is being made.
struct Telling<'a> {
    client: &'a Client,
    autoscaler: &'a Value,
    status: Value,
    now: Timestamp,
}

/// Starts the controller.
pub(crate) fn start(context: &mut Context) {
    let queue = Queue::new();
    let mut informer = Informer::new(&context.planes, Interest::objects(AUTOSCALERS));
    let on_changes = queue.clone();
    informer.on_change(move |change| {
        let spec = |object: &Option<std::sync::Arc<Value>>| object.as_ref().map(|o| o["spec"].clone());
        // Its own status is no news; the next look is due anyway.
        if change.old.is_none() || spec(&change.old) != spec(&change.new) {
            on_changes.add(change.key.clone());
        }
    });
    let autoscalers = context.run_informer(informer);
    context.resync(&autoscalers, &queue);
    let controller = Autoscalers {
        planes: context.planes.clone(),
        autoscalers: autoscalers.clone(),
        kept: Mutex::default(),
        recorder: Recorder::new("horizontal-pod-autoscaler"),
    };
    context.control("horizontal-pod-autoscaler", 4, &queue, &[&autoscalers], controller);
}

impl Reconcile for Autoscalers {
    type Key = Key;

    async fn reconcile(&self, key: Key) -> Reconciled {
        let Some(autoscaler) = self.autoscalers.get(&key) else {
            self.kept().remove(&key);
            return Ok(Outcome::Done);
        };
        let client = self.planes.client(&key.plane);
        let mut telling = Telling::of(&client, &autoscaler);
        if let Err(error) = self.scale(&key, &mut telling).await {
            tracing::debug!(?key, %error, "failed to autoscale");
        }
        if telling.status != autoscaler["status"] {
            let options = PatchOptions::status();
            let patch = status_patch(&telling.status);
            match client.patch(&AUTOSCALERS, key.ns(), &key.name, &patch, &options).await {
                Err(error) if !error.is_not_found() => {
                    telling.warn(&self.recorder, "FailedUpdateStatus", &error.to_string()).await;
                }
                _ => {}
            }
        }
        Ok(Outcome::After(PERIOD))
    }
}

impl Autoscalers {
    fn kept(&self) -> MutexGuard<'_, HashMap<Key, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at one autoscaler and scales its target; the status tells what came of it.
    async fn scale(&self, key: &Key, telling: &mut Telling<'_>) -> Result<(), String> {
        let target = match read_target(telling.client, telling.autoscaler).await {
            Ok(target) => target,
            Err(why) => {
                telling.warn(&self.recorder, "FailedGetScale", &why).await;
                let message =
                    format!("the HPA controller was unable to get the target's current scale: {why}");
                telling.set("AbleToScale", false, "FailedGetScale", &message);
                return Err(why);
            }
        };
        let message = "the HPA controller was able to get the target's current scale";
        telling.set("AbleToScale", true, "SucceededGetScale", message);
        let current = int(&target.scale, "/spec/replicas").unwrap_or(0);
        self.kept().entry(key.clone()).or_default().history.begin(current, telling.now);
        telling.status["currentReplicas"] = current.into();
        telling.status["desiredReplicas"] = int(&telling.status, "/desiredReplicas").unwrap_or(0).into();
        telling.status["currentMetrics"] = Value::Null;
        let wanted = self.wanted(key, &target, current, telling).await?;
        if !wanted.scales {
            telling.status["desiredReplicas"] = current.into();
            return Ok(());
        }
        self.rescale(key, target, current, &wanted, telling).await
    }

    async fn wanted(
        &self,
        key: &Key,
        target: &Target,
        current: i64,
        telling: &mut Telling<'_>,
    ) -> Result<Wanted, String> {
        let spec = &telling.autoscaler["spec"];
        let (least, most) = (int(spec, "/minReplicas").unwrap_or(1), int(spec, "/maxReplicas").unwrap_or(1));
        let at_once = |replicas, reason: &str| {
            Ok(Wanted { replicas, reason: format!("Current number of replicas {reason}"), scales: true })
        };
        match current {
            0 => {
                let message = "scaling is disabled since the replica count of the target is zero";
                telling.set("ScalingActive", false, "ScalingDisabled", message);
                return Ok(Wanted { replicas: 0, reason: String::new(), scales: false });
            }
            many if many > most => return at_once(most, "above Spec.MaxReplicas"),
            few if few < least => return at_once(least, "below Spec.MinReplicas"),
            _ => {}
        }
        let evaluated = self.evaluate(key, target, current, telling).await?;
        let behavior = &telling.autoscaler["spec"]["behavior"];
        let range = Range { least, most, current };
        let limited = {
            let mut kept = self.kept();
            let history = &mut kept.entry(key.clone()).or_default().history;
            history.limit(evaluated.replicas, range, behavior, telling.now)
        };
        telling.say("AbleToScale", limited.able);
        telling.say("ScalingLimited", limited.limited);
        let reason = match evaluated.replicas {
            more if more > current => format!("{} above target", evaluated.metric),
            less if less < current => "All metrics below target".to_owned(),
            _ => String::new(),
        };
        Ok(Wanted { replicas: limited.replicas, reason, scales: limited.replicas != current })
    }

    /// What all metrics together ask for.
    async fn evaluate(
        &self,
        key: &Key,
        target: &Target,
        current: i64,
        telling: &mut Telling<'_>,
    ) -> Result<Evaluated, String> {
        let (selector, pods) = self.select(key, target, telling).await?;
        let situation = Situation {
            client: telling.client,
            autoscaler: telling.autoscaler,
            selector: &selector,
            pods: &pods,
            current,
            counted: int(&target.scale, "/status/replicas").unwrap_or(0),
            now: telling.now,
        };
        let (evaluated, statuses, failures) = evaluate(&situation).await;
        for Failed { reason, message } in &failures {
            telling.warn(&self.recorder, reason, message).await;
        }
        telling.status["currentMetrics"] = statuses.into();
        match evaluated {
            Ok(evaluated) => {
                let message = format!(
                    "the HPA was able to successfully calculate a replica count from {}",
                    evaluated.metric
                );
                telling.set("ScalingActive", true, "ValidMetricFound", &message);
                Ok(evaluated)
            }
            Err(why) => {
                if let Some(Failed { reason, message }) = failures.first() {
                    let message = format!("the HPA was unable to compute the replica count: {message}");
                    telling.set("ScalingActive", false, reason, &message);
                }
                telling.warn(&self.recorder, "FailedComputeMetricsReplicas", &why).await;
                Err(why)
            }
        }
    }

    /// The pods of a target, which must be those of one autoscaler alone.
    async fn select(
        &self,
        key: &Key,
        target: &Target,
        telling: &mut Telling<'_>,
    ) -> Result<(String, Vec<Value>), String> {
        let selector = text(&target.scale, "/status/selector").to_owned();
        if selector.is_empty() {
            telling.warn(&self.recorder, "SelectorRequired", "selector is required").await;
            let message = "the HPA target's scale is missing a selector";
            telling.set("ScalingActive", false, "InvalidSelector", message);
            return Err("selector is required".to_owned());
        }
        let labels = match Labels::parse(&selector) {
            Ok(labels) => labels,
            Err(why) => {
                let message =
                    format!("couldn't convert selector into a corresponding internal selector object: {why}");
                telling.warn(&self.recorder, "InvalidSelector", &message).await;
                telling.set("ScalingActive", false, "InvalidSelector", &message);
                return Err(message);
            }
        };
        let options = ListOptions { label_selector: selector.clone(), ..ListOptions::default() };
        let pods = telling.client.list_all(&PODS, key.ns(), &options).await.map_err(|e| e.to_string())?.items;
        let names = self.selecting(key, labels, &pods);
        if names.len() > 1 {
            let message =
                format!("pods by selector {selector} are controlled by multiple HPAs: {}", names.join(", "));
            telling.warn(&self.recorder, "AmbiguousSelector", &message).await;
            telling.set("ScalingActive", false, "AmbiguousSelector", &message);
            return Err(message);
        }
        Ok((selector, pods))
    }

    /// The autoscalers of a namespace that select any of some pods.
    fn selecting(&self, key: &Key, labels: Labels, pods: &[Value]) -> Vec<String> {
        let others = self.autoscalers.in_namespace(&key.plane, &key.namespace);
        let mut kept = self.kept();
        kept.entry(key.clone()).or_default().selector = Some(labels);
        let selects_any = |key: &Key| {
            let selector = kept.get(key).and_then(|kept| kept.selector.as_ref());
            selector.is_some_and(|s| {
                pods.iter().any(|pod| selects(s, freehold_controllers_context::object::labels(pod)))
            })
        };
        let selecting = others.iter().filter(|(key, _)| selects_any(key));
        selecting.map(|(key, _)| format!("{}/{}", key.namespace, key.name)).collect()
    }

    async fn rescale(
        &self,
        key: &Key,
        target: Target,
        current: i64,
        wanted: &Wanted,
        telling: &mut Telling<'_>,
    ) -> Result<(), String> {
        let Target { resource, mut scale } = target;
        scale["spec"]["replicas"] = wanted.replicas.into();
        let Wanted { replicas, reason, .. } = wanted;
        if let Err(error) = telling.client.update_subresource(&resource, "scale", &scale).await {
            let message = format!("New size: {replicas}; reason: {reason}; error: {error}");
            telling.warn(&self.recorder, "FailedRescale", &message).await;
            let message = format!("the HPA controller was unable to update the target scale: {error}");
            telling.set("AbleToScale", false, "FailedUpdateScale", &message);
            return Err(error.to_string());
        }
        let message = format!("the HPA controller was able to update the target scale to {replicas}");
        telling.set("AbleToScale", true, "SucceededRescale", &message);
        let message = format!("New size: {replicas}; reason: {reason}");
        let (client, about) = (telling.client, telling.autoscaler);
        self.recorder.event(client, about, EventType::Normal, "SuccessfulRescale", &message).await;
        let behavior = &telling.autoscaler["spec"]["behavior"];
        self.kept().entry(key.clone()).or_default().history.scaled(current, *replicas, behavior, telling.now);
        telling.status["desiredReplicas"] = (*replicas).into();
        telling.status["lastScaleTime"] = freehold_machinery::time::format_seconds(telling.now).into();
        Ok(())
    }
}

impl<'a> Telling<'a> {
    fn of(client: &'a Client, autoscaler: &'a Value) -> Self {
        let status = autoscaler.get("status").cloned().unwrap_or_else(|| json!({}));
        Self { client, autoscaler, status, now: Timestamp::now() }
    }

    fn set(&mut self, type_: &str, status: bool, reason: &str, message: &str) {
        let status = if status { "True" } else { "False" };
        let set = conditions::Set { type_, status, reason, message, generation: None };
        conditions::set(&mut self.status["conditions"], set, self.now);
    }

    fn say(&mut self, type_: &str, said: Said) {
        self.set(type_, said.status, said.reason, said.message);
    }

    async fn warn(&self, recorder: &Recorder, reason: &str, message: &str) {
        recorder.event(self.client, self.autoscaler, EventType::Warning, reason, message).await;
    }
}

/// Reads the scale of an autoscaler's target.
async fn read_target(client: &Client, autoscaler: &Value) -> Result<Target, String> {
    let of = &autoscaler["spec"]["scaleTargetRef"];
    let (kind, name) = (text(of, "/kind"), text(of, "/name"));
    let version = if text(of, "/apiVersion").is_empty() { "v1" } else { text(of, "/apiVersion") };
    let types = match group_version(client, version).await {
        Err(error) if error.is_not_found() => Vec::new(),
        types => types.map_err(|error| error.to_string())?,
    };
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let unknown = || format!("no matches for kind {kind:?} in group {group:?}");
    let resource = types.into_iter().find(|one| one.kind == kind).ok_or_else(unknown)?.resource;
    let path = resource.object_path(Some(meta::namespace(autoscaler)), name, Some("scale"));
    let scale = client.get_path(&path).await.map_err(|error: Error| error.to_string())?;
    Ok(Target { resource, scale })
}
