//! What the metrics of an autoscaler ask for, each by itself and all together.

use super::metrics::{Metrics, milli, selector};
use super::pods::{counted, requests};
use super::replicas::{Counted, Proposal, Target, Tolerances, of_average, of_pods, of_value};
use freehold_client::Client;
use freehold_controllers_context::object::{int, items, text};
use freehold_machinery::{
    Value, meta,
    quantity::{Format, Quantity},
};
use jiff::Timestamp;
use serde_json::json;

/// How far from its target a metric may be where the autoscaler does not say.
const TOLERANCE: f64 = 0.1;

/// What metrics are evaluated of.
pub(super) struct Situation<'a> {
    pub(super) client: &'a Client,
    pub(super) autoscaler: &'a Value,
    /// The selector of the target's pods, and these.
    pub(super) selector: &'a str,
    pub(super) pods: &'a [Value],
    /// How many replicas the target wants, and how many it counts.
    pub(super) current: i64,
    pub(super) counted: i64,
    pub(super) now: Timestamp,
}

/// The replicas that are wanted, and the metric that asks for most of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Evaluated {
    pub(super) replicas: i64,
    pub(super) metric: String,
}

/// Why a metric says nothing: the reason of an event, and a message.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failed {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// What one metric says: the replicas it asks for, its name, and its entry in the status.
struct Said {
    replicas: i64,
    name: String,
    status: Value,
}

