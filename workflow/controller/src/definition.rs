//! The definition that a run has: found when it begins, kept as a ControllerRevision, which nobody changes.

use crate::kinds::{CONFIG_MAPS, DAGS, REVISIONS};
use crate::view::{DagView, RunView};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use freehold_client::{Client, Error};
use freehold_machinery::status::FieldError;
use freehold_machinery::{PlaneId, Value, meta};
use freehold_runtime::{Key, Store};
use freehold_workflow_api::{
    Argument, DAGRun, DagSpec, DagTaskSpec, Parameter, TaskRef, TaskRefKind, names, validate,
};
use freehold_workflow_engine::inline::inline;
use freehold_workflow_engine::{Info, Plan, names::digest};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Bytes of a definition beyond which it is kept compressed.
const PLAIN: usize = 64 << 10;
/// Bytes that a definition may have.
const MAX_BYTES: usize = 16 << 20;

/// Why a run has no definition.
#[derive(Debug)]
pub(crate) enum Problem {
    /// There is no such DAG, yet.
    Missing(String),
    /// It will not do.
    Invalid(String),
    /// The plane could not be asked.
    Failed(Error),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Definitions by plane and revision, shared by their runs, and shared tasks.
pub(crate) struct Definitions {
    pub(crate) dags: Store<DagView>,
    pub(crate) tasks: Store<Value>,
    pub(crate) cluster_tasks: Store<Value>,
    plans: Mutex<HashMap<(PlaneId, String, String), Weak<Plan>>>,
    /// The install whose DAGs these are.
    instance: String,
}

/// A definition with the name of its revision; empty for runs that bring their own.
pub(crate) type Found = (Arc<Plan>, String);

fn invalid(errors: &[FieldError]) -> Problem {
    let texts: Vec<String> =
        errors.iter().take(10).map(|error| format!("{}: {}", error.field, error.body())).collect();
    Problem::Invalid(texts.join("; "))
}

impl Definitions {
    pub(crate) fn new(
        instance: &str,
        dags: Store<DagView>,
        tasks: Store<Value>,
        cluster_tasks: Store<Value>,
    ) -> Self {
        Self { dags, tasks, cluster_tasks, plans: Mutex::default(), instance: instance.to_owned() }
    }

    /// Puts shared tasks in place and compiles.
    pub(crate) fn compile(&self, key: &Key, spec: &DagSpec) -> Result<Plan, Vec<FieldError>> {
        let find = |reference: &TaskRef| {
            let found = match reference.kind {
                TaskRefKind::DAGTask => {
                    self.tasks.get(&Key::new(key.plane.clone(), &key.namespace, &reference.name))
                }
                TaskRefKind::ClusterDAGTask => {
                    self.cluster_tasks.get(&Key::new(key.plane.clone(), "", &reference.name))
                }
            };
            serde_json::from_value::<DagTaskSpec>(found?["spec"].clone()).ok()
        };
        Plan::compile(inline(spec, &find)?)
    }

    /// The definition that a run begins with.
    pub(crate) async fn first(&self, client: &Client, key: &Key, run: &DAGRun) -> Result<Found, Problem> {
        if let Some(spec) = &run.spec.dag_spec {
            let plan = self.compile(key, spec).map_err(|errors| invalid(&errors))?;
            let revision = match spec.tasks.iter().chain(&spec.finally).any(|task| task.task_ref.is_some()) {
                true => self.keep(client, key, (run, None), &plan).await?,
                false => String::new(),
            };
            return Ok((Arc::new(plan), revision));
        }
        let name = &run.spec.dag;
        let Some(dag) = client.get_opt(&DAGS, key.ns(), name).await? else {
            return Err(Problem::Missing(format!("there is no DAG {name:?} in the namespace")));
        };
        if meta::label(&dag, names::INSTANCE).unwrap_or_default() != self.instance {
            return Err(Problem::Missing(format!(
                "DAG {name:?} belongs to another install ({})",
                names::INSTANCE
            )));
        }
        let spec: DagSpec = serde_json::from_value(dag["spec"].clone())
            .map_err(|error| Problem::Invalid(error.to_string()))?;
        let plan = self.compile(key, &spec).map_err(|errors| invalid(&errors))?;
        let revision = self.keep(client, key, (run, Some(&dag)), &plan).await?;
        Ok((self.shared(key, &revision, plan), revision))
    }

