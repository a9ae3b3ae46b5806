//! Steps and tasks: who calls which template, with what, after whom.

use super::{Source, Template, leaf, refused_reference, translated};
use crate::Report;
use crate::build::{scalar, text_of};
use crate::expression::condition;
use crate::fields::Fields;
use crate::text::{cel_path, each_reference, only_reference};
use freehold_machinery::Value;
use freehold_workflow_api::{Argument, ChildDag, DagSpec, ForEach, OutputType, Range, Task, TriggerRule};
use std::collections::{BTreeMap, BTreeSet};

/// The DAG in which texts stand.
#[derive(Debug)]
pub(super) struct Dag {
    /// Whether it is run by another one, which passes on what is of the workflow.
    pub(super) is_child: bool,
    /// Its template's inputs.
    pub(super) inputs: BTreeSet<String>,
}

/// Outputs of a task that others read, with their types.
pub(super) type Wanted = BTreeMap<String, OutputType>;

impl Dag {
    /// The name of one of the workflow's parameters in this DAG.
    pub(super) fn workflow_parameter(&self, name: &str) -> String {
        if self.is_child { format!("workflow_{name}") } else { name.to_owned() }
    }

    /// Translates a reference in a call.
    pub(super) fn resolve(&self, source: &Source<'_>, inner: &str) -> Result<String, String> {
        let words: Vec<&str> = inner.split('.').collect();
        match words.as_slice() {
            ["inputs", "parameters", name] if self.inputs.contains(*name) => Ok(format!("params.{name}")),
            ["workflow", "parameters", name] if source.parameters.contains(*name) || self.is_child => {
                Ok(format!("params.{}", self.workflow_parameter(name)))
            }
            ["workflow", "namespace"] => Ok("run.namespace".into()),
            ["workflow", field @ ("name" | "uid" | "status" | "scheduledTime")] if self.is_child => {
                Ok(format!("params.workflow_{field}"))
            }
            ["workflow", field @ ("name" | "uid")] => Ok(format!("run.{field}")),
            ["workflow", "status"] => Ok("run.phase".into()),
            ["workflow", "scheduledTime"] => Ok("run.scheduledAt".into()),
            ["item"] => Ok("item".into()),
            ["item", field] => Ok(format!("item.{field}")),
            ["steps" | "tasks", task, "outputs", "result"] => Ok(format!("tasks.{task}.outputs.result")),
            ["steps" | "tasks", task, "outputs", "parameters", name] => {
                Ok(format!("tasks.{task}.outputs.{name}"))
            }
            ["steps" | "tasks", task, "status"] => Ok(format!("tasks.{task}.phase")),
            ["steps" | "tasks", task, "exitCode"] => Ok(format!("tasks.{task}.exitCode")),
            _ => Err(refused_reference(inner)),
        }
    }
}

fn calls(template: &Value) -> Vec<&Value> {
    let tasks = template["dag"]["tasks"].as_array().into_iter().flatten();
    let groups = template["steps"].as_array().into_iter().flatten();
    let steps = groups.flat_map(|group| match group {
        Value::Array(steps) => steps.iter().collect::<Vec<_>>(),
        step => vec![step],
    });
    tasks.chain(steps).collect()
}

fn with_params(template: &Template) -> impl Iterator<Item = &str> {
    calls(&template.value).into_iter().filter_map(|call| only_reference(text_of(call, "withParam")))
}

/// Inputs of a template that it fans out over.
pub(super) fn list_inputs(template: &Template) -> BTreeSet<String> {
    with_params(template)
        .filter_map(|inner| inner.strip_prefix("inputs.parameters."))
        .map(str::to_owned)
        .collect()
}

/// Parameters of the workflow that a template fans out over.
pub(super) fn list_workflow_parameters(template: &Template) -> BTreeSet<String> {
    with_params(template)
        .filter_map(|inner| inner.strip_prefix("workflow.parameters."))
        .map(str::to_owned)
        .collect()
}

