//! The port to what is behind the edge: planes, registry, authorization, discovery.
//!
//! The server speaks HTTP and knows this trait; the assembly crate implements it over the real planes and registry, and
//! the tests over a map. Everything here is already out of the URL: a [`Target`] and an [`Operation`].
//!
//! It must not know: HTTP, media types, how planes are kept.

use crate::{aggregated::Aggregated, identity::RequestHeaders, kubelet::Kubelet, trail::AuditPage};
use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_audit::{Standing, Subject};
use freehold_apiserver_authn::Peer;
use freehold_apiserver_authz::{Attributes, Decision};
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_fairness::{Flows, Limits};
use freehold_apiserver_planes::{DedicatedTarget, Resolved, Target, context::Context};
use freehold_apiserver_registry::{
    Body, DeleteOptions, List, ListOptions, Object, Operation, Patch, WatchEvent, WatchOptions, WriteOptions,
    Written,
};
use freehold_machinery::{GroupResource, PlaneId, Status, User, Value};
use futures_util::{
    StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use std::{net::SocketAddr, sync::Arc};

/// What the server asks for. Each failure is the `Status` that the client gets.
///
/// [`Operation::plane`] is [`PlaneId::core`] for targets other than [`Target::Local`]: the implementation decides by
/// the target. No call is made for a [`Target::Dedicated`] but [`Backend::resolve`]: such requests are passed on.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// Where a context leads. 404 for a project, organization, user or plane that is not there, 503 with
    /// `Retry-After` for one that is not ready.
    async fn resolve(&self, context: &Context) -> Result<Resolved, Status>;

    /// The context that the identity of a request without one leads to: a plane's node or service account to its project.
    /// `None` for everybody else, whose requests are for the platform. Nothing is verified here: whoever is led to a plane is
    /// authenticated there.
    async fn home(
        &self,
        peer: Option<&Peer>,
        headers: &RequestHeaders<'_>,
    ) -> Result<Option<Context>, Status> {
        let _ = (peer, headers);
        Ok(None)
    }

    /// What is served there, for discovery, OpenAPI and finding the type of a request.
    async fn types(&self, target: &Target) -> Result<Arc<TypeSet>, Status>;

    /// Who is asking at a plane (core for organizations, users and all planes), through a target. `None` where the request
    /// does not say; 401 where it is not to be believed.
    async fn authenticate(
        &self,
        plane: &PlaneId,
        target: Option<&Target>,
        peer: Option<&Peer>,
        headers: &RequestHeaders<'_>,
    ) -> Result<Option<User>, Status>;

    /// Whether requests for a path need not say who asks.
    fn allows_anonymous(&self, path: &str) -> bool {
        let _ = path;
        true
    }

    /// The `status` of a `TokenReview` at a target.
    async fn review_token(&self, target: &Target, spec: &Value) -> Result<Value, Status>;

    /// Whether the user of `attributes` may do it. An error is a failure to find out, not a denial.
    async fn authorize(&self, target: &Target, attributes: &Attributes<'_>) -> Result<Decision, Status>;

    /// Whether the user of `attributes` may do it, which is the request that is being served: where another server has passed it
    /// on, what that one says of it counts too. An error is a failure to find out, not a denial.
    async fn authorize_request(
        &self,
        target: &Target,
        attributes: &Attributes<'_>,
    ) -> Result<Decision, Status> {
        self.authorize(target, attributes).await
    }

    /// Whether anything is served there to a user: 403 with the reason where it is suspended.
    async fn admit(&self, target: &Target, user: &User) -> Result<(), Status> {
        let _ = (target, user);
        Ok(())
    }

    /// Why the user of `attributes` may do it, or what is missing, in words.
    async fn explain(&self, target: &Target, attributes: &Attributes<'_>) -> Result<String, Status> {
        Ok(self.authorize(target, attributes).await?.reason)
    }

    /// Whether others than the server's own rules are asked what somebody may do. Then identities that users of dedicated planes
    /// take on are judged here too, and not by the pair alone.
    fn asks_others(&self) -> bool {
        false
    }

    /// A user as a dedicated pair is told of: with what the platform gives them for this request.
    async fn told_of(
        &self,
        target: &Target,
        attributes: &Attributes<'_>,
        user: Arc<User>,
    ) -> Result<Arc<User>, Status> {
        let _ = (target, attributes);
        Ok(user)
    }

    /// Ends when what was allowed to `user` at `target` is so no longer, within a second: what is still going on ends then.
    fn revoked(
        &self,
        target: &Target,
        user: &Arc<User>,
        attributes: &Attributes<'_>,
    ) -> BoxFuture<'static, ()> {
        let _ = (target, user, attributes);
        Box::pin(std::future::pending())
    }

    /// The `status` of a `SelfSubjectRulesReview`: `resourceRules`, `nonResourceRules`, `incomplete`.
    async fn rules_for(&self, target: &Target, user: &User, namespace: &str) -> Result<Value, Status>;

    /// Reads one object, or a subresource of one. `resource_version` as given in the query, empty for the latest.
    async fn get(&self, target: &Target, op: Operation, resource_version: &str) -> Result<Object, Status>;

    /// Lists objects.
    async fn list(&self, target: &Target, op: Operation, options: ListOptions) -> Result<List, Status>;

    /// Makes an object, or acts through a subresource (`pods/binding`, `serviceaccounts/token`).
    async fn create(
        &self,
        target: &Target,
        op: Operation,
        body: Body,
        options: WriteOptions,
    ) -> Result<Written, Status>;

    /// Replaces an object, or makes it where the kind allows that.
    async fn update(
        &self,
        target: &Target,
        op: Operation,
        body: Body,
        options: WriteOptions,
    ) -> Result<Written, Status>;

    /// Patches or applies.
    async fn patch(
        &self,
        target: &Target,
        op: Operation,
        patch: Patch,
        options: WriteOptions,
    ) -> Result<Written, Status>;

    /// Deletes one object, or begins to.
    async fn delete(&self, target: &Target, op: Operation, options: DeleteOptions)
    -> Result<Written, Status>;

    /// Admits a review (`tokenreviews`, `subjectaccessreviews`) before it is answered; gives warnings.
    async fn admit_review(
        &self,
        target: &Target,
        op: &Operation,
        review: &mut Value,
        options: &WriteOptions,
    ) -> Result<Vec<String>, Status> {
        let _ = (target, op, review, options);
        Ok(Vec::new())
    }

    /// Admits a connection (`pods/exec`) with its options; gives warnings.
    async fn admit_connect(
        &self,
        target: &Target,
        op: Operation,
        options: Value,
    ) -> Result<Vec<String>, Status> {
        let _ = (target, op, options);
        Err(Status::no_such_resource())
    }

    /// The kubelet at an address that a Node of a target names.
    ///
    /// # Errors
    /// An address that may not be dialled, or too many streams of the plane.
    fn kubelet(&self, target: &Target, address: SocketAddr) -> Result<Kubelet, Status> {
        let _ = (target, address);
        Err(Status::unavailable("this server reaches no nodes"))
    }

    /// Why a resource is kept from a target that does not serve it; `None` where it is simply absent.
    fn withheld(&self, target: &Target, resource: &GroupResource, verb: &str) -> Option<Status> {
        let _ = (target, resource, verb);
        None
    }

    /// Deletes all that `list` selects; gives what was deleted.
    async fn delete_collection(
        &self,
        target: &Target,
        op: Operation,
        list: ListOptions,
        options: DeleteOptions,
    ) -> Result<List, Status>;

    /// Watches. Dropping the stream ends the watch; the server ends it when its time is up.
    async fn watch(
        &self,
        target: &Target,
        op: Operation,
        options: WatchOptions,
    ) -> Result<BoxStream<'static, WatchEvent>, Status>;

    /// Removes a plane and all its keys (`DELETE /planes/<id>`); gives the answer's body.
    async fn delete_plane(&self, plane: &PlaneId) -> Result<Value, Status>;

    /// How the store's values are sealed (`GET /encryption`), after beginning a rotation of keys where that is asked for
    /// (`POST /encryption/rotate`). 404 where this server does not seal.
    async fn encryption(&self, rotate: bool) -> Result<Value, Status> {
        let _ = rotate;
        Err(Status::no_such_resource())
    }

    /// All that the store holds as of one revision, as it is stored: an archive, in pieces. 404 where the store is another
    /// server's.
    async fn backup(&self) -> Result<BoxStream<'static, Result<Bytes, Status>>, Status>;

    /// Does something with a plane as a whole; gives the answer's body.
    async fn act_on_plane(&self, plane: &PlaneId, action: PlaneAction) -> Result<Value, Status>;

    /// The pair of a plane, whether it serves the plane by now or not.
    ///
    /// # Errors
    /// 404 where there can be none, 503 where it is not there yet.
    async fn pair(&self, plane: &PlaneId) -> Result<DedicatedTarget, Status> {
        Err(Status::not_found(&GroupResource::new("", "planes"), plane.as_str()))
    }

    /// A pair as it can be asked now, with what counts as its use for as long as it is kept. One that sleeps is woken and waited
    /// for, where the user of `attributes` belongs to the project and may do what is asked.
    ///
    /// # Errors
    /// 403 for others, 503 where it sleeps on, is not ready in time, or too many requests wait.
    async fn awake(
        &self,
        pair: &DedicatedTarget,
        attributes: &Attributes<'_>,
    ) -> Result<(DedicatedTarget, Option<InUse>), Status> {
        let _ = attributes;
        Ok((pair.clone(), None))
    }

    /// What a plane has now, as an archive, piece by piece (`GET /archive`).
    async fn export(&self, target: &Target) -> Result<ArchiveStream, Status>;

    /// Fills an empty plane from an archive (`POST /archive`); gives the answer's body.
    async fn import(&self, target: &Target, archive: &mut ArchiveStream) -> Result<Value, Status>;

    /// The server that answers for a group and version in the place of this one; `None` where there is none.
    async fn aggregated(
        &self,
        target: &Target,
        group: &str,
        version: &str,
    ) -> Result<Option<Aggregated>, Status> {
        let _ = (target, group, version);
        Ok(None)
    }

    /// The servers that answer for a group and version in an organization's projects, in their order.
    async fn aggregated_across(
        &self,
        target: &Target,
        group: &str,
        version: &str,
    ) -> Result<Vec<Arc<Aggregated>>, Status> {
        let _ = (target, group, version);
        Ok(Vec::new())
    }

    /// Tells each time when [`Backend::aggregated_across`] may give others, or others may ask them; from this call on.
    fn aggregated_changes(&self, target: &Target) -> BoxStream<'static, ()> {
        let _ = target;
        stream::pending().boxed()
    }

    /// What aggregated servers say of their versions in OpenAPI 2: `paths` and `definitions` of each.
    async fn aggregated_openapi(&self, target: &Target) -> Vec<Bytes> {
        let _ = target;
        Vec::new()
    }

    /// Where a request is counted, and by which rules its plane shares itself out; `None`: it takes nobody's turn.
    async fn footing(&self, target: &Target) -> Result<Option<Footing>, Status> {
        let _ = target;
        Ok(None)
    }

    /// How many objects a resource has in a target, or in one namespace of it, as far as that is known without reading
    /// them.
    fn count(&self, target: &Target, group: &str, resource: &str, namespace: Option<&str>) -> usize {
        let _ = (target, group, resource, namespace);
        0
    }

    /// How many bytes the object of a namespace and name has, as far as that is known without reading it; 0 otherwise.
    fn size(&self, target: &Target, (group, resource): (&str, &str), at: (Option<&str>, &str)) -> usize {
        let _ = (target, group, resource, at);
        0
    }

    /// What a plane has of its own, and what its class allows, by the names of the limits; nothing where nothing is
    /// limited.
    async fn holdings(&self, plane: &PlaneId) -> Result<Vec<(&'static str, i64, Option<i64>)>, Status> {
        let _ = plane;
        Ok(Vec::new())
    }

    /// How many objects there are in all planes together: group, resource and number, those with most objects first.
    /// Empty while they are not counted.
    fn objects(&self) -> Vec<(String, String, u64)> {
        Vec::new()
    }

    /// The name of the project whose plane it is.
    fn project_of(&self, plane: &PlaneId) -> Option<Arc<str>> {
        let _ = plane;
        None
    }

    /// Each check of `/readyz` beyond the server's own, by name, with what is wrong.
    async fn ready(&self) -> Vec<(&'static str, Result<(), String>)>;

    /// The organization and project that a request is for, for the audit log: those of its target or, in the core plane,
    /// of the object that its path names.
    fn owner(&self, target: &Target, about: &Subject<'_>) -> Owner {
        let _ = (target, about);
        Owner::default()
    }

    /// The organization of an object that is about to be made, where the object and not its path says that.
    fn owner_of(&self, target: &Target, about: &Subject<'_>, object: &Value) -> Option<Arc<str>> {
        let _ = (target, about, object);
        None
    }

    /// The uid of an organization, and what somebody (`None`: nobody was believed) is to it; `None` where there is no such
    /// organization.
    async fn standing(
        &self,
        organization: &str,
        target: &Target,
        user: Option<&User>,
    ) -> Option<(Arc<str>, Standing)> {
        let _ = (organization, target, user);
        None
    }

    /// Audit events of an organization, from a place or from a time (microseconds since 1970) on. 404 where none are kept.
    async fn audit_page(&self, target: &Target, from: &str, since: i64) -> Result<AuditPage, Status> {
        let _ = (target, from, since);
        Err(Status::no_such_resource())
    }

    /// Audit events of an organization as they come, after a revision (0: from now on).
    async fn audit_watch(&self, target: &Target, after: u64) -> Result<AuditStream, Status> {
        let _ = (target, after);
        Err(Status::no_such_resource())
    }

    /// A document of the plane's token issuer.
    async fn openid(&self, target: &Target, document: OpenIdDocument) -> Result<Value, Status>;
}

