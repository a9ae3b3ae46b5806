//! Policies and webhooks of an export: held to what Kubernetes requires of them when the export is written.

use super::{GROUP, list, text};
use crate::{Operation, Registry, validate};
use freehold_apiserver_admission::{bundle, policy};
use freehold_machinery::{Result, Status, Value, status::FieldError};
use serde_json::json;

/// The subresource of a binding with what its export brings, and what the provider did of late.
pub(crate) const ACCESS: &str = "access";
/// Errors that are told of one export.
const TOLD: usize = 20;

/// 422 for policies and webhooks that an export may not have.
pub(super) fn check(op: &Operation, draft: &Value, old: Option<&Value>) -> Result<()> {
    let same = |field: &str| old.is_some_and(|old| list(old, field) == list(draft, field));
    if same("/spec/policies") && same("/spec/webhooks") {
        return Ok(());
    }
    let mut errors = Vec::new();
    for field in ["policies", "webhooks"] {
        if list(draft, &format!("/spec/{field}")).len() > bundle::MAX {
            errors.push(FieldError::forbidden(
                format!("spec.{field}"),
                format!("must have at most {}", bundle::MAX),
            ));
        }
    }
    if errors.is_empty() {
        errors = bundle::wrong(&draft["spec"]);
    }
    if errors.is_empty() {
        errors = as_objects(op, &draft["spec"]);
    }
    if errors.is_empty() {
        return Ok(());
    }
    errors.truncate(TOLD);
    Err(Status::invalid(&op.ty.group, &op.ty.kind, op.name(), &errors))
}

/// What is wrong about them as objects of Kubernetes.
fn as_objects(op: &Operation, spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for bundle::Bundled { path, resource, mut object } in bundle::objects(spec) {
        let Some(ty) = op.types.by_resource(policy::GROUP, resource) else {
            errors.push(FieldError::forbidden(path, format!("{resource} are not served here")));
            continue;
        };
        if let Some(why) = validate::unreadable(ty, &object) {
            errors.push(FieldError::invalid(path, Value::Null, why));
            continue;
        }
        validate::default(ty, &mut object);
        let found = freehold_apiserver_kinds::check::run(ty, None, &object, None);
        errors.extend(
            found.into_iter().map(|error| FieldError { field: format!("{path}: {}", error.field), ..error }),
        );
    }
    errors
}

impl Registry {
    /// What the export of a binding brings, and what its provider did here of late.
    pub(crate) fn access(&self, op: &Operation, binding: &Value) -> Result<Value> {
        let (provider, export) = (text(binding, "/status/plane"), text(binding, "/spec/export/name"));
        let mut access = self.exports()?.access(&op.plane, provider, export).unwrap_or_else(|| json!({}));
        access["apiVersion"] = format!("{GROUP}/v1alpha1").into();
        access["kind"] = "BindingAccess".into();
        access["metadata"] = json!({"name": op.name()});
        Ok(access)
    }
}
