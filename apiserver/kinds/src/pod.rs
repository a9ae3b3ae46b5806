//! What the server writes into a new pod, and what it leaves out of pods and their templates.

use crate::access::{at_mut, is_empty, list_mut};
use freehold_machinery::Value;
use serde_json::json;

/// The values that a pod has for the keys that its terms name become part of their selectors.
pub fn merge_label_keys(pod: &mut Value) {
    let labels = pod["metadata"]["labels"].clone();
    for kind in ["podAffinity", "podAntiAffinity"] {
        let base = format!("spec.affinity.{kind}");
        for term in list_mut(pod, &format!("{base}.requiredDuringSchedulingIgnoredDuringExecution")) {
            merge(term, &labels);
        }
        for term in list_mut(pod, &format!("{base}.preferredDuringSchedulingIgnoredDuringExecution")) {
            at_mut(term, "podAffinityTerm").into_iter().for_each(|term| merge(term, &labels));
        }
    }
    list_mut(pod, "spec.topologySpreadConstraints").for_each(|constraint| merge(constraint, &labels));
}

fn merge(term: &mut Value, labels: &Value) {
    if !term["labelSelector"].is_object() {
        return;
    }
    for (field, operator) in [("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")] {
        let keys = term[field].as_array().cloned().unwrap_or_default();
        for key in keys {
            let Some(value) = key.as_str().and_then(|key| labels.get(key)) else { continue };
            let requirement = json!({"key": key, "operator": operator, "values": [value]});
            match term["labelSelector"].get_mut("matchExpressions").and_then(Value::as_array_mut) {
                Some(list) => list.push(requirement),
                None => term["labelSelector"]["matchExpressions"] = json!([requirement]),
            }
        }
    }
}

/// Fields of features that are off unless somebody turns them on: Kubernetes leaves them out of what it stores.
pub fn drop_disabled(spec: &mut Value) {
    for part in list_mut(spec, "volumes").flat_map(|volume| list_mut(volume, "projected.sources")) {
        if let Some(part) = part.as_object_mut() {
            ["clusterTrustBundle", "podCertificate"].iter().for_each(|kind| drop(part.remove(*kind)));
        }
    }
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in list_mut(spec, list).filter_map(Value::as_object_mut) {
            let Some(lifecycle) = container.get_mut("lifecycle").and_then(Value::as_object_mut) else {
                continue;
            };
            if lifecycle.remove("stopSignal").is_some() && lifecycle.values().all(is_empty) {
                container.remove("lifecycle");
            }
        }
    }
    if let Some(spec) = spec.as_object_mut() {
        ["schedulingGroup", "workloadRef"].iter().for_each(|field| drop(spec.remove(*field)));
    }
}

/// Quality of service class (<https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/>).
pub fn qos(pod: &Value) -> &'static str {
    let spec = &pod["spec"];
    let lists = ["containers", "initContainers"];
    let holders: Vec<&Value> = if spec["resources"].is_object() {
        vec![spec]
    } else {
        lists.into_iter().flat_map(|list| spec[list].as_array().into_iter().flatten()).collect()
    };
    let amount = |holder: &Value, part: &str, what: &str| {
        holder["resources"][part].get(what).filter(|v| **v != "0").map(Value::to_string)
    };
    let all: Vec<_> = holders
        .iter()
        .flat_map(|h| ["cpu", "memory"].map(|what| (amount(h, "requests", what), amount(h, "limits", what))))
        .collect();
    if all.iter().all(|(request, limit)| request.is_none() && limit.is_none()) {
        "BestEffort"
    } else if all.iter().all(|(request, limit)| limit.is_some() && (request.is_none() || request == limit)) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_of_service_follows_requests_and_limits() {
        let rows = [
            (json!({}), "BestEffort"),
            (json!({"requests": {"cpu": "1"}}), "Burstable"),
            (json!({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
            (
                json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}}),
                "Burstable",
            ),
        ];
        for (resources, class) in rows {
            let pod = json!({"spec": {"containers": [{"resources": resources}]}});
            assert_eq!(qos(&pod), class, "{pod}");
        }
    }
}
