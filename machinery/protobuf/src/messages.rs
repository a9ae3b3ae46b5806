//! The table of messages, parsed once.

use crate::plan::Plan;
use std::{
    collections::HashMap,
    sync::{LazyLock, OnceLock},
};

/// A message: its fields by number.
#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) name: &'static str,
    pub(crate) fields: Vec<Field>,
    /// Its fields by name, made when something of it is first written.
    pub(crate) plan: OnceLock<Plan>,
}

/// A field of a message.
#[derive(Debug)]
pub(crate) struct Field {
    /// Its name in JSON, or [`INLINE`] or [`LIST`].
    pub(crate) name: &'static str,
    pub(crate) number: u32,
    /// Whether a zero value means something.
    pub(crate) keep_zero: bool,
    pub(crate) shape: Shape,
    pub(crate) kind: Kind,
}

/// The fields of the message stand in the object itself.
pub(crate) const INLINE: &str = "~";
/// The message is a list.
pub(crate) const LIST: &str = "=";

/// How often a field stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    Many,
    Map,
}

/// What a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Bool,
    Integer,
    Double,
    Bytes,
    Message(&'static str),
}

static TABLE: LazyLock<HashMap<&'static str, Message>> = LazyLock::new(|| {
    let lines = include_str!("messages.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(message).map(|message| (message.name, message)).collect()
});

fn message(line: &'static str) -> Option<Message> {
    let mut words = line.split(' ');
    let name = words.next()?;
    Some(Message { name, fields: words.filter_map(field).collect(), plan: OnceLock::new() })
}

fn field(word: &'static str) -> Option<Field> {
    let mut parts = word.split(',');
    let (name, number, kind) = (parts.next()?, parts.next()?, parts.next()?);
    let (shape, kind) = match kind.as_bytes().first()? {
        b'*' => (Shape::Many, &kind[1..]),
        b'%' => (Shape::Map, &kind[1..]),
        _ => (Shape::One, kind),
    };
    let kind = match kind {
        "s" => Kind::Text,
        "b" => Kind::Bool,
        "i" => Kind::Integer,
        "d" => Kind::Double,
        "B" => Kind::Bytes,
        message => Kind::Message(message.strip_prefix('@')?),
    };
    let keep_zero = number.ends_with('!');
    Some(Field { name, number: number.trim_end_matches('!').parse().ok()?, keep_zero, shape, kind })
}

/// A message by name.
pub(crate) fn get(name: &str) -> Option<&'static Message> {
    TABLE.get(name)
}

/// The message of a kind. Kinds that every group has (`DeleteOptions`) are those of `meta.v1`.
pub(crate) fn of_kind(api_version: &str, kind: &str) -> Option<&'static Message> {
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let package = group.split('.').next().unwrap_or_default();
    get(&format!("{package}.{version}.{kind}")).or_else(|| get(&format!("meta.v1.{kind}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_that_a_field_names_is_there() {
        for message in TABLE.values() {
            for field in &message.fields {
                if let Kind::Message(name) = field.kind {
                    assert!(
                        get(name).is_some() || crate::names::is_special(name),
                        "{} names {name}",
                        message.name
                    );
                }
            }
        }
    }

    #[test]
    fn kinds_are_found_by_group_version_and_name() {
        for (api_version, kind) in [
            ("v1", "Pod"),
            ("apps/v1", "Deployment"),
            ("rbac.authorization.k8s.io/v1", "Role"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("v1", "DeleteOptions"),
        ] {
            assert!(of_kind(api_version, kind).is_some(), "{api_version} {kind}");
        }
        assert!(of_kind("example.com/v1", "Widget").is_none());
    }
}
