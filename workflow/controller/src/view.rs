//! What the controllers keep of objects that they watch.

use crate::pods::MAIN;
use freehold_machinery::{Value, meta, time};
use freehold_workflow_api::{History, Phase, PodRetention, names};
use freehold_workflow_engine::{Failure, NodeId};

/// A run. Of one that is over only what its end needs is kept.
#[derive(Debug, PartialEq)]
pub(crate) struct RunView {
    pub(crate) uid: String,
    pub(crate) dag: String,
    pub(crate) over: bool,
    pub(crate) succeeded: bool,
    /// Seconds since 1970.
    pub(crate) ended: i64,
    /// The task of another run that it is for: that run's name, task and attempt.
    pub(crate) parent: Option<(String, NodeId, u32)>,
    /// The object, unless it is over and nobody wants it to be retried.
    pub(crate) object: Option<Value>,
    pub(crate) message: String,
    /// Whether it was made for a run of Kontroler's kind, of the same name.
    pub(crate) kontroler: bool,
    /// Whether somebody is still to be told of its end.
    pub(crate) untold: bool,
    /// How long it stays once it is over, of runs that bring their own definition.
    pub(crate) ttl: String,
}

impl RunView {
    pub(crate) fn of(object: Value) -> Option<Self> {
        let status = &object["status"];
        let phase: Phase = serde_json::from_value(status["phase"].clone()).unwrap_or_default();
        let retry = object["spec"]["retry"]["count"].as_u64().unwrap_or(0);
        let generation = object["metadata"]["generation"].as_i64();
        let seen = status["observedGeneration"].as_i64();
        let over = phase.is_over() && (retry == 0 || generation == seen);
        let owner = owner(&object, "DAGRun");
        let node = meta::annotation(&object, names::NODE).and_then(node);
        Some(Self {
            uid: meta::uid(&object).to_owned(),
            dag: object["spec"]["dag"].as_str().unwrap_or_default().to_owned(),
            over,
            succeeded: phase == Phase::Succeeded,
            ended: status["finishedAt"].as_str().and_then(time::parse).map_or(0, |at| at.as_second()),
            parent: owner.zip(node).map(|(run, (node, attempt))| (run.to_owned(), node, attempt)),
            message: if over {
                status["message"].as_str().unwrap_or_default().to_owned()
            } else {
                String::new()
            },
            kontroler: self::owner(&object, crate::kontroler::RUN_KIND).is_some(),
            untold: status["deliveries"].as_array().is_some_and(|deliveries| !deliveries.is_empty()),
            ttl: object["spec"]["dagSpec"]["ttl"].as_str().unwrap_or_default().to_owned(),
            object: (!over).then(|| slim(object)),
        })
    }
}

/// A run without what of its status is for people, or is read anew before it is used.
fn slim(mut object: Value) -> Value {
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        ["tasks", "conditions", "state"].iter().for_each(|field| drop(status.remove(*field)));
    }
    object
}

/// A DAG: what its next tick and the ends of its runs need. There may be a million of them; the rest is read when it is wanted.
#[derive(Debug, PartialEq)]
pub(crate) struct DagView {
    pub(crate) deleting: bool,
    /// Whether its definition has not changed since its status was written.
    pub(crate) settled: bool,
    /// Whether it was found to be invalid. A shared task that comes may mend that.
    pub(crate) invalid: bool,
    pub(crate) retention: PodRetention,
    /// How many ended runs are kept.
    pub(crate) successful: u32,
    pub(crate) failed: u32,
    /// The next tick in seconds since 1970; 0 without one.
    pub(crate) next: i64,
    /// How long runs stay once they are over.
    pub(crate) ttl: Box<str>,
}

impl DagView {
    pub(crate) fn of(object: &Value) -> Self {
        let (spec, status) = (&object["spec"], &object["status"]);
        let history: History = serde_json::from_value(spec["history"].clone()).unwrap_or_default();
        let seen = &status["observedGeneration"];
        let next = status["nextScheduled"].as_str().and_then(time::parse);
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        Self {
            deleting: meta::is_deleting(object),
            invalid: conditions.any(|of| of["type"] == "Valid" && of["status"] == "False"),
            settled: !seen.is_null() && *seen == object["metadata"]["generation"],
            retention: serde_json::from_value(spec["podRetention"].clone()).unwrap_or_default(),
            successful: history.successful,
            failed: history.failed,
            next: next.map_or(0, |at| at.as_second()),
            ttl: spec["ttl"].as_str().unwrap_or_default().into(),
        }
    }
}

/// The name of the controlling owner of a kind.
fn owner<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["kind"] == kind && owner["controller"] == true)?["name"].as_str()
}

/// Reads a task and an attempt, as an annotation has them.
fn node(text: &str) -> Option<(NodeId, u32)> {
    let (node, attempt) = text.rsplit_once('.')?;
    Some((node.parse().ok()?, attempt.parse().ok()?))
}

