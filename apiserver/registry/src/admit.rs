//! Admission of writes: the built-in plugins over what the plane has in memory, and whether a writer may grant what it
//! grants.

use crate::{
    DeleteOptions, FieldValidation, Operation, Registry, Tenancy, WriteOptions,
    measure::Step,
    validate,
    webhooks::{Hooks, Rounds},
};
use freehold_apiserver_admission::{
    Attributes, Authorize, Check, Lookup, Permission, Verb,
    policy::{self, Bound, Form},
    webhook,
};
use freehold_apiserver_authz::{Access, Selector, Selectors};
use freehold_apiserver_cache::{Cache, Scope, WatchRequest, WatchStart};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_operation::attributes;
use freehold_apiserver_storage::ObjectPath;
use freehold_machinery::{
    PlaneId, ResourceType, Result, User, Value, meta,
    tenancy::OrganizationName,
    user::{AUTHENTICATED, MASTERS},
};
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The version of options.
const META: &str = "meta.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io";
/// The type of Secrets that are given a token, and the annotation that says whose.
const TOKEN_SECRET: &str = "kubernetes.io/service-account-token";
const TOKEN_ACCOUNT: &str = "kubernetes.io/service-account.name";
/// The service account of Pods that name none.
const DEFAULT: &str = "default";
/// How long a Pod's creation waits for it.
const ACCOUNT_PATIENCE: Duration = Duration::from_secs(6);

/// What plugins may ask: the plane in memory.
struct View<'a> {
    cache: &'a Cache,
    types: &'a TypeSet,
    tenancy: &'a dyn Tenancy,
    /// `None` for a user who may do everything.
    access: Option<Access>,
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

    fn list_mentioning(&self, plane: &PlaneId, group: &str, resource: &str, text: &str) -> Vec<Arc<Value>> {
        let found = self.cache.peek_list(plane, group, resource, None).into_iter();
        found.filter(|entry| entry.mentions(text)).map(|entry| Arc::new(entry.value())).collect()
    }

    fn is_terminating(&self, plane: &PlaneId, namespace: &str) -> Option<bool> {
        // Asked for each object that is made: it is not decoded for it.
        let found = self.cache.peek(plane, &path("", "namespaces", "", namespace))?;
        Some(found.is_deleting() || found.field("status.phase") == "Terminating")
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
            selectors: Default::default(),
        };
        let allows = |access: &Access| access.decide(&asked).is_ok_and(|decision| decision.allowed);
        self.access.as_ref().is_none_or(allows)
    }

    fn authorizer(&self, _: &PlaneId, user: &User) -> Option<Arc<dyn Authorize>> {
        let access = self.access.clone()?;
        Some(Arc::new(Rights { user: user.clone(), access }))
    }

    fn equivalents(&self, _: &PlaneId, ty: &ResourceType) -> Vec<Arc<ResourceType>> {
        let same = |other: &&Arc<ResourceType>| {
            other.storage.group == ty.storage.group
                && other.storage.resource == ty.storage.resource
                && (&other.group, &other.version) != (&ty.group, &ty.version)
        };
        self.types.iter().filter(same).cloned().collect()
    }

    fn organization_of(&self, project: &str) -> Option<OrganizationName> {
        OrganizationName::named(&self.tenancy.known_organization_of(project)?)
    }

    fn resource_of(&self, _: &PlaneId, api_version: &str, kind: &str) -> Option<(String, bool)> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let ty = self.types.by_kind(group, version, kind)?;
        Some((ty.plural.clone(), ty.namespaced))
    }
}

/// What a user may do, for the expressions of policies.
struct Rights {
    user: User,
    access: Access,
}

impl Authorize for Rights {
    fn check(&self, check: &Check) -> Result<(bool, String), String> {
        let account;
        let user = match &check.service_account {
            None => &self.user,
            Some((namespace, name)) => {
                account = User {
                    name: format!("system:serviceaccount:{namespace}:{name}"),
                    groups: vec![
                        "system:serviceaccounts".to_owned(),
                        format!("system:serviceaccounts:{namespace}"),
                        AUTHENTICATED.to_owned(),
                    ],
                    is_subject: true,
                    ..User::default()
                };
                &account
            }
        };
        let asked = freehold_apiserver_authz::Attributes {
            user,
            verb: &check.verb,
            group: &check.group,
            version: "*",
            resource: &check.resource,
            subresource: &check.subresource,
            namespace: &check.namespace,
            name: &check.name,
            path: &check.path,
            selectors: Selectors {
                fields: Selector::Text(&check.fields),
                labels: Selector::Text(&check.labels),
            },
        };
        let decision = self.access.decide(&asked)?;
        Ok((decision.allowed, decision.reason))
    }
}

