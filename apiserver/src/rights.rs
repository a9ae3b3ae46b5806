//! What the server itself allows at a target: RBAC of its plane, and the platform's roles and bindings above it.

use crate::organization;
use freehold_apiserver_authz::{Access, Attributes, Decision, iam::Scope};
use freehold_apiserver_planes::{Planes, Target};
use freehold_machinery::{PlaneId, Result};

/// What decides at a target.
pub(crate) async fn access(planes: &Planes, target: &Target) -> Result<Access> {
    match target {
        Target::Local(plane) => planes.access(plane).await,
        Target::Dedicated(pair) => planes.access(&pair.plane).await,
        Target::Organization(scope) => planes.access_of(scope).await,
        Target::User(_) | Target::AllPlanes => planes.access(&PlaneId::core()).await,
    }
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
    let decision = access(planes, target).await?.authorize(attributes);
    match target {
        Target::Organization(scope) if !decision.allowed && !attributes.is_resource() => {
            let scope = Scope::Organization(scope.name.clone());
            let known = planes.people().iam().await.read().is_known(&scope, attributes.user);
            let document = known && attributes.verb == "get";
            Ok(if document { Decision::allow("the user is known to the organization") } else { decision })
        }
        _ => Ok(decision),
    }
}
