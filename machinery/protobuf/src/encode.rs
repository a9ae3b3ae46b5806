//! From JSON to protobuf, in one pass over the JSON's bytes.
//!
//! Fields are written in the JSON's order, which decoders don't mind. What stands in the JSON is written, zeros too:
//! that is how a pointer to zero is told from none. The fields of an embedded message that has no name in JSON are
//! written as pieces of that message, which decoders merge, as protobuf wants.

use crate::error::{MAGIC, Malformed, malformed};
use crate::{
    messages::{self, Message, Shape},
    names,
    plan::{Plan, Step, Target},
    special,
    wire::{put_bytes, put_double, put_integer, put_varint},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::Value;
use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use std::fmt;

/// The kind of objects that are written, and its message.
#[derive(Clone, Debug)]
pub struct Kind {
    api_version: String,
    kind: String,
    message: &'static Message,
}

/// Writes an object of a built-in kind, or a list of them; `None` for a kind that has no message. Some documents of
/// discovery have no version.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let text = |field: &str| object.get(field).and_then(Value::as_str);
    Kind::of(text("apiVersion").unwrap_or_default(), text("kind")?)?
        .encode(object.to_string().as_bytes())
        .ok()
}

impl Kind {
    /// A kind by its names; `None` for one that has no message.
    pub fn of(api_version: &str, kind: &str) -> Option<Self> {
        let message = messages::of_kind(api_version, kind)?;
        Some(Self { api_version: api_version.to_owned(), kind: kind.to_owned(), message })
    }

    /// Encodes the body of an answer: magic number, envelope, object.
    ///
    /// # Errors
    /// [`Malformed`] for bytes that are no JSON object of this kind.
    pub fn encode(&self, json: &[u8]) -> Result<Vec<u8>, Malformed> {
        // Most objects are smaller than their JSON; the envelope takes less than what that leaves.
        let mut out = Vec::with_capacity(json.len() + 64);
        self.envelope(&mut out);
        out.push(2 << 3 | 2);
        nested(&mut out, |out| self.write(out, json))?;
        put_bytes(&mut out, 3, b"");
        put_bytes(&mut out, 4, b"");
        Ok(out)
    }

    /// Encodes the message of one object without an envelope: an item of a list.
    ///
    /// # Errors
    /// [`Malformed`] for bytes that are no JSON object of this kind.
    pub fn message(&self, json: &[u8]) -> Result<Vec<u8>, Malformed> {
        let mut out = Vec::with_capacity(json.len());
        self.write(&mut out, json)?;
        Ok(out)
    }

    /// Returns the bytes before the items of a list of this kind and those behind them. `metadata` is the list's
    /// metadata as JSON, `items` the number of bytes of its items, each with [`item_head`] before it.
    ///
    /// # Errors
    /// [`Malformed`] for metadata that is no JSON object of a `ListMeta`.
    pub fn list(&self, metadata: &[u8], items: usize) -> Result<(Vec<u8>, Vec<u8>), Malformed> {
        let meta = Self::of("v1", "ListMeta").map_or(Ok(Vec::new()), |kind| kind.message(metadata))?;
        let mut first = Vec::new();
        put_bytes(&mut first, 1, &meta);
        let mut head = Vec::new();
        self.envelope(&mut head);
        head.push(2 << 3 | 2);
        put_varint(&mut head, (first.len() + items) as u64);
        head.extend_from_slice(&first);
        let mut tail = Vec::new();
        put_bytes(&mut tail, 3, b"");
        put_bytes(&mut tail, 4, b"");
        Ok((head, tail))
    }

    fn envelope(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        let mut meta = Vec::with_capacity(self.api_version.len() + self.kind.len() + 4);
        put_bytes(&mut meta, 1, self.api_version.as_bytes());
        put_bytes(&mut meta, 2, self.kind.as_bytes());
        put_bytes(out, 1, &meta);
    }

    fn write(&self, out: &mut Vec<u8>, json: &[u8]) -> Result<(), Malformed> {
        let mut input = serde_json::Deserializer::from_slice(json);
        let written = Body { target: Target::Message(self.message), out }.deserialize(&mut input);
        written.map(drop).map_err(|error| malformed(error.to_string()))
    }
}

/// Appends what stands before an item of `len` bytes in a list.
pub fn item_head(out: &mut Vec<u8>, len: usize) {
    out.push(2 << 3 | 2);
    put_varint(out, len as u64);
}

