//! The server's port over the real planes and registry.

mod access;
mod aggregation;
mod audit;
mod footing;
mod objects;
mod planes;

use crate::local::LocalBackend;
use crate::place::{PlaceKeys, place};
use crate::{
    authorization::{self, Refused},
    organization::{self, UserView},
    people, provider, rights, trails, view, visible,
};
use freehold_apiserver_audit::Trail;
use freehold_apiserver_authz::{Attributes, iam::GRANTED};
use freehold_apiserver_planes::Target;
use freehold_apiserver_registry::{Across, Body, Object, Operation, Shown, WriteOptions, Written};
use freehold_apiserver_server::{Aggregated, Owner};
use freehold_machinery::{PlaneId, Result, Status, User, api_service, user::MASTERS};
use futures_util::FutureExt;
use std::sync::Arc;

/// An operation over several planes can only read.
fn read_only(op: &Operation, verb: &str) -> Status {
    Status::method_not_allowed(&op.ty.group_resource(), verb)
}

impl LocalBackend {
    /// The operation as the one plane sees it that it is about; an error where it is about several.
    async fn local(&self, target: &Target, mut op: Operation, verb: &str) -> Result<Operation> {
        // What is allowed for a part only is answered before, with that part.
        if op.narrowed {
            return Err(visible::refused(&op, verb));
        }
        match target {
            Target::Local(plane) => op.plane = plane.clone(),
            Target::Organization(scope) => {
                if !organization::is_core(&op, scope) {
                    return Err(read_only(&op, verb));
                }
                op.plane = PlaneId::core();
            }
            Target::User(_) if verb == "get" || organization::is_users_to(&op, verb) => {
                op.plane = PlaneId::core()
            }
            Target::Provider(scope) => return provider::in_one(self, scope, op, verb).await,
            Target::User(_) | Target::AllPlanes | Target::Dedicated(_) => return Err(read_only(&op, verb)),
        }
        Ok(op)
    }

    /// Several planes at once, as the target shows them; `None` where the target is one plane.
    async fn across(&self, target: &Target, op: &Operation, verb: &str) -> Result<Option<Across>> {
        Ok(match target {
            Target::Provider(scope) => Some(provider::across(&self.planes, scope, op, verb).await?),
            Target::AllPlanes => Some(view::all_planes(self.planes.directory().clone())),
            Target::Organization(scope) if !organization::is_core(op, scope) => {
                Some(view::organization(&self.planes, scope))
            }
            _ => None,
        })
    }

    /// What a user is shown of the core plane.
    async fn own_view(&self, name: &str) -> UserView {
        let iam = self.planes.people().iam().await.clone();
        UserView { name: name.into(), iam, planes: self.planes.clone() }
    }

    /// An operation on a collection as one plane sees it, and what the target shows of that.
    async fn shown(
        &self,
        target: &Target,
        mut op: Operation,
        verb: &str,
    ) -> Result<(Operation, Option<Arc<Shown>>)> {
        let (op, shown) = match target {
            Target::Organization(scope) => organization::shown(&self.planes, op, scope)?,
            Target::User(name) => {
                op.seen = self.planes.directory().current().await?;
                self.own_view(name).await.shown(op)?
            }
            _ => return Ok((self.local(target, op, verb).await?, None)),
        };
        Ok((op, Some(shown)))
    }

    /// Where a webhook is told that it is asked.
    fn place(&self, target: &Target) -> PlaceKeys {
        let owner = self.owner_of_plane(target);
        let core = PlaneId::core();
        let plane = match target {
            Target::Local(plane) => plane,
            Target::Dedicated(pair) => &pair.plane,
            Target::Provider(scope) => &scope.plane,
            Target::Organization(_) | Target::User(_) | Target::AllPlanes => &core,
        };
        place(plane, owner.project, owner.organization)
    }

    /// Ends when webhooks, asked again, refuse what was allowed; `None` where they have no say.
    fn refused(&self, target: &Target, user: &Arc<User>, asked: &Attributes<'_>) -> Option<Refused> {
        if self.authorization.is_plain() || user.is_in(MASTERS) || user.from_host {
            return None;
        }
        // A pair may have allowed it, or the core server that is asked before one.
        let is_ours = !matches!(target, Target::Dedicated(_)) && !user.extra.contains_key(GRANTED);
        let spec = authorization::spec(asked, &self.place(target));
        let view = if let Target::User(name) = target { name } else { "" };
        let (planes, target) = (self.planes.clone(), target.clone());
        let asked = Arc::new(people::Asked::new(user, asked));
        let own = move || {
            let (planes, target, asked) = (planes.clone(), target.clone(), asked.clone());
            async move { rights::decide(&planes, &target, &asked.attributes()).await }.boxed()
        };
        Some(self.authorization.refused((spec, view), is_ours, own))
    }

    /// Answers a TokenRequest that admission lets through.
    async fn issue_token(&self, op: &Operation, body: &Body, options: &WriteOptions) -> Result<Written> {
        let mut request = self.registry.read_posted(op, body)?;
        crate::tokens::default(op, options, &mut request);
        let mut warnings = self.registry.admit_posted(op, &mut request, options).await?;
        let account = crate::tokens::prepare(&self.tokens, &self.registry, op, &mut request).await?;
        warnings.extend(self.registry.validate_posted(op, &mut request, options).await?);
        let found = (&*account, &request);
        let issued = crate::tokens::issue(&self.tokens, &self.registry, &self.lookup, op, found).await?;
        Ok(Written { object: Object::Value(Arc::new(issued)), created: true, pending: false, warnings })
    }

    /// A server that was just registered is looked for at once, and not with the plane's next request.
    async fn registered(&self, op: &Operation, written: Result<Written>) -> Result<Written> {
        if op.ty.group == api_service::GROUP
            && written.is_ok()
            && self.registry.cache().catch_up().await.is_ok()
        {
            let _ = self.planes.types_of(&op.plane).await;
        }
        written
    }

    /// The audit trail, and the uid of the organization that a target is.
    async fn trail_of<'a>(&'a self, target: &Target) -> Result<(&'a Trail, Arc<str>)> {
        match (&self.trail, target) {
            (Some(trail), Target::Organization(scope)) => {
                Ok((trail, self.planes.organization_uid(&scope.name).await?))
            }
            _ => Err(Status::no_such_resource()),
        }
    }

    fn owner_of_plane(&self, target: &Target) -> Owner {
        trails::owner_of_plane(self.planes.directory(), target)
    }

    /// The aggregated server of a plane for a group and version.
    fn server_of(&self, plane: &PlaneId, group: &str, version: &str) -> Result<Option<Aggregated>> {
        let Some(server) = self.aggregator.server(plane, group, version) else { return Ok(None) };
        let identity = self.aggregator.identity(plane).map_err(Status::internal)?;
        let info = self.planes.directory().by_plane(plane);
        let (project, organization) =
            info.map(|info| (info.name.clone(), info.organization.clone())).unwrap_or_default();
        Ok(Some(Aggregated {
            outbound: self.outbound.clone(),
            destination: server.destination(identity),
            available: server.is_available(),
            places: server.places().clone(),
            project,
            organization,
        }))
    }
}
