//! One object as the cache holds it.

mod annotations;

pub use annotations::Annotations;

use crate::decodable::Decodable;
use bytes::Bytes;
use freehold_machinery::Value;
use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, fmt, ops::Range, sync::OnceLock};

/// An object's JSON as it goes on the wire, with the few fields that are read without decoding it.
///
/// One allocation has the text: the JSON, a comma for lists, its place (`namespace/name` or `name`), and labels that JSON
/// writes with escapes. Everything else points into it.
#[derive(Debug)]
pub struct Entry {
    text: Bytes,
    /// Length of the JSON; the place begins behind it and the comma.
    json: u32,
    /// Offset just behind the `{` of `metadata`, where `resourceVersion` is.
    metadata: u32,
    /// Offset just behind the `{` of `metadata.annotations`; 0 without annotations, [`NO_MAP`] where they are no map.
    annotations: u32,
    uid: Range<u32>,
    /// Length of the namespace in the place; 0 without one.
    namespace: u16,
    place: u16,
    /// Length of `"resourceVersion":"N",`.
    version_len: u8,
    deleting: bool,
    finalizers: bool,
    owned: bool,
    /// Keys and values, by key.
    labels: Box<[(Range<u32>, Range<u32>)]>,
    fields: OnceLock<Box<Field>>,
    /// The revision that made the object.
    pub created: u64,
    /// The revision that wrote it last: its `resourceVersion`.
    pub modified: u64,
}

/// Marks annotations that cannot be extended without decoding the object.
const NO_MAP: u32 = u32::MAX;

/// Cached selector fields: a linked list in the order of their first use.
#[derive(Debug)]
struct Field {
    path: Box<str>,
    value: Box<str>,
    next: OnceLock<Box<Field>>,
}

/// An object, of which the metadata is kept.
struct Outer<'a> {
    metadata: Header<'a>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Outer<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Parts)
    }
}

struct Parts;

impl<'de> Visitor<'de> for Parts {
    type Value = Outer<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut metadata = None;
        while let Some(Text(key)) = map.next_key()? {
            match &*key {
                "metadata" if metadata.is_some() => return Err(A::Error::duplicate_field("metadata")),
                "metadata" => metadata = Some(map.next_value()?),
                _ => {
                    map.next_value::<Decodable>()?;
                }
            }
        }
        metadata.map(|metadata| Outer { metadata }).ok_or_else(|| A::Error::missing_field("metadata"))
    }
}

/// A JSON string, borrowed unless it has escapes.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// The metadata that one pass over an object's JSON collects.
#[derive(Default)]
struct Header<'a> {
    /// The text behind the `{`, where its first field begins.
    first: &'a str,
    name: Option<Text<'a>>,
    namespace: Option<&'a str>,
    uid: Option<&'a str>,
    labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
    annotations: Option<&'a RawValue>,
    deletion_timestamp: Option<Text<'a>>,
    finalizers: Option<&'a RawValue>,
    owner_references: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Header<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Header<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut header = Header::default();
        while let Some(Text(key)) = map.next_key()? {
            match &*key {
                "name" => header.name = map.next_value()?,
                "namespace" => header.namespace = map.next_value()?,
                "uid" => header.uid = map.next_value()?,
                "labels" => header.labels = map.next_value()?,
                // The second of two would count, and what is added to the first be lost.
                "annotations" if header.annotations.is_some() => {
                    return Err(A::Error::duplicate_field("annotations"));
                }
                "annotations" => header.annotations = Some(map.next_value()?),
                "deletionTimestamp" => header.deletion_timestamp = map.next_value()?,
                "finalizers" => header.finalizers = map.next_value()?,
                "ownerReferences" => header.owner_references = map.next_value()?,
                // It is written in front of the others; who reads both would believe the second.
                "resourceVersion" => return Err(A::Error::custom("it has a resource version")),
                _ => {
                    map.next_value::<Decodable>()?;
                }
            }
            if header.first.is_empty() {
                let Cow::Borrowed(key) = key else {
                    return Err(A::Error::custom("its metadata begins with an escape"));
                };
                header.first = key;
            }
        }
        Ok(header)
    }
}

