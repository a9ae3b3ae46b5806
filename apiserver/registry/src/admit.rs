//! Admission of writes: the built-in plugins over what the plane has in memory, quota in the same transaction, and
//! whether a writer may grant what it grants.

use crate::{DeleteOptions, Operation, Registry, validate};
use freehold_apiserver_admission::{Attributes, Chain, Lookup, Permission, Verb, policy, quota};
use freehold_apiserver_authz::Policy;
use freehold_apiserver_cache::{Cache, codec};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_storage::{Change, Expect, Key, ObjectPath};
use freehold_machinery::{PlaneId, Result, User, Value, meta, user::MASTERS};
use std::sync::{Arc, LazyLock};

/// What admission gives of a write that it lets through.
#[derive(Default)]
pub(crate) struct Admitted {
    /// Further conditions and changes of its commit.
    pub(crate) also: Vec<(Expect, Change)>,
    /// For the client.
    pub(crate) warnings: Vec<String>,
}

const RBAC: &str = "rbac.authorization.k8s.io";

static CHAIN: LazyLock<Chain> = LazyLock::new(|| Chain::new(&[], &[]));

/// What plugins may ask: the plane in memory.
struct View<'a> {
    cache: &'a Cache,
    types: &'a TypeSet,
    /// `None` for a user who may do everything.
    policy: Option<Arc<Policy>>,
}

fn path(group: &str, resource: &str, namespace: &str, name: &str) -> ObjectPath {
    let namespace = Some(namespace.to_owned()).filter(|n| !n.is_empty());
    ObjectPath { group: group.to_owned(), resource: resource.to_owned(), namespace, name: name.to_owned() }
}

impl Lookup for View<'_> {
    fn get(
        &self,
        plane: &PlaneId,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Option<Arc<Value>> {
        self.cache.peek(plane, &path(group, resource, namespace, name)).map(|entry| Arc::new(entry.value()))
    }

    fn list(&self, plane: &PlaneId, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        let namespace = Some(namespace).filter(|n| !n.is_empty());
        let found = self.cache.peek_list(plane, group, resource, namespace);
        found.into_iter().map(|entry| Arc::new(entry.value())).collect()
    }

    fn allows(&self, _: &PlaneId, user: &User, permission: &Permission<'_>) -> bool {
        let Permission { verb, group, version, resource, subresource, namespace, name } = *permission;
        let path = "";
        let asked = freehold_apiserver_authz::Attributes {
            user,
            verb,
            group,
            version,
            resource,
            subresource,
            namespace,
            name,
            path,
        };
        self.policy.as_ref().is_none_or(|policy| policy.authorize(&asked).allowed)
    }

    fn resource_of(&self, _: &PlaneId, api_version: &str, kind: &str) -> Option<(String, bool)> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let ty = self.types.by_kind(group, version, kind)?;
        Some((ty.plural.clone(), ty.namespaced))
    }
}

/// The write as admission sees it.
fn attributes<'a>(
    op: &'a Operation,
    verb: Verb,
    object: Option<&'a mut Value>,
    old: Option<&'a Value>,
    dry_run: bool,
) -> Attributes<'a> {
    Attributes {
        plane: &op.plane,
        user: &op.user,
        verb,
        ty: &op.ty,
        namespace: op.namespace.as_deref().unwrap_or_default(),
        name: if verb == Verb::Create { "" } else { op.name() },
        subresource: op.subresource.as_deref().unwrap_or_default(),
        object,
        old,
        dry_run,
        options: &Value::Null,
    }
}

fn verb(old: Option<&Value>) -> Verb {
    if old.is_some() { Verb::Update } else { Verb::Create }
}

impl Registry {
    async fn view<'a>(&'a self, op: &'a Operation) -> Result<View<'a>> {
        let policy = match op.user.is_in(MASTERS) {
            true => None,
            false => Some(self.policies.policy(&op.plane).await?),
        };
        Ok(View { cache: &self.cache, types: &op.types, policy })
    }

    /// Mutating admission.
    pub(crate) async fn admit(
        &self,
        op: &Operation,
        draft: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<()> {
        let view = self.view(op).await?;
        let mut attributes = attributes(op, verb(old), Some(draft), old, dry_run);
        CHAIN.admit(&mut attributes, &view)?;
        let policies = self.bound_policies(op, policy::MUTATING);
        if policies.is_empty() {
            return Ok(());
        }
        let settle = |object: &mut Value| {
            validate::prune(&op.ty, object);
            validate::default(&op.ty, object);
        };
        if policy::mutate(&mut attributes, &view, &policies, &settle)? {
            CHAIN.admit(&mut attributes, &view)?;
        }
        Ok(())
    }

    /// Validating admission, and the quotas that the write uses up: they are changed with it, or not at all.
    pub(crate) async fn validate_admission(
        &self,
        op: &Operation,
        draft: &mut Value,
        old: Option<&Value>,
        dry_run: bool,
    ) -> Result<Admitted> {
        if op.ty.group == RBAC {
            self.check_escalation(op, draft, old).await?;
        }
        let view = self.view(op).await?;
        let attributes = attributes(op, verb(old), Some(draft), old, dry_run);
        CHAIN.validate(&attributes, &view)?;
        let warnings = policy::validate(&attributes, &view, &self.bound_policies(op, policy::VALIDATING))?;
        let Some(namespace) = op.namespace.as_deref().filter(|_| op.ty.namespaced) else {
            return Ok(Admitted { warnings, ..Admitted::default() });
        };
        let entries = self.cache.peek_list(&op.plane, "", "resourcequotas", Some(namespace));
        if entries.is_empty() {
            return Ok(Admitted { warnings, ..Admitted::default() });
        }
        let quotas: Vec<Value> = entries.iter().map(|entry| entry.value()).collect();
        let changed = quota::check(&attributes, &quotas)?;
        let also = changed.into_iter().filter_map(|quota| self.quota_change(op, quota)).collect();
        Ok(Admitted { also, warnings })
    }

    /// A quota's new state, on the condition that it is still what was looked at.
    fn quota_change(&self, op: &Operation, mut quota: Value) -> Option<(Expect, Change)> {
        let modified = meta::resource_version(&quota).parse().ok()?;
        let path = path("", "resourcequotas", meta::namespace(&quota), meta::name(&quota));
        let key = Key::object(&op.plane, &path);
        meta::remove(&mut quota, "resourceVersion");
        let value = codec::encode(&quota);
        Some((Expect { key: key.clone(), modified }, Change::Put(key, value)))
    }

    /// Admission of a delete; gives warnings.
    pub(crate) async fn admit_delete(
        &self,
        op: &Operation,
        live: &Value,
        options: &DeleteOptions,
    ) -> Result<Vec<String>> {
        let view = self.view(op).await?;
        let mut attributes = attributes(op, Verb::Delete, None, Some(live), options.dry_run);
        CHAIN.admit(&mut attributes, &view)?;
        CHAIN.validate(&attributes, &view)?;
        policy::validate(&attributes, &view, &self.bound_policies(op, policy::VALIDATING))
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
