//! `x-kubernetes-validations`: the rules of a schema, and an object's violations of them.
//!
//! As in Kubernetes: rules with `oldSelf` run on updates only, where there is an old value to compare with (items of
//! lists are told apart by their keys, those of other lists not at all), unless `optionalOldSelf` is set. What was wrong
//! already and did not change is let through. All rules of one object share a [`Budget`].

mod check;
mod run;

pub use check::check_crd;
#[cfg(test)]
pub(crate) use check::compile;

use crate::{
    escape::escape,
    program::{Budget, Program},
    typing::{Seen, VariableType, decl::Decl},
};
use freehold_machinery::{
    ResourceType, Value,
    schema::{Rule, Schema},
    status::{FieldError, FieldErrorKind},
};
use parking_lot::Mutex;
use run::{Place, Run};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

/// Types whose rules are kept; where there are more, all are forgotten and compiled again as they are used.
const KEPT: usize = 4096;

/// The compiled rules of a schema. Without rules it is empty and costs nothing.
#[derive(Debug, Default)]
pub struct Rules {
    root: Option<Node>,
}

/// A part of a schema that has rules, or has a part with rules.
#[derive(Debug)]
struct Node {
    schema: Arc<Schema>,
    rules: Vec<Compiled>,
    fields: Vec<(Box<str>, Node)>,
    items: Option<Box<Node>>,
    additional: Option<Box<Node>>,
}

#[derive(Debug)]
struct Compiled {
    rule: Rule,
    program: Arc<Program>,
    message: Option<Arc<Program>>,
    uses_old: bool,
    /// The field to blame, as it stands in paths.
    field: String,
}

impl Rules {
    /// Compiles all rules of a schema whose CRD was accepted ([`check_crd`]).
    ///
    /// # Errors
    /// Each rule that can't be compiled, with what is wrong about it.
    pub fn compile(schema: &Arc<Schema>) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let root = node(schema, None, true, &mut errors);
        if errors.is_empty() { Ok(Self { root }) } else { Err(errors) }
    }

    /// The rules of a type, compiled on first use and shared by all types with the same content. Built-in types have
    /// none.
    ///
    /// # Errors
    /// See [`compile`](Self::compile). A CRD with broken rules is refused when it is written, see [`check_crd`].
    pub fn of(ty: &ResourceType) -> Result<Arc<Self>, Vec<FieldError>> {
        static COMPILED: LazyLock<Mutex<HashMap<String, Arc<Rules>>>> = LazyLock::new(Mutex::default);
        let Some(schema) = ty.schema.get().filter(|_| ty.custom) else { return Ok(Arc::default()) };
        if let Some(rules) = COMPILED.lock().get(&ty.hash) {
            return Ok(rules.clone());
        }
        let rules = Arc::new(Self::compile(schema)?);
        let mut compiled = COMPILED.lock();
        if compiled.len() >= KEPT {
            compiled.clear();
        }
        compiled.insert(ty.hash.clone(), rules.clone());
        Ok(rules)
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    /// The rules that an object breaks. `old` is what it replaces.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        self.validate_update(new, old).0
    }

    /// The rules that an object breaks, and besides those that what did not change of `old` broke before.
    pub fn validate_update(&self, new: &Value, old: Option<&Value>) -> (Vec<FieldError>, Vec<FieldError>) {
        let Some(root) = &self.root else { return (Vec::new(), Vec::new()) };
        let mut run = Run {
            path: String::new(),
            budget: Budget::default(),
            errors: Vec::new(),
            tolerated: Vec::new(),
            stopped: false,
        };
        run.node(root, Place::whole(new, old));
        (run.errors, run.tolerated)
    }
}

/// What is said in the place of broken rules where an object is too wrong for rules to be run: some of these errors
/// (missing fields, wrong types, unknown values, too much) would only bring more of themselves.
pub fn blocked_by(errors: &[FieldError]) -> Option<FieldError> {
    use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
    let blocks = |e: &FieldError| matches!(e.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid);
    let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
    errors.iter().any(blocks).then(|| FieldError::invalid("<nil>", Value::Null, detail))
}

/// The rules of a schema and of what is in it. `decl` is the schema as CEL sees it, where something around it has rules.
fn node(
    schema: &Arc<Schema>,
    mut decl: Option<Arc<Decl>>,
    is_root: bool,
    errors: &mut Vec<FieldError>,
) -> Option<Node> {
    if decl.is_none() && !schema.rules.is_empty() {
        decl = Decl::of(schema, is_root || schema.embedded_resource);
    }
    let mut rules = Vec::new();
    for rule in schema.rules.iter().filter(|rule| !rule.rule.trim().is_empty()) {
        match program(rule, decl.as_ref()) {
            Ok(compiled) => rules.push(compiled),
            Err(e) => {
                errors.push(FieldError::invalid("<nil>", Value::Null, format!("rule compile error: {e}")))
            }
        }
    }
    let mut fields: Vec<(Box<str>, Node)> = Vec::new();
    for (name, child) in &schema.properties {
        let inner = decl.as_ref().and_then(|decl| decl.field(&escape(name)?).cloned());
        fields.extend(node(child, inner, false, errors).map(|node| (name.clone(), node)));
    }
    let element = || decl.as_ref().and_then(|decl| decl.element().cloned());
    let items = schema.items.as_ref().and_then(|child| node(child, element(), false, errors)).map(Box::new);
    let additional =
        schema.additional.as_ref().and_then(|child| node(child, element(), false, errors)).map(Box::new);
    let empty = rules.is_empty() && fields.is_empty() && items.is_none() && additional.is_none();
    (!empty).then(|| Node { schema: schema.clone(), rules, fields, items, additional })
}

fn program(rule: &Rule, decl: Option<&Arc<Decl>>) -> Result<Compiled, crate::CompileError> {
    let seen = decl.map_or(VariableType::Dyn, |decl| VariableType::Schema(Seen::of(decl.clone())));
    let old = match rule.optional_old_self == Some(true) {
        true => VariableType::Optional(Box::new(seen.clone())),
        false => seen.clone(),
    };
    let variables = [("self", seen), ("oldSelf", old)];
    let program = Program::typed(&rule.rule, &variables)?;
    let message = rule.message_expression.as_deref().map(|m| Program::typed(m, &variables)).transpose()?;
    let uses_old = program.uses("oldSelf");
    let field = rule.field_path.as_deref().map(normalize).unwrap_or_default();
    Ok(Compiled { rule: rule.clone(), program, message, uses_old, field })
}

/// `.spec['a.b'].c` as `spec.a.b.c`.
fn normalize(path: &str) -> String {
    let mut out = String::new();
    let mut rest = path.trim();
    while !rest.is_empty() {
        let (step, tail) = match rest.strip_prefix("['") {
            Some(tail) => tail.split_once("']").unwrap_or((tail, "")),
            None => {
                let tail = rest.strip_prefix('.').unwrap_or(rest);
                tail.split_at(tail.find(['.', '[']).unwrap_or(tail.len()))
            }
        };
        if !out.is_empty() {
            out.push('.');
        }
        out.push_str(step);
        if tail.len() == rest.len() {
            break;
        }
        rest = tail;
    }
    out
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
