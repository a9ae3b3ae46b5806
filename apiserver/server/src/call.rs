//! One request on its way to a handler: who asks, where, and for what.

use crate::{
    audit::{Asked, Recording},
    fair::Turn,
    host::Connection,
    identity,
    info::{RequestInfo, ResourcePath},
    query::Query,
    secure::Until,
};
use crate::{edge::Edge, permits::Admitted};
use freehold_apiserver_authz::{Attributes, LIST_VISIBLE, forbidden};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_planes::{Target, context::Context};
use freehold_apiserver_registry::Operation;
use freehold_machinery::{PlaneId, ResourceType, Status, User};
use futures_util::future::BoxFuture;
use http::request::Parts;
use parking_lot::Mutex;
use std::sync::Arc;

/// A request and what is known of it.
pub(crate) struct Call<'a> {
    pub(crate) edge: &'a Arc<Edge>,
    pub(crate) connection: &'a Connection,
    pub(crate) parts: &'a Parts,
    pub(crate) query: &'a Query,
    pub(crate) context: Context,
    /// What stands before the context's own paths in the URL; empty for the platform.
    pub(crate) prefix: String,
    pub(crate) target: Target,
    /// See [`Operation::seen`].
    pub(crate) seen: u64,
    /// Who sent it.
    pub(crate) asker: Arc<User>,
    /// Who it is treated as.
    pub(crate) user: Arc<User>,
    /// Ends what takes long besides the user's rights; see [`identity::Treated`].
    pub(crate) until: Option<Until>,
    pub(crate) info: &'a RequestInfo,
    /// See [`Operation::narrowed`].
    pub(crate) narrowed: bool,
    pub(crate) known: &'a mut bool,
    /// What it holds among its plane's.
    pub(crate) turn: Mutex<Turn>,
    /// The place among all requests; given back when another server answers.
    pub(crate) place: Option<Admitted<'a>>,
    /// What the audit log is told.
    pub(crate) recording: &'a Recording,
}

impl Call<'_> {
    /// The request, as the audit log is told of it.
    pub(crate) fn asked(&self) -> Asked<'_> {
        let Self { edge, info, connection, target, parts, .. } = self;
        Asked { edge, info, connection, target, parts, user: Some(&self.asker) }
    }

    /// 403 in Kubernetes' words unless the user may do this. A list over everything may be allowed for what the user may read
    /// of it.
    pub(crate) async fn authorize(&mut self) -> Result<(), Status> {
        let attributes = self.info.attributes(&self.user);
        let mut decision = self.edge.backend.authorize_request(&self.target, &attributes).await?;
        if !decision.allowed && !decision.denied && self.can_be_narrowed(&attributes) {
            let narrower = self.edge.backend.authorize(&self.target, &narrow(&attributes)).await?;
            self.narrowed = narrower.allowed;
            if narrower.allowed {
                decision = narrower;
            }
        }
        self.recording.decided(&decision);
        if decision.allowed { Ok(()) } else { Err(forbidden(&attributes, &decision.reason)) }
    }

    /// Whether this is a list or watch of a project over everything, which only the plane's own rules judge: what others would
    /// say of each namespace is not known.
    fn can_be_narrowed(&self, asked: &Attributes<'_>) -> bool {
        let is_project = matches!(&self.target, Target::Local(plane) if !plane.is_core());
        is_project
            && matches!(asked.verb, "list" | "watch")
            && asked.is_resource()
            && asked.namespace.is_empty()
            && asked.subresource.is_empty()
            && !self.user.from_host
            && !self.edge.backend.asks_others()
    }

    /// Gives back what others wait for: another server does the work.
    pub(crate) fn passed_on(&mut self) {
        self.place = None;
        self.turn.get_mut().passed_on();
    }

    /// Ends when the user may not do this any more.
    pub(crate) fn revoked(&self) -> BoxFuture<'static, ()> {
        let asked = self.info.attributes(&self.user);
        let asked = if self.narrowed { narrow(&asked) } else { asked };
        let own = self.edge.backend.revoked(&self.target, &self.user, &asked);
        identity::either(own, self.until.clone())
    }

    /// What is served here.
    pub(crate) async fn types(&self) -> Result<Arc<TypeSet>, Status> {
        let types = self.edge.backend.types(&self.target).await?;
        Ok(match shown_in(&self.context, &self.target) {
            Some(context) => types.shown_in(context),
            None => types,
        })
    }

    /// An operation on a resource, without a name unless one stood in the path.
    pub(crate) fn operation(
        &self,
        types: &Arc<TypeSet>,
        ty: &Arc<ResourceType>,
        path: &ResourcePath,
    ) -> Operation {
        Operation {
            plane: match &self.target {
                Target::Local(plane) => plane.clone(),
                _ => PlaneId::core(),
            },
            types: types.clone(),
            user: self.user.clone(),
            ty: ty.clone(),
            namespace: path.namespace.clone().filter(|_| ty.namespaced),
            name: path.name.clone().filter(|_| path.named),
            subresource: path.subresource.clone(),
            seen: self.seen,
            narrowed: self.narrowed,
            annotations: self.recording.annotations.clone(),
        }
    }
}

/// The question whether a list shows what its user may read.
fn narrow<'a>(asked: &Attributes<'a>) -> Attributes<'a> {
    Attributes { verb: LIST_VISIBLE, name: "", ..*asked }
}

/// The context by whose name types may be bound; `None` where planes are asked for by their identifiers, as controllers
/// do.
fn shown_in(context: &Context, target: &Target) -> Option<&'static str> {
    Some(match (context, target) {
        // A pair serves its project's plane alone, at its root.
        (Context::Platform, Target::Local(plane)) if *plane != PlaneId::core() => "project",
        (Context::Platform, _) => "platform",
        (Context::Organization(_), _) => "organization",
        (Context::Project(_), _) => "project",
        (Context::User(_), _) => "user",
        (Context::Plane(_) | Context::AllPlanes | Context::Export { .. }, _) => return None,
    })
}
