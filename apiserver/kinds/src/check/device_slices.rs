//! What drivers publish of the devices that there are (KEP-4381).

use super::{
    devices::{TAINT, list, qualified},
    field::{Errors, Field, same},
    placement,
    rows::{Row, Rule, check, set},
    rules, storage,
};
use freehold_machinery::{Value, names};

const MOST_DEVICES: usize = 128;
/// The most devices of a slice in which a device has taints, counters or lists as attributes.
const MOST_ADVANCED_DEVICES: usize = 64;
const MOST_COUNTER_SETS: usize = 8;
const MOST_COUNTERS: usize = 32;
const MOST_CONSUMED: usize = 2;
const MOST_TAINTS: usize = 16;
const MOST_CONDITIONS: usize = 4;
/// Attributes and capacities of a device, together.
const MOST_PROPERTIES: usize = 32;
/// Values of a device's attributes, together.
const MOST_VALUES: usize = 48;
const LONGEST_VALUE: usize = 64;
const LONGEST_POOL: usize = 253;

const SPEC: &[Row] = &[
    ("driver", Rule::Also(storage::driver_name)),
    ("pool.name", Rule::Also(pool_name)),
    ("pool.resourceSliceCount", Rule::Positive),
    ("pool.generation", Rule::Also(generation)),
];

const DEVICE: &[Row] = &[
    ("name", Rule::AlwaysName(names::dns1123_label)),
    ("", Rule::Also(properties)),
    (
        "taints",
        Rule::Also(|taints, errors| list(taints, MOST_TAINTS, errors, |taint, e| check(taint, TAINT, e))),
    ),
    ("consumesCounters", Rule::Set(MOST_CONSUMED, "counterSet", CONSUMED)),
];

const CONSUMED: &[Row] =
    &[("counterSet", Rule::RequiredName(names::dns1123_label)), ("counters", Rule::Also(counters))];

const COUNTER_SET: &[Row] =
    &[("name", Rule::RequiredName(names::dns1123_label)), ("counters", Rule::Also(counters))];

/// A ResourceSlice.
pub(super) fn slice(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    check(&spec, SPEC, errors);
    if let Some(old) = old {
        for (field, is_pointer) in [("pool.name", false), ("driver", false), ("nodeName", true)] {
            let now = spec.get(field);
            let before = crate::access::at(&old["spec"], field);
            if is_pointer {
                rules::immutable(&now, before, errors);
            } else if !same(now.value, before) {
                errors.push(now.invalid_as(now.text(), "field is immutable"));
            }
        }
    }
    nodes(&spec, errors);
    if spec.get("sharedCounters").is_set() && spec.get("devices").is_set() {
        errors.push(spec.invalid_as("", "only one of `sharedCounters` or `devices` is allowed"));
    }
    let chosen_by_device = spec.get("perDeviceNodeSelection").flag();
    let most =
        if spec.get("devices").items().any(is_advanced) { MOST_ADVANCED_DEVICES } else { MOST_DEVICES };
    set(&spec.get("devices"), most, "name", errors, |device, errors| {
        check(device, DEVICE, errors);
        nodes_of_device(device, chosen_by_device, errors);
        binding(device, errors);
    });
    check(&spec, &[("sharedCounters", Rule::Set(MOST_COUNTER_SETS, "name", COUNTER_SET))], errors);
}

fn is_advanced(device: Field<'_>) -> bool {
    let lists = ["bools", "ints", "strings", "versions"];
    let has_list = |(_, attribute): (&str, Field<'_>)| lists.iter().any(|list| attribute.get(list).is_set());
    !device.get("taints").is_empty()
        || !device.get("consumesCounters").is_empty()
        || device.get("attributes").entries().any(has_list)
}

/// Names of pools have several subdomains, with slashes between them.
fn pool_name(name: &Field<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.push(name.required(""));
    }
    if name.text().len() > LONGEST_POOL {
        errors.push(name.too_long(LONGEST_POOL));
    }
    for part in name.text().split('/') {
        errors.extend(names::dns1123_subdomain(part).into_iter().map(|why| name.invalid_as(part, why)));
    }
}

