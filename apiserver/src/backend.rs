//! The server's port over the real planes and registry.

use crate::{
    authentication::{Authentication, Place},
    authorization::{self, Authorization, Refused},
    fairness::KnownFlows,
    host::Host,
    lookup::Lookup,
    nodes::Nodes,
    organization,
    organization::UserView,
    people,
    policies::{PlaceKeys, place},
    provider, rights,
    sleep::Sleepers,
    trails, view, visible,
};
use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_aggregation::Aggregator;
use freehold_apiserver_audit::{Standing, Subject, Trail};
use freehold_apiserver_authn::{Headers, Peer, TokenIssuer, review};
use freehold_apiserver_authz::{Attributes, Decision, forbidden, iam::GRANTED};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_outbound::Outbound;
use freehold_apiserver_planes::{
    Consumers, DedicatedTarget, Planes, ProviderScope, Resolved, Target, context::Context,
};
use freehold_apiserver_registry::{
    Across, Body, DeleteOptions, List, ListOptions, Object, Operation, Patch, Registry, Shown, WatchEvent,
    WatchOptions, WriteOptions, Written,
};
use freehold_apiserver_server::{
    Aggregated, ArchiveStream, AuditPage, AuditStream, Backend, Footing, InUse, Kubelet, OpenIdDocument,
    Owner, PlaneAction, RequestHeaders,
};
use freehold_apiserver_storage::{ObjectPath, Store};
use freehold_apiserver_storage_sealed::{RotateError, Sealed};
use freehold_machinery::{GroupResource, PlaneId, Result, Status, User, Value, api_service, user::MASTERS};
use futures_util::{
    FutureExt, StreamExt,
    future::{self, BoxFuture},
    stream::{self, BoxStream},
};
use serde_json::json;
use std::{net::SocketAddr, sync::Arc};

/// What the server talks to.
pub struct LocalBackend {
    pub(crate) planes: Arc<Planes>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) authentication: Authentication,
    pub(crate) authorization: Arc<Authorization>,
    pub(crate) tokens: Arc<TokenIssuer>,
    pub(crate) lookup: Lookup,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) sealed: Option<Sealed>,
    /// How webhooks and aggregated servers of planes are reached.
    pub outbound: Arc<Outbound>,
    /// How the nodes of planes are reached, and what they use.
    pub(crate) resource_metrics: Arc<crate::resource_metrics::ResourceMetrics>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) aggregator: Arc<Aggregator>,
    pub(crate) host: Option<Arc<Host>>,
    pub(crate) trail: Option<Arc<Trail>>,
    pub(crate) flows: KnownFlows,
    pub(crate) sleepers: Arc<Sleepers>,
    pub(crate) shown_lately: Arc<visible::ShownLately>,
}

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

#[async_trait]
impl Backend for LocalBackend {
    async fn resolve(&self, context: &Context) -> Result<Resolved> {
        self.planes.resolve(context).await
    }

    async fn home(&self, peer: Option<&Peer>, headers: &RequestHeaders<'_>) -> Result<Option<Context>> {
        let Some(plane) = self.authentication.plane_claimed(peer, headers) else { return Ok(None) };
        let project = self.planes.directory().find_plane(&plane).await?;
        Ok(project.map(|project| Context::Project(project.name.to_string())))
    }

    fn withheld(&self, target: &Target, resource: &GroupResource, verb: &str) -> Option<Status> {
        match target {
            Target::Provider(scope) => provider::withheld(scope, resource, verb),
            _ => None,
        }
    }

    async fn types(&self, target: &Target) -> Result<Arc<TypeSet>> {
        self.planes.types(target).await
    }

    async fn authenticate(
        &self,
        plane: &PlaneId,
        target: Option<&Target>,
        peer: Option<&Peer>,
        headers: &RequestHeaders<'_>,
    ) -> Result<Option<User>> {
        if peer.is_none()
            && let Some(token) = headers.get("authorization").and_then(people::of_key)
        {
            return people::authenticate_key(&self.planes, token).await.map(Some);
        }
        let owner = target.map(|target| self.owner_of_plane(target)).unwrap_or_default();
        let place = Place { plane, organization: owner.organization.as_deref() };
        let user = self.authentication.authenticate(place, peer, headers).await?;
        if let Some(user) = &user {
            people::check_active(&self.planes, user).await?;
            people::check_believed(&self.planes, user).await?;
        }
        Ok(user)
    }

