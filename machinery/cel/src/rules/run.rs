//! Evaluation of an object against the rules of its schema.

use super::{Compiled, Node};
use crate::convert::convert;
use crate::{
    escape::escape,
    program::{Budget, EvalError, optional},
    run::Bound,
    value::Owned,
};
use cel::common::types::{CelInt, CelString};
use freehold_machinery::{
    Value,
    schema::{Kind, ListType, Schema},
    status::{FieldError, FieldErrorKind},
};
use std::fmt::Write;

const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";
/// Bytes that an evaluated `messageExpression` may have.
const MAX_MESSAGE: usize = 5 << 10;

/// A value within the object, and what it was.
pub(super) struct Place<'a> {
    new: &'a Value,
    old: Option<&'a Value>,
    /// The values in CEL, where something around them was converted already.
    val: Option<Owned>,
    old_val: Option<Owned>,
    unchanged: Unchanged<'a>,
}

/// How to tell whether a value is what it was.
#[derive(Clone, Copy)]
struct Unchanged<'a> {
    /// What it was, where it can be told.
    same: Option<&'a Value>,
    /// The nearest value around it of which that can be told, and what that was.
    nearest: Option<(&'a Value, &'a Value)>,
}

impl<'a> Unchanged<'a> {
    fn holds(&self, new: &Value) -> bool {
        match self.same {
            Some(old) => old == new,
            None => self.nearest.is_some_and(|(new, old)| new == old),
        }
    }

    /// For a part of `new` that was `old`.
    fn below(self, new: &'a Value, old: Option<&'a Value>) -> Self {
        match self.same {
            Some(own) => Self { same: old, nearest: Some((new, own)) },
            None => self,
        }
    }
}

pub(super) struct Run {
    pub(super) path: String,
    pub(super) budget: Budget,
    pub(super) errors: Vec<FieldError>,
    /// What is broken, and was before.
    pub(super) tolerated: Vec<FieldError>,
    pub(super) stopped: bool,
}

impl Run {
    pub(super) fn node(&mut self, node: &Node, mut place: Place<'_>) {
        if self.stopped || place.new.is_null() {
            return;
        }
        if !node.rules.is_empty() {
            self.rules(node, &mut place);
        }
        match place.new {
            Value::Object(map) => {
                for (name, child) in &node.fields {
                    if let Some(value) = map.get(&**name) {
                        self.field(child, &place, name, value);
                    }
                }
                let Some(child) = &node.additional else { return };
                for (name, value) in
                    map.iter().filter(|(name, _)| !node.schema.properties.contains_key(name.as_str()))
                {
                    self.entry(child, &place, name, value);
                }
            }
            Value::Array(list) => {
                let Some(child) = &node.items else { return };
                for (index, value) in list.iter().enumerate() {
                    self.item(child, node, &place, index, value);
                }
            }
            _ => {}
        }
    }

    fn below(&mut self, step: std::fmt::Arguments<'_>, node: &Node, place: Place<'_>) {
        let length = self.path.len();
        write!(self.path, "{step}").expect("writing to a string does not fail");
        self.node(node, place);
        self.path.truncate(length);
    }

    fn field(&mut self, node: &Node, around: &Place<'_>, name: &str, value: &Value) {
        let is_root = self.path.is_empty();
        let dot = if is_root { "" } else { "." };
        let key = escape(name).unwrap_or_default();
        let mut place = around.part(value, name, &key);
        if is_root && matches!(name, "apiVersion" | "kind") {
            place.unchanged = Unchanged { same: None, nearest: None };
        }
        self.below(format_args!("{dot}{name}"), node, place);
    }

    fn entry(&mut self, node: &Node, around: &Place<'_>, name: &str, value: &Value) {
        let place = around.part(value, name, name);
        self.below(format_args!("[{name}]"), node, place);
    }

    fn item(&mut self, node: &Node, list: &Node, around: &Place<'_>, index: usize, value: &Value) {
        let at = matches!(list.schema.list_type, Some(ListType::Map))
            .then(|| position(around.old?.as_array()?, value, &list.schema.list_map_keys))
            .flatten();
        let old = at.and_then(|at| around.old?.get(at));
        let place = Place {
            new: value,
            old,
            val: around.val.as_ref().and_then(|v| item_of(v, index)),
            old_val: at.and_then(|at| item_of(around.old_val.as_ref()?, at)),
            unchanged: around.unchanged.below(around.new, old),
        };
        self.below(format_args!("[{index}]"), node, place);
    }

    fn rules(&mut self, node: &Node, place: &mut Place<'_>) {
        if self.budget.is_spent() {
            let kind = kind_name(&node.schema).into();
            self.errors.push(FieldError::invalid(self.field_name(""), kind, OUT_OF_BUDGET));
            self.stopped = true;
            return;
        }
        let val = place.val.get_or_insert_with(|| convert(place.new, Some(&node.schema))).clone();
        let wants_old = node.rules.iter().any(|r| r.uses_old);
        if wants_old && place.old_val.is_none() {
            place.old_val = place.old.filter(|o| !o.is_null()).map(|old| convert(old, Some(&node.schema)));
        }
        for rule in &node.rules {
            let old = match (rule.uses_old, rule.rule.optional_old_self == Some(true)) {
                (false, false) => None,
                (_, true) => Some(optional(place.old_val.clone())),
                (true, false) => match &place.old_val {
                    Some(old) => Some(old.clone()),
                    None => continue,
                },
            };
            let variables = || {
                let old = old.clone().map(|old| ("oldSelf", Bound::Value(old)));
                std::iter::once(("self", Bound::Value(val.clone()))).chain(old)
            };
            let is_true = |value: &dyn cel::common::value::Val| {
                value.downcast_ref::<cel::common::types::CelBool>().is_some_and(|b| *b.inner())
            };
            match rule.program.run(variables(), &self.budget, is_true) {
                Ok(true) => {}
                Ok(false) => {
                    let message = self.message(rule, &node.schema, variables());
                    if self.stopped {
                        return;
                    }
                    let broken = self.broken(rule, place.new, message);
                    match rule.uses_old || !place.unchanged.holds(place.new) {
                        true => self.errors.push(broken),
                        false => self.tolerated.push(broken),
                    }
                }
                Err(e) => self.failed(rule, node, e),
            }
            if self.stopped {
                return;
            }
        }
    }

