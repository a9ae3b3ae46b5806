//! Certificate signing requests, and admission policies.

use crate::Operation;
use freehold_apiserver_admission::policy::checked_status;
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
}

/// A validating policy's expressions are checked against the types that it is about when its spec changes; what is found
/// stands in its status at once.
pub(super) fn type_check(op: &Operation, object: &mut Value, old: Option<&Value>) {
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
