//! Authentication of requests.
//!
//! A request is believed for one of these, tried in this order: identity headers of a front proxy that proved itself with a
//! certificate of the front proxy's authority; a client certificate ([`certified`]); a token, which is of a service account
//! ([`TokenIssuer`]), for bootstrapping ([`BootstrapToken`]) or of another issuer ([`oidc`]). Without any of them it is
//! nobody's, and the caller decides what the anonymous may do.
//!
//! Guarantees: an identity of one plane means nothing in another. Certificates say in a URI name to which plane they
//! are bound, tokens in issuer and claim, and both are compared with the plane that the request is for, on each
//! request. A token dies with its ServiceAccount, and with the Pod, Secret or Node that it is bound to.
//!
//! This crate must not know: HTTP (it sees [`Headers`]), how certificates are verified against trusted roots during
//! the handshake, where objects are kept (it asks a [`ServiceAccountLookup`]), the time of day.

pub mod bootstrap;
pub mod headers;
pub mod impersonate;
pub mod keys;
pub mod oidc;
pub mod peer;
pub mod remember;
pub mod review;
pub mod token;
pub mod token_request;

pub use bootstrap::BootstrapToken;
pub use headers::{HeaderNames, Headers, forwarded_headers};
pub use impersonate::ImpersonationRequest;
pub use keys::KeySet;
pub use oidc::{Fetch, Issuer};
pub use peer::{FrontProxy, Peer, Roots};
pub use token::{BoundKind, ServiceAccountLookup, TokenError, TokenIssuer};
pub use token_request::TokenRequestSpec;

use freehold_machinery::{PlaneId, Status, User};
use std::sync::Arc;

/// What authentication looks at.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The plane that the request is for.
    pub plane: &'a PlaneId,
    /// The client's certificate, read once per connection; `None` where it presented none.
    pub peer: Option<&'a Peer>,
    /// The request's headers.
    pub headers: &'a dyn Headers,
    /// The time of day, in seconds since 1970.
    pub now: i64,
}

/// Finds out who is asking, where only certificates and service account tokens are believed.
#[derive(Debug)]
pub struct Authenticator {
    tokens: Arc<TokenIssuer>,
}

impl Authenticator {
    /// An authenticator that believes the tokens of `tokens`.
    pub fn new(tokens: Arc<TokenIssuer>) -> Self {
        Self { tokens }
    }

    /// Authenticates a request; `None` where it carries no credentials.
    ///
    /// # Errors
    /// 401 for credentials that are not accepted: a certificate of another plane or expired during a long
    /// connection, or a bearer token that is not valid here.
    pub fn authenticate(
        &self,
        request: &Request<'_>,
        lookup: &dyn ServiceAccountLookup,
    ) -> Result<Option<User>, Status> {
        if let Some(user) = certified(request)? {
            return Ok(Some(user));
        }
        let Some(token) = bearer(request.headers) else { return Ok(None) };
        match self.tokens.verify(request.plane, token, request.now, lookup) {
            Ok(verified) => Ok(Some(verified.user)),
            Err(error) => {
                tracing::debug!(plane = %request.plane, %error, "bearer token refused");
                Err(Status::unauthorized())
            }
        }
    }
}

/// Returns the user that the peer of a connection is, or speaks for; `None` where it has no certificate that names
/// one.
///
/// # Errors
/// 401 for a certificate of another plane, or expired during a long connection.
pub fn certified(request: &Request<'_>) -> Result<Option<User>, Status> {
    let Some(peer) = request.peer else { return Ok(None) };
    match peer.front_proxied(request)? {
        Some(user) => Ok(Some(user)),
        None => peer.user(request),
    }
}

/// The token of a bearer authorization (RFC 6750); `None` for other schemes and for an empty token.
pub fn bearer(headers: &dyn Headers) -> Option<&str> {
    let authorization = headers.get("authorization")?;
    let (scheme, token) = authorization.trim().split_once(' ')?;
    let token = token.split(' ').next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
