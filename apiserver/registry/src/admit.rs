//! What stands between a well-formed object and its commit: the kind's own rules, the namespace it goes into, and
//! whether its writer may grant what it grants.

use crate::{DeleteOptions, Operation, Registry};
use freehold_apiserver_storage::{Change, Expect, ObjectPath};
use freehold_machinery::{GroupResource, Result, Status, Value, meta, status::Cause};

/// Further conditions and changes of a commit.
pub(crate) type Also = Vec<(Expect, Change)>;

const RBAC: &str = "rbac.authorization.k8s.io";
/// Namespaces that can't be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

impl Registry {
    /// Mutating admission.
    pub(crate) async fn admit(
        &self,
        op: &Operation,
        draft: &mut Value,
        old: Option<&Value>,
        _dry_run: bool,
    ) -> Result<Also> {
        if old.is_none() {
            self.check_namespace(op, draft).await?;
        }
        Ok(Also::new())
    }

    /// Validating admission.
    pub(crate) async fn validate_admission(
        &self,
        op: &Operation,
        draft: &Value,
        old: Option<&Value>,
        _dry_run: bool,
    ) -> Result<Also> {
        if op.ty.group == RBAC {
            self.check_escalation(op, draft, old).await?;
        }
        Ok(Also::new())
    }

    /// Admission of a delete.
    pub(crate) async fn admit_delete(
        &self,
        op: &Operation,
        _live: &Value,
        _options: &DeleteOptions,
    ) -> Result<Also> {
        if op.ty.group.is_empty() && op.ty.plural == "namespaces" && IMMORTAL.contains(&op.name()) {
            let why = "this namespace may not be deleted";
            return Err(Status::forbidden(&op.ty.group_resource(), op.name(), why));
        }
        Ok(Also::new())
    }

    /// Objects are made in namespaces that are there and stay.
    async fn check_namespace(&self, op: &Operation, draft: &Value) -> Result<()> {
        let Some(namespace) = op.namespace.as_deref().filter(|_| op.ty.namespaced) else { return Ok(()) };
        let namespaces = GroupResource::new("", "namespaces");
        let path = ObjectPath {
            group: String::new(),
            resource: "namespaces".into(),
            namespace: None,
            name: namespace.into(),
        };
        let found = self.cache.get_cached(&op.plane, &path).await?;
        let entry = found.ok_or_else(|| Status::not_found(&namespaces, namespace))?;
        if !entry.is_deleting() {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let status = Status::forbidden(&op.ty.group_resource(), meta::name(draft), &why);
        Err(status.with_details(|details| {
            details.causes.push(Cause {
                reason: "NamespaceTerminating".into(),
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".into(),
            });
        }))
    }

    /// Nobody grants more than they have, unless they may `escalate` or `bind`.
    async fn check_escalation(&self, op: &Operation, draft: &Value, old: Option<&Value>) -> Result<()> {
        let policy = self.policies.policy(&op.plane).await?;
        if op.ty.plural.ends_with("bindings") {
            policy.check_binding(&op.user, draft, old)
        } else {
            policy.check_role(&op.user, draft, old)
        }
    }
}