    /// The definition that a run had before.
    pub(crate) async fn again(
        &self,
        client: &Client,
        key: &Key,
        run: &DAGRun,
        revision: &str,
    ) -> Result<Found, Problem> {
        if revision.is_empty() {
            let spec = run.spec.dag_spec.as_deref().cloned().unwrap_or_default();
            let plan = self.compile(key, &spec).map_err(|errors| invalid(&errors))?;
            return Ok((Arc::new(plan), String::new()));
        }
        if let Some(plan) = self.known(key, revision) {
            return Ok((plan, revision.to_owned()));
        }
        let kept = client.get_opt(&REVISIONS, key.ns(), revision).await?;
        let kept =
            kept.ok_or_else(|| Problem::Invalid(format!("its definition {revision:?} was deleted")))?;
        let spec = unpack(&kept["data"]).map_err(Problem::Invalid)?;
        let plan = Plan::compile(spec).map_err(|errors| invalid(&errors))?;
        Ok((self.shared(key, revision, plan), revision.to_owned()))
    }

    fn known(&self, key: &Key, revision: &str) -> Option<Arc<Plan>> {
        let at = (key.plane.clone(), key.namespace.to_string(), revision.to_owned());
        self.plans.lock().get(&at).and_then(Weak::upgrade)
    }

    fn shared(&self, key: &Key, revision: &str, plan: Plan) -> Arc<Plan> {
        if let Some(known) = self.known(key, revision) {
            return known;
        }
        let plan = Arc::new(plan);
        let mut plans = self.plans.lock();
        if plans.len() > 1024 {
            plans.retain(|_, plan| plan.strong_count() > 0);
        }
        plans.insert(
            (key.plane.clone(), key.namespace.to_string(), revision.to_owned()),
            Arc::downgrade(&plan),
        );
        plan
    }