/// Why a value cannot be an entry.
#[derive(Debug, thiserror::Error)]
#[error("a stored object can't be read: {0}")]
pub struct Unreadable(String);

impl From<serde_json::Error> for Unreadable {
    fn from(error: serde_json::Error) -> Self {
        Self(error.to_string())
    }
}

impl Entry {
    /// Makes an entry of an object's JSON without a resource version.
    ///
    /// # Errors
    /// [`Unreadable`] for JSON that no client could decode, or without a uid.
    pub fn new(json: &[u8], created: u64, modified: u64) -> Result<Self, Unreadable> {
        let text = std::str::from_utf8(json).map_err(|error| Unreadable(error.to_string()))?;
        let Outer { metadata: header } = serde_json::from_str(text)?;
        for part in [header.annotations, header.finalizers, header.owner_references].into_iter().flatten() {
            serde_json::from_str::<Decodable>(part.get())?;
        }
        let at = |s: &str| (s.as_ptr() as usize).wrapping_sub(json.as_ptr() as usize);
        let Some(Text(Cow::Borrowed(name))) = header.name else {
            return Err(Unreadable("it has no name, or one with an escape".into()));
        };
        let namespace = header.namespace.unwrap_or_default();
        // Before the quote of the first field.
        let metadata = at(header.first) - 1;
        let version = format!("\"resourceVersion\":\"{modified}\",");
        let shift = version.len();
        let span = |s: &str| (at(s) + shift) as u32..(at(s) + shift + s.len()) as u32;
        let place = namespace.len() + usize::from(!namespace.is_empty()) + name.len();
        let labels = header.labels.unwrap_or_default();
        let escaped = labels.iter().flat_map(|(key, value)| [&key.0, &value.0]);
        let escaped = escaped.map(|part| if let Cow::Owned(part) = part { part.len() } else { 0 });
        let mut text = Vec::with_capacity(json.len() + shift + 1 + place + escaped.sum::<usize>());
        text.extend_from_slice(&json[..metadata]);
        text.extend_from_slice(version.as_bytes());
        text.extend_from_slice(&json[metadata..]);
        let length = text.len();
        text.push(b',');
        text.extend_from_slice(namespace.as_bytes());
        text.extend_from_slice(if namespace.is_empty() { b"" } else { b"/" });
        text.extend_from_slice(name.as_bytes());
        let mut keep = |part: &Cow<'_, str>| match part {
            Cow::Borrowed(part) => span(part),
            Cow::Owned(part) => {
                text.extend_from_slice(part.as_bytes());
                (text.len() - part.len()) as u32..text.len() as u32
            }
        };
        let labels = labels.iter().map(|(key, value)| (keep(&key.0), keep(&value.0))).collect();
        let short =
            |length: usize| u16::try_from(length).map_err(|_| Unreadable("its name is too long".into()));
        Ok(Self {
            json: u32::try_from(length).map_err(|_| Unreadable("it is too large".into()))?,
            metadata: metadata as u32,
            version_len: shift as u8,
            annotations: header.annotations.map_or(0, |a| match a.get().starts_with('{') {
                true => (at(a.get()) + shift + 1) as u32,
                false => NO_MAP,
            }),
            uid: header.uid.map_or(0..0, span),
            namespace: short(namespace.len())?,
            place: short(place)?,
            deleting: header.deletion_timestamp.is_some(),
            finalizers: header.finalizers.is_some_and(|list| list.get().contains('"')),
            owned: header.owner_references.is_some_and(|list| list.get().contains('{')),
            labels,
            fields: OnceLock::new(),
            text: Bytes::from(text),
            created,
            modified,
        })
    }

    /// The object's JSON with its resource version.
    pub fn json(&self) -> Bytes {
        self.text.slice(..self.json as usize)
    }

    /// The object's JSON followed by a comma, as an item of a list, without a copy.
    pub fn item(&self) -> &[u8] {
        &self.text[..self.json as usize + 1]
    }

    fn json_slice(&self) -> &[u8] {
        &self.text[..self.json as usize]
    }

    /// The object, parsed. Null for bytes that others put into the store and that only look like an object: nested deeper
    /// than is read, or with a number that is none.
    pub fn value(&self) -> Value {
        serde_json::from_slice(self.json_slice()).unwrap_or_else(|error| {
            tracing::error!(name = self.name(), %error, "failed to read an object of the store");
            Value::Null
        })
    }

    /// Whether the object's JSON has this text anywhere, which is found out without parsing it.
    pub fn mentions(&self, text: &str) -> bool {
        self.part(0..self.json as usize).contains(text)
    }

    fn part(&self, span: Range<usize>) -> &str {
        std::str::from_utf8(&self.text[span]).unwrap_or_default()
    }

    fn text(&self, span: &Range<u32>) -> &str {
        self.part(span.start as usize..span.end as usize)
    }

    fn place_span(&self) -> Range<usize> {
        let start = self.json as usize + 1;
        start..start + usize::from(self.place)
    }

    /// The place of the object in the order of its collection: `namespace/name` or `name`.
    pub fn place(&self) -> &str {
        self.part(self.place_span())
    }

    /// The bytes of the place, which sort like the text.
    pub(crate) fn place_bytes(&self) -> &[u8] {
        &self.text[self.place_span()]
    }

    /// Returns `metadata.name` of the object.
    pub fn name(&self) -> &str {
        let namespace = usize::from(self.namespace);
        &self.place()[namespace + usize::from(namespace > 0)..]
    }

    /// `metadata.namespace`, empty for cluster-scoped objects.
    pub fn namespace(&self) -> &str {
        &self.place()[..usize::from(self.namespace)]
    }

    /// Returns `metadata.uid` of the object.
    pub fn uid(&self) -> &str {
        self.text(&self.uid)
    }

    /// The value of a label, where the object has it.
    pub fn label(&self, key: &str) -> Option<&str> {
        let index = self.labels.binary_search_by(|(k, _)| self.text(k).cmp(key)).ok()?;
        Some(self.text(&self.labels[index].1))
    }

    /// A field as selectors see it, by its path (`status.phase`): its text, empty where absent. The object is not
    /// decoded: the text is searched once and cached.
    pub fn field(&self, path: &str) -> &str {
        match path {
            "metadata.name" => return self.name(),
            "metadata.namespace" => return self.namespace(),
            _ => {}
        }
        let mut slot = &self.fields;
        loop {
            let field = slot.get_or_init(|| {
                let value = seek(self.json_slice(), path).into();
                Box::new(Field { path: path.into(), value, next: OnceLock::new() })
            });
            if &*field.path == path {
                return &field.value;
            }
            slot = &field.next;
        }
    }

    /// Whether the object's `apiVersion` is this one.
    pub fn is_of(&self, api_version: &str) -> bool {
        // Nearly all begin with it.
        match self.json_slice().strip_prefix(b"{\"apiVersion\":\"") {
            Some(rest) => {
                rest.strip_prefix(api_version.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'"'))
            }
            None => seek(self.json_slice(), "apiVersion") == api_version,
        }
    }

    /// Whether the object waits for its finalizers.
    pub fn is_deleting(&self) -> bool {
        self.deleting
    }

    /// Whether the object has finalizers.
    pub fn has_finalizers(&self) -> bool {
        self.finalizers
    }

    /// Whether it may be someone else's to delete it or to let it go: it has owners or finalizers, or is being deleted.
    pub fn is_related(&self) -> bool {
        self.owned || self.finalizers || self.deleting
    }

    /// Bytes that this entry takes, about.
    pub fn cost(&self) -> usize {
        self.text.len() + size_of_val(&*self.labels) + size_of::<Self>() + OVERHEAD
    }

    fn without_version(&self) -> Vec<u8> {
        let (start, end) = (self.metadata as usize, self.metadata as usize + usize::from(self.version_len));
        [&self.json_slice()[..start], &self.json_slice()[end..]].concat()
    }

    /// The object at another revision, as a deletion shows it.
    pub fn at_revision(&self, revision: u64) -> Self {
        let version = format!("\"resourceVersion\":\"{revision}\",");
        let (start, end) = (self.metadata as usize, self.metadata as usize + usize::from(self.version_len));
        let text = [&self.text[..start], version.as_bytes(), &self.text[end..]].concat();
        // Everything that is pointed at lies behind the version; 0 says that it is not there.
        let behind = |at: u32| at + version.len() as u32 - u32::from(self.version_len);
        let there = |at: u32| if at == 0 { 0 } else { behind(at) };
        let span = |span: &Range<u32>| there(span.start)..there(span.end);
        Self {
            text: Bytes::from(text),
            json: behind(self.json),
            metadata: self.metadata,
            annotations: if self.annotations == NO_MAP { NO_MAP } else { there(self.annotations) },
            uid: span(&self.uid),
            namespace: self.namespace,
            place: self.place,
            version_len: version.len() as u8,
            deleting: self.deleting,
            finalizers: self.finalizers,
            owned: self.owned,
            labels: self.labels.iter().map(|(key, value)| (span(key), span(value))).collect(),
            fields: OnceLock::new(),
            created: self.created,
            modified: revision,
        }
    }

    /// The object with another uid of equal length.
    pub fn with_uid(&self, uid: &str) -> Self {
        let mut json = self.without_version();
        let shift = usize::from(self.version_len);
        let (start, end) = (self.uid.start as usize - shift, self.uid.end as usize - shift);
        if end - start == uid.len() {
            json[start..end].copy_from_slice(uid.as_bytes());
        }
        Self::new(&json, self.created, self.modified).expect("it was an entry before")
    }

    /// The object with texts in place of others, each as JSON has it within a string.
    pub fn with_texts(&self, texts: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        let json = String::from_utf8_lossy(&self.without_version()).into_owned();
        let json = texts.into_iter().fold(json, |json, (from, to)| json.replace(from, &to));
        Self::new(json.as_bytes(), self.created, self.modified).expect("it was an entry before")
    }
}

