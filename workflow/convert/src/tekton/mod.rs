//! Tekton: `Task` and `Pipeline`.
//!
//! Steps of a task before the last become init containers of its Pod, which share its directory `/workspace`.

use crate::Report;
use crate::build::{name_of, object, scalar, text_of};
use crate::fields::Fields;
use crate::library::Library;
use crate::text::{cel_path, quote};
use freehold_machinery::Value;
use freehold_workflow_api::{
    Argument, ClusterDagTaskSpec, DagSpec, DagTaskSpec, ForEach, Output, OutputType, Parameter,
    ParameterType, PodTemplate, Retry, Task, TaskRef, TaskRefKind, TaskTemplate, Workspace,
};
use serde_json::{Map, json};

/// Where the one workspace of a task or pipeline is.
const WORKSPACE: &str = "/workspace";
/// What a task writes its result to.
const RESULT: &str = "/dev/termination-log";

/// Converts a Task or ClusterTask.
pub(crate) fn convert_task(document: &Value, _: &Library<'_>, report: &mut Report) -> Vec<Value> {
    let spec = task_spec("spec", &document["spec"], report);
    match text_of(document, "kind") {
        "ClusterTask" => {
            vec![object("ClusterDAGTask", name_of(document), document, &ClusterDagTaskSpec { task: spec })]
        }
        _ => vec![object("DAGTask", name_of(document), document, &spec)],
    }
}

/// Converts a Pipeline.
pub(crate) fn convert_pipeline(document: &Value, _: &Library<'_>, report: &mut Report) -> Vec<Value> {
    let mut fields = Fields::new("spec", &document["spec"]);
    let mut dag = DagSpec {
        description: description(&mut fields, report),
        parameters: parameters(&mut fields, report),
        ..DagSpec::default()
    };
    fields.note("displayName", "for people", report);
    let workspaces = fields.list("workspaces");
    if workspaces.len() > 1 {
        report.refuse(fields.at("workspaces"), "one workspace is supported, not several");
    } else if !workspaces.is_empty() {
        let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        dag.workspace = Some(Workspace { mount_path: WORKSPACE.into(), claim_name: String::new(), claim });
        report.note(
            fields.at("workspaces"),
            "each run has a claim of 1Gi: change spec.workspace for another one",
        );
    }
    for (field, place) in [("tasks", &mut dag.tasks), ("finally", &mut dag.finally)] {
        for mut each in fields.objects(field) {
            place.push(pipeline_task(&mut each, report));
            each.finish(report);
        }
    }
    fields.refuse("results", "results of a pipeline are not supported", report);
    fields.finish(report);
    vec![object("DAG", name_of(document), document, &dag)]
}

fn description(fields: &mut Fields<'_>, report: &mut Report) -> String {
    fields.text("description", report).unwrap_or_default().chars().take(2000).collect()
}

fn parameters(fields: &mut Fields<'_>, report: &mut Report) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    for mut each in fields.objects("params") {
        let name = each.text("name", report).unwrap_or_default();
        let default = each.take("default").cloned();
        let by_default = match &default {
            Some(Value::Array(_)) => "array",
            Some(Value::Object(_)) => "object",
            _ => "string",
        };
        let type_ = match each.text("type", report).as_deref().unwrap_or(by_default) {
            "array" => ParameterType::List,
            "object" => ParameterType::Object,
            _ => ParameterType::String,
        };
        each.ignore(&["properties"]);
        let default = default.map(|value| {
            if type_ == ParameterType::String { scalar(&value).map_or(value, Value::String) } else { value }
        });
        let allowed = each.list("enum").to_vec();
        parameters.push(Parameter {
            name,
            type_,
            description: description(&mut each, report),
            default,
            allowed,
            value_from: None,
        });
        each.finish(report);
    }
    parameters
}

