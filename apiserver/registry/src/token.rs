//! Continue tokens: the place where a list goes on, sealed.
//!
//! A token is base64 of a format byte, a nonce and an AES-256-GCM ciphertext with its tag. Its key is derived (HKDF-SHA256)
//! from a secret of the server and from whom and what the list was for: the user, the plane, the view, the resource, the
//! namespace and the selectors. So a token tells its holder nothing, and opens for that list of that user alone. As each
//! list of each user has a key of its own, random nonces do not come near their bound.
//!
//! Servers that share the secret read each other's tokens, before and after a restart.

use crate::{ListOptions, Operation};
use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey},
    hkdf::{HKDF_SHA256, Prk, Salt},
};
use base64::{
    DecodeError, Engine, alphabet,
    engine::{GeneralPurpose, general_purpose::NO_PAD},
};
use freehold_machinery::{PlaneId, Result, Status, go};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use uuid::Uuid;

/// The longest continue token that is read, in bytes.
const MAX_TOKEN: usize = 4_096;
/// The first byte of a sealed token; no JSON begins with it.
const FORMAT: u8 = 1;
const NONCE: usize = 12;
const TAG: usize = 16;
const PURPOSE: &[u8] = b"freehold continue tokens";

/// As Go reads it, which takes no notice of the last bits.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// The secrets behind continue tokens: the first seals, each opens.
pub struct TokenSecrets(RwLock<Arc<[Prk]>>);

impl Default for TokenSecrets {
    /// A secret that no other server has.
    fn default() -> Self {
        let random = [Uuid::new_v4(), Uuid::new_v4()].map(Uuid::into_bytes).concat();
        Self::new([random])
    }
}

impl TokenSecrets {
    /// Secrets that all servers of a store have in common, and those that they had before.
    pub fn new(secrets: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        Self(RwLock::new(extract(secrets)))
    }

    /// Replaces the secrets. Tokens that were sealed by one that is not among them open no more.
    pub fn replace(&self, secrets: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        *self.0.write() = extract(secrets);
    }
}

fn extract(secrets: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Arc<[Prk]> {
    let salt = Salt::new(HKDF_SHA256, PURPOSE);
    secrets.into_iter().map(|secret| salt.extract(secret.as_ref())).collect()
}

/// The place where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    /// Revision; 0: whatever is current.
    pub(crate) rv: u64,
    /// The last place that was sent.
    pub(crate) start: String,
    /// The plane of that place, in a list over several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) plane: Option<String>,
}

impl Token {
    pub(crate) fn new(rv: u64, start: &str) -> Self {
        Self { rv, start: start.into(), plane: None }
    }

    /// A place in a list over several planes.
    pub(crate) fn across(rv: u64, plane: &PlaneId, start: &str) -> Self {
        Self { plane: Some(plane.to_string()), ..Self::new(rv, start) }
    }

    /// The plane, in a token of a list over several.
    pub(crate) fn plane(&self) -> Result<PlaneId> {
        let plane = self.plane.as_deref().and_then(|plane| plane.parse().ok());
        plane.ok_or_else(|| invalid("it is of a list of one plane"))
    }

    fn is_place(&self) -> bool {
        !self.start.contains("..") && self.start.split('/').count() <= 2
    }
}

/// What a list's tokens are sealed for.
pub(crate) struct Seal<'a> {
    secrets: &'a TokenSecrets,
    op: &'a Operation,
    options: &'a ListOptions,
    /// The name of the view; empty for the plane itself.
    view: &'a str,
}

impl<'a> Seal<'a> {
    pub(crate) fn new(
        secrets: &'a TokenSecrets,
        op: &'a Operation,
        options: &'a ListOptions,
        view: &'a str,
    ) -> Self {
        Self { secrets, op, options, view }
    }

