//! The store of this server, for the dedicated pairs of its projects: etcd's protocol on the same port, each client
//! confined to the plane that its certificate names.

use freehold_apiserver_cache::check;
use freehold_apiserver_registry::Registry;
use freehold_apiserver_server::{EtcdHandler, Payload};
use freehold_apiserver_storage::Store;
use freehold_apiserver_storage_etcd::{Bounds, BoundsOf, Facade, Scope};
use freehold_machinery::{PlaneId, User, reserved::STORE_CLIENT};
use futures_util::FutureExt;
use http::{HeaderValue, Response};
use http_body_util::BodyExt;
use std::sync::Arc;

/// What stands before keys on the wire; clients leave their `--etcd-prefix` as it is by default.
const PREFIX: &str = "/freehold/";
/// gRPC's code for a client that may not do what it asks.
const PERMISSION_DENIED: HeaderValue = HeaderValue::from_static("7");

/// The plane whose keys a user may reach. Other identities of a plane, its admins among them, reach none.
fn plane(user: &User) -> Option<PlaneId> {
    user.plane.clone().filter(|plane| user.name.strip_prefix(STORE_CLIENT) == Some(plane.as_str()))
}

/// What the pair of a plane may store: what the plane's class allows, where that is less than what each pair may.
pub(crate) fn bounds(registry: Arc<Registry>) -> BoundsOf {
    Arc::new(move |plane| {
        let (most, limits) = (Bounds::default(), registry.ledger().limits(plane).unwrap_or_default());
        let least = |limit: Option<i64>, most: u64| {
            limit.and_then(|limit| u64::try_from(limit).ok()).map_or(most, |limit| limit.min(most))
        };
        // Whiteouts are keys, and names take bytes, that a class does not count.
        let (keys, bytes) = (least(limits.objects, most.keys), least(limits.bytes, most.bytes));
        Bounds {
            keys: keys.saturating_mul(2).min(most.keys),
            bytes: bytes.saturating_mul(2).min(most.bytes),
            ..most
        }
    })
}

/// Answers etcd's calls.
pub(crate) fn handler(store: Arc<dyn Store>, bounds: BoundsOf) -> EtcdHandler {
    let facade = Facade::new(store, PREFIX).with_bounds(bounds).with_check(check);
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