fn pipeline_task(fields: &mut Fields<'_>, report: &mut Report) -> Task {
    let mut task = Task { name: fields.text("name", report).unwrap_or_default(), ..Task::default() };
    fields.note("displayName", "for people", report);
    fields.note("description", "for people", report);
    task.run_after = fields.texts("runAfter", report);
    let mut defaults = Vec::new();
    if let Some(mut reference) = fields.object("taskRef") {
        task.task_ref = Some(task_reference(&mut reference, report));
        reference.finish(report);
    } else if let Some(spec) = fields.take("taskSpec") {
        let spec = task_spec(&fields.at("taskSpec"), spec, report);
        defaults = spec.parameters;
        task.template = spec.template;
    }
    for mut each in fields.objects("params") {
        let at = each.at("value");
        let name = each.text("name", report).unwrap_or_default();
        let value = each.take("value").map(|value| texts(value, &at, report));
        task.parameters.push(Argument { name, value, value_from: None });
        each.finish(report);
    }
    for parameter in defaults {
        if !task.parameters.iter().any(|given| given.name == parameter.name) && parameter.default.is_some() {
            task.parameters.push(Argument {
                name: parameter.name,
                value: parameter.default,
                value_from: None,
            });
        }
    }
    for_each(fields, &mut task, report);
    let mut conditions = Vec::new();
    for mut each in fields.objects("when") {
        if let Some(cel) = each.text("cel", report) {
            conditions.push(cel);
        } else {
            conditions.extend(when(&mut each, report));
        }
        each.finish(report);
    }
    task.when = conditions.join(" && ");
    if let Some(limit) = fields.number("retries", report).filter(|limit| *limit > 0) {
        task.template.retry = Some(Retry { limit, ..Retry::default() });
        if task.task_ref.is_some() {
            report.refuse(fields.at("retries"), "the shared task says how it is tried again");
        }
    }
    if let Some(timeout) = fields.text("timeout", report) {
        task.template.timeout = timeout;
    }
    task.allow_failure = fields.text("onError", report).is_some_and(|on_error| on_error == "continue");
    if fields.list("workspaces").len() > 1 {
        report.refuse(fields.at("workspaces"), "one workspace is supported, not several");
    }
    task
}

/// A task that is defined by an object of its own.
fn task_reference(reference: &mut Fields<'_>, report: &mut Report) -> TaskRef {
    let kind = match reference.text("kind", report).as_deref() {
        None | Some("Task") => TaskRefKind::DAGTask,
        Some("ClusterTask") => TaskRefKind::ClusterDAGTask,
        Some(other) => {
            report.refuse(reference.at("kind"), format!("{other:?} is not supported"));
            TaskRefKind::DAGTask
        }
    };
    reference.ignore(&["apiVersion"]);
    reference.refuse("resolver", "tasks from elsewhere are not supported: give them along as Tasks", report);
    reference.refuse("params", "tasks from elsewhere are not supported: give them along as Tasks", report);
    TaskRef { kind, name: reference.text("name", report).unwrap_or_default() }
}

/// Makes a task run once for each combination of a matrix.
fn for_each(fields: &mut Fields<'_>, task: &mut Task, report: &mut Report) {
    let Some(mut matrix) = fields.object("matrix") else { return };
    let mut for_each = ForEach::default();
    for mut each in matrix.objects("params") {
        let name = each.text("name", report).unwrap_or_default();
        let value = Value::String(format!("$(item.{name})"));
        for_each.matrix.insert(name.clone(), each.list("value").to_vec());
        task.parameters.push(Argument { name, value: Some(value), value_from: None });
        each.finish(report);
    }
    matrix.finish(report);
    task.for_each = Some(for_each);
}

fn when(fields: &mut Fields<'_>, report: &mut Report) -> Option<String> {
    let at = fields.at("input");
    let input = fields.text("input", report)?;
    let input = match translate(&input, &at, report) {
        text if text == input && !text.contains("$(") => quote(&text),
        text => match freehold_workflow_api::template::only_reference(&text) {
            Some(path) => format!("string({})", cel_path(&path.join("."))),
            None => {
                report.refuse(at, "a text, or one reference and nothing else, is supported");
                return None;
            }
        },
    };
    let operator = fields.text("operator", report).unwrap_or_default();
    let values: Vec<String> = fields.texts("values", report).iter().map(|value| quote(value)).collect();
    let found = format!("{input} in [{}]", values.join(", "));
    match operator.as_str() {
        "in" => Some(found),
        "notin" => Some(format!("!({found})")),
        other => {
            report.refuse(fields.at("operator"), format!("{other:?} is not supported"));
            None
        }
    }
}