fn generation(generation: &Field<'_>, errors: &mut Errors) {
    if generation.number() < 0 {
        errors.push(generation.invalid("must be greater than or equal to zero"));
    }
}

/// Where the devices of a slice can be reached from: said in exactly one way.
fn nodes(spec: &Field<'_>, errors: &mut Errors) {
    let mut ways = Vec::new();
    let [name, selector] = ["nodeName", "nodeSelector"].map(|field| spec.get(field));
    if name.is_set() && name.is_empty() {
        errors.push(name.invalid("must be either unset or set to a non-empty string"));
    } else if name.is_set() {
        ways.push("`nodeName`");
        rules::name(&name, names::dns1123_subdomain, errors);
    }
    if selector.is_set() {
        ways.push("`nodeSelector`");
        placement::node_selector(&selector, false, errors);
        let terms = selector.get("nodeSelectorTerms");
        if terms.len() != 1 {
            errors.push(terms.invalid("must have exactly one node selector term"));
        }
    }
    for (field, quoted) in
        [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        true_or_absent(&spec.get(field), quoted, &mut ways, errors);
    }
    let words = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match ways.len() {
        0 => errors.push(spec.required(words)),
        1 => {}
        _ => {
            let detail = format!("{words}, but multiple fields are set");
            errors.push(spec.invalid_as(format!("{{{}}}", ways.join(", ")), detail));
        }
    }
}

fn true_or_absent(
    field: &Field<'_>,
    quoted: &'static str,
    ways: &mut Vec<&'static str>,
    errors: &mut Errors,
) {
    if field.flag() {
        ways.push(quoted);
    } else if field.is_set() {
        errors.push(field.invalid("must be either unset or set to true"));
    }
}

/// Checks on which nodes a device is, where its slice leaves that to each device.
fn nodes_of_device(device: &Field<'_>, chosen_by_device: bool, errors: &mut Errors) {
    let [name, selector, all] = ["nodeName", "nodeSelector", "allNodes"].map(|field| device.get(field));
    if !chosen_by_device {
        if name.is_set() || selector.is_set() || all.is_set() {
            let detail = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to \
                 true in the ResourceSlice spec";
            errors.push(device.invalid_as(Value::Null, detail));
        }
        return;
    }
    let mut ways = Vec::new();
    if name.is_set() && name.is_empty() {
        errors.push(name.invalid("must not be empty"));
    } else if name.is_set() {
        ways.push("`nodeName`");
        rules::name(&name, names::dns1123_subdomain, errors);
    }
    if selector.is_set() {
        ways.push("`nodeSelector`");
        placement::node_selector(&selector, false, errors);
    }
    true_or_absent(&all, "`allNodes`", &mut ways, errors);
    let words = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is \
         set to true in the ResourceSlice spec";
    match ways.len() {
        0 => errors.push(device.required(words)),
        1 => {}
        _ => errors.push(device.invalid_as(format!("{{{}}}", ways.join(", ")), words)),
    }
}

const TYPES: [&str; 8] = ["bool", "int", "string", "version", "bools", "ints", "strings", "versions"];

fn properties(device: &Field<'_>, errors: &mut Errors) {
    let (attributes, capacity) = (device.get("attributes"), device.get("capacity"));
    let count = attributes.len() + capacity.len();
    if count > MOST_PROPERTIES {
        let detail =
            format!("the total number of attributes and capacities must not exceed {MOST_PROPERTIES}");
        errors.push(device.invalid_as(count, detail));
    }
    let values_of =
        |attribute: &Field<'_>| TYPES[4..].iter().map(|list| attribute.get(list).len()).sum::<usize>().max(1);
    let values: usize = attributes.entries().map(|(_, attribute)| values_of(&attribute)).sum();
    if values > MOST_VALUES {
        let detail = format!("the total number of attribute values must not exceed {MOST_VALUES}");
        errors.push(device.invalid_as(values, detail));
    }
    for (key, attribute) in attributes.entries() {
        qualified(&attributes, key, errors);
        attribute_value(&attribute, errors);
    }
    for (key, amount) in capacity.entries() {
        qualified(&capacity, key, errors);
        let policy = amount.get("requestPolicy");
        if policy.is_set() && !device.get("allowMultipleAllocations").flag() {
            errors.push(policy.forbidden("allowMultipleAllocations must be true"));
        }
    }
}

