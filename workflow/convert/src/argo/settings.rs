//! What a workflow says as a whole.

use super::Source;
use super::calls::Dag;
use super::leaf::POD_FIELDS;
use crate::Report;
use crate::build::text_of;
use crate::fields::Fields;
use freehold_machinery::Value;
use freehold_workflow_api::{ConcurrencyPolicy, DagSpec, PodRetention, PodTemplate, Task, Workspace};
use serde_json::Map;
use std::collections::BTreeSet;

/// Reads all of a workflow's spec but its templates and arguments.
pub(super) fn read(source: &mut Source<'_>, path: &str, spec: &Value, report: &mut Report) -> DagSpec {
    let mut fields = Fields::new(path, spec);
    fields.ignore(&["entrypoint", "templates", "arguments", "templateDefaults", "workflowTemplateRef"]);
    let mut dag = DagSpec {
        service_account_name: fields.text("serviceAccountName", report).unwrap_or_default(),
        automount_service_account_token: fields.flag("automountServiceAccountToken"),
        parallelism: fields.number("parallelism", report).unwrap_or(0),
        suspended: false,
        mutexes: locks(&mut fields, report),
        ..DagSpec::default()
    };
    if let Some(priority) = fields.take("priority").and_then(Value::as_i64) {
        dag.priority = i32::try_from(priority).unwrap_or(0);
    }
    if let Some(seconds) = fields.number("activeDeadlineSeconds", report) {
        dag.timeout = format!("{seconds}s");
    }
    if fields.flag("suspend") {
        report.note(fields.at("suspend"), "create the run with state Suspended");
    }
    dag.pod_retention = pod_retention(&mut fields, report);
    if let Some(mut ttl) = fields.object("ttlStrategy") {
        let [all, success, failure] =
            ["secondsAfterCompletion", "secondsAfterSuccess", "secondsAfterFailure"]
                .map(|field| ttl.number(field, report));
        let given: BTreeSet<u32> = [all, success, failure].into_iter().flatten().collect();
        if given.len() > 1 || (all.is_none() && (success.is_none() != failure.is_none())) {
            report.refuse(fields.at("ttlStrategy"), "one time for all ends is supported");
        }
        dag.ttl = given.first().map(|seconds| format!("{seconds}s")).unwrap_or_default();
        ttl.finish(report);
    }
    fields.note("archiveLogs", "logs are always kept", report);
    fields.note("executor", "there is no executor beside a task's container", report);
    pod(&mut fields, &mut dag, report);
    workspace(source, &mut fields, &mut dag, report);
    if let Some(name) = fields.text("onExit", report) {
        exit_handler(source, &name, &fields.at("onExit"), &mut dag, report);
    }
    fields.refuse("hooks", "lifecycle hooks are not supported", report);
    fields.finish(report);
    dag
}

fn pod(fields: &mut Fields<'_>, dag: &mut DagSpec, report: &mut Report) {
    let mut spec = Map::new();
    for field in POD_FIELDS.iter().chain(&["podPriorityClassName"]) {
        if let Some(value) = fields.take(field) {
            spec.insert((*field).into(), value.clone());
        }
    }
    if let Some(class) = spec.remove("podPriorityClassName") {
        spec.insert("priorityClassName".into(), class);
    }
    let mut pod = PodTemplate {
        spec: if spec.is_empty() { Value::Null } else { spec.into() },
        ..PodTemplate::default()
    };
    if let Some(mut metadata) = fields.object("podMetadata") {
        let mut map = |field: &str| {
            metadata
                .take(field)
                .cloned()
                .and_then(|value| serde_json::from_value(value).ok())
                .unwrap_or_default()
        };
        (pod.labels, pod.annotations) = (map("labels"), map("annotations"));
        metadata.finish(report);
    }
    dag.pod = (pod != PodTemplate::default()).then_some(pod);
}

fn pod_retention(fields: &mut Fields<'_>, report: &mut Report) -> PodRetention {
    let Some(mut gc) = fields.object("podGC") else { return PodRetention::Delete };
    let strategy = gc.text("strategy", report).unwrap_or_default();
    let retention = match strategy.as_str() {
        "OnPodCompletion" => PodRetention::Delete,
        "OnPodSuccess" => PodRetention::KeepFailed,
        "" | "OnWorkflowCompletion" | "OnWorkflowSuccess" => {
            report.note(gc.at("strategy"), "Pods are kept until their run is deleted");
            PodRetention::Keep
        }
        other => {
            report.refuse(gc.at("strategy"), format!("{other:?} is not supported"));
            PodRetention::Delete
        }
    };
    gc.note("deleteDelayDuration", "Pods are deleted at once, or kept", report);
    gc.finish(report);
    retention
}

