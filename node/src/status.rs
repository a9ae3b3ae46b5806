//! The status of a Pod from the states of its containers: pure.

use crate::sources::{list, text};
use freehold_machinery::time::format_seconds as time;
use freehold_machinery::{Value, meta};
use jiff::Timestamp;
use serde_json::{Value as Json, json};

/// What a container does now.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Now {
    /// It does not run, but it is meant to.
    Waiting {
        /// `ContainerCreating`, `CrashLoopBackOff`, ...
        reason: String,
        /// For people.
        message: String,
    },
    /// It runs since then.
    Running(Timestamp),
    /// It ended, and stays so.
    Terminated(Termination),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Termination {
    /// 128 and the signal, where a signal ended it.
    pub(crate) exit_code: i32,
    /// The signal, or 0.
    pub(crate) signal: i32,
    /// `Completed`, `Error`, `StartError`.
    pub(crate) reason: String,
    /// For people.
    pub(crate) message: String,
    /// When the run began.
    pub(crate) started: Timestamp,
    /// When it ended.
    pub(crate) finished: Timestamp,
}

/// All there is to say about a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContainerState {
    /// Its name.
    pub(crate) name: String,
    /// Its image, as the spec names it.
    pub(crate) image: String,
    /// What it does now.
    pub(crate) now: Now,
    /// How the run before this one ended.
    pub(crate) last: Option<Termination>,
    /// How often it was started again.
    pub(crate) restarts: u32,
    /// Whether its startup probe succeeded.
    pub(crate) started: bool,
    /// Whether its readiness probe succeeds.
    pub(crate) ready: bool,
    /// Names the run; empty before the first.
    pub(crate) id: String,
}

impl ContainerState {
    /// A container that was never started, but for what the Pod's status remembers of it.
    pub(crate) fn new(container: &Value, remembered: Option<&Value>, waiting: &str) -> Self {
        let ran = remembered.is_some_and(|status| text(&status["containerID"]).is_some());
        let restarts = remembered.and_then(|s| s["restartCount"].as_u64()).unwrap_or(0) + u64::from(ran);
        Self {
            name: text(&container["name"]).unwrap_or_default(),
            image: text(&container["image"]).unwrap_or_default(),
            now: Now::Waiting { reason: waiting.to_owned(), message: String::new() },
            last: None,
            restarts: u32::try_from(restarts).unwrap_or(u32::MAX),
            started: false,
            ready: false,
            id: String::new(),
        }
    }

    fn to_json(&self) -> Json {
        let ended = |t: &Termination| {
            let mut ended = json!({
                "exitCode": t.exit_code, "reason": t.reason, "startedAt": time(t.started), "finishedAt": time(t.finished),
                "containerID": self.id,
            });
            if t.signal != 0 {
                ended["signal"] = t.signal.into();
            }
            if !t.message.is_empty() {
                ended["message"] = t.message.clone().into();
            }
            ended
        };
        let state = match &self.now {
            Now::Waiting { reason, message } if message.is_empty() => json!({"waiting": {"reason": reason}}),
            Now::Waiting { reason, message } => json!({"waiting": {"reason": reason, "message": message}}),
            Now::Running(since) => json!({"running": {"startedAt": time(*since)}}),
            Now::Terminated(end) => json!({"terminated": ended(end)}),
        };
        let last = self.last.as_ref().map_or_else(|| json!({}), |t| json!({"terminated": ended(t)}));
        json!({
            "name": self.name, "image": self.image, "imageID": "", "containerID": self.id, "restartCount": self.restarts,
            "started": self.started, "ready": self.ready, "state": state, "lastState": last,
        })
    }

    fn exit_code(&self) -> Option<i32> {
        match &self.now {
            Now::Terminated(end) => Some(end.exit_code),
            _ => None,
        }
    }
}

