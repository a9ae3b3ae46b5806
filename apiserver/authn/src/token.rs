//! Service account tokens: bound JSON Web Tokens as Kubernetes issues them (KEP-1205), each of one plane.

use crate::keys::{KeySet, PublicKey};
use arc_swap::ArcSwap;
use freehold_machinery::{
    PlaneId, User, Value,
    user::{AUTHENTICATED, Basis, CREDENTIAL_ID, Footing, Voucher},
};
use jsonwebtoken::{Algorithm, Validation};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};
use tokio::sync::watch;

/// How far clocks may differ, in seconds; Kubernetes' value.
pub const LEEWAY: i64 = 60;
/// Tokens larger than this, in bytes, are refused unread. Real ones are about 1 KiB.
pub const MAX_BYTES: usize = 16 * 1024;
/// How many verified signatures are remembered.
const REMEMBERED: usize = 4096;

/// What a token can be bound to, so that it ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BoundKind {
    /// A Pod of the token's namespace.
    Pod,
    /// A Secret of the token's namespace.
    Secret,
    /// A Node.
    Node,
}

/// What is there now. Answers come from memory: this is asked on each request that carries a token.
pub trait ServiceAccountLookup {
    /// The uid of a ServiceAccount; `None` where there is none or it is being deleted.
    fn service_account(&self, plane: &PlaneId, namespace: &str, name: &str) -> Option<String>;
    /// The uid of an object that tokens are bound to. `namespace` is empty for nodes.
    fn object_uid(&self, plane: &PlaneId, kind: BoundKind, namespace: &str, name: &str) -> Option<String>;
}

/// Why a token is not believed. Clients learn no more than 401; a TokenReview says it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a token, not ours, not signed by a known key, or not with the algorithm of that key.
    #[error("the token cannot be verified")]
    Unverifiable,
    /// The token is of another issuer, or of another plane.
    #[error("the token was issued for another control plane")]
    OtherPlane,
    /// The token is for others.
    #[error("token audiences {0:?} is invalid for the target audiences {1:?}")]
    Audience(Vec<String>, Vec<String>),
    /// Too late.
    #[error("service account token has expired")]
    Expired,
    /// Too early.
    #[error("service account token is not valid yet")]
    NotYetValid,
    /// Subject and claims contradict each other.
    #[error("service account token has contradicting claims")]
    Contradiction,
    /// What the token depends on is gone, or another one of the same name.
    #[error("service account token has been invalidated: its {0} is gone")]
    Gone(&'static str),
}

/// The claims of a token, in Kubernetes' form.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Claims {
    pub(crate) aud: Audiences,
    pub(crate) exp: i64,
    pub(crate) iat: i64,
    pub(crate) iss: String,
    pub(crate) jti: String,
    #[serde(rename = "kubernetes.io")]
    pub(crate) kubernetes: Kubernetes,
    #[serde(rename = "freehold.dev")]
    pub(crate) freehold: Freehold,
    pub(crate) nbf: i64,
    pub(crate) sub: String,
}

/// One audience or several (RFC 7519, 4.1.3).
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Audiences {
    Many(Vec<String>),
    One(String),
}

impl Audiences {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::Many(many) => many,
            Self::One(one) => std::slice::from_ref(one),
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Freehold {
    pub(crate) plane: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kubernetes {
    pub(crate) namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Reference>,
    pub(crate) serviceaccount: Reference,
}

/// An object by name and uid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    pub(crate) name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
}

/// A token that was believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Whose it is.
    pub user: User,
    /// The audiences for which it was accepted.
    pub audiences: Vec<String>,
}

/// Issues and verifies the tokens of all planes.
pub struct TokenIssuer {
    base: String,
    audiences: Vec<String>,
    keys: ArcSwap<KeySet>,
    /// Whether planes may have pairs that sign tokens, too.
    pairs: bool,
    /// Tokens whose signature was verified, by their hash. All else is checked each time.
    remembered: Mutex<HashMap<[u8; 32], Arc<Signed>>>,
    changes: watch::Sender<()>,
}

/// What a token claims, and what the key that signed it vouches for.
struct Signed {
    claims: Claims,
    voucher: Voucher,
}

impl TokenIssuer {
    /// An issuer whose tokens name `{base}/{plane}` as their issuer. `audiences` are accepted besides that.
    pub fn new(base: &str, audiences: &[&str], keys: KeySet) -> Self {
        Self {
            base: base.trim_end_matches('/').to_owned(),
            audiences: audiences.iter().map(ToString::to_string).collect(),
            keys: ArcSwap::from_pointee(keys),
            pairs: false,
            remembered: Mutex::default(),
            changes: watch::Sender::new(()),
        }
    }

    /// Believes in each project's plane what the pair of that plane signs.
    pub fn with_pairs(self) -> Self {
        Self { pairs: true, ..self }
    }

    /// The issuer of a plane's tokens, a URL.
    pub fn issuer(&self, plane: &PlaneId) -> String {
        format!("{}/{plane}", self.base)
    }

