//! Mutating policies.

use super::{
    Bound, Form, Policy,
    compiled::Mutation,
    denied,
    params::params,
    scope::{Scope, conditions_hold},
    unseen,
};
use crate::sealed::Sealed;
use crate::{Attributes, Lookup};
use freehold_machinery::{
    Result, Status, Value,
    schema::{ListType, Schema},
};
use freehold_machinery_patch as patch;
use freehold_machinery_patch::{Unapplied, apply};
use std::sync::Arc;

/// Lets policies change the object that is written, whose form is `form`.
///
/// Gives whether anything changed: then what ran before has to run again. Policies whose `reinvocationPolicy` is
/// `IfNeeded` do so here, once, when one after them made a change.
///
/// # Errors
/// What policies that must not fail failed with.
pub fn mutate(
    attributes: &mut Attributes<'_>,
    lookup: &dyn Lookup,
    policies: &[Bound],
    form: &Form<'_>,
) -> Result<bool> {
    if unseen(attributes) || attributes.object().is_none() {
        return Ok(false);
    }
    let mut failures = Failures::default();
    let mut last_change = None;
    for (at, bound) in policies.iter().enumerate() {
        if run(bound, attributes, lookup, form, &mut failures)? {
            last_change = Some(at);
        }
    }
    if let Some(last) = last_change {
        for bound in policies[..last].iter().filter(|bound| bound.policy.again) {
            run(bound, attributes, lookup, form, &mut failures)?;
        }
    }
    let Some((first, reason)) = failures.first() else { return Ok(last_change.is_some()) };
    let mut status = denied(attributes, first.clone(), reason, failures.messages());
    status.message = first.clone();
    // The code of a refusal, whatever the reason is called.
    status.code = 403;
    Err(status)
}

