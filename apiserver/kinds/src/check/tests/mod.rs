mod others;
mod pods;
mod updates;

use super::*;
use freehold_apiserver_catalog::builtin;
use freehold_machinery_patch as patch;
use serde_json::json;

/// The type that serves a resource.
fn type_of(group: &str, resource: &str) -> &'static ResourceType {
    let found = builtin().types().by_resource(group, resource);
    found.unwrap_or_else(|| panic!("{resource} is built in"))
}

/// What is wrong with an object when its defaults are filled in.
fn problems(group: &str, resource: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
    let ty = type_of(group, resource);
    let filled = |object: &Value| {
        let mut object = object.clone();
        crate::default(ty, &mut object);
        object
    };
    let (object, old) = (filled(object), old.map(filled));
    run(ty, None, &object, old.as_ref()).iter().map(ToString::to_string).collect()
}

/// Checks a good object with each patch laid over it.
fn check_all(group: &str, resource: &str, good: &Value, rows: &[(Value, &[&str])]) {
    assert_eq!(problems(group, resource, good, None), [""; 0], "the good {resource}");
    for (change, want) in rows {
        let object = patch::merge(good, change);
        assert_eq!(problems(group, resource, &object, None), *want, "{resource} with {change}");
    }
}

/// Checks updates of the good object to it with each patch laid over.
fn check_updates(group: &str, resource: &str, good: &Value, rows: &[(Value, &[&str])]) {
    assert_eq!(problems(group, resource, good, Some(good)), [""; 0], "the good {resource}");
    for (change, want) in rows {
        let object = patch::merge(good, change);
        assert_eq!(problems(group, resource, &object, Some(good)), *want, "{resource} with {change}");
    }
}

fn container() -> Value {
    json!({"name": "c", "image": "nginx"})
}

/// A container with more fields.
fn with(extra: Value) -> Value {
    json!({"spec": {"containers": [patch::merge(&container(), &extra)]}})
}

fn template() -> Value {
    json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container()]}})
}

fn workload() -> Value {
    json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template()}})
}
