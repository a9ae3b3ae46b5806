//! The store of this server, for the dedicated pairs of its projects: etcd's protocol on the same port, each client
//! confined to the plane that its certificate names.

use freehold_apiserver_server::{EtcdHandler, Payload};
use freehold_apiserver_storage::Store;
use freehold_apiserver_storage_etcd::{Facade, Scope};
use freehold_machinery::{PlaneId, User};
use futures_util::FutureExt;
use http::{HeaderValue, Response};
use http_body_util::BodyExt;
use std::sync::Arc;

/// What stands before keys on the wire; clients leave their `--etcd-prefix` as it is by default.
const PREFIX: &str = "/freehold/";
/// The user as whom a pair's apiserver reaches its store begins so; its plane follows. Other identities of a plane, its
/// admins among them, don't reach it.
const STORE_CLIENT: &str = "plane:";
/// gRPC's code for a client that may not do what it asks.
const PERMISSION_DENIED: HeaderValue = HeaderValue::from_static("7");

/// The plane whose keys a user may reach.
fn plane(user: &User) -> Option<PlaneId> {
    user.plane.clone().filter(|plane| user.name.strip_prefix(STORE_CLIENT) == Some(plane.as_str()))
}

/// Answers etcd's calls.
pub(crate) fn handler(store: Arc<dyn Store>) -> EtcdHandler {
    let facade = Facade::new(store, PREFIX);
    Arc::new(move |request, user: Arc<User>| {
        let facade = facade.clone();
        async move {
            let Some(plane) = plane(&user) else { return denied() };
            let response = facade.handle(Scope::Plane(plane), request).await;
            response.map(|body| Payload::Boxed(body.map_err(Into::into).boxed_unsync()))
        }
        .boxed()
    })
}

fn denied() -> Response<Payload> {
    let mut response = Response::new(Payload::empty());
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    response.headers_mut().insert("grpc-status", PERMISSION_DENIED);
    response
}
