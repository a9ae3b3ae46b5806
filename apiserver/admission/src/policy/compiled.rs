//! Policies and bindings with their expressions compiled.

use super::{scope::Names, typing::Environment};
use crate::matching::Match;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_machinery_cel::Program;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
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
    /// `auditAnnotations`: keys, each with what gives its value.
    pub(super) audited: Vec<Named>,
    /// What any of its expressions names.
    pub(super) names: Names,
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
    fn of(source: &str, names: &Environment, is_mutation: bool) -> Self {
        let compile = if is_mutation { Program::mutation } else { Program::typed };
        Self { source: source.to_owned(), program: compile(source, names.names()).map_err(|e| e.0) }
    }

    fn plain(value: &Value, field: &str, names: &Environment) -> Self {
        Self::of(value[field].as_str().unwrap_or_default(), names, false)
    }
}

impl Named {
    /// From an object with `name` and `expression`, which can name what is given.
    pub(crate) fn of(value: &Value, names: &Environment) -> Self {
        Self { name: text(value, "name"), expression: Expression::plain(value, "expression", names) }
    }
}

impl Validation {
    fn of(value: &Value, names: &Environment) -> Self {
        let has_message = value["messageExpression"].as_str().is_some_and(|source| !source.is_empty());
        Self {
            expression: Expression::plain(value, "expression", names),
            message: text(value, "message"),
            message_expression: has_message.then(|| Expression::plain(value, "messageExpression", names)),
            reason: text(value, "reason"),
        }
    }
}

impl Mutation {
    fn of(value: &Value, names: &Environment) -> Self {
        let source = |field: &str| {
            Expression::of(value[field]["expression"].as_str().unwrap_or_default(), names, true)
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
        let plain = Environment::new(None, kind.is_object().then_some(None));
        let names = plain.clone().with_variables(&spec["variables"]);
        let audited = |value: &Value| Named {
            name: text(value, "key"),
            expression: Expression::plain(value, "valueExpression", &names),
        };
        let mut policy = Self {
            audited: list(spec, "auditAnnotations").map(audited).collect(),
            names: Names::default(),
            name: meta::name(object).to_owned(),
            matches: Match::of(&spec["matchConstraints"]),
            conditions: list(spec, "matchConditions").map(|value| Named::of(value, &plain)).collect(),
            variables: list(spec, "variables").map(|value| Named::of(value, &names)).collect(),
            validations: list(spec, "validations").map(|value| Validation::of(value, &names)).collect(),
            mutations: list(spec, "mutations").map(|value| Mutation::of(value, &names)).collect(),
            param_kind: kind.is_object().then(|| (text(kind, "apiVersion"), text(kind, "kind"))),
            fails: spec["failurePolicy"] != "Ignore",
            again: spec["reinvocationPolicy"] == "IfNeeded",
        };
        policy.names = Names::of(policy.expressions());
        policy
    }

    /// Whether an expression reads something of the plane beside the write.
    pub(crate) fn reads_plane(&self) -> bool {
        self.names.read_plane()
    }

    fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let named = self.conditions.iter().chain(&self.variables).chain(&self.audited);
        let validations = self
            .validations
            .iter()
            .flat_map(|validation| [Some(&validation.expression), validation.message_expression.as_ref()]);
        let mutations = self.mutations.iter().map(|mutation| match mutation {
            Mutation::Apply(expression) | Mutation::Json(expression) => expression,
        });
        named.map(|named| &named.expression).chain(validations.flatten()).chain(mutations)
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

/// What was compiled: by the state of the object that it was compiled from, and once for all objects of one content.
#[derive(Debug)]
pub struct Compiled<T> {
    known: Mutex<HashMap<Place, (u64, Arc<T>)>>,
    contents: Mutex<HashMap<[u8; 32], Weak<T>>>,
}

impl<T> Default for Compiled<T> {
    fn default() -> Self {
        Self { known: Mutex::default(), contents: Mutex::default() }
    }
}

/// Names what is compiled of an object: everything but what the server alone writes.
fn content(object: &Value) -> [u8; 32] {
    let mut digest = Sha256::new_with_prefix(meta::name(object));
    for (field, value) in object.as_object().into_iter().flatten() {
        if field != "metadata" && field != "status" {
            digest.update(format!("\n{field}={value}"));
        }
    }
    digest.finalize().into()
}

impl<T> Compiled<T> {
    /// The compiled state of an object as of a revision. Where it is not known yet, `read` gives the object and `compile`
    /// what is made of it.
    pub fn get(
        &self,
        plane: &PlaneId,
        resource: &'static str,
        name: &str,
        modified: u64,
        read: impl FnOnce() -> Value,
        compile: impl FnOnce(&Value) -> T,
    ) -> Arc<T> {
        let key = (plane.clone(), resource, name.to_owned());
        if let Some((_, known)) = lock(&self.known).get(&key).filter(|(at, _)| *at == modified) {
            return known.clone();
        }
        let object = read();
        let content = content(&object);
        let shared = lock(&self.contents).get(&content).and_then(Weak::upgrade);
        let made = shared.unwrap_or_else(|| {
            let made = Arc::new(compile(&object));
            let mut contents = lock(&self.contents);
            if contents.len() >= KEPT {
                contents.retain(|_, made| made.strong_count() > 0);
            }
            contents.insert(content, Arc::downgrade(&made));
            made
        });
        let mut known = lock(&self.known);
        if known.len() >= KEPT {
            known.clear();
        }
        known.insert(key, (modified, made.clone()));
        made
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_policies_of_planes_are_compiled_once() {
        let compiled = Compiled::default();
        let of = |plane: &PlaneId, revision: u64, expression: &str| {
            let object = json!({"metadata": {"name": "p", "uid": revision}, "spec": {"validations": [{"expression": expression}]}});
            compiled.get(plane, "policies", "p", revision, || object, Policy::of)
        };
        let first = of(&PlaneId::core(), 1, "true");
        assert!(Arc::ptr_eq(&first, &of(&PlaneId::infra(), 7, "true")));
        assert!(Arc::ptr_eq(&first, &of(&PlaneId::core(), 1, "true")));
        assert!(!Arc::ptr_eq(&first, &of(&PlaneId::core(), 8, "false")));
    }
}
