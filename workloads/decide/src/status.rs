//! What comes back: the status of a project's Pod and its Service, and events.

use crate::names::{NAME, NAMESPACE, UID};
use freehold_machinery::{Map, Value, meta};
use serde_json::json;

/// Fields of a host Pod's status that a project's Pod gets.
const FIELDS: [&str; 14] = [
    "containerStatuses",
    "ephemeralContainerStatuses",
    "hostIP",
    "hostIPs",
    "initContainerStatuses",
    "message",
    "phase",
    "podIP",
    "podIPs",
    "qosClass",
    "reason",
    "resize",
    "startTime",
    "conditions",
];
/// Longest message of an event, in characters.
const MAX_MESSAGE: usize = 1024;

/// The status that a project's Pod has to have; `None` where it has it. Conditions that the project's own controllers set
/// for readiness gates are kept, and decide with the host's whether the Pod is ready.
pub fn pod_status(pod: &Value, host: &Value) -> Option<Value> {
    let mut status = Map::new();
    for field in FIELDS {
        if let Some(value) = host["status"].get(field).filter(|value| !value.is_null()) {
            status.insert(field.into(), value.clone());
        }
    }
    let mut conditions = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    add_gates(pod, &mut conditions);
    // What the host saw of another generation would be taken for this one's.
    conditions.iter_mut().filter_map(Value::as_object_mut).for_each(|c| drop(c.remove("observedGeneration")));
    if !conditions.is_empty() {
        status.insert("conditions".into(), conditions.into());
    }
    status.entry("phase").or_insert_with(|| "Pending".into());
    let status = Value::from(status);
    (status != pod["status"]).then_some(status)
}

fn add_gates(pod: &Value, conditions: &mut Vec<Value>) {
    let gates = pod["spec"]["readinessGates"].as_array().into_iter().flatten();
    let own = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut is_closed = false;
    for gate in gates {
        let found = own.iter().find(|condition| condition["type"] == gate["conditionType"]);
        is_closed |= found.is_none_or(|condition| condition["status"] != "True");
        conditions.extend(found.cloned());
    }
    let ready = conditions.iter_mut().find(|c| c["type"] == "Ready" && c["status"] == "True");
    if let Some(ready) = ready.filter(|_| is_closed) {
        ready["status"] = "False".into();
        ready["reason"] = "ReadinessGatesNotReady".into();
        ready["message"] = "a readiness gate of the Pod is not open".into();
    }
}

/// Whether a Pod's containers have ended for good.
pub fn is_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// The status of a Pod that its class does not let run, as a scheduler writes it; `None` where it says so already.
pub fn refused_status(pod: &Value, why: &str, now: jiff::Timestamp) -> Option<Value> {
    let mut status = pod["status"].clone();
    if !status.is_object() {
        status = json!({"phase": "Pending"});
    }
    let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_known = |c: &&Value| c["type"] == "PodScheduled" && c["status"] == "False" && c["message"] == why;
    if conditions.iter().any(|c| is_known(&c)) {
        return None;
    }
    let mut kept: Vec<Value> = conditions.iter().filter(|c| c["type"] != "PodScheduled").cloned().collect();
    kept.push(json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
        "lastProbeTime": null, "lastTransitionTime": freehold_machinery::time::format_seconds(now),
    }));
    status["conditions"] = kept.into();
    Some(status)
}

