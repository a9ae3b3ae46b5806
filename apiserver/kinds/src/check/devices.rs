//! What claims of devices ask for, and what classes of devices say (KEP-4381).

use super::{
    field::{Errors, Field, same},
    rows::{Row, Rule, check, set},
    rules::{self, name},
    storage,
};
use freehold_machinery::{Value, names};
use freehold_machinery_cel as cel;
use std::collections::{BTreeMap, BTreeSet};

const MOST: usize = 32;
const MOST_ALTERNATIVES: usize = 8;
/// Bytes of an expression and of the parameters of a driver.
const LONGEST: usize = 10 << 10;
const LONGEST_IDENTIFIER: usize = 32;

const CLASS_NAME: Rule = Rule::RequiredName(names::dns1123_subdomain);
const LABEL: Rule = Rule::AlwaysName(names::dns1123_label);

const EXACT: &[Row] = &[
    ("deviceClassName", CLASS_NAME),
    ("selectors", Rule::Also(selectors)),
    ("", Rule::Also(allocation)),
    ("tolerations", Rule::Each(TOLERATION)),
];

const ALTERNATIVE: &[Row] = &[("name", LABEL), ("", Rule::Fields(EXACT))];

const REQUEST: &[Row] = &[("name", LABEL), ("", Rule::Also(one_kind_of_request))];

const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

const TOLERATION: &[Row] = &[
    ("key", Rule::Also(|key, errors| rules::optional_name(key, names::qualified_name, errors))),
    ("operator", Rule::Also(toleration_operator)),
    ("", Rule::Also(toleration_value)),
    ("effect", Rule::OneOf(EFFECTS)),
];

/// A taint of devices.
pub(super) const TAINT: &[Row] = &[
    ("key", Rule::AlwaysName(names::qualified_name)),
    ("value", Rule::Also(|value, errors| rules::optional_name(value, names::label_value, errors))),
    ("effect", Rule::RequiredOneOf(EFFECTS)),
];

const OPAQUE: &[Row] = &[("driver", Rule::Also(storage::driver_name)), ("parameters", Rule::Also(raw))];

/// A DeviceClass.
pub(super) fn class(object: &Field<'_>, _: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    selectors(&spec.get("selectors"), errors);
    list(&spec.get("config"), MOST, errors, configuration);
    extended_resource(&spec.get("extendedResourceName"), errors);
}

/// A ResourceClaim: of an update nothing is looked at but whether it changes something.
pub(super) fn claim(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    match old {
        Some(old) => rules::immutable(&spec, &old["spec"], errors),
        None => devices(&spec.get("devices"), errors),
    }
}

/// A ResourceClaimTemplate.
pub(super) fn template(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    rules::labels(&spec.get("metadata.labels"), errors);
    rules::annotations(&spec.get("metadata.annotations"), errors);
    devices(&spec.get("spec.devices"), errors);
    if let Some(old) = old {
        rules::immutable(&spec, &old["spec"], errors);
    }
}

/// The requests of a claim by name, each with those of its alternatives.
type Requests<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// A request's name and those of its alternatives.
fn alternatives<'a>(request: Field<'a>) -> (&'a str, BTreeSet<&'a str>) {
    let names = request.get("firstAvailable").items().map(|alternative| alternative.get("name").text());
    (request.get("name").text(), names.collect())
}

fn devices(claim: &Field<'_>, errors: &mut Errors) {
    let requests: Requests<'_> = claim.get("requests").items().map(alternatives).collect();
    set(&claim.get("requests"), MOST, "name", errors, |request, errors| check(request, REQUEST, errors));
    list(&claim.get("constraints"), MOST, errors, |constraint, errors| {
        references(&constraint.get("requests"), &requests, errors);
        attribute_of(constraint, errors);
    });
    list(&claim.get("config"), MOST, errors, |config, errors| {
        references(&config.get("requests"), &requests, errors);
        configuration(config, errors);
    });
}

