//! A server that speaks as much of etcd's API as the engine of this crate sends, over any store.
//!
//! A dedicated apiserver uses it: it runs the [`Etcd`](crate::Etcd) engine against the store of the process that
//! started it, and reaches nothing but its own plane, because [`Scope`] is decided by whoever mounts this, from the
//! client's certificate, and each key and range is checked against it.
//!
//! Served: `KV/Range`, `KV/Txn` and `KV/Compact` and `Watch/Watch`, with one watch for each stream. All else is answered
//! `Unimplemented`, or `InvalidArgument` where a message asks for more than the engine ever does. It is no etcd for
//! other clients.

mod bounds;
mod kv;
mod watch;

pub use bounds::{Bounds, BoundsOf};

use crate::{
    error::DENIED,
    prefix::Prefix,
    proto::{COMPACT, RANGE, TXN, WATCH},
};
use bounds::{Client, Clients};
use bytes::Bytes;
use freehold_apiserver_storage::{Key, KeyRange, LayerId, Store};
use freehold_machinery::PlaneId;
use futures_util::future::BoxFuture;
use http_body::Body as HttpBody;
use prost::Message;
use std::{marker::PhantomData, sync::Arc};
use tonic::{
    Request, Response, Status,
    body::Body,
    server::{Grpc, UnaryService},
};
use tonic_prost::ProstCodec;

/// The largest request: a commit's values and as much again for all else.
const MAX_REQUEST: usize = 4 << 20;

/// What a client may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// The keys of one plane: objects to read, watch and write, one by one, and records to read. Nothing is compacted.
    /// Beside them the record that two Services need to change which take the same address at a time.
    Plane(PlaneId),
}

impl Scope {
    fn allows(&self, keys: &KeyRange) -> bool {
        match self {
            Self::All => true,
            Self::Plane(plane) => {
                KeyRange::plane(plane).covers(keys) || KeyRange::one(&Key::allocations(plane)) == *keys
            }
        }
    }

    /// Everyone may know which layers are installed: a plane's objects lie above them.
    fn allows_reading(&self, keys: &KeyRange) -> bool {
        self.allows(keys) || KeyRange::system("layers").covers(keys)
    }

    /// Whether a key may be changed. The records of a plane say what it stands on: they are the platform's.
    fn allows_writing(&self, key: &Key) -> bool {
        match self {
            Self::All => true,
            Self::Plane(plane) if *key == Key::allocations(plane) => true,
            // One object has one key: others that read back as the same path are none.
            Self::Plane(plane) => key.object_path().is_some_and(|(of, path)| {
                of == *plane && path.is_well_formed() && Key::object(plane, &path) == *key
            }),
        }
    }

    /// Says what is wrong with a value: the one record that may be changed is always empty.
    fn check(&self, check: Check, key: &Key, value: &Bytes) -> Result<(), &'static str> {
        match self {
            Self::Plane(plane) if *key == Key::allocations(plane) => {
                if value == &b"{}"[..] {
                    Ok(())
                } else {
                    Err("the record says nothing but that it changed")
                }
            }
            _ => check(key, value),
        }
    }
}

/// Says what is wrong with a value that is to be written under a key.
pub type Check = fn(&Key, &Bytes) -> Result<(), &'static str>;

/// The server. Cheap to clone.
#[derive(Clone)]
pub struct Facade {
    store: Arc<dyn Store>,
    prefix: Prefix,
    clients: Arc<Clients>,
    bounds: BoundsOf,
    check: Check,
}

/// One request's view of it.
#[derive(Clone)]
struct Access {
    store: Arc<dyn Store>,
    prefix: Prefix,
    scope: Scope,
    /// Who is confined, and to how much.
    client: Option<(Arc<Client>, Bounds)>,
    check: Check,
}

impl Facade {
    /// A server over a store. The clients' engines must have the same prefix.
    pub fn new(store: Arc<dyn Store>, prefix: &str) -> Self {
        Self {
            store,
            prefix: Prefix::new(prefix),
            clients: Arc::default(),
            bounds: Arc::new(|_| Bounds::default()),
            check: |_, _| Ok(()),
        }
    }