/// What a status is made of, apart from the Pod.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Observed<'a> {
    /// Init containers, in order.
    pub(crate) init: &'a [ContainerState],
    /// Containers, in order.
    pub(crate) main: &'a [ContainerState],
    /// The Pod's address; empty before it has one.
    pub(crate) pod_ip: &'a str,
    /// The node's address.
    pub(crate) host_ip: &'a str,
    /// When the node took the Pod.
    pub(crate) started: Timestamp,
    /// The time of this observation.
    pub(crate) now: Timestamp,
}

/// The phase of a Pod (<https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase>).
pub(crate) fn phase(pod: &Value, seen: &Observed<'_>) -> &'static str {
    let never = pod["spec"]["restartPolicy"] == "Never";
    if never && seen.init.iter().any(|c| c.exit_code().is_some_and(|code| code != 0)) {
        return "Failed";
    }
    if !initialized(seen) || seen.main.is_empty() {
        return "Pending";
    }
    let exits: Option<Vec<i32>> = seen.main.iter().map(ContainerState::exit_code).collect();
    match exits {
        Some(exits) if exits.iter().all(|code| *code == 0) => "Succeeded",
        Some(_) => "Failed",
        None if seen.main.iter().all(|c| c.id.is_empty()) => "Pending",
        None => "Running",
    }
}

fn initialized(seen: &Observed<'_>) -> bool {
    seen.init.iter().all(|c| c.exit_code() == Some(0))
}

/// The whole status, conditions keeping the time of their last change.
pub(crate) fn pod_status(pod: &Value, seen: &Observed<'_>) -> Value {
    let phase = phase(pod, seen);
    let unready: Vec<&str> = seen.main.iter().filter(|c| !c.ready).map(|c| c.name.as_str()).collect();
    let ended = matches!(phase, "Succeeded" | "Failed");
    let why = if phase == "Succeeded" {
        ("PodCompleted", String::new())
    } else {
        ("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))
    };
    let not = |is: bool| (!is).then(|| why.clone());
    let ready = unready.is_empty() && !ended;
    let conditions = [
        condition(pod, seen, "PodReadyToStartContainers", !seen.pod_ip.is_empty() && !ended, None),
        condition(pod, seen, "Initialized", initialized(seen), None),
        condition(pod, seen, "Ready", ready, not(ready)),
        condition(pod, seen, "ContainersReady", ready, not(ready)),
        condition(pod, seen, "PodScheduled", true, None),
    ];
    let mut status = json!({
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": seen.main.iter().map(ContainerState::to_json).collect::<Vec<_>>(),
        "hostIP": seen.host_ip,
        "hostIPs": [{"ip": seen.host_ip}],
        "startTime": time(seen.started),
        "qosClass": text(&pod["status"]["qosClass"]).unwrap_or_else(|| "BestEffort".to_owned()),
        "observedGeneration": pod["metadata"]["generation"].as_i64().unwrap_or(1),
    });
    if !seen.init.is_empty() {
        status["initContainerStatuses"] = seen.init.iter().map(ContainerState::to_json).collect();
    }
    if !seen.pod_ip.is_empty() {
        status["podIP"] = seen.pod_ip.into();
        status["podIPs"] = json!([{"ip": seen.pod_ip}]);
    }
    status
}

fn condition(pod: &Value, seen: &Observed<'_>, kind: &str, is: bool, why: Option<(&str, String)>) -> Json {
    let status = if is { "True" } else { "False" };
    let before = list(&pod["status"]["conditions"]).find(|c| c["type"] == kind && c["status"] == status);
    let since = before.and_then(|c| text(&c["lastTransitionTime"])).unwrap_or_else(|| time(seen.now));
    let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since});
    if let Some((reason, message)) = why {
        condition["reason"] = reason.into();
        condition["message"] = message.into();
    }
    condition
}

/// What a Pod's status says of a container.
pub(crate) fn remembered<'a>(pod: &'a Value, field: &str, name: &str) -> Option<&'a Value> {
    list(&pod["status"][field]).find(|status| status["name"] == name)
}

