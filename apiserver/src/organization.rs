//! The views of organizations and users of the core plane: their own objects and nobody else's, for every verb.

use freehold_apiserver_authz::{
    Attributes,
    iam::{Iam, RESOURCES_GROUP},
};
use freehold_apiserver_cache::Entry;
use freehold_apiserver_planes::{OrganizationScope, Planes};
use freehold_apiserver_registry::{Operation, Patch, Places, Registry, Shown, WatchEvent};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, Value, meta};
use futures_util::{
    FutureExt, Stream, StreamExt,
    future::{self, Either},
    stream::{self, BoxStream},
};
use parking_lot::RwLock;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// The API group of organizations, projects and memberships.
pub(crate) const GROUP: &str = RESOURCES_GROUP;
/// API group of people, roles and bindings.
pub(crate) const IAM: &str = freehold_apiserver_authz::iam::GROUP;
/// API group of what an organization is allowed.
const QUOTA: &str = freehold_apiserver_authz::iam::QUOTA_GROUP;
/// How long changes are collected before a user's memberships are compared.
const TOGETHER: Duration = Duration::from_millis(100);

/// Whether an operation is about objects of the core plane: those that say who owns what, and whatever is in the
/// organization's own namespace. Everything else is asked over all of its projects.
pub(crate) fn is_core(op: &Operation, scope: &OrganizationScope) -> bool {
    matches!(op.ty.group.as_str(), GROUP | IAM | QUOTA) || op.namespace.as_deref() == Some(&*scope.namespace)
}

/// Whether an object of the core plane belongs to the organization.
fn belongs(op: &Operation, scope: &OrganizationScope, object: &Value) -> bool {
    match op.ty.plural.as_str() {
        "projects" => object["spec"]["ownerRef"]["name"].as_str() == Some(&*scope.name),
        "organizations" => meta::name(object) == &*scope.name,
        _ => meta::namespace(object) == &*scope.namespace,
    }
}

/// A namespaced request is confined to the organization's namespace.
fn confine(mut op: Operation, scope: &OrganizationScope) -> Result<Operation> {
    op.plane = PlaneId::core();
    if !op.ty.namespaced {
        return Ok(op);
    }
    match op.namespace.as_deref() {
        Some(namespace) if namespace != &*scope.namespace => {
            Err(Status::not_found(&GroupResource::new("", "namespaces"), namespace))
        }
        _ => {
            op.namespace = Some(scope.namespace.to_string());
            Ok(op)
        }
    }
}

fn not_found(op: &Operation) -> Status {
    Status::not_found(&op.ty.group_resource(), op.name.as_deref().unwrap_or_default())
}

/// Whether an object is the organization's; `None` where it is absent.
async fn is_own(registry: &Registry, op: &Operation, scope: &OrganizationScope) -> Result<Option<bool>> {
    let mut whole = confine(op.clone(), scope)?;
    whole.subresource = None;
    match registry.get(&whole, "").await {
        Ok(object) => Ok(Some(belongs(op, scope, &object.value()))),
        Err(status) if status.is_not_found() => Ok(None),
        Err(status) => Err(status),
    }
}

/// 404 for an object that is not there, or belongs to others.
pub(crate) async fn check_object(
    registry: &Registry,
    op: &Operation,
    scope: &OrganizationScope,
) -> Result<()> {
    let own = is_own(registry, op, scope).await?;
    own.filter(|own| *own).map(drop).ok_or_else(|| not_found(op))
}

/// 404 for a patch of an object that belongs to others, or is absent unless an apply creates it; 403 for an apply that would
/// create an object of others.
pub(crate) async fn check_patch(
    registry: &Registry,
    op: &Operation,
    scope: &OrganizationScope,
    patch: &Patch,
) -> Result<()> {
    match (is_own(registry, op, scope).await?, patch) {
        (Some(true), _) => Ok(()),
        (None, Patch::Apply(body)) if op.subresource.is_none() => check_write(op, scope, &body.value),
        _ => Err(not_found(op)),
    }
}

/// 403 for an object that would belong to others.
pub(crate) fn check_write(op: &Operation, scope: &OrganizationScope, object: &Value) -> Result<()> {
    confine(op.clone(), scope)?;
    let mut placed = object.clone();
    if op.ty.namespaced && meta::namespace(object).is_empty() {
        meta::set(&mut placed, "namespace", &*scope.namespace);
    }
    if belongs(op, scope, &placed) {
        return Ok(());
    }
    let why = format!("it must belong to organization {:?}", scope.name);
    Err(Status::forbidden(&op.ty.group_resource(), meta::name(object), &why))
}