    /// The audiences that stand for a plane's API: of a token that asks for none these are its own.
    pub fn api_audiences(&self, plane: &PlaneId) -> Vec<String> {
        std::iter::once(self.issuer(plane)).chain(self.audiences.iter().cloned()).collect()
    }

    /// Whether an issuer is that of a plane's tokens here.
    pub fn is_own(&self, issuer: &str) -> bool {
        issuer.strip_prefix(&self.base).is_some_and(|rest| rest.starts_with('/'))
    }

    /// What all its issuers begin with.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// The keys that sign and verify now.
    pub fn keys(&self) -> Arc<KeySet> {
        self.keys.load_full()
    }

    /// Replaces the keys. Tokens of keys that are no longer among them are not believed from now on, and who was believed for
    /// them is so no longer.
    pub fn replace_keys(&self, mut keys: KeySet) {
        let before = self.keys.load_full();
        keys.follow(&before);
        let keys = Arc::new(keys);
        self.keys.store(keys.clone());
        before.withdraw_unless_in(&keys);
        self.remembered.lock().clear();
        self.changes.send_replace(());
    }

    /// Tells when the keys were replaced.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// The JSON Web Key Set of a plane (RFC 7517).
    pub fn jwks(&self, plane: &PlaneId) -> Value {
        let keys = self.keys.load();
        keys.jwks(&self.keys_of_pair(&keys, plane))
    }

    /// Whether one of the keys that are believed in a plane signed a token, of whatever time.
    pub fn signed(&self, plane: &PlaneId, token: &str) -> bool {
        self.signed_claims(plane, token).is_ok()
    }

    /// Verifies a token of a service account for requests to the plane's own API.
    ///
    /// # Errors
    /// [`TokenError`] for a token that is of another plane, audience or time, or whose account or bound object is
    /// gone.
    pub fn verify(
        &self,
        plane: &PlaneId,
        token: &str,
        now: i64,
        lookup: &dyn ServiceAccountLookup,
    ) -> Result<Verified, TokenError> {
        self.verify_for(plane, token, &self.api_audiences(plane), now, lookup)
    }

    /// Verifies a token of a service account for a recipient that answers to one of `audiences`.
    ///
    /// # Errors
    /// [`TokenError`] for a token that is of another plane, audience or time, or whose account or bound object is
    /// gone.
    pub fn verify_for(
        &self,
        plane: &PlaneId,
        token: &str,
        audiences: &[String],
        now: i64,
        lookup: &dyn ServiceAccountLookup,
    ) -> Result<Verified, TokenError> {
        let signed = self.signed_claims(plane, token)?;
        let claims = &signed.claims;
        if claims.freehold.plane != plane.as_str() || claims.iss != self.issuer(plane) {
            return Err(TokenError::OtherPlane);
        }
        check_time(claims, now)?;
        let accepted = accepted_audiences(claims, audiences)?;
        let kubernetes = &claims.kubernetes;
        if claims.sub != subject(&kubernetes.namespace, &kubernetes.serviceaccount.name) {
            return Err(TokenError::Contradiction);
        }
        check_alive(plane, kubernetes, lookup)?;
        Ok(Verified { user: user(plane, &signed), audiences: accepted })
    }

    /// The claims of a token that a key signed which is believed in a plane.
    fn signed_claims(&self, plane: &PlaneId, token: &str) -> Result<Arc<Signed>, TokenError> {
        if token.len() > MAX_BYTES {
            return Err(TokenError::Unverifiable);
        }
        let place = Sha256::new().chain_update(plane.as_str()).chain_update([0]).chain_update(token);
        let hash: [u8; 32] = place.finalize().into();
        // One may have been verified while the keys were replaced.
        if let Some(signed) = self.remembered.lock().get(&hash).filter(|signed| signed.voucher.stands()) {
            return Ok(signed.clone());
        }
        let signed = Arc::new(self.decode(plane, token).ok_or(TokenError::Unverifiable)?);
        let mut remembered = self.remembered.lock();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(hash, signed.clone());
        Ok(signed)
    }

    fn decode(&self, plane: &PlaneId, token: &str) -> Option<Signed> {
        let header = jsonwebtoken::decode_header(token).ok()?;
        if header.alg != Algorithm::ES256 || header.crit.is_some() {
            return None;
        }
        let keys = self.keys.load();
        let id = header.kid.as_deref();
        if let Some(key) = keys.find(id) {
            return signed_by(key, token);
        }
        let of_pair = self.keys_of_pair(&keys, plane).into_iter().find(|key| id.is_some_and(|id| key.is(id)));
        signed_by(&of_pair?, token)
    }

    /// The keys of a plane's pair. Only projects have pairs.
    fn keys_of_pair(&self, keys: &KeySet, plane: &PlaneId) -> Vec<PublicKey> {
        if !self.pairs || plane.is_core() || *plane == PlaneId::infra() {
            return Vec::new();
        }
        keys.of_pair(plane).unwrap_or_else(|error| {
            tracing::error!(%plane, %error, "failed to derive the keys of a plane's pair");
            Vec::new()
        })
    }
}

