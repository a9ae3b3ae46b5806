//! Templates that do something themselves: containers, scripts, resources, requests, waits.

use super::calls::{Dag, Wanted};
use super::{Source, Template, refused_reference};
use crate::Report;
use crate::build::{scalar, text_of};
use crate::expression::object_condition;
use crate::fields::Fields;
use crate::text::translate_value;
use freehold_machinery::Value;
use freehold_workflow_api::{
    Approve, Argument, Backoff, HttpHeader, HttpTask, Output, OutputSource, OutputType, PodTemplate,
    ResourceAction, ResourceTask, Retry, Task, Wait,
};
use serde_json::{Map, json};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// Fields of a template that are fields of a Pod's spec.
pub(super) const POD_FIELDS: [&str; 15] = [
    "nodeSelector",
    "tolerations",
    "affinity",
    "securityContext",
    "serviceAccountName",
    "automountServiceAccountToken",
    "volumes",
    "initContainers",
    "priorityClassName",
    "schedulerName",
    "hostAliases",
    "hostNetwork",
    "dnsPolicy",
    "dnsConfig",
    "imagePullSecrets",
];
/// Fields of a container that a task's Pod takes for its main container.
const CONTAINER_FIELDS: [&str; 11] = [
    "imagePullPolicy",
    "securityContext",
    "ports",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "tty",
    "stdin",
];

/// All outputs of a template.
pub(super) fn all_outputs(template: &Template) -> Wanted {
    let list = template.value["outputs"]["parameters"].as_array().into_iter().flatten();
    list.map(|output| (text_of(output, "name").to_owned(), OutputType::String)).collect()
}

/// Makes a task do what the template says, in the DAG that calls it.
pub(super) fn fill(
    source: &Source<'_>,
    task: &mut Task,
    template: &Template,
    dag: &Dag,
    wanted: &Wanted,
    report: &mut Report,
) {
    let inputs: BTreeSet<String> = super::input_names(template);
    let shadowed = RefCell::new(BTreeSet::new());
    let value = texts(source, template, dag, &inputs, &shadowed, report);
    for name in shadowed.into_inner() {
        let value = Value::String(format!("$(params.{})", dag.workflow_parameter(&name)));
        task.parameters.push(Argument {
            name: format!("workflow_{name}"),
            value: Some(value),
            value_from: None,
        });
    }
    let mut fields = Fields::new(&template.path, &value);
    fields.ignore(&["name", "inputs"]);
    let mut pod = Pod::default();
    contents(source, &mut fields, task, &mut pod, report);
    for field in POD_FIELDS {
        if let Some(value) = fields.take(field) {
            pod.spec.insert(field.into(), value.clone());
        }
    }
    if let Some(mut metadata) = fields.object("metadata") {
        pod.metadata =
            ["labels", "annotations"].map(|field| metadata.take(field).cloned().unwrap_or_default());
        metadata.finish(report);
    }
    for (n, sidecar) in fields.list("sidecars").iter().enumerate() {
        let mut sidecar = sidecar.clone();
        if sidecar.as_object_mut().and_then(|sidecar| sidecar.remove("mirrorVolumeMounts")).is_some() {
            report.refuse(format!("{}[{n}].mirrorVolumeMounts", fields.at("sidecars")), "not supported");
        }
        pod.containers.push(sidecar);
    }
    outputs(&mut fields, task, &mut pod, wanted, report);
    task.template.retry = retry(&mut fields, report);
    if let Some(seconds) = fields.text("activeDeadlineSeconds", report) {
        task.template.timeout = if seconds.parse::<u64>().is_ok() { format!("{seconds}s") } else { seconds };
    }
    if let Some(timeout) = fields.text("timeout", report) {
        task.template.timeout = timeout;
    }
    task.mutexes = super::settings::locks(&mut fields, report);
    fields.note("memoize", "results are not kept for later runs", report);
    fields.note("parallelism", "a template without steps or tasks has nothing to limit", report);
    fields.finish(report);
    task.template.pod = pod.finish(task);
}

