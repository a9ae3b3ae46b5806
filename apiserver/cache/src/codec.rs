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
use serde::{
    Serialize,
    ser::{SerializeMap, Serializer},
};

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
    serde_json::to_writer(&mut bytes, &Versionless(object)).expect("a Value is always JSON");
    Bytes::from(bytes)
}

/// An object without its resource version.
struct Versionless<'a>(&'a Value);

/// Its metadata.
struct Metadata<'a>(&'a Map);

impl Serialize for Versionless<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Value::Object(object) = self.0 else { return self.0.serialize(serializer) };
        let mut fields = serializer.serialize_map(Some(object.len()))?;
        for (key, value) in object {
            match value {
                Value::Object(metadata) if key == "metadata" => {
                    fields.serialize_entry(key, &Metadata(metadata))?;
                }
                value => fields.serialize_entry(key, value)?,
            }
        }
        fields.end()
    }
}

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
}
