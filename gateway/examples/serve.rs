//! Serves the console alone, against any server: `serve LISTEN KUBECONFIG CERT KEY`. Any one-time code signs in as the
//! kubeconfig's user. For work on the console: the program serves it itself.

use freehold_client::{Config as Upstream, Identity};
use freehold_gateway::{Config, Credentials, Gateway, Links};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use std::{error::Error, sync::Arc};
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, rustls};

struct Anybody(Identity);

impl Links for Anybody {
    fn redeem(&self, _: &str) -> Option<Credentials> {
        match self.0.clone() {
            Identity::ClientCert { cert_pem, key_pem } => {
                Some(Credentials::Certificate { cert_pem, key_pem })
            }
            Identity::Token(token) => Some(Credentials::Token(token)),
            Identity::None => None,
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [listen, kubeconfig, cert, key] = args.as_slice() else {
        return Err("LISTEN KUBECONFIG CERT KEY".into());
    };
    let upstream = Upstream::from_kubeconfig(kubeconfig)?;
    let chain = CertificateDer::pem_file_iter(cert)?.collect::<Result<Vec<_>, _>>()?;
    let mut tls = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let links: Arc<dyn Links> = Arc::new(Anybody(upstream.identity.clone()));
    let public_url = upstream.server.clone();
    let gateway =
        Gateway::new(Config { upstream, public_url, origin: None, links: Some(links), oidc: None })?;
    let (gateway, acceptor) = (Arc::new(gateway), TlsAcceptor::from(Arc::new(tls)));
    let listener = TcpListener::bind(listen).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        let (gateway, acceptor) = (gateway.clone(), acceptor.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = hyper::service::service_fn(move |request| {
                let gateway = gateway.clone();
                async move { Ok::<_, std::convert::Infallible>(gateway.answer(request).await) }
            });
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
