//! The pods that a Job makes.

use freehold_controllers_context::object::items;
use freehold_machinery::Value;

/// A pod to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct New {
    pub(super) index: Option<i64>,
    /// Failures of its index that count, and such that don't; `None` where indexes have no limits.
    pub(super) failures: Option<(i64, i64)>,
}

/// The pod that a Job makes.
pub(super) fn pod(job: &Value, new: New) -> Value {
    let mut pod = freehold_controllers_context::pods::new_pod(job, &job["spec"]["template"]);
    let metadata = &mut pod["metadata"];
    if !metadata["finalizers"].is_array() {
        metadata["finalizers"] = Value::Array(Vec::new());
    }
    if let Some(finalizers) = metadata["finalizers"].as_array_mut()
        && !finalizers.iter().any(|f| f == freehold_controllers_context::job_pod::TRACKING)
    {
        finalizers.push(freehold_controllers_context::job_pod::TRACKING.into());
    }
    let Some(index) = new.index else { return pod };
    let name = freehold_machinery::meta::name(job);
    metadata["generateName"] = generate_name(name, index).into();
    for map in ["labels", "annotations"] {
        metadata[map][freehold_controllers_context::job_pod::INDEX] = index.to_string().into();
    }
    if let Some((failures, ignored)) = new.failures {
        metadata["annotations"][freehold_controllers_context::job_pod::FAILURES] =
            failures.to_string().into();
        if ignored > 0 {
            metadata["annotations"][freehold_controllers_context::job_pod::IGNORED] =
                ignored.to_string().into();
        }
    }
    pod["spec"]["hostname"] = format!("{name}-{index}").into();
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            name_index(container);
        }
    }
    pod
}

/// Gives a container its index as `JOB_COMPLETION_INDEX`, unless it has a variable of that name.
fn name_index(container: &mut Value) {
    const VARIABLE: &str = "JOB_COMPLETION_INDEX";
    if items(container, "/env").iter().any(|v| v["name"] == VARIABLE) {
        return;
    }
    if !container["env"].is_array() {
        container["env"] = Value::Array(Vec::new());
    }
    let path = format!("metadata.labels['{}']", freehold_controllers_context::job_pod::INDEX);
    let variable = serde_json::json!({"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    if let Some(env) = container["env"].as_array_mut() {
        env.push(variable);
    }
}

/// `<job>-<index>-`, with so much of the Job's name as a generated name has room for.
fn generate_name(job: &str, index: i64) -> String {
    let end = format!("-{index}-");
    let room = 58_usize.saturating_sub(end.len());
    let job: String = job.chars().take(room).collect();
    job + &end
}