/// Checks the items of a list that has at most so many.
pub(super) fn list(
    field: &Field<'_>,
    most: usize,
    errors: &mut Errors,
    mut each: impl FnMut(&Field<'_>, &mut Errors),
) {
    if field.len() > most {
        return errors.push(field.too_many(most));
    }
    field.items().for_each(|item| each(&item, errors));
}

fn one_kind_of_request(request: &Field<'_>, errors: &mut Errors) {
    let (exactly, alternatives) = (request.get("exactly"), request.get("firstAvailable"));
    let words = "exactly one of `exactly` or `firstAvailable` is required";
    match (exactly.is_set(), !alternatives.is_empty()) {
        (false, false) => errors.push(request.required(words)),
        (true, true) => {
            let detail = format!("{words}, but multiple fields are set");
            errors.push(request.invalid_as(Value::Null, detail));
        }
        (true, false) => check(&exactly, EXACT, errors),
        (false, true) => set(&alternatives, MOST_ALTERNATIVES, "name", errors, |alternative, errors| {
            check(alternative, ALTERNATIVE, errors);
        }),
    }
}

fn allocation(request: &Field<'_>, errors: &mut Errors) {
    let (mode, count) = (request.get("allocationMode"), request.get("count"));
    match mode.text() {
        "All" if count.number() != 0 => {
            errors.push(count.invalid("must not be specified when allocationMode is 'All'"));
        }
        "All" => {}
        "ExactCount" if count.number() <= 0 => {
            errors.push(count.invalid_as(count.number(), "must be greater than zero"));
        }
        "ExactCount" => {}
        _ => errors.push(mode.not_supported(&["All", "ExactCount"])),
    }
}

fn toleration_operator(operator: &Field<'_>, errors: &mut Errors) {
    check(operator, &[("", Rule::RequiredOneOf(&["Equal", "Exists"]))], errors);
}

fn toleration_value(toleration: &Field<'_>, errors: &mut Errors) {
    let value = toleration.get("value");
    match toleration.get("operator").text() {
        "Exists" if !value.is_empty() => errors.push(value.invalid("must be empty for operator `Exists`")),
        "Equal" => name(&value, names::label_value, errors),
        _ => {}
    }
}

fn selectors(selectors: &Field<'_>, errors: &mut Errors) {
    list(selectors, MOST, errors, |selector, errors| {
        let cel = selector.get("cel");
        match cel.is_set() {
            true => expression(&cel.get("expression"), errors),
            false => errors.push(cel.required("")),
        }
    });
}

/// An expression that says of a device whether it is wanted.
fn expression(field: &Field<'_>, errors: &mut Errors) {
    let source = field.text();
    if source.len() > LONGEST {
        return errors.push(field.too_long(LONGEST));
    }
    let wrong = match cel::type_of(source, &[("device", cel::VariableType::Dyn)]) {
        Ok(kind) if kind.is_bool() || kind.is_dyn() => return,
        Ok(kind) => format!("must evaluate to bool or the unknown type, not {kind}"),
        // There is no first column to point at where there is nothing at all.
        Err(why) if source.is_empty() => {
            let whole =
                why.0.split("\n | ").next().unwrap_or_default().replace("<input>:1:1:", "<input>:1:0:");
            format!("compilation failed: {}", whole.trim_start_matches("compilation failed: "))
        }
        Err(why) if why.0.starts_with("compilation failed") => why.0,
        Err(why) => format!("compilation failed: {}", why.0),
    };
    errors.push(field.invalid_as(source, wrong));
}

fn references(list: &Field<'_>, requests: &Requests<'_>, errors: &mut Errors) {
    set(list, MOST, "", errors, |reference, errors| request_reference(reference, requests, errors));
}

fn request_reference(reference: &Field<'_>, requests: &Requests<'_>, errors: &mut Errors) {
    let unknown = || {
        reference.invalid_as(
            reference.text(),
            "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'",
        )
    };
    let parts: Vec<&str> = reference.text().split('/').collect();
    if parts.len() > 2 {
        return errors.push(unknown());
    }
    for part in &parts {
        let wrong = names::dns1123_label(part).into_iter();
        errors.extend(wrong.map(|why| reference.invalid_as(*part, why)));
    }
    let known = requests.get(parts[0]).is_some_and(|alternatives| {
        parts.get(1).is_none_or(|alternative| alternatives.contains(alternative))
    });
    if !known {
        errors.push(unknown());
    }
}

fn attribute_of(constraint: &Field<'_>, errors: &mut Errors) {
    let attributes = ["matchAttribute", "distinctAttribute"].map(|field| constraint.get(field));
    match attributes.iter().find(|attribute| attribute.is_set()) {
        Some(attribute) => {
            qualified(attribute, attribute.text(), errors);
            if !attribute.text().contains('/') {
                let detail = "a fully qualified name must be a domain and a name separated by a slash";
                errors.push(attribute.invalid_as(attribute.text(), detail));
            }
        }
        None => errors.push(constraint.required(
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
        )),
    }
}

/// The name of an attribute or capacity, with or without the domain of who defines it. Errors stand at `field`.
pub(super) fn qualified(field: &Field<'_>, text: &str, errors: &mut Errors) {
    match text.split('/').collect::<Vec<_>>().as_slice() {
        [id] => identifier(field, id, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.push(field.invalid_as("", "the domain must not be empty"));
            } else {
                let value = Value::from(*domain);
                storage::driver_name(&Field::root(&value).named(field.path()), errors);
            }
            if id.is_empty() {
                errors.push(field.invalid_as("", "the name must not be empty"));
            } else {
                identifier(field, id, errors);
            }
        }
        _ => {}
    }
}