/// Namespace and name, for logs and messages.
pub(crate) fn key(pod: &Value) -> String {
    format!("{}/{}", meta::namespace(pod), meta::name(pod))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(now: Now, ready: bool) -> ContainerState {
        let id = if matches!(now, Now::Waiting { .. }) { String::new() } else { "process://1".to_owned() };
        ContainerState {
            now,
            ready,
            started: ready,
            id,
            ..ContainerState::new(&json!({"name": "c"}), None, "")
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ended(exit_code: i32) -> Now {
        let (reason, message) = ("Error".to_owned(), String::new());
        Now::Terminated(Termination {
            exit_code,
            signal: 0,
            reason,
            message,
            started: at(0),
            finished: at(1),
        })
    }

    fn waiting() -> Now {
        Now::Waiting { reason: "ContainerCreating".into(), message: String::new() }
    }

    fn observed<'a>(init: &'a [ContainerState], main: &'a [ContainerState]) -> Observed<'a> {
        Observed { init, main, pod_ip: "127.64.0.1", host_ip: "127.0.0.1", started: at(0), now: at(5) }
    }

    #[test]
    fn the_phase_follows_the_containers() {
        let c = |now: Now| container(now, false);
        let running = || Now::Running(at(0));
        let rows = [
            ("Always", vec![], vec![c(waiting())], "Pending"),
            ("Always", vec![], vec![c(running())], "Running"),
            ("Always", vec![], vec![c(running()), c(ended(1))], "Running"),
            ("Always", vec![], vec![c(running()), c(waiting())], "Running"),
            ("Never", vec![], vec![c(ended(0)), c(ended(0))], "Succeeded"),
            ("Never", vec![], vec![c(ended(0)), c(ended(2))], "Failed"),
            ("Always", vec![c(running())], vec![c(waiting())], "Pending"),
            ("Never", vec![c(ended(1))], vec![c(waiting())], "Failed"),
            ("Always", vec![c(ended(0))], vec![c(running())], "Running"),
        ];
        for (policy, init, main, expected) in rows {
            let pod = json!({"spec": {"restartPolicy": policy}});
            assert_eq!(phase(&pod, &observed(&init, &main)), expected, "{policy} {init:?} {main:?}");
        }
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let main = [container(Now::Running(at(1)), true)];
        let old = json!([
            {"type": "Ready", "status": "False", "lastTransitionTime": "1970-01-01T00:00:01Z"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z"},
        ]);
        let status = pod_status(&json!({"status": {"conditions": old}}), &observed(&[], &main));
        let of = |kind: &str| list(&status["conditions"]).find(|c| c["type"] == kind).cloned().unwrap();
        assert_eq!(of("Ready")["status"], "True");
        assert_eq!(of("Ready")["lastTransitionTime"], "1970-01-01T00:00:05Z");
        assert_eq!(of("PodScheduled")["lastTransitionTime"], "1970-01-01T00:00:01Z");
        assert_eq!(status["podIP"], "127.64.0.1");
        assert_eq!(status["containerStatuses"][0]["state"]["running"]["startedAt"], "1970-01-01T00:00:01Z");
    }

    #[test]
    fn an_unready_container_is_named() {
        let main = [container(Now::Running(at(1)), false)];
        let status = pod_status(&json!({}), &observed(&[], &main));
        let ready = list(&status["conditions"]).find(|c| c["type"] == "Ready").unwrap();
        assert_eq!(ready["reason"], "ContainersNotReady");
        assert_eq!(ready["message"], "containers with unready status: [c]");
    }

    #[test]
    fn restarts_go_on_from_what_the_status_remembers() {
        let status = json!({"containerID": "process://1", "restartCount": 2});
        assert_eq!(ContainerState::new(&json!({}), Some(&status), "").restarts, 3);
        assert_eq!(ContainerState::new(&json!({}), Some(&json!({"containerID": ""})), "").restarts, 0);
    }
}
