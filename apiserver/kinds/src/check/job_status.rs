//! Indexes of Jobs: in their policies and in their status.

use super::{
    field::{Errors, Field},
    rules,
};
use freehold_machinery::{Value, names};
use std::collections::BTreeSet;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
/// The most rules of a policy, exit codes of a rule, and conditions.
const MAX_RULES: usize = 20;
const MAX_CODES: usize = 255;
const MAX_PATTERNS: usize = 20;
/// The longest list of indexes of a rule of success, in bytes.
const MAX_INDEXES: usize = 64 << 10;

fn one_of(field: &Field<'_>, supported: &[&str], errors: &mut Errors) {
    if field.is_empty() {
        let list: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        errors.push(field.required(&format!("valid values: [{}]", list.join(" "))));
    } else {
        rules::optional_one_of(field, supported, errors);
    }
}

/// When a Job fails though its pods could be tried again.
pub(super) fn failure_policy(spec: &Field<'_>, errors: &mut Errors) {
    let list = spec.get("podFailurePolicy.rules");
    if list.len() > MAX_RULES {
        errors.push(list.too_many(MAX_RULES));
    }
    let pods = spec.get("template.spec");
    let containers = ["containers", "initContainers"].map(|list| pods.get(list));
    let containers: BTreeSet<&str> =
        containers.iter().flat_map(Field::items).map(|container| container.get("name").text()).collect();
    for rule in list.items() {
        let [action, codes, conditions] = ["action", "onExitCodes", "onPodConditions"].map(|f| rule.get(f));
        if action.text() == "FailIndex" {
            if !spec.get("backoffLimitPerIndex").is_set() {
                errors.push(action.invalid("requires the backoffLimitPerIndex to be set"));
            }
        } else {
            one_of(&action, &ACTIONS, errors);
        }
        if codes.is_set() {
            exit_codes(&codes, &containers, errors);
        }
        if conditions.len() > MAX_PATTERNS {
            errors.push(conditions.too_many(MAX_PATTERNS));
        }
        for pattern in conditions.items() {
            rules::name(&pattern.get("type"), names::qualified_name, errors);
            one_of(&pattern.get("status"), &STATUSES, errors);
        }
        match (codes.is_set(), !conditions.is_empty()) {
            (true, true) => errors
                .push(rule.invalid_bare("specifying both OnExitCodes and OnPodConditions is not supported")),
            (false, false) => {
                errors
                    .push(rule.invalid_bare("specifying one of OnExitCodes and OnPodConditions is required"));
            }
            _ => {}
        }
    }
}

fn exit_codes(codes: &Field<'_>, containers: &BTreeSet<&str>, errors: &mut Errors) {
    let [operator, name, values] = ["operator", "containerName", "values"].map(|field| codes.get(field));
    one_of(&operator, &OPERATORS, errors);
    if name.is_set() && !containers.contains(name.text()) {
        errors.push(name.invalid("must be one of the container or initContainer names in the pod template"));
    }
    match values.len() {
        0 => errors.push(values.invalid("at least one value is required")),
        n if n > MAX_CODES => errors.push(values.too_many(MAX_CODES)),
        _ => {}
    }
    let mut seen = BTreeSet::new();
    let (mut ordered, mut last) = (true, i64::MIN);
    for value in values.items() {
        let code = value.number();
        if operator.text() == "In" && code == 0 {
            errors.push(value.invalid("must not be 0 for the In operator"));
        }
        if !seen.insert(code) {
            errors.push(value.duplicate());
        }
        ordered &= last <= code;
        last = code;
    }
    if !ordered {
        errors.push(values.invalid("must be ordered"));
    }
}

/// When an indexed Job has succeeded before all of its pods have.
pub(super) fn success_policy(spec: &Field<'_>, errors: &mut Errors) {
    let list = spec.get("successPolicy.rules");
    if list.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(list.required(detail));
    }
    if list.len() > MAX_RULES {
        errors.push(list.too_many(MAX_RULES));
    }
    let completions = spec.get("completions").number();
    for rule in list.items() {
        let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            let detail = "at least one of succeededCount or succeededIndexes must be specified";
            errors.push(rule.required(detail));
        }
        let mut total = 0;
        if indexes.is_set() {
            if indexes.text().len() > MAX_INDEXES {
                errors.push(indexes.too_long(MAX_INDEXES));
            }
            match count_indexes(indexes.text(), completions) {
                Ok(found) => total = found,
                Err(why) => errors.push(indexes.invalid(format!("error parsing succeededIndexes: {why}"))),
            }
        }
        rules::nonnegative(&count, errors);
        let Some(wanted) = count.int() else { continue };
        if wanted > completions {
            let detail =
                format!("must be less than or equal to {completions} (the number of specified completions)");
            errors.push(count.invalid(detail));
        }
        if indexes.is_set() && wanted > total {
            let detail = format!(
                "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
            );
            errors.push(count.invalid(detail));
        }
    }
}

/// How many indexes a list like `1,3-5` names, all below `completions`.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let number = |text: &str| -> Result<i64, String> {
        let number: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    let (mut total, mut last) = (0, None);
    if text.is_empty() {
        return Ok(0);
    }
    for part in text.split(',') {
        let ends: Vec<&str> = part.split('-').collect();
        if ends.len() > 2 {
            return Err(format!(
                "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        let first = number(ends[0])?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        let end = match ends.get(1) {
            Some(end) => {
                let end = number(end)?;
                if first >= end {
                    return Err(format!("non-increasing order, previous: {first}, current: {end}"));
                }
                end
            }
            None => first,
        };
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The status of a Job.
pub(super) fn status(object: &Field<'_>, old: &Value, errors: &mut Errors) {
    let status = object.get("status");
    let mut seen = BTreeSet::new();
    for list in ["succeeded", "failed"].map(|list| status.get("uncountedTerminatedPods").get(list)) {
        for uid in list.items() {
            if uid.is_empty() {
                errors.push(uid.invalid("must not be empty"));
            } else if !seen.insert(uid.text()) {
                errors.push(uid.duplicate());
            }
        }
    }
    let completions = object.get("spec.completions").number();
    for (field, count) in [("completedIndexes", completions), ("failedIndexes", completions)] {
        let indexes = status.get(field);
        if object.get("spec.completionMode").text() == "Indexed"
            && let Err(why) = count_indexes(indexes.text(), count)
        {
            errors.push(indexes.invalid(format!("error parsing {field}: {why}")));
        }
    }
    for (field, what) in [("failed", "failed"), ("succeeded", "succeeded")] {
        let now = status.get(field);
        if now.number() < old["status"][field].as_i64().unwrap_or(0) {
            errors.push(now.invalid_as(now.number(), format!("cannot decrease the {what} counter")));
        }
    }
    let ready = status.get("ready");
    if ready.number() > status.get("active").number() {
        errors.push(ready.invalid("cannot set more ready pods than active"));
    }
}
