//! How the JSON of a message is written: its fields by name, those of messages that stand in it without a name of
//! their own included.

use crate::{
    messages::{self, Field, INLINE, Kind, LIST, Message, Shape},
    names,
};
use std::fmt;

/// The fields of one message, by their names in JSON.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Sorted by name.
    steps: Vec<Step>,
    /// What the elements are written as, where the message is a list.
    pub(crate) list: Option<Step>,
}

/// What a value becomes.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    name: &'static str,
    /// Numbers of the fields, from the outside, whose messages the field stands in.
    pub(crate) path: Vec<u32>,
    pub(crate) number: u32,
    pub(crate) shape: Shape,
    pub(crate) target: Target,
}

/// How one value is written.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    Text,
    Bool,
    Integer,
    Double,
    Bytes,
    /// A message whose JSON is no object of its fields.
    Special(&'static str),
    Message(&'static Message),
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "a string",
            Self::Bool => "a boolean",
            Self::Integer => "an integer",
            Self::Double => "a number",
            Self::Bytes => "base64",
            Self::Special(name) => name,
            Self::Message(message) => message.name,
        })
    }
}

impl Target {
    /// `None` for a message that is not in the table.
    pub(crate) fn of(kind: Kind) -> Option<Self> {
        Some(match kind {
            Kind::Text => Self::Text,
            Kind::Bool => Self::Bool,
            Kind::Integer => Self::Integer,
            Kind::Double => Self::Double,
            Kind::Bytes => Self::Bytes,
            Kind::Message(name) if names::is_special(name) => Self::Special(name),
            Kind::Message(name) => Self::Message(messages::get(name)?),
        })
    }
}

impl Plan {
    /// The plan of a message, made once.
    pub(crate) fn of(message: &'static Message) -> &'static Self {
        message.plan.get_or_init(|| {
            let mut plan = Self::default();
            plan.collect(&message.fields, &[]);
            plan.steps.sort_by_key(|step| step.name);
            plan
        })
    }

    fn collect(&mut self, fields: &[Field], path: &[u32]) {
        for field in fields {
            let Some(target) = Target::of(field.kind) else { continue };
            let step = Step {
                name: field.name,
                path: path.to_vec(),
                number: field.number,
                shape: field.shape,
                target,
            };
            match (field.name, target) {
                (LIST, _) => self.list = Some(step),
                (INLINE, Target::Message(inner)) => {
                    self.collect(&inner.fields, &[path, &[field.number]].concat());
                }
                _ => self.steps.push(step),
            }
        }
    }

    /// The step of a field; `None` for one that the message does not have.
    pub(crate) fn step(&self, name: &str) -> Option<&Step> {
        let index = self.steps.binary_search_by(|step| step.name.cmp(name)).ok()?;
        Some(&self.steps[index])
    }
}
