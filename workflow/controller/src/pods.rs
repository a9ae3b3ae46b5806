//! The Pod of an attempt.

use crate::artifacts::{PodArtifacts, STORE};
use crate::script::{self, SCRIPT};
use freehold_machinery::{Map, Value};
use freehold_workflow_api::{PodTemplate, names, template};
use freehold_workflow_engine::{NodeId, Plan, Run, names::label, values};
use serde_json::json;

/// The name of a task's container.
pub const MAIN: &str = "main";
/// Annotation with the definition that a Pod's run had.
pub(crate) const REVISION: &str = "workflow.freehold.dev/revision";
/// Where the workspace is mounted.
const WORKSPACE: &str = "/workspace";

/// The volume with this program and what is on its way.
const ARTIFACTS: &str = "freehold-artifacts";
/// Where that volume is mounted.
const ARTIFACTS_PATH: &str = "/freehold-artifacts";
/// The key of the Secret, and the environment variable, with the places of artifacts.
pub(crate) const PLACES: &str = "FREEHOLD_ARTIFACTS";

/// What a Pod is made with, beside its run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Made<'a> {
    /// The definition of the run.
    pub(crate) revision: &'a str,
    /// The install whose controllers make it.
    pub(crate) instance: &'a str,
    /// What it needs for its artifacts.
    pub(crate) artifacts: Option<&'a PodArtifacts>,
    /// The image of this program, which brings them.
    pub(crate) image: &'a str,
}

/// The name of the claim that is a run's workspace.
pub(crate) fn claim(run: &Run, plan: &Plan) -> Option<String> {
    let workspace = plan.spec().workspace.as_ref()?;
    match workspace.claim_name.is_empty() {
        false => Some(workspace.claim_name.clone()),
        true => Some(freehold_workflow_engine::names::child_run(
            &run.info.name,
            &run.info.uid,
            "workspace",
            NodeId::task(0),
            0,
        )),
    }
}

/// Builds the Pod of an attempt.
///
/// # Errors
/// References to values that are not there.
pub(crate) fn pod(
    run: &Run,
    plan: &Plan,
    node: NodeId,
    attempt: u32,
    made: &Made<'_>,
) -> Result<Value, String> {
    let Made { revision, instance, artifacts, image } = *made;
    let (spec, task) = (plan.spec(), plan.task(node.task));
    let (mut labels, mut annotations, mut pod_spec) = (Map::new(), Map::new(), json!({}));
    for PodTemplate { labels: l, annotations: a, spec } in spec.pod.iter().chain(&task.task.template.pod) {
        labels.extend(l.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
        annotations.extend(a.iter().map(|(key, value)| (key.clone(), value.as_str().into())));
        merge(&mut pod_spec, spec);
    }
    let mut containers = containers(run, plan, node, &mut pod_spec)?;
    if let Some(artifacts) = artifacts {
        wrap(&mut containers[0], &mut pod_spec, artifacts, (image, &run.pod_name(plan, node, attempt)));
    }
    let fixed = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": spec.automount_service_account_token,
    });
    let defaults = json!({"enableServiceLinks": false});
    let mut built = defaults;
    merge(&mut built, &pod_spec);
    merge(&mut built, &fixed);
    if !spec.service_account_name.is_empty() {
        built["serviceAccountName"] = spec.service_account_name.as_str().into();
    }
    if let Some(claim) = claim(run, plan) {
        let volume = json!({"name": "workspace", "persistentVolumeClaim": {"claimName": claim}});
        push(&mut built, "volumes", volume);
    }
    values::expand(run, plan, node, attempt, &mut built)?;
    let (mut containers, mut labels, mut annotations) =
        (containers, Value::Object(labels), Value::Object(annotations));
    for document in [&mut labels, &mut annotations] {
        texts(document, &|text| values::expand_text(run, plan, node, attempt, text))?;
    }
    texts(&mut containers, &|text| values::expand_text(run, plan, node, attempt, text))?;
    built["containers"] = containers;
    for (key, value) in [
        (names::RUN_UID, run.info.uid.clone()),
        (names::RUN, label(&run.info.name)),
        (names::TASK, label(task.name())),
    ] {
        labels[key] = value.into();
    }
    for (key, value) in [(names::DAG, label(&run.info.dag)), (names::INSTANCE, instance.to_owned())] {
        if !value.is_empty() {
            labels[key] = value.into();
        }
    }
    annotations[names::NODE] = format!("{node}.{attempt}").into();
    if artifacts.is_some() {
        annotations[names::ARTIFACTS] = "true".into();
    }
    if !revision.is_empty() {
        annotations[REVISION] = revision.into();
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": run.pod_name(plan, node, attempt), "namespace": run.info.namespace,
            "labels": labels, "annotations": annotations, "finalizers": [names::COUNTED],
            "ownerReferences": [owner(run)],
        },
        "spec": built,
    }))
}

