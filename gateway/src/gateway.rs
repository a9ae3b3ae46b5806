//! The gateway: what a request for a path of the console leads to.

use crate::{
    api, assets,
    error::Failure,
    identity::Links,
    oidc::{Oidc, OidcConfig},
    rate::{Bucket, Rate},
    reply::{self, Reply},
    sessions::Sessions,
    streams::Streams,
};
use bytes::Bytes;
use freehold_client::{Client, Config as Upstream, Error, Identity};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use parking_lot::Mutex;
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
/// Attempts to sign in, of all people together.
const ATTEMPTS: Rate = Rate { per_second: 10.0, burst: 100.0 };

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
    attempts: Mutex<Bucket>,
    in_flight: Semaphore,
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
            attempts: Mutex::new(Bucket::new(ATTEMPTS, Instant::now())),
            in_flight: Semaphore::new(IN_FLIGHT),
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
            Some(rest) if rest.starts_with("api/") => {
                self.serve(request).await.unwrap_or_else(|failure| failure.reply())
            }
            Some(rest) if matches!(*request.method(), Method::GET | Method::HEAD) => {
                assets::serve(rest, request.headers())
            }
            Some(_) => reply::empty(StatusCode::METHOD_NOT_ALLOWED),
        };
        reply::protect(reply)
    }

    async fn serve<B>(&self, request: Request<B>) -> Result<Reply, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<reply::BoxError>,
    {
        let busy = || Failure::too_many("the console is busy; try again in a moment");
        let _permit = self.in_flight.try_acquire().map_err(|_| busy())?;
        let (parts, body) = request.into_parts();
        let reading = tokio::time::timeout(BODY_TIME, Limited::new(body, BODY).collect()).await;
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

    /// Counts an attempt to sign in.
    pub(crate) fn count_attempt(&self) -> Result<(), Failure> {
        let now = Instant::now();
        self.sessions.expire(now);
        match self.attempts.lock().take(ATTEMPTS, now) {
            true => Ok(()),
            false => Err(Failure::too_many("too many attempts to sign in; try again in a moment")),
        }
    }
}
