//! Who is asking: the peer of a connection, the user of a request, and who that user wants to be.

use crate::filters::Edge;
use freehold_apiserver_authn::{Headers, ImpersonationRequest, Peer, Roots};
use freehold_apiserver_authz::{Attributes, forbidden};
use freehold_apiserver_planes::{Target, context::Context};
use freehold_machinery::{PlaneId, Status, User, user::MASTERS};
use http::{HeaderMap, Method};
use rustls::ServerConnection;
use std::sync::Arc;

/// The groups of what has a context of its own.
const GROUP: &str = "resourcemanager.freehold.dev";
const USERS_GROUP: &str = "iam.freehold.dev";

/// Who is at the other end of a connection, read once. An error answers each request of it.
pub(crate) type Identity = Result<Option<Peer>, Status>;

/// Reads the certificate that the client showed.
pub(crate) fn peer(session: &ServerConnection, roots: &Roots) -> Identity {
    session.peer_certificates().map(|chain| Peer::parse(chain, roots)).transpose()
}

/// The headers of a request, as authentication reads them.
pub struct RequestHeaders<'a>(pub &'a HeaderMap);

impl Headers for RequestHeaders<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.to_str().ok()
    }

    fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a str, &'a str)) {
        for (name, value) in self.0 {
            if let Ok(value) = std::str::from_utf8(value.as_bytes()) {
                visit(name.as_str(), value);
            }
        }
    }
}

/// The plane whose identities are believed at a target; core where there is no target.
pub(crate) fn plane_of(target: Option<&Target>) -> PlaneId {
    match target {
        Some(Target::Local(plane)) => plane.clone(),
        Some(Target::Dedicated(pair)) => pair.plane.clone(),
        _ => PlaneId::core(),
    }
}

/// Who sent a request: somebody, or the anonymous. 401 for who claims what can't be believed.
pub(crate) async fn authenticate(
    edge: &Edge,
    target: Option<&Target>,
    peer: &Identity,
    headers: &HeaderMap,
) -> Result<Arc<User>, Status> {
    let peer = peer.as_ref().map_err(Status::clone)?.as_ref();
    let plane = match target {
        Some(target) => plane_of(Some(target)),
        // Where nothing says which plane a request is for, it is for the one that its author belongs to.
        None => peer.and_then(Peer::plane).cloned().unwrap_or_else(PlaneId::core),
    };
    let user = edge.backend.authenticate(&plane, peer, &RequestHeaders(headers)).await?;
    Ok(Arc::new(user.unwrap_or_else(User::anonymous)))
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
        Context::Project(name) => (GROUP, "projects", name),
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

/// Who a request is to be treated as. 403 unless its user may impersonate each part of that identity.
pub(crate) async fn impersonate(
    edge: &Edge,
    target: &Target,
    user: Arc<User>,
    headers: &HeaderMap,
) -> Result<Arc<User>, Status> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(user);
    }
    let Some(wanted) = ImpersonationRequest::parse(&RequestHeaders(headers))? else { return Ok(user) };
    for part in wanted.parts() {
        let attributes = Attributes {
            user: &user,
            verb: "impersonate",
            group: part.group,
            version: part.version,
            resource: part.resource,
            subresource: part.subresource,
            namespace: part.namespace,
            name: part.name,
            path: "",
        };
        let decision = edge.backend.authorize(target, &attributes).await?;
        if !decision.allowed {
            return Err(forbidden(&attributes, &decision.reason));
        }
    }
    Ok(Arc::new(wanted.user(&user, &plane_of(Some(target)))))
}
