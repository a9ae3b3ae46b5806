//! Bytes on a TLS connection, as no client library would send them.

use crate::http::config;
use freehold_client::Identity;
use freehold_tests_harness::Kubectl;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::aws_lc_rs};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of answers that are kept.
const LONGEST: usize = 16 << 20;

/// What opens a connection of HTTP/2: its preface (RFC 9113, section 3.4) and empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The frames of HTTP/2 that are sent or read here (RFC 9113, section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Frame {
    /// A part of a body.
    Data = 0,
    /// The head of a request.
    Headers = 1,
    /// Which stream another one goes before.
    Priority = 2,
    /// The end of a stream before its time.
    Reset = 3,
    /// What a side wants.
    Settings = 4,
    /// A question whether the other side is there.
    Ping = 6,
    /// The end of the connection.
    GoAway = 7,
    /// Bytes that may be sent.
    WindowUpdate = 8,
    /// More of a head.
    Continuation = 9,
    /// One that nobody knows.
    Unknown = 0xbe,
}

/// A TLS connection.
pub struct Wire {
    stream: StreamOwned<ClientConnection, TcpStream>,
    /// `HOST:PORT` of the server.
    pub authority: String,
    token: Option<String>,
}

impl Wire {
    /// Connects to the server of a `kubectl` with its credentials, for HTTP/1.1.
    pub fn http1(kubectl: &Kubectl) -> Self {
        Self::connect(kubectl, None, b"http/1.1")
    }

    /// Connects for HTTP/1.1 to another `HOST:PORT`.
    pub fn http1_at(kubectl: &Kubectl, authority: &str) -> Self {
        Self::connect(kubectl, Some(authority), b"http/1.1")
    }

    /// Connects for HTTP/2 and sends the preface.
    pub fn http2(kubectl: &Kubectl) -> Self {
        let mut wire = Self::connect(kubectl, None, b"h2");
        wire.send(PREFACE).expect("the preface is sent");
        wire
    }

    fn connect(kubectl: &Kubectl, authority: Option<&str>, protocol: &[u8]) -> Self {
        let config = config(kubectl);
        let rest = config.server.strip_prefix("https://").expect("a URL over TLS");
        let authority = authority.or_else(|| rest.split('/').next()).unwrap_or_default().to_owned();
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(config.ca_pem.as_bytes()) {
            roots.add(certificate.expect("a certificate")).expect("an authority");
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let (mut tls, token) = match &config.identity {
            Identity::ClientCert { cert_pem, key_pem } => {
                let chain = CertificateDer::pem_slice_iter(cert_pem.as_bytes()).collect::<Result<_, _>>();
                let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).expect("a key");
                (builder.with_client_auth_cert(chain.expect("a chain"), key).expect("an identity"), None)
            }
            Identity::Token(token) => (builder.with_no_client_auth(), Some(token.clone())),
            Identity::None => (builder.with_no_client_auth(), None),
        };
        tls.alpn_protocols = vec![protocol.to_vec()];
        let host = authority.split(':').next().unwrap_or_default().to_owned();
        let name = ServerName::try_from(host).expect("a host");
        let stream = TcpStream::connect(&authority).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        let connection = ClientConnection::new(Arc::new(tls), name).expect("a connection");
        Self { stream: StreamOwned::new(connection, stream), authority, token }
    }

    /// The line that tells who asks, where a certificate does not.
    pub fn authorization(&self) -> String {
        self.token.as_ref().map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default()
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The system's error where the server has closed the connection.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends a frame of HTTP/2.
    ///
    /// # Errors
    /// The system's error where the server has closed the connection.
    pub fn frame(&mut self, kind: Frame, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        self.send(&frame(kind, flags, stream, payload))
    }

    /// The head of an answer of HTTP/1.1; empty when the connection ended before it.
    pub fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            match self.stream.read_exact(&mut byte) {
                Ok(()) => head.push(byte[0]),
                Err(_) => return String::new(),
            }
        }
        String::from_utf8_lossy(&head).into_owned()
    }

    /// Reads exactly `count` bytes; panics where the connection ends before.
    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).expect("so many bytes come");
        bytes
    }

    /// All that comes until the server closes the connection, or resets it.
    pub fn rest(&mut self) -> String {
        let mut all = Vec::new();
        let mut piece = [0; 16 * 1024];
        while let Ok(n @ 1..) = self.stream.read(&mut piece) {
            if all.len() < LONGEST {
                all.extend_from_slice(&piece[..n]);
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    /// The next frame of HTTP/2: its kind as a number, its flags, its stream and what is in it; `None` at the end of the
    /// connection.
    pub fn next_frame(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).ok()?;
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        self.stream.read_exact(&mut payload).ok()?;
        Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    /// Says that nothing more will be sent.
    pub fn end(&mut self) {
        self.stream.conn.send_close_notify();
        let _ = self.stream.flush();
        let _ = self.stream.sock.shutdown(Shutdown::Write);
    }
}

/// The bytes of a frame.
pub fn frame(kind: Frame, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut bytes = length[1..].to_vec();
    bytes.extend([kind as u8, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// A head in HPACK, each field literal and never indexed (RFC 7541, section 6.2.3), as it is and whatever it says.
pub fn fields(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0x10);
        for text in [name, value] {
            integer(&mut bytes, text.len());
            bytes.extend(text.as_bytes());
        }
    }
    bytes
}

/// An integer with a prefix of seven bits (RFC 7541, section 5.1).
fn integer(bytes: &mut Vec<u8>, mut value: usize) {
    if value < 127 {
        bytes.push(u8::try_from(value).unwrap_or(0));
        return;
    }
    bytes.push(127);
    value -= 127;
    while value >= 128 {
        bytes.push(u8::try_from(value % 128).unwrap_or(0) | 128);
        value /= 128;
    }
    bytes.push(u8::try_from(value).unwrap_or(0));
}
