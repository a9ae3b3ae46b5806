//! One issuer of tokens: its keys, and the verification of its tokens.

use super::{
    Mapping, OidcError,
    config::JwtAuthenticator,
    failed,
    keys::{RemoteKeys, Signed, Verdict},
};
use crate::remember::Remembered;
use async_trait::async_trait;
use freehold_machinery::{
    Map, User, Value,
    user::{AUTHENTICATED, Basis, Voucher},
};
use parking_lot::Mutex;
use serde::Deserialize;
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// Tokens larger than this, in bytes, are refused unread: groups may make them large.
const MAX_TOKEN: usize = 32 * 1024;
/// How long keys are used before they are looked at again, in the background.
const FRESH: Duration = Duration::from_secs(10 * 60);
/// The shortest time between two looks: for tokens of unknown keys, and after a failure.
const PAUSE: Duration = Duration::from_secs(10);
/// How far `nbf` may lie ahead, in seconds (the number of Kubernetes' library).
const LEEWAY: i64 = 300;
/// How long a token that was believed is not looked at again (kube-apiserver's number), and how many are remembered.
const REMEMBER: (Duration, usize) = (Duration::from_secs(10), 4096);

/// Gets documents of issuers.
#[async_trait]
pub trait Fetch: Send + Sync + 'static {
    /// The document at an https URL, of a server whose certificate one of `authorities` (PEM; empty: those that the machine
    /// trusts) signed. Bounded in time and size; redirects are not followed.
    async fn get(&self, url: &str, authorities: &str) -> Result<Vec<u8>, String>;
}

/// The keys as they are known.
#[derive(Default)]
struct CachedKeys {
    keys: Option<Arc<RemoteKeys>>,
    /// When they were fetched.
    fetched: Option<Instant>,
    /// When that was last tried.
    tried: Option<Instant>,
}

/// One issuer of tokens.
pub struct Issuer {
    config: JwtAuthenticator,
    mapping: Mapping,
    fetch: Arc<dyn Fetch>,
    known: Mutex<CachedKeys>,
    /// Held by the one who fetches.
    fetching: tokio::sync::Mutex<()>,
    believed: Remembered<(i64, User)>,
    voucher: Voucher,
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Issuer").field(&self.config.issuer.url).finish()
    }
}

/// The issuer that a token names, which nobody has verified; `None` where it is no token.
pub fn untrusted_issuer(token: &str) -> Option<String> {
    if token.len() > MAX_TOKEN {
        return None;
    }
    issuer_of(&Signed::parse(token)?.claims).map(str::to_owned)
}

fn issuer_of(claims: &Map) -> Option<&str> {
    match claims.get("iss")?.as_str()? {
        // Google's older name of itself (OpenID Connect Core 1.0, 15.6.2).
        "accounts.google.com" => Some("https://accounts.google.com"),
        other => Some(other),
    }
}

impl Issuer {
    /// An issuer whose keys are fetched with its first token.
    ///
    /// # Errors
    /// What is wrong with the configuration, in one text.
    pub fn new(config: JwtAuthenticator, fetch: Arc<dyn Fetch>) -> Result<Arc<Self>, String> {
        let (mapping, errors) = Mapping::compile(&config, "spec");
        if !errors.is_empty() {
            return Err(errors
                .iter()
                .map(|e| format!("{}: {}", e.field, e.body()))
                .collect::<Vec<_>>()
                .join(", "));
        }
        Ok(Arc::new(Self {
            config,
            mapping,
            fetch,
            known: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
            believed: Remembered::new(REMEMBER.0, REMEMBER.1),
            voucher: Voucher::default(),
        }))
    }

    /// The URL by which tokens name it.
    pub fn url(&self) -> &str {
        &self.config.issuer.url
    }

    /// Ends all identities that it gave: it is believed no longer.
    pub fn withdraw(&self) {
        self.voucher.withdraw();
    }

    /// The configuration of this issuer.
    pub fn config(&self) -> &JwtAuthenticator {
        &self.config
    }

    /// Whose token this is, with `system:authenticated` among the groups.
    ///
    /// # Errors
    /// It is not a token of this issuer, not for these audiences, not valid now, not signed by a known key, or not of who
    /// the rules want.
    pub async fn authenticate(self: &Arc<Self>, token: &str, now: i64) -> Result<User, OidcError> {
        if token.len() > MAX_TOKEN {
            return failed("the token is too large");
        }
        if let Some((expires, user)) = self.believed.get(token).filter(|(expires, _)| now < *expires) {
            let _ = expires;
            return Ok(user);
        }
        let Some(signed) = Signed::parse(token) else { return failed("malformed token") };
        let expires = self.check(&signed.claims, now)?;
        self.verify(&signed).await?;
        let mut user = self.mapping.user(&signed.claims)?;
        user.groups.push(AUTHENTICATED.to_owned());
        let voucher = Some(self.voucher.clone());
        user.basis = Some(Arc::new(Basis { until: Some(expires), voucher, ..Basis::default() }));
        self.believed.put(token, (expires, user.clone()));
        Ok(user)
    }

