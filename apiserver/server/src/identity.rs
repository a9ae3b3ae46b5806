//! Who is asking: the peer of a connection, the user of a request, and who that user wants to be.

use crate::backend::RequestHeaders;
use crate::edge::Edge;
use crate::info::RequestInfo;
use crate::secure::{Identity, Until};
use freehold_apiserver_authn::{
    ImpersonationRequest, Peer,
    impersonate::{Mode, Part},
};
use freehold_apiserver_authz::{Attributes, forbidden};
use freehold_apiserver_planes::{Target, context::Context};
use freehold_machinery::{PlaneId, Status, User, user::MASTERS};
use futures_util::{
    FutureExt,
    future::{self, BoxFuture},
};
use http::{HeaderMap, Method};
use std::sync::Arc;

/// The groups of what has a context of its own.
const GROUP: &str = "resourcemanager.freehold.dev";
const USERS_GROUP: &str = "iam.freehold.dev";

/// The plane whose identities are believed at a target; core where there is no target.
pub(crate) fn plane_of(target: Option<&Target>) -> PlaneId {
    match target {
        Some(Target::Local(plane)) => plane.clone(),
        Some(Target::Dedicated(pair)) => pair.plane.clone(),
        Some(Target::Provider(scope)) => scope.plane.clone(),
        _ => PlaneId::core(),
    }
}

/// Who sent a request for a path: somebody, or the anonymous where they may. 401 for who claims what can't be believed.
pub(crate) async fn authenticate(
    edge: &Edge,
    target: Option<&Target>,
    peer: &Identity,
    headers: &HeaderMap,
    path: &str,
) -> Result<Arc<User>, Status> {
    let peer = peer.as_ref().map_err(Status::clone)?.as_ref();
    let plane = match target {
        Some(target) => plane_of(Some(target)),
        // Where nothing says which plane a request is for, it is for the one that its author belongs to.
        None => peer.and_then(Peer::plane).cloned().unwrap_or_else(PlaneId::core),
    };
    match edge.backend.authenticate(&plane, target, peer, &RequestHeaders(headers)).await? {
        Some(user) => Ok(Arc::new(user)),
        None if edge.backend.allows_anonymous(path) => Ok(Arc::new(User::anonymous())),
        None => Err(Status::unauthorized()),
    }
}

/// The context of a request: the one that its path names, or at the root that of its author's own plane. Clients in Pods can say
/// no path in front; of what they send, credentials alone have a say.
pub(crate) async fn context_of(
    edge: &Edge,
    named: Context,
    peer: &Identity,
    headers: &HeaderMap,
) -> Result<Context, Status> {
    let (Context::Platform, Ok(peer)) = (&named, peer) else { return Ok(named) };
    let home = edge.backend.home(peer.as_ref(), &RequestHeaders(headers)).await?;
    Ok(home.unwrap_or(named))
}

/// A user of the cluster that this server extends, as a plane sees it: whoever may do this with `control-plane` (or `proxy`)
/// of the project, organization or user that the request goes through is one of its masters. 403 for others.
pub(crate) async fn admit_from_host(
    edge: &Edge,
    (context, prefix): (&Context, &str),
    method: &Method,
    user: Arc<User>,
) -> Result<Arc<User>, Status> {
    let (group, resource, name) = match context {
        Context::Project(name) | Context::Export { project: name, .. } => (GROUP, "projects", name),
        Context::Organization(name) => (GROUP, "organizations", name),
        Context::User(name) => (USERS_GROUP, "users", name),
        Context::Platform | Context::Plane(_) | Context::AllPlanes => return Ok(user),
    };
    if !user.from_host {
        return Ok(user);
    }
    let verb = match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    };
    let attributes = Attributes {
        user: &user,
        verb,
        group,
        version: "v1alpha1",
        resource,
        subresource: if prefix.ends_with("/proxy") { "proxy" } else { "control-plane" },
        namespace: "",
        name,
        path: "",
        selectors: Default::default(),
    };
    let decision = edge.backend.authorize(&Target::Local(PlaneId::core()), &attributes).await?;
    if !decision.allowed {
        return Err(forbidden(&attributes, &decision.reason));
    }
    let mut user = User { from_host: false, ..(*user).clone() };
    if !user.is_in(MASTERS) {
        user.groups.push(MASTERS.to_owned());
    }
    Ok(Arc::new(user))
}

/// Who a request is treated as.
pub(crate) struct Treated {
    pub(crate) user: Arc<User>,
    /// By which constraint somebody else; empty for none.
    pub(crate) constraint: &'static str,
    /// Ends what takes long besides its user's rights: when who asked may not be that one any more, where that is somebody
    /// else, and what `upgraded` ends with.
    pub(crate) until: Option<Until>,
}

