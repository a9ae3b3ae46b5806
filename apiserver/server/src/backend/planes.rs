//! Planes as a whole: where they are, what they serve, and what is done with them.

use async_trait::async_trait;
use bytes::Bytes;
use freehold_apiserver_authz::Attributes;
use freehold_apiserver_catalog::TypeSet;
use freehold_apiserver_fairness::{Flows, Limits};
use freehold_apiserver_outbound::{Destination, Outbound};
use freehold_apiserver_planes::{DedicatedTarget, Resolved, Target, context::Context};
use freehold_machinery::{GroupResource, PlaneId, Status, Value};
use futures_util::stream::BoxStream;
use std::{net::SocketAddr, sync::Arc};
use tokio::sync::OwnedSemaphorePermit;

/// Knows planes, and acts on them as a whole. Each failure is the `Status` that the client gets.
#[async_trait]
pub trait PlaneBackend: Send + Sync + 'static {
    /// Where a context leads. 404 for a project, organization, user or plane that is not there, 503 with
    /// `Retry-After` for one that is not ready.
    async fn resolve(&self, context: &Context) -> Result<Resolved, Status>;

    /// What is served there, for discovery, OpenAPI and finding the type of a request.
    async fn types(&self, target: &Target) -> Result<Arc<TypeSet>, Status>;

    /// Why a resource is kept from a target that does not serve it; `None` where it is simply absent.
    fn withheld(&self, target: &Target, resource: &GroupResource, verb: &str) -> Option<Status>;

    /// Removes a plane and all its keys (`DELETE /planes/<id>`); gives the answer's body.
    async fn delete_plane(&self, plane: &PlaneId) -> Result<Value, Status>;

    /// How the store's values are sealed (`GET /encryption`), after beginning a rotation of keys where that is asked for
    /// (`POST /encryption/rotate`). 404 where this server does not seal.
    async fn encryption(&self, rotate: bool) -> Result<Value, Status>;

    /// All that the store holds as of one revision, as it is stored: an archive, in pieces. 404 where the store is another
    /// server's.
    async fn backup(&self) -> Result<BoxStream<'static, Result<Bytes, Status>>, Status>;

    /// Does something with a plane as a whole; gives the answer's body.
    async fn act_on_plane(&self, plane: &PlaneId, action: PlaneAction) -> Result<Value, Status>;

    /// The pair of a plane, whether it serves the plane by now or not.
    ///
    /// # Errors
    /// 404 where there can be none, 503 where it is not there yet.
    async fn pair(&self, plane: &PlaneId) -> Result<DedicatedTarget, Status>;

    /// A pair as it can be asked now, with what counts as its use for as long as it is kept. One that sleeps is woken and waited
    /// for, where the user of `attributes` belongs to the project and may do what is asked.
    ///
    /// # Errors
    /// 403 for others, 503 where it sleeps on, is not ready in time, or too many requests wait.
    async fn awake(
        &self,
        pair: &DedicatedTarget,
        attributes: &Attributes<'_>,
    ) -> Result<(DedicatedTarget, Option<InUse>), Status>;

    /// What a plane has now, as an archive, piece by piece (`GET /archive`).
    async fn export(&self, target: &Target) -> Result<ArchiveStream, Status>;

    /// Fills an empty plane from an archive (`POST /archive`); gives the answer's body.
    async fn import(&self, target: &Target, archive: &mut ArchiveStream) -> Result<Value, Status>;

    /// Where a request is counted, and by which rules its plane shares itself out; `None`: it takes nobody's turn.
    async fn footing(&self, target: &Target) -> Result<Option<Footing>, Status>;

    /// What a plane has of its own, and what its class allows, by the names of the limits; nothing where nothing is
    /// limited.
    async fn holdings(&self, plane: &PlaneId) -> Result<Vec<(&'static str, i64, Option<i64>)>, Status>;

    /// How many objects there are in all planes together: group, resource and number, those with most objects first.
    /// Empty while they are not counted.
    fn objects(&self) -> Vec<(String, String, u64)>;

    /// The name of the project whose plane it is.
    fn project_of(&self, plane: &PlaneId) -> Option<Arc<str>>;

    /// Each check of `/readyz` beyond the server's own, by name, with what is wrong.
    async fn ready(&self) -> Vec<(&'static str, Result<(), String>)>;

    /// The kubelet at an address that a Node of a target names.
    ///
    /// # Errors
    /// An address that may not be dialled, or too many streams of the plane.
    fn kubelet(&self, target: &Target, address: SocketAddr) -> Result<Kubelet, Status>;
}

/// What is kept by a request for as long as it goes on.
pub type InUse = Box<dyn std::any::Any + Send + Sync>;

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

/// A kubelet that may be dialled.
pub struct Kubelet {
    /// Makes the connection.
    pub outbound: Arc<Outbound>,
    /// Where it is, who the server is to it, and which authority its certificate has to be of.
    pub destination: Destination,
    /// What its paths begin with.
    pub prefix: String,
    /// The plane's permit for one more stream.
    pub permit: OwnedSemaphorePermit,
}