    /// What is said about a broken rule.
    fn message<'v>(
        &mut self,
        rule: &Compiled,
        schema: &Schema,
        variables: impl Iterator<Item = (&'v str, Bound<'v>)>,
    ) -> String {
        let read = |value: &dyn cel::common::value::Val| {
            value.downcast_ref::<CelString<'_>>().map(|s| s.inner().trim().to_owned())
        };
        let evaluated = rule.message.as_ref().map(|program| program.run(variables, &self.budget, read));
        let detail = match &evaluated {
            Some(Err(EvalError::BudgetSpent)) => {
                Some("messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run".to_owned())
            }
            Some(Err(EvalError::CallLimit)) => {
                let source = freehold_machinery::go::quote(rule.rule.message_expression.as_deref().unwrap_or_default());
                Some(format!("no further validation rules will be run due to call cost exceeds limit for messageExpression: {source}"))
            }
            _ => None,
        };
        if let Some(detail) = detail {
            self.errors.push(FieldError::invalid(
                self.field_name(&rule.field),
                kind_name(schema).into(),
                detail,
            ));
            self.stopped = true;
        }
        let usable = |m: &String| !m.is_empty() && m.len() <= MAX_MESSAGE && !m.contains('\n');
        let evaluated = evaluated.and_then(Result::ok).flatten().filter(usable);
        evaluated.unwrap_or_else(|| match rule.rule.message.as_deref() {
            Some(message) => message.trim().to_owned(),
            None => format!("failed rule: {}", rule.rule.rule.trim()),
        })
    }

    fn broken(&self, rule: &Compiled, value: &Value, message: String) -> FieldError {
        let field = self.field_name(&rule.field);
        // Objects and lists are not repeated in errors.
        let value = Some(value.clone()).filter(|v| !v.is_object() && !v.is_array());
        let (kind, value, detail) = match rule.rule.reason.as_deref() {
            Some("FieldValueForbidden") => (FieldErrorKind::Forbidden, None, message),
            Some("FieldValueRequired") => (FieldErrorKind::Required, None, message),
            Some("FieldValueDuplicate") => (FieldErrorKind::Duplicate, value, String::new()),
            _ => (FieldErrorKind::Invalid, value, message),
        };
        FieldError { value, ..FieldError::new(kind, field, detail) }
    }

    fn failed(&mut self, rule: &Compiled, node: &Node, error: EvalError) {
        let name = rule.rule.message.as_deref().unwrap_or(&rule.rule.rule).trim();
        self.stopped = matches!(error, EvalError::BudgetSpent | EvalError::CallLimit);
        let detail = match error {
            EvalError::BudgetSpent => OUT_OF_BUDGET.to_owned(),
            EvalError::CallLimit => format!(
                "'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: {name}"
            ),
            EvalError::NoOverload => format!(
                "'no such overload': call arguments did not match a supported operator, function or macro signature for rule: {name}"
            ),
            EvalError::Failed(what) => format!("{what} evaluating rule: {name}"),
        };
        self.errors.push(FieldError::invalid(self.field_name(""), kind_name(&node.schema).into(), detail));
    }

    fn field_name(&self, below: &str) -> String {
        match (self.path.as_str(), below) {
            ("", "") => "<nil>".to_owned(),
            (path, "") => path.to_owned(),
            ("", below) => below.to_owned(),
            (path, below) => format!("{path}.{below}"),
        }
    }
}

impl<'a> Place<'a> {
    /// A whole object, and what it replaces.
    pub(super) fn whole(new: &'a Value, old: Option<&'a Value>) -> Self {
        Self { new, old, val: None, old_val: None, unchanged: Unchanged { same: old, nearest: None } }
    }

    /// A field or entry of this object. `key` is its name in CEL.
    fn part(&self, value: &'a Value, name: &str, key: &str) -> Place<'a> {
        let old = self.old.and_then(|old| old.get(name));
        let of =
            |v: &Owned| v.as_indexer()?.get(&CelString::from(key.to_owned())).ok().map(|v| v.into_owned());
        Place {
            new: value,
            old,
            val: self.val.as_ref().and_then(of),
            old_val: self.old_val.as_ref().and_then(of),
            unchanged: self.unchanged.below(self.new, old),
        }
    }
}

fn item_of(list: &Owned, index: usize) -> Option<Owned> {
    let at = CelInt::from(i64::try_from(index).ok()?);
    list.as_indexer()?.get(&at).ok().map(|v| v.into_owned())
}

/// Where an item with the same keys stands.
fn position(list: &[Value], item: &Value, keys: &[Box<str>]) -> Option<usize> {
    list.iter().position(|other| keys.iter().all(|key| other.get(&**key) == item.get(&**key)))
}

fn kind_name(schema: &Schema) -> &'static str {
    match schema.kind {
        Some(Kind::Object) => "object",
        Some(Kind::Array) => "array",
        Some(Kind::String) => "string",
        Some(Kind::Integer) => "integer",
        Some(Kind::Number) => "number",
        Some(Kind::Boolean) => "boolean",
        None => "",
    }
}
