//! Connections to destinations, kept while they are used.

use crate::{
    Destination, Host, Limits, Networks, Route, Services,
    connect::{Connector, Peer},
    tls,
};
use bytes::Bytes;
use freehold_telemetry::{Kind, TRACEPARENT, child};
use http::{Request, Response, Uri, uri::PathAndQuery};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioTimer},
};
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Weak},
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// How long a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(30);
/// How many such connections are kept for one destination.
const KEPT: usize = 8;
/// Destinations that are kept. Where there are more, those go that were not used for [`IDLE`], or all.
const MAX_DESTINATIONS: usize = 4096;

/// The body of a request.
pub type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Why a request was not answered, in the words of Go's HTTP client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SendError(pub String);

/// Makes requests on behalf of planes.
pub struct Outbound {
    networks: Arc<Networks>,
    services: Arc<dyn Services>,
    pub(crate) limits: Limits,
    lines: Mutex<HashMap<Key, Line>>,
    /// The places of each plane that has calls under way.
    planes: Mutex<HashMap<freehold_machinery::PlaneId, Weak<Semaphore>>>,
}

/// A destination at the address that it has now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    destination: Destination,
    place: Peer,
}

/// Connections to a destination, and places for calls to it.
struct Line {
    client: Client<Connector, Body>,
    places: Arc<Semaphore>,
    used: Instant,
}

impl Outbound {
    /// Nothing is connected to yet.
    pub fn new(networks: Networks, services: Arc<dyn Services>, limits: Limits) -> Self {
        Self {
            networks: Arc::new(networks),
            services,
            limits,
            lines: Mutex::default(),
            planes: Mutex::default(),
        }
    }

    /// Sends a request to a destination and gives the head of its answer, with the body to come. The request's URI is
    /// a path with a query. It takes as long as it takes; who drops it gives it up.
    ///
    /// # Errors
    /// There is no answer: the Service is not resolved, the address may not be reached or does not answer, its
    /// certificate is not trusted, or the connection breaks.
    pub async fn send(
        &self,
        destination: &Destination,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, SendError> {
        let (client, _) = self.line(destination).await.map_err(SendError)?;
        send(&client, destination, request).await
    }

    /// The connections to a destination, and the places for calls to it.
    pub(crate) async fn line(
        &self,
        destination: &Destination,
    ) -> Result<(Client<Connector, Body>, Arc<Semaphore>), String> {
        let key = Key { destination: destination.clone(), place: self.place(destination).await? };
        if let Some(line) = self.lines.lock().get_mut(&key) {
            line.used = Instant::now();
            return Ok((line.client.clone(), line.places.clone()));
        }
        let name = destination.host.server_name();
        let connector = Connector {
            plane: destination.plane.clone(),
            place: key.place.clone(),
            name: ServerName::try_from(name.clone()).map_err(|_| format!("no such host: {name:?}"))?,
            tls: Arc::new(tls::config(&destination.trust, destination.identity.as_deref())?),
            networks: self.networks.clone(),
        };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(KEPT)
            .build(connector);
        let places = Arc::new(Semaphore::new(self.limits.per_destination));
        let mut lines = self.lines.lock();
        if lines.len() >= MAX_DESTINATIONS {
            lines.retain(|_, line| line.used.elapsed() < IDLE);
            if lines.len() >= MAX_DESTINATIONS {
                lines.clear();
            }
        }
        let line = lines.entry(key).or_insert(Line { client, places, used: Instant::now() });
        Ok((line.client.clone(), line.places.clone()))
    }

    /// The places of a plane.
    pub(crate) fn plane(&self, plane: &freehold_machinery::PlaneId) -> Arc<Semaphore> {
        let mut planes = self.planes.lock();
        if let Some(places) = planes.get(plane).and_then(Weak::upgrade) {
            return places;
        }
        if planes.len() >= MAX_DESTINATIONS {
            planes.retain(|_, places| places.strong_count() > 0);
        }
        let places = Arc::new(Semaphore::new(self.limits.per_plane));
        planes.insert(plane.clone(), Arc::downgrade(&places));
        places
    }

    async fn place(&self, destination: &Destination) -> Result<Peer, String> {
        let (host, port) = match &destination.host {
            Host::Url { host, port } => (host.clone(), *port),
            Host::Service { namespace, name, port } => {
                match self.services.route(&destination.plane, namespace, name, *port).await? {
                    Route::Endpoint(address) => return Ok(Peer::Address(address)),
                    Route::External(host, port) => (host, port),
                }
            }
        };
        Ok(match host.parse::<IpAddr>() {
            Ok(address) => Peer::Address(SocketAddr::new(address, port)),
            Err(_) => Peer::Name(host, port),
        })
    }
}

/// Sends a request to a destination.
pub(crate) async fn send(
    client: &Client<Connector, Body>,
    destination: &Destination,
    mut request: Request<Body>,
) -> Result<Response<Incoming>, SendError> {
    let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    let uri = Uri::builder().scheme("https").authority(destination.host.authority()).path_and_query(path);
    *request.uri_mut() = uri.build().map_err(|error| SendError(error.to_string()))?;
    let Some(mut span) = child("outbound", Kind::Client) else {
        return client.request(request).await.map_err(|error| SendError(root(&error)));
    };
    span.attribute("server.address", destination.host.authority());
    request.headers_mut().insert(TRACEPARENT, span.context().header());
    let answer = client.request(request).await.map_err(|error| SendError(root(&error)));
    match &answer {
        Ok(answer) => span.attribute("http.response.status_code", answer.status().as_str()),
        Err(error) => span.fail(error.to_string()),
    }
    answer
}

/// What is at the bottom of an error.
fn root(error: &hyper_util::client::legacy::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    let mut ended = false;
    while let Some(inner) = source {
        let closed = inner.downcast_ref::<hyper::Error>();
        ended |= closed.is_some_and(|e| e.is_incomplete_message() || e.is_closed());
        let broken = inner.downcast_ref::<std::io::Error>();
        ended |= broken.is_some_and(|e| e.kind() == std::io::ErrorKind::UnexpectedEof);
        text = inner.to_string();
        source = inner.source();
    }
    if ended { "EOF".to_owned() } else { text }
}
