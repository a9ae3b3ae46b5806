//! Policies and bindings with their expressions compiled.

use crate::matching::Match;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_machinery_cel::Program;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Compiled states that are kept; where there are more, all are forgotten and compiled again as they are used.
const KEPT: usize = 4096;

/// An expression, compiled or with what is wrong about it.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    pub(crate) source: String,
    pub(crate) program: Result<Arc<Program>, String>,
}

/// `matchConditions`, `variables`: an expression with a name.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) expression: Expression,
}

/// One of `validations`.
#[derive(Clone, Debug)]
pub(super) struct Validation {
    pub(super) expression: Expression,
    pub(super) message: String,
    pub(super) message_expression: Option<Expression>,
    pub(super) reason: String,
}

/// One of `mutations`.
#[derive(Clone, Debug)]
pub(super) enum Mutation {
    /// `applyConfiguration`: gives a part of the object.
    Apply(Expression),
    /// `jsonPatch`: gives a list of operations.
    Json(Expression),
}

/// A policy of either kind.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) name: String,
    pub(super) matches: Match,
    pub(super) conditions: Vec<Named>,
    pub(super) variables: Vec<Named>,
    pub(super) validations: Vec<Validation>,
    pub(super) mutations: Vec<Mutation>,
    /// `apiVersion` and `kind` of parameters.
    pub(super) param_kind: Option<(String, String)>,
    /// `failurePolicy` is not `Ignore`.
    pub(super) fails: bool,
    /// `reinvocationPolicy` is `IfNeeded`.
    pub(super) again: bool,
}

/// A binding of either kind.
#[derive(Clone, Debug)]
pub struct Binding {
    pub(super) name: String,
    /// The name of the policy.
    pub(super) policy: String,
    pub(super) matches: Match,
    pub(super) actions: Vec<String>,
    /// `paramRef`, null where there is none.
    pub(super) param_ref: Value,
}

fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

fn list<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = &'v Value> {
    value[field].as_array().into_iter().flatten()
}

impl Expression {
    fn of(
        source: &str,
        compile: impl Fn(&str) -> Result<Arc<Program>, freehold_machinery_cel::CompileError>,
    ) -> Self {
        Self { source: source.to_owned(), program: compile(source).map_err(|e| e.0) }
    }

    fn plain(value: &Value, field: &str) -> Self {
        Self::of(value[field].as_str().unwrap_or_default(), Program::compile)
    }
}

impl Named {
    pub(crate) fn of(value: &Value) -> Self {
        Self { name: text(value, "name"), expression: Expression::plain(value, "expression") }
    }
}

impl Validation {
    fn of(value: &Value) -> Self {
        let has_message = value["messageExpression"].as_str().is_some_and(|source| !source.is_empty());
        Self {
            expression: Expression::plain(value, "expression"),
            message: text(value, "message"),
            message_expression: has_message.then(|| Expression::plain(value, "messageExpression")),
            reason: text(value, "reason"),
        }
    }
}

impl Mutation {
    fn of(value: &Value) -> Self {
        let source = |field: &str| {
            Expression::of(value[field]["expression"].as_str().unwrap_or_default(), Program::compile_mutation)
        };
        match value["patchType"].as_str() {
            Some("JSONPatch") => Self::Json(source("jsonPatch")),
            _ => Self::Apply(source("applyConfiguration")),
        }
    }
}

impl Policy {
    /// From an object of either kind. What is wrong about it fails the writes that it matches.
    pub fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let kind = &spec["paramKind"];
        Self {
            name: meta::name(object).to_owned(),
            matches: Match::of(&spec["matchConstraints"]),
            conditions: list(spec, "matchConditions").map(Named::of).collect(),
            variables: list(spec, "variables").map(Named::of).collect(),
            validations: list(spec, "validations").map(Validation::of).collect(),
            mutations: list(spec, "mutations").map(Mutation::of).collect(),
            param_kind: kind.is_object().then(|| (text(kind, "apiVersion"), text(kind, "kind"))),
            fails: spec["failurePolicy"] != "Ignore",
            again: spec["reinvocationPolicy"] == "IfNeeded",
        }
    }
}

impl Binding {
    /// From an object of either kind.
    pub fn of(object: &Value) -> Self {
        let spec = &object["spec"];
        let actions = list(spec, "validationActions").filter_map(Value::as_str).map(str::to_owned);
        Self {
            name: meta::name(object).to_owned(),
            policy: text(spec, "policyName"),
            matches: Match::of(&spec["matchResources"]),
            actions: actions.collect(),
            param_ref: spec["paramRef"].clone(),
        }
    }
}

/// An object: its plane, resource and name.
type Place = (PlaneId, &'static str, String);

/// What was compiled, by the state of the object that it was compiled from.
#[derive(Debug)]
pub struct Compiled<T> {
    known: Mutex<HashMap<Place, (u64, Arc<T>)>>,
}

impl<T> Default for Compiled<T> {
    fn default() -> Self {
        Self { known: Mutex::default() }
    }
}

impl<T> Compiled<T> {
    /// The compiled state of an object as of a revision; `compile` makes it where it is not known yet.
    pub fn get(
        &self,
        plane: &PlaneId,
        resource: &'static str,
        name: &str,
        modified: u64,
        compile: impl FnOnce() -> T,
    ) -> Arc<T> {
        let key = (plane.clone(), resource, name.to_owned());
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = lock().get(&key).filter(|(at, _)| *at == modified) {
            return known.clone();
        }
        let made = Arc::new(compile());
        let mut known = lock();
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, (modified, made.clone()));
        made
    }
}
