//! The authorizer of admission policies and match conditions: may somebody do something in this control plane
//! (<https://kubernetes.io/docs/reference/using-api/cel/#kubernetes-authorizer-library>).

use super::opaque::opaque;
use crate::value::Owned;
use cel::{
    DeclarationError, Env, ExecutionError, add_member_overload,
    common::{
        traits::Indexer,
        types::{CelBool, CelString, Type},
        value::{CowVal, StaticVal, Val},
    },
};
use std::{any::Any, fmt, sync::Arc};

/// What is asked: a resource, or a path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Check {
    /// Namespace and name of the service account that it is about; `None`: who writes.
    pub service_account: Option<(String, String)>,
    /// The verb.
    pub verb: String,
    /// A path that is no resource; empty for resources.
    pub path: String,
    /// API group.
    pub group: String,
    /// The plural resource.
    pub resource: String,
    /// The subresource, empty for the main one.
    pub subresource: String,
    /// The namespace, empty for all.
    pub namespace: String,
    /// The object's name, empty for all.
    pub name: String,
    /// What a list is narrowed to by fields, as a selector.
    pub fields: String,
    /// What a list is narrowed to by labels, as a selector.
    pub labels: String,
}

/// Answers checks: `Ok` with whether it is allowed and why.
pub trait Authorize: Send + Sync {
    /// Whether something is allowed.
    ///
    /// # Errors
    /// It can't be told; the text is what expressions see.
    fn check(&self, check: &Check) -> Result<(bool, String), String>;
}

/// An authorizer as expressions have it, with the check that `authorizer.requestResource` stands for.
#[derive(Clone)]
pub struct Authorizer(Arc<Inner>);

struct Inner {
    authorize: Arc<dyn Authorize>,
    request: Check,
}

impl Authorizer {
    /// One that asks `authorize`. `request` is the resource that is written.
    pub fn new(authorize: Arc<dyn Authorize>, request: Check) -> Self {
        Self(Arc::new(Inner { authorize, request }))
    }

    /// The value that expressions see.
    pub(crate) fn value(&self) -> AuthorizerValue {
        AuthorizerValue { authorizer: self.clone(), account: None }
    }

    fn resource(&self, check: Check) -> ResourceCheck {
        ResourceCheck(Asked { authorizer: self.clone(), check })
    }

    fn decide(&self, check: &Check) -> Decided {
        match self.0.authorize.check(check) {
            Ok((allowed, reason)) => Decided { allowed, reason, error: String::new() },
            Err(error) => Decided { allowed: false, reason: String::new(), error },
        }
    }
}

impl PartialEq for Authorizer {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorizer")
    }
}

/// A check on its way, and who answers it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asked {
    authorizer: Authorizer,
    check: Check,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decided {
    allowed: bool,
    reason: String,
    error: String,
}

opaque!(
    /// A check of an API group.
    GroupCheck(Asked), GROUP = "kubernetes.authorization.GroupCheck", copy_group
);
opaque!(
    /// A check of a resource.
    ResourceCheck(Asked), RESOURCE = "kubernetes.authorization.ResourceCheck", copy_resource
);
opaque!(
    /// A check of a path.
    PathCheck(Asked), PATH = "kubernetes.authorization.PathCheck", copy_path
);
opaque!(
    /// What the authorizer says.
    Decision(Decided), DECISION = "kubernetes.authorization.Decision", copy_decision
);

/// Copies of values of these types.
pub(super) const COPIES: [fn(&dyn Val) -> Option<Owned>; 4] =
    [copy_group, copy_resource, copy_path, copy_decision];

static AUTHORIZER: Type = Type::new_unspecified_type("kubernetes.authorization.Authorizer");

/// `authorizer`, for who writes or for a service account.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AuthorizerValue {
    authorizer: Authorizer,
    account: Option<(String, String)>,
}

impl StaticVal for AuthorizerValue {}

impl Val for AuthorizerValue {
    fn get_type(&self) -> &Type {
        &AUTHORIZER
    }

    fn cel_type() -> &'static Type {
        &AUTHORIZER
    }

    fn as_indexer<'b, 'v>(&'b self) -> Option<&'b (dyn Indexer + 'v)>
    where
        Self: 'v,
    {
        Some(self)
    }

    fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
        Box::new(self.clone())
    }

    fn as_any(&self) -> Option<&dyn Any> {
        Some(self)
    }
}

impl Indexer for AuthorizerValue {
    fn get<'b, 'v>(&'b self, key: &dyn Val) -> Result<CowVal<'b, 'v>, ExecutionError>
    where
        Self: 'v,
    {
        match key.downcast_ref::<CelString<'_>>().map(CelString::inner) {
            Some("requestResource") => {
                let check = self.authorizer.0.request.clone();
                Ok(CowVal::Owned(Box::new(self.authorizer.resource(check))))
            }
            other => Err(ExecutionError::NoSuchKey(other.unwrap_or_default().to_owned().into())),
        }
    }

