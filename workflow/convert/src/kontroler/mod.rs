//! Kontroler's kinds: `DAG`, `DagRun` and `DagTask` of `kontroler.greedykomodo`.

mod dsl;

use crate::Report;
use crate::build::{name_of, object, text_of};
use crate::fields::Fields;
use crate::library::Library;
use crate::text::escape;
use freehold_machinery::Value;
use freehold_workflow_api::{
    Argument, Backoff, DagRunSpec, DagSpec, DagTaskSpec, Notifications, Parameter, PodTemplate, Retry,
    RunWebhook, SecretKeyRef, Task, TaskRef, TaskTemplate, ValueSource, Workspace,
};
use serde_json::{Map, json};
use std::collections::BTreeSet;

/// The key of a Secret that a parameter's value is under.
const SECRET_KEY: &str = "secret";

/// Converts a DAG.
pub(crate) fn convert_dag(document: &Value, library: &Library<'_>, report: &mut Report) -> Vec<Value> {
    let mut spec = document["spec"].clone();
    let text = text_of(&spec, "dsl").to_owned();
    if !text.trim().is_empty() {
        match dsl::parse(&text) {
            // Its webhook and workspace stand beside the text.
            Ok(parsed) => parsed.into_iter().for_each(|(field, value)| spec[field] = value),
            Err(why) => report.refuse("spec.dsl", why),
        }
    }
    let mut fields = Fields::new("spec", &spec);
    fields.ignore(&["dsl"]);
    let mut dag = DagSpec {
        schedule: fields.text("schedule", report).unwrap_or_default(),
        suspended: fields.flag("suspended"),
        parameters: parameters(&mut fields, report),
        ..DagSpec::default()
    };
    if let Some(mut webhook) = fields.object("webhook") {
        let url = webhook.text("url", report).unwrap_or_default();
        webhook.note("verifySSL", "certificates are always verified", report);
        report.note("spec.webhook", "it is told of the ends of runs alone, in another form");
        webhook.finish(report);
        let webhooks = vec![RunWebhook { url, ..RunWebhook::default() }];
        dag.notifications = Some(Notifications { webhooks, ..Notifications::default() });
    }
    if let Some(mut workspace) = fields.object("workspace") {
        let enabled = workspace.flag("enable");
        let claim = workspace.take("pvc").cloned().unwrap_or_else(|| json!({}));
        workspace.finish(report);
        dag.workspace =
            enabled.then(|| Workspace { mount_path: "/workspace".into(), claim_name: String::new(), claim });
    }
    let known: Vec<Parameter> = dag.parameters.clone();
    for mut each in fields.objects("task") {
        dag.tasks.push(task(&mut each, &known, library, report));
        each.finish(report);
    }
    fields.finish(report);
    vec![object("DAG", name_of(document), document, &dag)]
}

/// Converts a DagRun.
pub(crate) fn convert_run(document: &Value, _: &Library<'_>, report: &mut Report) -> Vec<Value> {
    let mut fields = Fields::new("spec", &document["spec"]);
    let mut run =
        DagRunSpec { dag: fields.text("dagName", report).unwrap_or_default(), ..DagRunSpec::default() };
    if run.dag.is_empty() {
        report.refuse("spec.dagName", "a name is wanted");
    }
    for mut each in fields.objects("parameters") {
        let name = each.text("name", report).unwrap_or_default();
        let (value, secret) =
            (each.text("value", report), each.text("fromSecret", report).filter(|secret| !secret.is_empty()));
        if value.as_ref().is_some_and(|value| !value.is_empty()) && secret.is_some() {
            report.refuse(each.at("fromSecret"), "exactly one of value and fromSecret is wanted");
        }
        let value_from = secret.map(secret_source);
        let value = value.filter(|_| value_from.is_none()).map(|value| Value::String(escape(&value)));
        run.parameters.push(Argument { name, value, value_from });
        each.finish(report);
    }
    fields.finish(report);
    vec![object("DAGRun", name_of(document), document, &run)]
}

/// Converts a DagTask.
pub(crate) fn convert_task(document: &Value, _: &Library<'_>, report: &mut Report) -> Vec<Value> {
    let mut fields = Fields::new("spec", &document["spec"]);
    fields.note("runAfter", "DAGs say what a shared task comes after", report);
    let names = fields.texts("parameters", report);
    let parameters: Vec<Parameter> =
        names.iter().map(|name| Parameter { name: name.clone(), ..Parameter::default() }).collect();
    let template = template(&mut fields, &names, report);
    fields.finish(report);
    let spec = DagTaskSpec { description: String::new(), parameters, template };
    vec![object("DAGTask", name_of(document), document, &spec)]
}

fn parameters(fields: &mut Fields<'_>, report: &mut Report) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    for mut each in fields.objects("parameters") {
        let name = each.text("name", report).unwrap_or_default();
        let (value, secret) = (each.text("defaultValue", report), each.text("defaultFromSecret", report));
        let (value, secret) = (value.filter(|v| !v.is_empty()), secret.filter(|s| !s.is_empty()));
        if value.is_some() == secret.is_some() {
            report.refuse(
                each.at("defaultValue"),
                "exactly one of defaultValue and defaultFromSecret is wanted",
            );
        }
        parameters.push(Parameter {
            name,
            default: value.map(|value| Value::String(escape(&value))),
            value_from: secret.map(secret_source),
            ..Parameter::default()
        });
        each.finish(report);
    }
    parameters
}