    /// Confines each client to what `bounds` says for its plane.
    pub fn with_bounds(self, bounds: BoundsOf) -> Self {
        Self { bounds, ..self }
    }

    /// Has confined clients write such values alone.
    pub fn with_check(self, check: Check) -> Self {
        Self { check, ..self }
    }

    /// Answers one HTTP/2 request of a client that may reach `scope`. Errors are gRPC statuses in the response.
    pub async fn handle<B>(&self, scope: Scope, request: http::Request<B>) -> http::Response<Body>
    where
        B: HttpBody + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    {
        let client = match &scope {
            Scope::All => None,
            Scope::Plane(plane) => Some((self.clients.get(plane), (self.bounds)(plane))),
        };
        let is_watch = request.uri().path() == WATCH;
        let place = client.as_ref().filter(|_| !is_watch).map(|(client, _)| client.call()).transpose();
        let _place = match place {
            Ok(place) => place,
            Err(status) => return status.into_http(),
        };
        let (store, prefix, check) = (self.store.clone(), self.prefix.clone(), self.check);
        let access = Access { store, prefix, scope, client, check };
        match request.uri().path() {
            RANGE => unary(request, move |ask| kv::range(access.clone(), ask)).await,
            TXN => unary(request, move |ask| kv::txn(access.clone(), ask)).await,
            COMPACT => unary(request, move |ask| kv::compact(access.clone(), ask)).await,
            WATCH => {
                let mut grpc = Grpc::new(ProstCodec::default()).max_decoding_message_size(MAX_REQUEST);
                grpc.streaming(watch::Serve(access), request).await
            }
            _ => Status::unimplemented("this server has a part of etcd's API only").into_http(),
        }
    }
}

impl Access {
    /// The range that a message names, if it is one that the client may read.
    fn readable(&self, key: &Bytes, end: &Bytes) -> Result<KeyRange, Status> {
        let keys = self.prefix.strip_range(key, end).ok_or_else(|| Status::permission_denied(DENIED))?;
        if self.scope.allows_reading(&keys) { Ok(keys) } else { Err(Status::permission_denied(DENIED)) }
    }

    /// The range that a message names, if it is of a layer that the client's plane stands on.
    async fn layer(&self, key: &Bytes, end: &Bytes) -> Option<KeyRange> {
        let Scope::Plane(plane) = &self.scope else { return None };
        let keys = self.prefix.strip_range(key, end)?;
        let text = std::str::from_utf8(&keys.start).ok()?;
        let layer: LayerId = text.strip_prefix("layers/")?.split('/').next()?.parse().ok()?;
        if !KeyRange::layer(&layer).covers(&keys) {
            return None;
        }
        self.store.get(&Key::layer_plane(&layer, plane)).await.ok()??;
        Some(keys)
    }

    /// The range that a message names, if it is one that the client may reach.
    fn range(&self, key: &Bytes, end: &Bytes) -> Result<KeyRange, Status> {
        let keys = self.prefix.strip_range(key, end).ok_or_else(|| Status::permission_denied(DENIED))?;
        if self.scope.allows(&keys) { Ok(keys) } else { Err(Status::permission_denied(DENIED)) }
    }
}

/// Answers a call that has one request and one response.
async fn unary<B, Q, R, F>(request: http::Request<B>, call: impl FnMut(Q) -> F) -> http::Response<Body>
where
    B: HttpBody + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    Q: Message + Default + 'static,
    R: Message + Default + 'static,
    F: Future<Output = Result<R, Status>> + Send + 'static,
{
    let mut grpc = Grpc::new(ProstCodec::<R, Q>::default()).max_decoding_message_size(MAX_REQUEST);
    grpc.unary(Call(call, PhantomData), request).await
}

/// A function as what tonic wants.
struct Call<C, R>(C, PhantomData<R>);

impl<C, Q, R, F> UnaryService<Q> for Call<C, R>
where
    C: FnMut(Q) -> F,
    F: Future<Output = Result<R, Status>> + Send + 'static,
{
    type Response = R;
    type Future = BoxFuture<'static, Result<Response<R>, Status>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answer = (self.0)(request.into_inner());
        Box::pin(async move { answer.await.map(Response::new) })
    }
}
