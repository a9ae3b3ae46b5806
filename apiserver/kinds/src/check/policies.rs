//! Admission policies and their bindings.

use super::{
    extensions::rule_with_operations,
    field::{Errors, Field},
    rows::{Row, Rule, check},
    rules,
};
use freehold_apiserver_admission::{
    policy::{Expressions, Gives},
    webhook::check_conditions,
};
use freehold_machinery::{Value, meta, names};
use freehold_machinery_cel::RESERVED;
use std::collections::BTreeSet;

const MOST_ANNOTATIONS: usize = 20;
const LONGEST_ANNOTATION: usize = 5 << 10;
const NEEDED: &str = "validations or auditAnnotations must contain at least one item";
const PATCHES: [(&str, &str); 2] = [("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")];
/// Operations of which the objects can be changed.
const MUTABLE: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
const REASONS: &[&str] = &["Forbidden", "Invalid", "RequestEntityTooLarge"];

const POLICY: &[Row] = &[
    ("failurePolicy", Rule::There("")),
    ("failurePolicy", Rule::OneOf(&["Fail", "Ignore"])),
    ("paramKind", Rule::Fields(PARAM_KIND)),
    ("matchConstraints", Rule::There("")),
    ("matchConstraints", Rule::Fields(MATCHES)),
    ("matchConstraints", Rule::Fields(&[("resourceRules", Rule::Required(""))])),
];

const PARAM_KIND: &[Row] = &[("apiVersion", Rule::Also(param_version)), ("kind", Rule::Also(param_kind))];

const MATCHES: &[Row] = &[
    ("matchPolicy", Rule::There("")),
    ("matchPolicy", Rule::OneOf(&["Equivalent", "Exact"])),
    ("namespaceSelector", Rule::Also(rules::label_selector)),
    ("objectSelector", Rule::Also(rules::label_selector)),
    ("resourceRules", Rule::Each(NAMED_RULE)),
    ("excludeResourceRules", Rule::Each(NAMED_RULE)),
];

const NAMED_RULE: &[Row] =
    &[("resourceNames", Rule::Also(resource_names)), ("", Rule::Also(rule_with_operations))];

const BINDING: &[Row] = &[
    ("policyName", Rule::RequiredName(names::dns1123_subdomain)),
    ("paramRef", Rule::Fields(&[("", Rule::Also(param_reference))])),
    ("matchResources", Rule::Fields(MATCHES)),
];

