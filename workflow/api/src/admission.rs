//! Which objects of the subsystem's kinds are refused when they are written.
//!
//! Each error has the path of its field. Objects that an error was found in after they were written can still be changed
//! outside of it: an update is checked where it changes the definition.
//!
//! This module must not know who asks: an API server in its own process, a webhook, or `freehold workflow lint`.

use crate::run::DagRunSpec;
use crate::{DagSpec, DagTaskSpec, GROUP, VERSION, crds, validate};
use freehold_machinery::schema::{Schema, parse, unknown_fields, validate as against};
use freehold_machinery::status::{FieldError, FieldErrorKind};
use freehold_machinery::{Status, Value, meta};
use serde::Deserialize as _;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

/// Finds a DAG by its namespace and name.
pub type FindDag<'a> = dyn Fn(&str, &str) -> Option<Arc<Value>> + 'a;

/// Resources that are checked.
pub const RESOURCES: [&str; 4] = ["dags", "dagruns", "dagtasks", "clusterdagtasks"];

/// The name of the DAG that has to be read to check a new or changed object, if there is one.
pub fn referenced_dag<'a>(object: &'a Value, old: Option<&Value>) -> Option<&'a str> {
    let dag = object["spec"]["dag"].as_str().filter(|name| !name.is_empty())?;
    (object["kind"] == "DAGRun" && is_changed(object, old) && !is_made_by_controller(object)).then_some(dag)
}

/// Checks an object that is created or, where there is an `old` one, updated.
///
/// # Errors
/// 422 with the path of each error, at most 100.
pub fn admit(object: &Value, old: Option<&Value>, find: &FindDag<'_>) -> Result<(), Status> {
    if !is_changed(object, old) {
        return Ok(());
    }
    let found = errors(object, find);
    if found.is_empty() {
        return Ok(());
    }
    let kind = object["kind"].as_str().unwrap_or_default();
    Err(Status::invalid(GROUP, kind, meta::name(object), &found))
}

/// Finds the static errors of an object.
pub fn errors(object: &Value, find: &FindDag<'_>) -> Vec<FieldError> {
    let spec = &object["spec"];
    match object["kind"].as_str().unwrap_or_default() {
        "DAG" => typed(spec, "spec", |spec: &DagSpec| validate::dag(spec)),
        "DAGTask" | "ClusterDAGTask" => typed(spec, "spec", |spec: &DagTaskSpec| validate::dag_task(spec)),
        "DAGRun" => run(object, find),
        _ => Vec::new(),
    }
}

fn run(object: &Value, find: &FindDag<'_>) -> Vec<FieldError> {
    let own = Some(&object["spec"]["dagSpec"]).filter(|own| !own.is_null());
    let found = own.map(definition).unwrap_or_default();
    if !found.is_empty() || is_made_by_controller(object) {
        return found;
    }
    typed(&object["spec"], "spec", |run: &DagRunSpec| {
        let named = || find(meta::namespace(object), &run.dag);
        let named = if run.dag.is_empty() { None } else { named() };
        let named = named.and_then(|dag| DagSpec::deserialize(&dag["spec"]).ok());
        validate::run(run, run.dag_spec.as_deref().or(named.as_ref()))
    })
}

/// Finds the errors of an object of this group that an API server would find: those of the schema of its kind first, as of
/// fields that are not there, and those of [`errors`] where there are none. `None` for objects of other groups and kinds.
pub fn lint(object: &Value) -> Option<Vec<FieldError>> {
    let (group, _) = object["apiVersion"].as_str()?.split_once('/')?;
    let schema = SCHEMAS.get(object["kind"].as_str()?).filter(|_| group == GROUP)?;
    let found = against_schema(&json!({"spec": object["spec"]}), schema);
    Some(if found.is_empty() { errors(object, &|_, _| None) } else { found })
}

/// The errors of a definition that a run brings: the API server knows no schema of it.
fn definition(own: &Value) -> Vec<FieldError> {
    let mut found =
        SCHEMAS.get("DAG").map(|schema| against_schema(&json!({"spec": own}), schema)).unwrap_or_default();
    if found.is_empty() {
        found = typed(own, "spec", |spec: &DagSpec| validate::dag(spec));
    }
    for error in &mut found {
        if let Some(rest) = error.field.strip_prefix("spec") {
            error.field = format!("spec.dagSpec{rest}");
        }
    }
    found
}

fn against_schema(whole: &Value, schema: &Schema) -> Vec<FieldError> {
    let unknown = unknown_fields(whole, schema).into_iter();
    let unknown = unknown.map(|path| FieldError::new(FieldErrorKind::Forbidden, path, "unknown field"));
    unknown.chain(against(whole, schema, None)).collect()
}

/// The schema of each kind.
static SCHEMAS: LazyLock<HashMap<String, Arc<Schema>>> = LazyLock::new(|| {
    let schemas = crds().into_iter().filter_map(|crd| {
        let version = &crd["spec"]["versions"][0];
        debug_assert_eq!(version["name"], VERSION);
        let kind = crd["spec"]["names"]["kind"].as_str()?;
        Some((kind.to_owned(), parse(&version["schema"]["openAPIV3Schema"]).ok()?))
    });
    schemas.collect()
});