/// The run as owner of what it makes.
pub(crate) fn owner(run: &Run) -> Value {
    json!({
        "apiVersion": "workflow.freehold.dev/v1alpha1", "kind": "DAGRun", "name": run.info.name, "uid": run.info.uid,
        "controller": true, "blockOwnerDeletion": false,
    })
}

/// The containers of a Pod: the task's own, then sidecars that the template has.
fn containers(run: &Run, plan: &Plan, node: NodeId, pod_spec: &mut Value) -> Result<Value, String> {
    let of = &plan.task(node.task).task.template;
    let given = pod_spec.as_object_mut().and_then(|spec| spec.remove("containers")).unwrap_or_default();
    let (own, mut sidecars): (Vec<Value>, Vec<Value>) = given
        .as_array()
        .cloned()
        .unwrap_or_default()
        .into_iter()
        .partition(|container| container["name"] == MAIN);
    let mut main = own.into_iter().next().unwrap_or_else(|| json!({}));
    main["name"] = MAIN.into();
    main["image"] = of.image.as_str().into();
    let mut env = of.env.clone();
    if of.script.is_empty() {
        for (field, words) in [("command", &of.command), ("args", &of.args)] {
            if !words.is_empty() {
                main[field] = json!(words);
            }
        }
    } else {
        let (command, in_variable) = script::command(&of.command, &of.script);
        main["command"] = json!(command);
        if !of.args.is_empty() {
            main["args"] = json!(of.args);
        }
        if in_variable {
            env.push(json!({"name": SCRIPT, "value": of.script}));
        }
    }
    for variable in &mut env {
        take_source(run, plan, node, variable)?;
    }
    env.into_iter().for_each(|variable| push(&mut main, "env", variable));
    of.env_from.iter().for_each(|source| push(&mut main, "envFrom", source.clone()));
    of.volume_mounts.iter().for_each(|mount| push(&mut main, "volumeMounts", mount.clone()));
    if !of.resources.is_null() {
        main["resources"] = of.resources.clone();
    }
    if !of.working_dir.is_empty() {
        main["workingDir"] = of.working_dir.as_str().into();
    }
    if main["terminationMessagePolicy"].is_null() && of.outputs.is_empty() {
        // Of a task that fails without a word the end of its log says why.
        main["terminationMessagePolicy"] = "FallbackToLogsOnError".into();
    }
    if let Some(workspace) = &plan.spec().workspace {
        let path = if workspace.mount_path.is_empty() { WORKSPACE } else { &workspace.mount_path };
        push(&mut main, "volumeMounts", json!({"name": "workspace", "mountPath": path}));
    }
    sidecars.insert(0, main);
    Ok(Value::Array(sidecars))
}

/// Puts this program before the command of a task's container: it brings artifacts, runs the command and keeps what comes of it.
fn wrap(main: &mut Value, pod_spec: &mut Value, artifacts: &PodArtifacts, (image, secret): (&str, &str)) {
    let mut words: Vec<Value> =
        ["workflow", "artifact", "exec", "--folder", ARTIFACTS_PATH].map(Value::from).into();
    for (flag, paths) in [("--in", &artifacts.inputs), ("--out", &artifacts.outputs)] {
        words.extend(paths.iter().flat_map(|(name, path)| [flag.into(), format!("{name}={path}").into()]));
    }
    if artifacts.volume.is_some() {
        words.extend(["--store".into(), STORE.into()]);
    }
    words.push("--".into());
    for field in ["command", "args"] {
        words.extend(main[field].as_array().cloned().unwrap_or_default());
    }
    main["command"] = json!([format!("{ARTIFACTS_PATH}/freehold")]);
    main["args"] = words.into();
    let source = json!({"secretKeyRef": {"name": secret, "key": PLACES}});
    push(main, "env", json!({"name": PLACES, "valueFrom": source}));
    let mount = json!({"name": ARTIFACTS, "mountPath": ARTIFACTS_PATH});
    push(main, "volumeMounts", mount.clone());
    push(pod_spec, "volumes", json!({"name": ARTIFACTS, "emptyDir": {}}));
    if let Some(volume) = &artifacts.volume {
        let mut volume = volume.clone();
        volume["name"] = format!("{ARTIFACTS}-store").into();
        push(pod_spec, "volumes", volume);
        push(main, "volumeMounts", json!({"name": format!("{ARTIFACTS}-store"), "mountPath": STORE}));
    }
    let first = json!({
        "name": ARTIFACTS, "image": image, "volumeMounts": [mount],
        "args": ["workflow", "artifact", "install", ARTIFACTS_PATH],
    });
    match pod_spec["initContainers"].as_array_mut() {
        Some(others) => others.insert(0, first),
        None => pod_spec["initContainers"] = json!([first]),
    }
}