/// The template with our references. Conditions keep theirs.
fn texts(
    source: &Source<'_>,
    template: &Template,
    dag: &Dag,
    inputs: &BTreeSet<String>,
    shadowed: &RefCell<BTreeSet<String>>,
    report: &mut Report,
) -> Value {
    let resolve = |inner: &str| {
        let words: Vec<&str> = inner.split('.').collect();
        match words.as_slice() {
            ["inputs", "parameters", name] if inputs.contains(*name) => Ok(format!("params.{name}")),
            ["workflow", "parameters", name] if inputs.contains(&dag.workflow_parameter(name)) => {
                shadowed.borrow_mut().insert((*name).to_owned());
                Ok(format!("params.workflow_{name}"))
            }
            ["retries"] => Ok("task.attempt".into()),
            ["workflow", ..] | ["item"] | ["item", _] => dag.resolve(source, inner),
            _ => Err(refused_reference(inner)),
        }
    };
    let mut value = template.value.clone();
    let expression = value.pointer_mut("/retryStrategy/expression").map(Value::take);
    let mut value = translate_value(&value, &template.path, &resolve, report);
    if let (Some(expression), Some(place)) = (expression, value.pointer_mut("/retryStrategy/expression")) {
        *place = expression;
    }
    value
}

/// What a Pod has beside the task's container.
#[derive(Default)]
struct Pod {
    spec: Map<String, Value>,
    main: Map<String, Value>,
    containers: Vec<Value>,
    metadata: [Value; 2],
}

impl Pod {
    fn finish(mut self, task: &Task) -> Option<PodTemplate> {
        if !self.main.is_empty() {
            self.main.insert("name".into(), "main".into());
            self.containers.insert(0, Value::Object(self.main));
        }
        if !self.containers.is_empty() {
            self.spec.insert("containers".into(), self.containers.into());
        }
        let [labels, annotations] =
            self.metadata.map(|value| serde_json::from_value(value).unwrap_or_default());
        let spec = if self.spec.is_empty() { Value::Null } else { Value::Object(self.spec) };
        let pod = PodTemplate { labels, annotations, spec };
        (pod != PodTemplate::default() && task.template.kind().is_some()).then_some(pod)
    }
}

fn contents(
    source: &Source<'_>,
    fields: &mut Fields<'_>,
    task: &mut Task,
    pod: &mut Pod,
    report: &mut Report,
) {
    for field in ["container", "script"] {
        if let Some(mut container) = fields.object(field) {
            self::container(source, &mut container, task, pod, report);
            container.finish(report);
        }
    }
    if let Some(mut resource) = fields.object("resource") {
        task.template.resource = self::resource(&mut resource, report);
        resource.finish(report);
    }
    if let Some(mut http) = fields.object("http") {
        task.template.http = Some(self::http(&mut http, task, report));
        http.finish(report);
    }
    if let Some(mut suspend) = fields.object("suspend") {
        match suspend.text("duration", report) {
            Some(duration) => task.template.wait = Some(Wait { duration, until: String::new() }),
            None => task.template.approval = Some(Approve::default()),
        }
        suspend.finish(report);
    }
    if task.template.kind().is_none() {
        report.refuse(fields.at(""), "a container, script, resource, http or suspend is wanted");
    }
}

fn container(
    source: &Source<'_>,
    container: &mut Fields<'_>,
    task: &mut Task,
    pod: &mut Pod,
    report: &mut Report,
) {
    let template = &mut task.template;
    container.ignore(&["name"]);
    template.image = container.text("image", report).unwrap_or_default();
    template.command = container.texts("command", report);
    template.args = container.texts("args", report);
    template.script = container.text("source", report).unwrap_or_default();
    template.env = container.list("env").to_vec();
    template.env_from = container.list("envFrom").to_vec();
    template.resources = container.take("resources").cloned().unwrap_or_default();
    template.working_dir = container.text("workingDir", report).unwrap_or_default();
    template.volume_mounts = container.list("volumeMounts").to_vec();
    if let Some((claim, _)) = &source.workspace {
        template.volume_mounts.retain(|mount| text_of(mount, "name") != claim);
    }
    for field in CONTAINER_FIELDS {
        if let Some(value) = container.take(field) {
            pod.main.insert(field.into(), value.clone());
        }
    }
}