/// The frame of a watch event: its length in four bytes, type and object. The object has its own envelope.
pub fn frame(event: &str, object: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(object.len() + event.len() + 24);
    out.extend_from_slice(&[0; 4]);
    put_bytes(&mut out, 1, event.as_bytes());
    out.push(2 << 3 | 2);
    let mut head = vec![1 << 3 | 2];
    put_varint(&mut head, object.len() as u64);
    put_varint(&mut out, (head.len() + object.len()) as u64);
    out.extend_from_slice(&head);
    out.extend_from_slice(object);
    let length = u32::try_from(out.len() - 4).unwrap_or(u32::MAX);
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// Writes bytes with their length before them, which is known when they are there.
fn nested<T, E>(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<T, E>) -> Result<T, E> {
    let at = out.len();
    out.push(0);
    let done = write(out)?;
    let length = out.len() - at - 1;
    if length < 0x80 {
        out[at] = length as u8;
    } else {
        let mut head = Vec::with_capacity(5);
        put_varint(&mut head, length as u64);
        out.splice(at..=at, head);
    }
    Ok(done)
}

/// Writes the field that a step is of.
struct FieldOf<'a> {
    step: &'a Step,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for FieldOf<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        let Self { step, out } = self;
        if step.path.is_empty() {
            return shaped(step, out, input);
        }
        // What stands inside of messages without a name is a piece of each of them.
        let mut piece = Vec::new();
        shaped(step, &mut piece, input)?;
        if piece.is_empty() {
            return Ok(());
        }
        for number in step.path.iter().rev() {
            let inner = std::mem::take(&mut piece);
            put_bytes(&mut piece, *number, &inner);
        }
        out.extend_from_slice(&piece);
        Ok(())
    }
}

fn shaped<'de, D: Deserializer<'de>>(step: &Step, out: &mut Vec<u8>, input: D) -> Result<(), D::Error> {
    match step.shape {
        Shape::One => Tagged { target: step.target, number: step.number, out }.deserialize(input).map(drop),
        Shape::Many => input.deserialize_any(Elements { target: step.target, number: step.number, out }),
        Shape::Map => input.deserialize_any(Pairs { step, out }),
    }
}

/// Writes one value with its tag; nothing for null. Says whether it wrote.
struct Tagged<'a> {
    target: Target,
    number: u32,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Tagged<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<bool, D::Error> {
        let Self { target, number, out } = self;
        let begin = out.len();
        let wire = match target {
            Target::Bool | Target::Integer => 0,
            Target::Double => 1,
            _ => 2,
        };
        put_varint(out, u64::from(number) << 3 | wire);
        let write = |out: &mut Vec<u8>| Body { target, out }.deserialize(input);
        let written = if wire == 2 { nested(out, write)? } else { write(out)? };
        if !written {
            out.truncate(begin);
        }
        Ok(written)
    }
}

/// Writes the elements of a list as repeated fields. A null among them is the element's zero.
struct Elements<'a> {
    target: Target,
    number: u32,
    out: &'a mut Vec<u8>,
}

impl<'de> Visitor<'de> for Elements<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self { target, number, out } = self;
        while let Some(written) = items.next_element_seed(Tagged { target, number, out: &mut *out })? {
            if !written {
                zero(out, target, number);
            }
        }
        Ok(())
    }
}

fn zero(out: &mut Vec<u8>, target: Target, number: u32) {
    match target {
        Target::Bool | Target::Integer => put_integer(out, number, 0),
        Target::Double => put_double(out, number, 0.0),
        _ => put_bytes(out, number, b""),
    }
}

/// Writes the pairs of a map as repeated messages of a key and a value.
struct Pairs<'a> {
    step: &'a Step,
    out: &'a mut Vec<u8>,
}

impl<'de> Visitor<'de> for Pairs<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut pair = Vec::new();
        while map.next_key_seed(Tagged { target: Target::Text, number: 1, out: &mut pair })?.is_some() {
            let value = Tagged { target: self.step.target, number: 2, out: &mut pair };
            if !map.next_value_seed(value)? {
                zero(&mut pair, self.step.target, 2);
            }
            put_bytes(self.out, self.step.number, &pair);
            pair.clear();
        }
        Ok(())
    }
}