/// Turns a variable whose value is a secret parameter into one whose value comes from where the parameter's does.
fn take_source(run: &Run, plan: &Plan, node: NodeId, variable: &mut Value) -> Result<(), String> {
    let Some(text) = variable["value"].as_str() else { return Ok(()) };
    let Some(source) = template::only_reference(text).and_then(|path| values::source(run, plan, node, &path))
    else {
        return Ok(());
    };
    let source = match (source.secret_key_ref, source.config_map_key_ref) {
        (Some(secret), _) => json!({"secretKeyRef": {"name": secret.name, "key": secret.key}}),
        (_, Some(map)) => json!({"configMapKeyRef": {"name": map.name, "key": map.key}}),
        _ => return Err("a parameter has no source".into()),
    };
    if let Some(variable) = variable.as_object_mut() {
        variable.remove("value");
        variable.insert("valueFrom".into(), source);
    }
    Ok(())
}

/// Changes each text of a document: arguments and variables are texts, whatever values they refer to.
fn texts(document: &mut Value, change: &impl Fn(&str) -> Result<String, String>) -> Result<(), String> {
    match document {
        Value::String(text) if text.contains("$(") => *text = change(text)?,
        Value::Array(items) => items.iter_mut().try_for_each(|item| texts(item, change))?,
        Value::Object(fields) => fields.values_mut().try_for_each(|field| texts(field, change))?,
        _ => {}
    }
    Ok(())
}

/// Appends to a list that may not be there.
fn push(object: &mut Value, field: &str, item: Value) {
    match object[field].as_array_mut() {
        Some(items) => items.push(item),
        None => object[field] = json!([item]),
    }
}

/// Puts fields into an object, maps within each other, lists of one in the place of lists of the other.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (_, Value::Null) => {}
        (into, from) => *into = from.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_workflow_engine::Info;
    use serde_json::from_value;

    fn built(spec: Value) -> Value {
        let plan = Plan::compile(from_value(spec).unwrap()).unwrap();
        let secrets = plan
            .spec()
            .parameters
            .iter()
            .filter_map(|p| Some((p.name.clone(), p.value_from.clone()?)))
            .collect();
        let params = [("p".to_owned(), json!("x y"))].into();
        let info = Info {
            uid: "u".into(),
            name: "r".into(),
            namespace: "n".into(),
            dag: "d".into(),
            params,
            secrets,
            ..Info::default()
        };
        let mut run = Run::new(&plan, info);
        run.apply(&plan, &freehold_workflow_engine::Event::Start, 1);
        let made = Made { revision: "rev", ..Made::default() };
        pod(&run, &plan, NodeId::task(0), 2, &made).unwrap()
    }

    #[test]
    fn a_plain_task_is_one_container_without_a_token() {
        let pod = built(
            json!({"parameters": [{"name": "p"}], "tasks": [{"name": "a", "image": "i", "args": ["$(params.p)", "$(task.attempt)", "$(HOME)"]}]}),
        );
        let spec = &pod["spec"];
        assert_eq!(spec["containers"].as_array().unwrap().len(), 1);
        assert_eq!(spec["containers"][0]["args"], json!(["x y", "2", "$(HOME)"]));
        assert_eq!(
            (&spec["automountServiceAccountToken"], &spec["restartPolicy"]),
            (&json!(false), &json!("Never"))
        );
        assert!(spec.get("initContainers").is_none() && spec.get("serviceAccountName").is_none());
        assert_eq!(pod["metadata"]["finalizers"], json!([names::COUNTED]));
        assert_eq!(pod["metadata"]["annotations"][names::NODE], "0.-.2");
    }

    #[test]
    fn secrets_reach_environment_variables_as_references_alone() {
        let pod = built(json!({
            "parameters": [{"name": "s", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}}, {"name": "p"}],
            "pod": {"spec": {"nodeSelector": {"a": "b"}, "containers": [{"name": "proxy", "image": "x"}, {"name": "main", "securityContext": {"runAsUser": 1}}]}},
            "tasks": [{"name": "a", "image": "i", "env": [{"name": "T", "value": "$(params.s)"}, {"name": "P", "value": "is $(params.p)"}]}],
        }));
        let containers = &pod["spec"]["containers"];
        assert_eq!(
            containers[0]["env"][0],
            json!({"name": "T", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "token"}}})
        );
        assert_eq!(containers[0]["env"][1]["value"], "is x y");
        assert_eq!(
            (&containers[0]["securityContext"]["runAsUser"], &containers[1]["name"]),
            (&json!(1), &json!("proxy"))
        );
        assert_eq!(pod["spec"]["nodeSelector"]["a"], "b");
    }
}
