//! Conversion of other workflow definitions to DAGs: Argo Workflows, Tekton, and Kontroler's kinds. Pure.
//!
//! ```
//! use freehold_workflow_convert::{convert, parse};
//!
//! let documents = parse("apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {name: hello}\nspec:\n  entrypoint: main\n  \
//!     templates: [{name: main, container: {image: busybox, command: [echo, hi]}}]\n").unwrap();
//! let converted = convert(&documents);
//! assert_eq!(converted[0].objects[0]["spec"]["tasks"][0]["image"], "busybox");
//! ```
//!
//! Guarantees: a field that has no counterpart is refused with its path, never dropped; what differs without harm is a note;
//! every object that is returned is valid by [`freehold_workflow_api::validate`].
//!
//! This crate must not know how runs are carried out, nor do I/O.

mod argo;
mod build;
mod expression;
mod fields;
mod kontroler;
mod library;
mod tekton;
mod text;
mod yaml;

pub use yaml::parse;

use freehold_machinery::Value;
use freehold_machinery::status::FieldError;
use freehold_workflow_api as api;
use library::Library;
use serde::Serialize;

/// Definitions in one conversion.
const MAX_DOCUMENTS: usize = 10_000;
/// Problems and notes that are reported of one definition.
const MAX_REPORTED: usize = 100;

/// What became of one definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Converted {
    /// The definition: `Workflow/hello`.
    pub source: String,
    /// Objects to be created in its place, in this order; none where something was refused.
    pub objects: Vec<Value>,
    /// Fields that are not supported, and other reasons why there are no objects.
    pub problems: Vec<Problem>,
    /// Differences that do no harm.
    pub notes: Vec<Problem>,
}

/// Something to know about a field.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Problem {
    /// The field: `spec.templates[0].container.image`.
    pub path: String,
    /// What about it.
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Problems and notes of the definition that is being converted.
#[derive(Debug, Default)]
pub(crate) struct Report {
    problems: Vec<Problem>,
    notes: Vec<Problem>,
}

impl Report {
    pub(crate) fn refuse(&mut self, path: impl Into<String>, message: impl Into<String>) {
        if self.problems.len() < MAX_REPORTED {
            self.problems.push(Problem { path: path.into(), message: message.into() });
        }
    }

    pub(crate) fn note(&mut self, path: impl Into<String>, message: impl Into<String>) {
        if self.notes.len() < MAX_REPORTED {
            self.notes.push(Problem { path: path.into(), message: message.into() });
        }
    }
}

/// Whether an object is of a kind that [`convert`] knows.
pub fn is_known(object: &Value) -> bool {
    converter(object).is_some()
}

type Converter = fn(&Value, &Library<'_>, &mut Report) -> Vec<Value>;

fn converter(object: &Value) -> Option<Converter> {
    let api_version = build::text_of(object, "apiVersion");
    match (api_version.split('/').next().unwrap_or_default(), build::text_of(object, "kind")) {
        ("argoproj.io", "Workflow" | "WorkflowTemplate" | "ClusterWorkflowTemplate" | "CronWorkflow") => {
            Some(argo::convert)
        }
        ("tekton.dev", "Task" | "ClusterTask") => Some(tekton::convert_task),
        ("tekton.dev", "Pipeline") => Some(tekton::convert_pipeline),
        ("kontroler.greedykomodo", "DAG") => Some(kontroler::convert_dag),
        ("kontroler.greedykomodo", "DagRun") => Some(kontroler::convert_run),
        ("kontroler.greedykomodo", "DagTask") => Some(kontroler::convert_task),
        _ => None,
    }
}

/// Converts definitions. They can refer to each other, whatever their order.
pub fn convert(documents: &[Value]) -> Vec<Converted> {
    convert_with(documents, &[])
}

/// Converts definitions that can also refer to those in `known`, which are not converted themselves.
pub fn convert_with(documents: &[Value], known: &[Value]) -> Vec<Converted> {
    let documents = &documents[..documents.len().min(MAX_DOCUMENTS)];
    let library = Library::new(documents.iter().chain(known));
    documents.iter().map(|document| convert_one(document, &library)).collect()
}

fn convert_one(document: &Value, library: &Library<'_>) -> Converted {
    let kind = build::text_of(document, "kind");
    let source = format!("{kind}/{}", build::name_of(document));
    let mut report = Report::default();
    let mut objects = match converter(document) {
        Some(convert) => convert(document, library, &mut report),
        None => {
            let version = build::text_of(document, "apiVersion");
            report.refuse("kind", format!("{kind:?} of {version:?} is no workflow definition that is known"));
            Vec::new()
        }
    };
    let mut invalid = Vec::new();
    // Where something was refused already, what is left need not be whole.
    for object in objects.iter().filter(|_| report.problems.is_empty()) {
        let kind = build::text_of(object, "kind");
        invalid.extend(
            errors_of(object)
                .into_iter()
                .map(|(field, why)| (field, format!("in the {kind} that it becomes: {why}"))),
        );
    }
    invalid.into_iter().for_each(|(field, why)| report.refuse(field, why));
    if !report.problems.is_empty() {
        objects.clear();
    }
    Converted { source, objects, problems: report.problems, notes: report.notes }
}

/// The static errors of an object that was made, each with its field.
fn errors_of(object: &Value) -> Vec<(String, String)> {
    fn read<S: serde::de::DeserializeOwned>(
        spec: &Value,
        validate: fn(&S) -> Vec<FieldError>,
    ) -> Vec<(String, String)> {
        match serde_json::from_value::<S>(spec.clone()) {
            Ok(spec) => {
                validate(&spec).into_iter().map(|error| (error.field.to_string(), error.body())).collect()
            }
            Err(error) => vec![("spec".into(), error.to_string())],
        }
    }
    let spec = &object["spec"];
    match build::text_of(object, "kind") {
        "DAG" => read::<api::DagSpec>(spec, api::validate::dag),
        "DAGTask" => read::<api::DagTaskSpec>(spec, api::validate::dag_task),
        "ClusterDAGTask" => read::<api::ClusterDagTaskSpec>(spec, api::validate::cluster_dag_task),
        _ => Vec::new(),
    }
}
