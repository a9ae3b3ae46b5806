//! Connections and calls: several endpoints, a deadline for each call, and a token where there is a user.

use crate::{
    coalesced::Connector,
    error::{Meaning, meaning, was_not_sent},
    proto::{AUTHENTICATE, AuthenticateRequest, WATCH, WatchRequest, WatchResponse},
    session::Session,
};
use freehold_apiserver_storage::{KeyRange, StoreError};
use http::uri::PathAndQuery;
use prost::Message;
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};
use tokio::time::{Instant, timeout_at};
use tokio_stream::{Stream, wrappers::ReceiverStream};
use tonic::{
    Code, Request, Status, Streaming,
    client::Grpc,
    metadata::AsciiMetadataValue,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};
use tonic_prost::ProstCodec;

/// No single answer is larger: a page of objects, or the changes of one revision.
const MAX_MESSAGE: usize = 1 << 30;

/// The time after all endpoints were tried in vain: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// A member that says nothing on a connection with an open watch is asked after `PING` whether it is there, and given up
/// `PONG` later. etcd closes connections on which it is asked more often than every 5 s, or while nothing is open.
const PING: Duration = Duration::from_secs(6);
const PONG: Duration = Duration::from_secs(3);

/// Where etcd is and who asks.
#[derive(Clone)]
pub struct EtcdOptions {
    /// `http://` or `https://` URLs of members of one cluster. The first one that answers is used until it does not.
    pub endpoints: Vec<String>,
    /// In front of all keys.
    pub prefix: String,
    /// PEM certificates of the authorities that may have signed the servers' certificates.
    pub ca: Option<Vec<u8>>,
    /// PEM certificate chain and PEM private key of this client.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// User and password.
    pub user: Option<(String, String)>,
    /// The longest that a call may take; then it is [`StoreError::Unavailable`].
    pub timeout: Duration,
    /// The keys that this client may read. Some key in it is asked for where only the revision is wanted, so that an
    /// etcd role, or a server that confines its clients to a plane, need not allow more.
    pub home: KeyRange,
    /// How many keys are read in one call; a larger range takes several, at one revision.
    pub page: usize,
}

impl EtcdOptions {
    /// Options for these endpoints; the rest as it is by default: prefix `/freehold/`, no TLS identity, no user, 5 s.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            prefix: "/freehold/".into(),
            ca: None,
            identity: None,
            user: None,
            timeout: Duration::from_secs(5),
            home: KeyRange::everything(),
            page: 5000,
        }
    }
}

/// A method of etcd's API.
#[derive(Clone, Copy)]
pub(crate) struct Method {
    pub(crate) path: &'static str,
    /// Whether it can be sent again when it is not known whether it happened.
    pub(crate) repeatable: bool,
}

/// An open watch stream: what comes, and where requests go.
pub(crate) struct Link {
    pub(crate) inbound: Streaming<WatchResponse>,
    pub(crate) outbound: tokio::sync::mpsc::Sender<WatchRequest>,
}

pub(crate) struct Client {
    channels: Vec<Channel>,
    /// The endpoint in use.
    current: AtomicUsize,
    session: Option<Session>,
    timeout: Duration,
}

impl Client {
    /// Prepares connections; makes none yet.
    pub(crate) fn new(options: &EtcdOptions) -> Result<Self, StoreError> {
        let channels =
            options.endpoints.iter().map(|url| channel(url, options)).collect::<Result<Vec<_>, _>>()?;
        if channels.is_empty() {
            return Err(StoreError::Unavailable("no etcd endpoint is given".into()));
        }
        Ok(Self {
            channels,
            current: AtomicUsize::new(0),
            session: options.user.clone().map(Session::new),
            timeout: options.timeout,
        })
    }

