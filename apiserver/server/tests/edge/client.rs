//! A running server and plain HTTP clients of it.

use crate::backend::Memory;
use freehold_apiserver_authn::FrontProxy;
use freehold_apiserver_server::{
    Authorities, Certificate, ClientMaterial, ClientTls, Config, Limits, Reload, Server,
};
use freehold_machinery::Value;
use freehold_pki::{Authority, ClientName, Pair, PlaneBinding};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use std::{net::SocketAddr, sync::Arc, time::Duration};
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

/// Nothing here takes longer, or it hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86400);

/// The name in the server's certificate, besides its address.
pub(crate) const NAME: &str = "apiserver.project-1.svc";

/// The domain of projects' hosts.
pub(crate) const DOMAIN: &str = "projects.example";

/// Authorities that several servers share.
pub(crate) struct Pki {
    pub(crate) servers: Authority,
    pub(crate) clients: Authority,
    pub(crate) proxies: Authority,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let make = |name| Authority::generate(name).unwrap();
        Self { servers: make("servers"), clients: make("clients"), proxies: make("proxies") }
    }
}

/// A server that runs until it is dropped or stopped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) memory: Arc<Memory>,
    pub(crate) pki: Arc<Pki>,
    pub(crate) reload: Reload,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(change: impl FnOnce(&mut Config)) -> Self {
        Self::start_with(Arc::new(Pki::new()), change).await
    }

    pub(crate) async fn start_with(pki: Arc<Pki>, change: impl FnOnce(&mut Config)) -> Self {
        let pair = pki.servers.issue_server(&["127.0.0.1", NAME, &format!("*.{DOMAIN}")], DAY).unwrap();
        let mut config = Config {
            domain: Some(DOMAIN.to_owned()),
            listen: "127.0.0.1:0".parse().unwrap(),
            certificate: Certificate::from_pem(pair.cert_pem.as_bytes(), pair.key_pem.as_bytes()).unwrap(),
            authorities: Authorities {
                clients: pki.clients.cert_pem().to_owned(),
                front_proxies: vec![FrontProxy {
                    ca_pem: pki.proxies.cert_pem().to_owned(),
                    ..FrontProxy::default()
                }],
            },
            front_proxy: None,
            nodes: None,
            version: "v1.36.0+freehold-0.1.0".to_owned(),
            // What a stop has to wait for ends in a test when the test gets to it.
            limits: Limits { drain: Duration::from_secs(30), ..Limits::default() },
            registry: Default::default(),
            more_metrics: None,
            debug: None,
            pages: None,
            reads: Vec::new(),
            etcd: None,
            audit: None,
            proxies: Vec::new(),
            origins: Default::default(),
            strict_transport: String::new(),
            certificates_only: false,
        };
        change(&mut config);
        let memory = Memory::new();
        let server = Server::bind(config, memory.clone()).await.unwrap();
        let (address, reload, stop) = (server.local_addr(), server.reload(), CancellationToken::new());
        let task = tokio::spawn(server.run(stop.clone()));
        Self { address, memory, pki, reload, stop, task }
    }

    /// A client with a certificate for a user, or with none.
    pub(crate) fn client(&self, user: Option<(&str, &[&str], Option<&str>)>) -> Client {
        let Some((user, groups, plane)) = user else {
            return Client { address: self.address, host: None, tls: Arc::new(client_tls(&self.pki, None)) };
        };
        let groups: Vec<String> = groups.iter().map(|g| (*g).to_owned()).collect();
        let plane = plane.map(|plane| PlaneBinding { plane, generation: 0 });
        self.client_with(
            &self.pki.clients.issue_client(&ClientName { user, groups: &groups, plane }, DAY).unwrap(),
        )
    }

    /// A client with a certificate.
    pub(crate) fn client_with(&self, pair: &Pair) -> Client {
        let tls = client_tls(&self.pki, Some((&pair.cert_pem, &pair.key_pem)));
        Client { address: self.address, host: None, tls: Arc::new(tls) }
    }

    pub(crate) fn admin(&self) -> Client {
        self.client(Some(("admin", &["system:masters"], None)))
    }

    /// Says stop, without waiting.
    pub(crate) fn begin_stop(&self) {
        self.stop.cancel();
    }

    /// Waits for the end of a stop.
    pub(crate) async fn stopped(self) {
        timeout(PATIENCE, self.task).await.expect("it stops").unwrap();
    }
}

