//! `x-kubernetes-validations`: the rules of a schema, and what an object breaks.
//!
//! As in Kubernetes: rules with `oldSelf` run on updates only, where there is an old value to compare with (items of
//! lists are told apart by their keys, those of other lists not at all), unless `optionalOldSelf` is set. What was wrong
//! already and did not change is let through. All rules of one object share a [`Budget`].

use crate::{
    escape::escape,
    program::{Budget, EvalError, Program, optional},
    value::{Owned, convert},
};
use cel::common::types::{CelInt, CelString};
use freehold_machinery::{
    ResourceType, Value,
    schema::{self, Kind, ListType, Rule, Schema},
    status::{FieldError, FieldErrorKind},
};
use parking_lot::Mutex;
use serde_json::json;
use std::{
    collections::HashMap,
    fmt::Write,
    sync::{Arc, LazyLock},
};

/// Types whose rules are kept; where there are more, all are forgotten and compiled again as they are used.
const KEPT: usize = 4096;
/// Bytes that an evaluated `messageExpression` may have.
const MAX_MESSAGE: usize = 5 << 10;

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
    /// Compiles all rules of a schema that stands at `path` of its CRD
    /// (`spec.versions[0].schema.openAPIV3Schema`).
    ///
    /// # Errors
    /// Each rule that is broken, with what is wrong about it.
    pub fn compile(schema: &Arc<Schema>, path: &str) -> Result<Self, Vec<FieldError>> {
        let mut compiler = Compiler { errors: Vec::new() };
        let root = compiler.node(schema, path, None, true);
        if compiler.errors.is_empty() { Ok(Self { root }) } else { Err(compiler.errors) }
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
        let rules = Arc::new(Self::compile(schema, "spec.validation.openAPIV3Schema")?);
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
        let Some(root) = &self.root else { return Vec::new() };
        let mut run =
            Run { path: String::new(), budget: Budget::default(), errors: Vec::new(), stopped: false };
        let place =
            Place { new, old, val: None, old_val: None, unchanged: Unchanged { same: old, nearest: None } };
        run.node(root, place);
        run.errors
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

/// Compiles the rules of a CRD's versions, for their errors. Paths are those of Kubernetes: where all versions have the
/// same schema it stands at `spec.validation`. Schemas that can't be read are left to other checks.
pub fn check_crd(crd: &Value) -> Vec<FieldError> {
    let versions =
        crd.pointer("/spec/versions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let schema_of = |v: &Value| v.pointer("/schema/openAPIV3Schema").filter(|s| !s.is_null()).cloned();
    let same = versions.windows(2).all(|w| w[0].get("schema") == w[1].get("schema"));
    let mut errors = Vec::new();
    for (index, version) in versions.iter().enumerate().take(if same { 1 } else { versions.len() }) {
        let path = match same {
            true => "spec.validation.openAPIV3Schema".to_owned(),
            false => format!("spec.versions[{index}].schema.openAPIV3Schema"),
        };
        if let Some(Ok(schema)) = schema_of(version).as_ref().map(schema::parse) {
            errors.extend(Rules::compile(&schema, &path).err().unwrap_or_default());
        }
    }
    errors
}

struct Compiler {
    errors: Vec<FieldError>,
}

impl Compiler {
    /// `apart`: the outermost list around the schema whose items can't be told apart between two versions of an object.
    fn node(&mut self, schema: &Arc<Schema>, path: &str, apart: Option<&str>, is_root: bool) -> Option<Node> {
        let rules = schema.rules.iter().enumerate();
        let rules: Vec<Compiled> = rules
            .filter_map(|(i, rule)| {
                self.rule(schema, rule, &format!("{path}.x-kubernetes-validations[{i}]"), apart, is_root)
            })
            .collect();
        let fields: Vec<(Box<str>, Node)> = schema
            .properties
            .iter()
            .filter_map(|(name, child)| {
                Some((name.clone(), self.node(child, &format!("{path}.properties[{name}]"), apart, false)?))
            })
            .collect();
        let items = schema.items.as_ref().and_then(|child| {
            let apart = apart.or_else(|| (schema.list_type != Some(ListType::Map)).then_some(path));
            self.node(child, &format!("{path}.items"), apart, false)
        });
        let additional = schema
            .additional
            .as_ref()
            .and_then(|child| self.node(child, &format!("{path}.additionalProperties"), apart, false));
        let empty = rules.is_empty() && fields.is_empty() && items.is_none() && additional.is_none();
        let (items, additional) = (items.map(Box::new), additional.map(Box::new));
        (!empty).then(|| Node { schema: schema.clone(), rules, fields, items, additional })
    }

    fn rule(
        &mut self,
        schema: &Schema,
        rule: &Rule,
        path: &str,
        apart: Option<&str>,
        is_root: bool,
    ) -> Option<Compiled> {
        if rule.rule.trim().is_empty() {
            return None;
        }
        let old = if rule.optional_old_self { None } else { Some(schema) };
        let variables = [("self", Some(schema)), ("oldSelf", old)];
        let compile = |source: &str| {
            let program = Program::compile(source)?;
            program.check(&variables, is_root)?;
            Ok::<_, crate::CompileError>(program)
        };
        let program = match compile(&rule.rule) {
            Ok(program) => program,
            Err(e) => {
                self.errors.push(FieldError::invalid(format!("{path}.rule"), shown(rule), e.0));
                return None;
            }
        };
        let message = match rule.message_expression.as_deref().map(compile).transpose() {
            Ok(message) => message,
            Err(e) => {
                let detail = e.0.replacen("compilation failed", "messageExpression compilation failed", 1);
                self.errors.push(FieldError::invalid(
                    format!("{path}.messageExpression"),
                    shown(rule),
                    detail,
                ));
                None
            }
        };
        let uses_old = program.uses("oldSelf");
        match (uses_old, apart) {
            (true, Some(list)) => {
                let detail = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                );
                self.errors.push(FieldError::invalid(format!("{path}.rule"), (*rule.rule).into(), detail));
            }
            (false, _) if rule.optional_old_self => {
                let detail = "may not be set if oldSelf is not used in rule";
                self.errors.push(FieldError::invalid(format!("{path}.optionalOldSelf"), true.into(), detail));
            }
            _ => {}
        }
        let field = rule.field_path.as_deref().map(normalize).unwrap_or_default();
        Some(Compiled { rule: rule.clone(), program, message, uses_old, field })
    }
}

/// A rule as Kubernetes shows it in errors: its internal struct.
fn shown(rule: &Rule) -> Value {
    json!({
        "Rule": rule.rule, "Message": rule.message.as_deref().unwrap_or(""),
        "MessageExpression": rule.message_expression.as_deref().unwrap_or(""), "Reason": rule.reason,
        "FieldPath": rule.field_path.as_deref().unwrap_or(""),
        "OptionalOldSelf": rule.optional_old_self.then_some(true),
    })
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

/// A value within the object, and what it was.
struct Place<'a> {
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

struct Run {
    path: String,
    budget: Budget,
    errors: Vec<FieldError>,
    stopped: bool,
}

impl Run {
    fn node(&mut self, node: &Node, mut place: Place<'_>) {
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
        let val = place.val.get_or_insert_with(|| convert(place.new, Some(&node.schema))).clone();
        let wants_old = node.rules.iter().any(|r| r.uses_old);
        if wants_old && place.old_val.is_none() {
            place.old_val = place.old.filter(|o| !o.is_null()).map(|old| convert(old, Some(&node.schema)));
        }
        for rule in &node.rules {
            let old = match (rule.uses_old, rule.rule.optional_old_self) {
                (false, false) => None,
                (_, true) => Some(optional(place.old_val.clone())),
                (true, false) => match &place.old_val {
                    Some(old) => Some(old.clone()),
                    None => continue,
                },
            };
            let variables = || {
                let old = old.clone().map(|old| ("oldSelf", old));
                std::iter::once(("self", val.clone())).chain(old)
            };
            let is_true = |value: &dyn cel::common::value::Val| {
                value.downcast_ref::<cel::common::types::CelBool>().is_some_and(|b| *b.inner())
            };
            match rule.program.run(variables(), &mut self.budget, is_true) {
                Ok(true) => {}
                Ok(false) => {
                    let message = self.message(rule, &node.schema, variables());
                    if rule.uses_old || !place.unchanged.holds(place.new) {
                        self.errors.push(self.broken(rule, place.new, message));
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
        variables: impl Iterator<Item = (&'v str, Owned)>,
    ) -> String {
        let read = |value: &dyn cel::common::value::Val| {
            value.downcast_ref::<CelString<'_>>().map(|s| s.inner().trim().to_owned())
        };
        let evaluated = rule.message.as_ref().map(|program| program.run(variables, &mut self.budget, read));
        if let Some(Err(EvalError::BudgetSpent | EvalError::CallLimit)) = evaluated {
            let detail = "messageExpression evaluation failed due to running out of cost budget, no further validation rules will be run";
            self.errors.push(FieldError::invalid(self.field_name(""), kind_name(schema).into(), detail));
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
        FieldError { kind, field, value, detail }
    }

    fn failed(&mut self, rule: &Compiled, node: &Node, error: EvalError) {
        let name = rule.rule.message.as_deref().unwrap_or(&rule.rule.rule).trim();
        self.stopped = matches!(error, EvalError::BudgetSpent | EvalError::CallLimit);
        let detail = match error {
            EvalError::BudgetSpent => {
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_owned()
            }
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

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