/// An operation on a collection, confined to the organization, and what its view shows of that.
pub(crate) fn shown(
    planes: &Arc<Planes>,
    op: Operation,
    scope: &OrganizationScope,
) -> Result<(Operation, Arc<Shown>)> {
    let op = confine(op, scope)?;
    let (view, own) = (format!("organization {}", scope.name), scope.name.clone());
    let shown = match op.ty.plural.as_str() {
        _ if op.ty.namespaced => Shown::all(view),
        "projects" => {
            let (planes, name) = (planes.clone(), own.clone());
            let find = move |at| {
                let mut found = Places::new();
                planes.directory().add_names_of(&name, at, &mut found).then_some(found)
            };
            Shown::only(view, move |entry| entry.field("spec.ownerRef.name") == &*own, find)
        }
        "organizations" => {
            let name = own.clone();
            Shown::only(view, move |entry| entry.name() == &*own, move |_| Some([name.clone()].into()))
        }
        _ => Shown::only(view, |_| false, |_| Some(Places::new())),
    };
    Ok((op, Arc::new(shown)))
}

/// What a user may do in their own view: read, answer invitations, leave organizations.
pub(crate) fn is_users_own(asked: &Attributes<'_>) -> bool {
    let write = match (asked.group, asked.resource, asked.subresource) {
        (IAM, "userinvitations", "") => asked.verb == "patch",
        (GROUP, "organizationmemberships", "") => asked.verb == "delete",
        _ => false,
    };
    write || asked.is_read()
}

/// Reports whether an operation is on something of users themselves.
pub(crate) fn is_users_to(op: &Operation, verb: &str) -> bool {
    op.subresource.is_none()
        && matches!(
            (op.ty.group.as_str(), op.ty.plural.as_str(), verb),
            (IAM, "userinvitations", "patch") | (GROUP, "organizationmemberships", "delete")
        )
}

/// 403 for a patch that is more than the answer to an invitation.
pub(crate) fn check_answer(op: &Operation, patch: &Patch) -> Result<()> {
    let answers = match patch {
        Patch::Merge(body) => body.value == json!({"spec": {"state": body.value["spec"]["state"]}}),
        _ => false,
    };
    if answers {
        return Ok(());
    }
    let why = "an answer is a merge patch of spec.state and of nothing else";
    Err(Status::forbidden(&op.ty.group_resource(), op.name.as_deref().unwrap_or_default(), why))
}

/// A user's view of the core plane: what they are a member of, and what they are invited to.
#[derive(Clone)]
pub(crate) struct UserView {
    pub(crate) name: Arc<str>,
    pub(crate) iam: Arc<RwLock<Iam>>,
    pub(crate) planes: Arc<Planes>,
}

