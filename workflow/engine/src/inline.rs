//! Puts shared tasks in the place of references to them, so that a run's definition stands alone.

use freehold_machinery::status::FieldError;
use freehold_workflow_api::{Argument, DagSpec, DagTaskSpec, Task, TaskRef, validate};
use std::collections::HashMap;

/// Returns the definition with shared tasks in place. `find` gives a shared task by its reference.
///
/// # Errors
/// References to tasks that do not exist, parameters that they don't have, and values that are missing.
pub fn inline(
    spec: &DagSpec,
    find: &impl Fn(&TaskRef) -> Option<DagTaskSpec>,
) -> Result<DagSpec, Vec<FieldError>> {
    let mut spec = spec.clone();
    let mut errors = Vec::new();
    for (field, tasks) in [("tasks", &mut spec.tasks), ("finally", &mut spec.finally)] {
        for (n, task) in tasks.iter_mut().enumerate() {
            let Some(reference) = task.task_ref.take() else { continue };
            let path = format!("spec.{field}[{n}]");
            match find(&reference) {
                Some(shared) => place(task, &shared, &path, &mut errors),
                None => errors.push(FieldError::invalid(
                    format!("{path}.taskRef.name"),
                    reference.name.as_str().into(),
                    format!("there is no such {:?}", reference.kind),
                )),
            }
        }
    }
    if errors.is_empty() { Ok(spec) } else { Err(errors) }
}

fn place(task: &mut Task, shared: &DagTaskSpec, path: &str, errors: &mut Vec<FieldError>) {
    let given: HashMap<&str, &Argument> = task.parameters.iter().map(|a| (a.name.as_str(), a)).collect();
    for (n, argument) in task.parameters.iter().enumerate() {
        if !shared.parameters.iter().any(|parameter| parameter.name == argument.name) {
            let at = format!("{path}.parameters[{n}].name");
            errors.push(FieldError::invalid(
                at,
                argument.name.as_str().into(),
                "the shared task has no such parameter",
            ));
        }
    }
    let mut missing = Vec::new();
    for parameter in shared.parameters.iter().filter(|p| !given.contains_key(p.name.as_str())) {
        if parameter.default.is_none() && parameter.value_from.is_none() {
            errors.push(FieldError::required(
                format!("{path}.parameters"),
                format!("parameter {:?} has no value", parameter.name),
            ));
        }
        missing.push(Argument {
            name: parameter.name.clone(),
            value: parameter.default.clone(),
            value_from: parameter.value_from.clone(),
        });
    }
    for (n, argument) in task.parameters.iter().enumerate() {
        let parameter = shared.parameters.iter().find(|p| p.name == argument.name);
        if let (Some(parameter), Some(value)) = (parameter, &argument.value)
            && !value.as_str().is_some_and(|text| text.contains("$("))
            && let Err(why) = validate::value_fits(parameter, value)
        {
            errors.push(FieldError::invalid(format!("{path}.parameters[{n}].value"), value.clone(), why));
        }
    }
    task.parameters.extend(missing);
    // What the task says itself comes before what the shared task says.
    let own = std::mem::replace(&mut task.template, shared.template.clone());
    if own.retry.is_some() {
        task.template.retry = own.retry;
    }
    for (text, own) in
        [(&mut task.template.timeout, own.timeout), (&mut task.template.start_timeout, own.start_timeout)]
    {
        if !own.is_empty() {
            *text = own;
        }
    }
    if own.pod.is_some() {
        task.template.pod = own.pod;
    }
}
