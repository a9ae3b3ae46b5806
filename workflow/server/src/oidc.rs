//! Tokens of an OpenID Connect issuer, verified by its published keys.

use freehold_client::{Client, Config, Identity};
use freehold_machinery::Value;
use freehold_workflow_store::Role;
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Keys are read again after this time.
const FRESH: Duration = Duration::from_secs(600);
/// A token with an unknown key makes them be read again, at most so often.
const RETRY: Duration = Duration::from_secs(10);
const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::PS256,
];

/// Whose tokens are accepted.
#[derive(Clone, Debug, Default)]
pub struct OidcOptions {
    /// The issuer's URL, exactly as tokens have it.
    pub issuer: String,
    /// The audience that tokens are for.
    pub audience: String,
    /// The certificates that the issuer's is checked against, in PEM.
    pub ca_pem: String,
    /// The claim with the user's name; `sub` where it is empty.
    pub name_claim: String,
    /// The claim with roles (`viewer`, `editor`, `admin`), a text or a list; `roles` where it is empty.
    pub role_claim: String,
}

#[derive(Debug)]
pub(crate) struct Oidc {
    options: OidcOptions,
    client: Client,
    keys: Mutex<Option<(Instant, JwkSet)>>,
    reading: tokio::sync::Mutex<()>,
}

impl Oidc {
    pub(crate) fn new(options: OidcOptions) -> Result<Self, freehold_client::Error> {
        let mut config = Config::new(options.issuer.clone(), options.ca_pem.clone(), Identity::None);
        config.timeout = Duration::from_secs(10);
        config.max_response_bytes = 1 << 20;
        Ok(Self {
            client: Client::new(&config)?,
            options,
            keys: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        })
    }

    /// Verifies a token and returns its user's name and role.
    pub(crate) async fn user_of(&self, token: &str) -> Result<(String, Role), String> {
        let header = decode_header(token).map_err(|e| format!("the token can't be read: {e}"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(format!("tokens signed by {:?} are not accepted", header.alg));
        }
        let kid = header.kid.unwrap_or_default();
        let key = self.key(&kid).await?;
        let mut validation = Validation::new(header.alg);
        validation.set_issuer(&[&self.options.issuer]);
        validation.set_audience(&[&self.options.audience]);
        validation.set_required_spec_claims(&["exp", "iss", "aud"]);
        validation.validate_nbf = true;
        let claims = decode::<Value>(token, &key, &validation)
            .map_err(|e| format!("the token is not valid: {e}"))?
            .claims;
        let claim =
            |name: &str, otherwise: &str| claims[if name.is_empty() { otherwise } else { name }].clone();
        let name = claim(&self.options.name_claim, "sub").as_str().unwrap_or_default().to_owned();
        if name.is_empty() {
            return Err("the token names nobody".into());
        }
        let role = role_of(&claim(&self.options.role_claim, "roles"))
            .ok_or("the token has none of the roles viewer, editor, admin")?;
        Ok((name, role))
    }

    async fn key(&self, kid: &str) -> Result<DecodingKey, String> {
        if let Some(key) = self.known(kid, FRESH) {
            return key;
        }
        let _reading = self.reading.lock().await;
        // Another request may have read them meanwhile.
        if self.keys.lock().as_ref().is_none_or(|(at, _)| at.elapsed() > RETRY) {
            let keys = self.read().await.map_err(|e| format!("the issuer's keys can't be read: {e}"))?;
            *self.keys.lock() = Some((Instant::now(), keys));
        }
        self.known(kid, Duration::MAX).unwrap_or_else(|| Err("the issuer has no such key".into()))
    }

    fn known(&self, kid: &str, age: Duration) -> Option<Result<DecodingKey, String>> {
        let keys = self.keys.lock();
        let (at, keys) = keys.as_ref()?;
        let found = if kid.is_empty() && keys.keys.len() == 1 { keys.keys.first() } else { keys.find(kid) };
        (at.elapsed() < age).then_some(())?;
        found.map(|jwk| DecodingKey::from_jwk(jwk).map_err(|e| e.to_string()))
    }

    async fn read(&self) -> Result<JwkSet, String> {
        let discovery =
            self.client.get_path("/.well-known/openid-configuration").await.map_err(|e| e.to_string())?;
        if discovery["issuer"] != self.options.issuer.as_str() {
            return Err("its discovery document names another issuer".into());
        }
        let url = discovery["jwks_uri"].as_str().unwrap_or_default();
        let (base, path) = split(url).ok_or("its discovery document has no jwks_uri")?;
        let mut config = Config::new(base, self.options.ca_pem.clone(), Identity::None);
        config.timeout = Duration::from_secs(10);
        config.max_response_bytes = 1 << 20;
        let keys = Client::new(&config)
            .map_err(|e| e.to_string())?
            .get_path(path)
            .await
            .map_err(|e| e.to_string())?;
        serde_json::from_value(keys).map_err(|e| e.to_string())
    }
}

/// A URL's origin and its path.
fn split(url: &str) -> Option<(&str, &str)> {
    let host = url.find("://")? + 3;
    let path = host + url[host..].find('/')?;
    Some(url.split_at(path))
}

/// The highest role of a claim.
fn role_of(claim: &Value) -> Option<Role> {
    match claim {
        Value::String(text) => text.split_whitespace().filter_map(|word| word.parse().ok()).max(),
        Value::Array(list) => {
            list.iter().filter_map(Value::as_str).filter_map(|word| word.parse().ok()).max()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_highest_role_of_a_claim_counts() {
        assert_eq!(role_of(&json!(["x", "viewer", "editor"])), Some(Role::Editor));
        assert_eq!(role_of(&json!("admin other")), Some(Role::Admin));
        assert_eq!(role_of(&json!({"a": 1})), None);
        assert_eq!(split("https://a.example/x/y"), Some(("https://a.example", "/x/y")));
    }
}