/// `CreateOptions`, `UpdateOptions` or `PatchOptions`, for those who ask.
fn written(verb: Verb, options: &WriteOptions) -> Value {
    let kind = if verb == Verb::Create { "CreateOptions" } else { "UpdateOptions" };
    let mut value = json!({"kind": kind, "apiVersion": META});
    if options.dry_run {
        value["dryRun"] = json!(["All"]);
    }
    if !options.field_manager.is_empty() {
        value["fieldManager"] = options.field_manager.clone().into();
    }
    value["fieldValidation"] = match options.field_validation {
        FieldValidation::Ignore => "Ignore",
        FieldValidation::Warn => "Warn",
        FieldValidation::Strict => "Strict",
    }
    .into();
    value
}

fn deleting(options: &DeleteOptions) -> Value {
    let mut value = json!({"kind": "DeleteOptions", "apiVersion": META});
    if options.dry_run {
        value["dryRun"] = json!(["All"]);
    }
    if let Some(seconds) = options.grace_period {
        value["gracePeriodSeconds"] = seconds.into();
    }
    if let Some(policy) = &options.propagation {
        value["propagationPolicy"] = policy.clone().into();
    }
    let preconditions = [("uid", &options.uid), ("resourceVersion", &options.resource_version)];
    for (field, given) in
        preconditions.into_iter().filter_map(|(field, given)| Some((field, given.as_ref()?)))
    {
        value["preconditions"][field] = given.clone().into();
    }
    value
}

/// The service account, by namespace and name, that a write makes, or makes a credential of.
fn account_of<'a>(op: &'a Operation, draft: &'a Value) -> Option<(&'a str, &'a str)> {
    let namespace = op.namespace.as_deref().filter(|_| op.ty.group.is_empty())?;
    let name = match (op.ty.plural.as_str(), op.subresource.as_deref()) {
        ("serviceaccounts", None) => meta::name(draft),
        ("serviceaccounts", Some("token")) => op.name(),
        ("secrets", None) if draft["type"] == TOKEN_SECRET => {
            draft["metadata"]["annotations"][TOKEN_ACCOUNT].as_str()?
        }
        _ => return None,
    };
    Some((namespace, name))
}

fn verb(old: Option<&Value>) -> Verb {
    if old.is_some() { Verb::Update } else { Verb::Create }
}

impl Registry {
    /// What plugins may ask. `asked`: there are expressions, that may ask about others than who writes.
    async fn view<'a>(&'a self, op: &'a Operation, asked: bool) -> Result<View<'a>> {
        let access = match op.user.is_in(MASTERS) && !asked {
            true => None,
            false => Some(self.policies.access(&op.plane).await?),
        };
        Ok(View { cache: &self.cache, types: &op.types, tenancy: &**self.ledger.tenancy(), access })
    }

    /// Waits for the account `default`, which is made soon after its namespace, where a Pod is created that early: until the
    /// cache has it, at most for 6 s, and not where the namespace is on its way out. kube-apiserver waits for 1.5 s.
    async fn await_account(&self, op: &Operation, draft: &Value) -> Result<()> {
        let account = draft["spec"]["serviceAccountName"].as_str().unwrap_or_default();
        let is_pod = op.ty.group.is_empty() && op.ty.plural == "pods" && op.subresource.is_none();
        let Some(namespace) = op.namespace.as_deref().filter(|_| is_pod && matches!(account, "" | DEFAULT))
        else {
            return Ok(());
        };
        let place = path("", "namespaces", "", namespace);
        let path = path("", "serviceaccounts", namespace, DEFAULT);
        let is_settled = || {
            let ends = || self.cache.peek(&op.plane, &place).is_none_or(|entry| entry.is_deleting());
            self.cache.peek(&op.plane, &path).is_some() || ends()
        };
        if is_settled() {
            return Ok(());
        }
        let plane = || Scope::Plane(op.plane.clone());
        let watch = |resource, place| {
            let request = WatchRequest { place: Some(place), ..WatchRequest::all("", resource) };
            self.cache.watch(plane(), request, WatchStart::Now)
        };
        let default_account = format!("{namespace}/{DEFAULT}");
        let mut accounts = watch("serviceaccounts", &*default_account).await?;
        let mut namespaces = watch("namespaces", namespace).await?;
        let settled = async {
            // Watches that were cut off have missed something: what is there then decides.
            while !is_settled() {
                let event = tokio::select! {
                    event = accounts.next() => event,
                    event = namespaces.next() => event,
                };
                if event.is_none() {
                    return;
                }
            }
        };
        // Whether it came in time is for the plugins to see.
        drop(tokio::time::timeout(ACCOUNT_PATIENCE, settled).await);
        Ok(())
    }

