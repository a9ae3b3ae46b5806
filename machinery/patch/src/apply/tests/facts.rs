//! Tests of applies: the resulting objects, and refusals.

use super::*;

#[test]
fn a_first_apply_creates_and_owns() {
    let created = applied(None, &deployment(json!({"replicas": 2})), &by("me"));
    assert_eq!(created["spec"]["replicas"], 2);
    let expected = json!([{"manager": "me", "operation": "Apply", "apiVersion": "apps/v1",
        "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]);
    assert_eq!(created["metadata"]["managedFields"], expected);
}

#[test]
fn an_apply_merges_lists_by_their_type() {
    let container = |fields: Value| with_container(fields);
    let rows = [
        // containers, ports and env by key, in the order of the object where the configuration allows
        (
            container(json!({"image": "a", "ports": [{"containerPort": 80, "protocol": "TCP"}]})),
            container(
                json!({"ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 80, "protocol": "UDP"}]}),
            ),
            container(json!({"image": "a", "ports": [
                {"containerPort": 80, "protocol": "TCP", "name": "http"}, {"containerPort": 80, "protocol": "UDP"}]})),
        ),
        (
            container(json!({"env": [{"name": "A"}, {"name": "B"}, {"name": "C"}]})),
            container(json!({"env": [{"name": "C", "value": "3"}, {"name": "A"}]})),
            container(json!({"env": [{"name": "B"}, {"name": "C", "value": "3"}, {"name": "A"}]})),
        ),
        (
            container(json!({"env": [{"name": "A"}, {"name": "B"}]})),
            container(json!({"env": [{"name": "X"}, {"name": "B"}, {"name": "Y"}]})),
            container(json!({"env": [{"name": "A"}, {"name": "X"}, {"name": "B"}, {"name": "Y"}]})),
        ),
        (
            container(json!({"command": ["a", "b"]})),
            container(json!({"command": ["c"]})),
            container(json!({"command": ["c"]})),
        ),
        // tolerations, selectors and node selectors are one value
        (
            deployment(
                json!({"template": {"spec": {"tolerations": [{"key": "a"}], "nodeSelector": {"a": "b"}}}}),
            ),
            deployment(
                json!({"template": {"spec": {"tolerations": [{"key": "b"}], "nodeSelector": {"c": "d"}}}}),
            ),
            deployment(
                json!({"template": {"spec": {"tolerations": [{"key": "b"}], "nodeSelector": {"c": "d"}}}}),
            ),
        ),
        // finalizers are a set, labels a map
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"finalizers": ["a", "b"], "labels": {"a": "1"}}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"finalizers": ["b", "c"], "labels": {"b": "1"}}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment",
                "metadata": {"finalizers": ["a", "b", "c"], "labels": {"a": "1", "b": "1"}}}),
        ),
    ];
    for (live, config, expected) in rows {
        assert_eq!(merge(&live, &config, Some(&DEPLOYMENT)), Ok(expected), "{live} + {config}");
    }
    let merged =
        merge(&thing(json!({"m": {"a": 1}, "l": [1, 2]})), &thing(json!({"m": {"b": 2}, "l": [3]})), None);
    assert_eq!(merged, Ok(thing(json!({"m": {"a": 1, "b": 2}, "l": [3]}))));
}

#[test]
fn what_a_manager_no_longer_applies_goes_unless_others_own_it() {
    let first = with_container(
        json!({"image": "a", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]}),
    );
    let live = applied(None, &first, &by("me"));
    let theirs = with_container(json!({"env": [{"name": "B", "value": "1"}]}));
    let live = applied(Some(&live), &theirs, &by("them"));
    let live = applied(Some(&live), &with_container(json!({"image": "a"})), &by("me"));
    assert_eq!(
        live["spec"],
        with_container(json!({"image": "a", "env": [{"name": "B", "value": "1"}]}))["spec"]
    );
    let live = applied(Some(&live), &with_container(json!({})), &by("them"));
    assert_eq!(live["spec"], with_container(json!({"image": "a"}))["spec"]);
}

