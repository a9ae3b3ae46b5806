//! One object as the cache holds it.

use bytes::Bytes;
use freehold_machinery::Value;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, ops::Range};

/// An object's JSON as it goes on the wire, with the few fields that are asked for without decoding it.
#[derive(Debug)]
pub struct Entry {
    json: Bytes,
    /// Just behind the `{` of `metadata`, where `resourceVersion` stands.
    metadata: u32,
    /// Length of `"resourceVersion":"N",`.
    version_len: u8,
    /// Just behind the `{` of `metadata.annotations`; 0 where there are none.
    annotations: u32,
    name: Range<u32>,
    namespace: Range<u32>,
    uid: Range<u32>,
    labels: Box<[(Box<str>, Box<str>)]>,
    deleting: bool,
    /// The revision that made the object.
    pub created: u64,
    /// The revision that wrote it last: its `resourceVersion`.
    pub modified: u64,
}

#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<&'a str>,
    #[serde(borrow, default)]
    uid: Option<&'a str>,
    #[serde(borrow, default)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(borrow, default)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<&'a str>,
}

/// What can't be an entry.
#[derive(Debug, thiserror::Error)]
#[error("a stored object can't be read: {0}")]
pub struct Unreadable(String);

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

impl Entry {
    /// An entry from an object's JSON without a resource version.
    pub fn new(json: &[u8], created: u64, modified: u64) -> Result<Self, Unreadable> {
        let outer: Outer<'_> = serde_json::from_slice(json)?;
        let header: Header<'_> = serde_json::from_str(outer.metadata.get())?;
        let at = |s: &str| (s.as_ptr() as usize).wrapping_sub(json.as_ptr() as usize);
        let Cow::Borrowed(name) = header.name else {
            return Err(Unreadable("its name has an escape".into()));
        };
        let metadata = at(outer.metadata.get()) + 1;
        let version = format!("\"resourceVersion\":\"{modified}\",");
        let shift = version.len();
        let span =
            |s: Option<&str>| s.map_or(0..0, |s| (at(s) + shift) as u32..(at(s) + shift + s.len()) as u32);
        let mut wire = Vec::with_capacity(json.len() + shift);
        wire.extend_from_slice(&json[..metadata]);
        wire.extend_from_slice(version.as_bytes());
        wire.extend_from_slice(&json[metadata..]);
        let labels = header.labels.unwrap_or_default();
        Ok(Self {
            metadata: metadata as u32,
            version_len: shift as u8,
            annotations: header
                .annotations
                .filter(|a| a.get().starts_with('{'))
                .map_or(0, |a| (at(a.get()) + shift + 1) as u32),
            name: span(Some(name)),
            namespace: span(header.namespace),
            uid: span(header.uid),
            labels: labels.into_iter().map(|(k, v)| (Box::from(&*k), Box::from(&*v))).collect(),
            deleting: header.deletion_timestamp.is_some(),
            json: Bytes::from(wire),
            created,
            modified,
        })
    }

