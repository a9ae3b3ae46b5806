//! What connections are secured with, and who is at the other end of one.

use crate::config::{Authorities, BindError};
use arc_swap::ArcSwap;
use freehold_apiserver_authn::{Peer, Roots};
use freehold_apiserver_transport::tls::{self, Certificate, TlsError};
use freehold_machinery::Status;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use rustls::ServerConnection;
use rustls_pki_types::CertificateDer;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Who is at the other end of a connection, read once. An error answers each request of it.
pub(crate) type Identity = Result<Option<Peer>, Status>;

/// Reads the certificate that the client showed.
pub(crate) fn peer(session: &ServerConnection, roots: &Roots) -> Identity {
    session.peer_certificates().map(|chain| Peer::parse(chain, roots)).transpose()
}

/// The certificates that the client showed, to be read again when other authorities count.
pub(crate) fn presented(session: &ServerConnection) -> Vec<CertificateDer<'static>> {
    session.peer_certificates().unwrap_or_default().to_vec()
}

/// Ends when something may not go on.
pub(crate) type Until = Shared<BoxFuture<'static, ()>>;

/// What new connections are secured with.
pub(crate) struct Secure {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) roots: Roots,
    /// Ends when other authorities count.
    replaced: CancellationToken,
}

/// Replaces what new connections are secured with.
#[derive(Clone)]
pub struct Reload {
    certificate: Arc<Certificate>,
    pub(crate) secure: Arc<ArcSwap<Secure>>,
    certificates_only: bool,
}

impl Reload {
    pub(crate) fn new(
        certificate: Arc<Certificate>,
        authorities: &Authorities,
        certificates_only: bool,
    ) -> Result<Self, BindError> {
        let secure = Arc::new(ArcSwap::from_pointee(secure(&certificate, authorities, certificates_only)?));
        Ok(Self { certificate, secure, certificates_only })
    }

    /// Replaces the serving certificate, as PEM.
    ///
    /// # Errors
    /// Fails where they are no PEM, or the key is not that of the leaf; the old one stays then.
    pub fn certificate(&self, chain: &[u8], key: &[u8]) -> Result<(), TlsError> {
        self.certificate.replace(chain, key)
    }

    /// Replaces the authorities of client certificates. Connections whose certificates none of them vouches for are cut off. On an
    /// error the old ones stay.
    ///
    /// # Errors
    /// Fails where a bundle is no PEM or holds no authority; the old ones stay then.
    pub fn authorities(&self, authorities: &Authorities) -> Result<(), BindError> {
        let fresh = secure(&self.certificate, authorities, self.certificates_only)?;
        self.secure.swap(Arc::new(fresh)).replaced.cancel();
        Ok(())
    }
}

fn secure(
    certificate: &Arc<Certificate>,
    authorities: &Authorities,
    certificates_only: bool,
) -> Result<Secure, BindError> {
    let proxies = authorities.front_proxies.iter().map(|proxy| proxy.ca_pem.as_str());
    let bundles: Vec<&str> = [authorities.clients.as_str()].into_iter().chain(proxies).collect();
    let config = tls::server_config(certificate.clone(), &bundles, certificates_only)?;
    let roots = Roots::new(&authorities.clients, &authorities.front_proxies)?;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Ok(Secure { acceptor, roots, replaced: CancellationToken::new() })
}

/// Reads a certificate that was shown to this process without a handshake; what comes with it ends when nobody vouches for it
/// any more.
pub(crate) fn judge(
    chain: &[CertificateDer<'static>],
    (secure, current): (&Arc<Secure>, &Arc<ArcSwap<Secure>>),
) -> (Identity, Until) {
    let peer = Peer::parse(chain, &secure.roots).map(Some);
    let distrusted = distrusted(chain.to_vec(), peer.clone(), secure.clone(), current.clone());
    (peer, distrusted.boxed().shared())
}

/// Ends when authorities were replaced, and what a client presented does not make it who it was.
pub(crate) async fn distrusted(
    presented: Vec<CertificateDer<'static>>,
    peer: Identity,
    mut secure: Arc<Secure>,
    current: Arc<ArcSwap<Secure>>,
) {
    let Ok(Some(peer)) = peer else { return std::future::pending().await };
    loop {
        secure.replaced.cancelled().await;
        secure = current.load_full();
        if !Peer::parse(&presented, &secure.roots).is_ok_and(|now| now.is_who(&peer)) {
            return;
        }
    }
}