/// Writes a value without tag and length. Says whether it was anything but null.
struct Body<'a> {
    target: Target,
    out: &'a mut Vec<u8>,
}

impl<'de> DeserializeSeed<'de> for Body<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<bool, D::Error> {
        match self.target {
            Target::Special(name) if names::is_raw(name) => {
                let raw = <&RawValue>::deserialize(input)?.get();
                let present = raw != "null";
                if present {
                    put_bytes(self.out, 1, raw.as_bytes());
                }
                Ok(present)
            }
            Target::Special(name) if !names::is_schema(name) => {
                let value = Value::deserialize(input)?;
                special::encode(self.out, name, &value);
                Ok(!value.is_null())
            }
            _ => input.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Body<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a value for {:?}", self.target)
    }

    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<bool, E> {
        match self.target {
            Target::Bool => self.out.push(u8::from(value)),
            Target::Special(names::SCHEMA_OR_BOOL) => put_integer(self.out, 1, u64::from(value)),
            _ => return Err(self.refuse("a boolean")),
        }
        Ok(true)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<bool, E> {
        match self.target {
            Target::Integer => put_varint(self.out, value),
            Target::Double => self.out.extend_from_slice(&(value as f64).to_le_bytes()),
            _ => return Err(self.refuse("a number")),
        }
        Ok(true)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<bool, E> {
        match self.target {
            Target::Integer => put_varint(self.out, value as u64),
            Target::Double => self.out.extend_from_slice(&(value as f64).to_le_bytes()),
            _ => return Err(self.refuse("a number")),
        }
        Ok(true)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<bool, E> {
        match self.target {
            Target::Integer => put_varint(self.out, value as i64 as u64),
            Target::Double => self.out.extend_from_slice(&value.to_le_bytes()),
            _ => return Err(self.refuse("a number")),
        }
        Ok(true)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<bool, E> {
        match self.target {
            Target::Text => self.out.extend_from_slice(text.as_bytes()),
            Target::Bytes => {
                BASE64_STANDARD.decode_vec(text, self.out).map_err(E::custom)?;
            }
            _ => return Err(self.refuse("a string")),
        }
        Ok(true)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<bool, A::Error> {
        let (target, number) = match self.target {
            Target::Message(message) => match &Plan::of(message).list {
                Some(step) => (step.target, step.number),
                None => return Err(self.refuse("a list")),
            },
            Target::Special(names::SCHEMA_OR_ARRAY) => (schema(), 2),
            Target::Special(names::SCHEMA_OR_STRINGS) => (Target::Text, 2),
            _ => return Err(self.refuse("a list")),
        };
        Elements { target, number, out: self.out }.visit_seq(items)?;
        Ok(true)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let message = match self.target {
            Target::Message(message) => message,
            Target::Special(name) => {
                let number = if name == names::SCHEMA_OR_BOOL { 2u64 } else { 1 };
                if number == 2 {
                    put_integer(self.out, 1, 1);
                }
                let Target::Message(message) = schema() else { return Err(self.refuse("an object")) };
                put_varint(self.out, number << 3 | 2);
                nested(self.out, |out| fields(out, message, &mut map))?;
                return Ok(true);
            }
            _ => return Err(self.refuse("an object")),
        };
        fields(self.out, message, &mut map)?;
        Ok(true)
    }
}

impl Body<'_> {
    fn refuse<E: Error>(&self, what: &str) -> E {
        E::custom(format_args!("{what} where {:?} should be", self.target))
    }
}

fn schema() -> Target {
    messages::get(names::SCHEMA).map_or(Target::Special(names::SCHEMA), Target::Message)
}

fn fields<'de, A: MapAccess<'de>>(
    out: &mut Vec<u8>,
    message: &'static Message,
    map: &mut A,
) -> Result<(), A::Error> {
    let plan = Plan::of(message);
    while let Some(step) = map.next_key_seed(Key(plan))? {
        match step {
            Some(step) => map.next_value_seed(FieldOf { step, out: &mut *out })?,
            None => drop(map.next_value::<IgnoredAny>()?),
        }
    }
    Ok(())
}

/// Finds the step of a key; none for a field that the message does not have, as `kind`.
struct Key(&'static Plan);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<&'static Step>;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<&'static Step>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.step(name))
    }
}

#[cfg(test)]
mod tests;