/// What one server shows to another behind it.
pub(crate) fn front_proxy(pki: &Pki) -> ClientTls {
    let pair = pki.proxies.issue_client(&ClientName { user: "front", ..ClientName::default() }, DAY).unwrap();
    ClientTls::from_pem(ClientMaterial {
        chain: pair.cert_pem.as_bytes(),
        key: pair.key_pem.as_bytes(),
        ca: pki.servers.cert_pem().as_bytes(),
    })
    .unwrap()
}

fn client_tls(pki: &Pki, pair: Option<(&str, &str)>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.servers.cert_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    match pair {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let chain =
                CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
            builder
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                .unwrap()
        }
    }
}

/// An answer, read to its end.
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Code, reason and message of a failure.
    pub(crate) fn failure(&self) -> (u16, String, String) {
        let status = self.json();
        assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &self.code.into()), "{status}");
        let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
        (self.code, text("reason"), text("message"))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |v| v.to_str().unwrap())
    }
}

/// Someone who asks. Each request has a connection of its own.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// What TLS asks for; the address where there is none.
    host: Option<String>,
    tls: Arc<ClientConfig>,
}

impl Client {
    pub(crate) async fn connect(&self, alpn: &str) -> std::io::Result<TlsStream<TcpStream>> {
        let mut tls = ClientConfig::clone(&self.tls);
        tls.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        let stream = TcpStream::connect(self.address).await?;
        let name = self.host.clone().map(|host| ServerName::try_from(host).expect("a host name"));
        let name = name.unwrap_or_else(|| ServerName::from(self.address.ip()));
        TlsConnector::from(Arc::new(tls)).connect(name, stream).await
    }

    /// Returns the client with TLS
    pub(crate) fn at_project(&self, project: &str) -> Self {
        Self { host: Some(format!("{project}.{DOMAIN}")), ..self.clone() }
    }

    /// Sends a request over HTTP/1.1 and gives the answer as it begins.
    pub(crate) async fn open(&self, request: Request<Full<Bytes>>) -> Response<Incoming> {
        let io = TokioIo::new(self.connect("http/1.1").await.unwrap());
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        timeout(PATIENCE, sender.send_request(request)).await.expect("an answer").unwrap()
    }

    /// Sends a request over HTTP/2 and gives the whole answer.
    pub(crate) async fn send_http2(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
        self.at_authority(method, &format!("https://{}{path}", self.address), headers).await
    }

    /// Sends a request over HTTP/2 that names its authority.
    pub(crate) async fn at_authority(&self, method: &str, url: &str, headers: &[(&str, &str)]) -> Answer {
        let io = TokioIo::new(self.connect("h2").await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let mut request = request(method, url, headers, "");
        request.headers_mut().remove("host");
        read(timeout(PATIENCE, sender.send_request(request)).await.expect("an answer").unwrap()).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        read(self.open(request(method, path, headers, body)).await).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn accept(&self, path: &str, accept: &str) -> Answer {
        self.send("GET", path, &[("accept", accept)], "").await
    }

    /// Makes a ConfigMap.
    pub(crate) async fn make(&self, prefix: &str, name: &str, data: &str) -> Answer {
        let body = format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}"}},"data":{{"k":"{data}"}}}}"#
        );
        let made =
            self.send("POST", &format!("{prefix}/api/v1/namespaces/default/configmaps"), &[], body).await;
        assert_eq!(made.code, 201, "{}", made.text());
        made
    }
}

pub(crate) fn request(
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method.parse::<Method>().unwrap()).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "test");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::new(body.into())).unwrap()
}

pub(crate) async fn read(response: Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let body = timeout(PATIENCE, body.collect()).await.expect("the answer's end").unwrap().to_bytes();
    Answer { code: parts.status.as_u16(), headers: parts.headers, body }
}

/// The lines of a watch.
pub(crate) struct Lines {
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    pub(crate) async fn of(client: &Client, path: &str, accept: &str) -> Self {
        Self::with(client, path, &[("accept", accept)]).await
    }

    pub(crate) async fn with(client: &Client, path: &str, headers: &[(&str, &str)]) -> Self {
        let response = client.open(request("GET", path, headers, "")).await;
        assert_eq!(response.status(), StatusCode::OK);
        Self { body: response.into_body(), buffer: Vec::new() }
    }

    /// The next event; `None` at a clean end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = timeout(PATIENCE, self.body.frame()).await.expect("an event")?;
            self.buffer.extend_from_slice(&frame.expect("no broken stream").into_data().unwrap_or_default());
        }
    }
}
