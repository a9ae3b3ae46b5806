//! What texts and expressions of tasks refer to: parameters that exist, and tasks, which become dependencies.

use super::tasks::Names;
use super::{Check, duplicate};
use crate::dag::DagSpec;
use crate::task::{DagTaskSpec, Task, TaskTemplate};
use crate::template::{Path, references, references_in};
use freehold_machinery::Value;
use freehold_machinery_cel::Program;
use std::collections::HashSet;

/// Texts of a template, each with the field that it stands in.
fn texts<'a>(template: &'a TaskTemplate, each: &mut impl FnMut(&'static str, Vec<Path<'a>>)) {
    let mut lists = |field, list: &'a [String]| list.iter().for_each(|text| each(field, references(text)));
    lists("command", &template.command);
    lists("args", &template.args);
    for (field, text) in [
        ("image", &template.image),
        ("script", &template.script),
        ("workingDir", &template.working_dir),
        ("timeout", &template.timeout),
    ] {
        each(field, references(text));
    }
    let mut values = |field, value: &'a Value| {
        let mut found = Vec::new();
        references_in(value, &mut found);
        each(field, found);
    };
    template.env.iter().for_each(|value| values("env", value));
    values("resources", &template.resources);
    if let Some(pod) = &template.pod {
        values("pod.spec", &pod.spec);
    }
    if let Some(resource) = &template.resource {
        values("resource.manifest", &resource.manifest);
    }
    for text in template.http.iter().flat_map(|http| {
        [&http.url, &http.body].into_iter().chain(http.headers.iter().map(|header| &header.value))
    }) {
        each("http", references(text));
    }
    if let Some(wait) = &template.wait {
        each("wait", references(&wait.duration));
        each("wait", references(&wait.until));
    }
    if let Some(approval) = &template.approval {
        each("approval.message", references(&approval.message));
    }
    if let Some(dag) = &template.dag {
        each("dag.name", references(&dag.name));
    }
    for input in template.artifacts.iter().flat_map(|artifacts| &artifacts.inputs) {
        each("artifacts.inputs", references(&input.key));
        each("artifacts.inputs", references(&input.path));
    }
    for output in template.artifacts.iter().flat_map(|artifacts| &artifacts.outputs) {
        each("artifacts.outputs", references(&output.key));
        each("artifacts.outputs", references(&output.path));
    }
    if let Some(memoize) = &template.memoize {
        each("memoize.key", references(&memoize.key));
    }
}

/// All references of a task, each with the field that it stands in.
fn all<'a>(task: &'a Task, each: &mut impl FnMut(&'static str, Vec<Path<'a>>)) {
    texts(&task.template, each);
    for value in task.parameters.iter().filter_map(|argument| argument.value.as_ref()) {
        let mut found = Vec::new();
        references_in(value, &mut found);
        each("parameters", found);
    }
    for value in task.for_each.iter().flat_map(|for_each| &for_each.items) {
        let mut found = Vec::new();
        references_in(value, &mut found);
        each("forEach.items", found);
    }
}

