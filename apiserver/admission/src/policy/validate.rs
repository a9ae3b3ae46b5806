//! Validating policies.

use super::{
    Binding, Bound, Policy,
    compiled::Validation,
    denied, exempt,
    params::params,
    scope::{Scope, conditions_hold},
};
use crate::{Attributes, Lookup};
use freehold_machinery::Result;

/// Bytes that an evaluated `messageExpression` may have.
const MAX_MESSAGE: usize = 5 << 10;

/// What a policy has against a write.
struct Decision {
    message: String,
    reason: String,
}

impl Decision {
    fn because(message: String) -> Self {
        Self { message, reason: String::new() }
    }
}

/// Lets policies refuse a write. Gives the warnings of those that only warn.
///
/// # Errors
/// The first refusal.
pub fn validate(attributes: &Attributes<'_>, lookup: &dyn Lookup, policies: &[Bound]) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    if exempt(attributes) {
        return Ok(warnings);
    }
    let mut refusals: Vec<(String, String)> = Vec::new();
    for Bound { policy, bindings } in policies {
        let by_policy =
            |why: &str| format!("ValidatingAdmissionPolicy '{}' denied request: {why}", policy.name);
        match policy.matches.matches(attributes, lookup) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                let why = format!("failed to configure policy: {why}");
                refusals.extend(policy.fails.then(|| (by_policy(&why), String::new())));
                continue;
            }
        }
        for binding in bindings {
            let (deny, warn) = (acts(binding, "Deny"), acts(binding, "Warn"));
            let said = |why: &str| {
                format!(
                    "ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {why}",
                    policy.name, binding.name
                )
            };
            match evaluate(policy, binding, attributes, lookup) {
                Ok(decisions) => {
                    for Decision { message, reason } in decisions {
                        if warn {
                            warnings.push(format!(
                                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                                policy.name, binding.name
                            ));
                        }
                        refusals.extend(deny.then(|| (said(&message), reason)));
                    }
                }
                Err(why) => {
                    let why = format!("failed to configure binding: {why}");
                    refusals.extend(policy.fails.then(|| (said(&why), String::new())));
                }
            }
        }
    }
    match refusals.into_iter().next() {
        None => Ok(warnings),
        Some((message, reason)) => {
            let reason = if reason.is_empty() { "Invalid" } else { &reason };
            Err(denied(attributes, message.clone(), reason, vec![message]))
        }
    }
}

fn acts(binding: &Binding, action: &str) -> bool {
    binding.actions.iter().any(|own| own == action)
}

/// What a policy has against a write, with each parameter of a binding. `Err`: the binding makes no sense.
fn evaluate(
    policy: &Policy,
    binding: &Binding,
    attributes: &Attributes<'_>,
    lookup: &dyn Lookup,
) -> std::result::Result<Vec<Decision>, String> {
    let mut decisions = Vec::new();
    if !binding.matches.matches(attributes, lookup)? {
        return Ok(decisions);
    }
    for param in params(policy, binding, attributes, lookup)? {
        let mut scope =
            Scope::new(&policy.variables, attributes, &attributes.seen(), lookup, param.as_deref());
        decide(policy, &mut scope, &mut decisions);
    }
    Ok(decisions)
}

fn decide(policy: &Policy, scope: &mut Scope<'_>, decisions: &mut Vec<Decision>) {
    match conditions_hold(&policy.conditions, scope) {
        Ok(true) => {}
        Ok(false) => return,
        Err(why) => {
            decisions.extend(policy.fails.then(|| Decision::because(why)));
            return;
        }
    }
    for validation in &policy.validations {
        match scope.evaluate(&validation.expression) {
            Ok(value) if value.as_bool() == Some(true) => {}
            Ok(_) => {
                let reason = match validation.reason.as_str() {
                    "" => "Invalid".to_owned(),
                    reason => reason.to_owned(),
                };
                decisions.push(Decision { message: message(validation, scope), reason });
            }
            Err(why) => decisions.extend(policy.fails.then(|| Decision::because(why))),
        }
    }
}

/// What is said about a validation that does not hold: its `messageExpression`'s value, its `message`, or itself.
fn message(validation: &Validation, scope: &mut Scope<'_>) -> String {
    let evaluated =
        validation.message_expression.as_ref().and_then(|expression| scope.evaluate(expression).ok());
    let evaluated = evaluated.as_ref().and_then(|value| value.as_str()).map(str::trim);
    let usable = |m: &&str| !m.is_empty() && m.len() <= MAX_MESSAGE && !m.contains('\n');
    match (evaluated.filter(usable), validation.message.trim()) {
        (Some(evaluated), _) => evaluated.to_owned(),
        (None, "") => format!("failed expression: {}", validation.expression.source.trim()),
        (None, message) => message.to_owned(),
    }
}