    fn allows_anonymous(&self, path: &str) -> bool {
        self.authentication.anonymous(path)
    }

    async fn review_token(&self, target: &Target, spec: &Value) -> Result<Value> {
        let plane = match target {
            Target::Local(plane) => plane.clone(),
            Target::Dedicated(pair) => pair.plane.clone(),
            _ => PlaneId::core(),
        };
        let owner = self.owner_of_plane(target);
        let place = Place { plane: &plane, organization: owner.organization.as_deref() };
        let found = match self.authentication.review(place, spec).await? {
            Ok((user, _)) if !self.planes.believes(&user).await => {
                Err(vec!["the token was revoked".to_owned()])
            }
            found => found,
        };
        Ok(review::answer(found.as_ref().cloned().map_err(Vec::as_slice)))
    }

    async fn authorize(&self, target: &Target, attributes: &Attributes<'_>) -> Result<Decision> {
        if attributes.user.is_in(MASTERS) {
            return Ok(Decision::allow(""));
        }
        if let Some(denied) = rights::denial(&self.planes, target, attributes).await? {
            return Ok(denied);
        }
        if attributes.user.from_host {
            return match &self.host {
                Some(host) => Box::pin(host.review(attributes)).await,
                None => Ok(Decision::default()),
            };
        }
        if people::check_active(&self.planes, attributes.user).await.is_err() {
            return Ok(Decision::refuse("the user is deactivated"));
        }
        let own = self.nodes.authorize(&self.planes, target, attributes);
        let decision = self.authorization.decide(attributes, &self.place(target), own).await?;
        // Only those who could do it otherwise are told that an organization is suspended.
        if decision.allowed {
            rights::check_suspension(&self.planes, target, attributes).await?;
        }
        Ok(decision)
    }

    async fn authorize_request(&self, target: &Target, attributes: &Attributes<'_>) -> Result<Decision> {
        let decision = self.authorize(target, attributes).await?;
        // That there is no such organization, likewise.
        if let Target::Organization(scope) = target
            && decision.allowed
        {
            scope.check_exists()?;
        }
        if let Target::Provider(scope) = target
            && decision.allowed
        {
            scope.check_exists()?;
        }
        // To a pair the core server says what the platform allows.
        Ok(match attributes.user.extra.get(GRANTED).filter(|_| !self.planes.has_core()) {
            Some(reason) if !decision.allowed && !decision.denied => Decision::allow(reason.concat()),
            _ => decision,
        })
    }

    async fn explain(&self, target: &Target, attributes: &Attributes<'_>) -> Result<String> {
        Ok(rights::access(&self.planes, target).await?.explain(attributes))
    }

    async fn admit(&self, target: &Target, user: &User) -> Result<()> {
        let plane = match target {
            Target::Local(plane) => plane,
            Target::Dedicated(pair) => &pair.plane,
            Target::Provider(scope) => &scope.plane,
            Target::Organization(_) | Target::User(_) | Target::AllPlanes => return Ok(()),
        };
        if plane.is_core() || people::is_platforms(user) {
            return Ok(());
        }
        self.planes.suspended(plane).await.map_or(Ok(()), Err)
    }

    fn asks_others(&self) -> bool {
        !self.authorization.is_plain()
    }

    async fn told_of(
        &self,
        target: &Target,
        attributes: &Attributes<'_>,
        user: Arc<User>,
    ) -> Result<Arc<User>> {
        let mut told = User { extra: user.extra.clone(), ..(*user).clone() };
        told.extra.remove(GRANTED);
        if !user.is_in(MASTERS) {
            let access = rights::access(&self.planes, target).await?;
            let is_let_in = access.lets_in(&user);
            if !self.authorization.is_plain() {
                let decision = self.authorize(target, attributes).await?;
                if decision.denied {
                    return Err(forbidden(attributes, &decision.reason));
                }
                if !decision.allowed {
                    // The pair says so, in its words.
                    return Ok(Arc::new(if is_let_in { told } else { User::anonymous() }));
                }
                told.extra.insert(GRANTED.to_owned(), vec![decision.reason]);
            }
            // Who may do all is told of as that, so that the pair lets them grant what they have.
            let all = Attributes { verb: "*", ..Attributes::resource(&user, "*", "*", "*") };
            if access.granted(&all).is_some() {
                told.groups.push(MASTERS.to_owned());
            } else if let Some(reason) = access.granted(attributes) {
                told.extra.insert(GRANTED.to_owned(), vec![reason]);
            } else if !is_let_in && !told.extra.contains_key(GRANTED) {
                told = User::anonymous();
            }
        }
        Ok(Arc::new(told))
    }

