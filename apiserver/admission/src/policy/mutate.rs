//! Mutating policies.

use super::{
    Bound, Policy,
    compiled::Mutation,
    denied, exempt,
    params::params,
    scope::{Scope, conditions_hold},
};
use crate::{Attributes, Lookup};
use freehold_machinery::{
    Result, Value, apply, patch,
    schema::{ListType, Schema},
};
use std::sync::Arc;

/// Lets policies change the object that is written. `settle` is called on it after each change, to default it.
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
    settle: &dyn Fn(&mut Value),
) -> Result<bool> {
    if exempt(attributes) || attributes.object().is_none() {
        return Ok(false);
    }
    let mut failures = Vec::new();
    let mut last_change = None;
    for (at, bound) in policies.iter().enumerate() {
        if run(bound, attributes, lookup, settle, &mut failures) {
            last_change = Some(at);
        }
    }
    if let Some(last) = last_change {
        for bound in policies[..last].iter().filter(|bound| bound.policy.again) {
            run(bound, attributes, lookup, settle, &mut failures);
        }
    }
    match failures.first().cloned() {
        None => Ok(last_change.is_some()),
        Some(first) => {
            let mut status = denied(attributes, first.clone(), "Invalid", failures);
            status.message = first;
            Err(status)
        }
    }
}

/// Runs one policy; gives whether it changed the object.
fn run(
    bound: &Bound,
    attributes: &mut Attributes<'_>,
    lookup: &dyn Lookup,
    settle: &dyn Fn(&mut Value),
    failures: &mut Vec<String>,
) -> bool {
    let policy = &*bound.policy;
    let before = attributes.object().cloned();
    let mut fail = |message: String| failures.extend(policy.fails.then_some(message));
    match policy.matches.matches(attributes, lookup) {
        Ok(true) => {}
        Ok(false) => return false,
        Err(why) => {
            fail(format!("policy {:?} denied request: {why}", policy.name));
            return false;
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
                fail(said(why));
                continue;
            }
        };
        for param in found {
            if let Err(why) = apply_all(policy, attributes, lookup, param, settle) {
                fail(said(why));
            }
        }
    }
    attributes.object() != before.as_ref()
}

fn apply_all(
    policy: &Policy,
    attributes: &mut Attributes<'_>,
    lookup: &dyn Lookup,
    param: Option<Arc<Value>>,
    settle: &dyn Fn(&mut Value),
) -> std::result::Result<(), String> {
    let mut scope = Scope::new(
        (&policy.variables, policy.names),
        attributes,
        &attributes.seen(),
        lookup,
        param.as_deref(),
    );
    if !conditions_hold(&policy.conditions, &mut scope)? {
        return Ok(());
    }
    for mutation in &policy.mutations {
        // Each mutation sees what those before it did.
        let mut scope = Scope::new(
            (&policy.variables, policy.names),
            attributes,
            &attributes.seen(),
            lookup,
            param.as_deref(),
        );
        let schema = attributes.ty.schema.get().cloned();
        let Some(object) = attributes.object.as_deref_mut() else { return Ok(()) };
        let mut changed = patched(mutation, &mut scope, object, schema.as_deref())?;
        settle(&mut changed);
        *object = changed;
    }
    Ok(())
}

fn patched(
    mutation: &Mutation,
    scope: &mut Scope<'_>,
    object: &Value,
    schema: Option<&Schema>,
) -> std::result::Result<Value, String> {
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
            let mut atomics = Vec::new();
            find_atomics(&config, schema, "", &mut atomics);
            if !atomics.is_empty() {
                let list = atomics.join(", ");
                return Err(format!(
                    "error applying patch: invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {list}"
                ));
            }
            apply::merge(object, &config, schema).map_err(|e| format!("error applying patch: {}", e.message))
        }
        Mutation::Json(expression) => {
            let value = scope.evaluate(expression)?;
            let operations = value.to_json().filter(Value::is_array).ok_or_else(|| {
                format!(
                    "type mismatch: JSONPatchType.expression should evaluate to array, not {}",
                    value.type_name()
                )
            })?;
            patch::json(object, &operations).map_err(|e| format!("JSON Patch: {}", e.message))
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
