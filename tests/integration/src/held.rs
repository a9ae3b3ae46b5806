//! A request on a connection of its own, which is held open for as long as a test wants.

use crate::http::config;
use freehold_client::Identity;
use freehold_tests_harness::Kubectl;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// An HTTP/1.1 request that was sent.
pub struct Held(StreamOwned<ClientConnection, TcpStream>);

impl Held {
    /// Gets a URL with the credentials of a `kubectl`, and with further lines in the request's head.
    pub fn get(kubectl: &Kubectl, url: &str, lines: &[&str]) -> Self {
        let config = config(kubectl);
        let rest = url.strip_prefix("https://").expect("a URL over TLS");
        let (authority, path) = rest.split_once('/').expect("a URL with a path");
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(config.ca_pem.as_bytes()) {
            roots.add(certificate.expect("a certificate")).expect("an authority");
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let (tls, authorization) = match &config.identity {
            Identity::ClientCert { cert_pem, key_pem } => {
                let chain = CertificateDer::pem_slice_iter(cert_pem.as_bytes()).collect::<Result<_, _>>();
                let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).expect("a key");
                let tls = builder.with_client_auth_cert(chain.expect("a chain"), key);
                (tls.expect("an identity"), String::new())
            }
            Identity::Token(token) => {
                (builder.with_no_client_auth(), format!("authorization: Bearer {token}\r\n"))
            }
            Identity::None => (builder.with_no_client_auth(), String::new()),
        };
        let host = authority.split(':').next().unwrap_or_default().to_owned();
        let name = ServerName::try_from(host).expect("a host");
        let stream = TcpStream::connect(authority).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        let connection = ClientConnection::new(Arc::new(tls), name).expect("a connection");
        let mut stream = StreamOwned::new(connection, stream);
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let head = format!("GET /{path} HTTP/1.1\r\nhost: {authority}\r\n{authorization}{lines}\r\n");
        stream.write_all(head.as_bytes()).expect("the request is sent");
        stream.flush().expect("the request is sent");
        Self(stream)
    }

    /// The head of the answer.
    pub fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("an answer comes");
            head.push(byte[0]);
        }
        String::from_utf8_lossy(&head).into_owned()
    }

    /// Sends something on an upgraded connection, and gives as much as comes back.
    pub fn echo(&mut self, text: &str) -> String {
        self.0.write_all(text.as_bytes()).expect("the connection is open");
        self.0.flush().expect("the connection is open");
        let mut back = vec![0; text.len()];
        self.0.read_exact(&mut back).expect("something comes back");
        String::from_utf8_lossy(&back).into_owned()
    }
}