/// A ValidatingAdmissionPolicy.
pub(super) fn validating(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let expressions = policy(&spec, old, errors);
    let (validations, annotations) = (spec.get("validations"), spec.get("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        errors.extend([validations.required(NEEDED), annotations.required(NEEDED)]);
    }
    validations.items().for_each(|validation| validate(&validation, &expressions, errors));
    if annotations.len() > MOST_ANNOTATIONS {
        let detail = format!("must not have more than {MOST_ANNOTATIONS} auditAnnotations");
        errors.push(annotations.invalid(detail));
    }
    let mut seen = BTreeSet::new();
    for annotation in annotations.items() {
        let key = annotation.get("key");
        let whole = format!("{}/{}", meta::name(object.value), key.text());
        errors
            .extend(names::qualified_name(&whole).into_iter().map(|why| key.invalid_as(whole.as_str(), why)));
        let value = annotation.get("valueExpression");
        if value.text().trim().len() > LONGEST_ANNOTATION {
            errors.push(value.required(&format!("must not exceed {LONGEST_ANNOTATION} bytes in length")));
        } else {
            expression(&value, &expressions, Gives::TextOrNull, "valueExpression is not specified", errors);
        }
        if !seen.insert(key.text()) {
            errors.push(key.duplicate());
        }
    }
}

/// A MutatingAdmissionPolicy.
pub(super) fn mutating(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    let expressions = policy(&spec, old, errors);
    let mutations = spec.get("mutations");
    check(&mutations, &[("", Rule::Required("mutations must contain at least one item"))], errors);
    mutations.items().for_each(|mutation| mutate(&mutation, &expressions, errors));
    check(&spec, &[("reinvocationPolicy", Rule::RequiredOneOf(&["IfNeeded", "Never"]))], errors);
}

/// What policies of both kinds have.
fn policy(spec: &Field<'_>, old: Option<&Value>, errors: &mut Errors) -> Expressions {
    check(spec, POLICY, errors);
    if spec.get("mutations").is_set() {
        mutable(&spec.get("matchConstraints.resourceRules"), errors);
    }
    let conditions = spec.get("matchConditions");
    let same_as_before =
        |old: &Value| ["paramKind", "matchConditions"].iter().all(|f| old["spec"][*f] == spec.value[*f]);
    if !old.is_some_and(same_as_before) {
        let has_params = spec.get("paramKind").is_set();
        errors.extend(check_conditions(conditions.value, conditions.path(), has_params));
    }
    let mut expressions = Expressions::of_conditions(spec.get("paramKind").is_set());
    for variable in spec.get("variables").items() {
        let name = variable.get("name");
        if name.text().trim().is_empty() {
            errors.push(name.required("name is not specified"));
        } else if !is_identifier(name.text()) {
            errors.push(name.invalid("must be a valid CEL identifier"));
        }
        let source = variable.get("expression");
        expressions = expressions.with_variables();
        expression(&source, &expressions, Gives::Anything, "expression is not specified", errors);
        // One that says nothing is not there for those behind it.
        if !source.text().trim().is_empty() {
            expressions.declare(name.text(), source.text());
        }
    }
    expressions
}

/// Rules about nothing but operations of which the objects can be changed.
fn mutable(rules: &Field<'_>, errors: &mut Errors) {
    let path = format!("{}.operations", rules.path());
    for operation in rules.items().flat_map(|rule| rule.get("operations").items()) {
        check(&operation.named(&path), &[("", Rule::OneOf(MUTABLE))], errors);
    }
}

fn is_identifier(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(inner) && !RESERVED.contains(&name)
}

fn expression(field: &Field<'_>, all: &Expressions, gives: Gives, missing: &str, errors: &mut Errors) {
    if field.text().trim().is_empty() {
        errors.push(field.required(missing));
    } else {
        errors.extend(all.wrong(field.text(), gives).map(|why| field.invalid(why)));
    }
}

fn validate(validation: &Field<'_>, expressions: &Expressions, errors: &mut Errors) {
    let source = validation.get("expression");
    expression(&source, expressions, Gives::Truth, "expression is not specified", errors);
    let source = validation.get("messageExpression");
    match (source.text(), source.text().trim()) {
        ("", _) => {}
        (_, "") => errors.push(source.invalid("must be non-empty if specified")),
        _ => expression(&source, expressions, Gives::Message, "", errors),
    }
    let message = validation.get("message");
    match (message.text(), message.text().trim()) {
        ("", _) => {}
        (_, "") => errors.push(message.invalid("must be non-empty if specified")),
        (_, said) if said.contains(['\n', '\r']) => {
            errors.push(message.invalid("must not contain line breaks"));
        }
        _ => {}
    }
    check(validation, &[("reason", Rule::OneOf(REASONS))], errors);
}

fn mutate(mutation: &Field<'_>, expressions: &Expressions, errors: &mut Errors) {
    let kind = mutation.get("patchType");
    check(&kind, &[("", Rule::RequiredOneOf(&["ApplyConfiguration", "JSONPatch"]))], errors);
    let Some((name, own)) = PATCHES.iter().find(|(name, _)| *name == kind.text()) else { return };
    let patch = mutation.get(own);
    check(&patch, &[("", Rule::There(if *own == "jsonPatch" { JSON_PATCH } else { APPLIED }))], errors);
    if patch.is_set() {
        let gives = if *own == "jsonPatch" { Gives::Patches } else { Gives::Object };
        expression(&patch.get("expression"), expressions, gives, "", errors);
    }
    for (_, other) in PATCHES.iter().filter(|(_, field)| field != own) {
        let other = mutation.get(other);
        if other.is_set() {
            let shown = format!("{{{}}}", other.path().rsplit('.').next().unwrap_or_default());
            errors.push(other.invalid_as(shown, format!("must not be specified when patchType is {name}")));
        }
    }
}

const JSON_PATCH: &str = "must be specified when patchType is JSONPatch";
const APPLIED: &str = "must be specified when patchType is ApplyConfiguration";

/// A ValidatingAdmissionPolicyBinding.
pub(super) fn validating_binding(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    check(&object.get("spec"), BINDING, errors);
    let actions = object.get("spec.validationActions");
    let mut seen = BTreeSet::new();
    for action in actions.items() {
        check(&action, &[("", Rule::AlwaysOneOf(&["Audit", "Deny", "Warn"]))], errors);
        if !seen.insert(action.text()) {
            errors.push(action.duplicate());
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the \
             API response and headers serves no purpose)";
        errors.push(actions.invalid(detail));
    }
    check(&actions, &[("", Rule::Required("at least one validation action is required"))], errors);
}

/// A MutatingAdmissionPolicyBinding.
pub(super) fn mutating_binding(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    check(&spec, BINDING, errors);
    mutable(&spec.get("matchResources.resourceRules"), errors);
}

fn param_reference(reference: &Field<'_>, errors: &mut Errors) {
    const BOTH: &str = "name and selector are mutually exclusive";
    let [name, selector, action] =
        ["name", "selector", "parameterNotFoundAction"].map(|field| reference.get(field));
    let both = !name.is_empty() && selector.is_set();
    rules::optional_name(&name, names::path_segment_name, errors);
    errors.extend(both.then(|| name.forbidden(BOTH)));
    rules::label_selector(&selector, errors);
    errors.extend(both.then(|| selector.forbidden(BOTH)));
    if name.is_empty() && !selector.is_set() {
        errors.push(reference.required("one of name or selector must be specified"));
    }
    check(&action, &[("", Rule::RequiredOneOf(&["Deny", "Allow"]))], errors);
}

fn resource_names(list: &Field<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for name in list.items() {
        rules::name(&name, names::path_segment_name, errors);
        if !seen.insert(name.text()) {
            errors.push(name.duplicate());
        }
    }
}

fn param_version(version: &Field<'_>, errors: &mut Errors) {
    if version.is_empty() {
        return errors.push(version.required(""));
    }
    let text = if version.text() == "/" { "" } else { version.text() };
    if text.matches('/').count() > 1 {
        return errors.push(version.invalid(format!("unexpected GroupVersion string: {text}")));
    }
    let (group, name) = text.split_once('/').unwrap_or(("", text));
    if !group.is_empty() {
        joined(version, group, names::dns1123_subdomain(group), errors);
    }
    if name.is_empty() {
        errors.push(version.invalid("version must be specified"));
    } else {
        joined(version, name, names::dns1035_label(name), errors);
    }
}

/// What is wrong with a part of a field, in one error.
fn joined(field: &Field<'_>, part: &str, wrong: Vec<String>, errors: &mut Errors) {
    if !wrong.is_empty() {
        errors.push(field.invalid_as(part, wrong.join(",")));
    }
}

fn param_kind(kind: &Field<'_>, errors: &mut Errors) {
    if kind.is_empty() {
        return errors.push(kind.required(""));
    }
    let wrong = names::dns1035_label(&kind.text().to_lowercase());
    if !wrong.is_empty() {
        let detail = format!("may have mixed case, but should otherwise match: {}", wrong.join(","));
        errors.push(kind.invalid(detail));
    }
}