impl Treated {
    fn as_oneself(user: Arc<User>, until: Option<Until>) -> Self {
        Self { user, constraint: "", until }
    }
}

/// What ends with the first of those that are there.
pub(crate) fn first_of(one: Option<Until>, other: Option<Until>) -> Option<Until> {
    match (one, other) {
        (Some(one), Some(other)) => Some(either(one.boxed(), Some(other)).shared()),
        (one, other) => one.or(other),
    }
}

/// What ends with the first of both.
pub(crate) fn either(one: BoxFuture<'static, ()>, other: Option<Until>) -> BoxFuture<'static, ()> {
    match other {
        None => one,
        Some(other) => Box::pin(async move { drop(future::select(one, other).await) }),
    }
}

/// Who a request is to be treated as, and by which constraint. 403 unless its user may impersonate each part of that identity,
/// in general or for what is asked for; the first refusal is told. `upgraded` is what else ends what an upgrade makes of it.
pub(crate) async fn impersonate(
    edge: &Edge,
    target: &Target,
    user: Arc<User>,
    headers: &HeaderMap,
    (info, upgraded): (&RequestInfo, Option<Until>),
) -> Result<Treated, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(Treated::as_oneself(user, upgraded));
    }
    let Some(wanted) = ImpersonationRequest::parse(&RequestHeaders(headers))? else {
        return Ok(Treated::as_oneself(user, upgraded));
    };
    let mut refusal = None;
    for mode in wanted.modes(&user) {
        match may_impersonate(edge, target, &user, (&wanted, mode), info).await? {
            None => {
                let takes_long = info.is_long_running() || upgraded.is_some();
                let until = takes_long.then(|| {
                    let asked = asked_to_impersonate(&user, (&wanted, mode));
                    let revoked = asked.iter().map(|asked| edge.backend.revoked(target, &user, asked));
                    future::select_all(revoked).map(drop).boxed().shared()
                });
                let user = Arc::new(wanted.user(&user, &plane_of(Some(target)), mode));
                let until = first_of(until, upgraded);
                return Ok(Treated { user, constraint: mode.constraint(), until });
            }
            Some(status) => refusal = refusal.or(Some(status)),
        }
    }
    Err(refusal.unwrap_or_else(Status::unauthorized))
}

/// What is asked about who wants to be somebody else, for each part of that identity.
fn asked_to_impersonate<'a>(
    user: &'a User,
    (wanted, mode): (&'a ImpersonationRequest, Mode),
) -> Vec<Attributes<'a>> {
    wanted.parts(mode).into_iter().map(|part| part_attributes(user, mode, part)).collect()
}

/// Removes what asks for another identity, once it is given.
pub(crate) fn forget_impersonation(headers: &mut HeaderMap) {
    let asked: Vec<_> =
        headers.keys().filter(|name| name.as_str().starts_with("impersonate-")).cloned().collect();
    for name in asked {
        headers.remove(name);
    }
}

/// Why a user may not take on an identity in a way; `None` where they may.
async fn may_impersonate(
    edge: &Edge,
    target: &Target,
    user: &User,
    (wanted, mode): (&ImpersonationRequest, Mode),
    info: &RequestInfo,
) -> Result<Option<Status>, Status> {
    let ask = async |attributes: Attributes<'_>| {
        let decision = edge.backend.authorize(target, &attributes).await?;
        Ok::<_, Status>((!decision.allowed).then(|| forbidden(&attributes, &decision.reason)))
    };
    if !mode.on.is_empty() {
        let verb = format!("{}{}", mode.on, info.verb);
        let asked = Attributes { verb: &verb, ..info.attributes(user) };
        if let Some(refusal) = ask(asked).await? {
            return Ok(Some(refusal));
        }
    }
    if let Some((part, why)) = wanted.refused(mode) {
        return Ok(Some(forbidden(&part_attributes(user, mode, part), &why)));
    }
    for asked in asked_to_impersonate(user, (wanted, mode)) {
        if let Some(refusal) = ask(asked).await? {
            return Ok(Some(refusal));
        }
    }
    Ok(None)
}

fn part_attributes<'a>(user: &'a User, mode: Mode, part: Part<'a>) -> Attributes<'a> {
    Attributes {
        user,
        verb: mode.verb,
        group: part.group,
        version: part.version,
        resource: part.resource,
        subresource: part.subresource,
        namespace: part.namespace,
        name: part.name,
        path: "",
        selectors: Default::default(),
    }
}
