//! Who sends a request.

use crate::app::App;
use crate::reply::Failure;
use axum::extract::FromRequestParts;
use freehold_workflow_store::Role;
use http::header::{AUTHORIZATION, COOKIE};
use http::request::Parts;
use http::{HeaderMap, Method};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;

/// The cookie of browsers.
pub(crate) const COOKIE_NAME: &str = "freehold-workflow";
/// The cookie's name at Kontroler, for its page.
pub(crate) const COMPAT_COOKIE_NAME: &str = "jwt-kontroler";
/// The longest token.
const MAX_TOKEN: usize = 16 << 10;

/// Who sends a request.
#[derive(Clone, Debug)]
pub(crate) enum Caller {
    /// Known to the Kubernetes API by this token.
    Forwarded {
        /// `Bearer TOKEN`.
        authorization: http::HeaderValue,
        /// What decisions about it are kept under.
        key: [u8; 32],
    },
    /// A local account, or a user of the issuer.
    Known {
        /// The name.
        name: String,
        /// What it may do.
        role: Role,
        /// The token's hash; empty for a user of the issuer.
        token: String,
    },
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let (token, is_cookie) =
            token(&parts.headers).ok_or_else(|| Failure::unauthorized("a bearer token is wanted"))?;
        if token.len() > MAX_TOKEN {
            return Err(Failure::unauthorized("the token is too long"));
        }
        if is_cookie && parts.method != Method::GET && !is_same_site(&parts.headers) {
            return Err(Failure::forbidden("a request of another site"));
        }
        if !app.stand_alone {
            let key = Sha256::digest(token.as_bytes()).into();
            let mut authorization = http::HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| Failure::unauthorized("the token has characters that none has"))?;
            authorization.set_sensitive(true);
            return Ok(Self::Forwarded { authorization, key });
        }
        if let Some(oidc) = app.oidc.as_ref().filter(|_| token.matches('.').count() == 2) {
            let (name, role) = oidc.user_of(&token).await.map_err(Failure::unauthorized)?;
            return Ok(Self::Known { name, role, token: String::new() });
        }
        let hash = hash(&token);
        let now = jiff::Timestamp::now().as_millisecond();
        match app.database.account_of_token(&hash, now).await? {
            Some(account) => Ok(Self::Known { name: account.name, role: account.role, token: hash }),
            None => Err(Failure::unauthorized("the token is not known, or has ended")),
        }
    }
}

/// What a token is kept as.
pub(crate) fn hash(token: &str) -> String {
    hex::encode(Sha256::digest(token.as_bytes()))
}

/// The bearer token, or that of the cookie.
fn token(headers: &HeaderMap) -> Option<(String, bool)> {
    if let Some(value) = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()) {
        return value
            .strip_prefix("Bearer ")
            .map(|token| (token.trim().to_owned(), false))
            .filter(|(token, _)| !token.is_empty());
    }
    let cookies = headers.get(COOKIE)?.to_str().ok()?;
    let found = cookies.split(';').filter_map(|cookie| cookie.trim().split_once('='));
    found
        .into_iter()
        .find(|(name, _)| [COOKIE_NAME, COMPAT_COOKIE_NAME].contains(name))
        .map(|(_, value)| (value.to_owned(), true))
}

/// Whether a browser says that its own page sent the request. The cookie is `SameSite=Strict` as well.
fn is_same_site(headers: &HeaderMap) -> bool {
    match headers.get("sec-fetch-site").and_then(|value| value.to_str().ok()) {
        Some(site) => site == "same-origin" || site == "none",
        None => headers.get(http::header::ORIGIN).is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_in_headers_or_cookies() {
        let headers =
            |name: http::HeaderName, value: &str| HeaderMap::from_iter([(name, value.parse().unwrap())]);
        assert_eq!(token(&headers(AUTHORIZATION, "Bearer abc")), Some(("abc".into(), false)));
        assert_eq!(token(&headers(AUTHORIZATION, "Basic abc")), None);
        assert_eq!(token(&headers(COOKIE, "a=b; freehold-workflow=t")), Some(("t".into(), true)));
        assert_eq!(token(&HeaderMap::new()), None);
        assert!(!is_same_site(&headers(http::header::ORIGIN, "https://evil.example")));
    }
}