/// The event of a project that one of the host is, about the Pod that the host Pod is of. `involved` is that host Pod.
pub fn event(event: &Value, involved: &Value) -> Option<Value> {
    let (namespace, name) = (meta::annotation(involved, NAMESPACE)?, meta::annotation(involved, NAME)?);
    let text = |field: &str| event[field].as_str().unwrap_or_default();
    let message: String = text("message").chars().take(MAX_MESSAGE).collect();
    let mut copied = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": meta::name(event), "namespace": namespace},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": name, "namespace": namespace,
            "uid": meta::annotation(involved, UID)?,
        },
        "message": message,
        "reason": text("reason"),
        "type": text("type"),
        "source": {"component": event["source"]["component"].as_str().unwrap_or("syncer")},
    });
    for field in ["count", "firstTimestamp", "lastTimestamp", "eventTime", "action", "reportingComponent"] {
        if let Some(value) = event.get(field).filter(|value| !value.is_null()) {
            copied[field] = value.clone();
        }
    }
    copied["reportingInstance"] = "syncer".into();
    if let Some(path) = event["involvedObject"]["fieldPath"].as_str() {
        copied["involvedObject"]["fieldPath"] = path.into();
    }
    Some(copied)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(conditions: Value) -> Value {
        json!({"status": {
            "phase": "Running", "podIP": "10.1.2.3", "hostIP": "192.0.2.7", "conditions": conditions,
            "nominatedNodeName": "host-node-7", "observedGeneration": 4,
            "containerStatuses": [{"name": "c", "ready": true}],
        }})
    }

    #[test]
    fn a_status_that_the_tenant_wrote_is_replaced_by_what_the_host_says() {
        let conditions = json!([{"type": "Ready", "status": "True", "observedGeneration": 4}]);
        let forged = json!({"spec": {}, "status": {
            "phase": "Succeeded", "podIP": "10.9.9.9", "conditions": [{"type": "Ready", "status": "False"}],
        }});
        let status = pod_status(&forged, &host(conditions)).unwrap();
        assert_eq!((&status["phase"], &status["podIP"]), (&json!("Running"), &json!("10.1.2.3")));
        assert_eq!(status["conditions"], json!([{"type": "Ready", "status": "True"}]));
        assert!(status.get("nominatedNodeName").is_none() && status.get("observedGeneration").is_none());
        let pod = json!({"spec": {}, "status": status});
        assert_eq!(pod_status(&pod, &host(json!([{"type": "Ready", "status": "True"}]))), None);
    }

    #[test]
    fn a_pod_is_ready_when_the_projects_gates_are_open_too() {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        for (own, expected) in [("True", "True"), ("False", "False")] {
            let pod = json!({
                "spec": {"readinessGates": [{"conditionType": "lb/registered"}]},
                "status": {"conditions": [{"type": "lb/registered", "status": own}, {"type": "x", "status": "True"}]},
            });
            let status = pod_status(&pod, &host(ready.clone())).unwrap();
            let conditions = status["conditions"].as_array().unwrap();
            assert_eq!(conditions.len(), 2, "what is no gate is not kept: {conditions:?}");
            assert_eq!(conditions[0]["status"], expected);
        }
    }

    #[test]
    fn a_refusal_is_said_once_where_a_scheduler_says_it() {
        let mut pod = json!({"status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}});
        let now = jiff::Timestamp::UNIX_EPOCH;
        pod["status"] = refused_status(&pod, "no hostPath", now).unwrap();
        assert_eq!(pod["status"]["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(pod["status"]["conditions"][0]["reason"], "Unschedulable");
        assert_eq!(refused_status(&pod, "no hostPath", now), None);
        assert!(refused_status(&pod, "another", now).is_some());
    }

    #[test]
    fn an_event_is_about_the_projects_pod_and_names_nothing_of_the_host() {
        let pod = json!({"metadata": {"annotations": {NAMESPACE: "shop", NAME: "web", UID: "u"}}});
        let host = json!({
            "metadata": {"name": "web.1", "namespace": "project-x"}, "reason": "Pulled", "type": "Normal", "count": 2,
            "message": "m".repeat(5000), "source": {"component": "kubelet", "host": "host-node-7"},
            "reportingInstance": "host-node-7",
            "involvedObject": {"kind": "Pod", "name": "web", "fieldPath": "spec.containers{c}"},
        });
        let event = event(&host, &pod).unwrap();
        assert!(!event.to_string().contains("host-node-7") && !event.to_string().contains("project-x"));
        assert_eq!(event["involvedObject"]["uid"], "u");
        assert_eq!(event["message"].as_str().unwrap().len(), MAX_MESSAGE);
        assert_eq!(super::event(&host, &json!({"metadata": {}})), None);
    }
}
