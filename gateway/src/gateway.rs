//! The gateway: what a request for a path of the console leads to.

use crate::{
    api, assets,
    error::Failure,
    guard,
    identity::Links,
    oidc::{Oidc, OidcConfig},
    reply::{self, Reply},
    secret,
    sessions::Sessions,
    streams::Streams,
};
use bytes::Bytes;
use freehold_client::{Client, Config as Upstream, Error, Identity};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;

/// Bytes of a request's body.
const BODY: usize = 3 << 20;
/// Longest time for the body of a request.
const BODY_TIME: Duration = Duration::from_secs(30);
/// Requests of all sessions that are served at a time, streams aside.
const IN_FLIGHT: usize = 500;
/// Bytes of a body of somebody who is not signed in: a token.
const STRANGERS_BODY: usize = 96 << 10;
/// Longest time for such a body.
const STRANGERS_TIME: Duration = Duration::from_secs(5);
/// Requests that are served at a time of those who are not signed in. They take nothing from those who are.
const STRANGERS: usize = 1000;

/// The header with a request's identifier, as Kubernetes names it.
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// Longest identifier that is taken from a client, and the length of others.
const LONGEST_ID: usize = 64;
const ID: usize = 22;

/// The client's identifier of a request, or a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let plain = |id: &&HeaderValue| {
        (1..=LONGEST_ID).contains(&id.len())
            && id.as_bytes().iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
    };
    let fresh = || HeaderValue::from_str(&secret::fresh()[..ID]);
    let given = headers.get(AUDIT_ID).filter(plain).cloned();
    given.or_else(|| fresh().ok()).unwrap_or(HeaderValue::from_static("unknown"))
}

/// What a gateway is made from.
pub struct Config {
    /// The apiserver. Its identity does not matter: requests have that of their session.
    pub upstream: Upstream,
    /// The server's URL in kubeconfigs, as clients know it.
    pub public_url: String,
    /// The console's origin where it is not the host that requests name.
    pub origin: Option<String>,
    /// Redeems one-time links, where there are any.
    pub links: Option<Arc<dyn Links>>,
    /// Where people sign in.
    pub oidc: Option<OidcConfig>,
}

/// The gateway.
pub struct Gateway {
    pub(crate) upstream: Upstream,
    pub(crate) public_url: String,
    pub(crate) origin: Option<String>,
    pub(crate) anonymous: Client,
    pub(crate) links: Option<Arc<dyn Links>>,
    pub(crate) oidc: Option<Oidc>,
    pub(crate) sessions: Sessions,
    pub(crate) streams: Arc<Streams>,
    in_flight: Semaphore,
    strangers: Semaphore,
}

impl Gateway {
    /// A gateway. It connects to nothing before it is asked something.
    ///
    /// # Errors
    /// The apiserver's URL or certificates can't be used.
    pub fn new(config: Config) -> Result<Self, Error> {
        let agent = concat!("freehold-console/", env!("CARGO_PKG_VERSION"));
        let upstream = Upstream { identity: Identity::None, ..config.upstream }.user_agent(agent);
        Ok(Self {
            anonymous: Client::new(&upstream)?,
            upstream,
            public_url: config.public_url,
            origin: config.origin,
            links: config.links,
            oidc: config.oidc.map(Oidc::new),
            sessions: Sessions::default(),
            streams: Arc::default(),
            in_flight: Semaphore::new(IN_FLIGHT),
            strangers: Semaphore::new(STRANGERS),
        })
    }

    /// Answers a request for a path below [`PREFIX`](crate::PREFIX).
    pub async fn answer<B>(&self, request: Request<B>) -> Reply
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<reply::BoxError>,
    {
        let path = request.uri().path();
        let reply = match path.strip_prefix(crate::PREFIX) {
            None => reply::redirect(crate::PREFIX),
            Some(rest) if rest.starts_with("api/") => self.identified(request).await,
            Some(rest) if matches!(*request.method(), Method::GET | Method::HEAD) => {
                assets::serve(rest, request.headers())
            }
            Some(_) => reply::empty(StatusCode::METHOD_NOT_ALLOWED),
        };
        reply::protect(reply)
    }

    /// Serves a request under an identifier, which its answer, the log and the apiserver's audit events have in common.
    async fn identified<B>(&self, mut request: Request<B>) -> Reply
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<reply::BoxError>,
    {
        let id = request_id(request.headers());
        request.headers_mut().insert(AUDIT_ID, id.clone());
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let mut reply = self.serve(request).await.unwrap_or_else(|failure| failure.reply());
        tracing::debug!(id = ?id, %method, path, code = reply.status().as_u16(), "answered");
        reply.headers_mut().entry(AUDIT_ID).or_insert(id);
        reply
    }

    async fn serve<B>(&self, request: Request<B>) -> Result<Reply, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<reply::BoxError>,
    {
        let busy = || Failure::too_many("the console is busy; try again in a moment");
        let (parts, body) = request.into_parts();
        let now = Instant::now();
        let session = guard::cookie(&parts.headers, guard::SESSION).and_then(|c| self.sessions.get(c, now));
        let (places, most, time) = match session {
            Some(_) => (&self.in_flight, BODY, BODY_TIME),
            None => (&self.strangers, STRANGERS_BODY, STRANGERS_TIME),
        };
        // What a session may have is known before a byte of the body is read or a place of others is taken.
        if session.as_ref().is_some_and(|session| !session.admits(now)) {
            return Err(Failure::too_many("too many requests; the console slows down"));
        }
        let _place = match &session {
            Some(session) => Some(session.share.place().await?),
            None => None,
        };
        let _permit = places.try_acquire().map_err(|_| busy())?;
        let reading = tokio::time::timeout(time, Limited::new(body, most).collect()).await;
        let body = match reading {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(_)) => {
                return Err(Failure::new(413, "RequestEntityTooLarge", "the body is too large or broke off"));
            }
            Err(_) => return Err(Failure::new(408, "Timeout", "the body did not arrive in time")),
        };
        if !body.is_empty() && !parts.headers.contains_key(header::CONTENT_TYPE) {
            return Err(Failure::bad_request("the body has no Content-Type"));
        }
        api::route(self, &parts, body).await
    }
}
