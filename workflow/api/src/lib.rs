//! `workflow.freehold.dev/v1alpha1`: the kinds of the workflow subsystem.
//!
//! [`DAG`] defines tasks and when they run, [`DAGRun`] is one run of it, [`DAGTask`] and [`ClusterDAGTask`] are tasks that
//! several DAGs share. [`validate`] finds every static error of a definition, with its path, in time linear in its size.
//!
//! This crate must not know how runs are carried out.

pub mod admission;
mod artifact;
mod dag;
pub mod depends;
pub mod duration;
mod graph;
pub mod kontroler;
mod run;
mod schema;
mod task;
pub mod template;
pub mod validate;

pub use artifact::{
    Archive, ArtifactInput, ArtifactOutput, Artifacts, Delivery, InputArchive, Memoize, Notifications,
    NotifyOn, RunWebhook, TaskEvents,
};
pub use dag::{
    CatchUp, CatchUpPolicy, ConcurrencyPolicy, DagSpec, DagStatus, History, Parameter, ParameterType,
    PodRetention, SecretKeyRef, Semaphore, ValueSource, Workspace,
};
pub use graph::{Cycle, order};
pub use run::{
    Approval, Argument, DagRunSpec, DagRunStatus, Decision, EncodedState, Phase, Retry as RunRetry,
    RunCounts, RunState, TaskStatus, again,
};
pub use task::{
    Approve, Backoff, ChildDag, ClusterDagTaskSpec, DagTaskSpec, ForEach, HttpHeader, HttpTask, Output,
    OutputSource, OutputType, PodTemplate, Range, ResourceAction, ResourceTask, Retry, SharedTaskStatus,
    Task, TaskKind, TaskRef, TaskRefKind, TaskTemplate, TriggerRule, Wait,
};

pub use freehold_api::Condition;
use freehold_api::{Object, crd};
use freehold_machinery::Value;

/// The API group.
pub const GROUP: &str = "workflow.freehold.dev";
/// The version of all its kinds.
pub const VERSION: &str = "v1alpha1";

/// Tasks, their order and their schedule.
pub type DAG = Object<DagSpec>;
/// One run of a DAG.
pub type DAGRun = Object<DagRunSpec>;
/// A task that DAGs of its namespace share.
pub type DAGTask = Object<DagTaskSpec>;
/// A task that DAGs of all namespaces share.
pub type ClusterDAGTask = Object<ClusterDagTaskSpec>;

/// Names of labels, annotations and finalizers of the subsystem.
pub mod names {
    /// Label: the uid of the run that a Pod or run belongs to.
    pub const RUN_UID: &str = "workflow.freehold.dev/run-uid";
    /// Label: the run's name, as far as it fits.
    pub const RUN: &str = "workflow.freehold.dev/run";
    /// Label: the name of the DAG.
    pub const DAG: &str = "workflow.freehold.dev/dag";
    /// Label: the name of the task.
    pub const TASK: &str = "workflow.freehold.dev/task";
    /// Label: the install whose controllers work on the object; absent for the default install.
    pub const INSTANCE: &str = "workflow.freehold.dev/instance";
    /// Annotation of a Pod: task index, item and attempt in its run (`3.0.1`).
    pub const NODE: &str = "workflow.freehold.dev/node";
    /// Annotation of a Pod: it has a Secret of its own name with the places of its artifacts.
    pub const ARTIFACTS: &str = "workflow.freehold.dev/artifacts";
    /// Label of a ControllerRevision that is the kept result of a task: its cache.
    pub const CACHE: &str = "workflow.freehold.dev/cache";
    /// Annotation of a run: the time of the schedule that it is for.
    pub const TICK: &str = "workflow.freehold.dev/scheduled-at";
    /// Annotation of a run: how many DAGs are above it.
    pub const DEPTH: &str = "workflow.freehold.dev/depth";
    /// Finalizer of a Pod: its end is not recorded in its run's status yet.
    pub const COUNTED: &str = "workflow.freehold.dev/counted";
    /// Finalizer of a run: it has Pods.
    pub const PODS: &str = "workflow.freehold.dev/pods";
}

/// The CustomResourceDefinitions of the subsystem's kinds. Fields have no defaults there: an object stays as it was written,
/// and small.
pub fn crds() -> Vec<Value> {
    let mut crds =
        vec![crd::<DagSpec>(), crd::<DagRunSpec>(), crd::<DagTaskSpec>(), crd::<ClusterDagTaskSpec>()];
    for crd in &mut crds {
        let version = &mut crd["spec"]["versions"][0];
        without_defaults(&mut version["schema"]["openAPIV3Schema"]);
    }
    crds
}

fn without_defaults(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.remove("default");
    for below in
        fields.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(|p| p.values_mut())
    {
        without_defaults(below);
    }
    for below in ["items", "additionalProperties"] {
        if let Some(below) = fields.get_mut(below) {
            without_defaults(below);
        }
    }
}

pub(crate) const fn column(name: &'static str, json_path: &'static str) -> freehold_api::PrinterColumn {
    freehold_api::PrinterColumn { name, kind: "string", json_path, priority: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_read_is_written_as_it_was() {
        let dag = json!({
            "apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAG", "metadata": {"name": "d", "namespace": "n"},
            "spec": {"tasks": [{"name": "a", "image": "i"}, {"name": "b", "runAfter": ["a"], "taskRef": {"name": "x"}}]},
        });
        let read: DAG = serde_json::from_value(dag.clone()).unwrap();
        assert_eq!(read.spec.tasks[1].run_after, ["a"]);
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(written["spec"]["tasks"][0], dag["spec"]["tasks"][0]);
        assert_eq!(written["spec"]["tasks"][1]["taskRef"]["kind"], "DAGTask");
    }

    #[test]
    fn schemas_have_the_fields_of_flattened_parts() {
        let crds = crds();
        let spec =
            |n: usize| &crds[n]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        let task = &spec(0)["properties"]["tasks"]["items"];
        for field in ["name", "image", "script", "forEach", "runAfter", "pod"] {
            assert!(task["properties"][field].is_object(), "{field}: {task}");
        }
        assert_eq!(
            task["properties"]["pod"]["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"],
            true
        );
        assert!(
            spec(3)["properties"]["image"].is_object() && spec(3)["properties"]["parameters"].is_object()
        );
        let text = serde_json::to_string(&crds).unwrap();
        assert!(text.len() < 256 << 10);
        // An optional enumeration with descriptions becomes one, and is refused as not structural.
        assert!(!text.contains("\"anyOf\""), "no field is of several types");
    }
}
