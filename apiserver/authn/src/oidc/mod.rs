//! OpenID Connect: tokens of other issuers, as an `AuthenticationConfiguration` describes them
//! (<https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-authentication-configuration>).
//!
//! [`config`] is the configuration and what is wrong with it; [`Mapping`] makes a user of a token's claims; [`Issuer`] has
//! the keys of one issuer, fetched through a [`Fetch`] when they are needed, and verifies tokens.

pub mod config;
mod issuer;
mod keys;
mod mapping;

pub use config::{Anonymous, Configuration, JwtAuthenticator};
pub use issuer::{Fetch, Issuer, untrusted_issuer};
pub use mapping::Mapping;

/// Why a token is not believed, or a configuration not used. For logs and TokenReviews.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("oidc: {0}")]
pub struct OidcError(pub(crate) String);

pub(crate) fn failed<T>(why: impl Into<String>) -> Result<T, OidcError> {
    Err(OidcError(why.into()))
}
