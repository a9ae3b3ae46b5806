//! The gateway as a program of its own: HTTPS with a certificate from files, which are read again as they change.

use crate::Gateway;
use freehold_runtime::accept;
use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use parking_lot::RwLock;
use rustls::{
    ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{convert::Infallible, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    time,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections at once.
const MAX_CONNECTIONS: usize = 10_000;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may be silent between two requests' headers.
const HEADERS: Duration = Duration::from_secs(30);
/// Pause between two looks at the files of the certificate.
const CHECK: Duration = Duration::from_secs(60);

/// Why the gateway can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file of the certificate or its key has no such thing.
    #[error("{}: {error}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: pem::Error,
    },
    /// The certificate and the key can't be used.
    #[error("certificate: {0}")]
    Tls(#[from] rustls::Error),
}

/// Where a serving certificate is, PEM.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// The chain.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl CertificateFiles {
    fn read(&self, provider: &CryptoProvider) -> Result<CertifiedKey, ServeError> {
        let of = |path: &PathBuf| {
            let path = path.clone();
            move |error| ServeError::Pem { path, error }
        };
        let chain = CertificateDer::pem_file_iter(&self.cert).and_then(Iterator::collect);
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(of(&self.key))?;
        Ok(CertifiedKey::from_der(chain.map_err(of(&self.cert))?, key, provider)?)
    }
}

/// The certificate that was read last.
#[derive(Debug)]
struct Current(RwLock<Arc<CertifiedKey>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

impl Current {
    /// Takes what is in the files, from time to time.
    async fn follow(&self, files: CertificateFiles, provider: Arc<CryptoProvider>) {
        loop {
            time::sleep(CHECK).await;
            match files.read(&provider) {
                Ok(fresh) if fresh.cert != self.0.read().cert => {
                    tracing::info!(file = %files.cert.display(), "took a renewed certificate");
                    *self.0.write() = Arc::new(fresh);
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "failed to read the certificate; the one before stays"),
            }
        }
    }
}

impl Gateway {
    /// Serves the gateway over HTTPS until `stop`.
    ///
    /// # Errors
    /// The certificate or its key can't be read or used.
    pub async fn listen(
        self: Arc<Self>,
        listener: TcpListener,
        files: CertificateFiles,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let current = Arc::new(Current(RwLock::new(Arc::new(files.read(&provider)?))));
        let mut tls = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let serving = accept(&listener, MAX_CONNECTIONS, stop, |stream| {
            connection(stream, acceptor.clone(), self.clone())
        });
        tokio::select! {
            () = serving => {}
            () = current.follow(files, provider) => {}
        }
        Ok(())
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, gateway: Arc<Gateway>) {
    let _ = stream.set_nodelay(true);
    let Ok(Ok(stream)) = time::timeout(HANDSHAKE, acceptor.accept(stream)).await else { return };
    let service = service_fn(move |request| {
        let gateway = gateway.clone();
        async move { Ok::<_, Infallible>(gateway.answer(request).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADERS);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(HEADERS);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection of the console ended");
    }
}
