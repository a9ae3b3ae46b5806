//! Parts of DAGs and tasks that stand for themselves.

use super::{Check, duplicate, files, is_word};
use crate::dag::{DagSpec, Semaphore};
use crate::task::{HttpTask, ResourceAction, ResourceTask, Retry, TaskTemplate, Wait};
use freehold_machinery::status::FieldError;
use freehold_machinery::{Value, time};
use std::collections::HashSet;

pub(super) fn settings(check: &mut Check, spec: &DagSpec) {
    files::notifications(check, spec);
    check.duration(|| "spec.timeout".into(), &spec.timeout);
    check.duration(|| "spec.ttl".into(), &spec.ttl);
    if let Some(of) = &spec.retry {
        retry(check, "spec.retry", of);
    }
    if let Some(pod) = &spec.pod {
        pod_spec(check, "spec.pod.spec", &pod.spec);
    }
    semaphores(check, "spec", &spec.semaphores);
    if let Some(workspace) = &spec.workspace
        && workspace.claim_name.is_empty() == workspace.claim.is_null()
    {
        check.add(FieldError::required("spec.workspace", "exactly one of claimName and claim"));
    }
}

pub(super) fn semaphores(check: &mut Check, at: &str, semaphores: &[Semaphore]) {
    for (n, semaphore) in semaphores.iter().enumerate() {
        let path = format!("{at}.semaphores[{n}]");
        if semaphore.name.is_empty() {
            check.add(FieldError::required(format!("{path}.name"), ""));
        }
        if semaphore.limit == 0 || semaphore.weight > semaphore.limit {
            check.invalid(
                format!("{path}.limit"),
                semaphore.limit,
                "must be at least 1, and at least weight",
            );
        }
    }
}

pub(super) fn template(check: &mut Check, at: &str, of: &TaskTemplate) {
    check.duration(|| format!("{at}.timeout"), &of.timeout);
    check.duration(|| format!("{at}.startTimeout"), &of.start_timeout);
    if !of.script.is_empty() && of.image.is_empty() {
        check.add(FieldError::required(format!("{at}.image"), "a script runs in an image"));
    }
    if !of.script.is_empty() && !of.args.is_empty() && of.command.is_empty() {
        check.add(FieldError::forbidden(format!("{at}.args"), "a script without a command has no arguments"));
    }
    if let Some(pod) = &of.pod {
        pod_spec(check, &format!("{at}.pod.spec"), &pod.spec);
    }
    if let Some(of) = &of.retry {
        retry(check, &format!("{at}.retry"), of);
    }
    if let Some(of) = &of.resource {
        resource(check, &format!("{at}.resource"), of);
    }
    if let Some(of) = &of.http {
        http(check, &format!("{at}.http"), of);
    }
    if let Some(of) = &of.wait {
        wait(check, &format!("{at}.wait"), of);
    }
    if of.dag.as_ref().is_some_and(|dag| dag.name.is_empty()) {
        check.add(FieldError::required(format!("{at}.dag.name"), "the name of a DAG"));
    }
    let mut names: HashSet<&str> = HashSet::new();
    for (n, output) in of.outputs.iter().enumerate() {
        if !is_word(&output.name) {
            check.invalid(
                format!("{at}.outputs[{n}].name"),
                output.name.as_str(),
                "must be letters, digits, - and _",
            );
        }
        if !names.insert(output.name.as_str()) {
            check.add(duplicate(format!("{at}.outputs[{n}].name"), &output.name));
        }
    }
    files::check(check, at, of, &mut names);
}

fn pod_spec(check: &mut Check, at: &str, spec: &Value) {
    if !spec.is_null() && !spec.is_object() {
        check.invalid(at, spec.clone(), "must be the spec of a Pod");
    }
    for (field, why) in [
        ("restartPolicy", "Pods of tasks are not restarted: see retry"),
        ("activeDeadlineSeconds", "see timeout"),
    ] {
        if spec.get(field).is_some() {
            check.add(FieldError::forbidden(format!("{at}.{field}"), why));
        }
    }
}

fn retry(check: &mut Check, at: &str, of: &Retry) {
    check.duration(|| format!("{at}.maxDuration"), &of.max_duration);
    check.expression(|| format!("{at}.when"), &of.when);
    if let Some(backoff) = &of.backoff {
        check.duration(|| format!("{at}.backoff.duration"), &backoff.duration);
        check.duration(|| format!("{at}.backoff.max"), &backoff.max);
        if backoff.factor_percent < 100 {
            check.invalid(
                format!("{at}.backoff.factorPercent"),
                backoff.factor_percent,
                "must be at least 100",
            );
        }
    }
}

fn resource(check: &mut Check, at: &str, of: &ResourceTask) {
    for expression in
        [("successCondition", &of.success_condition), ("failureCondition", &of.failure_condition)]
    {
        check.expression(|| format!("{at}.{}", expression.0), expression.1);
    }
    for field in ["apiVersion", "kind"] {
        if of.manifest[field].as_str().is_none_or(str::is_empty) {
            check.add(FieldError::required(format!("{at}.manifest.{field}"), ""));
        }
    }
    let named = ["name", "generateName"].iter().any(|field| of.manifest["metadata"][field].is_string());
    if !named || (of.action != ResourceAction::Create && !of.manifest["metadata"]["name"].is_string()) {
        check.add(FieldError::required(format!("{at}.manifest.metadata.name"), ""));
    }
}

fn http(check: &mut Check, at: &str, of: &HttpTask) {
    check.expression(|| format!("{at}.successCondition"), &of.success_condition);
    if of.url.is_empty() {
        check.add(FieldError::required(format!("{at}.url"), ""));
    } else if !of.url.starts_with("http://") && !of.url.starts_with("https://") && !of.url.starts_with("$(") {
        check.invalid(format!("{at}.url"), of.url.as_str(), "must be an http or https URL");
    }
    let known = ["", "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
    if !known.contains(&of.method.as_str()) {
        check.add(FieldError::not_supported(format!("{at}.method"), of.method.as_str().into(), &known[1..]));
    }
}

fn wait(check: &mut Check, at: &str, of: &Wait) {
    if of.duration.is_empty() == of.until.is_empty() {
        check.add(FieldError::required(at, "exactly one of duration and until"));
    }
    check.duration(|| format!("{at}.duration"), &of.duration);
    if !of.until.is_empty() && !of.until.contains("$(") && time::parse(&of.until).is_none() {
        check.invalid(format!("{at}.until"), of.until.as_str(), "must be a time as RFC 3339 has it");
    }
}