/// An attribute has one value, of one type.
fn attribute_value(attribute: &Field<'_>, errors: &mut Errors) {
    for kind in TYPES {
        let field = attribute.get(kind);
        if field.value.is_array() && field.is_empty() {
            errors.push(field.invalid("must not be empty if specified"));
        }
        let values = if field.value.is_array() { field.items().collect() } else { vec![field] };
        for value in values.iter().filter(|value| value.value.is_string()) {
            if kind.starts_with("version") && !is_semantic(value.text()) {
                errors.push(value.invalid("must be a string compatible with semver.org spec 2.0.0"));
            }
            if value.text().len() > LONGEST_VALUE {
                errors.push(value.too_long(LONGEST_VALUE));
            }
        }
    }
    match TYPES.iter().filter(|kind| attribute.get(kind).is_set()).count() {
        0 => errors.push(attribute.invalid_as("", "exactly one value must be specified")),
        1 => {}
        _ => errors.push(attribute.invalid("exactly one value must be specified")),
    }
}

/// Whether it is a version by semver.org, 2.0.0.
fn is_semantic(version: &str) -> bool {
    let (version, build) =
        version.split_once('+').map_or((version, None), |(version, build)| (version, Some(build)));
    let (core, early) = version.split_once('-').map_or((version, None), |(core, early)| (core, Some(early)));
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit());
    let number = |part: &str| digits(part) && (part == "0" || !part.starts_with('0'));
    let early_part = |part: &str| plain(part) && (!digits(part) || number(part));
    core.split('.').count() == 3
        && core.split('.').all(number)
        && early.is_none_or(|early| early.split('.').all(early_part))
        && build.is_none_or(|build| build.split('.').all(plain))
}

fn counters(counters: &Field<'_>, errors: &mut Errors) {
    if counters.is_empty() {
        return errors.push(counters.required(""));
    }
    if counters.len() > MOST_COUNTERS {
        return errors.push(counters.too_many(MOST_COUNTERS));
    }
    for (key, _) in counters.entries() {
        errors.extend(names::dns1123_label(key).into_iter().map(|why| counters.invalid_as(key, why)));
    }
}

/// Conditions that a device waits for before a pod with it is bound, and those that say it can't be.
fn binding(device: &Field<'_>, errors: &mut Errors) {
    let lists = ["bindingConditions", "bindingFailureConditions"].map(|field| device.get(field));
    for conditions in &lists {
        list(conditions, MOST_CONDITIONS, errors, |condition, errors| {
            rules::name(condition, names::qualified_name, errors);
        });
    }
    let [good, bad] = &lists;
    for conditions in &lists {
        let mut seen = Vec::new();
        for condition in conditions.items() {
            if seen.contains(&condition.text()) {
                errors.push(condition.duplicate());
            }
            seen.push(condition.text());
            if std::ptr::eq(conditions, bad) && good.texts().any(|other| other == condition.text()) {
                let detail = "bindingFailureConditions must not overlap with bindingConditions";
                errors.push(condition.invalid(detail));
            }
        }
    }
    if good.is_empty() != bad.is_empty() {
        let (missing, detail) = match good.is_empty() {
            true => (good, "bindingConditions are required to use bindingFailureConditions"),
            false => (bad, "bindingFailureConditions are required to use bindingConditions"),
        };
        errors.push(missing.invalid(detail));
    }
}