/// Bytes of an entry besides itself and its text: the counters of its two allocations, and its pointer in a collection.
const OVERHEAD: usize = 64;

/// Picks the value of one key out of a JSON object.
struct Pick<'k>(&'k str);

impl<'de> DeserializeSeed<'de> for Pick<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Pick<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Text(key)) = map.next_key()? {
            if key == self.0 {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// The text of a field: a string without its quotes, anything else as JSON; empty where it is null or absent.
fn seek(json: &[u8], path: &str) -> String {
    let mut raw = std::str::from_utf8(json).unwrap_or_default();
    for key in path.split('.') {
        let mut deserializer = serde_json::Deserializer::from_str(raw);
        match Pick(key).deserialize(&mut deserializer) {
            Ok(Some(found)) => raw = found.get(),
            _ => return String::new(),
        }
    }
    match raw {
        "null" => String::new(),
        _ if raw.starts_with('"') => serde_json::from_str(raw).unwrap_or_default(),
        _ => raw.to_owned(),
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
    fn an_entry_tells_its_version_wherever_that_stands() {
        let rows = [
            (r#"{"apiVersion":"g.io/v1","kind":"K","metadata":{"name":"a","uid":"u"}}"#, true),
            (r#"{"kind":"K","metadata":{"name":"a","uid":"u"},"apiVersion":"g.io/v1"}"#, true),
            (r#"{"apiVersion":"g.io/v11","kind":"K","metadata":{"name":"a","uid":"u"}}"#, false),
            (r#"{"kind":"K","metadata":{"name":"a","uid":"u"}}"#, false),
        ];
        for (json, expected) in rows {
            assert_eq!(Entry::new(json.as_bytes(), 1, 2).unwrap().is_of("g.io/v1"), expected, "{json}");
        }
    }

    #[test]
    fn an_entry_is_the_object_with_its_resource_version() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"metadata": "{\"name\":\"no\"}"},
            "metadata": {"name": "a", "namespace": "b", "uid": "u-1", "labels": {"x": "1", "b/c": "é\n"}}});
        let entry = entry(&object, 42);
        assert_eq!((entry.name(), entry.namespace(), entry.uid()), ("a", "b", "u-1"));
        assert_eq!(entry.label("b/c"), Some("é\n"));
        assert_eq!(entry.item(), [&entry.json(), &b","[..]].concat());
        let mut expected = object;
        expected["metadata"]["resourceVersion"] = "42".into();
        assert_eq!(entry.value(), expected);
        expected["metadata"]["resourceVersion"] = "1234567".into();
        let later = entry.at_revision(1_234_567);
        assert_eq!(later.value(), expected);
        let fresh = Entry::new(&entry.without_version(), 1, 1_234_567).unwrap();
        assert_eq!(format!("{later:?}"), format!("{fresh:?}"), "as if it was read so");
        assert_eq!(entry.with_uid("u-2").uid(), "u-2");
    }

    #[test]
    fn fields_are_found_without_decoding_the_object() {
        let object = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n\"1", "replicas": 3, "on": true,
            "none": null, "deep": {"a": {"b": "c"}}, "list": ["x"]}});
        let entry = entry(&object, 1);
        let rows = [
            ("spec.nodeName", "n\"1"),
            ("spec.replicas", "3"),
            ("spec.on", "true"),
            ("spec.none", ""),
            ("spec.deep.a.b", "c"),
            ("spec.list.0", ""),
            ("status.phase", ""),
            ("metadata.name", "a"),
            ("metadata.namespace", ""),
        ];
        for (path, text) in rows.into_iter().chain(rows) {
            assert_eq!(entry.field(path), text, "{path}");
        }
    }