    fn revoked(
        &self,
        target: &Target,
        user: &Arc<User>,
        attributes: &Attributes<'_>,
    ) -> BoxFuture<'static, ()> {
        // A webhook may have allowed it, a pair may have judged by impersonation, and another cluster judges its own users.
        let others = user.from_host
            || matches!(target, Target::Dedicated(_))
            || !self.authorization.is_plain()
            || user.extra.contains_key(GRANTED);
        let configured = people::Configured {
            authentication: self.authentication.changes(),
            keys: self.tokens.changes(),
            authorization: self.authorization.changes(),
        };
        let revoked = people::revoked(&self.planes, target, user, attributes, (others, configured));
        match self.refused(target, user, attributes) {
            None => revoked,
            Some(refused) => Box::pin(future::select(revoked, refused).map(drop)),
        }
    }

    async fn rules_for(&self, target: &Target, user: &User, namespace: &str) -> Result<Value> {
        let mut status =
            rights::access(&self.planes, target).await?.rules(user, &json!({"namespace": namespace}))?;
        if !self.authorization.is_plain() {
            // What webhooks say depends on the request.
            status["incomplete"] = true.into();
            status["evaluationError"] = "webhook authorizer does not support user rule resolution".into();
        }
        Ok(status)
    }

    async fn get(&self, target: &Target, op: Operation, resource_version: &str) -> Result<Object> {
        let op = self.local(target, op, "get").await?;
        if freehold_apiserver_resource_metrics::is_served(&op.ty) {
            return self.resource_metrics.get(&op).await;
        }
        match target {
            Target::Organization(scope) => organization::check_object(&self.registry, &op, scope).await?,
            Target::User(name) => self.own_view(name).await.check_object(&self.registry, &op).await?,
            _ => {}
        }
        self.registry.get(&op, resource_version).await
    }

    async fn list(&self, target: &Target, op: Operation, mut options: ListOptions) -> Result<List> {
        if freehold_apiserver_resource_metrics::is_served(&op.ty) {
            return self.resource_metrics.list(&self.local(target, op, "list").await?, &options).await;
        }
        if op.narrowed && matches!(target, Target::Local(_)) {
            return visible::list(self, &op, options).await;
        }
        if let Some(across) = self.across(target, &op, "list").await? {
            return self.registry.list_across(&op, &options, &across).await;
        }
        let (op, shown) = self.shown(target, op, "list").await?;
        options.shown = shown;
        self.registry.list(&op, &options).await
    }

    async fn watch(
        &self,
        target: &Target,
        op: Operation,
        mut options: WatchOptions,
    ) -> Result<BoxStream<'static, WatchEvent>> {
        if op.narrowed && matches!(target, Target::Local(_)) {
            return visible::watch(self, &op, options).await;
        }
        if let Some(across) = self.across(target, &op, "watch").await? {
            provider::check_since(&self.planes, target, &options.list.resource_version)?;
            return Ok(self.registry.watch_across(&op, &options, &across).await?.boxed());
        }
        let (op, shown) = self.shown(target, op, "watch").await?;
        options.list.shown = shown;
        if let Target::User(name) = target {
            let view = self.own_view(name).await;
            view.check_since(&op, &options.list.resource_version)?;
            let events = self.registry.watch(&op, &options).await?;
            return Ok(view.while_unchanged(&op, events));
        }
        Ok(self.registry.watch(&op, &options).await?.boxed())
    }

    async fn create(
        &self,
        target: &Target,
        op: Operation,
        mut body: Body,
        options: WriteOptions,
    ) -> Result<Written> {
        let op = self.local(target, op, "create").await?;
        self.planes.check_create(&op.plane)?;
        if let Target::Provider(scope) = target {
            provider::check_body(&self.planes, scope, &op, "create", &body.value)?;
        }
        if let Target::Organization(scope) = target {
            organization::check_write(&op, scope, &body.value)?;
        }
        if people::is_key(&op) {
            let token = people::prepare_key(&op, &mut body.value)?;
            return Ok(people::reveal(self.registry.create(&op, &body, &options).await?, token));
        }
        let written = match (op.ty.plural.as_str(), op.subresource.as_deref()) {
            ("serviceaccounts", Some("token")) => self.issue_token(&op, &body, &options).await,
            (_, Some(_)) => self.registry.act(&op, &body, &options).await,
            (_, None) => self.registry.create(&op, &body, &options).await,
        };
        self.registered(&op, written).await
    }

    async fn update(
        &self,
        target: &Target,
        op: Operation,
        body: Body,
        options: WriteOptions,
    ) -> Result<Written> {
        let op = self.local(target, op, "update").await?;
        if let Target::Provider(scope) = target {
            provider::check_body(&self.planes, scope, &op, "update", &body.value)?;
        }
        if let Target::Organization(scope) = target {
            organization::check_object(&self.registry, &op, scope).await?;
            organization::check_write(&op, scope, &body.value)?;
        }
        let written = self.registry.update(&op, &body, &options).await;
        self.registered(&op, written).await
    }

    async fn patch(
        &self,
        target: &Target,
        op: Operation,
        patch: Patch,
        options: WriteOptions,
    ) -> Result<Written> {
        let op = self.local(target, op, "patch").await?;
        if matches!(patch, Patch::Apply(_)) && op.subresource.is_none() {
            self.planes.check_create(&op.plane)?;
        }
        if people::is_key(&op) && matches!(patch, Patch::Apply(_)) {
            return Err(read_only(&op, "apply"));
        }
        if let Target::User(name) = target {
            organization::check_answer(&op, &patch)?;
            self.own_view(name).await.check_object(&self.registry, &op).await?;
        }
        if let Target::Organization(scope) = target {
            organization::check_patch(&self.registry, &op, scope, &patch).await?;
        }
        if let Target::Provider(scope) = target {
            provider::check_patch(self, scope, &op, &patch, &options).await?;
        }
        let written = self.registry.patch(&op, &patch, &options).await;
        self.registered(&op, written).await
    }

    async fn delete(&self, target: &Target, op: Operation, options: DeleteOptions) -> Result<Written> {
        let op = self.local(target, op, "delete").await?;
        match target {
            Target::Organization(scope) => organization::check_object(&self.registry, &op, scope).await?,
            Target::User(name) => self.own_view(name).await.check_object(&self.registry, &op).await?,
            _ => {}
        }
        self.registry.delete(&op, &options).await
    }

    async fn admit_review(
        &self,
        target: &Target,
        op: &Operation,
        review: &mut Value,
        options: &WriteOptions,
    ) -> Result<Vec<String>> {
        // What a pair's plane has of webhooks, its pair knows.
        if matches!(target, Target::Dedicated(_)) {
            return Ok(Vec::new());
        }
        let mut warnings = self.registry.admit_posted(op, review, options).await?;
        warnings.extend(self.registry.validate_posted(op, review, options).await?);
        Ok(warnings)
    }

    async fn admit_connect(&self, target: &Target, op: Operation, options: Value) -> Result<Vec<String>> {
        let op = self.local(target, op, "connect").await?;
        self.registry.admit_connect(&op, options).await
    }

    async fn delete_collection(
        &self,
        target: &Target,
        op: Operation,
        list: ListOptions,
        options: DeleteOptions,
    ) -> Result<List> {
        self.local(target, op.clone(), "deletecollection").await?;
        let (op, shown) = self.shown(target, op, "deletecollection").await?;
        self.registry.delete_collection(&op, &ListOptions { shown, ..list }, &options).await
    }

    async fn delete_plane(&self, plane: &PlaneId) -> Result<Value> {
        self.planes.delete(plane).await?;
        self.release_claims(plane).await?;
        Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": plane.as_str(), "kind": "planes"}}))
    }

    async fn encryption(&self, rotate: bool) -> Result<Value> {
        let sealed = self.sealed.as_ref().ok_or_else(Status::no_such_resource)?;
        if rotate {
            sealed.rotate().await.map_err(|error| match error {
                RotateError::NoKeys => Status::bad_request(error.to_string()),
                RotateError::GoingOn(_) => Status::new(409, "Conflict", error.to_string()),
                RotateError::Store(error) => Status::internal(error),
            })?;
        }
        let status = sealed.status().await.map_err(Status::internal)?;
        serde_json::to_value(status).map_err(Status::internal)
    }

    async fn backup(&self) -> Result<BoxStream<'static, Result<Bytes>>> {
        let sealed = self.sealed.as_ref().ok_or_else(Status::no_such_resource)?;
        crate::backup::stream(sealed.raw().clone()).await
    }

    async fn act_on_plane(&self, plane: &PlaneId, action: PlaneAction) -> Result<Value> {
        let layer = |id: &str| id.parse().map_err(|error| Status::bad_request(format!("{error}")));
        Ok(match action {
            PlaneAction::Snapshot(id, at) => {
                let record = self.planes.snapshot(plane, &layer(&id)?, at).await?;
                serde_json::to_value(record).map_err(Status::internal)?
            }
            PlaneAction::Release(id) => {
                let left = self.planes.release(&layer(&id)?).await?.planes;
                json!({"planes": left.iter().map(PlaneId::as_str).collect::<Vec<_>>()})
            }
            PlaneAction::Switch { layer: id, operation, is_restore } => {
                let layer = layer(&id)?;
                if is_restore && !self.planes.has_done(plane, &operation).await? {
                    self.planes.check_source(&layer, plane).await?;
                }
                json!({"revision": self.put_above(plane, &layer, &operation).await?})
            }
            PlaneAction::Class(class) => self.install_class(&class).await?,
        })
    }

    async fn pair(&self, plane: &PlaneId) -> Result<DedicatedTarget> {
        self.planes.pair(plane).await
    }

    async fn awake(
        &self,
        pair: &DedicatedTarget,
        attributes: &Attributes<'_>,
    ) -> Result<(DedicatedTarget, Option<InUse>)> {
        self.awake_for(pair, attributes).await
    }

    async fn export(&self, target: &Target) -> Result<ArchiveStream> {
        let Target::Local(plane) = target else { return Err(Status::no_such_resource()) };
        Ok(self.planes.export(plane).await?.boxed())
    }

    async fn import(&self, target: &Target, archive: &mut ArchiveStream) -> Result<Value> {
        self.import_into(target, archive).await
    }

    fn kubelet(&self, target: &Target, address: SocketAddr) -> Result<Kubelet> {
        match (target, &self.resource_metrics.kubelets) {
            (Target::Local(plane), Some(kubelets)) if !plane.is_core() => kubelets.reach(plane, address),
            _ => Err(Status::unavailable("this server reaches no nodes of this control plane")),
        }
    }

    async fn aggregated(&self, target: &Target, group: &str, version: &str) -> Result<Option<Aggregated>> {
        let Target::Local(plane) = target else { return Ok(None) };
        self.server_of(plane, group, version)
    }

    async fn aggregated_across(
        &self,
        target: &Target,
        group: &str,
        version: &str,
    ) -> Result<Vec<Arc<Aggregated>>> {
        let Target::Organization(scope) = target else { return Ok(Vec::new()) };
        let projects = self.planes.directory().of_organization(&scope.name);
        let found = projects.iter().map(|info| self.server_of(&info.plane, group, version));
        found.filter_map(|server| server.map(|server| server.map(Arc::new)).transpose()).collect()
    }

    fn aggregated_changes(&self, target: &Target) -> BoxStream<'static, ()> {
        let Target::Organization(scope) = target else { return stream::pending().boxed() };
        let own = self.planes.directory().changes_of(&scope.name);
        let seen = (own.subscribe(), self.planes.people().changes(), own);
        let changes = stream::unfold(seen, |(mut below, mut above, own)| async move {
            // The senders live as long as this.
            tokio::select! {
                _ = below.changed() => {}
                _ = above.changed() => {}
            }
            Some(((), (below, above, own)))
        });
        changes.boxed()
    }

    async fn aggregated_openapi(&self, target: &Target) -> Vec<Bytes> {
        let Target::Local(plane) = target else { return Vec::new() };
        self.aggregator.openapi_v2_of(plane).await
    }

    async fn footing(&self, target: &Target) -> Result<Option<Footing>> {
        self.footing_of(target).await
    }

    fn count(&self, target: &Target, group: &str, resource: &str, namespace: Option<&str>) -> usize {
        self.count_of(target, (group, resource), namespace)
    }

    fn size(
        &self,
        target: &Target,
        (group, resource): (&str, &str),
        (namespace, name): (Option<&str>, &str),
    ) -> usize {
        let Target::Local(plane) = target else { return 0 };
        let path = ObjectPath {
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        };
        self.registry.cache().peek(plane, &path).map_or(0, |entry| entry.cost())
    }

    async fn holdings(&self, plane: &PlaneId) -> Result<Vec<(&'static str, i64, Option<i64>)>> {
        let Some(limits) = self.registry.limits(plane) else { return Ok(Vec::new()) };
        let usage = self.registry.usage(plane).await?;
        Ok(limits.rows(&usage).into())
    }

    fn objects(&self) -> Vec<(String, String, u64)> {
        self.registry.cache().totals()
    }

    fn project_of(&self, plane: &PlaneId) -> Option<Arc<str>> {
        self.planes.directory().by_plane(plane).map(|info| info.name.clone())
    }

    async fn ready(&self) -> Vec<(&'static str, std::result::Result<(), String>)> {
        let store = self.store.revision().await.map(drop).map_err(|error| error.to_string());
        let cache = match &store {
            Ok(()) => self.registry.cache().catch_up().await.map(drop).map_err(|status| status.message),
            Err(_) => Err("the store does not answer".to_owned()),
        };
        let host = self.host.as_ref().map(|host| ("host-authentication", host.ready()));
        [("etcd", store), ("informer-sync", cache)].into_iter().chain(host).collect()
    }

    fn owner(&self, target: &Target, about: &Subject<'_>) -> Owner {
        let owner = match target {
            // What a provider does in a consumer's plane is in the consumer's trail.
            Target::Provider(ProviderScope { consumers: Consumers::One(plane), .. }) => {
                self.owner_of_plane(&Target::Local(plane.clone()))
            }
            _ => self.owner_of_plane(target),
        };
        match owner.organization {
            None if trails::is_core(target) => trails::owner_in_core(self.planes.directory(), about),
            _ => owner,
        }
    }

    fn owner_of(&self, target: &Target, about: &Subject<'_>, object: &Value) -> Option<Arc<str>> {
        trails::is_core(target).then(|| trails::owner_of_object(about, object)).flatten()
    }

    async fn standing(
        &self,
        organization: &str,
        target: &Target,
        user: Option<&User>,
    ) -> Option<(Arc<str>, Standing)> {
        trails::standing_at(&self.planes, organization, target, user).await
    }

    async fn audit_page(&self, target: &Target, from: &str, since: i64) -> Result<AuditPage> {
        let (trail, organization) = self.trail_of(target).await?;
        trails::page(trail, &organization, from, since).await
    }

    async fn audit_watch(&self, target: &Target, after: u64) -> Result<AuditStream> {
        let (trail, organization) = self.trail_of(target).await?;
        let events = trail.watch(&organization, after).await.map_err(trails::unreadable)?;
        Ok(events.map(|bundle| bundle.map(|bundle| bundle.events).map_err(trails::unreadable)).boxed())
    }

    async fn openid(&self, target: &Target, document: OpenIdDocument) -> Result<Value> {
        let Target::Local(plane) = target else { return Err(Status::no_such_resource()) };
        Ok(match document {
            OpenIdDocument::Configuration => {
                let uri = format!("{}/openid/v1/jwks", self.tokens.issuer(plane));
                self.tokens.openid_configuration(plane, &uri)
            }
            OpenIdDocument::Keys => self.tokens.jwks(plane),
        })
    }
}