fn resource(resource: &mut Fields<'_>, report: &mut Report) -> Option<ResourceTask> {
    let action = match resource.text("action", report)?.as_str() {
        "create" => ResourceAction::Create,
        "apply" => ResourceAction::Apply,
        "patch" => ResourceAction::Patch,
        "delete" => ResourceAction::Delete,
        "get" => ResourceAction::Get,
        other => {
            report.refuse(resource.at("action"), format!("{other:?} is not supported"));
            return None;
        }
    };
    let strategy = resource.text("mergeStrategy", report).unwrap_or_else(|| "strategic".into());
    if action == ResourceAction::Patch && strategy != "merge" {
        report.refuse(resource.at("mergeStrategy"), format!("{strategy:?} is not supported: merge is"));
    }
    let mut manifest = Value::Null;
    if let Some(text) = resource.text("manifest", report) {
        match crate::yaml::parse(&text) {
            Ok(mut documents) if documents.len() == 1 => manifest = documents.remove(0),
            Ok(documents) => report.refuse(
                resource.at("manifest"),
                format!("{} objects; exactly one is supported", documents.len()),
            ),
            Err(why) => report.refuse(resource.at("manifest"), why),
        }
        if text.contains("$(params.") {
            report.note(resource.at("manifest"), "a field that is one reference and nothing else is a text");
        }
    } else if resource.take("manifestFrom").is_none() {
        report.refuse(resource.at("manifest"), "a manifest is wanted");
    } else {
        report.refuse(resource.at("manifestFrom"), "artifacts are not supported");
    }
    let mut task = ResourceTask {
        action,
        manifest,
        set_owner_reference: resource.flag("setOwnerReference"),
        ..ResourceTask::default()
    };
    for (field, place) in
        [("successCondition", &mut task.success_condition), ("failureCondition", &mut task.failure_condition)]
    {
        let Some(text) = resource.text(field, report) else { continue };
        match object_condition(&text) {
            Ok(condition) => *place = condition,
            Err(why) => report.refuse(resource.at(field), why),
        }
    }
    Some(task)
}

fn http(http: &mut Fields<'_>, task: &mut Task, report: &mut Report) -> HttpTask {
    let mut request = HttpTask {
        method: http.text("method", report).unwrap_or_default(),
        url: http.text("url", report).unwrap_or_default(),
        body: http.text("body", report).unwrap_or_default(),
        ..HttpTask::default()
    };
    if let Some(seconds) = http.number("timeoutSeconds", report) {
        task.template.timeout = format!("{seconds}s");
    }
    for mut header in http.objects("headers") {
        let name = header.text("name", report).unwrap_or_default();
        let value = header.text("value", report).unwrap_or_default();
        let value_from = header.object("valueFrom").and_then(|mut from| {
            let reference = from.take("secretKeyRef").cloned();
            from.finish(report);
            serde_json::from_value(json!({"secretKeyRef": reference?})).ok()
        });
        request.headers.push(HttpHeader { name, value, value_from });
        header.finish(report);
    }
    if let Some(text) = http.text("successCondition", report) {
        match response_condition(&text) {
            Some(condition) => request.success_condition = condition,
            None => report.refuse(http.at("successCondition"), format!("{text:?} is not supported")),
        }
    }
    request
}

/// `response.statusCode == 200 && response.body contains "x"` as CEL.
fn response_condition(text: &str) -> Option<String> {
    let mut condition = text.replace("response.statusCode", "response.code");
    while let Some(at) = condition.find(" contains ") {
        let rest = condition[at + 10..].trim_start();
        let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let end = rest[1..].find(quote)? + 2;
        let (argument, after) = (rest[..end].to_owned(), rest[end..].to_owned());
        condition = format!("{}.contains({argument}){after}", &condition[..at]);
    }
    let known = |word: &str| {
        ["response.code", "response.body", "response.headers"].iter().any(|k| word.starts_with(k))
    };
    let words = condition
        .split(|c: char| c.is_whitespace() || "()!&|<>=".contains(c))
        .filter(|word| word.starts_with("response."));
    words.clone().all(known).then(|| condition.clone())
}