    /// How long a call may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Calls a method, on another endpoint if the current one can't be reached.
    pub(crate) async fn call<Q, R>(&self, method: Method, message: Q) -> Result<R, Status>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let once = |channel| self.unary(channel, method.path, message.clone());
        self.with_failover(method.repeatable, once).await
    }

    /// Opens a watch stream and sends the first request. The first answer is for the caller to read.
    pub(crate) async fn watch(&self, first: WatchRequest) -> Result<Link, Status> {
        self.with_failover(true, |channel| self.open_watch(channel, first.clone())).await
    }

    /// Forgets the token, because etcd no longer knows it: the next call gets a new one.
    pub(crate) fn renew_token(&self) {
        if let Some(session) = &self.session {
            session.expire(session.token().map(|token| token.number));
        }
    }

    /// Uses another endpoint from now on.
    pub(crate) fn move_on(&self) {
        self.move_on_from(self.current.load(Ordering::Relaxed));
    }

    fn move_on_from(&self, from: usize) {
        let next = (from + 1) % self.channels.len();
        // Another call may have moved on already.
        let _ = self.current.compare_exchange(from, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Tries until something is known or the time is up: an election among members passes by unseen. What may have
    /// happened already is tried again only where that does no harm.
    async fn with_failover<R, F>(&self, repeatable: bool, once: impl Fn(Channel) -> F) -> Result<R, Status>
    where
        F: Future<Output = Result<R, Status>>,
    {
        let deadline = Instant::now() + self.timeout;
        // An endpoint that is silent leaves time for another, where the call can be repeated.
        let share = if repeatable && self.channels.len() > 1 { self.timeout / 3 } else { self.timeout };
        let (mut attempts, mut pause, mut renewed) = (0, FIRST_PAUSE, false);
        let mut said = None;
        loop {
            let at = self.current.load(Ordering::Relaxed);
            let failed = match self.attempt(at, deadline.min(Instant::now() + share), &once).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if expired(&failed.status) && !renewed {
                renewed = true;
                continue;
            }
            if failed.is_of_the_endpoint() {
                self.move_on_from(at);
            }
            attempts += 1;
            let rest = if attempts % self.channels.len() == 0 { pause } else { Duration::ZERO };
            let ends = !failed.may_be_repeated(repeatable) || Instant::now() + rest >= deadline;
            let why = tell(failed.status, at, &mut said);
            if ends {
                return Err(why);
            }
            if !rest.is_zero() {
                tokio::time::sleep(rest).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    /// Tries an endpoint once: gets a token if there is none, then calls.
    async fn attempt<R, F>(
        &self,
        at: usize,
        until: Instant,
        once: &impl Fn(Channel) -> F,
    ) -> Result<R, Failed>
    where
        F: Future<Output = Result<R, Status>>,
    {
        let channel = self.channels[at].clone();
        let mut token = 0;
        if let Some(session) = &self.session {
            let authenticate = session.ready(|name, password| {
                self.unary(channel.clone(), AUTHENTICATE, AuthenticateRequest { name, password })
            });
            token = timeout_at(until, authenticate)
                .await
                .unwrap_or_else(|_| Err(no_answer()))
                .map_err(|status| Failed { status, sent: false })?;
        }
        let status = match timeout_at(until, once(channel)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) => status,
            Err(_) => no_answer(),
        };
        if let Some(session) = self.session.as_ref().filter(|_| expired(&status)) {
            session.expire(Some(token));
        }
        Err(Failed { sent: !was_not_sent(&status), status })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        // A member that lost its leader says so at once, and does not keep a watch that will see nothing.
        request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = self.session.as_ref().and_then(Session::token) {
            request.metadata_mut().insert("token", token.text);
        }
        request
    }

    async fn unary<Q, R>(&self, channel: Channel, path: &'static str, message: Q) -> Result<R, Status>
    where
        Q: Message + 'static,
        R: Message + Default + 'static,
    {
        let mut grpc = ready(channel).await?;
        let request = self.request(message);
        let answer =
            grpc.unary(request, PathAndQuery::from_static(path), ProstCodec::<Q, R>::default()).await?;
        Ok(answer.into_inner())
    }

    async fn open_watch(&self, channel: Channel, first: WatchRequest) -> Result<Link, Status> {
        let (outbound, requests) = tokio::sync::mpsc::channel(4);
        // There is room: the channel is new.
        let _ = outbound.try_send(first);
        let request = self.request(ReceiverStream::new(requests));
        let inbound = streaming(ready(channel).await?, request).await?;
        Ok(Link { inbound, outbound })
    }
}

async fn streaming(
    mut grpc: Grpc<Channel>,
    request: Request<impl Stream<Item = WatchRequest> + Send + 'static>,
) -> Result<Streaming<WatchResponse>, Status> {
    let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
    Ok(grpc.streaming(request, PathAndQuery::from_static(WATCH), codec).await?.into_inner())
}

async fn ready(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_MESSAGE);
    grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
    Ok(grpc)
}

/// Why an attempt failed, and whether the call may have happened all the same.
struct Failed {
    status: Status,
    sent: bool,
}

impl Failed {
    /// What etcd itself says has no cause; a connection that broke has one, under several codes.
    fn is_of_the_endpoint(&self) -> bool {
        let of_the_connection = std::error::Error::source(&self.status).is_some();
        let code = matches!(self.status.code(), Code::Unavailable | Code::DeadlineExceeded);
        !self.sent || code || of_the_connection
    }

    fn may_be_repeated(&self, repeatable: bool) -> bool {
        let means = meaning(self.status.code(), self.status.message());
        means == Meaning::Unavailable && self.is_of_the_endpoint() && (repeatable || !self.sent)
    }
}

/// What is said where the time was up.
pub(crate) fn no_answer() -> Status {
    Status::deadline_exceeded("etcd does not answer in time")
}

/// Why an endpoint can't be used: where the time was up in the midst of another attempt, what it said at the one before.
fn tell(status: Status, at: usize, said: &mut Option<(usize, Status)>) -> Status {
    match said {
        Some((before, why)) if *before == at && status.code() == Code::DeadlineExceeded => why.clone(),
        _ => {
            *said = Some((at, status.clone()));
            status
        }
    }
}

fn expired(status: &Status) -> bool {
    meaning(status.code(), status.message()) == Meaning::TokenExpired
}

fn channel(url: &str, options: &EtcdOptions) -> Result<Channel, StoreError> {
    let bad = |error: tonic::transport::Error| {
        let reason = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
        StoreError::Unavailable(format!("etcd endpoint {url}: {reason}"))
    };
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(bad)?
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(8 << 20);
    if url.starts_with("https://") {
        let mut tls = ClientTlsConfig::new();
        if let Some(ca) = &options.ca {
            tls = tls.ca_certificate(Certificate::from_pem(ca));
        }
        if let Some((certificate, key)) = &options.identity {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        endpoint = endpoint.tls_config(tls).map_err(bad)?;
    }
    Ok(endpoint.connect_with_connector_lazy(Connector::new(options.timeout / 2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_that_is_cut_off_tells_what_its_endpoint_said_before() {
        let mut said = None;
        let mut told = |status: Status, at| tell(status, at, &mut said).message().to_owned();
        let in_time = no_answer().message().to_owned();
        assert_eq!(told(no_answer(), 0), in_time);
        assert_eq!(told(Status::unavailable("UnknownIssuer"), 0), "UnknownIssuer");
        assert_eq!(told(no_answer(), 0), "UnknownIssuer");
        assert_eq!(told(no_answer(), 1), in_time, "another one said nothing");
    }
}
