//! Property tests of applies.

use super::*;
use proptest::prelude::*;

fn container() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[A-C]", "[01]", 0..3);
    (env, prop::option::of("[xy]"), prop::collection::vec("[ab]", 0..3)).prop_map(|(env, image, command)| {
        let env: Vec<Value> =
            env.into_iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
        let mut container = json!({"command": command});
        if !env.is_empty() {
            container["env"] = json!(env);
        }
        if let Some(image) = image {
            container["image"] = json!(image);
        }
        container
    })
}

/// A Deployment without empty maps and associative lists, which leave nothing behind that could be removed.
fn config() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map("[a-c]", "[01]", 0..3);
    let containers = prop::collection::btree_map("[p-r]", container(), 0..3);
    (labels, containers, prop::option::of(0..3)).prop_map(|(labels, containers, replicas)| {
        let containers: Vec<Value> = containers
            .into_iter()
            .map(|(name, mut container)| {
                container["name"] = json!(name);
                container
            })
            .collect();
        let mut object = deployment(json!({"paused": true}));
        if !containers.is_empty() {
            object["spec"]["template"] = json!({"spec": {"containers": containers}});
        }
        if !labels.is_empty() {
            object["metadata"]["labels"] = json!(labels);
        }
        if let Some(replicas) = replicas {
            object["spec"]["replicas"] = json!(replicas);
        }
        object
    })
}

/// An object whose order says nothing: items of associative lists by their names, managers by theirs. Nor do times: who
/// changes nothing has none.
fn in_any_order(mut value: Value) -> Value {
    match &mut value {
        Value::Array(items) => {
            items.iter_mut().for_each(|item| *item = in_any_order(item.take()));
            if items.iter().all(Value::is_object) {
                items.sort_by_key(ToString::to_string);
            }
        }
        Value::Object(map) => {
            map.remove("time");
            map.values_mut().for_each(|field| *field = in_any_order(field.take()));
        }
        _ => {}
    }
    value
}

fn forced(manager: &str) -> Options<'_> {
    Options { force: true, ..by(manager) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_apply_done_twice_is_done_once(first in config(), second in config()) {
        let live = applied(None, &first, &by("a"));
        let live = applied(Some(&live), &second, &forced("b"));
        prop_assert_eq!(apply(Some(&live), &second, &by("b")), Ok(None));
    }

    #[test]
    fn a_single_manager_gets_exactly_what_it_applies(first in config(), second in config()) {
        let live = applied(None, &first, &by("a"));
        let live = applied(Some(&live), &second, &by("a"));
        let fresh = applied(None, &second, &by("a"));
        let shape = |object: &Value| set_of(object, Some(&DEPLOYMENT)).difference(never_owned()).leaves();
        prop_assert_eq!(shape(&without_managed_fields(&live)), shape(&without_managed_fields(&fresh)));
        prop_assert_eq!(owned(&live, "a"), owned(&fresh, "a"));
    }

    #[test]
    fn managers_of_different_fields_commute(labels in "[a-c]", image in "[xy]", env in container()) {
        let mut mine = deployment(json!({"replicas": 1}));
        mine["metadata"]["labels"] = json!({labels: "mine"});
        let mut env = env;
        env["image"] = json!(image);
        let theirs = with_container(env);
        let ab = applied(Some(&applied(None, &mine, &by("a"))), &theirs, &by("b"));
        let ba = applied(Some(&applied(None, &theirs, &by("b"))), &mine, &by("a"));
        prop_assert_eq!(ab, ba);
    }

    #[test]
    fn managers_without_a_conflict_commute(mine in config(), theirs in config()) {
        let both = |first: &Value, one: &str, second: &Value, other: &str| {
            let live = applied(None, first, &by(one));
            apply(Some(&live), second, &by(other)).map(|applied| applied.unwrap_or(live))
        };
        let (ab, ba) = (both(&mine, "a", &theirs, "b"), both(&theirs, "b", &mine, "a"));
        prop_assert_eq!(ab.is_ok(), ba.is_ok());
        if let (Ok(ab), Ok(ba)) = (ab, ba) {
            prop_assert_eq!(in_any_order(ab), in_any_order(ba));
        }
    }

    #[test]
    fn sets_survive_their_json(object in config()) {
        let set = set_of(&object, Some(&DEPLOYMENT));
        prop_assert_eq!(FieldSet::from_json(&set.to_json()), Ok(set));
    }

    #[test]
    fn a_comparison_is_empty_between_equal_objects_only(old in config(), new in config()) {
        let changes = compare(&old, &new, Some(&DEPLOYMENT));
        prop_assert!(compare(&old, &old, Some(&DEPLOYMENT)).is_empty());
        prop_assert_eq!(changes.is_empty(), old == new || {
            // the order of items of associative lists is no difference
            let back = compare(&new, &old, Some(&DEPLOYMENT));
            back.is_empty()
        });
    }
}