/// What is kept by a request for as long as it goes on.
pub type InUse = Box<dyn std::any::Any + Send + Sync>;

/// Audit events as they come, JSON each.
pub type AuditStream = BoxStream<'static, Result<Vec<Bytes>, Status>>;

/// Whose a target is.
#[derive(Clone, Debug, Default)]
pub struct Owner {
    /// The organization, if it is one's.
    pub organization: Option<Arc<str>>,
    /// The project, if it is one.
    pub project: Option<Arc<str>>,
}

/// Where a request is counted.
#[derive(Clone)]
pub struct Footing {
    /// The plane.
    pub plane: PlaneId,
    /// Who owns it; empty for the platform.
    pub organization: Arc<str>,
    /// What its class allows.
    pub limits: Limits,
    /// Its flow schemas and priority levels.
    pub flows: Arc<Flows>,
}

/// ArchiveStream of an archive, in order.
pub type ArchiveStream = BoxStream<'static, Result<Bytes, Status>>;

/// What Freehold's controllers do with a plane as a whole, each of it once however often it is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaneAction {
    /// `PUT /planes/<id>/layers/<layer>?revision=N`: copies the plane, as of a revision or now, into a layer.
    Snapshot(String, Option<u64>),
    /// `DELETE /planes/<id>/layers/<layer>`: lets a layer go, at once or with the last plane above it.
    Release(String),
    /// `PUT /planes/<id>/stack?layer=L&operation=O`: puts the plane above a layer and takes its own objects away.
    Switch {
        /// The layer.
        layer: String,
        /// What it is done for; doing that again changes nothing.
        operation: String,
        /// `&restore=true`: the layer has to be a snapshot of this very plane.
        is_restore: bool,
    },
    /// `PUT /planes/core/classes/<class>`: makes a class' objects the layer below all planes of the class.
    Class(String),
}

/// The two documents with which others verify a plane's service account tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenIdDocument {
    /// `/.well-known/openid-configuration`.
    Configuration,
    /// `/openid/v1/jwks`.
    Keys,
}
