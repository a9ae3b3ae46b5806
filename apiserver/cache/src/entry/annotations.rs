//! Annotations that the server adds where objects of several planes are shown together.

use super::{Entry, NO_MAP, Text};
use bytes::Bytes;
use freehold_machinery::{Map, Value, meta};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;

impl Entry {
    /// The object's JSON with annotations of the server, which replace the object's own under these keys. The object is
    /// decoded only where it has one of them. Keys and values must need no JSON escapes.
    pub fn with_annotations(&self, annotations: &[(&str, &str)]) -> Bytes {
        if self.has_annotation(annotations) {
            return self.annotated_anew(annotations);
        }
        let mut text = String::new();
        for (key, value) in annotations {
            text.push_str(&format!("\"{key}\":\"{value}\","));
        }
        let (at, insert) = if self.annotations == 0 {
            (self.metadata as usize, format!("\"annotations\":{{{}}},", text.trim_end_matches(',')))
        } else if self.json_slice().get(self.annotations as usize) == Some(&b'}') {
            (self.annotations as usize, text.trim_end_matches(',').to_owned())
        } else {
            (self.annotations as usize, text)
        };
        [&self.json_slice()[..at], insert.as_bytes(), &self.json_slice()[at..]].concat().into()
    }

    /// Whether the object itself has an annotation of one of these keys, or none that can be added to.
    fn has_annotation(&self, annotations: &[(&str, &str)]) -> bool {
        let Some(start) = self.annotations.checked_sub(1).filter(|_| self.annotations != NO_MAP) else {
            return self.annotations == NO_MAP;
        };
        let text = std::str::from_utf8(&self.json_slice()[start as usize..]).unwrap_or_default();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        HasKey(annotations).deserialize(&mut deserializer).unwrap_or(true)
    }

    fn annotated_anew(&self, annotations: &[(&str, &str)]) -> Bytes {
        let mut object = self.value();
        let own = meta::metadata_mut(&mut object).entry("annotations").or_insert(Value::Null);
        if !own.is_object() {
            *own = Value::Object(Map::new());
        }
        for (key, text) in annotations {
            own[*key] = (*text).into();
        }
        object.to_string().into()
    }
}

/// Deserializes a JSON object to whether it has one of some keys.
struct HasKey<'k>(&'k [(&'k str, &'k str)]);

impl<'de> DeserializeSeed<'de> for HasKey<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HasKey<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut found = false;
        while let Some(Text(key)) = map.next_key()? {
            found |= self.0.iter().any(|(wanted, _)| key == *wanted);
            map.next_value::<IgnoredAny>()?;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn annotations_of_the_server_replace_those_that_an_object_claims() {
        let entry = |annotations: &str| {
            let json = format!(r#"{{"metadata":{{"name":"a","annotations":{annotations}}}}}"#);
            Entry::new(json.as_bytes(), 1, 7).unwrap()
        };
        for claimed in
            [r#"{"p":"core"}"#, r#"{"a":"1","\u0070":"core"}"#, r#"{"p":"x","p":"core"}"#, "null", "[]"]
        {
            let bytes = entry(claimed).with_annotations(&[("p", "web")]);
            let value: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(value["metadata"]["annotations"]["p"], "web", "{claimed}");
            assert_eq!(value["metadata"]["resourceVersion"], "7");
            assert!(!String::from_utf8_lossy(&bytes).contains("core"), "{claimed}");
        }
    }

    #[test]
    fn annotations_are_added_wherever_there_were_some_or_none() {
        for annotations in [json!(null), json!({}), json!({"z": "1"})] {
            let mut object = json!({"metadata": {"name": "a", "annotations": annotations.clone()}});
            if annotations.is_null() {
                meta::remove(&mut object, "annotations");
            }
            let entry = Entry::new(object.to_string().as_bytes(), 1, 7).unwrap();
            let bytes = entry.with_annotations(&[("p", "web"), ("q", "x")]);
            let value: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(value["metadata"]["annotations"]["p"], "web");
            assert_eq!(value["metadata"]["annotations"]["q"], "x");
            assert_eq!(value["metadata"]["annotations"]["z"], annotations["z"]);
        }
    }
}