#[test]
fn removal_takes_a_struct_with_the_defaults_in_it_but_not_what_nobody_applied() {
    let live =
        applied(None, &deployment(json!({"replicas": 1, "strategy": {"type": "Recreate"}})), &by("me"));
    let mut defaulted = live.clone();
    defaulted["spec"]["strategy"]["extra"] = json!("default");
    defaulted["spec"]["paused"] = json!(false);
    let live = applied(Some(&defaulted), &deployment(json!({"replicas": 1})), &by("me"));
    assert_eq!(live["spec"], json!({"replicas": 1, "paused": false}));
}

#[test]
fn labels_and_finalizers_are_removed_one_by_one() {
    let meta = |labels: Value, finalizers: Value| {
        json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": labels, "finalizers": finalizers}})
    };
    let live = applied(None, &meta(json!({"a": "1", "b": "1"}), json!(["x", "y"])), &by("me"));
    let mut edited = live.clone();
    edited["metadata"]["labels"]["c"] = json!("1");
    let live = updated(Some(&live), edited, &by("editor"));
    let live = applied(Some(&live), &meta(json!({"b": "1"}), json!(["y"])), &by("me"));
    assert_eq!(live["metadata"]["labels"], json!({"b": "1", "c": "1"}));
    assert_eq!(live["metadata"]["finalizers"], json!(["y"]));
    let bare = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    let live = applied(Some(&live), &bare, &by("me"));
    assert_eq!(
        (&live["metadata"]["labels"], &live["metadata"]["finalizers"]),
        (&json!({"c": "1"}), &Value::Null)
    );
    assert_eq!(live["metadata"]["name"], "web");
}

#[test]
fn a_custom_object_without_a_schema_is_pruned_too() {
    let live = applied(None, &thing(json!({"a": {"x": 1, "y": 2}, "b": [1]})), &untyped("me"));
    let live = applied(Some(&live), &thing(json!({"a": {"x": 1}})), &untyped("me"));
    assert_eq!(live["spec"], json!({"a": {"x": 1}}));
}

#[test]
fn a_change_of_anothers_field_is_a_conflict() {
    let live = updated(None, deployment(json!({"replicas": 1, "paused": false})), &by("kubectl-create"));
    let live = applied(Some(&live), &with_container(json!({"image": "a"})), &by("images"));
    let one = apply(Some(&live), &deployment(json!({"replicas": 2})), &by("me")).unwrap_err();
    assert_eq!((one.code, one.reason.as_str()), (409, "Conflict"));
    assert_eq!(
        one.message,
        "Apply failed with 1 conflict: conflict with \"kubectl-create\" using apps/v1: .spec.replicas"
    );
    let causes = &one.details.as_ref().unwrap().causes;
    assert_eq!(causes.len(), 1);
    assert_eq!(
        (causes[0].reason.as_str(), causes[0].field.as_str()),
        ("FieldManagerConflict", ".spec.replicas")
    );
    assert_eq!(causes[0].message, "conflict with \"kubectl-create\" using apps/v1");

    let mut config = with_container(json!({"image": "b"}));
    config["spec"]["replicas"] = json!(2);
    config["spec"]["paused"] = json!(true);
    let many = apply(Some(&live), &config, &by("me")).unwrap_err();
    let expected = "Apply failed with 3 conflicts: conflicts with \"images\":\n\
        - .spec.template.spec.containers[name=\"c\"].image\n\
        conflicts with \"kubectl-create\" using apps/v1:\n- .spec.paused\n- .spec.replicas";
    assert_eq!(many.message, expected);
}

