//! Tasks: names, kinds, order.

use super::{Check, MAX_ITEMS, MAX_TASKS, duplicate, is_word, parts, references};
use crate::dag::DagSpec;
use crate::depends::Depends;
use crate::graph::{Cycle, order};
use crate::task::{ForEach, Task, TriggerRule};
use freehold_machinery::status::FieldError;
use std::collections::{HashMap, HashSet};

/// What a task is asked for that says nothing, or too much.
pub(super) const KINDS: &str = "exactly one of image (or script), resource, http, wait, approval and dag";

/// Tasks by their names: the numbers of the tasks, then of finally tasks.
pub(super) type Names<'a> = HashMap<&'a str, usize>;

pub(super) fn check(check: &mut Check, spec: &DagSpec) {
    if spec.tasks.is_empty() {
        check.add(FieldError::required("spec.tasks", "a DAG has at least one task"));
    }
    if spec.tasks.len() > MAX_TASKS {
        check.invalid("spec.tasks", spec.tasks.len(), format!("must have at most {MAX_TASKS} items"));
        return;
    }
    let all = || spec.tasks.iter().chain(&spec.finally);
    let mut names: Names<'_> = HashMap::with_capacity(spec.tasks.len());
    for (n, task) in all().enumerate() {
        if !is_word(&task.name) {
            let why = "must be letters, digits, - and _, at most 63, and begin and end with none of -";
            check.invalid(format!("{}.name", path(spec, n)), task.name.as_str(), why);
        }
        if names.insert(&task.name, n).is_some() {
            check.add(duplicate(format!("{}.name", path(spec, n)), &task.name));
        }
    }
    let parameters: HashSet<&str> = spec.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
    let mut edges: Vec<Vec<u32>> = Vec::with_capacity(spec.tasks.len());
    for (n, task) in all().enumerate() {
        let at = path(spec, n);
        contents(check, &at, task);
        let mut before = if n < spec.tasks.len() {
            ordering(check, &at, task, &names, spec.tasks.len())
        } else {
            none(check, &at, task)
        };
        before.extend(references::of_task(check, &at, (n, task), spec, (&names, &parameters)));
        edges.push(before);
    }
    edges.truncate(spec.tasks.len());
    for before in &mut edges {
        before.sort_unstable();
        before.dedup();
    }
    if let Err(Cycle(cycle)) = order(&edges) {
        let names: Vec<&str> =
            cycle.iter().chain(cycle.first()).map(|n| spec.tasks[*n as usize].name.as_str()).collect();
        let at = format!("{}.runAfter", path(spec, cycle[0] as usize));
        check.invalid(at, names[0], format!("tasks wait for each other: {}", names.join(" -> ")));
    }
}

/// The path of a task by its number.
pub(super) fn path(spec: &DagSpec, n: usize) -> String {
    match n.checked_sub(spec.tasks.len()) {
        None => format!("spec.tasks[{n}]"),
        Some(n) => format!("spec.finally[{n}]"),
    }
}

fn contents(check: &mut Check, at: &str, task: &Task) {
    match (&task.task_ref, task.template.kind()) {
        (None, None) => check.add(FieldError::required(at, KINDS)),
        (Some(_), Some(_)) => {
            check.add(FieldError::forbidden(format!("{at}.taskRef"), "the task says itself what it does"))
        }
        _ => {}
    }
    parts::template(check, at, &task.template);
    parts::semaphores(check, at, &task.semaphores);
    if let Some(for_each) = &task.for_each {
        fan_out(check, &format!("{at}.forEach"), for_each);
    }
}

fn fan_out(check: &mut Check, at: &str, for_each: &ForEach) {
    let ForEach { items, expression, range, matrix, .. } = for_each;
    let given = [!items.is_empty(), !expression.is_empty(), range.is_some(), !matrix.is_empty()];
    if given.iter().filter(|given| **given).count() != 1 {
        check.add(FieldError::required(at, "exactly one of items, expression, range and matrix"));
    }
    let combinations = matrix.values().try_fold(1usize, |product, values| product.checked_mul(values.len()));
    let range = range.map_or(0, |range| range.count as usize);
    let count =
        items.len().max(range).max(if matrix.is_empty() { 0 } else { combinations.unwrap_or(usize::MAX) });
    if count > MAX_ITEMS {
        check.invalid(at, count, format!("must have at most {MAX_ITEMS} items"));
    }
}

/// Finally tasks come after all others.
fn none(check: &mut Check, at: &str, task: &Task) -> Vec<u32> {
    if !task.run_after.is_empty() {
        check.add(FieldError::forbidden(format!("{at}.runAfter"), "finally tasks come after all tasks"));
    }
    if !task.depends.is_empty() {
        check.add(FieldError::forbidden(format!("{at}.depends"), "finally tasks come after all tasks"));
    }
    if task.trigger != TriggerRule::default() {
        check.add(FieldError::forbidden(format!("{at}.trigger"), "finally tasks come after all tasks"));
    }
    Vec::new()
}

/// The tasks that a task names as those it comes after.
fn ordering(check: &mut Check, at: &str, task: &Task, names: &Names<'_>, tasks: usize) -> Vec<u32> {
    let mut before = Vec::with_capacity(task.run_after.len());
    let mut look_up = |check: &mut Check, path: &dyn Fn() -> String, name: &str| match names.get(name) {
        Some(n) if *n < tasks => before.extend(u32::try_from(*n)),
        Some(_) => check.invalid(path(), name, "finally tasks come after all tasks"),
        None => check.invalid(path(), name, "there is no such task"),
    };
    for (n, name) in task.run_after.iter().enumerate() {
        look_up(check, &|| format!("{at}.runAfter[{n}]"), name);
    }
    if !task.depends.is_empty() {
        let path = || format!("{at}.depends");
        if !task.run_after.is_empty() || task.trigger != TriggerRule::default() {
            check.add(FieldError::forbidden(path(), "it stands instead of runAfter and trigger"));
        }
        match Depends::parse(&task.depends) {
            Ok(depends) => depends.tasks().iter().for_each(|name| look_up(check, &path, name)),
            Err(error) => check.invalid(path(), task.depends.as_str(), error),
        }
    }
    before
}
