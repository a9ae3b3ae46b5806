//! What stands between a well-formed object and its commit: the kind's own rules, the namespace it goes into, and
//! whether its writer may grant what it grants.

use crate::{DeleteOptions, Operation, Registry};
use freehold_apiserver_authz::{Attributes, Rule};
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
        let bindings = op.ty.plural.ends_with("bindings");
        let part = if bindings { "subjects" } else { "rules" };
        if op.user.is_in(freehold_machinery::user::MASTERS)
            || old.is_some_and(|old| old.get(part) == draft.get(part))
        {
            return Ok(());
        }
        let policy = self.policies.policy(&op.plane).await?;
        let namespace = op.namespace.as_deref().unwrap_or_default();
        let role = draft["roleRef"]["name"].as_str().unwrap_or_default();
        let (verb, resource, name) = match (bindings, draft["roleRef"]["kind"].as_str()) {
            (true, Some("ClusterRole")) => ("bind", "clusterroles", role),
            (true, _) => ("bind", "roles", role),
            (false, _) => ("escalate", op.ty.plural.as_str(), op.name()),
        };
        let asked = Attributes {
            user: &op.user,
            verb,
            group: RBAC,
            version: &op.ty.version,
            resource,
            subresource: "",
            namespace,
            name,
            path: "",
        };
        if policy.authorize(&asked).allowed {
            return Ok(());
        }
        let wanted = if bindings {
            let missing = || Status::not_found(&GroupResource::new(RBAC, resource), role);
            policy.rules_of(&draft["roleRef"], namespace).ok_or_else(missing)?
        } else {
            draft["rules"].as_array().into_iter().flatten().map(Rule::read).collect()
        };
        let uncovered = policy.uncovered(&op.user, namespace, &wanted);
        if uncovered.is_empty() {
            return Ok(());
        }
        let list: Vec<String> = uncovered.iter().map(describe).collect();
        let (user, groups) = (&op.user.name, &op.user.groups);
        let why = format!(
            "user {user:?} (groups={groups:?}) is attempting to grant RBAC permissions not currently held:\n{}",
            list.join("\n")
        );
        Err(Status::forbidden(&op.ty.group_resource(), op.name(), &why))
    }
}

fn describe(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.groups),
        ("Resources", &rule.resources),
        ("ResourceNames", &rule.names),
        ("NonResourceURLs", &rule.paths),
        ("Verbs", &rule.verbs),
    ];
    let given = parts.into_iter().filter(|(_, list)| !list.is_empty());
    format!("{{{}}}", given.map(|(name, list)| format!("{name}:{list:?}")).collect::<Vec<_>>().join(", "))
}