    /// Issuer, audience and times. Gives when it expires.
    fn check(&self, claims: &Map, now: i64) -> Result<i64, OidcError> {
        if issuer_of(claims) != Some(self.url()) {
            return failed("the token is of another issuer");
        }
        let known = |audience: &str| self.config.issuer.audiences.iter().any(|known| known == audience);
        let accepted = match claims.get("aud") {
            Some(Value::String(one)) => known(one),
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).any(known),
            _ => false,
        };
        if !accepted {
            return failed(format!("expected audience in {:?}", self.config.issuer.audiences));
        }
        // Whole seconds: fractions are allowed (RFC 7519, 2).
        let time =
            |name: &str| claims.get(name).and_then(Value::as_f64).map(|seconds| seconds.floor() as i64);
        let expires = time("exp").unwrap_or_default();
        if now >= expires {
            return failed(format!("token is expired (Token Expiry: {expires})"));
        }
        if let Some(begins) = time("nbf").filter(|begins| now.saturating_add(LEEWAY) < *begins) {
            return failed(format!("current time {now} before the nbf (not before) time: {begins}"));
        }
        Ok(expires)
    }

    async fn verify(self: &Arc<Self>, token: &Signed<'_>) -> Result<(), OidcError> {
        let keys = self.keys().await?;
        let mut verdict = keys.verify(token);
        if verdict == Verdict::UnknownKey && self.may_look() {
            verdict = self.look(Some(&keys)).await?.verify(token);
        }
        match verdict {
            Verdict::Verified => Ok(()),
            Verdict::UnknownKey => failed("failed to verify signature: no key of that identifier"),
            Verdict::Refused => failed("failed to verify signature"),
        }
    }

    /// Whether enough time has passed since the last look.
    fn may_look(&self) -> bool {
        self.known.lock().tried.is_none_or(|tried| tried.elapsed() >= PAUSE)
    }

    async fn keys(self: &Arc<Self>) -> Result<Arc<RemoteKeys>, OidcError> {
        let (keys, stale) = {
            let known = self.known.lock();
            (known.keys.clone(), known.fetched.is_none_or(|at| at.elapsed() >= FRESH))
        };
        match keys {
            Some(keys) => {
                if stale && self.may_look() {
                    let (this, old) = (self.clone(), keys.clone());
                    tokio::spawn(async move { this.look(Some(&old)).await.map(drop) });
                }
                Ok(keys)
            }
            None if self.may_look() => self.look(None).await,
            None => failed("authenticator not initialized"),
        }
    }

    /// Fetches the keys, unless somebody else has just done so. Where that fails, those that are known go on.
    async fn look(&self, old: Option<&Arc<RemoteKeys>>) -> Result<Arc<RemoteKeys>, OidcError> {
        let _turn = self.fetching.lock().await;
        {
            let mut known = self.known.lock();
            let renewed = known.keys.as_ref().filter(|keys| old.is_none_or(|old| !Arc::ptr_eq(keys, old)));
            if let Some(keys) = renewed {
                return Ok(keys.clone());
            }
            if known.keys.is_none() && known.tried.is_some_and(|tried| tried.elapsed() < PAUSE) {
                return failed("authenticator not initialized");
            }
            known.tried = Some(Instant::now());
        }
        let fetched = self.fetch_keys().await;
        let mut known = self.known.lock();
        known.tried = Some(Instant::now());
        match fetched {
            Ok(keys) => {
                let keys = Arc::new(keys);
                (known.keys, known.fetched) = (Some(keys.clone()), Some(Instant::now()));
                Ok(keys)
            }
            Err(error) => {
                tracing::warn!(issuer = self.url(), error, "failed to fetch the keys of an issuer");
                known.keys.clone().ok_or_else(|| OidcError("authenticator not initialized".to_owned()))
            }
        }
    }

    async fn fetch_keys(&self) -> Result<RemoteKeys, String> {
        #[derive(Deserialize)]
        struct Provider {
            issuer: String,
            jwks_uri: String,
        }
        let issuer = &self.config.issuer;
        let document = self.fetch.get(&issuer.discovery(), &issuer.certificate_authority).await?;
        let provider: Provider = serde_json::from_slice(&document)
            .map_err(|error| format!("the issuer's configuration can't be read: {error}"))?;
        if provider.issuer != issuer.url {
            return Err(format!(
                "the issuer did not match what its configuration says, expected {:?} got {:?}",
                issuer.url, provider.issuer
            ));
        }
        if !provider.jwks_uri.starts_with("https://") {
            return Err(format!("jwks_uri {:?} is no https URL", provider.jwks_uri));
        }
        RemoteKeys::parse(&self.fetch.get(&provider.jwks_uri, &issuer.certificate_authority).await?)
    }
}