fn task_spec(path: &str, spec: &Value, report: &mut Report) -> DagTaskSpec {
    let mut fields = Fields::new(path, spec);
    let mut made = DagTaskSpec {
        description: description(&mut fields, report),
        parameters: parameters(&mut fields, report),
        ..DagTaskSpec::default()
    };
    fields.note("displayName", "for people", report);
    fields.ignore(&["metadata"]);
    if fields.list("workspaces").len() > 1 {
        report.refuse(fields.at("workspaces"), "one workspace is supported, not several");
    }
    let results = fields.objects("results");
    if results.len() > 1 {
        report.refuse(fields.at("results"), "one result is supported, not several");
    }
    for mut each in results {
        let type_ = match each.text("type", report).as_deref() {
            Some("array") => OutputType::List,
            Some("object") => OutputType::Object,
            _ => OutputType::String,
        };
        made.template.outputs.push(Output {
            name: each.text("name", report).unwrap_or_default(),
            type_,
            ..Output::default()
        });
        each.ignore(&["description", "properties"]);
        each.finish(report);
    }
    steps(&mut fields, &mut made.template, report);
    fields.finish(report);
    made
}

/// The last step is the task's container.
fn steps(fields: &mut Fields<'_>, template: &mut TaskTemplate, report: &mut Report) {
    let defaults = fields.take("stepTemplate").cloned().unwrap_or_default();
    let at = fields.at("steps");
    let steps = fields.list("steps");
    let mut pod = Map::new();
    let mut init = Vec::new();
    for (n, step) in steps.iter().enumerate() {
        let at = format!("{at}[{n}]");
        let merged = texts(&crate::build::overlay(&defaults, step), &at, report);
        let mut step = Fields::new(&at, &merged);
        if n + 1 < steps.len() {
            if merged.to_string().contains(RESULT) {
                report.refuse(&at, "only the last step can have a result");
            }
            init.push(init_container(&mut step, n, report));
        } else {
            container(&mut step, template, &mut pod, report);
        }
        step.finish(report);
    }
    if steps.is_empty() {
        report.refuse(at, "a step is wanted");
    }
    if let Some(volumes) = fields.take("volumes") {
        pod.insert("volumes".into(), volumes.clone());
    }
    if let Some(sidecars) = fields.take("sidecars").and_then(Value::as_array) {
        let containers = pod.entry("containers").or_insert_with(|| json!([]));
        if let Some(containers) = containers.as_array_mut() {
            containers.extend(sidecars.iter().cloned());
        }
    }
    if !init.is_empty() {
        let volumes = pod.entry("volumes").or_insert_with(|| json!([]));
        if let Some(volumes) = volumes.as_array_mut() {
            volumes.push(json!({"name": "steps", "emptyDir": {}}));
        }
        template.volume_mounts.push(json!({"name": "steps", "mountPath": "/tekton/home"}));
        pod.insert("initContainers".into(), init.into());
        report.note(
            fields.at("steps"),
            "steps share volumes and the workspace, and /tekton/home; not /workspace without a workspace",
        );
    }
    if !pod.is_empty() {
        template.pod = Some(PodTemplate { spec: pod.into(), ..PodTemplate::default() });
    }
}

fn container(
    step: &mut Fields<'_>,
    template: &mut TaskTemplate,
    pod: &mut Map<String, Value>,
    report: &mut Report,
) {
    step.ignore(&["name", "displayName"]);
    template.image = step.text("image", report).unwrap_or_default();
    template.command = step.texts("command", report);
    template.args = step.texts("args", report);
    template.script = step.text("script", report).unwrap_or_default();
    template.env = step.list("env").to_vec();
    template.env_from = step.list("envFrom").to_vec();
    template.working_dir = step.text("workingDir", report).unwrap_or_default();
    template.volume_mounts = step.list("volumeMounts").to_vec();
    let resources = step.take("computeResources");
    template.resources = step.take("resources").or(resources).cloned().unwrap_or_default();
    template.timeout = step.text("timeout", report).unwrap_or_default();
    let mut main = Map::new();
    for field in ["securityContext", "imagePullPolicy"] {
        if let Some(value) = step.take(field) {
            main.insert(field.into(), value.clone());
        }
    }
    if !main.is_empty() {
        main.insert("name".into(), "main".into());
        pod.insert("containers".into(), json!([main]));
    }
}

