//! From protobuf to JSON.

use crate::error::{MAGIC, Result, malformed};
use crate::{
    messages::{self, Field, INLINE, Kind, LIST, Message, Shape},
    names, special,
    wire::{self, Wire},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::{Map, Value};

/// Messages within messages.
const MAX_DEPTH: usize = 100;
/// Fields in all: an empty message takes two bytes, its JSON a hundred.
const MAX_FIELDS: usize = 1_000_000;

/// Decodes a request body: the magic number, then an envelope that names the kind. Returns the object as JSON with
/// its `apiVersion` and `kind`.
///
/// # Errors
/// [`Malformed`](crate::error::Malformed), in kube-apiserver's words, for a body without the magic number, an empty one, a
/// kind without a message, a content encoding, broken UTF-8 or wire format, more than 100 levels or 1,000,000
/// fields.
pub fn decode(body: &[u8]) -> Result<Value> {
    let mut input = body.strip_prefix(MAGIC).ok_or_else(|| match body {
        [] => malformed("empty data"),
        _ => malformed(format!(
            "provided data does not appear to be a protobuf message, expected prefix [{}]",
            MAGIC.iter().map(u8::to_string).collect::<Vec<_>>().join(" ")
        )),
    })?;
    if input.is_empty() {
        return Err(malformed("empty body"));
    }
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    while !input.is_empty() {
        match wire::field(&mut input)? {
            (1, Wire::Bytes(mut meta)) => {
                while !meta.is_empty() {
                    match wire::field(&mut meta)? {
                        (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            (3, Wire::Bytes(encoding)) if !encoding.is_empty() => {
                return Err(malformed("the object has a content encoding"));
            }
            _ => {}
        }
    }
    let message = messages::of_kind(&api_version, &kind)
        .ok_or_else(|| malformed(format!("no kind {kind:?} is registered for version {api_version:?}")))?;
    let mut decoder = Decoder { depth: 0, fields: 0 };
    let mut object = decoder.message(message.name, raw)?;
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".into(), api_version.into());
        map.insert("kind".into(), kind.into());
    }
    Ok(object)
}

fn utf8(bytes: &[u8]) -> Result<String> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| malformed("proto: invalid UTF-8"))
}

/// Counts what has been read against the limits.
pub(crate) struct Decoder {
    depth: usize,
    fields: usize,
}

impl Decoder {
    /// The JSON of a message.
    pub(crate) fn message(&mut self, name: &str, input: &[u8]) -> Result<Value> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(malformed("exceeded max depth"));
        }
        let value = if names::is_special(name) {
            special::decode(self, name, input)
        } else {
            let message = messages::get(name).ok_or_else(|| malformed(format!("no message {name}")))?;
            self.fields_of(message, input)
        };
        self.depth -= 1;
        value
    }

    fn fields_of(&mut self, message: &Message, mut input: &[u8]) -> Result<Value> {
        let mut map = Map::new();
        let mut list = None;
        while !input.is_empty() {
            self.fields += 1;
            if self.fields > MAX_FIELDS {
                return Err(malformed("the object has too many fields"));
            }
            let (number, content) = wire::field(&mut input)?;
            let Some(field) = message.fields.iter().find(|field| field.number == number) else { continue };
            match field.name {
                LIST => list.get_or_insert_with(Vec::new).push(self.value(field.kind, content)?),
                INLINE => {
                    if let Value::Object(inner) = self.value(field.kind, content)? {
                        map.extend(inner);
                    }
                }
                _ => self.put(&mut map, field, content)?,
            }
        }
        let is_list = message.fields.iter().any(|field| field.name == LIST);
        Ok(if is_list { Value::Array(list.unwrap_or_default()) } else { Value::Object(map) })
    }

    fn put(&mut self, map: &mut Map, field: &Field, content: Wire<'_>) -> Result<()> {
        match field.shape {
            Shape::One => {
                let value = self.value(field.kind, content)?;
                if field.keep_zero && !value.is_null() || !is_zero(&value) {
                    map.insert(field.name.to_owned(), value);
                }
            }
            Shape::Many => {
                let slot = map.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
                let values = self.packed(field.kind, content)?;
                if let Some(list) = slot.as_array_mut() {
                    list.extend(values);
                }
            }
            Shape::Map => {
                let (key, value) = self.pair(field.kind, content)?;
                map.entry(field.name).or_insert_with(|| Value::Object(Map::new()))[&key] = value;
            }
        }
        Ok(())
    }

    /// Numbers of a repeated field can stand in one piece.
    fn packed(&mut self, kind: Kind, content: Wire<'_>) -> Result<Vec<Value>> {
        match (kind, content) {
            (Kind::Integer | Kind::Bool, Wire::Bytes(mut bytes)) => {
                let mut values = Vec::new();
                while !bytes.is_empty() {
                    values.push(self.value(kind, Wire::Varint(wire::varint(&mut bytes)?))?);
                }
                Ok(values)
            }
            (kind, content) => Ok(vec![self.value(kind, content)?]),
        }
    }

    fn pair(&mut self, kind: Kind, content: Wire<'_>) -> Result<(String, Value)> {
        let Wire::Bytes(mut input) = content else {
            return Err(malformed("proto: wrong wireType for a map"));
        };
        let (mut key, mut value) = (String::new(), None);
        while !input.is_empty() {
            match wire::field(&mut input)? {
                (1, Wire::Bytes(text)) => key = utf8(text)?,
                (2, content) => value = Some(self.value(kind, content)?),
                _ => {}
            }
        }
        let value = match (value, kind) {
            (Some(value), _) => value,
            (None, Kind::Message(name)) => self.message(name, &[])?,
            (None, _) => Value::String(String::new()),
        };
        Ok((key, value))
    }

    fn value(&mut self, kind: Kind, content: Wire<'_>) -> Result<Value> {
        Ok(match (kind, content) {
            (Kind::Text, Wire::Bytes(bytes)) => utf8(bytes)?.into(),
            (Kind::Bytes, Wire::Bytes(bytes)) => BASE64_STANDARD.encode(bytes).into(),
            (Kind::Bool, Wire::Varint(value)) => (value != 0).into(),
            (Kind::Integer, Wire::Varint(value)) => (value as i64).into(),
            (Kind::Double, Wire::Fixed64(bits)) => f64::from_bits(bits).into(),
            (Kind::Double, Wire::Fixed32(bits)) => f64::from(f32::from_bits(bits)).into(),
            (Kind::Message(name), Wire::Bytes(bytes)) => self.message(name, bytes)?,
            (kind, _) => return Err(malformed(format!("proto: wrong wireType for {kind:?}"))),
        })
    }
}

/// What Go leaves out of JSON where the field says so.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(true) => false,
    }
}
