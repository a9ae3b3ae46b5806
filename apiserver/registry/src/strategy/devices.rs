//! Claims of devices.

use crate::{Operation, Registry};
use freehold_apiserver_kinds::access::{at, list};
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{
    Result, Status, Value, meta,
    status::{FieldError, FieldErrorKind},
};

const ADMIN_ACCESS: &str = "resource.kubernetes.io/admin-access";

impl Registry {
    /// 422 for a new claim of access to devices that others use, or a template of one, where the namespace's label does not
    /// allow it (<https://kep.k8s.io/5018>).
    pub(crate) fn check_admin_access(&self, op: &Operation, object: &Value) -> Result<()> {
        let requests = match op.ty.plural.as_str() {
            "resourceclaims" => list(object, "spec.devices.requests"),
            "resourceclaimtemplates" => list(object, "spec.spec.devices.requests"),
            _ => return Ok(()),
        };
        let asks = |request: &Value| at(request, "exactly.adminAccess") == &Value::Bool(true);
        let Some(index) = requests.iter().position(asks) else { return Ok(()) };
        let name = op.namespace.clone().unwrap_or_default();
        let place = ObjectPath { group: "".into(), resource: "namespaces".into(), namespace: None, name };
        // Who writes into a namespace that is not there is told so by others.
        let Some(namespace) = self.cache.peek(&op.plane, &place) else { return Ok(()) };
        if meta::label(&namespace.value(), ADMIN_ACCESS) == Some("true") {
            return Ok(());
        }
        // Kubernetes names the same field in a template.
        let error = FieldError::new(
            FieldErrorKind::Forbidden,
            format!("spec.devices.requests[{index}].adminAccess"),
            format!(
                "admin access to devices requires the `{ADMIN_ACCESS}: true` label on the containing namespace"
            ),
        );
        Err(Status::invalid(&op.ty.group, &op.ty.kind, op.name(), &[error]))
    }
}
