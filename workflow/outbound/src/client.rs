//! One request at a time over HTTP/1.1, to addresses that may be reached.

use crate::Networks;
use bytes::Bytes;
use freehold_machinery_lookup::lookup;
use futures_util::TryStreamExt as _;
use http::header::{CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, RootCertStore};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a connection may take to be made, with TLS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the head of an answer may take, and each piece of its body.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes that a file is sent in.
const CHUNK: usize = 256 << 10;

/// Why there is no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The URL cannot be used.
    #[error("{0:?} is no http or https URL")]
    Url(String),
    /// The address is in no network that may be reached.
    #[error("{0} may not be reached from here")]
    Forbidden(IpAddr),
    /// No connection.
    #[error("failed to connect to {0}: {1}")]
    Connect(String, String),
    /// The exchange failed.
    #[error("request to {0} failed: {1}")]
    Exchange(String, String),
    /// The answer is too large.
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    /// The server refused.
    #[error("the server answered {0}{1}")]
    Status(StatusCode, String),
    /// A file cannot be read or written.
    #[error("{0}: {1}")]
    File(PathBuf, String),
}

/// What a request sends.
#[derive(Clone, Debug)]
pub enum Body {
    /// Bytes.
    Bytes(Bytes),
    /// The content of a file, read as it is sent.
    File(PathBuf),
}

/// A request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The whole URL, escaped.
    pub url: String,
    /// Headers; `Host` and `Content-Length` are added.
    pub headers: HeaderMap,
    /// The body.
    pub body: Body,
}

impl Request {
    /// A request without headers and body.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self { method, url: url.into(), headers: HeaderMap::new(), body: Body::Bytes(Bytes::new()) }
    }
}

/// An answer whose body is still arriving.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: Incoming,
    host: String,
}

impl Response {
    /// Returns the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// [`Error::Exchange`] where it breaks off or stands still.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let failed = |why: String| Error::Exchange(self.host.clone(), why);
            let frame = tokio::time::timeout(ANSWER_TIMEOUT, self.body.frame()).await;
            match frame.map_err(|_| failed("the answer stands still".into()))? {
                None => return Ok(None),
                Some(Err(error)) => return Err(failed(describe(&error))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// Reads the body, `limit` bytes at most.
    ///
    /// # Errors
    /// [`Error::TooLarge`], and those of [`chunk`](Self::chunk).
    pub async fn bytes(mut self, limit: usize) -> Result<Bytes, Error> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if all.len() + chunk.len() > limit {
                return Err(Error::TooLarge(limit));
            }
            all.extend_from_slice(&chunk);
        }
        Ok(all.into())
    }

    /// Passes an answer that succeeded on.
    ///
    /// # Errors
    /// [`Error::Status`] with the beginning of the body.
    pub async fn succeeded(mut self) -> Result<Self, Error> {
        if self.status.is_success() {
            return Ok(self);
        }
        let said = self.chunk().await.ok().flatten().unwrap_or_default();
        let said: String = String::from_utf8_lossy(&said).chars().take(300).collect();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        Err(Error::Status(self.status, said))
    }

    /// Writes the body to a file.
    ///
    /// # Errors
    /// [`Error::File`], and those of [`chunk`](Self::chunk).
    pub async fn save(mut self, path: &std::path::Path) -> Result<u64, Error> {
        let failed = |error: io::Error| Error::File(path.to_owned(), error.to_string());
        let mut file = tokio::fs::File::create(path).await.map_err(failed)?;
        let mut written = 0;
        while let Some(chunk) = self.chunk().await? {
            file.write_all(&chunk).await.map_err(failed)?;
            written += chunk.len() as u64;
        }
        file.flush().await.map_err(failed)?;
        Ok(written)
    }
}

/// Sends requests to addresses that may be reached. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outbound {
    networks: Arc<Networks>,
    tls: Arc<ClientConfig>,
    /// On whose behalf names are looked up; empty for the operator.
    share: Arc<str>,
}

/// The authorities that the machine trusts, read once.
static SYSTEM: LazyLock<RootCertStore> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
});

