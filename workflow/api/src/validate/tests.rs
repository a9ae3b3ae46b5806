use super::*;
use crate::task::Task;
use serde_json::{from_value, json};

fn errors(spec: Value) -> Vec<String> {
    dag(&from_value(spec).unwrap()).iter().map(|e| format!("{}: {}", e.field, e.body())).collect()
}

fn task_errors(task: Value) -> Vec<String> {
    let mut task = task;
    task["name"] = "t".into();
    errors(
        json!({"parameters": [{"name": "p"}], "tasks": [{"name": "a", "image": "i", "outputs": [{"name": "o"}]}, task]}),
    )
}

#[test]
fn a_minimal_dag_is_valid() {
    let tasks = json!([
        {"name": "a", "image": "busybox", "command": ["true"], "args": ["x"]},
        {"name": "b", "image": "busybox", "runAfter": ["a"]},
        {"name": "independent", "script": "exit 0", "image": "busybox"},
    ]);
    assert_eq!(errors(json!({"tasks": tasks})), Vec::<String>::new());
}

#[test]
fn each_static_error_is_found_at_its_path() {
    for (task, path) in [
        (json!({}), "spec.tasks[1]"),
        (json!({"image": "i", "wait": {"duration": "1s"}}), "spec.tasks[1]"),
        (json!({"script": "x"}), "spec.tasks[1].image"),
        (json!({"image": "i", "runAfter": ["gone"]}), "spec.tasks[1].runAfter[0]"),
        (json!({"image": "i", "runAfter": ["t"]}), "spec.tasks[1].runAfter"),
        (json!({"image": "i", "depends": "a &&"}), "spec.tasks[1].depends"),
        (json!({"image": "i", "depends": "gone"}), "spec.tasks[1].depends"),
        (json!({"image": "i", "depends": "a", "runAfter": ["a"]}), "spec.tasks[1].depends"),
        (json!({"image": "i", "when": "params.p =="}), "spec.tasks[1].when"),
        (json!({"image": "i", "when": "tasks.gone.phase == 'Failed'"}), "spec.tasks[1].when"),
        (json!({"image": "i", "args": ["$(params.q)"]}), "spec.tasks[1].args"),
        (json!({"image": "i", "args": ["$(tasks.a.outputs.none)"]}), "spec.tasks[1].args"),
        (json!({"image": "i", "args": ["$(tasks.t.phase)"]}), "spec.tasks[1].args"),
        (json!({"image": "i", "args": ["$(item)"]}), "spec.tasks[1].args"),
        (json!({"image": "i", "timeout": "soon"}), "spec.tasks[1].timeout"),
        (json!({"image": "i", "forEach": {}}), "spec.tasks[1].forEach"),
        (json!({"image": "i", "forEach": {"range": {"count": 100_001}}}), "spec.tasks[1].forEach"),
        (
            json!({"image": "i", "retry": {"backoff": {"duration": "x"}}}),
            "spec.tasks[1].retry.backoff.duration",
        ),
        (
            json!({"image": "i", "semaphores": [{"name": "s", "limit": 0}]}),
            "spec.tasks[1].semaphores[0].limit",
        ),
        (
            json!({"image": "i", "pod": {"spec": {"restartPolicy": "Always"}}}),
            "spec.tasks[1].pod.spec.restartPolicy",
        ),
        (
            json!({"resource": {"action": "get", "manifest": {"apiVersion": "v1", "kind": "Pod"}}}),
            "spec.tasks[1].resource.manifest.metadata.name",
        ),
        (json!({"http": {"url": "ftp://x"}}), "spec.tasks[1].http.url"),
        (json!({"wait": {"duration": "1s", "until": "2026-01-01T00:00:00Z"}}), "spec.tasks[1].wait"),
        (json!({"image": "i", "outputs": [{"name": "x"}, {"name": "x"}]}), "spec.tasks[1].outputs[1].name"),
    ] {
        let errors = task_errors(task.clone());
        assert!(errors.iter().any(|error| error.starts_with(&format!("{path}:"))), "{task}: {errors:?}");
    }
    for (spec, path) in [
        (json!({"schedule": "61 * * * *"}), "spec.schedule"),
        (json!({"schedules": ["@daily", "x"]}), "spec.schedules[1]"),
        (json!({"timeZone": "Mars/Base"}), "spec.timeZone"),
        (json!({"tasks": []}), "spec.tasks"),
        (json!({"parameters": [{"name": "a"}, {"name": "a"}]}), "spec.parameters[1].name"),
        (
            json!({"parameters": [{"name": "a", "type": "number", "default": "x"}]}),
            "spec.parameters[0].default",
        ),
        (json!({"finally": [{"name": "f", "image": "i", "runAfter": ["t"]}]}), "spec.finally[0].runAfter"),
        (json!({"workspace": {}}), "spec.workspace"),
    ] {
        let errors = errors(spec.clone());
        assert!(errors.iter().any(|error| error.starts_with(&format!("{path}:"))), "{spec}: {errors:?}");
    }
}

#[test]
fn a_cycle_is_named() {
    let task = |name: &str, after: &str| json!({"name": name, "image": "i", "runAfter": [after]});
    let found = errors(json!({"tasks": [task("a", "c"), task("b", "a"), task("c", "b")]}));
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("tasks wait for each other") && found[0].contains("a -> "), "{found:?}");
}

#[test]
fn the_time_of_a_check_grows_with_the_number_of_tasks_and_not_its_square() {
    let (few, many) = (quickest_check(1_000), quickest_check(10_000));
    assert!(many < few * 40, "{few:?} for 1,000, {many:?} for 10,000");
}

/// The shortest of five checks of so many tasks.
fn quickest_check(tasks: u32) -> std::time::Duration {
    let tasks: Vec<Task> = (0..tasks)
        .map(|n: u32| {
            let after: Vec<String> =
                (1..=3).filter_map(|d| n.checked_sub(d * 7)).map(|m| format!("t{m}")).collect();
            from_value(json!({
                "name": format!("t{n}"), "image": "busybox", "command": ["sh", "-c", "echo $(params.p)"],
                "runAfter": after, "when": "params.p != ''",
            }))
            .unwrap()
        })
        .collect();
    let mut spec: DagSpec = from_value(json!({"parameters": [{"name": "p"}]})).unwrap();
    spec.tasks = tasks;
    let check = |_| {
        let begun = std::time::Instant::now();
        assert!(dag(&spec).is_empty());
        begun.elapsed()
    };
    (0..5).map(check).min().unwrap_or_default()
}

#[test]
fn a_run_gives_what_its_dag_wants() {
    let spec: DagSpec = from_value(json!({"parameters": [
        {"name": "a"}, {"name": "n", "type": "integer", "default": 1, "enum": [1, 2]},
    ]}))
    .unwrap();
    let found = |given: Value| {
        let errors = run(&from_value(json!({"dag": "d", "parameters": given})).unwrap(), Some(&spec));
        errors.iter().map(|error| error.field.clone()).collect::<Vec<_>>()
    };
    assert!(found(json!([{"name": "a", "value": "x"}])).is_empty());
    assert_eq!(found(json!([])), ["spec.parameters"]);
    assert_eq!(
        found(json!([{"name": "a", "value": "x"}, {"name": "n", "value": 3}])),
        ["spec.parameters[1].value"]
    );
    assert_eq!(
        found(json!([{"name": "a", "value": "x"}, {"name": "z", "value": 3}])),
        ["spec.parameters[1].name"]
    );
    assert_eq!(found(json!([{"name": "a"}])), ["spec.parameters[0]"]);
}