    fn steal<'v>(self: Box<Self>, key: &dyn Val) -> Result<Box<dyn Val + 'v>, ExecutionError>
    where
        Self: 'v,
    {
        self.get(key).map(CowVal::into_owned)
    }
}

pub(super) fn extension(env: &mut Env) -> Result<(), DeclarationError> {
    for ty in [&AUTHORIZER, &GROUP, &RESOURCE, &PATH, &DECISION] {
        env.add_type((*ty).to_owned())?;
    }
    add_member_overload!(env, fn path: (AuthorizerValue, CelString<'_>) -> PathCheck)?;
    add_member_overload!(env, fn group: (AuthorizerValue, CelString<'_>) -> GroupCheck)?;
    add_member_overload!(env, fn service_account: (AuthorizerValue, CelString<'_>, CelString<'_>) -> AuthorizerValue)?;
    add_member_overload!(env, fn resource: (GroupCheck, CelString<'_>) -> ResourceCheck)?;
    add_member_overload!(env, fn subresource: (ResourceCheck, CelString<'_>) -> ResourceCheck)?;
    add_member_overload!(env, fn namespace: (ResourceCheck, CelString<'_>) -> ResourceCheck)?;
    add_member_overload!(env, fn name: (ResourceCheck, CelString<'_>) -> ResourceCheck)?;
    add_member_overload!(env, fn field_selector: (ResourceCheck, CelString<'_>) -> ResourceCheck)?;
    add_member_overload!(env, fn label_selector: (ResourceCheck, CelString<'_>) -> ResourceCheck)?;
    add_member_overload!(env, fn check_resource: (ResourceCheck, CelString<'_>) -> Decision, name = "check")?;
    add_member_overload!(env, fn check_path: (PathCheck, CelString<'_>) -> Decision, name = "check")?;
    add_member_overload!(env, fn allowed: (Decision) -> CelBool)?;
    add_member_overload!(env, fn errored: (Decision) -> CelBool)?;
    add_member_overload!(env, fn reason: (Decision) -> CelString<'_>)?;
    add_member_overload!(env, fn error: (Decision) -> CelString<'_>)
}

fn start(this: &AuthorizerValue, fill: impl FnOnce(&mut Check)) -> Asked {
    let mut check = Check { service_account: this.account.clone(), ..Check::default() };
    fill(&mut check);
    Asked { authorizer: this.authorizer.clone(), check }
}

fn path(this: &AuthorizerValue, path: &CelString<'_>) -> PathCheck {
    PathCheck(start(this, |check| check.path = path.inner().to_owned()))
}

fn group(this: &AuthorizerValue, group: &CelString<'_>) -> GroupCheck {
    GroupCheck(start(this, |check| check.group = group.inner().to_owned()))
}

fn service_account(
    this: &AuthorizerValue,
    namespace: &CelString<'_>,
    name: &CelString<'_>,
) -> AuthorizerValue {
    let account = Some((namespace.inner().to_owned(), name.inner().to_owned()));
    AuthorizerValue { authorizer: this.authorizer.clone(), account }
}

fn resource(this: &GroupCheck, resource: &CelString<'_>) -> ResourceCheck {
    let mut asked = this.0.clone();
    asked.check.resource = resource.inner().to_owned();
    ResourceCheck(asked)
}

fn with(this: &ResourceCheck, fill: impl FnOnce(&mut Check)) -> ResourceCheck {
    let mut asked = this.0.clone();
    fill(&mut asked.check);
    ResourceCheck(asked)
}

fn subresource(this: &ResourceCheck, text: &CelString<'_>) -> ResourceCheck {
    with(this, |check| check.subresource = text.inner().to_owned())
}

fn namespace(this: &ResourceCheck, text: &CelString<'_>) -> ResourceCheck {
    with(this, |check| check.namespace = text.inner().to_owned())
}

fn name(this: &ResourceCheck, text: &CelString<'_>) -> ResourceCheck {
    with(this, |check| check.name = text.inner().to_owned())
}

fn field_selector(this: &ResourceCheck, text: &CelString<'_>) -> ResourceCheck {
    with(this, |check| check.fields = text.inner().to_owned())
}

fn label_selector(this: &ResourceCheck, text: &CelString<'_>) -> ResourceCheck {
    with(this, |check| check.labels = text.inner().to_owned())
}

fn decide(asked: &Asked, verb: &CelString<'_>) -> Decision {
    let check = Check { verb: verb.inner().to_owned(), ..asked.check.clone() };
    Decision(asked.authorizer.decide(&check))
}

fn check_resource(this: &ResourceCheck, verb: &CelString<'_>) -> Decision {
    decide(&this.0, verb)
}

fn check_path(this: &PathCheck, verb: &CelString<'_>) -> Decision {
    decide(&this.0, verb)
}

fn allowed(this: &Decision) -> CelBool {
    this.0.allowed.into()
}

fn errored(this: &Decision) -> CelBool {
    (!this.0.error.is_empty()).into()
}

fn reason(this: &Decision) -> CelString<'static> {
    this.0.reason.clone().into()
}

fn error(this: &Decision) -> CelString<'static> {
    this.0.error.clone().into()
}
