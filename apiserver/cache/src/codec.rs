//! How an object is written in the store.
//!
//! The first byte of a value is its format:
//!
//! | byte | what follows |
//! | --- | --- |
//! | 0 | nothing: a *whiteout*, which hides the object of the same key in the layers below |
//! | 1 | the object's JSON in its storage version, without `metadata.resourceVersion` (that is the store's revision) |

use bytes::Bytes;
use freehold_machinery::{Map, Value};
use serde::{Serialize, ser::Serializer};

const WHITEOUT: u8 = 0;
const JSON: u8 = 1;
/// Bytes that most values have less than.
const SOME: usize = 2_048;

/// A stored value, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub enum Stored {
    /// Hides the object of this key in the layers below.
    Whiteout,
    /// An object's JSON, without its resource version.
    Json(Bytes),
}

/// Writes an object. Its `metadata.resourceVersion` is left out whatever it is.
pub fn encode(object: &Value) -> Bytes {
    Encoded::new(object).stored
}

/// An object as it is stored, from which it can be sent without being written again.
pub struct Encoded {
    /// An object encoded for the store and for clients.
    pub stored: Bytes,
    /// Just behind the `{` of `metadata`; `None` where that is not there or has nothing but the version.
    metadata: Option<usize>,
}

impl Encoded {
    /// Encodes an object as it is stored, and as clients read it.
    pub fn new(object: &Value) -> Self {
        let mut bytes = Vec::with_capacity(SOME);
        bytes.push(JSON);
        let mut behind = None;
        match object {
            Value::Object(fields) => {
                bytes.push(b'{');
                for (key, value) in fields {
                    put(&mut bytes, key);
                    bytes.push(b':');
                    match value {
                        Value::Object(metadata) if key == "metadata" => {
                            let start = bytes.len() + 1;
                            put(&mut bytes, &Metadata(metadata));
                            behind = Some(start).filter(|start| bytes[*start] != b'}');
                        }
                        value => put(&mut bytes, value),
                    }
                    bytes.push(b',');
                }
                // The last comma.
                if !fields.is_empty() {
                    bytes.pop();
                }
                bytes.push(b'}');
            }
            other => put(&mut bytes, other),
        }
        Self { stored: Bytes::from(bytes), metadata: behind }
    }

    /// The object's JSON with a resource version, as entries of the cache have it; `None` where it has no metadata.
    pub fn json(&self, revision: u64) -> Option<Bytes> {
        let (before, behind) = self.stored.split_at(self.metadata?);
        let version = format!("\"resourceVersion\":\"{revision}\",");
        Some([&before[1..], version.as_bytes(), behind].concat().into())
    }
}

fn put(bytes: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(bytes, value).expect("a Value is always JSON");
}

/// Metadata without the resource version.
struct Metadata<'a>(&'a Map);

impl Serialize for Metadata<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().filter(|(key, _)| *key != "resourceVersion"))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_written_without_its_version_and_with_all_else() {
        let mut object = json!({"kind": "A", "metadata": {"name": "a", "resourceVersion": "7"},
            "data": {"metadata": {"resourceVersion": "8"}, "resourceVersion": "9"}, "resourceVersion": "1"});
        let Some(Stored::Json(json)) = decode(&encode(&object)) else { panic!("it is an object") };
        freehold_machinery::meta::remove(&mut object, "resourceVersion");
        assert_eq!(serde_json::from_slice::<Value>(&json).unwrap(), object);
        assert_eq!(json, object.to_string());
    }

    #[test]
    fn what_is_written_is_sent_with_another_version() {
        let object = json!({"a": {"metadata": {"x": 1}}, "metadata": {"name": "a", "resourceVersion": "7"}});
        let sent = Encoded::new(&object).json(9).unwrap();
        let expected =
            json!({"a": {"metadata": {"x": 1}}, "metadata": {"name": "a", "resourceVersion": "9"}});
        assert_eq!(serde_json::from_slice::<Value>(&sent).unwrap(), expected);
        for bare in
            [json!({}), json!({"metadata": {"resourceVersion": "7"}}), json!({"metadata": []}), json!("x")]
        {
            assert_eq!(Encoded::new(&bare).json(9), None);
            assert_eq!(
                encode(&bare)[1..],
                *bare.to_string().replace("\"resourceVersion\":\"7\"", "").as_bytes()
            );
        }
    }
}