fn secret_source(name: String) -> ValueSource {
    ValueSource {
        secret_key_ref: Some(SecretKeyRef { name, key: SECRET_KEY.into() }),
        config_map_key_ref: None,
    }
}

fn task(fields: &mut Fields<'_>, known: &[Parameter], library: &Library<'_>, report: &mut Report) -> Task {
    let mut task = Task {
        name: fields.text("name", report).unwrap_or_default(),
        run_after: fields.texts("runAfter", report),
        ..Task::default()
    };
    let Some(mut reference) = fields.object("taskRef") else {
        let names = fields.texts("parameters", report);
        let of_dag: BTreeSet<&str> = known.iter().map(|parameter| parameter.name.as_str()).collect();
        for name in names.iter().filter(|name| !of_dag.contains(name.as_str())) {
            report.refuse(fields.at("parameters"), format!("the DAG has no parameter {name:?}"));
        }
        task.template = template(fields, &names, report);
        return task;
    };
    let name = reference.text("name", report).unwrap_or_default();
    reference.note(
        "version",
        "shared tasks have no versions: the task is used as it is when the run starts",
        report,
    );
    reference.finish(report);
    for field in [
        "command",
        "args",
        "image",
        "script",
        "backoff",
        "conditional",
        "parameters",
        "podTemplate",
        "scriptInjectorImage",
    ] {
        fields.note(field, "taskRef says it instead", report);
    }
    // What the shared task takes is what the DAG has under these names.
    let shared = library.get("DagTask", &name);
    let wanted = shared
        .and_then(|shared| shared["spec"]["parameters"].as_array())
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    task.parameters = wanted
        .map(|name| Argument {
            name: name.into(),
            value: Some(Value::String(format!("$(params.{name})"))),
            value_from: None,
        })
        .collect();
    task.task_ref = Some(TaskRef { name, ..TaskRef::default() });
    task
}

fn template(fields: &mut Fields<'_>, parameters: &[String], report: &mut Report) -> TaskTemplate {
    let escaped = |texts: Vec<String>| texts.iter().map(|text| escape(text)).collect::<Vec<_>>();
    let mut template = TaskTemplate {
        image: fields.text("image", report).unwrap_or_default(),
        command: escaped(fields.texts("command", report)),
        args: escaped(fields.texts("args", report)),
        script: escape(&fields.text("script", report).unwrap_or_default()),
        ..TaskTemplate::default()
    };
    if !template.script.is_empty() {
        // Its scripts are always read by this shell, whatever their first line says.
        template.command = vec!["/bin/sh".into()];
    }
    fields.note("scriptInjectorImage", "scripts reach the container without another one", report);
    template.env =
        parameters.iter().map(|name| json!({"name": name, "value": format!("$(params.{name})")})).collect();
    template.retry = retry(fields, report);
    if let Some(mut pod) = fields.object("podTemplate") {
        pod_template(&mut pod, &mut template, report);
        pod.finish(report);
    }
    template
}

/// Its retries follow at once.
fn retry(fields: &mut Fields<'_>, report: &mut Report) -> Option<Retry> {
    let mut backoff = fields.object("backoff");
    let limit = backoff.as_mut().and_then(|backoff| backoff.number("limit", report)).unwrap_or(0);
    if let Some(backoff) = backoff {
        backoff.finish(report);
    }
    let mut exit_codes = Vec::new();
    if let Some(mut conditional) = fields.object("conditional") {
        let enabled = conditional.flag("enabled");
        let codes = conditional
            .list("retryCodes")
            .iter()
            .filter_map(Value::as_i64)
            .filter_map(|code| i32::try_from(code).ok());
        exit_codes = codes.filter(|_| enabled).collect();
        conditional.finish(report);
    }
    let at_once = Backoff { duration: "0s".into(), factor_percent: 100, max: "0s".into(), jitter_percent: 0 };
    (limit > 0).then(|| Retry { limit, backoff: Some(at_once), exit_codes, ..Retry::default() })
}

fn pod_template(pod: &mut Fields<'_>, template: &mut TaskTemplate, report: &mut Report) {
    template.resources = pod.take("resources").cloned().unwrap_or_default();
    template.volume_mounts = pod.list("volumeMounts").to_vec();
    if let Some(seconds) = pod.number("activeDeadlineSeconds", report) {
        template.timeout = format!("{seconds}s");
    }
    let mut spec = Map::new();
    let fields = [
        "volumes",
        "imagePullSecrets",
        "securityContext",
        "nodeSelector",
        "tolerations",
        "affinity",
        "serviceAccountName",
        "automountServiceAccountToken",
    ];
    for field in fields {
        if let Some(value) = pod.take(field) {
            spec.insert(field.into(), value.clone());
        }
    }
    if !spec.is_empty() {
        template.pod = Some(PodTemplate { spec: spec.into(), ..PodTemplate::default() });
    }
}
