//! Jobs and cron jobs.

use super::{
    field::{Errors, Field, same},
    job_status, pods, rules, workloads,
};
use crate::access;
use freehold_machinery::{Value, meta, names};
use freehold_machinery_cron::{Schedule, Zone};

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
/// The most pods at a time, and the most failures, of a Job with more indexes than that.
const MOST_OF_MANY: i64 = 10_000;

/// A Job.
pub(super) fn job(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    generated(object, &spec, errors);
    let before = errors.len();
    job_spec(&spec, errors);
    let selector = spec.get("selector");
    if selector.is_set() {
        rules::label_selector(&selector, errors);
    } else {
        errors.push(selector.required(""));
    }
    workloads::chosen(selector.value, &spec.get("template"), errors);
    match old {
        Some(old) => {
            // The rules for all Jobs and those for updates both look at the whole.
            errors.extend_from_within(before..);
            update(&spec, old, errors);
        }
        None => host_names(object, &spec, errors),
    }
}

/// The selector of a Job is the server's, unless it says otherwise.
fn generated(object: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    let selector = spec.get("selector");
    if spec.get("manualSelector").flag() || !selector.is_set() {
        return;
    }
    let (uid, name) = (&object.value["metadata"]["uid"], &object.value["metadata"]["name"]);
    let labels = spec.get("template.metadata.labels");
    let prefixed = ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"];
    for (key, wanted) in
        ["controller-uid", "job-name"].into_iter().chain(prefixed).zip([uid, name, uid, name])
    {
        let wanted = wanted.as_str().unwrap_or_default();
        let detail = format!("must be '{wanted}'");
        match labels.value.get(key).and_then(Value::as_str) {
            None => errors.push(labels.key(key).required(&detail)),
            Some(given) if given != wanted => {
                errors.push(labels.key(key).invalid_as(labels.value.clone(), detail));
            }
            Some(_) => {}
        }
    }
    let expected = serde_json::json!({
        "batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name,
        "controller-uid": uid, "job-name": name,
    });
    if rules::chooses(selector.value, &expected) == Some(false) {
        errors.push(selector.invalid("`selector` not auto-generated"));
    }
}

/// The pods of an indexed Job are hosts, named by it and their index.
fn host_names(object: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    let last = spec.get("completions").number() - 1;
    let host = format!("{}-{last}", meta::name(object.value));
    if last >= 0 && spec.get("completionMode").text() == "Indexed" && !names::dns1123_label(&host).is_empty()
    {
        let detail = format!("will not able to create pod with invalid DNS label: {host}");
        errors.push(object.get("metadata.name").invalid(detail));
    }
}

fn job_spec(spec: &Field<'_>, errors: &mut Errors) {
    COUNTS.iter().for_each(|field| rules::nonnegative(&spec.get(field), errors));
    let per_index = spec.get("backoffLimitPerIndex");
    let failed = spec.get("maxFailedIndexes");
    if failed.is_set() && !per_index.is_set() {
        errors.push(per_index.required("when maxFailedIndexes is specified"));
    }
    managed_by(&spec.get("managedBy"), errors);
    let mode = spec.get("completionMode");
    rules::optional_one_of(&mode, &["NonIndexed", "Indexed"], errors);
    if mode.text() == "Indexed" {
        indexed(spec, errors);
    } else if !mode.is_set() || mode.text() == "NonIndexed" {
        for field in [&per_index, &failed].into_iter().filter(|f| f.is_set()) {
            errors.push(field.invalid("requires indexed completion mode"));
        }
    }
    if spec.get("podFailurePolicy").is_set() {
        job_status::failure_policy(spec, errors);
    }
    let success = spec.get("successPolicy");
    if success.is_set() && mode.text() != "Indexed" {
        errors.push(success.invalid("requires indexed completion mode"));
    } else if success.is_set() {
        job_status::success_policy(spec, errors);
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

/// Who runs the Job: a domain and a path.
fn managed_by(name: &Field<'_>, errors: &mut Errors) {
    const LONGEST: usize = 63;
    if !name.is_set() {
        return;
    }
    let text = name.text();
    match text.split_once('/') {
        _ if text.is_empty() => errors.push(name.required("")),
        Some((domain, path)) if !domain.is_empty() && !path.is_empty() => {
            let wrong = names::dns1123_subdomain(domain).into_iter();
            errors.extend(wrong.map(|why| name.invalid_as(domain, why)));
            let good = path.chars().all(|c| c.is_ascii_alphanumeric() || "/_.-~!$&'()*+,;=:@%".contains(c));
            if !good {
                errors.push(name.invalid_as(path, "Invalid path"));
            }
        }
        _ => errors.push(name.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")")),
    }
    if text.len() > LONGEST {
        errors.push(name.too_long(LONGEST));
    }
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
    if failed.number() > MOST_INDEXED {
        errors.push(failed.invalid(format!("must be less than or equal to {MOST_INDEXED}")));
    }
    if completions.number() <= MOST_INDEXED || !spec.get("backoffLimitPerIndex").is_set() {
        return;
    }
    if !failed.is_set() {
        let detail = format!("must be specified when completions is above {MOST_INDEXED}");
        errors.push(failed.required(&detail));
    }
    for field in [&parallelism, &failed].into_iter().filter(|field| field.number() > MOST_OF_MANY) {
        errors.push(field.invalid(format!(
            "must be less than or equal to {MOST_OF_MANY} when completions are above {MOST_INDEXED} and used with \
             backoff limit per index"
        )));
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
    // Kubernetes looks at the template in between.
    let (selector, others) = FIXED.split_at(1);
    let fixed_fields = |names: &[&str], errors: &mut Errors| {
        for name in names {
            rules::immutable(&spec.get(name), &before[*name], errors);
        }
    };
    fixed_fields(selector, errors);
    let template = spec.get("template");
    let waiting = before["suspend"] == true && old["status"]["startTime"].is_null();
    let fixed = |template: &Value| {
        let mut template = template.clone();
        template["metadata"] = Value::Null;
        if waiting && template["spec"].is_object() {
            SCHEDULING.iter().for_each(|field| template["spec"][*field] = Value::Null);
            for list in ["containers", "initContainers"] {
                access::list_mut(&mut template["spec"], list)
                    .filter(|container| container.is_object())
                    .for_each(|container| container["resources"] = Value::Null);
            }
        }
        template
    };
    if !same(&fixed(template.value), &fixed(&before["template"])) {
        errors.push(template.get("spec").invalid("field is immutable"));
    }
    fixed_fields(others, errors);
}

/// A CronJob.
pub(super) fn cron_job(object: &Field<'_>, old: Option<&Value>, errors: &mut Errors) {
    let spec = object.get("spec");
    schedule(&spec.get("schedule"), old, errors);
    rules::nonnegative(&spec.get("startingDeadlineSeconds"), errors);
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
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        rules::nonnegative(&spec.get(field), errors);
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
    if let Err(why) = Schedule::parse(text) {
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
    if Zone::named(name).is_none() {
        errors.push(zone.invalid(format!("unknown time zone {name}")));
    }
}