fn identifier(field: &Field<'_>, id: &str, errors: &mut Errors) {
    if id.len() > LONGEST_IDENTIFIER {
        errors.push(field.too_long(LONGEST_IDENTIFIER));
    }
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if id.is_empty() || id.starts_with(|c: char| c.is_ascii_digit()) || !id.chars().all(inner) {
        let detail = "a valid C identifier must start with alphabetic character or '_', followed by a string of \
             alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is \
             '[A-Za-z_][A-Za-z0-9_]*')";
        errors.push(field.invalid_as(id, detail));
    }
}

fn configuration(config: &Field<'_>, errors: &mut Errors) {
    let opaque = config.get("opaque");
    match opaque.is_set() {
        true => check(&opaque, OPAQUE, errors),
        false => errors.push(opaque.required("")),
    }
}

/// What only a driver reads: an object.
fn raw(parameters: &Field<'_>, errors: &mut Errors) {
    if !parameters.is_set() {
        errors.push(parameters.required(""));
    } else if parameters.value.to_string().len() > LONGEST {
        errors.push(parameters.too_long(LONGEST));
    } else if !parameters.value.is_object() {
        errors.push(parameters.invalid_as("<value omitted>", "must be a valid JSON object"));
    }
}

fn extended_resource(resource: &Field<'_>, errors: &mut Errors) {
    if resource.is_set() && !super::resources::is_extended(resource.text()) {
        errors.push(resource.invalid("must be a valid extended resource name"));
    }
}

const CONSUMER: &[Row] =
    &[("resource", Rule::Required("")), ("name", Rule::Required("")), ("uid", Rule::Required(""))];
const MOST_CONSUMERS: usize = 256;

/// The status of a ResourceClaim.
pub(super) fn claim_status(object: &Field<'_>, old: &Value, errors: &mut Errors) {
    let (reserved, allocation) = (object.get("status.reservedFor"), object.get("status.allocation"));
    set(&reserved, MOST_CONSUMERS, "uid", errors, |consumer, errors| check(consumer, CONSUMER, errors));
    if !reserved.is_empty() && !allocation.is_set() {
        let detail = "may not be specified when `allocated` is not set";
        errors.push(reserved.forbidden(detail));
    } else if freehold_machinery::meta::is_deleting(object.value) {
        let before = old["status"]["reservedFor"].as_array().map(Vec::as_slice).unwrap_or_default();
        if reserved.items().any(|consumer| !before.iter().any(|known| same(known, consumer.value))) {
            let detail =
                "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set";
            errors.push(reserved.forbidden(detail));
        }
    }
    let before = &old["status"]["allocation"];
    if !before.is_null() && allocation.is_set() {
        rules::immutable(&allocation, before, errors);
    }
}