impl UserView {
    /// Whether a field of an object is something.
    fn is_mine<'a>(&self, (group, resource): (&str, &str), field: impl Fn(&str) -> &'a str) -> bool {
        let me = field("spec.userRef.name") == &*self.name;
        let is_member = |organization: &str| self.iam.read().is_member(organization, &self.name);
        match (group, resource) {
            (GROUP, "organizationmemberships") | (IAM, "groupmemberships") => me,
            (GROUP, "organizations") => is_member(field("metadata.name")),
            (GROUP, "projects") => is_member(field("spec.ownerRef.name")),
            (IAM, "userinvitations") => {
                let email = field("spec.email");
                me || !email.is_empty() && self.iam.read().email(&self.name) == Some(email)
            }
            (IAM, "users") => {
                let username = field("spec.username");
                (if username.is_empty() { field("metadata.name") } else { username }) == &*self.name
            }
            _ => false,
        }
    }

    /// The places of the user's own objects as of a revision, others perhaps among them.
    fn find(&self, (group, resource): (&str, &str), at: u64) -> Option<Places> {
        let (people, mut found) = (self.planes.people(), Places::new());
        let is_known = match (group, resource) {
            (GROUP, "organizations") => return people.organizations_of(&self.name, at),
            (GROUP, "projects") => {
                let directory = self.planes.directory();
                let organizations = people.organizations_of(&self.name, at)?;
                organizations.iter().all(|name| directory.add_names_of(name, at, &mut found))
            }
            (IAM, "userinvitations") => {
                let email = self.iam.read().email(&self.name).map(str::to_owned);
                let mut names = std::iter::once(&*self.name).chain(email.as_deref());
                names.all(|name| people.add_places(resource, name, at, &mut found))
            }
            (GROUP, "organizationmemberships") | (IAM, "groupmemberships" | "users") => {
                people.add_places(resource, &self.name, at, &mut found)
            }
            _ => true,
        };
        is_known.then_some(found)
    }

    /// An operation on a collection of the core plane, and what the user is shown of that.
    pub(crate) fn shown(&self, op: Operation) -> Result<(Operation, Arc<Shown>)> {
        let op = Self::core(op)?;
        let what = (op.ty.group.clone(), op.ty.plural.clone());
        let (own, view, at) = (what.clone(), self.clone(), self.clone());
        let shows = move |entry: &Entry| view.is_mine((&own.0, &own.1), |path| entry.field(path));
        let find = move |revision| at.find((&what.0, &what.1), revision);
        Ok((op, Arc::new(Shown::only(format!("user {}", self.name), shows, find))))
    }

    fn core(mut op: Operation) -> Result<Operation> {
        let served = matches!(op.ty.group.as_str(), GROUP | IAM);
        op.plane = PlaneId::core();
        if served { Ok(op) } else { Err(Status::no_such_resource()) }
    }

    /// 404 for an object that is not there, or another's.
    pub(crate) async fn check_object(&self, registry: &Registry, op: &Operation) -> Result<()> {
        let mut whole = Self::core(op.clone())?;
        whole.subresource = None;
        let object = registry.get(&whole, "").await?.value();
        let field = |path: &str| {
            let found = path.split('.').try_fold(&*object, |value, key| value.get(key));
            found.and_then(Value::as_str).unwrap_or_default()
        };
        if self.is_mine((&op.ty.group, &op.ty.plural), field) {
            return Ok(());
        }
        Err(Status::not_found(&op.ty.group_resource(), op.name.as_deref().unwrap_or_default()))
    }

    /// What decides over the objects that are not the user's by what they say themselves.
    fn reach(&self) -> (Option<Places>, Option<String>) {
        let email = self.iam.read().email(&self.name).map(str::to_owned);
        (self.planes.people().organizations_of(&self.name, u64::MAX), email)
    }

    /// Whether what is shown of a kind depends on more than its objects.
    fn is_by_membership(op: &Operation) -> bool {
        matches!(op.ty.plural.as_str(), "organizations" | "projects" | "userinvitations")
    }

    /// Checks that a watch of the user's own can begin behind a revision.
    ///
    /// # Errors
    /// 410 where the user's memberships have changed since: there is no event of what they brought or took.
    pub(crate) fn check_since(&self, op: &Operation, since: &str) -> Result<()> {
        let Some(since) = since.parse::<u64>().ok().filter(|since| *since > 0) else { return Ok(()) };
        let changed =
            if Self::is_by_membership(op) { self.planes.people().changed_for(&self.name) } else { 0 };
        if since >= changed {
            return Ok(());
        }
        Err(Status::expired(format!("too old resource version: {since} ({changed})")))
    }

    /// The events until the user's memberships change: then the list has to be read again.
    pub(crate) fn while_unchanged(
        &self,
        op: &Operation,
        events: impl Stream<Item = WatchEvent> + Send + 'static,
    ) -> BoxStream<'static, WatchEvent> {
        if !Self::is_by_membership(op) {
            return StreamExt::boxed(events);
        }
        let (view, mut changes) = (self.clone(), self.planes.people().changes());
        let before = self.reach();
        let changed = async move {
            while view.reach() == before && changes.changed().await.is_ok() {
                sleep(TOGETHER).await;
                changes.mark_unchanged();
            }
        };
        let begin = Some((StreamExt::boxed(events), FutureExt::boxed(changed)));
        let steps = stream::unfold(begin, |state| async move {
            let (mut events, changed) = state?;
            match future::select(events.next(), changed).await {
                Either::Left((event, changed)) => Some((event?, Some((events, changed)))),
                Either::Right(_) => {
                    let status = Status::expired("the user's memberships have changed; list again");
                    Some((WatchEvent::Error(status), None))
                }
            }
        });
        StreamExt::boxed(steps)
    }
}
