//! Jobs and cron jobs.

use super::{
    cron,
    field::{Errors, Field, same},
    pods, rules, workloads,
};
use chrono_tz::Tz;
use freehold_machinery::{Value, meta};

const COUNTS: [&str; 7] = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
];
/// Fields of a Job that stay as they are.
const FIXED: [&str; 6] =
    ["selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"];
/// What a suspended Job that never ran may change of its template's pods.
const SCHEDULING: [&str; 5] =
    ["nodeSelector", "affinity", "tolerations", "schedulingGates", "schedulingGroup"];
/// The most pods at a time of a Job that numbers them.
const MOST_INDEXED: i64 = 100_000;

/// A Job.
pub(super) fn job(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    job_spec(&spec, errors);
    let selector = spec.get("selector");
    if selector.is_set() {
        rules::label_selector(&selector, errors);
        workloads::chosen(selector.value, &spec.get("template"), errors);
    } else {
        errors.push(selector.required(""));
    }
    if let Some(old) = old {
        update(&spec, old, errors);
    }
}

fn job_spec(spec: &Field<'_>, errors: &mut Errors) {
    COUNTS.iter().for_each(|field| rules::nonnegative(&spec.get(field), errors));
    let per_index = spec.get("backoffLimitPerIndex");
    let failed = spec.get("maxFailedIndexes");
    if failed.is_set() && !per_index.is_set() {
        errors.push(per_index.required("when maxFailedIndexes is specified"));
    }
    let mode = spec.get("completionMode");
    rules::optional_one_of(&mode, &["NonIndexed", "Indexed"], errors);
    if mode.text() == "Indexed" {
        indexed(spec, errors);
    } else {
        for field in [&per_index, &failed, &spec.get("successPolicy")].into_iter().filter(|f| f.is_set()) {
            errors.push(field.invalid("requires indexed completion mode"));
        }
    }
    let replacement = spec.get("podReplacementPolicy");
    if spec.get("podFailurePolicy").is_set() {
        rules::optional_one_of(&replacement, &["Failed"], errors);
    } else {
        rules::optional_one_of(&replacement, &["Failed", "TerminatingOrFailed"], errors);
    }
    pods::template(&spec.get("template"), errors);
    restarts(spec, errors);
}

fn indexed(spec: &Field<'_>, errors: &mut Errors) {
    let (completions, parallelism) = (spec.get("completions"), spec.get("parallelism"));
    if !completions.is_set() {
        errors.push(completions.required("when completion mode is Indexed"));
    }
    if parallelism.int().is_some_and(|n| n > MOST_INDEXED) {
        errors.push(parallelism.invalid(format!(
            "must be less than or equal to {MOST_INDEXED} when completion mode is Indexed"
        )));
    }
    let failed = spec.get("maxFailedIndexes");
    if let (Some(failed_count), Some(all)) = (failed.int(), completions.int())
        && failed_count > all
    {
        errors.push(failed.invalid("must be less than or equal to completions"));
    }
}

fn restarts(spec: &Field<'_>, errors: &mut Errors) {
    let policy = spec.get("template.spec.restartPolicy");
    match policy.text() {
        "" | "Always" => errors.push(policy.required("valid values: \"OnFailure\", \"Never\"")),
        "OnFailure" if spec.get("podFailurePolicy").is_set() => {
            errors.push(policy.invalid("only \"Never\" is supported when podFailurePolicy is specified"));
        }
        "OnFailure" | "Never" => {}
        _ => errors.push(policy.not_supported(&["OnFailure", "Never"])),
    }
}

fn update(spec: &Field<'_>, old: &Value, errors: &mut Errors) {
    let before = &old["spec"];
    let completions = spec.get("completions");
    if spec.get("completionMode").text() != "Indexed" {
        rules::immutable(&completions, &before["completions"], errors);
    } else if completions.value != &before["completions"]
        && completions.value != spec.get("parallelism").value
    {
        errors.push(completions.invalid("can only be modified in tandem with spec.parallelism"));
    }
    FIXED.iter().for_each(|field| rules::immutable(&spec.get(field), &before[*field], errors));
    let template = spec.get("template");
    let waiting = before["suspend"] == true && old["status"]["startTime"].is_null();
    let fixed = |template: &Value| {
        let mut template = template.clone();
        if waiting && template["spec"].is_object() {
            SCHEDULING.iter().for_each(|field| template["spec"][*field] = Value::Null);
            template["metadata"] = Value::Null;
        }
        template
    };
    if !same(&fixed(template.value), &fixed(&before["template"])) {
        errors.push(template.invalid("field is immutable"));
    }
}

/// A CronJob.
pub(super) fn cron_job(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    schedule(&spec.get("schedule"), old, errors);
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        rules::nonnegative(&spec.get(field), errors);
    }
    let zone = spec.get("timeZone");
    if old.is_none_or(|old| &old["spec"]["timeZone"] != zone.value) && zone.is_set() {
        time_zone(&zone, errors);
    }
    rules::one_of(&spec.get("concurrencyPolicy"), &["Allow", "Forbid", "Replace"], errors);
    let template = spec.get("jobTemplate.spec");
    job_spec(&template, errors);
    if template.get("selector").is_set() {
        errors.push(template.get("selector").invalid("`selector` will be auto-generated"));
    }
    if template.get("manualSelector").flag() {
        errors.push(template.get("manualSelector").not_supported(&["nil", "false"]));
    }
    // A time is appended for the names of its jobs.
    if old.is_none() && meta::name(object.value).len() > 52 {
        errors.push(object.get("metadata.name").invalid("must be no more than 52 characters"));
    }
}

fn schedule(schedule: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let text = schedule.text();
    if text.is_empty() {
        return errors.push(schedule.required(""));
    }
    if let Err(why) = cron::check(text) {
        errors.push(schedule.invalid(why));
    }
    let had = old.is_some_and(|old| old["spec"]["schedule"].as_str().is_some_and(|s| s.contains("TZ")));
    if text.contains("TZ") && !had {
        errors.push(schedule.invalid("cannot use TZ or CRON_TZ in schedule, use timeZone field instead"));
    }
}

fn time_zone(zone: &Field<'_>, errors: &mut Errors) {
    let name = zone.text();
    if name.is_empty() {
        return errors.push(zone.invalid("timeZone must be nil or non-empty string"));
    }
    if name.eq_ignore_ascii_case("local") {
        errors.push(
            zone.invalid(
                "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
            ),
        );
    }
    if name.parse::<Tz>().is_err() {
        errors.push(zone.invalid(format!("unknown time zone {name}")));
    }
}
