//! How managed fields follow writes of all kinds.

use super::*;

fn managers(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().filter_map(|entry| entry["manager"].as_str()).collect()
}

#[test]
fn a_create_owns_all_but_what_the_server_sets() {
    let mut object = deployment(json!({"replicas": 1}));
    object["metadata"]["uid"] = json!("u");
    object["metadata"]["labels"] = json!({"a": "b"});
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    let live = updated(None, object, &by("kubectl-create"));
    let fields =
        json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {".": {}, "f:replicas": {}}});
    assert_eq!(owned(&live, "kubectl-create"), fields);
    assert_eq!(entry(&live, "kubectl-create").unwrap()["operation"], "Update");
}

#[test]
fn an_update_takes_what_it_changes_and_drops_what_it_removes() {
    let live = applied(
        None,
        &deployment(json!({"replicas": 1, "paused": true, "strategy": {"type": "x"}})),
        &by("me"),
    );
    let later = Options { now: "2026-02-01T00:00:00Z", ..by("editor") };
    let mut edited = live.clone();
    edited["spec"] = json!({"replicas": 2, "paused": true});
    let live = updated(Some(&live), edited, &later);
    assert_eq!(owned(&live, "me"), json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(owned(&live, "editor"), json!({"f:spec": {"f:replicas": {}}}));
    assert_eq!(entry(&live, "me").unwrap()["time"], "2026-01-01T00:00:00Z");
    assert_eq!(entry(&live, "editor").unwrap()["time"], "2026-02-01T00:00:00Z");

    let mut emptied = live.clone();
    emptied["spec"] = json!({"replicas": 3});
    let live = updated(Some(&live), emptied, &later);
    assert_eq!(managers(&live), ["editor"]);
}

#[test]
fn a_map_that_another_applied_empty_stays_theirs_when_its_last_key_goes() {
    let labelled = |labels: Value| {
        let mut object = deployment(json!({"replicas": 1}));
        object["metadata"]["labels"] = labels;
        object
    };
    let live = applied(None, &labelled(json!({"a": "1"})), &by("me"));
    let live = applied(Some(&live), &labelled(json!({})), &by("them"));
    let live = applied(Some(&live), &deployment(json!({"replicas": 1})), &by("me"));
    assert_eq!(live["metadata"].get("labels"), None);
    assert_eq!(owned(&live, "them")["f:metadata"], json!({"f:labels": {}}));
}

#[test]
fn an_update_without_a_change_keeps_times() {
    let live = updated(None, deployment(json!({"replicas": 1})), &by("me"));
    let later = Options { now: "2027-01-01T00:00:00Z", ..by("me") };
    for managed in [live["metadata"]["managedFields"].clone(), Value::Null, json!("junk")] {
        let mut same = live.clone();
        same["metadata"]["managedFields"] = managed;
        same["metadata"]["resourceVersion"] = json!("7");
        let after = updated(Some(&live), same, &later);
        assert_eq!(after["metadata"]["managedFields"], live["metadata"]["managedFields"]);
    }
}

#[test]
fn versions_subresources_and_operations_are_separate_entries() {
    let mut live = updated(None, deployment(json!({"replicas": 1})), &by("me"));
    let writers = [
        Options { api_version: "apps/v1beta1", ..by("me") },
        Options { subresource: "scale", ..by("me") },
        by("me"),
    ];
    for (replicas, options) in (2..).zip(&writers) {
        let mut next = live.clone();
        next["spec"]["replicas"] = json!(replicas);
        live = updated(Some(&live), next, options);
        let holders: Vec<_> = live["metadata"]["managedFields"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["fieldsV1"]["f:spec"].get("f:replicas").is_some())
            .map(|entry| (entry["apiVersion"].as_str().unwrap(), entry["subresource"].as_str().unwrap_or("")))
            .collect();
        assert_eq!(holders, [(options.api_version, options.subresource)]);
    }
    let applied = applied(Some(&live), &deployment(json!({"replicas": 4})), &by("me"));
    assert_eq!(applied["metadata"]["managedFields"][0]["operation"], "Apply");
}

#[test]
fn a_client_can_reset_replace_or_leave_managed_fields() {
    let live = applied(None, &deployment(json!({"replicas": 1})), &by("me"));
    let given = |managed: Value, replicas: u32, options: &Options<'_>| {
        let mut next = live.clone();
        next["spec"]["replicas"] = json!(replicas);
        next["metadata"]["managedFields"] = managed;
        updated(Some(&live), next, options)
    };
    for reset in [json!([]), json!([{}])] {
        let object = given(reset.clone(), 1, &by("you"));
        assert_eq!(object["metadata"].get("managedFields"), None, "{reset}");
        let again = updated(Some(&object), deployment(json!({"replicas": 5})), &by("you"));
        assert_eq!(again["metadata"].get("managedFields"), None, "untracked until it is applied");
        let status = Options { subresource: "status", ..by("you") };
        assert_eq!(managers(&given(reset, 1, &status)), ["me"]);
    }
    let mine = json!([{"manager": "other", "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
    assert_eq!(managers(&given(mine.clone(), 1, &by("you"))), ["other"]);
    assert_eq!(managers(&given(mine, 2, &by("you"))), ["you"]);
    let invalid = json!([{"manager": "other", "operation": "Steal", "apiVersion": "apps/v1", "fieldsType": "FieldsV1"}]);
    assert_eq!(managers(&given(invalid, 1, &by("you"))), ["me"]);
}

#[test]
fn the_eleventh_updater_merges_the_oldest_two() {
    let labelled = |count: usize| {
        let mut object = deployment(json!({"replicas": 1}));
        object["metadata"]["labels"] = (0..count).map(|i| (format!("l{i}"), json!("x"))).collect();
        object
    };
    let names: Vec<String> = (0..12).map(|i| format!("m{i:02}")).collect();
    let times: Vec<String> = (0..12).map(|i| format!("2026-01-01T00:00:{i:02}Z")).collect();
    let mut live = updated(None, labelled(1), &Options { now: &times[0], ..by(&names[0]) });
    for i in 1..12 {
        let options = Options { now: &times[i], ..by(&names[i]) };
        live = updated(Some(&live), labelled(i + 1), &options);
    }
    let found = managers(&live);
    assert_eq!(found.len(), MAX_UPDATE_MANAGERS);
    assert_eq!(&found[..2], ["ancient-changes", "m03"]);
    let labels = json!({".": {}, "f:l0": {}, "f:l1": {}, "f:l2": {}});
    assert_eq!(owned(&live, "ancient-changes")["f:metadata"]["f:labels"], labels);
    assert_eq!(entry(&live, "ancient-changes").unwrap()["time"], times[2]);
}

#[test]
fn entries_come_in_kubernetes_order() {
    let live = updated(None, deployment(json!({"replicas": 1})), &by("zz"));
    let early = Options { now: "2025-01-01T00:00:00Z", ..by("late-name") };
    let live = applied(Some(&live), &with_container(json!({"image": "a"})), &by("b"));
    let live = applied(Some(&live), &with_container(json!({"image": "a", "command": ["x"]})), &early);
    let mut next = live.clone();
    next["spec"]["paused"] = json!(true);
    let live = updated(Some(&live), next, &by("aa"));
    assert_eq!(managers(&live), ["late-name", "b", "aa", "zz"]);
}

#[test]
fn an_untracked_object_is_adopted_before_its_first_apply() {
    let live = deployment(json!({"replicas": 1}));
    let object = applied(Some(&live), &deployment(json!({"paused": true})), &by("me"));
    assert_eq!(owned(&object, "before-first-apply"), json!({"f:spec": {".": {}, "f:replicas": {}}}));
    assert_eq!(apply(Some(&live), &deployment(json!({"replicas": 2})), &by("me")).unwrap_err().code, 409);
}

#[test]
fn client_side_apply_moves_to_server_side_without_conflicts() {
    const LAST: &str = "kubectl.kubernetes.io/last-applied-configuration";
    let mut object = deployment(json!({"replicas": 1}));
    object["metadata"]["annotations"] = json!({LAST: deployment(json!({"replicas": 1})).to_string()});
    let live = updated(None, object, &by("kubectl-client-side-apply"));
    let config = deployment(json!({"replicas": 2}));
    assert_eq!(apply(Some(&live), &config, &by("someone")).unwrap_err().code, 409);
    let after = applied(Some(&live), &config, &by("kubectl"));
    assert_eq!(after["spec"]["replicas"], 2);
    let annotation = after["metadata"]["annotations"][LAST].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(annotation).unwrap(), config);
    assert!(annotation.ends_with("}\n") && annotation.starts_with("{\"apiVersion\""), "{annotation}");

    let mut edited = live.clone();
    edited["spec"]["replicas"] = json!(7);
    let edited = updated(Some(&live), edited, &by("editor"));
    let refused = apply(Some(&edited), &config, &by("kubectl")).unwrap_err();
    assert!(refused.message.contains("conflict with \"editor\" using apps/v1: .spec.replicas"), "{refused}");
}

#[test]
fn a_set_follows_a_field_that_became_atomic() {
    let granular = json!({"f:spec": {"f:selector": {"f:matchLabels": {".": {}, "f:a": {}}}}});
    let mut live = deployment(json!({"selector": {"matchLabels": {"a": "b"}}}));
    live["metadata"]["managedFields"] = json!([{"manager": "old", "operation": "Apply", "apiVersion": "apps/v1",
        "fieldsType": "FieldsV1", "fieldsV1": granular}]);
    let config = deployment(json!({"selector": {"matchLabels": {"a": "c"}}}));
    let refused = apply(Some(&live), &config, &by("me")).unwrap_err();
    assert_eq!(refused.message, "Apply failed with 1 conflict: conflict with \"old\": .spec.selector");
}
