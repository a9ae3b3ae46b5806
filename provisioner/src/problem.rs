//! Why a pair does not run, read from the status of its Pods and Deployments.

use freehold_machinery::Value;
use freehold_runtime::conditions;

/// The longest message of a program that is passed on, in bytes.
const LONGEST: usize = 600;

/// One thing that keeps a pair from running.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// A reason for a condition: `ImageUnavailable`.
    pub reason: &'static str,
    /// What fails, and why.
    pub message: String,
}

impl Problem {
    fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Returns what keeps a Pod from being ready: no node for it, no image, a missing Secret, or a program that ends or does
/// not answer.
pub fn of_pod(pod: &Value) -> Option<Problem> {
    let scheduled = conditions::find(&pod["status"]["conditions"], "PodScheduled");
    if let Some(condition) = scheduled.filter(|condition| condition["status"] == "False") {
        return Some(Problem::new("PodUnschedulable", text(&condition["message"])));
    }
    let statuses = pod["status"]["containerStatuses"].as_array()?;
    statuses.iter().find_map(of_container)
}

fn of_container(container: &Value) -> Option<Problem> {
    let waiting = &container["state"]["waiting"];
    let (reason, message) = (text(&waiting["reason"]), text(&waiting["message"]));
    match reason {
        "" | "ContainerCreating" | "PodInitializing" => {}
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            let image = text(&container["image"]);
            let message = shorten(message);
            return Some(Problem::new("ImageUnavailable", format!("image {image:?}: {message}")));
        }
        "CrashLoopBackOff" => {}
        _ => return Some(Problem::new("ContainerNotStarted", format!("{reason}: {}", shorten(message)))),
    }
    let current = &container["state"]["terminated"];
    let ended = if current.is_object() { current } else { &container["lastState"]["terminated"] };
    if container["ready"] != true && ended.is_object() {
        let (code, said) = (&ended["exitCode"], shorten(text(&ended["message"])));
        let reason = text(&ended["reason"]);
        return Some(Problem::new("ProgramFailed", format!("{reason} with exit code {code}: {said}")));
    }
    None
}

/// Returns what keeps a Deployment from having its Pods: a quota or policy that refuses them, or time that is up.
pub fn of_deployment(deployment: &Value) -> Option<Problem> {
    let list = &deployment["status"]["conditions"];
    let refused = conditions::find(list, "ReplicaFailure").filter(|condition| condition["status"] == "True");
    if let Some(condition) = refused {
        return Some(Problem::new("PodsRefused", shorten(text(&condition["message"]))));
    }
    let progress = conditions::find(list, "Progressing").filter(|condition| condition["status"] == "False");
    progress.map(|condition| Problem::new("DeadlineExceeded", shorten(text(&condition["message"]))))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default().trim()
}

/// The end of a message, where the error stands, on one line.
fn shorten(message: &str) -> String {
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let start = line.len().saturating_sub(LONGEST);
    let start = (start..line.len()).find(|at| line.is_char_boundary(*at)).unwrap_or(line.len());
    if start == 0 { line } else { format!("... {}", &line[start..]) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_keeps_a_pod_from_running_has_a_reason_and_a_message() {
        let container = |status: Value| json!({"status": {"containerStatuses": [status]}});
        let rows = [
            (json!({}), None),
            (
                json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]}}),
                Some(("PodUnschedulable", "0/1 nodes")),
            ),
            (
                container(
                    json!({"image": "a:1", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}}),
                ),
                Some(("ImageUnavailable", "image \"a:1\": not found")),
            ),
            (
                container(
                    json!({"state": {"waiting": {"reason": "CreateContainerConfigError", "message": "no secret"}}}),
                ),
                Some(("ContainerNotStarted", "CreateContainerConfigError: no secret")),
            ),
            (container(json!({"state": {"waiting": {"reason": "ContainerCreating"}}})), None),
            (
                container(json!({
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}, "ready": false,
                    "lastState": {"terminated": {"reason": "Error", "exitCode": 1, "message": "freehold: no\n etcd"}},
                })),
                Some(("ProgramFailed", "Error with exit code 1: freehold: no etcd")),
            ),
            (
                container(json!({
                    "ready": true, "state": {"running": {}},
                    "lastState": {"terminated": {"exitCode": 137}},
                })),
                None,
            ),
        ];
        for (pod, expected) in rows {
            let found = of_pod(&pod);
            let found = found.as_ref().map(|problem| (problem.reason, problem.message.as_str()));
            assert_eq!(found, expected, "{pod}");
        }
    }

    #[test]
    fn pods_that_a_deployment_may_not_make_are_its_problem() {
        let condition = |type_: &str, status: &str| json!({"status": {"conditions": [{"type": type_, "status": status, "message": "m"}]}});
        let reason = |value| of_deployment(&value).map(|problem| problem.reason);
        assert_eq!(reason(condition("ReplicaFailure", "True")), Some("PodsRefused"));
        assert_eq!(reason(condition("Progressing", "False")), Some("DeadlineExceeded"));
        assert_eq!(reason(condition("Progressing", "True")), None);
    }

    #[test]
    fn a_long_message_keeps_its_end() {
        let long = format!("{}ü end", "é".repeat(LONGEST));
        let short = shorten(&long);
        assert!(
            short.ends_with("ü end") && short.starts_with("... ") && short.len() <= LONGEST + 8,
            "{short}"
        );
    }
}