/// Mutexes. The number of slots of a semaphore stands in a ConfigMap, which a definition does not have.
pub(super) fn locks(fields: &mut Fields<'_>, report: &mut Report) -> Vec<String> {
    let Some(mut synchronization) = fields.object("synchronization") else { return Vec::new() };
    let mut names = Vec::new();
    let single = synchronization.object("mutex").into_iter();
    let several = synchronization.objects("mutexes");
    for mut mutex in single.chain(several) {
        names.extend(mutex.text("name", report));
        mutex.refuse("namespace", "a mutex is of the run's namespace", report);
        mutex.refuse("database", "a mutex over clusters is not supported", report);
        mutex.finish(report);
    }
    for field in ["semaphore", "semaphores"] {
        synchronization.refuse(
            field,
            "write the number of slots into spec.semaphores: a ConfigMap is not read",
            report,
        );
    }
    synchronization.finish(report);
    names
}

/// One claim for the run, mounted at one path, is its workspace.
fn workspace(source: &mut Source<'_>, fields: &mut Fields<'_>, dag: &mut DagSpec, report: &mut Report) {
    let at = fields.at("volumeClaimTemplates");
    let claims = fields.list("volumeClaimTemplates");
    fields.note("volumeClaimGC", "claims are deleted with their run", report);
    let [claim] = claims else {
        if !claims.is_empty() {
            report.refuse(at, "one claim is supported, not several");
        }
        return;
    };
    let name = text_of(&claim["metadata"], "name").to_owned();
    let mut paths = BTreeSet::new();
    for template in source.templates.values() {
        for container in ["container", "script"] {
            let mounts = template.value[container]["volumeMounts"].as_array().into_iter().flatten();
            for mount in mounts.filter(|mount| text_of(mount, "name") == name) {
                paths.insert(format!(
                    "{}{}",
                    text_of(mount, "mountPath"),
                    mount.get("subPath").map(Value::to_string).unwrap_or_default()
                ));
            }
        }
    }
    let [path] = paths.iter().collect::<Vec<_>>()[..] else {
        return report.refuse(at, "a claim that is mounted at one path everywhere is supported");
    };
    dag.workspace =
        Some(Workspace { mount_path: path.clone(), claim_name: String::new(), claim: claim["spec"].clone() });
    source.workspace = Some((name, path.clone()));
    report.note(at, "the claim is mounted in all Pods");
}

fn exit_handler(source: &mut Source<'_>, name: &str, at: &str, dag: &mut DagSpec, report: &mut Report) {
    let Some(template) = source.templates.get(name).cloned() else {
        return report.refuse(at, format!("there is no template {name:?}"));
    };
    let entry = Dag { is_child: false, inputs: BTreeSet::new() };
    let mut task = Task { name: name.to_owned(), ..Task::default() };
    if template.is_group() {
        super::calls::call_group(source, &mut task, name, &entry, at, report);
    } else {
        super::leaf::fill(source, &mut task, &template, &entry, &Default::default(), report);
    }
    dag.finally.push(task);
}

/// Reads when a CronWorkflow runs.
pub(super) fn schedule(dag: &mut DagSpec, spec: &Value, report: &mut Report) {
    let mut fields = Fields::new("spec", spec);
    fields.ignore(&["workflowSpec"]);
    dag.schedule = fields.text("schedule", report).unwrap_or_default();
    dag.schedules = fields.texts("schedules", report);
    dag.time_zone = fields.text("timezone", report).unwrap_or_default();
    dag.suspended = fields.flag("suspend");
    dag.concurrency_policy = match fields.text("concurrencyPolicy", report).as_deref() {
        None | Some("" | "Allow") => ConcurrencyPolicy::Allow,
        Some("Forbid") => ConcurrencyPolicy::Forbid,
        Some("Replace") => ConcurrencyPolicy::Replace,
        Some(other) => {
            report.refuse(fields.at("concurrencyPolicy"), format!("{other:?} is not supported"));
            ConcurrencyPolicy::Allow
        }
    };
    if let Some(seconds) = fields.number("startingDeadlineSeconds", report) {
        dag.starting_deadline = if seconds == 0 { String::new() } else { format!("{seconds}s") };
    }
    if let Some(count) = fields.number("successfulJobsHistoryLimit", report) {
        dag.history.successful = count;
    }
    if let Some(count) = fields.number("failedJobsHistoryLimit", report) {
        dag.history.failed = count;
    }
    fields.finish(report);
}