/// What a token says, if a key signed it. Times, issuer and audience are checked on each use of the token, not only when its
/// signature is.
fn signed_by(key: &PublicKey, token: &str) -> Option<Signed> {
    let mut validation = Validation::new(Algorithm::ES256);
    validation.required_spec_claims = HashSet::new();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let claims = jsonwebtoken::decode::<Claims>(token, &key.key, &validation).ok()?.claims;
    Some(Signed { claims, voucher: key.voucher.clone() })
}

impl std::fmt::Debug for TokenIssuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenIssuer")
            .field("base", &self.base)
            .field("keys", &self.keys.load())
            .finish_non_exhaustive()
    }
}

/// The name of a service account's user.
pub fn subject(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// Namespace and name of the service account behind a user's name; `None` for other users.
pub fn split_subject(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
}

/// The groups of a namespace's service accounts.
pub fn groups(namespace: &str) -> Vec<String> {
    vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")]
}

fn check_time(claims: &Claims, now: i64) -> Result<(), TokenError> {
    if now > claims.exp.saturating_add(LEEWAY) {
        return Err(TokenError::Expired);
    }
    let earliest = claims.nbf.max(claims.iat);
    if now < earliest.saturating_sub(LEEWAY) { Err(TokenError::NotYetValid) } else { Ok(()) }
}

fn accepted_audiences(claims: &Claims, audiences: &[String]) -> Result<Vec<String>, TokenError> {
    let own = claims.aud.as_slice();
    let accepted: Vec<String> = audiences.iter().filter(|audience| own.contains(audience)).cloned().collect();
    if accepted.is_empty() {
        Err(TokenError::Audience(own.to_vec(), audiences.to_vec()))
    } else {
        Ok(accepted)
    }
}

/// Whether all that the token depends on is still there. The node of a bound Pod is only information.
fn check_alive(
    plane: &PlaneId,
    claims: &Kubernetes,
    lookup: &dyn ServiceAccountLookup,
) -> Result<(), TokenError> {
    let namespace = claims.namespace.as_str();
    let account = &claims.serviceaccount;
    if lookup.service_account(plane, namespace, &account.name).as_ref() != Some(&account.uid) {
        return Err(TokenError::Gone("ServiceAccount"));
    }
    let node = claims.node.as_ref().filter(|_| claims.pod.is_none());
    let bound = [
        (BoundKind::Pod, "Pod", claims.pod.as_ref(), namespace),
        (BoundKind::Secret, "Secret", claims.secret.as_ref(), namespace),
        (BoundKind::Node, "Node", node, ""),
    ];
    for (kind, word, reference, namespace) in bound {
        if let Some(Reference { name, uid }) = reference
            && lookup.object_uid(plane, kind, namespace, name).as_ref() != Some(uid)
        {
            return Err(TokenError::Gone(word));
        }
    }
    Ok(())
}

fn user(plane: &PlaneId, signed: &Signed) -> User {
    let claims = &signed.claims;
    let kubernetes = &claims.kubernetes;
    let mut extra = BTreeMap::from([(CREDENTIAL_ID.to_owned(), vec![format!("JTI={}", claims.jti)])]);
    for (word, reference) in [("pod", &kubernetes.pod), ("node", &kubernetes.node)] {
        let Some(Reference { name, uid }) = reference else { continue };
        for (field, value) in
            [("name", name), ("uid", uid)].into_iter().filter(|(_, value)| !value.is_empty())
        {
            extra.insert(format!("authentication.kubernetes.io/{word}-{field}"), vec![value.clone()]);
        }
    }
    let mut groups = groups(&kubernetes.namespace);
    groups.push(AUTHENTICATED.to_owned());
    User {
        name: claims.sub.clone(),
        uid: kubernetes.serviceaccount.uid.clone(),
        groups,
        extra,
        plane: Some(plane.clone()),
        from_host: false,
        basis: Some(Arc::new(basis(plane, signed))),
        is_subject: false,
    }
}

/// What [`check_alive`] and [`check_time`] ask for, for as long as something goes on.
fn basis(plane: &PlaneId, Signed { claims, voucher }: &Signed) -> Basis {
    let Kubernetes { namespace, node, pod, secret, serviceaccount } = &claims.kubernetes;
    let node = node.as_ref().filter(|_| pod.is_none());
    let needed = [
        ("serviceaccounts", Some(serviceaccount), namespace.as_str()),
        ("pods", pod.as_ref(), namespace),
        ("secrets", secret.as_ref(), namespace),
        ("nodes", node, ""),
    ];
    let footing = |(resource, reference, namespace): (&'static str, Option<&Reference>, &str)| {
        let Reference { name, uid } = reference?.clone();
        Some(Footing {
            plane: plane.clone(),
            group: "",
            resource,
            namespace: namespace.to_owned(),
            name,
            uid,
        })
    };
    Basis {
        until: Some(claims.exp.saturating_add(LEEWAY + 1)),
        objects: needed.into_iter().filter_map(footing).collect(),
        voucher: Some(voucher.clone()),
        generation: None,
    }
}
