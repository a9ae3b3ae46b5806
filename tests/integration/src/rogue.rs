//! Servers over TLS that do what no well-kept server does.

use freehold_pki::Authority;
use rustls::{ServerConfig, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// How often a slow server sends a byte.
const DRIP: Duration = Duration::from_millis(100);
const VALIDITY: Duration = Duration::from_secs(24 * 3600);
/// Longest head of a request that is read.
const LONGEST_HEAD: usize = 64 * 1024;

/// How a request is answered.
pub enum Way {
    /// With this JSON.
    Json(Value),
    /// With these bytes, whatever they are; then the connection closes.
    Raw(Vec<u8>),
    /// Not at all: the connection stays open.
    Hang,
    /// By closing the connection.
    HangUp,
    /// With a head, and then bytes without an end.
    Flood,
    /// With a head, and then a byte now and then.
    Slow,
    /// With these bytes as a part of an answer that goes on.
    Stream(Vec<u8>),
    /// By another protocol, in which everything comes back.
    Echo,
}

/// A server that answers each request as it is told to. It ends when this is dropped.
pub struct Rogue {
    port: u16,
    ca_pem: String,
    heads: Arc<Mutex<Vec<String>>>,
    _runtime: Runtime,
}

impl Rogue {
    /// Starts a server with a certificate for a name. `way` is asked with the head of each request.
    pub fn start(name: &str, way: impl Fn(&str) -> Way + Send + Sync + 'static) -> Self {
        let authority = Authority::generate("freehold-test-rogue").expect("an authority");
        let pair = authority.issue_server(&[name], VALIDITY).expect("a certificate");
        let chain = CertificateDer::pem_slice_iter(pair.cert_pem.as_bytes()).collect::<Result<_, _>>();
        let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(chain.expect("a chain"), key)
            .expect("a configuration");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime starts");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port is free");
        let port = listener.local_addr().expect("a listener has an address").port();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let (seen, way) = (heads.clone(), Arc::new(way));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, seen, way) = (acceptor.clone(), seen.clone(), way.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let _ = serve(stream, &seen, &*way).await;
                    }
                });
            }
        });
        Self { port, ca_pem: authority.cert_pem().to_owned(), heads, _runtime: runtime }
    }

    /// Where it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The authority of its certificate, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The heads of the requests that came.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(
    mut stream: TlsStream<TcpStream>,
    seen: &Mutex<Vec<String>>,
    way: &(dyn Fn(&str) -> Way + Send + Sync),
) -> std::io::Result<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && head.len() < LONGEST_HEAD {
            head.push(stream.read_u8().await?);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        seen.lock().unwrap_or_else(PoisonError::into_inner).push(head.clone());
        match way(&head) {
            Way::Json(value) => {
                let body = value.to_string();
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
                );
                stream.write_all((head + &body).as_bytes()).await?;
                stream.flush().await?;
            }
            Way::Raw(bytes) => {
                stream.write_all(&bytes).await?;
                return stream.shutdown().await;
            }
            Way::Hang => std::future::pending().await,
            Way::HangUp => return Ok(()),
            Way::Flood => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n").await?;
                loop {
                    stream.write_all(&[b' '; 16 * 1024]).await?;
                }
            }
            Way::Slow => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n").await?;
                loop {
                    stream.write_all(b" ").await?;
                    stream.flush().await?;
                    tokio::time::sleep(DRIP).await;
                }
            }
            Way::Stream(bytes) => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n").await?;
                stream.write_all(&bytes).await?;
                stream.flush().await?;
                std::future::pending().await
            }
            Way::Echo => {
                let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
                stream.write_all(head.as_bytes()).await?;
                stream.flush().await?;
                let (mut read, mut write) = tokio::io::split(stream);
                return tokio::io::copy(&mut read, &mut write).await.map(drop);
            }
        }
    }
}
