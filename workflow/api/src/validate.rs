//! Static errors of definitions, each with its path.
//!
//! Time is linear in the size of the definition. Expressions are compiled once for each distinct text.

mod files;
mod parts;
mod references;
mod tasks;

use crate::dag::{DagSpec, Parameter, ParameterType};
use crate::run::{Argument, DagRunSpec};
use crate::task::{ClusterDagTaskSpec, DagTaskSpec};
use freehold_machinery::Value;
use freehold_machinery::status::FieldError;
use freehold_machinery_cel::Program;
use freehold_machinery_cron::{Schedule, Zone};
use std::collections::{HashMap, HashSet};

pub use files::{is_key, is_relative};
pub use references::dependencies;

/// Errors that are reported at most.
const MAX_ERRORS: usize = 100;
/// Tasks that a DAG may have.
pub const MAX_TASKS: usize = 100_000;
/// Items that a fan-out may have.
pub const MAX_ITEMS: usize = 100_000;

/// Finds the errors of a DAG's spec. An empty list: runs can be made of it, as far as one can tell without its shared tasks.
pub fn dag(spec: &DagSpec) -> Vec<FieldError> {
    let mut check = Check::default();
    check.schedule(spec);
    check.parameters("spec.parameters", &spec.parameters);
    parts::settings(&mut check, spec);
    tasks::check(&mut check, spec);
    check.errors
}

/// Finds the errors of a shared task's spec.
pub fn dag_task(spec: &DagTaskSpec) -> Vec<FieldError> {
    let mut check = Check::default();
    check.parameters("spec.parameters", &spec.parameters);
    if spec.template.kind().is_none() {
        check.add(FieldError::required("spec", tasks::KINDS));
    }
    parts::template(&mut check, "spec", &spec.template);
    references::of_shared(&mut check, spec);
    check.errors
}

/// Finds the errors of a cluster-wide shared task's spec.
pub fn cluster_dag_task(spec: &ClusterDagTaskSpec) -> Vec<FieldError> {
    dag_task(&spec.task)
}

/// Finds the errors of a run's spec, given the DAG that it is of, or its own definition, where that is known.
pub fn run(spec: &DagRunSpec, dag: Option<&DagSpec>) -> Vec<FieldError> {
    let mut check = Check::default();
    match (spec.dag.is_empty(), &spec.dag_spec) {
        (true, None) => check.add(FieldError::required("spec.dag", "the name of a DAG, or dagSpec")),
        (false, Some(_)) => {
            check.add(FieldError::forbidden("spec.dagSpec", "dag names a definition already"))
        }
        _ => {}
    }
    check.arguments("spec.parameters", &spec.parameters);
    if let Some(dag) = dag {
        check.values("spec.parameters", &spec.parameters, &dag.parameters);
    }
    check.errors
}

/// Whether a value is of a parameter's type and among its values; what is wrong otherwise.
///
/// # Errors
/// What would be right.
pub fn value_fits(parameter: &Parameter, value: &Value) -> Result<(), String> {
    let (fits, wanted) = match parameter.type_ {
        ParameterType::String => (value.is_string(), "a string"),
        ParameterType::Number => (value.is_number(), "a number"),
        ParameterType::Integer => (value.as_i64().is_some(), "a whole number"),
        ParameterType::Boolean => (value.is_boolean(), "true or false"),
        ParameterType::List => (value.is_array(), "a list"),
        ParameterType::Object => (value.is_object(), "a map"),
    };
    if !fits {
        return Err(format!("must be {wanted}"));
    }
    if !parameter.allowed.is_empty() && !parameter.allowed.contains(value) {
        let allowed: Vec<String> = parameter.allowed.iter().map(Value::to_string).collect();
        return Err(format!("must be one of {}", allowed.join(", ")));
    }
    Ok(())
}

/// Errors so far, and expressions that were compiled already.
#[derive(Default)]
struct Check {
    errors: Vec<FieldError>,
    expressions: HashMap<String, Result<Vec<String>, String>>,
}