/// A Pod of a task.
#[derive(Debug, PartialEq)]
pub(crate) struct PodView {
    pub(crate) run: String,
    pub(crate) run_uid: String,
    pub(crate) revision: String,
    pub(crate) node: NodeId,
    pub(crate) attempt: u32,
    pub(crate) seen: PodSeen,
    /// Whether it has the finalizer of Pods whose end is not counted.
    pub(crate) held: bool,
    pub(crate) deleting: bool,
    /// Whether it has a Secret with the places of its artifacts.
    pub(crate) artifacts: bool,
    /// Whether containers of it may run though its task's ended.
    pub(crate) running: bool,
}

/// What a Pod's status says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PodSeen {
    Pending,
    Blocked {
        reason: String,
        message: String,
    },
    Running,
    /// With the termination message.
    Succeeded(String),
    Failed(Failure),
    Gone,
}

impl PodView {
    pub(crate) fn of(pod: &Value) -> Option<Self> {
        let (node, attempt) = node(meta::annotation(pod, names::NODE)?)?;
        Some(Self {
            run: owner(pod, "DAGRun")?.to_owned(),
            run_uid: meta::label(pod, names::RUN_UID)?.to_owned(),
            revision: meta::annotation(pod, crate::pods::REVISION).unwrap_or_default().to_owned(),
            node,
            attempt,
            seen: seen(pod),
            held: meta::finalizers(pod).contains(&names::COUNTED),
            deleting: meta::is_deleting(pod),
            artifacts: meta::annotation(pod, names::ARTIFACTS).is_some(),
            running: pod["status"]["phase"] == "Running",
        })
    }

    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.seen, PodSeen::Succeeded(_) | PodSeen::Failed(_) | PodSeen::Gone)
    }
}

/// Reasons for which a container waits and will not start as it is.
const BLOCKED: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
];

fn seen(pod: &Value) -> PodSeen {
    let status = &pod["status"];
    let containers = |field: &str| status[field].as_array().into_iter().flatten();
    let main = containers("containerStatuses").find(|container| container["name"] == MAIN);
    let terminated = main.map(|main| &main["state"]["terminated"]).filter(|state| state.is_object());
    let phase = status["phase"].as_str().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let exit_code = terminated.and_then(|state| i32::try_from(state["exitCode"].as_i64()?).ok());
    match (phase, exit_code) {
        // The task's container counts: sidecars that somebody injected end with it.
        ("Succeeded", _) | ("Running", Some(0)) => {
            PodSeen::Succeeded(terminated.map(|state| text(&state["message"])).unwrap_or_default())
        }
        ("Failed", _) | ("Running", Some(_)) => {
            let own = |field: &str| status[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
            let of_container =
                |field: &str| terminated.map(|state| text(&state[field])).filter(|text| !text.is_empty());
            let failed_init = containers("initContainerStatuses")
                .find(|init| init["state"]["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0))
                .map(|init| format!("init container {} failed", text(&init["name"])));
            PodSeen::Failed(Failure {
                exit_code,
                reason: own("reason").or_else(|| of_container("reason")).unwrap_or_else(|| "Error".into()),
                message: own("message")
                    .or_else(|| of_container("message"))
                    .or(failed_init)
                    .unwrap_or_default(),
            })
        }
        // Nothing will ever report its end.
        (_, _) if meta::is_deleting(pod) && pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) => {
            PodSeen::Gone
        }
        ("Running", None) => PodSeen::Running,
        _ => {
            let waiting = containers("initContainerStatuses").chain(containers("containerStatuses"));
            let mut waiting = waiting.map(|container| &container["state"]["waiting"]);
            match waiting
                .find(|waiting| waiting["reason"].as_str().is_some_and(|reason| BLOCKED.contains(&reason)))
            {
                Some(waiting) => {
                    PodSeen::Blocked { reason: text(&waiting["reason"]), message: text(&waiting["message"]) }
                }
                None => PodSeen::Pending,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_has_ended_when_the_container_of_its_task_has() {
        let pod = |status: Value| seen(&json!({"metadata": {}, "spec": {"nodeName": "n"}, "status": status}));
        let main = |state: Value| json!([{"name": "proxy", "state": {"running": {}}}, {"name": "main", "state": state}]);
        assert_eq!(
            pod(
                json!({"phase": "Running", "containerStatuses": main(json!({"terminated": {"exitCode": 0, "message": "x"}}))})
            ),
            PodSeen::Succeeded("x".into())
        );
        let failed = pod(
            json!({"phase": "Running", "containerStatuses": main(json!({"terminated": {"exitCode": 3, "reason": "Error"}}))}),
        );
        assert!(matches!(failed, PodSeen::Failed(Failure { exit_code: Some(3), .. })));
        assert_eq!(
            pod(json!({"phase": "Running", "containerStatuses": main(json!({"running": {}}))})),
            PodSeen::Running
        );
        let evicted = pod(json!({"phase": "Failed", "reason": "Evicted", "message": "disk"}));
        assert_eq!(evicted, PodSeen::Failed(Failure::new("Evicted", "disk")));
        let blocked = pod(
            json!({"phase": "Pending", "containerStatuses": main(json!({"waiting": {"reason": "ErrImagePull"}}))}),
        );
        assert!(matches!(blocked, PodSeen::Blocked { .. }));
        let deleted =
            json!({"metadata": {"deletionTimestamp": "x"}, "spec": {}, "status": {"phase": "Pending"}});
        assert_eq!(seen(&deleted), PodSeen::Gone);
    }
}