/// What policies that must not fail failed with, and the reason that is told of each.
#[derive(Default)]
struct Failures(Vec<(String, &'static str)>);

impl Failures {
    fn first(&self) -> Option<(&String, &'static str)> {
        self.0.first().map(|(message, reason)| (message, *reason))
    }

    fn messages(&self) -> Vec<String> {
        self.0.iter().map(|(message, _)| message.clone()).collect()
    }
}

/// Something that can't be evaluated.
const INVALID: &str = "Invalid";
/// Something about what the policy is bound to or by.
const FORBIDDEN: &str = "Forbidden";

/// Runs one policy; gives whether it changed the object.
fn run(
    bound: &Bound,
    attributes: &mut Attributes<'_>,
    lookup: &dyn Lookup,
    form: &Form<'_>,
    failures: &mut Failures,
) -> Result<bool> {
    let policy = &*bound.policy;
    let sealed = Sealed(lookup);
    let lookup: &dyn Lookup = if bound.is_bundled { &sealed } else { lookup };
    let before = attributes.object().cloned();
    let mut fail = |message: String, reason| failures.0.extend(policy.fails.then_some((message, reason)));
    match policy.matches.matches(attributes, lookup) {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        Err(why) => {
            let why = format!("policy {:?} denied request: failed to configure policy: {why}", policy.name);
            fail(why, FORBIDDEN);
            return Ok(false);
        }
    }
    for binding in &bound.bindings {
        let said = |why: String| {
            format!("policy '{}' with binding '{}' denied request: {why}", policy.name, binding.name)
        };
        let found = match binding.matches.matches(attributes, lookup) {
            Ok(false) => continue,
            Ok(true) => params(policy, binding, attributes, lookup),
            Err(why) => Err(why),
        };
        let found = match found {
            Ok(found) => found,
            Err(why) => {
                fail(said(format!("failed to configure binding: {why}")), FORBIDDEN);
                continue;
            }
        };
        for param in found {
            for why in apply_all(policy, attributes, lookup, param, form)? {
                fail(said(why), INVALID);
            }
        }
    }
    Ok(attributes.object() != before.as_ref())
}

/// Applies what a policy changes, one after the other; one that fails keeps no other from being applied.
fn apply_all(
    policy: &Policy,
    attributes: &mut Attributes<'_>,
    lookup: &dyn Lookup,
    param: Option<Arc<Value>>,
    form: &Form<'_>,
) -> Result<Vec<String>> {
    let mut scope = Scope::new(
        (&policy.variables, policy.names),
        attributes,
        &attributes.seen(),
        lookup,
        param.as_deref(),
    );
    match conditions_hold(&policy.conditions, &mut scope) {
        Ok(true) => {}
        Ok(false) => return Ok(Vec::new()),
        Err(why) => return Ok(vec![why]),
    }
    let mut failures = Vec::new();
    for mutation in &policy.mutations {
        // Each mutation sees what those before it did.
        let scope = Scope::new(
            (&policy.variables, policy.names),
            attributes,
            &attributes.seen(),
            lookup,
            param.as_deref(),
        );
        let Some(object) = attributes.object.as_deref_mut() else { break };
        match patched(mutation, &scope, object, form.schema) {
            Ok(Some(mut changed)) => {
                if ["apiVersion", "kind"].iter().any(|field| changed[*field] != object[*field]) {
                    return Err(Status::internal("failed to convert object: it is of another kind"));
                }
                (form.settle)(&mut changed);
                *object = changed;
            }
            Ok(None) => {}
            Err(why) => failures.push(why),
        }
    }
    Ok(failures)
}

/// An object as a mutation leaves it; `None` where a test of the mutation does not hold.
fn patched(
    mutation: &Mutation,
    scope: &Scope<'_>,
    object: &Value,
    schema: Option<&Schema>,
) -> std::result::Result<Option<Value>, String> {
    match mutation {
        Mutation::Apply(expression) => {
            let value = scope.evaluate(expression)?;
            let Some(mut config @ Value::Object(_)) = value.to_json() else {
                let ty = value.type_name();
                return Err(format!("unsupported return type from ApplyConfiguration expression: {ty}"));
            };
            for field in ["apiVersion", "kind"] {
                config[field] = object[field].clone();
            }
            apply::check(&config, schema).map_err(|why| {
                format!("error applying patch: failed to convert patch object to typed object: {why}")
            })?;
            let mut atomics = Vec::new();
            find_atomics(&config, schema, "", &mut atomics);
            if !atomics.is_empty() {
                let list = atomics.join(", ");
                return Err(format!(
                    "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {list}"
                ));
            }
            let merged = apply::merge(object, &config, schema);
            merged.map(Some).map_err(|e| format!("error applying patch: {}", e.message))
        }
        Mutation::Json(expression) => {
            let value = scope.evaluate(expression)?;
            let operations = value.to_json().filter(Value::is_array).ok_or_else(|| {
                format!(
                    "type mismatch: JSONPatchType.expression should evaluate to array, not {}",
                    value.type_name()
                )
            })?;
            match patch::json_in_words(object, &operations) {
                Ok(patched) => Ok(Some(patched)),
                Err(Unapplied::Test(_)) => Ok(None),
                Err(Unapplied::Operation(why)) => Err(format!("JSON Patch: {why}")),
            }
        }
    }
}

/// The parts of a value that can only be replaced as a whole, where somebody may mean to add to them.
fn find_atomics(value: &Value, schema: Option<&Schema>, path: &str, found: &mut Vec<String>) {
    let Some(schema) = schema else { return };
    match value {
        Value::Object(map) => {
            if schema.atomic_map {
                found.push(path.to_owned());
            }
            for (key, value) in map {
                let child = schema.properties.get(key.as_str()).or(schema.additional.as_ref());
                find_atomics(value, child.map(|c| &**c), &format!("{path}.{key}"), found);
            }
        }
        Value::Array(items) => {
            if matches!(schema.list_type, None | Some(ListType::Atomic)) {
                found.push(path.to_owned());
            }
            for (at, item) in items.iter().enumerate() {
                find_atomics(item, schema.items.as_deref(), &format!("{path}[{at}]"), found);
            }
        }
        _ => {}
    }
}