    /// A digest of all that a token is bound to. Each part has its length before it.
    fn bound(&self) -> [u8; 32] {
        let Self { op, options, view, .. } = self;
        let home = op.user.plane.as_ref().map(PlaneId::as_str).unwrap_or_default();
        let namespace = op.namespace.as_deref().unwrap_or_default();
        let user = [op.user.name.as_str(), op.user.uid.as_str(), home];
        let list = [op.plane.as_str(), view, &op.ty.group, &op.ty.plural, namespace];
        let selectors = [options.label_selector.as_str(), options.field_selector.as_str()];
        let mut digest = Sha256::new();
        for part in user.into_iter().chain(list).chain(selectors) {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        digest.finalize().into()
    }

    fn key(secret: &Prk, bound: &[u8; 32]) -> Option<RandomizedNonceKey> {
        let mut key = [0; 32];
        secret.expand(&[&bound[..]], HKDF_SHA256).ok()?.fill(&mut key).ok()?;
        RandomizedNonceKey::new(&AES_256_GCM, &key).ok()
    }

    /// The text of a token.
    ///
    /// # Errors
    /// 500 where there is no secret.
    pub(crate) fn seal(&self, token: &Token) -> Result<String> {
        let secrets = self.secrets.0.read().clone();
        let sealed = secrets.first().and_then(|secret| {
            let mut text = serde_json::to_vec(token).ok()?;
            let key = Self::key(secret, &self.bound())?;
            let nonce = key.seal_in_place_append_tag(Aad::from([FORMAT]), &mut text).ok()?;
            Some([&[FORMAT], &nonce.as_ref()[..], &text].concat())
        });
        let sealed = sealed.ok_or_else(|| Status::internal("a continue token can't be sealed"))?;
        Ok(BASE64.encode(sealed))
    }

    /// The token that the request brings, if any.
    ///
    /// # Errors
    /// 400 for what is no token of this list and this user.
    pub(crate) fn open(&self) -> Result<Option<Token>> {
        let text = self.options.continue_token.as_str();
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() > MAX_TOKEN {
            return Err(invalid("it is too long"));
        }
        let bytes = BASE64.decode(text).map_err(|error| invalid(&illegal(text, error)))?;
        match self.unseal(&bytes) {
            Some(token) if token.is_place() => Ok(Some(token)),
            Some(_) => Err(invalid("it names no place")),
            None => Err(invalid(&unreadable(&bytes))),
        }
    }

    fn unseal(&self, bytes: &[u8]) -> Option<Token> {
        let (nonce, sealed) = bytes.strip_prefix(&[FORMAT])?.split_first_chunk::<NONCE>()?;
        let (secrets, bound) = (self.secrets.0.read().clone(), self.bound());
        secrets.iter().find_map(|secret| {
            let mut text = sealed.to_vec();
            let key = Self::key(secret, &bound)?;
            let plain = key.open_in_place(Nonce::from(nonce), Aad::from([FORMAT]), &mut text).ok()?;
            serde_json::from_slice(plain).ok()
        })
    }
}

fn invalid(why: &str) -> Status {
    Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
}

/// What is wrong with bytes that do not open, in kube-apiserver's words where it would find the same.
fn unreadable(bytes: &[u8]) -> String {
    if bytes.first() == Some(&FORMAT) && bytes.len() > NONCE + TAG {
        return "it is not of this list, or of another user".to_owned();
    }
    if let Some(error) = go::syntax_error(bytes) {
        return error;
    }
    match serde_json::from_slice::<Value>(bytes) {
        Ok(other) => {
            let version = other["v"].as_str().unwrap_or_default();
            format!("server does not recognize this encoded version {version}")
        }
        Err(error) => error.to_string(),
    }
}

/// What is wrong with base64, in Go's words: where the first character stands that can't be there.
fn illegal(text: &str, error: DecodeError) -> String {
    let at = match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
        DecodeError::InvalidLength(length) => length / 4 * 4,
        DecodeError::InvalidPadding => text.len(),
    };
    format!("illegal base64 data at input byte {at}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use freehold_apiserver_admission::Annotations;
    use freehold_apiserver_catalog::TypeSet;
    use freehold_machinery::User;

    /// A list of ConfigMaps in a namespace of a plane, as a user asks for it.
    pub(crate) fn list_of(user: &str, plane: &PlaneId, namespace: &str) -> Operation {
        let types = TypeSet::builtin();
        Operation {
            plane: plane.clone(),
            ty: types.find("", "v1", "configmaps").expect("a built-in kind").clone(),
            types,
            user: Arc::new(User { name: user.into(), ..User::default() }),
            namespace: Some(namespace.into()),
            name: None,
            subresource: None,
            seen: 0,
            narrowed: false,
            annotations: Annotations::default(),
        }
    }

    pub(crate) fn asking(token: &str) -> ListOptions {
        ListOptions { continue_token: token.into(), ..ListOptions::default() }
    }

    fn open(
        secrets: &TokenSecrets,
        op: &Operation,
        options: &ListOptions,
        view: &str,
    ) -> Result<Option<Token>> {
        Seal::new(secrets, op, options, view).open()
    }

    #[test]
    fn token_opens_for_its_user_and_its_list_alone() {
        let (secrets, core, infra) = (TokenSecrets::default(), PlaneId::core(), PlaneId::infra());
        let op = list_of("ann", &core, "a");
        let token = Token::new(7, "a/secret-name");
        let text = Seal::new(&secrets, &op, &asking(""), "view").seal(&token).unwrap();
        let asked = asking(&text);
        assert_eq!(open(&secrets, &op, &asked, "view").unwrap(), Some(token));
        let known = BASE64.decode(&text).unwrap();
        assert!(!known.windows(6).any(|bytes| bytes == b"secret"));

        let mut of_uid = op.clone();
        Arc::make_mut(&mut of_uid.user).uid = "u".into();
        let mut of_plane = op.clone();
        Arc::make_mut(&mut of_plane.user).plane = Some(infra.clone());
        let mut of_secrets = op.clone();
        of_secrets.ty = op.types.find("", "v1", "secrets").unwrap().clone();
        let others = [
            list_of("bob", &core, "a"),
            list_of("ann", &infra, "a"),
            list_of("ann", &core, "b"),
            of_uid,
            of_plane,
            of_secrets,
        ];
        for other in &others {
            assert_eq!(open(&secrets, other, &asked, "view").unwrap_err().code, 400);
        }
        let labelled = ListOptions { label_selector: "a=b".into(), ..asked.clone() };
        let fielded = ListOptions { field_selector: "metadata.name=a".into(), ..asked.clone() };
        for (options, view) in [(&asked, "other"), (&labelled, "view"), (&fielded, "view")] {
            assert_eq!(open(&secrets, &op, options, view).unwrap_err().code, 400);
        }
    }

    #[test]
    fn group_of_a_user_and_limit_of_a_page_may_change_between_pages() {
        let secrets = TokenSecrets::default();
        let mut op = list_of("ann", &PlaneId::core(), "a");
        let text = Seal::new(&secrets, &op, &asking(""), "").seal(&Token::new(7, "a/b")).unwrap();
        Arc::make_mut(&mut op.user).groups.push("new".into());
        let options = ListOptions { limit: 3, ..asking(&text) };
        assert!(open(&secrets, &op, &options, "").unwrap().is_some());
    }

    #[test]
    fn servers_with_a_secret_in_common_read_each_others_tokens() {
        let op = list_of("ann", &PlaneId::core(), "a");
        let (one, other) = (TokenSecrets::new(["old"]), TokenSecrets::new(["new", "old"]));
        let text = Seal::new(&one, &op, &asking(""), "").seal(&Token::new(7, "a/b")).unwrap();
        assert!(open(&other, &op, &asking(&text), "").is_ok());
        other.replace(["new"]);
        assert_eq!(open(&other, &op, &asking(&text), "").unwrap_err().code, 400);
    }
}
