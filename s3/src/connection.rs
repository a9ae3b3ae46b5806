//! One HTTP/1.1 request on a connection of its own.

use crate::{Config, Error, Result};
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName, pem::PemObject};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::{io::AsyncRead, io::AsyncWrite, net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

/// How long it may take to reach a store.
const CONNECT: Duration = Duration::from_secs(10);

/// Makes connections to one store.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: Option<TlsConnector>,
    timeout: Duration,
}

impl Connector {
    pub(crate) fn new(config: &Config, uri: &Uri) -> Result<Self> {
        let tls = if uri.scheme_str() == Some("https") { Some(tls(config)?) } else { None };
        Ok(Self { tls, timeout: config.timeout })
    }

    /// Sends a request, and gives its answer once the head is there.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
        operation: &str,
    ) -> Result<Response<Incoming>> {
        let failed = |source: io::Error| Error::Connection { operation: operation.to_owned(), source };
        // A part of 16 MiB on a slow line takes a while: so much for the whole, beside what is without progress.
        let whole = self.timeout.saturating_mul(10);
        timeout(whole, self.exchange(request)).await.map_err(|_| failed(late()))?.map_err(failed)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> io::Result<Response<Incoming>> {
        let uri = request.uri().clone();
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if self.tls.is_some() { 443 } else { 80 });
        let connect = TcpStream::connect((host.clone(), port));
        let stream = timeout(CONNECT, connect).await.map_err(|_| late())??;
        stream.set_nodelay(true)?;
        match &self.tls {
            Some(tls) => {
                let name = ServerName::try_from(host).map_err(io::Error::other)?;
                let stream = timeout(CONNECT, tls.connect(name, stream)).await.map_err(|_| late())??;
                ask(stream, request).await
            }
            None => ask(stream, request).await,
        }
    }
}

pub(crate) fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the store does not answer in time")
}

async fn ask<S>(stream: S, mut request: Request<Full<Bytes>>) -> io::Result<Response<Incoming>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with its answer; what goes wrong shows there.
    tokio::spawn(async move { connection.await.ok() });
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    sender.send_request(request).await.map_err(io::Error::other)
}

fn tls(config: &Config) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    match &config.ca_pem {
        Some(pem) => {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let bad = |_| Error::Config("the store's authority is no certificate".to_owned());
                let certificate =
                    certificate.map_err(|_| Error::Config("the store's authority is no PEM".to_owned()))?;
                roots.add(certificate).map_err(bad)?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(Error::Config(
            "there is no authority to check the store's certificate against".to_owned(),
        ));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| Error::Config(error.to_string()))?;
    Ok(TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
}