/// Fills a DAG with the calls of a template.
pub(super) fn group(
    source: &mut Source<'_>,
    spec: &mut DagSpec,
    template: &Template,
    dag: &Dag,
    report: &mut Report,
) {
    let mut fields = Fields::new(&template.path, &template.value);
    fields.ignore(&["name", "inputs"]);
    if let Some(parallelism) = fields.number("parallelism", report) {
        spec.parallelism = parallelism;
    }
    if let Some(seconds) = fields.number("activeDeadlineSeconds", report) {
        spec.timeout = format!("{seconds}s");
    }
    fields.note("failFast", "after a failure other branches go on", report);
    let settings = super::settings::locks(&mut fields, report);
    spec.mutexes.extend(settings);
    if let Some(mut outputs) = fields.object("outputs") {
        outputs.refuse("parameters", "outputs of a template with steps or tasks are not supported", report);
        outputs.refuse("artifacts", "artifacts are not supported", report);
        outputs.finish(report);
    }
    let wanted = wanted_outputs(source, template);
    let mut order = Order::default();
    if let Some(mut of_dag) = fields.object("dag") {
        of_dag.note("failFast", "after a failure other branches go on", report);
        for call in of_dag.objects("tasks") {
            let (task, before) = one(source, call, template, dag, &wanted, report);
            order.add(task, before);
        }
        of_dag.finish(report);
    }
    let mut before: Vec<String> = Vec::new();
    for (n, steps) in fields.list("steps").iter().enumerate() {
        let at = format!("{}.steps[{n}]", template.path);
        let steps: Vec<(String, &Value)> = match steps {
            Value::Array(steps) => {
                steps.iter().enumerate().map(|(m, step)| (format!("{at}[{m}]"), step)).collect()
            }
            step => vec![(at, step)],
        };
        let mut names = Vec::new();
        for (at, step) in steps {
            let (task, more) = one(source, Fields::new(at, step), template, dag, &wanted, report);
            names.push(task.name.clone());
            order.add(task, Before { names: before.clone(), is_steps: true, ..more });
        }
        before.extend(names);
    }
    fields.finish(report);
    spec.tasks.extend(order.finish());
}

/// What a call comes after.
#[derive(Debug, Default)]
struct Before {
    names: Vec<String>,
    depends: String,
    is_steps: bool,
    goes_on: bool,
}

#[derive(Debug, Default)]
struct Order {
    tasks: Vec<(Task, Before)>,
}

impl Order {
    fn add(&mut self, task: Task, before: Before) {
        self.tasks.push((task, before));
    }

    /// Gives each task its order. A step or task that was left out by its condition counts as one that succeeded.
    fn finish(self) -> Vec<Task> {
        let conditional: BTreeSet<String> =
            self.tasks.iter().filter(|(t, _)| !t.when.is_empty()).map(|(t, _)| t.name.clone()).collect();
        let going_on: BTreeSet<String> =
            self.tasks.iter().filter(|(_, b)| b.goes_on).map(|(t, _)| t.name.clone()).collect();
        let direct: BTreeMap<String, Vec<String>> =
            self.tasks.iter().map(|(t, b)| (t.name.clone(), b.names.clone())).collect();
        let mut tasks = Vec::new();
        for (mut task, before) in self.tasks {
            let plain =
                before.names.iter().all(|name| !conditional.contains(name) && !going_on.contains(name));
            if !before.depends.is_empty() {
                task.depends = before.depends;
            } else if plain && before.is_steps {
                // Steps of earlier groups may have been left out.
                task.trigger =
                    if conditional.is_empty() { TriggerRule::AllSuccess } else { TriggerRule::NoneFailed };
                task.run_after = before.names;
            } else if plain {
                task.run_after = before.names;
            } else {
                let terms: Vec<String> =
                    before.names.iter().map(|name| term(name, &conditional, &going_on, &direct)).collect();
                task.depends = terms.join(" && ");
            }
            if task.trigger == TriggerRule::NoneFailed && task.run_after.is_empty() {
                task.trigger = TriggerRule::AllSuccess;
            }
            tasks.push(task);
        }
        tasks
    }
}

/// When a task before counts as done well: it succeeded, was left out by its own condition, or failed and others go on.
fn term(
    name: &str,
    conditional: &BTreeSet<String>,
    going_on: &BTreeSet<String>,
    direct: &BTreeMap<String, Vec<String>>,
) -> String {
    let mut ways = vec![format!("{name}.succeeded")];
    if going_on.contains(name) {
        ways.push(format!("{name}.failed"));
    }
    if conditional.contains(name) {
        // Left out because a task above failed is something else.
        let mut above = BTreeSet::new();
        let mut next: Vec<&String> = direct.get(name).into_iter().flatten().collect();
        while let Some(one) = next.pop() {
            if above.insert(one) {
                next.extend(direct.get(one).into_iter().flatten());
            }
        }
        let unfailed =
            above.into_iter().filter(|one| !going_on.contains(*one)).map(|one| format!(" && !{one}.failed"));
        ways.push(format!("({name}.skipped{})", unfailed.collect::<String>()));
    }
    if ways.len() == 1 { ways.remove(0) } else { format!("({})", ways.join(" || ")) }
}

