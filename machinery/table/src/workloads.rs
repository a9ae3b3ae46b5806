//! Cells of jobs, autoscalers and what else runs pods.

use crate::{
    cells::{Function, first_of, holds, int, items, or, text},
    duration,
};
use freehold_machinery::{Value, gvk::GroupVersion, meta};
use jiff::Timestamp;

pub(crate) const CELLS: &[(&str, Function)] = &[
    ("controller", |o, _, _| controller(o).into()),
    ("hpa-reference", |o, _, _| reference(o).into()),
    ("hpa-targets", |o, _, _| targets(o).into()),
    ("hpa-targets-v1", |o, _, _| targets_v1(o).into()),
    ("job-completions", |o, _, _| completions(o).into()),
    ("job-duration", |o, _, now| job_duration(o, now).into()),
    ("job-status", |o, _, _| job_status(o).into()),
];

fn controller(object: &Value) -> String {
    let is_controller = |owner: &&Value| owner.get("controller") == Some(&Value::Bool(true));
    let Some(owner) = items(object, "/metadata/ownerReferences").iter().find(is_controller) else {
        return "<none>".to_owned();
    };
    let group = GroupVersion::parse(text(owner, "/apiVersion")).unwrap_or_default().group;
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{}", text(owner, "/kind").to_lowercase(), text(owner, "/name"))
}

fn job_status(job: &Value) -> &'static str {
    const LATER: [(&str, &str); 3] = [
        ("Suspended", "Suspended"),
        ("FailureTarget", "FailureTarget"),
        ("SuccessCriteriaMet", "SuccessCriteriaMet"),
    ];
    match () {
        () if holds(job, "Complete") => "Complete",
        () if holds(job, "Failed") => "Failed",
        () if meta::is_deleting(job) => "Terminating",
        () => {
            LATER.iter().find(|(condition, _)| holds(job, condition)).map_or("Running", |(_, status)| status)
        }
    }
}

fn completions(job: &Value) -> String {
    let succeeded = int(job, "/status/succeeded");
    if let Some(wanted) = job.pointer("/spec/completions").and_then(Value::as_i64) {
        return format!("{succeeded}/{wanted}");
    }
    match int(job, "/spec/parallelism") {
        parallelism @ 2.. => format!("{succeeded}/1 of {parallelism}"),
        _ => format!("{succeeded}/1"),
    }
}

fn job_duration(job: &Value, now: Timestamp) -> String {
    let Some(start) = duration::parse(text(job, "/status/startTime")) else { return String::new() };
    let end = duration::parse(text(job, "/status/completionTime")).unwrap_or(now);
    duration::human(end.duration_since(start).as_secs())
}

fn reference(autoscaler: &Value) -> String {
    let target = |field: &str| text(autoscaler, &format!("/spec/scaleTargetRef/{field}"));
    format!("{}/{}", target("kind"), target("name"))
}

/// Current and wanted metrics of `autoscaling/v2`.
fn targets(autoscaler: &Value) -> String {
    let current = items(autoscaler, "/status/currentMetrics");
    let metric = |(at, spec): (usize, &Value)| target(spec, current.get(at).unwrap_or(&Value::Null));
    let list: Vec<_> = items(autoscaler, "/spec/metrics").iter().enumerate().map(metric).collect();
    if list.is_empty() { "<none>".to_owned() } else { first_of(&list, 2, ", ") }
}

fn target(spec: &Value, status: &Value) -> String {
    let (field, named) = match text(spec, "/type") {
        "External" => ("external", false),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        _ => return "<unknown type>".to_owned(),
    };
    let source = spec.get(field).unwrap_or(&Value::Null);
    let current = |kind: &str| status.pointer(&format!("/{field}/current/{kind}"));
    let name = if named { format!("{}: ", text(source, "/name")) } else { String::new() };
    let wanted = |kind: &str| source.pointer(&format!("/target/{kind}"));
    if let Some(average) = wanted("averageValue") {
        let suffix = if named || field == "pods" { "" } else { " (avg)" };
        let now = or(current("averageValue"), "<unknown>");
        return format!("{name}{now}/{}{suffix}", or(Some(average), ""));
    }
    if named {
        let percent = |value: Option<&Value>, absent: &str| {
            value.map_or(absent.to_owned(), |number| format!("{number}%"))
        };
        let now = percent(current("averageUtilization"), "<unknown>");
        return format!("{name}{now}/{}", percent(wanted("averageUtilization"), "<auto>"));
    }
    format!("{}/{}", or(current("value"), "<unknown>"), or(wanted("value"), "0"))
}

/// The one metric of `autoscaling/v1`.
fn targets_v1(autoscaler: &Value) -> String {
    let Some(wanted) = autoscaler.pointer("/spec/targetCPUUtilizationPercentage") else {
        return "<none>".to_owned();
    };
    let current = autoscaler.pointer("/status/currentCPUUtilizationPercentage");
    let current = current.map_or("<unknown>".to_owned(), |now| format!("{now}%"));
    format!("cpu: {current}/{wanted}%")
}
