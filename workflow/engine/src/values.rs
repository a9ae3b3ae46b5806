//! Values that tasks refer to: parameters, outputs of tasks before them, items, the run.

use crate::{NodeId, Plan, Run};
use freehold_machinery::Value;
use freehold_machinery_cel::{Budget, Program, Variable};
use freehold_workflow_api::{ValueSource, template};
use serde_json::json;

/// Replaces the references in all texts of a document.
///
/// # Errors
/// References to values that are not there.
pub fn expand(
    run: &Run,
    plan: &Plan,
    node: NodeId,
    attempt: u32,
    document: &mut Value,
) -> Result<(), String> {
    template::expand_in(document, &|path| reference(run, plan, node, attempt, path))
}

/// Replaces the references in a text.
///
/// # Errors
/// References to values that are not there.
pub fn expand_text(run: &Run, plan: &Plan, node: NodeId, attempt: u32, text: &str) -> Result<String, String> {
    template::expand(text, &|path| reference(run, plan, node, attempt, path))
}

/// Where the value of a parameter comes from that only Pods read.
pub fn source(run: &Run, plan: &Plan, node: NodeId, path: &[&str]) -> Option<ValueSource> {
    let ["params", name] = path else { return None };
    let task = &plan.task(node.task).task;
    match task.parameters.iter().find(|argument| argument.name == *name) {
        Some(argument) => match (&argument.value, &argument.value_from) {
            (_, Some(source)) => Some(source.clone()),
            (Some(Value::String(text)), _) => {
                let path = template::only_reference(text)?;
                let ["params", name] = path.as_slice() else { return None };
                run.info.secrets.get(*name).cloned()
            }
            _ => None,
        },
        None => run.info.secrets.get(*name).cloned(),
    }
}

/// The value of a reference.
fn reference(run: &Run, plan: &Plan, node: NodeId, attempt: u32, path: &[&str]) -> Result<Value, String> {
    if let ["params", name, rest @ ..] = path
        && let Some(argument) =
            plan.task(node.task).task.parameters.iter().find(|argument| argument.name == *name)
    {
        let mut value = argument.value.clone().ok_or_else(|| secret(name))?;
        // Values of arguments know the parameters of the run, not each other.
        template::expand_in(&mut value, &|path| outer(run, plan, node, attempt, path))?;
        return dig(value, rest, path);
    }
    outer(run, plan, node, attempt, path)
}

fn secret(name: &str) -> String {
    format!("parameter {name:?} is secret: environment variables alone can have it, as their whole value")
}

fn outer(run: &Run, plan: &Plan, node: NodeId, attempt: u32, path: &[&str]) -> Result<Value, String> {
    let missing = || format!("$({}) has no value", path.join("."));
    match path {
        ["params", name, rest @ ..] => match run.info.params.get(*name) {
            Some(value) => dig(value.clone(), rest, path),
            None if run.info.secrets.contains_key(*name) => Err(secret(name)),
            None => Err(missing()),
        },
        ["tasks", name, "outputs", output, rest @ ..] => {
            let task = plan.number(name).ok_or_else(missing)?;
            let value = run.outputs(task).and_then(|outputs| outputs.get(*output)).ok_or_else(missing)?;
            dig(value.clone(), rest, path)
        }
        ["tasks", name, field] => {
            let task = plan.number(name).ok_or_else(missing)?;
            task_view(run, task).get_mut(*field).map(Value::take).ok_or_else(missing)
        }
        ["item", rest @ ..] => dig(run.item(node).ok_or_else(missing)?, rest, path),
        ["run", field] => run_view(run).get_mut(*field).map(Value::take).ok_or_else(missing),
        ["task", "name"] => Ok(plan.task(node.task).name().into()),
        ["task", "attempt"] => Ok(attempt.into()),
        _ => Err(missing()),
    }
}

/// A field within fields of a value. Text that is JSON is read.
fn dig(mut value: Value, fields: &[&str], path: &[&str]) -> Result<Value, String> {
    for field in fields {
        if let Value::String(text) = &value
            && let Ok(read @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str(text)
        {
            value = read;
        }
        let found = match &mut value {
            Value::Object(fields) => fields.remove(*field),
            Value::Array(items) => {
                field.parse().ok().filter(|n| *n < items.len()).map(|n: usize| items.swap_remove(n))
            }
            _ => None,
        };
        value = found.ok_or_else(|| format!("$({}) has no value", path.join(".")))?;
    }
    Ok(value)
}

/// A task as expressions see it.
fn task_view(run: &Run, task: u32) -> Value {
    let id = NodeId::task(task);
    let (phase, attempt) = run.node(id).map(|node| (node.state.phase(), node.attempt)).unwrap_or_default();
    let detail = run.details.get(&id).cloned().unwrap_or_default();
    json!({
        "phase": format!("{phase:?}"), "attempt": attempt, "exitCode": detail.exit_code.unwrap_or(0),
        "reason": detail.reason, "message": detail.message, "outputs": run.outputs(task).cloned().unwrap_or_default(),
    })
}

/// The run as expressions see it.
fn run_view(run: &Run) -> Value {
    let info = &run.info;
    json!({
        "name": info.name, "uid": info.uid, "namespace": info.namespace, "dag": info.dag, "scheduledAt": info.scheduled_at,
        "phase": format!("{:?}", run.phase_so_far()),
    })
}

/// Evaluates an expression of a task over `params`, `tasks` (those before it), `run` and `item`.
pub(crate) fn evaluate(run: &Run, plan: &Plan, node: NodeId, program: &Program) -> Result<Value, String> {
    let mut params = json!(run.info.params);
    for argument in plan.task(node.task).task.parameters.iter().filter(|argument| argument.value.is_some()) {
        if let Ok(value) = reference(run, plan, node, 0, &["params", &argument.name]) {
            params[&argument.name] = value;
        }
    }
    let before = &plan.task(node.task).before;
    let all: Vec<u32>;
    let known = if plan.is_finally(node.task) {
        // Finally tasks come after all: they see those that the expression names.
        all = program.fields_of("tasks").iter().filter_map(|name| plan.number(name)).collect();
        &all
    } else {
        before
    };
    let tasks: Value = known
        .iter()
        .map(|n| (plan.task(*n).name().to_owned(), task_view(run, *n)))
        .collect::<freehold_machinery::Map>()
        .into();
    let (of_run, item) = (run_view(run), run.item(node).unwrap_or_default());
    let variables = [
        ("params", Variable::Json(&params, None)),
        ("tasks", Variable::Json(&tasks, None)),
        ("run", Variable::Json(&of_run, None)),
        ("item", Variable::Json(&item, None)),
    ];
    let value = program.value(&variables, &Budget::default()).map_err(|error| format!("{error:?}"))?;
    value.to_json().ok_or_else(|| "the value is no JSON".to_owned())
}
