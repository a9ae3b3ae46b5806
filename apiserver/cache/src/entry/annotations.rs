//! Annotations that the server adds where objects of several planes are shown together.

use super::{Entry, NO_MAP, Text};
use bytes::Bytes;
use freehold_machinery::{Map, Value, meta};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// Annotations that the server adds to objects, ready to be put into their JSON.
#[derive(Clone, Debug)]
pub struct Annotations {
    pairs: Box<[(Box<str>, Box<str>)]>,
    /// `"KEY":"VALUE",` of each.
    text: Box<str>,
}

impl Annotations {
    /// Keys and values that need no JSON escapes.
    pub fn new(pairs: &[(&str, &str)]) -> Self {
        Self {
            pairs: pairs.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            text: pairs
                .iter()
                .map(|(key, value)| format!("\"{key}\":\"{value}\","))
                .collect::<String>()
                .into(),
        }
    }

    /// The keys with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl Entry {
    /// The object's JSON with annotations of the server, which replace the object's own under these keys, and a comma behind
    /// it, as an item of a list. The object is decoded only where it has one of them.
    pub fn item_with(&self, annotations: &Annotations) -> Bytes {
        if self.has_annotation(annotations) {
            return self.annotated_anew(annotations);
        }
        let (json, text) = (self.json_slice(), &*annotations.text);
        let bare = text.trim_end_matches(',');
        let (at, insert) = match self.annotations as usize {
            0 => (self.metadata as usize, ["\"annotations\":{", bare, "},"]),
            at if json.get(at) == Some(&b'}') => (at, ["", bare, ""]),
            at => (at, ["", text, ""]),
        };
        let mut item = Vec::with_capacity(json.len() + insert.map(str::len).iter().sum::<usize>() + 1);
        item.extend_from_slice(&json[..at]);
        insert.iter().for_each(|part| item.extend_from_slice(part.as_bytes()));
        item.extend_from_slice(&json[at..]);
        item.push(b',');
        item.into()
    }

    /// Whether the object itself has an annotation of one of these keys, or none that can be added to.
    fn has_annotation(&self, annotations: &Annotations) -> bool {
        let Some(start) = self.annotations.checked_sub(1).filter(|_| self.annotations != NO_MAP) else {
            return self.annotations == NO_MAP;
        };
        let text = std::str::from_utf8(&self.json_slice()[start as usize..]).unwrap_or_default();
        let mut deserializer = serde_json::Deserializer::from_str(text);
        HasKey(annotations).deserialize(&mut deserializer).unwrap_or(true)
    }

    fn annotated_anew(&self, annotations: &Annotations) -> Bytes {
        let mut object = self.value();
        let own = meta::metadata_mut(&mut object).entry("annotations").or_insert(Value::Null);
        if !own.is_object() {
            *own = Value::Object(Map::new());
        }
        for (key, text) in annotations.iter() {
            own[key] = text.into();
        }
        format!("{object},").into()
    }
}

/// Deserializes a JSON object to whether it has one of some keys.
struct HasKey<'k>(&'k Annotations);

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
            found |= self.0.iter().any(|(wanted, _)| key == wanted);
            map.next_value::<IgnoredAny>()?;
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn annotated(entry: &Entry, pairs: &[(&str, &str)]) -> (String, Value) {
        let item = String::from_utf8(entry.item_with(&Annotations::new(pairs)).into()).unwrap();
        let json = item.strip_suffix(',').unwrap();
        (json.to_owned(), serde_json::from_str(json).unwrap())
    }

    #[test]
    fn annotations_of_the_server_replace_those_that_an_object_claims() {
        let entry = |annotations: &str| {
            let json = format!(r#"{{"metadata":{{"name":"a","annotations":{annotations}}}}}"#);
            Entry::new(json.as_bytes(), 1, 7).unwrap()
        };
        for claimed in
            [r#"{"p":"core"}"#, r#"{"a":"1","\u0070":"core"}"#, r#"{"p":"x","p":"core"}"#, "null", "[]"]
        {
            let (json, value) = annotated(&entry(claimed), &[("p", "web")]);
            assert_eq!(value["metadata"]["annotations"]["p"], "web", "{claimed}");
            assert_eq!(value["metadata"]["resourceVersion"], "7");
            assert!(!json.contains("core"), "{claimed}");
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
            let (_, value) = annotated(&entry, &[("p", "web"), ("q", "x")]);
            assert_eq!(value["metadata"]["annotations"]["p"], "web");
            assert_eq!(value["metadata"]["annotations"]["q"], "x");
            assert_eq!(value["metadata"]["annotations"]["z"], annotations["z"]);
        }
    }
}
