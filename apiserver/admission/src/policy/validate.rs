//! Validating policies.

use super::{
    Binding, Bound, Policy,
    compiled::{Named, Validation},
    denied,
    params::params,
    scope::{Scope, conditions_hold},
    unseen,
};
use crate::sealed::Sealed;
use crate::{Attributes, Lookup};
use freehold_machinery::Result;
use freehold_machinery_cel::Budget;
use serde_json::json;
use std::collections::BTreeMap;

/// Bytes that an evaluated `messageExpression` may have.
const MAX_MESSAGE: usize = 5 << 10;

/// Bytes that the value of an audit annotation may have.
const MAX_ANNOTATION: usize = 10 << 10;
/// Where the audit log says what policies found that act by auditing.
const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// What a policy has against a write.
struct Decision {
    message: String,
    reason: String,
    /// Which of its validations.
    index: usize,
}

impl Decision {
    fn because(message: String) -> Self {
        Self { message, reason: String::new(), index: 0 }
    }
}

/// What a policy makes of a write: what it has against it, and what it says to the audit log.
#[derive(Default)]
struct Outcome {
    decisions: Vec<Decision>,
    annotations: Vec<(String, String)>,
}

/// Lets policies refuse a write. Gives the warnings of those that only warn.
///
/// # Errors
/// The first refusal.
pub fn validate(attributes: &Attributes<'_>, lookup: &dyn Lookup, policies: &[Bound]) -> Result<Vec<String>> {
    let mut warnings = Vec::new();
    if unseen(attributes) {
        return Ok(warnings);
    }
    let mut refusals: Vec<(String, String)> = Vec::new();
    let mut annotations: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let sealed = Sealed(lookup);
    for Bound { policy, bindings, is_bundled } in policies {
        let lookup: &dyn Lookup = if *is_bundled { &sealed } else { lookup };
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
                Ok(outcome) => {
                    for (key, value) in outcome.annotations {
                        let values = annotations.entry(key).or_default();
                        if !values.contains(&value) {
                            values.push(value);
                        }
                    }
                    for Decision { message, reason, index } in outcome.decisions {
                        if acts(binding, "Audit") {
                            let failure = json!([{"message": message, "policy": policy.name, "binding": binding.name,
                                "expressionIndex": index, "validationActions": binding.actions}]);
                            attributes.annotations.add(FAILURE.to_owned(), failure.to_string());
                        }
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
    let joined = annotations.into_iter().map(|(key, values)| (key, values.join(", ")));
    attributes.annotations.extend(joined);
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
) -> std::result::Result<Outcome, String> {
    let mut outcome = Outcome::default();
    if !binding.matches.matches(attributes, lookup)? {
        return Ok(outcome);
    }
    for param in params(policy, binding, attributes, lookup)? {
        let mut scope = Scope::new(
            (&policy.variables, policy.names),
            attributes,
            &attributes.seen(),
            lookup,
            param.as_deref(),
        );
        decide(policy, &mut scope, &mut outcome);
    }
    Ok(outcome)
}

fn decide(policy: &Policy, scope: &mut Scope<'_>, outcome: &mut Outcome) {
    let decisions = &mut outcome.decisions;
    match conditions_hold(&policy.conditions, scope) {
        Ok(true) => {}
        Ok(false) => return,
        Err(why) => {
            decisions.extend(policy.fails.then(|| Decision::because(why)));
            return;
        }
    }
    scope.spend(Budget::default());
    for (index, validation) in policy.validations.iter().enumerate() {
        match scope.evaluate(&validation.expression) {
            Ok(value) if value.as_bool() == Some(true) => {}
            Ok(_) => {
                let reason = match validation.reason.as_str() {
                    "" => "Invalid".to_owned(),
                    reason => reason.to_owned(),
                };
                decisions.push(Decision { message: message(validation, scope), reason, index });
            }
            Err(why) => decisions.extend(policy.fails.then(|| Decision { index, ..Decision::because(why) })),
        }
    }
    scope.spend(Budget::default());
    for annotation in &policy.audited {
        match audit_value(annotation, scope) {
            Ok(Some(value)) => {
                outcome.annotations.push((format!("{}/{}", policy.name, annotation.name), value))
            }
            Ok(None) => {}
            Err(why) => decisions.extend(policy.fails.then(|| Decision::because(why))),
        }
    }
}

/// The value of an audit annotation; `None` for one that is not made.
fn audit_value(annotation: &Named, scope: &Scope<'_>) -> std::result::Result<Option<String>, String> {
    let value = scope.evaluate(&annotation.expression)?;
    if value.to_json().is_some_and(|value| value.is_null()) {
        return Ok(None);
    }
    let Some(text) = value.as_str() else {
        let (source, kind) = (&annotation.expression.source, value.type_name());
        return Err(format!(
            "valueExpression '{source}' resulted in unsupported return type: {kind}. Return type must be either string or null."
        ));
    };
    let text = text.trim();
    let end = (0..=MAX_ANNOTATION.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    Ok(Some(text[..end.unwrap_or_default()].to_owned()).filter(|text| !text.is_empty()))
}

/// What is said about a validation that does not hold: its `messageExpression`'s value, its `message`, or itself.
fn message(validation: &Validation, scope: &Scope<'_>) -> String {
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