fn typed<T: serde::de::DeserializeOwned>(
    spec: &Value,
    path: &str,
    check: impl FnOnce(&T) -> Vec<FieldError>,
) -> Vec<FieldError> {
    match T::deserialize(spec) {
        Ok(spec) => check(&spec),
        Err(error) => vec![FieldError::new(FieldErrorKind::TypeInvalid, path, error.to_string())],
    }
}

/// Whether a definition, or what a run gives to one, is new. Whoever stops a run is not asked about the rest of it.
fn is_changed(object: &Value, old: Option<&Value>) -> bool {
    let Some(old) = old else { return true };
    let (new, old) = (&object["spec"], &old["spec"]);
    match object["kind"].as_str().unwrap_or_default() {
        "DAGRun" => ["dag", "dagSpec", "parameters"].iter().any(|field| new[field] != old[field]),
        _ => new != old,
    }
}

/// Runs that controllers make tell what is wrong in their status: a refusal would be seen by nobody.
fn is_made_by_controller(object: &Value) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let mut owners = owners.filter(|owner| owner["controller"] == true);
    owners.any(|owner| owner["apiVersion"].as_str().is_some_and(|of| of.starts_with(GROUP)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, spec: Value) -> Value {
        json!({"apiVersion": "workflow.freehold.dev/v1alpha1", "kind": kind, "metadata": {"name": "x", "namespace": "n"}, "spec": spec})
    }

    fn fields(object: &Value, old: Option<&Value>) -> Vec<String> {
        let dag = Arc::new(object_of_build());
        let find = move |_: &str, name: &str| (name == "build").then(|| dag.clone());
        let status = admit(object, old, &find).err().map(|status| status.to_json()).unwrap_or_default();
        let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
        causes.iter().filter_map(|cause| cause["field"].as_str().map(str::to_owned)).collect()
    }

    fn object_of_build() -> Value {
        object(
            "DAG",
            json!({"parameters": [{"name": "commit"}], "tasks": [{"name": "a", "image": "i", "args": ["$(params.commit)"]}]}),
        )
    }

    #[test]
    fn each_error_is_refused_at_its_path() {
        let task = |more: Value| {
            let mut task = json!({"name": "a", "image": "i"});
            task.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
            json!({"tasks": [task]})
        };
        for (kind, spec, path) in [
            ("DAG", task(json!({"runAfter": ["b"]})), "spec.tasks[0].runAfter[0]"),
            ("DAG", task(json!({"args": ["$(params.no)"]})), "spec.tasks[0].args"),
            (
                "DAG",
                json!({"schedule": "61 * * * *", "tasks": [{"name": "a", "image": "i"}]}),
                "spec.schedule",
            ),
            ("DAGTask", json!({"image": "i", "args": ["$(params.no)"]}), "spec.args"),
            ("ClusterDAGTask", json!({"description": "nothing to do"}), "spec"),
            ("DAGRun", json!({}), "spec.dag"),
            (
                "DAGRun",
                json!({"dag": "build", "parameters": [{"name": "no", "value": "x"}]}),
                "spec.parameters[0].name",
            ),
            ("DAGRun", json!({"dag": "build"}), "spec.parameters"),
            ("DAGRun", json!({"dag": "build", "dagSpec": task(json!({}))}), "spec.dagSpec"),
            (
                "DAGRun",
                json!({"dagSpec": task(json!({"runAfter": ["b"]}))}),
                "spec.dagSpec.tasks[0].runAfter[0]",
            ),
            ("DAGRun", json!({"dagSpec": task(json!({"imagee": "b"}))}), "spec.dagSpec.tasks[0].imagee"),
            ("DAGRun", json!({"dagSpec": task(json!({"image": 1}))}), "spec.dagSpec.tasks[0].image"),
        ] {
            let found = fields(&object(kind, spec.clone()), None);
            assert!(found.iter().any(|field| field == path), "{kind} {spec}: {path} is not among {found:?}");
        }
    }

    #[test]
    fn runs_of_later_dags_and_good_objects_pass() {
        for object in [
            object_of_build(),
            object("DAGRun", json!({"dag": "later", "parameters": [{"name": "any", "value": 1}]})),
            object("DAGRun", json!({"dag": "build", "parameters": [{"name": "commit", "value": "abc"}]})),
            object("DAGRun", json!({"dag": "", "dagSpec": {"tasks": [{"name": "a", "image": "i"}]}})),
        ] {
            assert_eq!(fields(&object, None), Vec::<String>::new(), "{object}");
        }
    }

    #[test]
    fn bad_objects_that_exist_can_be_stopped_and_labelled() {
        let old = object("DAGRun", json!({"dag": "build"}));
        let mut stopped = old.clone();
        stopped["spec"]["state"] = "Stopped".into();
        assert_eq!(fields(&stopped, Some(&old)), Vec::<String>::new());
        let old = object("DAG", json!({"tasks": []}));
        let mut labelled = old.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(fields(&labelled, Some(&old)), Vec::<String>::new());
        assert_ne!(fields(&old, None), Vec::<String>::new());
    }

    #[test]
    fn runs_of_controllers_say_what_is_wrong_in_their_status() {
        let mut run = object("DAGRun", json!({"dag": "build"}));
        run["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAG", "controller": true}]);
        assert_eq!(fields(&run, None), Vec::<String>::new());
        assert_eq!(referenced_dag(&run, None), None);
    }
}
