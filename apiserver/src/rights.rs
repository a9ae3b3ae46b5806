//! What the server itself allows at a target: RBAC of its plane, and the platform's roles and bindings above it.

use crate::organization;
use freehold_api::apis;
use freehold_apiserver_authz::{Access, Attributes, Decision, iam::Scope, reserved};
use freehold_apiserver_planes::{OrganizationScope, Planes, Target};
use freehold_apiserver_server::CONNECT;
use freehold_machinery::{PlaneId, Result, User, user::AUTHENTICATED};

/// What decides at a target.
pub(crate) async fn access(planes: &Planes, target: &Target) -> Result<Access> {
    match target {
        Target::Local(plane) => planes.access(plane).await,
        Target::Dedicated(pair) => planes.access(&pair.plane).await,
        Target::Organization(scope) => planes.access_of(scope).await,
        Target::Provider(scope) => planes.access(&scope.plane).await,
        Target::User(_) | Target::AllPlanes => planes.access(&PlaneId::core()).await,
    }
}

/// What has to be allowed for a request at a target. In a provider's view that is its verb on the content of the export, in the
/// provider's project; what consumers allow comes on top of it.
pub(crate) fn needed<'a>(target: &'a Target, asked: &Attributes<'a>) -> Attributes<'a> {
    let Target::Provider(scope) = target else { return *asked };
    let verb = if asked.is_resource() { asked.verb } else { "get" };
    let content = Attributes::resource(asked.user, verb, apis::GROUP, apis::EXPORTS);
    Attributes { subresource: apis::CONTENT, name: &scope.name, ..content }
}

/// Why nobody but Freehold's controllers may do something, whatever allows it to others, webhooks among them.
pub(crate) async fn denial(
    planes: &Planes,
    target: &Target,
    attributes: &Attributes<'_>,
) -> Result<Option<Decision>> {
    if !reserved::is_for_controllers(attributes) {
        return Ok(None);
    }
    Ok(access(planes, target).await?.denial(attributes))
}

/// 403 for what a suspension of its organization forbids, whatever the way to it: of a suspended organization the own objects
/// are read and the suspension is lifted, but for those who may suspend on the platform.
pub(crate) async fn check_suspension(planes: &Planes, target: &Target, asked: &Attributes<'_>) -> Result<()> {
    if !asked.is_resource() || !planes.people().iam().await.read().has_suspended() {
        return Ok(());
    }
    let (organization, own) = match target {
        Target::Organization(scope) => {
            let own = matches!(asked.group, organization::GROUP | organization::IAM)
                || asked.namespace == &*scope.namespace;
            (Some(scope.name.clone()), own)
        }
        Target::Local(plane) if plane.is_core() => (planes.organization_concerned(asked), true),
        Target::User(_) => (planes.organization_concerned(asked), true),
        Target::Local(_) | Target::Dedicated(_) | Target::AllPlanes | Target::Provider(_) => return Ok(()),
    };
    let lifts = asked.group == organization::GROUP
        && asked.resource == "organizations"
        && matches!(asked.verb, "update" | "patch" | "suspend");
    // A connection acts, also where it is asked for with GET.
    let reads = asked.is_read() && !CONNECT.contains(&asked.subresource);
    let Some(organization) = organization.filter(|_| !(lifts || own && reads)) else {
        return Ok(());
    };
    let Some(suspended) = planes.organization_suspended(&organization).await else { return Ok(()) };
    let suspend = Attributes::resource(asked.user, "suspend", organization::GROUP, "organizations");
    let above = planes.access(&PlaneId::core()).await?.authorize(&suspend).allowed;
    if above { Ok(()) } else { Err(suspended) }
}

/// What the server itself allows at a target.
pub(crate) async fn decide(
    planes: &Planes,
    target: &Target,
    attributes: &Attributes<'_>,
) -> Result<Decision> {
    if let Target::User(name) = target
        && *name == attributes.user.name
        && organization::is_users_own(attributes)
    {
        return Ok(Decision::allow("it is the user's own view"));
    }
    let access = access(planes, target).await?;
    let Target::Organization(scope) = target else {
        return Ok(access.authorize(&needed(target, attributes)));
    };
    let standing = Standing::of(planes, scope, attributes.user).await;
    let decision = match standing {
        Standing::Stranger => of_stranger(&access, attributes),
        Standing::Named | Standing::Known => access.authorize(attributes),
    };
    let is_document = !attributes.is_resource() && attributes.verb == "get";
    match decision.allowed || !is_document || standing != Standing::Known {
        true => Ok(decision),
        false => Ok(Decision::allow("the user is known to the organization")),
    }
}

/// What a user is to an organization, apart from what everybody is given everywhere.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Nothing is given to the user there.
    Stranger,
    /// Something is, in a project perhaps.
    Named,
    /// Something is in the organization itself.
    Known,
}

impl Standing {
    async fn of(planes: &Planes, scope: &OrganizationScope, user: &User) -> Self {
        let iam = planes.people().iam().await.read();
        let is_member = || iam.is_member(&scope.name, &user.name);
        match iam.is_known(&Scope::Organization(scope.name.clone()), &personally(user)) {
            true => Self::Known,
            false if user.plane.is_none() && !user.from_host && is_member() => Self::Named,
            false => Self::Stranger,
        }
    }
}

/// A user without what everybody is who has authenticated.
fn personally(user: &User) -> User {
    let mut user = user.clone();
    user.groups.retain(|group| group != AUTHENTICATED);
    user
}

/// What is allowed to somebody whom the organization does not know: what the platform's roles give, and what RBAC gives that
/// user or its groups. What RBAC gives everybody in the platform, such as discovery, tells strangers nothing of an organization.
fn of_stranger(access: &Access, attributes: &Attributes<'_>) -> Decision {
    let user = personally(attributes.user);
    let decision = access.authorize(&Attributes { user: &user, ..*attributes });
    match access.granted(attributes) {
        Some(reason) if !decision.allowed => Decision::allow(reason),
        _ => decision,
    }
}
