//! An OpenID Connect issuer: its endpoints (OpenID Connect Discovery 1.0) and its tokens (RFC 6749).

use super::{at::At, cache::Tokens};
use crate::terminal::plain;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use freehold_client::{Client, Config, Identity, RawRequest};
use freehold_gateway::openid::{claims, form, system_authorities};
use freehold_machinery::Value;
use http::{Method, StatusCode};
use std::time::Duration;

/// How long an issuer has to answer.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of an answer.
const LONGEST: usize = 1 << 20;
const FORM: &str = "application/x-www-form-urlencoded";

/// An issuer that has told its endpoints.
pub(super) struct Issuer {
    url: String,
    client_id: String,
    secret: Option<String>,
    scope: String,
    ca_pem: String,
    configuration: Value,
}

/// An answer that is an error (RFC 6749, section 5.2).
#[derive(Debug, thiserror::Error)]
#[error("the issuer refused: {text}")]
pub(super) struct Refused {
    pub(super) code: String,
    text: String,
}

impl Issuer {
    /// Asks an issuer for its endpoints.
    ///
    /// # Errors
    /// It can't be reached, or its answer is not of this issuer.
    pub(super) async fn find(at: &At) -> Result<Self> {
        let url = at.issuer_url.trim_end_matches('/').to_owned();
        ensure!(url.starts_with("https://"), "--issuer-url must be https://..., not {url:?}");
        let ca_pem = match &at.issuer_ca {
            Some(path) => crate::store::read(path)?,
            None => system_authorities(),
        };
        let secret = at.client_secret_file.as_deref().map(crate::store::read).transpose()?;
        let scopes = ["openid"].into_iter().chain(at.scopes.iter().map(String::as_str));
        let mut issuer = Self {
            scope: scopes.filter(|scope| !scope.is_empty()).collect::<Vec<_>>().join(" "),
            client_id: at.client_id.clone(),
            secret: secret.map(|text| text.trim().to_owned()),
            configuration: Value::Null,
            ca_pem,
            url,
        };
        let path = RawRequest::get("/.well-known/openid-configuration");
        let answer = issuer.send(&issuer.url, path).await?;
        ensure!(answer.0.is_success(), "the issuer {} tells no endpoints: {}", issuer.url, answer.0);
        issuer.configuration = answer.1;
        let named = issuer.configuration["issuer"].as_str().map(|named| named.trim_end_matches('/'));
        ensure!(named == Some(&*issuer.url), "the configuration at {} is of another issuer", issuer.url);
        Ok(issuer)
    }

    /// The issuer's host and port.
    pub(super) fn host(&self) -> &str {
        self.url.trim_start_matches("https://").split('/').next().unwrap_or_default()
    }

    pub(super) fn client_id(&self) -> &str {
        &self.client_id
    }

    pub(super) fn scope(&self) -> &str {
        &self.scope
    }

    /// Whether an `iss` that came with an answer is this issuer's (RFC 9207).
    pub(super) fn is_named(&self, iss: &str) -> bool {
        iss.trim_end_matches('/') == self.url
    }

    /// An endpoint that the issuer publishes.
    pub(super) fn endpoint(&self, name: &str) -> Result<&str> {
        let url = self.configuration[name].as_str().filter(|url| url.starts_with("https://"));
        url.with_context(|| format!("the issuer {} has no {name}", self.url))
    }

    /// Sends a form to an endpoint.
    ///
    /// # Errors
    /// It can't be reached, or refuses: [`Refused`].
    pub(super) async fn post(&self, endpoint: &str, fields: &[(&str, &str)]) -> Result<Value> {
        let mut all = fields.to_vec();
        all.push(("client_id", &self.client_id));
        if let Some(secret) = &self.secret {
            all.push(("client_secret", secret));
        }
        let mut request = RawRequest::new(Method::POST, "");
        request.content_type = FORM;
        request.body = Bytes::from(form(&all));
        let (status, value) = self.send(self.endpoint(endpoint)?, request).await?;
        if status.is_success() {
            return Ok(value);
        }
        let code = value["error"].as_str().unwrap_or("unknown").to_owned();
        let text = value["error_description"].as_str().unwrap_or(&code);
        Err(Refused { text: format!("{} ({})", plain(text), status.as_u16()), code }.into())
    }

    /// Tokens for a grant. Those of a sign-in have its nonce.
    pub(super) async fn tokens(&self, fields: &[(&str, &str)], nonce: Option<&str>) -> Result<Tokens> {
        let answer = self.post("token_endpoint", fields).await?;
        let id_token = answer["id_token"].as_str().context("the issuer gave no ID token")?.to_owned();
        self.check(&id_token, nonce)?;
        Ok(Tokens { id_token, refresh_token: answer["refresh_token"].as_str().map(str::to_owned) })
    }

    /// New tokens for those that are due.
    pub(super) async fn renew(&self, tokens: &Tokens) -> Result<Tokens> {
        let refresh = tokens.refresh_token.as_deref().context("the issuer gave nothing to renew it with")?;
        let fields = [("grant_type", "refresh_token"), ("refresh_token", refresh)];
        let mut fresh = self.tokens(&fields, None).await?;
        fresh.refresh_token = fresh.refresh_token.or_else(|| tokens.refresh_token.clone());
        Ok(fresh)
    }

    /// Whether a token is for this client and sign-in. TLS vouches for its origin (OpenID Connect Core 1.0, 3.1.3.7).
    fn check(&self, id_token: &str, nonce: Option<&str>) -> Result<()> {
        let claims = claims(id_token).context("the issuer's ID token is no JWT")?;
        ensure!(
            claims["iss"].as_str().is_some_and(|iss| self.is_named(iss)),
            "the ID token is of another issuer"
        );
        let audience = &claims["aud"];
        let mut audiences = audience.as_array().map_or(std::slice::from_ref(audience), Vec::as_slice).iter();
        ensure!(audiences.any(|aud| *aud == *self.client_id), "the ID token is for another client");
        let ours = nonce.is_none_or(|nonce| claims["nonce"].as_str() == Some(nonce));
        ensure!(ours, "the ID token is for another sign-in");
        Ok(())
    }

    async fn send(&self, url: &str, request: RawRequest) -> Result<(StatusCode, Value)> {
        let mut config = Config::new(url, &self.ca_pem, Identity::None);
        config.timeout = TIMEOUT;
        config.max_response_bytes = LONGEST;
        let answer =
            Client::new(&config)?.once(&request).await.map_err(|error| anyhow!("issuer: {error}"))?;
        match serde_json::from_slice(&answer.body) {
            Ok(value) => Ok((answer.status, value)),
            Err(_) if !answer.status.is_success() => Ok((answer.status, Value::Null)),
            Err(_) => bail!("{url} answers with something else than JSON"),
        }
    }
}