fn one(
    source: &mut Source<'_>,
    mut call: Fields<'_>,
    template: &Template,
    dag: &Dag,
    wanted: &BTreeMap<String, Wanted>,
    report: &mut Report,
) -> (Task, Before) {
    let mut task = Task { name: call.text("name", report).unwrap_or_default(), ..Task::default() };
    call.refuse("hooks", "lifecycle hooks are not supported", report);
    call.refuse("onExit", "exit handlers of single steps are not supported", report);
    let mut before = Before { names: call.texts("dependencies", report), ..Before::default() };
    if let Some(depends) = call.text("depends", report) {
        match depends_of(&depends, &template.value) {
            Ok(depends) => before.depends = depends,
            Err(why) => report.refuse(call.at("depends"), why),
        }
    }
    if let Some(mut going_on) = call.object("continueOn") {
        before.goes_on = going_on.flag("failed") | going_on.flag("error");
        task.allow_failure = before.goes_on;
        going_on.finish(report);
    }
    if let Some(when) = call.text("when", report) {
        match condition(&when, &|inner| dag.resolve(source, inner)) {
            Ok(when) => task.when = when,
            Err(why) => report.refuse(call.at("when"), why),
        }
    }
    task.for_each = fan_out(source, &mut call, dag, report);
    let at = call.at("arguments");
    let arguments = call.object("arguments").map(|mut arguments| {
        arguments.refuse("artifacts", "artifacts are not supported", report);
        let list = arguments.objects("parameters");
        arguments.finish(report);
        list
    });
    let arguments = self_arguments(source, arguments.unwrap_or_default(), dag, report);
    let wanted = wanted.get(&task.name).cloned().unwrap_or_default();
    if let Some(target) = target(source, &mut call, report) {
        let call = Call { target: &target, arguments, at: &at };
        apply(source, &mut task, call, dag, &wanted, report);
    }
    call.finish(report);
    (task, before)
}

/// A template that is called.
enum Target {
    Own(String, Template),
    Foreign(String, Template),
    Inline(Template),
}

fn target(source: &Source<'_>, call: &mut Fields<'_>, report: &mut Report) -> Option<Target> {
    if let Some(mut reference) = call.object("templateRef") {
        let (name, template) = (reference.text("name", report)?, reference.text("template", report)?);
        let kind =
            if reference.flag("clusterScope") { "ClusterWorkflowTemplate" } else { "WorkflowTemplate" };
        reference.finish(report);
        let found = source.library.get(kind, &name).and_then(|document| {
            let list = document["spec"]["templates"].as_array()?;
            let value = list.iter().find(|value| text_of(value, "name") == template)?;
            Some(Template { path: format!("{kind}/{name}.{template}"), value: value.clone() })
        });
        if found.is_none() {
            report.refuse(
                call.at("templateRef"),
                format!("give the {kind} {name:?} with template {template:?} along with it"),
            );
        }
        return found.map(|found| Target::Foreign(super::dns_name(&format!("{name}-{template}")), found));
    }
    if let Some(inline) = call.take("inline") {
        let value = crate::build::overlay(&source.defaults, inline);
        return Some(Target::Inline(Template { path: call.at("inline"), value }));
    }
    let name = call.text("template", report).unwrap_or_default();
    let found = source.templates.get(&name).cloned();
    if found.is_none() {
        report.refuse(call.at("template"), format!("there is no template {name:?}"));
    }
    found.map(|found| Target::Own(name, found))
}

fn self_arguments(
    source: &Source<'_>,
    list: Vec<Fields<'_>>,
    dag: &Dag,
    report: &mut Report,
) -> Vec<(String, Value)> {
    let mut arguments = Vec::new();
    for mut each in list {
        let (name, at) = (each.text("name", report).unwrap_or_default(), each.at("value"));
        if let Some(value) = each.text("value", report) {
            arguments.push((name, translated(source, dag, &Value::String(value), &at, report)));
        }
        each.finish(report);
    }
    arguments
}