#[test]
fn force_takes_fields_and_equal_values_are_shared() {
    let live = applied(None, &deployment(json!({"replicas": 1, "paused": true})), &by("them"));
    let shared = applied(Some(&live), &deployment(json!({"replicas": 1})), &by("me"));
    assert_eq!(owned(&shared, "them"), json!({"f:spec": {"f:paused": {}, "f:replicas": {}}}));
    assert_eq!(owned(&shared, "me"), json!({"f:spec": {"f:replicas": {}}}));
    let forced =
        applied(Some(&live), &deployment(json!({"replicas": 2})), &Options { force: true, ..by("me") });
    assert_eq!(owned(&forced, "them"), json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(forced["spec"], json!({"replicas": 2, "paused": true}));
}

#[test]
fn an_apply_that_changes_nothing_gives_nothing() {
    let config = deployment(json!({"replicas": 1}));
    let live = applied(None, &config, &by("me"));
    let later = Options { now: "2027-01-01T00:00:00Z", ..by("me") };
    assert_eq!(apply(Some(&live), &config, &later), Ok(None));
    let changed = applied(Some(&live), &deployment(json!({"replicas": 2})), &later);
    assert_eq!(entry(&changed, "me").unwrap()["time"], "2027-01-01T00:00:00Z");
}

#[test]
fn what_cannot_be_applied_gets_kubernetes_codes_and_texts() {
    let mut managed = deployment(json!({}));
    managed["metadata"]["managedFields"] = json!([]);
    let typed = "failed to create typed patch object (ns/web; apps/v1, Kind=Deployment): ";
    let rows = [
        (managed, 400, "metadata.managedFields must be nil".to_owned()),
        (thing(json!({})), 400, "invalid object type: example.com/v1, Kind=Thing".to_owned()),
        (
            deployment(json!({"replica": 1})),
            500,
            format!("{typed}.spec.replica: field not declared in schema"),
        ),
        (
            deployment(json!({"replicas": "1"})),
            500,
            format!("{typed}.spec.replicas: expected numeric (int or float), got string"),
        ),
        (
            deployment(json!({"replicas": "1", "paused": "no"})),
            500,
            format!(
                "{typed}errors:\n  .spec.paused: expected boolean, got &{{no}}\n  \
                .spec.replicas: expected numeric (int or float), got string"
            ),
        ),
        (
            deployment(json!({"strategy": []})),
            500,
            format!("{typed}.spec.strategy: expected map, got &{{[]}}"),
        ),
        (
            with_container(json!({"env": [{"name": "A"}, {"name": "A"}]})),
            500,
            format!(
                "{typed}.spec.template.spec.containers[name=\"c\"].env: duplicate entries for key [name=\"A\"]"
            ),
        ),
        (
            with_container(json!({"env": [{"value": "A"}]})),
            500,
            format!(
                "{typed}.spec.template.spec.containers[name=\"c\"].env: element 0: associative list with keys has an \
                element that omits all key fields [\"name\"] (and doesn't have default values for any key fields)"
            ),
        ),
    ];
    for (config, code, message) in rows {
        let status = apply(None, &config, &by("me")).unwrap_err();
        assert_eq!((status.code, status.message), (code, message), "{config}");
    }
}

#[test]
fn fields_of_other_endpoints_are_neither_applied_nor_owned() {
    let reset = FieldSet::of_paths(&[&["status"]]);
    let options = Options { reset_fields: Some(&reset), ..by("me") };
    let mut config = deployment(json!({"replicas": 1}));
    config["status"] = json!({"replicas": 9});
    let live = applied(None, &config, &options);
    assert_eq!((live.get("status"), owned(&live, "me")), (None, json!({"f:spec": {"f:replicas": {}}})));
    let rest = FieldSet::of_paths(&[&["spec"], &["metadata"]]);
    let status = Options { subresource: "status", reset_fields: Some(&rest), ..by("me") };
    let live = applied(Some(&live), &config, &status);
    assert_eq!(live["status"]["replicas"], 9);
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(
        (&entries[1]["subresource"], &entries[1]["fieldsV1"]),
        (&json!("status"), &json!({"f:status": {"f:replicas": {}}}))
    );
}