impl Check {
    fn add(&mut self, error: FieldError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    fn invalid(&mut self, path: impl Into<String>, value: impl Into<Value>, why: impl Into<String>) {
        self.add(FieldError::invalid(path, value.into(), why));
    }

    fn duration(&mut self, path: impl FnOnce() -> String, text: &str) {
        if !text.is_empty() && !text.contains("$(") && crate::duration::parse(text).is_none() {
            self.invalid(path(), text, "must be a duration such as 90s, 1h30m or 7d");
        }
    }

    /// Compiles an expression and returns the tasks that it reads.
    fn expression(&mut self, path: impl FnOnce() -> String, text: &str) -> Vec<String> {
        if text.is_empty() {
            return Vec::new();
        }
        if !self.expressions.contains_key(text) {
            let compiled = Program::compile(text)
                .map(|program| program.fields_of("tasks").into_iter().map(str::to_owned).collect())
                .map_err(|error| error.to_string());
            self.expressions.insert(text.to_owned(), compiled);
        }
        match &self.expressions[text] {
            Ok(tasks) => tasks.clone(),
            Err(error) => {
                let error = error.clone();
                self.invalid(path(), text, error);
                Vec::new()
            }
        }
    }

    fn schedule(&mut self, spec: &DagSpec) {
        let one = (!spec.schedule.is_empty()).then(|| ("spec.schedule".to_owned(), &spec.schedule));
        let more = spec.schedules.iter().enumerate().map(|(n, text)| (format!("spec.schedules[{n}]"), text));
        for (path, text) in one.into_iter().chain(more) {
            if let Err(error) = Schedule::parse(text) {
                self.invalid(path, text.as_str(), error);
            }
        }
        if !spec.time_zone.is_empty() && Zone::named(&spec.time_zone).is_none() {
            self.invalid(
                "spec.timeZone",
                spec.time_zone.as_str(),
                "must be a time zone such as Europe/Berlin",
            );
        }
        self.duration(|| "spec.startingDeadline".into(), &spec.starting_deadline);
    }

    fn parameters(&mut self, path: &str, parameters: &[Parameter]) {
        let mut known = HashSet::new();
        for (n, parameter) in parameters.iter().enumerate() {
            if !is_parameter_name(&parameter.name) {
                self.invalid(
                    format!("{path}[{n}].name"),
                    parameter.name.as_str(),
                    "must be letters, digits, - and _",
                );
            }
            if !known.insert(&parameter.name) {
                self.add(duplicate(format!("{path}[{n}].name"), &parameter.name));
            }
            if parameter.default.is_some() && parameter.value_from.is_some() {
                self.add(FieldError::forbidden(
                    format!("{path}[{n}].valueFrom"),
                    "default gives a value already",
                ));
            }
            if let Some(Err(why)) = parameter.default.as_ref().map(|value| value_fits(parameter, value)) {
                self.invalid(
                    format!("{path}[{n}].default"),
                    parameter.default.clone().unwrap_or_default(),
                    why,
                );
            }
        }
    }

    fn arguments(&mut self, path: &str, arguments: &[Argument]) {
        let mut given = HashSet::new();
        for (n, argument) in arguments.iter().enumerate() {
            if !given.insert(argument.name.as_str()) {
                self.add(duplicate(format!("{path}[{n}].name"), &argument.name));
            }
            if argument.value.is_some() == argument.value_from.is_some() {
                self.add(FieldError::required(format!("{path}[{n}]"), "exactly one of value and valueFrom"));
            }
        }
    }

    fn values(&mut self, path: &str, arguments: &[Argument], parameters: &[Parameter]) {
        let known: HashMap<&str, &Parameter> = parameters.iter().map(|p| (p.name.as_str(), p)).collect();
        for (n, argument) in arguments.iter().enumerate() {
            match (known.get(argument.name.as_str()), &argument.value) {
                (None, _) => self.invalid(
                    format!("{path}[{n}].name"),
                    argument.name.as_str(),
                    "the DAG has no such parameter",
                ),
                (Some(parameter), Some(value)) if !has_reference(value) => {
                    if let Err(why) = value_fits(parameter, value) {
                        self.invalid(format!("{path}[{n}].value"), value.clone(), why);
                    }
                }
                _ => {}
            }
        }
        let given: HashSet<&str> = arguments.iter().map(|argument| argument.name.as_str()).collect();
        let wanted = |p: &&Parameter| {
            p.default.is_none() && p.value_from.is_none() && !given.contains(p.name.as_str())
        };
        for parameter in parameters.iter().filter(wanted) {
            self.add(FieldError::required(path, format!("parameter {:?} has no value", parameter.name)));
        }
    }
}

fn has_reference(value: &Value) -> bool {
    let mut found = Vec::new();
    crate::template::references_in(value, &mut found);
    !found.is_empty()
}

fn is_parameter_name(name: &str) -> bool {
    is_word(name) && !name.starts_with(|c: char| c.is_ascii_digit() || c == '-')
}

/// Letters, digits, `-` and `_`, at most 63.
fn is_word(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 63
        && !name.starts_with('-')
        && !name.ends_with('-')
        && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
}

fn duplicate(path: String, name: &str) -> FieldError {
    FieldError::new(freehold_machinery::status::FieldErrorKind::Duplicate, path, "").of(name.into())
}

#[cfg(test)]
mod tests;