/// A template with the arguments that it is given, and where the source says so.
struct Call<'a> {
    target: &'a Target,
    arguments: Vec<(String, Value)>,
    at: &'a str,
}

/// Makes a task do what a template says.
fn apply(
    source: &mut Source<'_>,
    task: &mut Task,
    call: Call<'_>,
    dag: &Dag,
    wanted: &Wanted,
    report: &mut Report,
) {
    let Call { target, mut arguments, at } = call;
    let (Target::Own(_, template) | Target::Foreign(_, template) | Target::Inline(template)) = target;
    let inputs = super::inputs(template, report);
    let known: BTreeSet<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
    // Arguments that a template does not ask for mean nothing.
    arguments.retain(|(name, _)| known.contains(name.as_str()));
    if template.is_group() {
        let name = match target {
            Target::Own(name, _) => {
                if !source.children.contains(name) {
                    source.children.push(name.clone());
                }
                let values = source.values_used(name);
                arguments.extend(passed_on(source, dag, values, report, at));
                source.child_name(name)
            }
            Target::Foreign(name, template) => {
                let values = super::used_values(&template.value);
                arguments.extend(passed_on(source, dag, values, report, at));
                name.clone()
            }
            Target::Inline(template) => {
                return report
                    .refuse(&template.path, "an inline template with steps or tasks is not supported");
            }
        };
        let lists = list_inputs(template);
        for (name, value) in arguments.iter_mut().filter(|(name, _)| lists.contains(name)) {
            let Value::String(text) = &*value else { continue };
            match serde_json::from_str::<Value>(text) {
                Ok(list @ Value::Array(_)) => *value = list,
                _ if freehold_workflow_api::template::only_reference(text).is_some() => {}
                _ => report.refuse(at, format!("{name:?} is no JSON list")),
            }
        }
        task.template.dag = Some(ChildDag { name });
    } else {
        for input in &inputs {
            if !arguments.iter().any(|(name, _)| *name == input.name) {
                match (&input.default, &input.value_from) {
                    (Some(value), _) => arguments.push((input.name.clone(), value.clone())),
                    (None, Some(_)) => report.refuse(
                        at,
                        format!(
                            "{:?} comes from a ConfigMap, which only the workflow's parameters can",
                            input.name
                        ),
                    ),
                    (None, None) => report.refuse(at, format!("input {:?} has no value", input.name)),
                }
            }
        }
        leaf::fill(source, task, template, dag, wanted, report);
    }
    let mut all: Vec<Argument> = arguments
        .into_iter()
        .map(|(name, value)| Argument { name, value: Some(value), value_from: None })
        .collect();
    all.append(&mut task.parameters);
    task.parameters = all;
}

/// What of the workflow a child is given.
fn passed_on(
    source: &Source<'_>,
    dag: &Dag,
    values: BTreeSet<String>,
    report: &mut Report,
    at: &str,
) -> Vec<(String, Value)> {
    let mut passed = Vec::new();
    for value in values {
        let name = value.strip_prefix("workflow_").unwrap_or(&value);
        let inner = match name {
            "name" | "uid" | "status" | "scheduledTime" if !source.parameters.contains(name) => {
                format!("workflow.{name}")
            }
            _ => format!("workflow.parameters.{name}"),
        };
        match dag.resolve(source, &inner) {
            Ok(reference) => passed.push((value, Value::String(format!("$({reference})")))),
            Err(why) => report.refuse(at, why),
        }
    }
    passed
}

