//! Certificate signing requests.

use crate::Operation;
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
        object["status"]["conditions"] = conditions;
    }
}
