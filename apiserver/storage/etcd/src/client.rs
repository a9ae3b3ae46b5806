//! Connections and calls: several endpoints, a deadline for each call, and a token where there is a user.

use crate::{
    error::{Meaning, meaning, was_not_sent},
    proto::{AUTHENTICATE, AuthenticateRequest, AuthenticateResponse, WATCH, WatchRequest, WatchResponse},
};
use freehold_apiserver_storage::{KeyRange, StoreError};
use http::uri::PathAndQuery;
use parking_lot::RwLock;
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
    user: Option<(String, String)>,
    token: RwLock<Option<AsciiMetadataValue>>,
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
            user: options.user.clone(),
            token: RwLock::new(None),
            timeout: options.timeout,
        })
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

    /// Gets a new token, if there is a user.
    pub(crate) async fn renew_token(&self) -> Result<(), Status> {
        let channel = self.channels[self.current.load(Ordering::Relaxed)].clone();
        timeout_at(Instant::now() + self.timeout, self.authenticate(channel))
            .await
            .unwrap_or_else(|_| Err(no_answer()))
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

    async fn with_failover<R, F>(&self, repeatable: bool, once: impl Fn(Channel) -> F) -> Result<R, Status>
    where
        F: Future<Output = Result<R, Status>>,
    {
        let deadline = Instant::now() + self.timeout;
        let mut renewed = self.user.is_none();
        let mut attempts = 2 * self.channels.len();
        loop {
            let at = self.current.load(Ordering::Relaxed);
            let channel = self.channels[at].clone();
            if self.user.is_some() && self.token.read().is_none() {
                timeout_at(deadline, self.authenticate(channel.clone())).await.map_err(|_| no_answer())??;
                renewed = true;
            }
            attempts -= 1;
            let status = match timeout_at(deadline, once(channel.clone())).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(status)) => status,
                Err(_) => {
                    self.move_on_from(at);
                    return Err(no_answer());
                }
            };
            if meaning(status.code(), status.message()) == Meaning::TokenExpired && !renewed {
                *self.token.write() = None;
                continue;
            }
            if status.code() != Code::Unavailable {
                return Err(status);
            }
            self.move_on_from(at);
            if attempts == 0 || !(repeatable || was_not_sent(&status)) {
                return Err(status);
            }
        }
    }

    async fn authenticate(&self, channel: Channel) -> Result<(), Status> {
        let Some((name, password)) = self.user.clone() else { return Ok(()) };
        let answer: AuthenticateResponse =
            self.unary(channel, AUTHENTICATE, AuthenticateRequest { name, password }).await?;
        let token = answer.token.parse().map_err(|_| Status::internal("etcd gave a malformed token"))?;
        *self.token.write() = Some(token);
        Ok(())
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        // A member that lost its leader says so at once, and does not keep a watch that will see nothing.
        request.metadata_mut().insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = &*self.token.read() {
            request.metadata_mut().insert("token", token.clone());
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

fn no_answer() -> Status {
    Status::deadline_exceeded("etcd does not answer in time")
}

fn channel(url: &str, options: &EtcdOptions) -> Result<Channel, StoreError> {
    let bad = |error: tonic::transport::Error| {
        let reason = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
        StoreError::Unavailable(format!("etcd endpoint {url}: {reason}"))
    };
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(bad)?
        .connect_timeout(options.timeout / 2)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(options.timeout)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(8 << 20)
        .tcp_nodelay(true);
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
    Ok(endpoint.connect_lazy())
}
