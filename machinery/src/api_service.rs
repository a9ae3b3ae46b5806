//! `APIService` objects: which server answers for a group and version
//! (<https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/api-service-v1/>).

use crate::Value;
use serde_json::json;

/// The group of `APIService`.
pub const GROUP: &str = "apiregistration.k8s.io";
/// Its plural.
pub const RESOURCE: &str = "apiservices";
/// The label of those that a server registers by itself.
pub const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
/// Priorities of the groups and versions of CRDs, as kube-apiserver registers them.
pub const CUSTOM: (i32, i32) = (1000, 100);

/// How a server looks after an `APIService` that it registered: the value of [`AUTOMANAGED`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Managed {
    /// `onstart`: that of a built-in group.
    OnStart,
    /// `true`: that of a CRD's group, which goes with its last CRD.
    Always,
}

/// The name of the `APIService` of a group and version.
pub fn name(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

/// The registration of a group and version that the server itself serves. `priorities` are those of group and version.
pub fn local(group: &str, version: &str, priorities: (i32, i32), managed: Managed) -> Value {
    let label = if managed == Managed::OnStart { "onstart" } else { "true" };
    let mut spec =
        json!({"groupPriorityMinimum": priorities.0, "version": version, "versionPriority": priorities.1});
    if !group.is_empty() {
        spec["group"] = group.into();
    }
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "APIService",
        "metadata": {"name": name(group, version), "labels": {AUTOMANAGED: label}},
        "spec": spec,
        "status": {"conditions": [local_condition("")]},
    })
}

/// The condition of those that need no other server.
pub fn local_condition(now: &str) -> Value {
    condition("True", "Local", "Local APIServices are always available", now)
}

/// A condition `Available`; `now` as in RFC 3339.
pub fn condition(status: &str, reason: &str, message: &str, now: &str) -> Value {
    json!({
        "type": "Available", "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
    })
}

/// Whether another server answers for it.
pub fn is_remote(object: &Value) -> bool {
    object["spec"]["service"].is_object()
}

/// Whether the server itself keeps it for a CRD.
pub fn is_of_crd(object: &Value) -> bool {
    object["metadata"]["labels"][AUTOMANAGED] == "true" && !is_remote(object)
}

/// The condition `Available`, where there is one.
pub fn available(object: &Value) -> Option<&Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == "Available")
}

/// Puts a condition in the place of the one of its type. The time of the last transition stays while the status does.
/// `false` where nothing changed.
pub fn set_condition(object: &mut Value, mut condition: Value) -> bool {
    if !object["status"]["conditions"].is_array() {
        object["status"]["conditions"] = json!([]);
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else { return false };
    let Some(old) = conditions.iter_mut().find(|old| old["type"] == condition["type"]) else {
        conditions.push(condition);
        return true;
    };
    if old["status"] == condition["status"] {
        condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
    }
    let changed = *old != condition;
    *old = condition;
    changed
}

/// The versions that a CRD serves, with its group.
pub fn of_crd(crd: &Value) -> impl Iterator<Item = (&str, &str)> {
    let group = crd["spec"]["group"].as_str().unwrap_or_default();
    let served = crd["spec"]["versions"].as_array().into_iter().flatten().filter(|v| v["served"] == true);
    served.filter_map(move |version| Some((group, version["name"].as_str()?)))
}

/// Fills in what the server knows of one that is written: without a service it is available.
pub fn settle(object: &mut Value, now: &str) {
    if !is_remote(object) {
        set_condition(object, local_condition(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_the_time_of_its_last_transition() {
        let mut object = local("apps", "v1", (17800, 15), Managed::OnStart);
        assert_eq!(object["metadata"]["name"], "v1.apps");
        assert!(set_condition(&mut object, condition("False", "ServiceNotFound", "x", "1")));
        assert!(!set_condition(&mut object, condition("False", "ServiceNotFound", "x", "2")));
        assert!(set_condition(&mut object, condition("False", "EndpointsNotFound", "y", "3")));
        let now = available(&object).unwrap();
        assert_eq!((&now["lastTransitionTime"], &now["reason"]), (&json!("1"), &json!("EndpointsNotFound")));
    }

    #[test]
    fn only_served_versions_are_registered() {
        let crd = json!({"spec": {"group": "g.io", "versions": [
            {"name": "v1", "served": true}, {"name": "v1beta1", "served": false}]}});
        assert_eq!(of_crd(&crd).collect::<Vec<_>>(), [("g.io", "v1")]);
    }
}
