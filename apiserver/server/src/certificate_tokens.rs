//! Bearer tokens that stand for client certificates which this process issued.
//!
//! Whoever signs in to the console by a one-time link gets a client certificate, whose key never leaves the process. A
//! certificate is shown for a whole connection, so each session needed connections of its own, encrypted at both ends. A token
//! is shown with a request, so sessions share connections.
//!
//! A token is no identity of its own. A request with it is treated as one of a connection whose client showed the certificate:
//! read by the same code, against the authorities that count at that moment, with the same term, plane and revocation. What
//! takes long ends when those authorities are replaced by others, as a connection does. Tokens are in the memory of one process,
//! which keeps hashes of them alone, and each ends with whoever holds it.
//!
//! Only a client without a certificate can use one. A token that is not known, or not any more, is refused: nobody else, no
//! issuer and no webhook, is asked about it.

use crate::{
    backend::RequestHeaders,
    secure::{self, Identity, Secure, Until},
};
use arc_swap::ArcSwap;
use aws_lc_rs::{digest, rand};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use freehold_apiserver_authn::bearer;
use freehold_apiserver_transport::tls::{self, TlsError};
use freehold_machinery::Status;
use futures_util::{FutureExt, future};
use http::HeaderMap;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;
use std::{collections::HashMap, fmt, sync::Arc};

/// What these tokens begin with, so that they are known for what they are wherever they are found.
const PREFIX: &str = "fhct_";

/// The hash of a token, by which it is found.
type Hash = [u8; 32];

fn hash(token: &str) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest::digest(&digest::SHA256, token.as_bytes()).as_ref());
    hash
}

/// The tokens of a process.
#[derive(Clone, Default)]
pub struct CertificateTokens(Arc<Mutex<HashMap<Hash, Arc<Entry>>>>);

/// A certificate that a token stands for.
struct Entry {
    chain: Vec<CertificateDer<'static>>,
    read: Mutex<Option<(Arc<Secure>, Arc<Shown>)>>,
}

/// What a token stands for, by the authorities of a moment.
pub(crate) struct Shown {
    /// Who the certificate says that it is.
    pub(crate) peer: Identity,
    /// Ends when nobody vouches for the certificate any more.
    pub(crate) distrusted: Until,
}

/// A token. It counts until this is dropped.
pub struct CertificateToken {
    text: String,
    hash: Hash,
    tokens: CertificateTokens,
}

impl CertificateToken {
    /// Returns the token, which is a secret.
    pub fn secret(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for CertificateToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CertificateToken")
    }
}

impl Drop for CertificateToken {
    fn drop(&mut self) {
        self.tokens.0.lock().remove(&self.hash);
    }
}

impl CertificateTokens {
    /// Makes a token that stands for a client certificate: PEM, the client's own first. The caller vouches that the token goes to
    /// the holder of the certificate's key alone.
    ///
    /// # Errors
    /// The text has no certificates.
    pub fn issue(&self, chain_pem: &str) -> Result<CertificateToken, TlsError> {
        let chain = tls::certificates(chain_pem.as_bytes(), "the client certificate")?;
        let mut bytes = [0_u8; 32];
        rand::fill(&mut bytes).expect("the system gives random bytes");
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        let hash = hash(&text);
        self.0.lock().insert(hash, Arc::new(Entry { chain, read: Mutex::default() }));
        Ok(CertificateToken { text, hash, tokens: self.clone() })
    }

    fn find(&self, token: &str) -> Option<Arc<Entry>> {
        self.0.lock().get(&hash(token)).cloned()
    }
}

impl Entry {
    /// Reads the certificate, once for the authorities that count.
    fn shown(&self, current: &Arc<ArcSwap<Secure>>) -> Arc<Shown> {
        let secure = current.load_full();
        let mut read = self.read.lock();
        if let Some((_, shown)) = read.as_ref().filter(|(before, _)| Arc::ptr_eq(before, &secure)) {
            return shown.clone();
        }
        let (peer, distrusted) = secure::judge(&self.chain, (&secure, current));
        // Whom no authority vouches for is refused here: others would be asked about the token.
        let peer = match peer {
            Ok(Some(peer)) if peer.has_identity() => Ok(Some(peer)),
            _ => Err(Status::unauthorized()),
        };
        let shown = Arc::new(Shown { peer, distrusted });
        *read = Some((secure, shown.clone()));
        shown
    }
}

/// Returns what the token of a request stands for; `None` for a client with a certificate and for other credentials.
pub(crate) fn shown(
    tokens: Option<&CertificateTokens>,
    secure: &Arc<ArcSwap<Secure>>,
    peer: &Identity,
    headers: &HeaderMap,
) -> Option<Arc<Shown>> {
    if !matches!(peer, Ok(None)) {
        return None;
    }
    let headers = RequestHeaders(headers);
    let token = bearer(&headers).filter(|token| token.starts_with(PREFIX))?;
    let entry = tokens.and_then(|tokens| tokens.find(token));
    Some(match entry {
        Some(entry) => entry.shown(secure),
        None => Arc::new(Shown {
            peer: Err(Status::unauthorized()),
            distrusted: future::pending().boxed().shared(),
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_pki::{Authority, ClientName};
    use std::time::Duration;

    #[test]
    fn a_token_is_found_until_it_is_dropped_and_no_part_of_it_is_kept() {
        let authority = Authority::generate("test").unwrap();
        let name = ClientName { user: "jane", groups: &[], plane: None };
        let pair = authority.issue_client(&name, Duration::from_secs(60)).unwrap();
        let tokens = CertificateTokens::default();
        let (one, other) = (tokens.issue(&pair.cert_pem).unwrap(), tokens.issue(&pair.cert_pem).unwrap());
        assert_ne!(one.secret(), other.secret());
        assert!(tokens.find(one.secret()).is_some());
        assert!(!format!("{one:?}").contains(&one.secret()[PREFIX.len()..]));
        for wrong in ["", PREFIX, &one.secret()[..one.secret().len() - 1]] {
            assert!(tokens.find(wrong).is_none(), "{wrong}");
        }
        let text = one.secret().to_owned();
        drop(one);
        assert!(tokens.find(&text).is_none());
        assert!(tokens.find(other.secret()).is_some());
        assert!(tokens.issue("no certificate").is_err());
    }
}