    #[test]
    fn an_object_with_owners_or_finalizers_or_one_that_is_being_deleted_is_related() {
        for (field, value, related) in [
            ("uid", json!("u"), false),
            ("ownerReferences", json!([]), false),
            ("ownerReferences", json!([{"uid": "o"}]), true),
            ("finalizers", json!([]), false),
            ("finalizers", json!(["f"]), true),
            ("deletionTimestamp", json!("2026-01-01T00:00:00Z"), true),
        ] {
            let object = json!({"metadata": {"name": "a", field: value}});
            let entry = entry(&object, 1);
            assert_eq!(
                (entry.is_related(), entry.at_revision(2).is_related()),
                (related, related),
                "{object}"
            );
        }
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
    fn what_no_client_can_decode_or_hides_what_is_said_of_it_is_no_entry() {
        let metadata = r#""name":"a","uid":"u""#;
        let nested = format!("{}{}", "[".repeat(130), "]".repeat(130));
        let rows = [
            format!(r#"{{"metadata":{{{metadata},"resourceVersion":"99"}}}}"#),
            format!(r#"{{"metadata":{{{metadata},"annotations":{{}},"annotations":{{}}}}}}"#),
            format!(r#"{{"metadata":{{{metadata}}},"metadata":{{{metadata}}}}}"#),
            format!(r#"{{"metadata":{{{metadata}}},"spec":{nested}}}"#),
            format!(r#"{{"metadata":{{{metadata},"finalizers":{nested}}}}}"#),
            format!(r#"{{"metadata":{{{metadata}}},"spec":1e999}}"#),
            format!(r#"{{"metadata":{{{metadata}}},"spec":"\ud800"}}"#),
            r#"{"spec":{}}"#.to_owned(),
            "[]".to_owned(),
        ];
        for row in rows {
            assert!(Entry::new(row.as_bytes(), 1, 1).is_err(), "{row}");
        }
        let unreadable = [br#"{"metadata":{"name":"a"},"spec":""#, &b"\xff"[..], br#""}"#].concat();
        assert!(Entry::new(&unreadable, 1, 1).is_err());
    }
}