/// Checks what a task refers to, and returns the tasks before it that this makes.
pub(super) fn of_task(
    check: &mut Check,
    at: &str,
    (n, task): (usize, &Task),
    spec: &DagSpec,
    (names, known): (&Names<'_>, &HashSet<&str>),
) -> Vec<u32> {
    let is_finally = n >= spec.tasks.len();
    let mut seen = HashSet::new();
    for (m, argument) in task.parameters.iter().enumerate() {
        if !seen.insert(argument.name.as_str()) {
            check.add(duplicate(format!("{at}.parameters[{m}].name"), &argument.name));
        }
    }
    let mut before = Vec::new();
    let mut tasks: Vec<(&'static str, String)> = Vec::new();
    all(task, &mut |field, paths| {
        for path in paths {
            match path.as_slice() {
                ["params", name, ..] if seen.contains(name) || known.contains(name) => {}
                ["params", ..] => {
                    check.invalid(format!("{at}.{field}"), shown(&path), "there is no such parameter")
                }
                ["tasks", name, "outputs", output, ..] => match names.get(name) {
                    None => check.invalid(format!("{at}.{field}"), shown(&path), "there is no such task"),
                    Some(other) if *other >= spec.tasks.len() => {
                        check.invalid(format!("{at}.{field}"), shown(&path), "finally tasks have no outputs");
                    }
                    Some(other) if lacks_output(spec, *other, output) => {
                        check.invalid(format!("{at}.{field}"), shown(&path), "the task has no such output");
                    }
                    Some(_) => tasks.push((field, (*name).to_owned())),
                },
                ["tasks", name, "phase" | "exitCode" | "reason" | "message"] if names.contains_key(name) => {
                    tasks.push((field, (*name).to_owned()))
                }
                ["item", ..] if task.for_each.is_some() => {}
                ["item", ..] => {
                    check.invalid(format!("{at}.{field}"), shown(&path), "the task has no forEach")
                }
                ["run", "name" | "uid" | "namespace" | "dag" | "scheduledAt" | "phase"] => {}
                ["task", "name" | "attempt"] => {}
                _ => check.invalid(format!("{at}.{field}"), shown(&path), "there is no such value"),
            }
        }
    });
    let when = check.expression(|| format!("{at}.when"), &task.when);
    tasks.extend(when.into_iter().map(|name| ("when", name)));
    let items = task.for_each.as_ref().map(|for_each| for_each.expression.as_str()).unwrap_or_default();
    let items = check.expression(|| format!("{at}.forEach.expression"), items);
    tasks.extend(items.into_iter().map(|name| ("forEach.expression", name)));
    for (field, name) in tasks {
        match names.get(name.as_str()).and_then(|other| u32::try_from(*other).ok()) {
            None => check.invalid(format!("{at}.{field}"), name, "there is no such task"),
            Some(_) if is_finally => {}
            Some(other) if other as usize == n => {
                check.invalid(format!("{at}.{field}"), name, "a task can't wait for itself")
            }
            Some(other) => before.push(other),
        }
    }
    before
}

/// Whether a task that says its outputs itself has none of this name.
fn lacks_output(spec: &DagSpec, task: usize, output: &str) -> bool {
    let task = &spec.tasks[task];
    task.task_ref.is_none() && task.template.dag.is_none() && !task.template.has_output(output)
}

/// Checks what a shared task refers to: its own parameters, the item, the run.
pub(super) fn of_shared(check: &mut Check, spec: &DagTaskSpec) {
    texts(&spec.template, &mut |field, paths| {
        for path in paths {
            match path.as_slice() {
                ["params", name, ..] if spec.parameters.iter().any(|p| p.name == *name) => {}
                ["params", ..] => {
                    check.invalid(format!("spec.{field}"), shown(&path), "there is no such parameter")
                }
                ["tasks", ..] => check.invalid(
                    format!("spec.{field}"),
                    shown(&path),
                    "shared tasks know no other tasks: use a parameter",
                ),
                _ => {}
            }
        }
    });
}

fn shown(path: &[&str]) -> String {
    format!("$({})", path.join("."))
}

/// The tasks that a task refers to in texts and expressions, each once. It comes after them, as if `runAfter` named them.
pub fn dependencies(task: &Task) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    all(task, &mut |_, paths| {
        let of_tasks = paths.iter().filter_map(|path| match path.as_slice() {
            ["tasks", name, ..] => Some((*name).to_owned()),
            _ => None,
        });
        found.extend(of_tasks);
    });
    let expressions =
        [task.when.as_str(), task.for_each.as_ref().map(|f| f.expression.as_str()).unwrap_or_default()];
    for text in expressions.into_iter().filter(|text| text.contains("tasks")) {
        if let Ok(program) = Program::compile(text) {
            found.extend(program.fields_of("tasks").into_iter().map(str::to_owned));
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
