//! Tests of field sets: their JSON, their algebra, and the sets that values own.

use super::*;

fn set(fields: Value) -> FieldSet {
    FieldSet::from_json(&fields).unwrap()
}

#[test]
fn fields_v1_is_read_and_written_canonically() {
    let rows = [
        (json!({}), json!({})),
        (json!({"f:spec": {"f:replicas": {}}}), json!({"f:spec": {"f:replicas": {}}})),
        (json!({"f:a": {".": {}, "f:b": {}}}), json!({"f:a": {".": {}, "f:b": {}}})),
        (
            json!({"f:ports": {"k:{ \"protocol\":\"TCP\", \"containerPort\":80.0 }": {".": {}}}}),
            json!({"f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {}}}),
        ),
        (json!({"f:finalizers": {"v:\"a<b\"": {}}}), json!({"f:finalizers": {"v:\"a\\u003cb\"": {}}})),
        (json!({"f:list": {"i:3": {}}}), json!({"f:list": {"i:3": {}}})),
        (json!({"z:future": {}, "f:a": {}}), json!({"f:a": {}})),
    ];
    for (fields, expected) in rows {
        assert_eq!(set(fields.clone()).to_json(), expected, "{fields}");
    }
    for malformed in
        [json!([]), json!({"spec": {}}), json!({"k:[]": {}}), json!({"i:x": {}}), json!({"f:a": 1})]
    {
        assert!(FieldSet::from_json(&malformed).is_err(), "{malformed}");
    }
}

#[test]
fn sets_combine_as_sets_of_paths() {
    let a = || set(json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}}));
    let b = || set(json!({"f:a": {"f:b": {}}, "f:e": {}}));
    let rows = [
        (a().union(b()), json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}, "f:e": {}})),
        (a().intersection(&b()), json!({"f:a": {"f:b": {}}})),
        (a().difference(&b()), json!({"f:a": {".": {}, "f:c": {}}, "f:d": {}})),
        (a().difference(&set(json!({"f:a": {}}))), json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}})),
        (a().recursive_difference(&set(json!({"f:a": {}}))), json!({"f:d": {}})),
        (a().recursive_difference(&b()), json!({"f:a": {".": {}, "f:c": {}}, "f:d": {}})),
        (a().leaves(), json!({"f:a": {"f:b": {}, "f:c": {}}, "f:d": {}})),
        (a().difference(&a()), json!({})),
    ];
    for (result, expected) in rows {
        assert_eq!(result, set(expected.clone()), "{expected}");
    }
    assert_eq!(a().len(), 4);
    assert!(a().contains(&[PathElement::field("a"), PathElement::field("b")]));
    assert!(!b().contains(&[PathElement::field("a")]));
    assert_eq!(
        FieldSet::of_paths(&[&["status"], &["metadata", "labels"]]),
        set(json!({"f:metadata": {"f:labels": {}}, "f:status": {}}))
    );
}

#[test]
fn paths_read_as_in_conflicts() {
    let fields = set(
        json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {"f:name": {}}}, "f:set": {"v:\"x\"": {}}}}),
    );
    let paths: Vec<String> = fields.paths().iter().map(ToString::to_string).collect();
    assert_eq!(paths, [".spec.ports[port=80,protocol=\"TCP\"].name", ".spec.set[=\"x\"]"]);
}

#[test]
fn a_value_owns_leaves_items_and_keys() {
    let own = |value: Value, expected: Value| {
        assert_eq!(set_of(&value, Some(&DEPLOYMENT)).to_json(), expected, "{value}");
    };
    let spec = |spec: Value| json!({"spec": spec});
    own(spec(json!({"replicas": 1, "paused": null})), json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}));
    own(spec(json!({"selector": {"matchLabels": {"a": "b"}}})), json!({"f:spec": {"f:selector": {}}}));
    own(spec(json!({"strategy": {}})), json!({"f:spec": {"f:strategy": {}}}));
    own(
        json!({"metadata": {"labels": {"a": "b"}, "finalizers": ["x"], "ownerReferences": [{"uid": "u", "name": "n"}]}}),
        json!({"f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x\"": {}},
            "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}}}),
    );
    let containers = |container: Value| json!({"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": container}}}});
    let cases = [
        (json!({"command": ["a", "b"]}), json!({".": {}, "f:name": {}, "f:command": {}})),
        (json!({"resources": {}}), json!({".": {}, "f:name": {}, "f:resources": {}})),
        (
            json!({"ports": [{"containerPort": 80}]}),
            json!({".": {}, "f:name": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}),
        ),
        (
            json!({"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
            json!({".": {}, "f:name": {}, "f:env": {"k:{\"name\":\"A\"}": {}}}),
        ),
    ];
    for (container, expected) in cases {
        let spec = with_container(container)["spec"].clone();
        own(json!({"spec": spec}), json!({"f:spec": containers(expected)}));
    }
    let value = json!({"spec": {"tree": {"a": [1, {"b": 2}], "c": {}}}});
    let expected = json!({"f:spec": {".": {}, "f:tree": {".": {}, "f:a": {}, "f:c": {}}}});
    assert_eq!(set_of(&value, None).to_json(), expected);
}

#[test]
fn a_comparison_tells_what_came_went_and_changed() {
    let differ = |old: Value, new: Value, removed: Value, modified: Value, added: Value| {
        let result = compare(&old, &new, Some(&DEPLOYMENT));
        let found = (result.removed.to_json(), result.modified.to_json(), result.added.to_json());
        assert_eq!(found, (removed, modified, added), "{old} -> {new}");
    };
    let spec = |spec: Value| json!({"spec": spec});
    differ(spec(json!({"replicas": 1})), spec(json!({"replicas": 1.0})), json!({}), json!({}), json!({}));
    differ(
        spec(json!({"replicas": 1})),
        spec(json!({"replicas": 2})),
        json!({}),
        json!({"f:spec": {"f:replicas": {}}}),
        json!({}),
    );
    differ(
        spec(json!({"replicas": 1})),
        spec(json!({"strategy": {"type": "x"}})),
        json!({"f:spec": {"f:replicas": {}}}),
        json!({}),
        json!({"f:spec": {"f:strategy": {".": {}, "f:type": {}}}}),
    );
    let labels = |labels: Value| json!({"metadata": {"labels": labels, "finalizers": ["a"]}});
    differ(
        labels(json!({"a": "1", "b": "1"})),
        json!({"metadata": {"labels": {"b": "2", "c": "1"}, "finalizers": ["a", "b"]}}),
        json!({"f:metadata": {"f:labels": {"f:a": {}}}}),
        json!({"f:metadata": {"f:labels": {"f:b": {}}}}),
        json!({"f:metadata": {"f:labels": {"f:c": {}}, "f:finalizers": {"v:\"b\"": {}}}}),
    );
    let env = |items: Value| with_container(json!({"env": items}));
    let at = |name: &str, below: Value| {
        let item = format!("k:{{\"name\":\"{name}\"}}");
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:env": {item: below}}}}}}})
    };
    let one = json!({"name": "A", "value": "1"});
    differ(
        env(json!([one])),
        env(json!([one, one])),
        at("A", json!({".": {}, "f:name": {}, "f:value": {}})),
        json!({}),
        at("A", json!({})),
    );
}