    /// Keeps a definition, once for all runs that have it.
    async fn keep(
        &self,
        client: &Client,
        key: &Key,
        (run, of): (&DAGRun, Option<&Value>),
        plan: &Plan,
    ) -> Result<String, Problem> {
        let text = serde_json::to_string(plan.spec()).map_err(|error| Problem::Invalid(error.to_string()))?;
        let dag = if run.spec.dag.is_empty() { &run.metadata.name } else { &run.spec.dag };
        let name = format!("{}-{}", dag.chars().take(200).collect::<String>(), digest(&[dag, &text]));
        if self.known(key, &name).is_some() {
            return Ok(name);
        }
        let data = match text.len() <= PLAIN {
            true => json!({"spec": plan.spec()}),
            false => {
                let packed =
                    zstd::bulk::compress(text.as_bytes(), 3).map_err(|e| Problem::Invalid(e.to_string()))?;
                json!({"zstd": BASE64.encode(packed)})
            }
        };
        let mut revision = json!({
            "apiVersion": "apps/v1", "kind": "ControllerRevision",
            "metadata": {"name": name, "namespace": &*key.namespace, "labels": {names::DAG: freehold_workflow_engine::names::label(dag)}},
            "data": data, "revision": 1,
        });
        if let Some(of) = of {
            revision["metadata"]["ownerReferences"] = json!([{
                "apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAG", "name": meta::name(of), "uid": meta::uid(of),
            }]);
        }
        match client.create(&REVISIONS, &revision).await {
            Ok(_) => Ok(name),
            Err(error) if error.is_already_exists() => Ok(name),
            Err(error) if matches!(error.code(), 400 | 413 | 422) => Err(Problem::Invalid(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }
}

fn unpack(data: &Value) -> Result<DagSpec, String> {
    if let Some(packed) = data["zstd"].as_str() {
        let packed = BASE64.decode(packed).map_err(|e| e.to_string())?;
        let text = zstd::bulk::decompress(&packed, MAX_BYTES).map_err(|e| e.to_string())?;
        return serde_json::from_slice(&text).map_err(|e| e.to_string());
    }
    serde_json::from_value(data["spec"].clone()).map_err(|e| e.to_string())
}

/// What a run is, and was given: values of its parameters, which may come from ConfigMaps.
pub(crate) async fn info(client: &Client, key: &Key, run: &DAGRun, plan: &Plan) -> Result<Info, Problem> {
    let errors = validate::run(&run.spec, Some(plan.spec()));
    if !errors.is_empty() {
        return Err(invalid(&errors));
    }
    let mut info = bare(run);
    let given: HashMap<&str, &Argument> = run.spec.parameters.iter().map(|a| (a.name.as_str(), a)).collect();
    for parameter in &plan.spec().parameters {
        let argument = given.get(parameter.name.as_str());
        let source = argument.map_or(parameter.value_from.as_ref(), |argument| argument.value_from.as_ref());
        let value = argument.map_or(parameter.default.as_ref(), |argument| argument.value.as_ref());
        if let Some(value) = value {
            info.params.insert(parameter.name.clone(), value.clone());
        } else if let Some(map) = source.and_then(|source| source.config_map_key_ref.as_ref()) {
            let found = client.get_opt(&CONFIG_MAPS, key.ns(), &map.name).await?;
            let text = found.as_ref().and_then(|found| found["data"][&map.key].as_str());
            let text = text.ok_or_else(|| {
                Problem::Missing(format!("ConfigMap {:?} has no key {:?}", map.name, map.key))
            })?;
            info.params.insert(parameter.name.clone(), read(parameter, text).map_err(Problem::Invalid)?);
        } else if let Some(source) = source {
            info.secrets.insert(parameter.name.clone(), source.clone());
        }
    }
    Ok(info)
}

/// A text as a parameter's type has it.
fn read(parameter: &Parameter, text: &str) -> Result<Value, String> {
    let text_value = Value::String(text.to_owned());
    let value = match validate::value_fits(parameter, &text_value) {
        Ok(()) => text_value,
        Err(_) => serde_json::from_str(text).unwrap_or(text_value),
    };
    validate::value_fits(parameter, &value).map_err(|why| format!("parameter {:?} {why}", parameter.name))?;
    Ok(value)
}

/// What a run is, without what it was given.
pub(crate) fn bare(run: &DAGRun) -> Info {
    let meta = &run.metadata;
    Info {
        uid: meta.uid.clone(),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        dag: run.spec.dag.clone(),
        scheduled_at: meta.annotations.get(names::TICK).cloned().unwrap_or_default(),
        priority: run.spec.priority,
        ..Info::default()
    }
}

/// Secret parameters of a run whose other values its state has.
pub(crate) fn secrets(run: &DAGRun, plan: &Plan, info: &mut Info) {
    for parameter in &plan.spec().parameters {
        let argument = run.spec.parameters.iter().find(|argument| argument.name == parameter.name);
        let (value, source) = match argument {
            Some(argument) => (&argument.value, &argument.value_from),
            None => (&parameter.default, &parameter.value_from),
        };
        if let (None, Some(source)) = (value, source)
            && source.config_map_key_ref.is_none()
        {
            info.secrets.insert(parameter.name.clone(), source.clone());
        }
    }
}

/// The run as a typed object.
pub(crate) fn typed(view: &RunView) -> Option<Result<DAGRun, serde_json::Error>> {
    view.object.as_ref().map(|object| serde_json::from_value(object.clone()))
}
