//! Key-encryption keys from a file, in the form of Kubernetes' `EncryptionConfiguration`.
//!
//! ```yaml
//! apiVersion: apiserver.config.k8s.io/v1
//! kind: EncryptionConfiguration
//! resources:
//!   - resources: [secrets, configmaps]        # left out: all types
//!     providers:
//!       - aesgcm:
//!           keys:
//!             - {name: key-2026-11, secret: <32 random bytes, base64>}
//!             - {name: key-2026-05, secret: <the one before>}
//!       - identity: {}
//! ```
//! What is written is sealed by the first provider: with the first key of `aesgcm`, or left plain where `identity` comes
//! first. All keys open, and what is plain can always be read. Unlike in Kubernetes, the keys here seal data keys and
//! never values, so that a key can be replaced without writing each value anew.

use crate::{
    cipher::{Cipher, KeyBytes},
    kinds::Kinds,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Deserialize;
use std::{collections::BTreeMap, fmt};
use zeroize::{Zeroize, Zeroizing};

const API_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
/// Most keys in a file.
const MAX_KEYS: usize = 64;
/// Longest name of a key.
const MAX_NAME: usize = 253;

/// Keys that seal data keys, and what is to be encrypted.
pub struct EncryptionKeys {
    /// In the order of the file.
    keys: Vec<(String, Cipher)>,
    /// Whether values are encrypted when they are written.
    writes: bool,
    kinds: Kinds,
}

/// Why a file of keys can't be used. Never tells a key.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// It can't be read as what it should be.
    #[error("it is not an {KIND}: {0}")]
    Malformed(String),
    /// A provider that there is not.
    #[error("provider {0:?} is not supported; there are aesgcm and identity")]
    Provider(String),
    /// A key that is none.
    #[error("key {name:?}: {why}")]
    Key {
        /// Its name.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    resources: Vec<Rule>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    resources: Option<Vec<String>>,
    providers: Vec<BTreeMap<String, Option<Provider>>>,
}

/// Any provider's settings: those of `aesgcm`; others are refused by their name before anyone looks inside.
#[derive(Deserialize)]
struct Provider {
    #[serde(default)]
    keys: Vec<NamedKey>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedKey {
    name: String,
    secret: Text,
}

/// Text that is wiped when it is dropped.
#[derive(Deserialize)]
struct Text(String);

impl Drop for Text {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl EncryptionKeys {
    /// Reads the text of a file with encryption keys.
    ///
    /// # Errors
    /// [`KeysError`] for text that is no `EncryptionConfiguration`, a provider that is not supported, or a key of a
    /// wrong size.
    pub fn parse(text: &str) -> Result<Self, KeysError> {
        // The parser's own message could quote the file.
        let file: File = serde_saphyr::from_str(text).map_err(|error| malformed(&error))?;
        if (file.api_version.as_str(), file.kind.as_str()) != (API_VERSION, KIND) {
            return Err(KeysError::Malformed(format!("apiVersion must be {API_VERSION} and kind {KIND}")));
        }
        let [rule] = <[Rule; 1]>::try_from(file.resources)
            .map_err(|_| KeysError::Malformed("resources must have one entry".into()))?;
        let kinds = match &rule.resources {
            None => Kinds::all(),
            Some(patterns) => Kinds::parse(patterns.iter().map(String::as_str))
                .map_err(|wrong| KeysError::Malformed(format!("{wrong:?} names no resources")))?,
        };
        let mut keys = Vec::new();
        let mut writes = None;
        for (name, provider) in rule.providers.into_iter().flatten() {
            match name.as_str() {
                "identity" => {
                    writes.get_or_insert(false);
                }
                "aesgcm" => {
                    writes.get_or_insert(true);
                    add(&mut keys, provider.map(|provider| provider.keys).unwrap_or_default())?;
                }
                _ => return Err(KeysError::Provider(name)),
            }
        }
        if keys.is_empty() {
            return Err(KeysError::Malformed("it has no key".into()));
        }
        Ok(Self { keys, writes: writes.unwrap_or(false), kinds })
    }

    /// A key by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&Cipher> {
        self.keys.iter().find(|(own, _)| own == name).map(|(_, cipher)| cipher)
    }

    /// The key that seals new data keys.
    pub(crate) fn first(&self) -> Option<(&str, &Cipher)> {
        self.keys.first().map(|(name, cipher)| (name.as_str(), cipher))
    }

    /// Names, in the order of the file.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.keys.iter().map(|(name, _)| name.as_str())
    }

    /// Which types are encrypted when they are written; `None`: nothing is.
    pub(crate) fn encrypted(&self) -> Option<&Kinds> {
        self.writes.then_some(&self.kinds)
    }
}

impl fmt::Debug for EncryptionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

/// Where it went wrong, without a word of the text.
fn malformed(error: &serde_saphyr::Error) -> KeysError {
    KeysError::Malformed(match error.location() {
        Some(place) => format!("line {}, column {}", place.line(), place.column()),
        None => "its fields are others".into(),
    })
}

fn add(keys: &mut Vec<(String, Cipher)>, more: Vec<NamedKey>) -> Result<(), KeysError> {
    for NamedKey { name, secret } in more {
        let wrong = |why| KeysError::Key { name: name.clone(), why };
        if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
            return Err(wrong("the name must have 1 to 253 printable characters"));
        }
        if keys.iter().any(|(other, _)| *other == name) || keys.len() == MAX_KEYS {
            return Err(wrong("the name is there twice, or there are more than 64 keys"));
        }
        let bytes =
            Zeroizing::new(STANDARD.decode(secret.0.trim()).map_err(|_| wrong("the secret is not base64"))?);
        let bytes = <[u8; 32]>::try_from(&bytes[..]).map_err(|_| wrong("the secret must have 32 bytes"))?;
        let cipher = Cipher::new(&KeyBytes::new(bytes)).map_err(|_| wrong("the secret can't be used"))?;
        keys.push((name, cipher));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(providers: &str) -> String {
        format!("apiVersion: {API_VERSION}\nkind: {KIND}\nresources:\n  - providers:\n{providers}")
    }

    fn gcm(keys: &[(&str, &[u8])]) -> String {
        let keys = keys
            .iter()
            .map(|(name, key)| format!("            - {{name: {name}, secret: {}}}\n", STANDARD.encode(key)));
        format!("      - aesgcm:\n          keys:\n{}", keys.collect::<String>())
    }

    #[test]
    fn the_first_provider_decides_what_is_written_and_all_keys_open() {
        let (one, two) = ([1; 32], [2; 32]);
        let text = file(&gcm(&[("new", &one), ("old", &two)]));
        let keys = EncryptionKeys::parse(&text).unwrap();
        assert_eq!(keys.names().collect::<Vec<_>>(), ["new", "old"]);
        assert!(keys.encrypted().is_some() && keys.get("old").is_some());
        let text = file(&format!("      - identity: {{}}\n{}", gcm(&[("old", &two)])));
        assert!(EncryptionKeys::parse(&text).unwrap().encrypted().is_none());
    }

    #[test]
    fn what_can_not_be_used_is_said_and_no_key_is_told() {
        let short = STANDARD.encode([7; 16]);
        let kms = "      - kms: {apiVersion: v2, name: x, endpoint: unix:///x}\n";
        let cbc = "      - aescbc: {keys: [{name: a, secret: AAAA}]}\n";
        let rows = [
            (file(kms), "provider \"kms\" is not supported"),
            (file(cbc), "provider \"aescbc\" is not supported"),
            (file("      - secretbox: {keys: []}\n"), "\"secretbox\""),
            (file(&gcm(&[("a", &[7; 16])])), "must have 32 bytes"),
            (file(&gcm(&[("a", &[7; 32]), ("a", &[8; 32])])), "twice"),
            (file("      - aesgcm: {keys: [{name: a, secret: '%'}]}\n"), "not base64"),
            (file("      - identity: {}\n"), "no key"),
            (file(&format!("      - aesgcm: {{keys: [{{name: a, secret: {short}, more: 1}}]}}\n")), "not an"),
            ("{".into(), "not an"),
            ("kind: List\napiVersion: v1\nresources: []\n".into(), "apiVersion must be"),
        ];
        for (text, expected) in rows {
            let error = EncryptionKeys::parse(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error:?} instead of {expected:?}");
            assert!(!error.contains(&short), "{error}");
        }
    }
}