    /// The object's JSON with its resource version.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// The object, parsed. Null for bytes that others put into the store and that only look like an object: nested deeper
    /// than is read, or with a number that is none.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_else(|error| {
            tracing::error!(name = self.name(), %error, "an object of the store can't be read");
            Value::Null
        })
    }

    fn text(&self, span: &Range<u32>) -> &str {
        std::str::from_utf8(&self.json[span.start as usize..span.end as usize]).unwrap_or_default()
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.text(&self.name)
    }

    /// `metadata.namespace`, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        self.text(&self.namespace)
    }

    /// `metadata.uid`.
    pub fn uid(&self) -> &str {
        self.text(&self.uid)
    }

    /// A label's value.
    pub fn label(&self, key: &str) -> Option<&str> {
        let index = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.labels[index].1)
    }

    /// Whether the object waits for its finalizers.
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// Bytes that this entry takes, about.
    pub fn cost(&self) -> usize {
        let labels: usize = self.labels.iter().map(|(k, v)| k.len() + v.len() + 32).sum();
        self.json.len() + labels + size_of::<Self>() + 96
    }

    fn without_version(&self) -> Vec<u8> {
        let (start, end) = (self.metadata as usize, self.metadata as usize + usize::from(self.version_len));
        [&self.json[..start], &self.json[end..]].concat()
    }

    /// The same object at another revision, as a delete shows it.
    pub fn at_revision(&self, revision: u64) -> Self {
        Self::new(&self.without_version(), self.created, revision).expect("it was an entry before")
    }

    /// The same object with another uid of the same length.
    pub fn with_uid(&self, uid: &str) -> Self {
        let mut json = self.without_version();
        let shift = usize::from(self.version_len);
        let (start, end) = (self.uid.start as usize - shift, self.uid.end as usize - shift);
        if end - start == uid.len() {
            json[start..end].copy_from_slice(uid.as_bytes());
        }
        Self::new(&json, self.created, self.modified).expect("it was an entry before")
    }

    /// The object's JSON with further annotations, without decoding it. Keys and values must need no JSON escapes.
    pub fn with_annotations(&self, annotations: &[(&str, &str)]) -> Bytes {
        let mut text = String::new();
        for (key, value) in annotations {
            text.push_str(&format!("\"{key}\":\"{value}\","));
        }
        let (at, insert) = if self.annotations == 0 {
            (self.metadata as usize, format!("\"annotations\":{{{}}},", text.trim_end_matches(',')))
        } else if self.json.get(self.annotations as usize) == Some(&b'}') {
            (self.annotations as usize, text.trim_end_matches(',').to_owned())
        } else {
            (self.annotations as usize, text)
        };
        [&self.json[..at], insert.as_bytes(), &self.json[at..]].concat().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(object: &Value, modified: u64) -> Entry {
        Entry::new(object.to_string().as_bytes(), 1, modified).unwrap()
    }

    #[test]
    fn an_entry_is_the_object_with_its_resource_version() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"metadata": "{\"name\":\"no\"}"},
            "metadata": {"name": "a", "namespace": "b", "uid": "u-1", "labels": {"x": "1", "b/c": "é\n"}}});
        let entry = entry(&object, 42);
        assert_eq!((entry.name(), entry.namespace(), entry.uid()), ("a", "b", "u-1"));
        assert_eq!(entry.label("b/c"), Some("é\n"));
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = "42".into();
        assert_eq!(entry.value(), expected);
        expected["metadata"]["resourceVersion"] = "1234567".into();
        assert_eq!(entry.at_revision(1_234_567).value(), expected);
        assert_eq!(entry.with_uid("u-2").uid(), "u-2");
    }

    #[test]
    fn what_only_looks_like_an_object_is_null_and_no_panic() {
        for tail in ["1e999".to_owned(), format!("{}{}", "[".repeat(200), "]".repeat(200))] {
            let json = format!("{{\"metadata\":{{\"name\":\"a\"}},\"data\":{tail}}}");
            let entry = Entry::new(json.as_bytes(), 1, 1);
            assert!(entry.is_err() || entry.is_ok_and(|entry| entry.value().is_null()), "{tail}");
        }
    }

    #[test]
    fn annotations_are_added_wherever_there_were_some_or_none() {
        for annotations in [json!(null), json!({}), json!({"z": "1"})] {
            let mut object = json!({"metadata": {"name": "a", "annotations": annotations.clone()}});
            if annotations.is_null() {
                freehold_machinery::meta::remove(&mut object, "annotations");
            }
            let bytes = entry(&object, 7).with_annotations(&[("p", "web"), ("q", "x")]);
            let value: Value = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(value["metadata"]["annotations"]["p"], "web");
            assert_eq!(value["metadata"]["annotations"]["q"], "x");
            assert_eq!(value["metadata"]["annotations"]["z"], annotations["z"]);
        }
    }
}