fn init_container(step: &mut Fields<'_>, n: usize, report: &mut Report) -> Value {
    let name =
        step.text("name", report).filter(|name| !name.is_empty()).unwrap_or_else(|| format!("step-{n}"));
    let mut container = json!({"name": name});
    step.ignore(&["displayName"]);
    let script = step.text("script", report);
    for field in [
        "image",
        "command",
        "args",
        "env",
        "envFrom",
        "workingDir",
        "volumeMounts",
        "securityContext",
        "imagePullPolicy",
    ] {
        if let Some(value) = step.take(field) {
            container[field] = value.clone();
        }
    }
    if let Some(resources) = step.take("computeResources") {
        container["resources"] = resources.clone();
    }
    if let Some(script) = script {
        let first = script.lines().next().unwrap_or_default();
        let interpreter: Vec<&str> = match first.strip_prefix("#!") {
            Some(line) => line.trim().trim_start_matches("/usr/bin/env ").split_whitespace().collect(),
            None => vec!["/bin/sh"],
        };
        let shell = interpreter.first().is_some_and(|program| {
            ["sh", "bash", "ash", "dash"].contains(&program.rsplit('/').next().unwrap_or_default())
        });
        if !shell {
            report.refuse(step.at("script"), "a script of a step before the last is for a shell");
        }
        let mut command: Vec<Value> = interpreter.into_iter().map(Value::from).collect();
        command.extend(["-c".into(), script.into()]);
        container["command"] = command.into();
    }
    let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
    let mounts: Vec<Value> =
        mounts.into_iter().chain([json!({"name": "steps", "mountPath": "/tekton/home"})]).collect();
    container["volumeMounts"] = mounts.into();
    container
}

/// Tekton's references in a value. Those to parameters are written as ours are.
fn texts(value: &Value, path: &str, report: &mut Report) -> Value {
    match value {
        Value::String(text) => Value::String(translate(text, path, report)),
        Value::Array(items) => {
            items.iter().enumerate().map(|(n, item)| texts(item, &format!("{path}[{n}]"), report)).collect()
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(key, field)| (key.clone(), texts(field, &format!("{path}.{key}"), report)))
            .collect(),
        other => other.clone(),
    }
}

fn translate(text: &str, path: &str, report: &mut Report) -> String {
    let mut translated = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("$(") {
        translated.push_str(&rest[..at]);
        let end = rest[at..].find(')').map(|end| at + end);
        let inner = end.map(|end| &rest[at + 2..end]).unwrap_or_default();
        match reference(inner) {
            Some(Ok(reference)) => translated.push_str(&reference),
            Some(Err(why)) => report.refuse(path, why),
            None => {
                translated.push_str("$(");
                rest = &rest[at + 2..];
                continue;
            }
        }
        rest = end.map_or("", |end| &rest[end + 1..]);
    }
    translated.push_str(rest);
    translated
}

/// What a reference of Tekton's is with us; `None` where it is another text in brackets.
fn reference(inner: &str) -> Option<Result<String, String>> {
    let flat = inner.replace("[\"", ".").replace("\"]", "").replace("['", ".").replace("']", "");
    let words: Vec<&str> = flat.split('.').collect();
    if inner.contains("[*]") && ["params", "tasks"].contains(&words[0]) {
        let whole = flat.replace("[*]", "");
        return Some(Ok(format!("$({whole})")));
    }
    match words.as_slice() {
        ["params", name] | ["inputs", "params", name] => Some(Ok(format!("$(params.{name})"))),
        ["params", name, field] => Some(Ok(format!("$(params.{name}.{field})"))),
        ["tasks", task, "results", name] => Some(Ok(format!("$(tasks.{task}.outputs.{name})"))),
        ["tasks", task, "results", name, field] => {
            Some(Ok(format!("$(tasks.{task}.outputs.{name}.{field})")))
        }
        ["tasks", task, "status"] => Some(Ok(format!("$(tasks.{task}.phase)"))),
        ["results", _, "path"] => Some(Ok(RESULT.to_owned())),
        ["workspaces", _, "path"] => Some(Ok(WORKSPACE.to_owned())),
        ["workspaces", _, "bound"] => Some(Ok("true".to_owned())),
        ["context", "pipelineRun" | "taskRun", field @ ("name" | "namespace" | "uid")] => {
            Some(Ok(format!("$(run.{field})")))
        }
        ["context", "pipeline", "name"] => Some(Ok("$(run.dag)".into())),
        ["context" | "workspaces" | "results" | "tasks" | "params" | "steps" | "step", ..] => {
            Some(Err(format!("$({inner}) has no counterpart")))
        }
        _ => None,
    }
}
