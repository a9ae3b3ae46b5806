//! How an object is written in the store.
//!
//! The first byte of a value is its format:
//!
//! | byte | what follows |
//! | --- | --- |
//! | 0 | nothing: a *whiteout*, which hides the object of the same key in the layers below |
//! | 1 | the object's JSON in its storage version, without `metadata.resourceVersion` (that is the store's revision) |

use bytes::Bytes;
use freehold_machinery::Value;

const WHITEOUT: u8 = 0;
const JSON: u8 = 1;
/// Bytes that most values have less than.
const SOME: usize = 2_048;

/// A stored value, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub enum Stored {
    /// Hides what lies below.
    Whiteout,
    /// An object's JSON, without its resource version.
    Json(Bytes),
}

/// Writes an object. Its `metadata.resourceVersion` is left out whatever it is.
pub fn encode(object: &Value) -> Bytes {
    let mut bytes = Vec::with_capacity(SOME);
    bytes.push(JSON);
    let without = object.get("metadata").and_then(|m| m.get("resourceVersion")).map(|_| {
        let mut copy = object.clone();
        freehold_machinery::meta::remove(&mut copy, "resourceVersion");
        copy
    });
    serde_json::to_writer(&mut bytes, without.as_ref().unwrap_or(object)).expect("a Value is always JSON");
    Bytes::from(bytes)
}

/// The value that hides an object of a layer.
pub fn whiteout() -> Bytes {
    Bytes::from_static(&[WHITEOUT])
}

/// Takes a stored value apart; `None` for a format that is not known.
pub fn decode(value: &Bytes) -> Option<Stored> {
    match *value.first()? {
        WHITEOUT => Some(Stored::Whiteout),
        JSON => Some(Stored::Json(value.slice(1..))),
        _ => None,
    }
}
