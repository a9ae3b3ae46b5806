//! Certificate signing requests, and admission policies.

use crate::Operation;
use freehold_apiserver_admission::policy::checked_status;
use freehold_apiserver_kinds::access::list_mut;
use freehold_machinery::Value;

/// A request is made in the name of who makes it.
pub(super) fn create_csr(op: &Operation, object: &mut Value) {
    let user = &op.user;
    object["spec"]["username"] = user.name.clone().into();
    object["spec"]["groups"] = user.groups.clone().into();
    let Some(spec) = object["spec"].as_object_mut() else { return };
    spec.remove("uid");
    spec.remove("extra");
    if !user.uid.is_empty() {
        spec.insert("uid".into(), user.uid.clone().into());
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), serde_json::json!(user.extra));
    }
}

/// Its spec stays as it is; approval and status each write their own part.
pub(super) fn update_csr(op: &Operation, object: &mut Value, old: &Value) {
    object["spec"] = old["spec"].clone();
    if op.subresource.as_deref() == Some("approval") {
        let conditions = object["status"]["conditions"].take();
        object["status"] = old.get("status").cloned().unwrap_or_else(|| serde_json::json!({}));
        if let Some(status) = object["status"].as_object_mut() {
            status.remove("conditions");
            status.extend((!conditions.is_null()).then(|| ("conditions".to_owned(), conditions)));
        }
    }
    if op.subresource.is_some() {
        date_conditions(object, old, &freehold_apiserver_operation::now());
    }
}

/// Dates conditions that say no time; one that says what was said before keeps the time at which it began
/// (`populateConditionTimestamps` of Kubernetes).
fn date_conditions(object: &mut Value, old: &Value, now: &str) {
    let before = old["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    for condition in list_mut(object, "status.conditions").filter(|condition| condition.is_object()) {
        let same = |other: &&Value| ["type", "status"].iter().all(|field| other[field] == condition[field]);
        let since = before.iter().find(same).map(|other| other["lastTransitionTime"].clone());
        let since = since.filter(|time| !time.is_null()).unwrap_or_else(|| now.into());
        for (field, time) in [("lastUpdateTime", now.into()), ("lastTransitionTime", since)] {
            if condition[field].is_null() {
                condition[field] = time;
            }
        }
    }
}

/// A validating policy's expressions are checked against the types that it is about when its spec changes; what is found
/// stands in its status at once.
pub(crate) fn type_check(op: &Operation, object: &mut Value, old: Option<&Value>) {
    if op.subresource.is_some() || old.is_some_and(|old| old["spec"] == object["spec"]) {
        return;
    }
    let status = checked_status(
        object,
        |group, version, resource| op.types.find(group, version, resource).cloned(),
        |group, version, kind| op.types.by_kind(group, version, kind).cloned(),
    );
    if !object["status"].is_object() {
        object["status"] = serde_json::json!({});
    }
    for (field, value) in status.as_object().into_iter().flatten() {
        object["status"][field] = value.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn conditions_that_say_no_time_are_dated_and_keep_when_they_began() {
        let approved = |times: Value| {
            let mut condition = json!({"type": "Approved", "status": "True"});
            condition.as_object_mut().unwrap().extend(times.as_object().cloned().unwrap());
            json!({"status": {"conditions": [condition]}})
        };
        let rows = [
            (json!({}), json!({}), ("now", "now")),
            (json!({}), json!({"lastTransitionTime": "t0"}), ("now", "t0")),
            (json!({"lastUpdateTime": "t1", "lastTransitionTime": null}), json!({}), ("t1", "now")),
        ];
        for (new, old, (updated, since)) in rows {
            let mut object = approved(new);
            date_conditions(&mut object, &approved(old), "now");
            let condition = &object["status"]["conditions"][0];
            assert_eq!(
                (&condition["lastUpdateTime"], &condition["lastTransitionTime"]),
                (&updated.into(), &since.into())
            );
        }
        let mut odd = json!({"status": {"conditions": [1, null, "x"]}});
        date_conditions(&mut odd, &json!(null), "now");
    }
}
