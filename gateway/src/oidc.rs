//! Sign-in at an OpenID Connect issuer: the authorization code flow with PKCE (RFC 7636).
//!
//! The gateway verifies what binds an answer to the browser that began (state, cookie, nonce). Whether the ID token counts
//! says the apiserver, which is configured with the same issuer (`--authentication-config`).

use crate::{error::Failure, secret};
use bytes::Bytes;
use freehold_client::{Client, Config, Identity, RawRequest};
use freehold_machinery::Value;
use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::time::{Duration, Instant};

/// How long a person has at the issuer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// How long before its end a token is renewed.
const MARGIN: Duration = Duration::from_secs(30);
/// How long an issuer has to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of an issuer's answer.
const LONGEST: usize = 1 << 20;
const FORM: &str = "application/x-www-form-urlencoded";

/// An issuer, and who the console is there.
#[derive(Clone, Debug)]
pub struct OidcConfig {
    /// The issuer's URL.
    pub issuer: String,
    /// The console's client id: an audience that the apiserver accepts.
    pub client_id: String,
    /// Its secret, for a confidential client.
    pub client_secret: Option<String>,
    /// Scopes besides `openid`.
    pub scopes: Vec<String>,
    /// The authority of the issuer's certificate, PEM; those that this machine trusts otherwise.
    pub ca_pem: Option<String>,
    /// The console's own origin, as the issuer knows it: `https://freehold.example.com`.
    pub origin: String,
}

/// Tokens of a session.
pub(crate) struct Tokens {
    pub(crate) id_token: String,
    refresh: Option<String>,
    expires: Instant,
}

impl Tokens {
    /// Whether the ID token has to be renewed.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now + MARGIN >= self.expires
    }
}

/// A sign-in under way. The browser that began it keeps it, sealed, so that strangers who begin many take no room of others.
#[derive(Serialize, Deserialize)]
struct Pending {
    state: String,
    verifier: String,
    nonce: String,
    landing: String,
    /// Seconds since this process began.
    began: u64,
}

/// Where a browser goes to sign in, and what binds the answer to it.
pub(crate) struct Begun {
    pub(crate) location: String,
    pub(crate) cookie: String,
}

/// The endpoints that an issuer publishes.
#[derive(Clone)]
struct Endpoints {
    authorization: String,
    token: String,
    end_session: Option<String>,
}

/// An issuer.
pub(crate) struct Oidc {
    config: OidcConfig,
    ca_pem: String,
    seal: secret::Seal,
    started: Instant,
    endpoints: tokio::sync::Mutex<Option<Endpoints>>,
}

impl Oidc {
    /// An issuer; nothing is asked of it before somebody signs in.
    pub(crate) fn new(config: OidcConfig) -> Self {
        let ca_pem = config.ca_pem.clone().unwrap_or_else(system_authorities);
        let (seal, started) = (secret::Seal::new(), Instant::now());
        Self { config, ca_pem, seal, started, endpoints: tokio::sync::Mutex::default() }
    }

    /// What a client of its own has to know to sign in here: nothing of it is a secret.
    pub(crate) fn describe(&self) -> Value {
        let OidcConfig { issuer, client_id, scopes, .. } = &self.config;
        json!({"url": issuer, "clientId": client_id, "scopes": scopes})
    }

    fn redirect_uri(&self) -> String {
        format!("{}/console/api/login/callback", self.config.origin)
    }

    /// Sends a request to a URL of the issuer.
    async fn ask(&self, url: &str, request: RawRequest) -> Result<Value, Failure> {
        let mut config = Config::new(url, &self.ca_pem, Identity::None).user_agent("freehold-console");
        config.timeout = TIMEOUT;
        config.max_response_bytes = LONGEST;
        let answer = Client::new(&config)?.once(&request).await?;
        let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        if answer.status.is_success() {
            return Ok(value);
        }
        let why =
            value["error_description"].as_str().or(value["error"].as_str()).unwrap_or("no reason given");
        tracing::warn!(url, status = answer.status.as_u16(), why, "the issuer refused a request");
        Err(Failure::new(401, "Unauthorized", format!("the issuer refused to sign in: {why}")))
    }

    async fn endpoints(&self) -> Result<Endpoints, Failure> {
        let mut known = self.endpoints.lock().await;
        if let Some(found) = &*known {
            return Ok(found.clone());
        }
        let issuer = self.config.issuer.trim_end_matches('/');
        let found = self.ask(issuer, RawRequest::get("/.well-known/openid-configuration")).await?;
        let text =
            |name: &str| found[name].as_str().filter(|url| url.starts_with("https://")).map(str::to_owned);
        let wrong =
            || Failure::new(502, "BadGateway", "the issuer's configuration is not that of this issuer");
        if found["issuer"].as_str().map(|named| named.trim_end_matches('/')) != Some(issuer) {
            return Err(wrong());
        }
        let endpoints = Endpoints {
            authorization: text("authorization_endpoint").ok_or_else(wrong)?,
            token: text("token_endpoint").ok_or_else(wrong)?,
            end_session: text("end_session_endpoint"),
        };
        *known = Some(endpoints.clone());
        Ok(endpoints)
    }