fn outputs(fields: &mut Fields<'_>, task: &mut Task, pod: &mut Pod, wanted: &Wanted, report: &mut Report) {
    let type_of = |name: &str| wanted.get(name).copied().unwrap_or_default();
    let named = fields.peek("outputs").is_some_and(|outputs| {
        outputs["parameters"].as_array().into_iter().flatten().any(|output| output["name"] == "result")
    });
    if wanted.contains_key("result") && !named {
        let output = Output {
            name: "result".into(),
            type_: type_of("result"),
            from: OutputSource::Log,
            json_path: String::new(),
        };
        task.template.outputs.push(output);
    }
    let Some(mut outputs) = fields.object("outputs") else { return };
    outputs.refuse("artifacts", "artifacts are not supported", report);
    let mut files = 0;
    for mut each in outputs.objects("parameters") {
        let name = each.text("name", report).unwrap_or_default();
        each.refuse("globalName", "global outputs are not supported", report);
        let mut output = Output { type_: type_of(&name), name, ..Output::default() };
        if let Some(mut from) = each.object("valueFrom") {
            if let Some(path) = from.text("path", report) {
                files += 1;
                if files > 1 {
                    report.refuse(from.at("path"), "one output from a file is supported, not several");
                }
                // The file of the termination message is the file of the output.
                pod.main.insert("terminationMessagePath".into(), path.into());
            } else if let Some(path) = from.text("jsonPath", report) {
                output.json_path = path.trim_start_matches('{').trim_end_matches('}').to_owned();
            }
            from.finish(report);
        }
        task.template.outputs.push(output);
        each.finish(report);
    }
    outputs.finish(report);
}

fn retry(fields: &mut Fields<'_>, report: &mut Report) -> Option<Retry> {
    let mut strategy = fields.object("retryStrategy")?;
    let limit = strategy.number("limit", report);
    if limit.is_none() {
        report.refuse(strategy.at("limit"), "a limit is wanted: without one it would be tried without end");
    }
    let mut retry = Retry { limit: limit.unwrap_or(0), ..Retry::default() };
    let policy = strategy.text("retryPolicy", report).unwrap_or_else(|| "OnFailure".into());
    if !["Always", "OnFailure"].contains(&policy.as_str()) {
        report.refuse(strategy.at("retryPolicy"), format!("{policy:?} is not supported"));
    }
    let mut backoff =
        Backoff { duration: "0s".into(), factor_percent: 100, max: "1h".into(), jitter_percent: 0 };
    if let Some(mut given) = strategy.object("backoff") {
        backoff.duration = given.text("duration", report).unwrap_or_else(|| "0s".into());
        if let Some(factor) = given.take("factor").and_then(scalar) {
            match factor.parse::<f64>() {
                Ok(factor) if (1.0..=100.0).contains(&factor) => {
                    backoff.factor_percent = (factor * 100.0) as u32
                }
                _ => {
                    report.refuse(given.at("factor"), format!("{factor:?}: a number from 1 to 100 is wanted"))
                }
            }
        }
        backoff.max = given.text("cap", report).unwrap_or_else(|| "1h".into());
        retry.max_duration = given.text("maxDuration", report).unwrap_or_default();
        given.finish(report);
    }
    retry.backoff = Some(backoff);
    if let Some(expression) = strategy.text("expression", report) {
        match retry_condition(&expression) {
            Some(when) => retry.when = when,
            None => report.refuse(strategy.at("expression"), format!("{expression:?} is not supported")),
        }
    }
    strategy.finish(report);
    Some(retry)
}

/// `asInt(lastRetry.exitCode) > 1` as CEL.
fn retry_condition(text: &str) -> Option<String> {
    let condition =
        text.replace("asInt(lastRetry.exitCode)", "exitCode").replace("lastRetry.message", "message");
    let condition = condition.replace("asInt(lastRetry.duration)", "duration");
    let condition = condition.replace("lastRetry.exitCode", "string(exitCode)");
    (!["lastRetry", "{{", " contains ", " matches ", "=~"].iter().any(|rest| condition.contains(rest)))
        .then_some(condition)
}
