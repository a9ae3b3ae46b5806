//! Identities that sessions act as.

use freehold_client::{Client, Config, Download, Error, Identity, RawRequest};
use freehold_machinery::Value;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::json;
use std::{fmt, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// What a person proved to hold.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A client certificate with its key.
    Certificate {
        /// The chain, PEM.
        cert_pem: String,
        /// The key, PEM.
        key_pem: String,
    },
    /// A bearer token.
    Token(String),
    /// A bearer token that the server takes for as long as the lease is kept.
    Leased {
        /// The token.
        token: String,
        /// What ends the token when it is dropped.
        lease: Arc<dyn Lease>,
    },
}

/// Keeps a token valid until it is dropped.
pub trait Lease: fmt::Debug + Send + Sync {}
impl<T: fmt::Debug + Send + Sync> Lease for T {}

/// Redeems one-time sign-in codes. Each code counts once.
pub trait Links: Send + Sync {
    /// Takes a code, after which it is worth nothing; `None` for a code that is unknown, used or expired.
    fn redeem(&self, code: &str) -> Option<Credentials>;
}

/// Somebody whom the apiserver knows: a client that asks with their rights.
#[derive(Clone)]
pub(crate) struct Caller {
    client: Client,
    authorization: Option<HeaderValue>,
    /// Keeps the token valid.
    _lease: Option<Arc<dyn Lease>>,
}

/// A user as the apiserver names them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

impl Caller {
    /// A caller with credentials. Tokens share the connections of `anonymous`; certificates need their own.
    pub(crate) fn new(config: &Config, anonymous: &Client, credentials: Credentials) -> Result<Self, Error> {
        match credentials {
            Credentials::Certificate { cert_pem, key_pem } => {
                let identity = Identity::ClientCert { cert_pem, key_pem };
                let client = Client::new(&Config { identity, ..config.clone() })?;
                Ok(Self { client, authorization: None, _lease: None })
            }
            Credentials::Token(token) => Self::bearer(anonymous, &token),
            Credentials::Leased { token, lease } => {
                Ok(Self { _lease: Some(lease), ..Self::bearer(anonymous, &token)? })
            }
        }
    }

    /// A caller with a bearer token.
    pub(crate) fn bearer(anonymous: &Client, token: &str) -> Result<Self, Error> {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.map_err(|_| Error::Config("a token of other characters".to_owned()))?;
        value.set_sensitive(true);
        Ok(Self { client: anonymous.clone(), authorization: Some(value), _lease: None })
    }

    /// Sends a request once and returns the answer, whatever its status, with a body that is read as it comes.
    pub(crate) async fn forward(
        &self,
        request: RawRequest,
    ) -> Result<(StatusCode, HeaderMap, Download), Error> {
        self.client.forward(&self.signed(request)).await
    }

    /// Opens an answer that is read as it comes.
    pub(crate) async fn open(&self, request: RawRequest) -> Result<Download, Error> {
        self.client.download(&self.signed(request)).await
    }

    /// Changes the protocol of a connection; returns the answer's headers and the connection.
    pub(crate) async fn upgrade(&self, request: RawRequest) -> Result<(HeaderMap, impl Io + use<>), Error> {
        self.client.upgrade(&self.signed(request)).await
    }

    fn signed(&self, mut request: RawRequest) -> RawRequest {
        if let Some(value) = &self.authorization {
            request.headers.insert(header::AUTHORIZATION, value.clone());
        }
        request
    }

    /// Who the apiserver says that this is.
    pub(crate) async fn person(&self) -> Result<Person, Error> {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let request = self.signed(RawRequest::new(Method::POST, path).json(&review));
        let answer: Value = self.client.json(request).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let info = &answer["status"]["userInfo"];
        let groups = info["groups"].as_array().map(|groups| groups.iter().map(text).collect());
        Ok(Person { name: text(&info["username"]), groups: groups.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_lasts_as_long_as_those_who_act_by_it() {
        let config = Config::new("http://127.0.0.1:1", "", Identity::None);
        let anonymous = Client::new(&config).unwrap();
        let lease: Arc<dyn Lease> = Arc::new("lease");
        let held = Arc::downgrade(&lease);
        let leased = Credentials::Leased { token: "one".to_owned(), lease };
        let caller = Caller::new(&config, &anonymous, leased).unwrap();
        let other = Caller::new(&config, &anonymous, Credentials::Token("two".to_owned())).unwrap();
        let shown =
            |caller: &Caller| caller.signed(RawRequest::get("/api")).headers[header::AUTHORIZATION].clone();
        assert_eq!(
            (shown(&caller), shown(&other)),
            ("Bearer one".parse().unwrap(), "Bearer two".parse().unwrap())
        );
        let watch = caller.clone();
        drop(caller);
        assert!(held.upgrade().is_some(), "a watch acts by it");
        drop(watch);
        assert!(held.upgrade().is_none());
    }
}