    fn plugins_admit(&self, attributes: &mut Attributes<'_>, view: &View<'_>) -> Result<()> {
        let told = self.admission.plugins(Step::Admit, attributes.verb);
        self.chain.admit_telling(attributes, view, told)
    }

    fn plugins_validate(&self, attributes: &Attributes<'_>, view: &View<'_>) -> Result<()> {
        self.chain.validate_telling(attributes, view, self.admission.plugins(Step::Validate, attributes.verb))
    }

    /// Mutating admission; gives warnings.
    pub(crate) async fn admit(
        &self,
        op: &Operation,
        draft: &mut Value,
        old: Option<&Value>,
        options: &WriteOptions,
    ) -> Result<Vec<String>> {
        let since = Instant::now();
        let result = self.admitted(op, draft, old, options).await;
        self.admission.step(Step::Admit, verb(old), since.elapsed(), result.is_err());
        result
    }

    async fn admitted(
        &self,
        op: &Operation,
        draft: &mut Value,
        old: Option<&Value>,
        options: &WriteOptions,
    ) -> Result<Vec<String>> {
        if old.is_none() {
            self.await_account(op, draft).await?;
        }
        let policies = self.bound_policies(op, policy::MUTATING).await?;
        let hooks = self.hooks(op, webhook::MUTATING).await?;
        let asked = !policies.is_empty() || !hooks.is_empty();
        let view = self.view(op, asked).await?;
        let given = if asked { written(verb(old), options) } else { Value::Null };
        let mut attributes = attributes(op, verb(old), Some(draft), old, (options.dry_run, &given));
        self.plugins_admit(&mut attributes, &view)?;
        self.mutate(op, &mut attributes, &view, &policies, &hooks).await
    }

