//! What an autoscaler reads of pods.

use super::metrics::milli;
use super::replicas::Counted;
use freehold_controllers_context::object::{conditions_of, items, text};
use freehold_machinery::{Value, meta, time};
use std::collections::BTreeMap;

/// What counts of a pod.
pub(super) fn counted(pod: &Value) -> Counted {
    let phase = text(pod, "/status/phase");
    let ready = conditions_of(pod).iter().find(|c| c["type"] == "Ready");
    let is_ready = ready.is_some_and(|c| c["status"] == "True");
    let since = |c: &Value| time::parse(text(c, "/lastTransitionTime"));
    Counted {
        name: meta::name(pod).to_owned(),
        is_ignored: meta::is_deleting(pod) || phase == "Failed",
        is_pending: matches!(phase, "Pending" | ""),
        is_ready: is_ready && phase == "Running",
        readiness: ready.and_then(|c| Some((c["status"] == "False", since(c)?))),
        started: time::parse(text(pod, "/status/startTime")),
    }
}

/// What pods request of a resource, in thousandths by their names: of one container, of the pod as a whole, or of all
/// containers that run for long.
pub(super) fn requests(
    pods: &[Value],
    container: &str,
    resource: &str,
) -> Result<BTreeMap<String, i64>, String> {
    let one = |pod: &Value| Ok((meta::name(pod).to_owned(), request(pod, container, resource)?));
    pods.iter().map(one).collect()
}

fn request(pod: &Value, container: &str, resource: &str) -> Result<i64, String> {
    let own = &pod["spec"]["resources"]["requests"];
    if container.is_empty() && own.as_object().is_some_and(|own| !own.is_empty()) {
        let missing = || format!("missing pod-level request for {resource} in Pod {}", meta::name(pod));
        return milli(&own[resource]).ok_or_else(missing);
    }
    let sidecars = items(pod, "/spec/initContainers").iter().filter(|c| c["restartPolicy"] == "Always");
    let all = items(pod, "/spec/containers").iter().chain(sidecars);
    let counted: Vec<&Value> =
        all.filter(|c| container.is_empty() || text(c, "/name") == container).collect();
    if counted.is_empty() && !container.is_empty() {
        return Err(format!("container {container} not found in Pod {}", meta::name(pod)));
    }
    let of_container = |c: &&Value| {
        let name = text(c, "/name");
        let missing =
            || format!("missing request for {resource} in container {name} of Pod {}", meta::name(pod));
        milli(&c["resources"]["requests"][resource]).ok_or_else(missing)
    };
    counted.iter().map(of_container).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_are_those_of_what_runs_for_long() {
        let of = |name: &str, cpu: &str| json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        let mut sidecar = of("s", "100m");
        sidecar["restartPolicy"] = "Always".into();
        let mut pod = json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [of("a", "200m"), of("b", "1")], "initContainers": [of("i", "7"), sidecar]},
        });
        assert_eq!(request(&pod, "", "cpu"), Ok(1300));
        assert_eq!(request(&pod, "b", "cpu"), Ok(1000));
        assert!(request(&pod, "x", "cpu").unwrap_err().starts_with("container x not found"));
        assert!(
            request(&pod, "", "memory").unwrap_err().starts_with("missing request for memory in container a")
        );
        pod["spec"]["resources"]["requests"] = json!({"cpu": "3"});
        assert_eq!(request(&pod, "", "cpu"), Ok(3000));
    }
}