impl Outbound {
    /// Requests to servers in these networks, which the machine's authorities vouch for, or those of `bundle` (PEM; may be
    /// empty).
    pub fn new(networks: Networks, bundle: &str) -> Self {
        let mut roots = SYSTEM.clone();
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(bundle.as_bytes()).flatten());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the usual versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self { networks: Arc::new(networks), tls: Arc::new(tls), share: "".into() }
    }

    /// Requests on behalf of a control plane, whose names are looked up within the plane's share of lookups.
    pub fn on_behalf_of(&self, plane: &str) -> Self {
        Self { share: plane.into(), ..self.clone() }
    }

    /// Sends a request and returns the head of the answer.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::Forbidden`], [`Error::Connect`], [`Error::Exchange`], and [`Error::File`] for a body that
    /// cannot be read.
    pub async fn send(&self, request: Request) -> Result<Response, Error> {
        let bad = || Error::Url(request.url.clone());
        let uri: Uri = request.url.parse().map_err(|_| bad())?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad()),
        };
        let (host, authority) = (uri.host().ok_or_else(bad)?, uri.authority().ok_or_else(bad)?);
        // A user and password before the host are nobody's business.
        let shown = authority.as_str().rsplit('@').next().unwrap_or_default().to_owned();
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let (body, length) = body_of(request.body).await?;
        let mut head = http::Request::builder().method(request.method).uri(path);
        if let Some(headers) = head.headers_mut() {
            *headers = request.headers;
            headers.insert(HOST, HeaderValue::from_str(&shown).map_err(|_| bad())?);
            headers.insert(CONTENT_LENGTH, length.into());
            headers.entry(USER_AGENT).or_insert(HeaderValue::from_static("freehold-workflow"));
        }
        let head = head.body(body).map_err(|_| bad())?;
        let bare = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let connecting = Box::pin(async {
            let stream = self.dial(&bare, port).await?;
            match secure {
                false => exchange(stream, &shown).await,
                true => {
                    let failed = |error: String| Error::Connect(shown.clone(), error);
                    let name = ServerName::try_from(bare.clone()).map_err(|e| failed(e.to_string()))?;
                    let tls = TlsConnector::from(self.tls.clone()).connect(name, stream).await;
                    exchange(tls.map_err(|e| failed(e.to_string()))?, &shown).await
                }
            }
        });
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        let mut sender =
            connected.map_err(|_| Error::Connect(shown.clone(), "no connection in time".into()))??;
        let failed = |why: String| Error::Exchange(shown.clone(), why);
        // Sending a large file takes its time; the answer has to come soon after.
        let answer = match length > CHUNK as u64 {
            true => sender.send_request(head).await,
            false => tokio::time::timeout(ANSWER_TIMEOUT, sender.send_request(head))
                .await
                .map_err(|_| failed("no answer in time".into()))?,
        };
        let (head, body) = answer.map_err(|error| failed(describe(&error)))?.into_parts();
        Ok(Response { status: head.status, headers: head.headers, body, host: shown })
    }

    /// Connects to one of a host's addresses. What a name leads to is judged at each connection, and that very address is
    /// connected to.
    async fn dial(&self, host: &str, port: u16) -> Result<TcpStream, Error> {
        let failed = |why: String| Error::Connect(format!("{host}:{port}"), why);
        let found = lookup(&self.share, host, port).await.map_err(|e| failed(e.to_string()))?;
        let mut last = failed("the name has no address".into());
        for address in found.into_iter().take(16) {
            if !self.networks.allows(address.ip()) {
                last = Error::Forbidden(address.ip());
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => last = failed(error.to_string()),
            }
        }
        Err(last)
    }
}

type Sender = http1::SendRequest<BoxBody<Bytes, io::Error>>;

async fn exchange(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    host: &str,
) -> Result<Sender, Error> {
    let (sender, connection) = http1::handshake(TokioIo::new(io))
        .await
        .map_err(|error| Error::Connect(host.to_owned(), describe(&error)))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = %describe(&error), "connection ended");
        }
    });
    Ok(sender)
}

/// A body as hyper takes it, and its length.
async fn body_of(body: Body) -> Result<(BoxBody<Bytes, io::Error>, u64), Error> {
    let path = match body {
        Body::Bytes(bytes) => {
            let length = bytes.len() as u64;
            return Ok((Full::new(bytes).map_err(|never| match never {}).boxed(), length));
        }
        Body::File(path) => path,
    };
    let failed = |error: io::Error| Error::File(path.clone(), error.to_string());
    let file = tokio::fs::File::open(&path).await.map_err(failed)?;
    let length = file.metadata().await.map_err(failed)?.len();
    // A file that grows meanwhile is sent as long as it was.
    let pieces = futures_util::stream::try_unfold(file.take(length), |mut file| async move {
        let mut buffer = vec![0; CHUNK];
        let read = file.read(&mut buffer).await?;
        buffer.truncate(read);
        Ok((read > 0).then(|| (Bytes::from(buffer), file)))
    });
    Ok((BodyExt::boxed(StreamBody::new(pieces.map_ok(Frame::data))), length))
}

/// An error with what caused it: hyper's own text leaves the cause out.
fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_inside_are_not_reached_whatever_a_name_says() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let outbound = Outbound::new(Networks::default(), "");
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "169.254.169.254"] {
            let request = Request::new(Method::GET, format!("http://{host}:{port}/"));
            let refused = outbound.send(request).await.unwrap_err();
            assert!(matches!(refused, Error::Forbidden(_)), "{host}: {refused}");
        }
        for url in ["file:///etc/passwd", "ftp://a/", "/x", "http://"] {
            assert!(
                matches!(outbound.send(Request::new(Method::GET, url)).await, Err(Error::Url(_))),
                "{url}"
            );
        }
    }

    #[tokio::test]
    async fn a_file_is_sent_whole_and_an_answer_is_saved() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let sent = folder.path().join("sent");
        std::fs::write(&sent, vec![7u8; 700_000]).unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut got = Vec::new();
            let mut buffer = vec![0; 64 << 10];
            while got.len() < 700_000 || !got.ends_with(&[7u8; 1000]) {
                let read = stream.read(&mut buffer).await.unwrap();
                got.extend_from_slice(&buffer[..read]);
                if got.iter().filter(|byte| **byte == 7).count() == 700_000 {
                    break;
                }
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone").await.unwrap();
            String::from_utf8_lossy(&got[..200]).into_owned()
        });
        let outbound = Outbound::new(Networks::loopback(), "");
        let request = Request {
            body: Body::File(sent),
            ..Request::new(Method::PUT, format!("http://{address}/a?b=c"))
        };
        let answer = outbound.send(request).await.unwrap().succeeded().await.unwrap();
        let saved = folder.path().join("saved");
        assert_eq!(answer.save(&saved).await.unwrap(), 4);
        assert_eq!(std::fs::read(&saved).unwrap(), b"done");
        let head = server.await.unwrap();
        assert!(
            head.starts_with("PUT /a?b=c HTTP/1.1\r\n") && head.contains("content-length: 700000"),
            "{head}"
        );
    }
}