    /// Policies and webhooks that change the object, and what ran before them once more where they did.
    async fn mutate(
        &self,
        op: &Operation,
        attributes: &mut Attributes<'_>,
        view: &View<'_>,
        policies: &[Bound],
        hooks: &Hooks,
    ) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        if policies.is_empty() && hooks.is_empty() {
            return Ok(warnings);
        }
        let subresource = attributes.subresource;
        let settle = |object: &mut Value| validate::settle(&op.ty, subresource, object);
        let form = Form { schema: validate::spoken_schema(&op.ty, subresource), settle: &settle };
        let by_policies = policy::mutate(attributes, view, policies, &form)?;
        let mut rounds = Rounds::default();
        let by_hooks =
            self.mutate_by_webhooks(op, attributes, view, hooks, &mut rounds, &mut warnings).await?;
        if by_policies || by_hooks {
            self.plugins_admit(attributes, view)?;
            if by_hooks {
                let again: Vec<Bound> = policies.iter().filter(|p| p.runs_again()).cloned().collect();
                policy::mutate(attributes, view, &again, &form)?;
            }
            rounds.again(attributes.object());
            self.mutate_by_webhooks(op, attributes, view, hooks, &mut rounds, &mut warnings).await?;
        }
        Ok(warnings)
    }

    /// Validating admission; gives warnings.
    pub(crate) async fn validate_admission(
        &self,
        op: &Operation,
        draft: &mut Value,
        old: Option<&Value>,
        options: &WriteOptions,
    ) -> Result<Vec<String>> {
        let since = Instant::now();
        let result = self.validated(op, draft, old, options).await;
        self.admission.step(Step::Validate, verb(old), since.elapsed(), result.is_err());
        result
    }

    async fn validated(
        &self,
        op: &Operation,
        draft: &mut Value,
        old: Option<&Value>,
        options: &WriteOptions,
    ) -> Result<Vec<String>> {
        if op.ty.group == RBAC {
            self.check_escalation(op, draft, old).await?;
        }
        self.check_platform(op, draft, old).await?;
        if let Some(account) = account_of(op, draft).filter(|_| !op.user.from_host) {
            self.policies.access(&op.plane).await?.check_account(&op.user, account)?;
        }
        let policies = self.bound_policies(op, policy::VALIDATING).await?;
        let hooks = self.hooks(op, webhook::VALIDATING).await?;
        let asked = !policies.is_empty() || !hooks.is_empty();
        let view = self.view(op, asked).await?;
        let given = if asked { written(verb(old), options) } else { Value::Null };
        let attributes = attributes(op, verb(old), Some(draft), old, (options.dry_run, &given));
        self.plugins_validate(&attributes, &view)?;
        let mut warnings = op.annotations.take_warnings();
        warnings.extend(policy::validate(&attributes, &view, &policies)?);
        if !hooks.is_empty() {
            warnings.extend(self.validate_by_webhooks(op, &attributes, &view, &hooks).await?);
        }
        Ok(warnings)
    }

    /// Admission of a delete; gives warnings.
    pub(crate) async fn admit_delete(
        &self,
        op: &Operation,
        live: &Value,
        options: &DeleteOptions,
    ) -> Result<Vec<String>> {
        self.check_platform_deletion(op, live).await?;
        let object = None;
        self.pass(op, (Verb::Delete, object, Some(live)), (options.dry_run, deleting(options))).await
    }

    /// Runs mutating admission of what is posted and not stored as it is (`serviceaccounts/token`, reviews); gives warnings.
    ///
    /// # Errors
    /// What a plugin, a policy or a webhook refuses it with.
    pub async fn admit_posted(
        &self,
        op: &Operation,
        object: &mut Value,
        options: &WriteOptions,
    ) -> Result<Vec<String>> {
        self.admit(op, object, None, options).await
    }

    /// Runs validating admission of what is posted and not stored as it is; gives warnings.
    ///
    /// # Errors
    /// What a plugin, a policy or a webhook refuses it with.
    pub async fn validate_posted(
        &self,
        op: &Operation,
        object: &mut Value,
        options: &WriteOptions,
    ) -> Result<Vec<String>> {
        self.validate_admission(op, object, None, options).await
    }

    /// Runs admission of a connection (`pods/exec`), with the options that it has; gives warnings.
    ///
    /// # Errors
    /// What a plugin, a policy or a webhook refuses it with.
    pub async fn admit_connect(&self, op: &Operation, mut options: Value) -> Result<Vec<String>> {
        let given = options.clone();
        self.pass(op, (Verb::Connect, Some(&mut options), None), (false, given)).await
    }

    /// Both passes of admission over something that is not stored.
    async fn pass(
        &self,
        op: &Operation,
        (verb, object, old): (Verb, Option<&mut Value>, Option<&Value>),
        (dry_run, options): (bool, Value),
    ) -> Result<Vec<String>> {
        let policies = self.bound_policies(op, policy::VALIDATING).await?;
        let (mutating, validating) =
            (self.hooks(op, webhook::MUTATING).await?, self.hooks(op, webhook::VALIDATING).await?);
        let asked = !policies.is_empty() || !mutating.is_empty() || !validating.is_empty();
        let view = self.view(op, asked).await?;
        let mut attributes = attributes(op, verb, object, old, (dry_run, &options));
        self.plugins_admit(&mut attributes, &view)?;
        let mut warnings = self.mutate(op, &mut attributes, &view, &[], &mutating).await?;
        self.plugins_validate(&attributes, &view)?;
        warnings.extend(op.annotations.take_warnings());
        warnings.extend(policy::validate(&attributes, &view, &policies)?);
        if !validating.is_empty() {
            warnings.extend(self.validate_by_webhooks(op, &attributes, &view, &validating).await?);
        }
        Ok(warnings)
    }

    /// Nobody grants more than they have, unless they may `escalate` or `bind`.
    async fn check_escalation(&self, op: &Operation, draft: &Value, old: Option<&Value>) -> Result<()> {
        let access = self.policies.access(&op.plane).await?;
        if op.ty.plural.ends_with("bindings") {
            access.check_binding(&op.user, draft, old)
        } else {
            access.check_role(&op.user, draft, old)
        }
    }
}