    /// Begins a sign-in, after which the person lands at a page of the console.
    pub(crate) async fn begin(&self, landing: &str, now: Instant) -> Result<Begun, Failure> {
        let endpoints = self.endpoints().await?;
        let (state, verifier, nonce) = (secret::fresh(), secret::fresh(), secret::fresh());
        let scope = ["openid"].into_iter().chain(self.config.scopes.iter().map(String::as_str));
        let query = form(&[
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", &self.redirect_uri()),
            ("scope", &scope.collect::<Vec<_>>().join(" ")),
            ("state", &state),
            ("nonce", &nonce),
            ("code_challenge", &secret::challenge(&verifier)),
            ("code_challenge_method", "S256"),
        ]);
        let separator = if endpoints.authorization.contains('?') { '&' } else { '?' };
        let location = format!("{}{separator}{query}", endpoints.authorization);
        let pending =
            Pending { state, verifier, nonce, landing: landing.to_owned(), began: self.seconds(now) };
        Ok(Begun { location, cookie: self.seal.seal(json!(pending).to_string().into_bytes()) })
    }

    fn seconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_secs()
    }

    /// Ends a sign-in: exchanges the code for tokens. Returns them and where the person lands.
    pub(crate) async fn finish(
        &self,
        (state, code): (&str, &str),
        cookie: Option<&str>,
        now: Instant,
    ) -> Result<(Tokens, String), Failure> {
        let stale = || {
            Failure::new(401, "Unauthorized", "this sign-in was not begun in this browser, or too long ago")
        };
        let opened = cookie.and_then(|text| self.seal.open(text));
        let pending: Pending =
            opened.and_then(|data| serde_json::from_slice(&data).ok()).ok_or_else(stale)?;
        let is_late = self.seconds(now).saturating_sub(pending.began) >= PATIENCE.as_secs();
        if secret::hash(state) != secret::hash(&pending.state) || is_late {
            return Err(stale());
        }
        let redirect = self.redirect_uri();
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &redirect),
            ("code_verifier", &pending.verifier),
        ];
        let tokens = self.tokens(&fields, now).await?;
        let claims = secret::claims(&tokens.id_token).unwrap_or_default();
        if claims["nonce"].as_str() != Some(&pending.nonce) {
            return Err(Failure::new(401, "Unauthorized", "the issuer's token is for another sign-in"));
        }
        Ok((tokens, pending.landing))
    }

    /// Renews tokens that are due.
    pub(crate) async fn renew(&self, tokens: &Tokens, now: Instant) -> Result<Tokens, Failure> {
        let Some(refresh) = &tokens.refresh else { return Err(Failure::unauthorized()) };
        let mut fresh =
            self.tokens(&[("grant_type", "refresh_token"), ("refresh_token", refresh)], now).await?;
        fresh.refresh = fresh.refresh.or_else(|| tokens.refresh.clone());
        Ok(fresh)
    }

    async fn tokens(&self, fields: &[(&str, &str)], now: Instant) -> Result<Tokens, Failure> {
        let endpoints = self.endpoints().await?;
        let mut all = fields.to_vec();
        all.push(("client_id", &self.config.client_id));
        if let Some(secret) = &self.config.client_secret {
            all.push(("client_secret", secret));
        }
        let mut request = RawRequest::new(Method::POST, "");
        request.content_type = FORM;
        request.body = Bytes::from(form(&all));
        let answer = self.ask(&endpoints.token, request).await?;
        let missing = || Failure::new(502, "BadGateway", "the issuer gave no ID token");
        let id_token = answer["id_token"].as_str().ok_or_else(missing)?.to_owned();
        let claims = secret::claims(&id_token).ok_or_else(missing)?;
        let left = claims["exp"].as_u64().unwrap_or(0).saturating_sub(claims["iat"].as_u64().unwrap_or(0));
        let refresh = answer["refresh_token"].as_str().map(str::to_owned);
        Ok(Tokens { id_token, refresh, expires: now + Duration::from_secs(left) })
    }

    /// Where a browser goes to sign out at the issuer too.
    pub(crate) async fn sign_out_url(&self) -> Option<String> {
        let end = self.endpoints.lock().await.clone()?.end_session?;
        let back = format!("{}{}", self.config.origin, crate::PREFIX);
        let query = form(&[("client_id", &self.config.client_id), ("post_logout_redirect_uri", &back)]);
        Some(format!("{end}{}{query}", if end.contains('?') { '&' } else { '?' }))
    }
}

/// The authorities that this machine trusts, PEM.
pub fn system_authorities() -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let found = rustls_native_certs::load_native_certs();
    let pem = |der: &[u8]| {
        let text = STANDARD.encode(der);
        let lines: Vec<&str> =
            text.as_bytes().chunks(64).filter_map(|c| std::str::from_utf8(c).ok()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    found.certs.iter().map(|cert| pem(cert.as_ref())).collect()
}

/// Fields of a form, escaped.
pub fn form(fields: &[(&str, &str)]) -> String {
    let escape = |text: &str| {
        let mut out = String::with_capacity(text.len());
        for b in text.bytes() {
            if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
                out.push(char::from(b));
            } else {
                out.push_str(&format!("%{b:02X}"));
            }
        }
        out
    };
    fields.iter().map(|(name, value)| format!("{name}={}", escape(value))).collect::<Vec<_>>().join("&")
}

/// A field of a query, unescaped.
pub fn field(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').filter_map(|pair| pair.split_once('=')).find(|(found, _)| *found == name)?.1;
    let bytes = value.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        match bytes[at] {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = bytes.get(at + 1..at + 3).and_then(|d| std::str::from_utf8(d).ok())?;
                out.push(u8::from_str_radix(digits, 16).ok()?);
                at += 2;
            }
            other => out.push(other),
        }
        at += 1;
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_escaped_and_read_back() {
        let text = form(&[("a", "x y&z=%/é"), ("b", "2")]);
        assert_eq!(text, "a=x%20y%26z%3D%25%2F%C3%A9&b=2");
        assert_eq!(field(&text, "a").as_deref(), Some("x y&z=%/é"));
        assert_eq!(field("a=%zz", "a"), None);
        assert_eq!(field("a=%", "a"), None);
    }
}