/// Evaluates all metrics. The largest number counts; where some fail, fewer replicas than there are don't.
pub(super) async fn evaluate(
    situation: &Situation<'_>,
) -> (Result<Evaluated, String>, Vec<Value>, Vec<Failed>) {
    let specs = items(situation.autoscaler, "/spec/metrics");
    let (mut statuses, mut said, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    for spec in specs {
        match situation.one(spec).await {
            Ok(one) => {
                statuses.push(one.status);
                said.push(Evaluated { replicas: one.replicas, metric: one.name });
            }
            Err(failed) => {
                statuses.push(json!({"type": ""}));
                failures.push(failed);
            }
        }
    }
    (combine(said, &failures, specs.len(), situation.current), statuses, failures)
}

fn combine(said: Vec<Evaluated>, failures: &[Failed], all: usize, current: i64) -> Result<Evaluated, String> {
    // Of equal ones the first.
    let most = said.into_iter().reduce(|a, b| if b.replicas > a.replicas { b } else { a });
    match (most, failures.first()) {
        (Some(most), None) => Ok(most),
        (Some(most), Some(_)) if most.replicas >= current => Ok(most),
        (_, first) => {
            let first = first.map_or("there are none", |failed| failed.message.as_str());
            Err(format!("invalid metrics ({} invalid out of {all}), first error is: {first}", failures.len()))
        }
    }
}

impl Situation<'_> {
    async fn one(&self, spec: &Value) -> Result<Said, Failed> {
        let (reason, of, said) = match text(spec, "/type") {
            "Resource" => {
                let name = text(spec, "/resource/name");
                let said = self.resource(&spec["resource"], "resource", "").await;
                ("FailedGetResourceMetric", format!("{name} resource metric value"), said)
            }
            "ContainerResource" => {
                let container = text(spec, "/containerResource/container");
                let said = self.resource(&spec["containerResource"], "containerResource", container).await;
                ("FailedGetContainerResourceMetric", format!("{container} container metric value"), said)
            }
            "Pods" => {
                ("FailedGetPodsMetric", "pods metric value".to_owned(), self.of_pods(&spec["pods"]).await)
            }
            "Object" => (
                "FailedGetObjectMetric",
                "object metric value".to_owned(),
                self.of_object(&spec["object"]).await,
            ),
            "External" => {
                let name = text(spec, "/external/metric/name");
                let said = self.external(&spec["external"]).await;
                ("FailedGetExternalMetric", format!("{name} external metric value"), said)
            }
            other => {
                let message = format!("unknown metric source type {other:?}");
                return Err(Failed { reason: "InvalidMetricSourceType", message });
            }
        };
        said.map_err(|why| Failed { reason, message: format!("failed to get {of}: {why}") })
    }

    fn metrics(&self) -> Metrics<'_> {
        Metrics { client: self.client, namespace: meta::namespace(self.autoscaler) }
    }

    fn tolerances(&self) -> Tolerances {
        let of = |direction: &str| {
            let text =
                text(&self.autoscaler["spec"]["behavior"][direction], "/tolerance").parse::<Quantity>();
            text.map_or(TOLERANCE, |quantity| quantity.as_f64())
        };
        Tolerances { down: of("scaleDown"), up: of("scaleUp") }
    }

    fn counted_pods(&self) -> Vec<Counted> {
        self.pods.iter().map(counted).collect()
    }

    fn ready(&self) -> i64 {
        i64::try_from(self.counted_pods().iter().filter(|pod| pod.is_ready).count()).unwrap_or(0)
    }

    async fn resource(&self, of: &Value, field: &str, container: &str) -> Result<Said, String> {
        let (resource, pods) = (text(of, "/name"), self.counted_pods());
        let average = milli(&of["target"]["averageValue"]);
        let percent = int(of, "/target/averageUtilization");
        let about = if average.is_some() { "usage" } else { "utilization" };
        let failed = |why: String| format!("failed to get {resource} {about}: {why}");
        let unable = |why: String| failed(format!("unable to get metrics for resource {resource}: {why}"));
        let samples = self.metrics().resource(self.selector, resource, container).await.map_err(unable)?;
        let target = match (average, percent) {
            (Some(average), _) => Target::Average(average),
            (None, Some(percent)) => {
                let requests = requests(self.pods, container, resource).map_err(failed)?;
                Target::Utilization { percent, requests }
            }
            (None, None) => {
                return Err(
                    "invalid resource metric source: neither an average utilization target nor an average \
                            value (usage) target was set"
                        .to_owned(),
                );
            }
        };
        let there = (self.current, resource == "cpu");
        let proposal =
            of_pods(&pods, samples, &target, there, self.tolerances(), self.now).map_err(failed)?;
        let format = if resource == "memory" { Format::BinarySi } else { Format::DecimalSi };
        let mut value = json!({"averageValue": quantity(proposal.usage, format)});
        let mut name = format!("{resource} resource");
        if let Some(utilization) = proposal.utilization {
            value["averageUtilization"] = utilization.into();
            let kind = if container.is_empty() { "resource" } else { "container resource" };
            name = format!("{resource} {kind} utilization (percentage of request)");
        }
        let mut status = json!({"name": resource, "current": value});
        if !container.is_empty() {
            status["container"] = container.into();
        }
        let type_ = if container.is_empty() { "Resource" } else { "ContainerResource" };
        let mut entry = json!({ "type": type_ });
        entry[field] = status;
        Ok(Said { replicas: proposal.replicas, name, status: entry })
    }

    async fn of_pods(&self, of: &Value) -> Result<Said, String> {
        let name = text(of, "/metric/name");
        let by = selector(&of["metric"]["selector"])?;
        let samples = self.metrics().pods(self.selector, name, &by).await;
        let samples = samples.map_err(|why| format!("unable to get metric {name}: {why}"))?;
        let target = Target::Average(target(of, "averageValue")?);
        let there = (self.current, false);
        let Proposal { replicas, usage, .. } =
            of_pods(&self.counted_pods(), samples, &target, there, self.tolerances(), self.now)?;
        let current = json!({"averageValue": quantity(usage, Format::DecimalSi)});
        let status = json!({"type": "Pods", "pods": {"metric": of["metric"], "current": current}});
        Ok(Said { replicas, name: format!("pods metric {name}"), status })
    }

    async fn of_object(&self, of: &Value) -> Result<Said, String> {
        let (name, object) = (text(of, "/metric/name"), &of["describedObject"]);
        let by = selector(&of["metric"]["selector"])?;
        let usage = self.metrics().object(object, name, &by).await.map_err(|why| {
            let namespace = meta::namespace(self.autoscaler);
            let (kind, whose) = (text(object, "/kind"), text(object, "/name"));
            format!("unable to get metric {name}: {kind} on {namespace} {whose}/{why}")
        })?;
        let (proposal, current) = self.propose(of, usage)?;
        let status = json!({"metric": of["metric"], "current": current, "describedObject": object});
        Ok(Said {
            replicas: proposal.replicas,
            name: format!("{} metric {name}", text(object, "/kind")),
            status: json!({"type": "Object", "object": status}),
        })
    }

    async fn external(&self, of: &Value) -> Result<Said, String> {
        let name = text(of, "/metric/name");
        let by = selector(&of["metric"]["selector"])?;
        let usage = self.metrics().external(name, &by).await;
        let namespace = meta::namespace(self.autoscaler);
        let usage =
            usage.map_err(|why| format!("unable to get external metric {namespace}/{name}: {why}"))?;
        let (proposal, current) = self.propose(of, usage)?;
        let status = json!({"type": "External", "external": {"metric": of["metric"], "current": current}});
        Ok(Said { replicas: proposal.replicas, name: format!("external metric {name}"), status })
    }

    /// What one value for all pods asks for, and what the status tells of it.
    fn propose(&self, of: &Value, usage: i64) -> Result<(Proposal, Value), String> {
        if of["target"]["averageValue"].is_null() {
            let target = target(of, "value")?;
            let proposal = of_value(usage, target, self.current, self.ready(), self.tolerances());
            return Ok((proposal, json!({"value": quantity(proposal.usage, Format::DecimalSi)})));
        }
        let proposal = of_average(usage, target(of, "averageValue")?, self.counted, self.tolerances());
        Ok((proposal, json!({"averageValue": quantity(proposal.usage, Format::DecimalSi)})))
    }
}

/// A target of a metric, in thousandths.
fn target(of: &Value, field: &str) -> Result<i64, String> {
    let value = milli(&of["target"][field]).filter(|value| *value > 0);
    value.ok_or_else(|| "neither a value target nor an average value target was set".to_owned())
}

fn quantity(milli: i64, format: Format) -> String {
    Quantity::from_milli(milli, format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_counts_and_failures_keep_a_target_from_shrinking() {
        let said = |list: &[(i64, &str)]| -> Vec<Evaluated> {
            list.iter()
                .map(|(replicas, metric)| Evaluated { replicas: *replicas, metric: (*metric).into() })
                .collect()
        };
        let failed = [Failed { reason: "R", message: "why".into() }];
        let name = |result: Result<Evaluated, String>| result.map(|e| e.metric);
        assert_eq!(name(combine(said(&[(2, "a"), (5, "b"), (5, "c")]), &[], 3, 4)), Ok("b".to_owned()));
        assert_eq!(name(combine(said(&[(5, "a")]), &failed, 2, 4)), Ok("a".to_owned()));
        let told = "invalid metrics (1 invalid out of 2), first error is: why".to_owned();
        assert_eq!(combine(said(&[(3, "a")]), &failed, 2, 4), Err(told));
        assert!(combine(vec![], &failed, 1, 4).is_err());
    }
}