fn fan_out(source: &Source<'_>, call: &mut Fields<'_>, dag: &Dag, report: &mut Report) -> Option<ForEach> {
    let mut for_each = ForEach::default();
    let at = call.at("withItems");
    let items = call.list("withItems");
    if !items.is_empty() {
        for_each.items = items.iter().map(|item| translated(source, dag, item, &at, report)).collect();
        return Some(for_each);
    }
    if let Some(text) = call.text("withParam", report) {
        let resolved = only_reference(&text).map(|inner| dag.resolve(source, inner));
        match (resolved, serde_json::from_str::<Value>(&text)) {
            (Some(Ok(reference)), _) => for_each.expression = cel_path(&reference),
            (Some(Err(why)), _) => report.refuse(call.at("withParam"), why),
            (None, Ok(Value::Array(items))) => for_each.items = items,
            _ => report.refuse(call.at("withParam"), "a JSON list, or one reference to one, is wanted"),
        }
        return Some(for_each);
    }
    let mut sequence = call.object("withSequence")?;
    let mut number = |field: &str, report: &mut Report| {
        let text = sequence.take(field).and_then(scalar)?;
        let number = text.parse::<i64>().ok();
        if number.is_none() {
            report.refuse(
                sequence.at(field),
                format!("{text:?}: a number is wanted; references are not supported here"),
            );
        }
        number
    };
    let start = number("start", report).unwrap_or(0);
    let (count, end) = (number("count", report), number("end", report));
    sequence.refuse("format", "formats of numbers are not supported", report);
    let (count, step) = match (count, end) {
        (Some(count), _) => (count, 1),
        (None, Some(end)) => ((end - start).abs().saturating_add(1), if end < start { -1 } else { 1 }),
        (None, None) => (0, 1),
    };
    sequence.finish(report);
    for_each.range = Some(Range { start, count: u32::try_from(count).unwrap_or(0), step });
    Some(for_each)
}

/// Outputs of tasks that the template's calls refer to.
fn wanted_outputs(source: &Source<'_>, template: &Template) -> BTreeMap<String, Wanted> {
    let mut wanted: BTreeMap<String, Wanted> = BTreeMap::new();
    let mut want = |inner: &str, type_: OutputType| {
        let words: Vec<&str> = inner.split('.').collect();
        let found = match words.as_slice() {
            ["steps" | "tasks", task, "outputs", "result"] => Some((*task, "result")),
            ["steps" | "tasks", task, "outputs", "parameters", name] => Some((*task, *name)),
            _ => None,
        };
        if let Some((task, output)) = found {
            let kept = wanted.entry(task.to_owned()).or_default().entry(output.to_owned()).or_insert(type_);
            if type_ == OutputType::List {
                *kept = type_;
            }
        }
    };
    each_reference(&template.value, &mut |inner| want(inner, OutputType::String));
    for call in calls(&template.value) {
        if let Some(inner) = only_reference(text_of(call, "withParam")) {
            want(inner, OutputType::List);
        }
        let lists = source
            .templates
            .get(text_of(call, "template"))
            .filter(|t| t.is_group())
            .map(list_inputs)
            .unwrap_or_default();
        for argument in call["arguments"]["parameters"].as_array().into_iter().flatten() {
            if let Some(inner) = only_reference(text_of(argument, "value"))
                .filter(|_| lists.contains(text_of(argument, "name")))
            {
                want(inner, OutputType::List);
            }
        }
    }
    wanted
}

/// `depends` in our outcomes. A name alone: it succeeded, or was left out by its condition.
fn depends_of(text: &str, template: &Value) -> Result<String, String> {
    let conditional: BTreeSet<&str> = calls(template)
        .into_iter()
        .filter(|call| call.get("when").is_some())
        .map(|call| text_of(call, "name"))
        .collect();
    let mut translated = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_alphanumeric() || c == '_') {
        translated.push_str(&rest[..start]);
        let end = rest[start..]
            .find(|c: char| !(c.is_alphanumeric() || "_-.".contains(c)))
            .map_or(rest.len(), |end| start + end);
        let word = &rest[start..end];
        let (name, outcome) = word.split_once('.').unwrap_or((word, ""));
        translated.push_str(&match outcome {
            "" if conditional.contains(name) => format!("({name}.succeeded || {name}.skipped)"),
            "" => name.to_owned(),
            "Succeeded" => format!("{name}.succeeded"),
            "Failed" | "Errored" => format!("{name}.failed"),
            "Skipped" | "Omitted" => format!("{name}.skipped"),
            other => return Err(format!("{name}.{other} is not supported")),
        });
        rest = &rest[end..];
    }
    translated.push_str(rest);
    Ok(translated)
}

/// Makes a task run one of the definition's templates with steps or tasks.
pub(super) fn call_group(
    source: &mut Source<'_>,
    task: &mut Task,
    name: &str,
    dag: &Dag,
    at: &str,
    report: &mut Report,
) {
    if let Some(template) = source.templates.get(name).cloned() {
        let target = Target::Own(name.to_owned(), template);
        let call = Call { target: &target, arguments: Vec::new(), at };
        apply(source, task, call, dag, &Wanted::new(), report);
    }
}
