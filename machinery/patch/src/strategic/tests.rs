//! Strategic merge patches of Deployments, and what Kubernetes answers to bad ones.

mod differences;

use super::*;
use freehold_machinery::schema;
use proptest::prelude::*;
use serde_json::json;
use std::sync::{Arc, LazyLock};

/// The part of a Deployment's schema that the tests need, with Kubernetes' patch strategies.
static DEPLOYMENT: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let list = |key: &str, strategy: &str, items: Value| json!({"type": "array", "items": items, "x-kubernetes-patch-merge-key": key, "x-kubernetes-patch-strategy": strategy});
    let strings = json!({"type": "array", "items": {"type": "string"}});
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let container = object(json!({
        "name": {"type": "string"}, "image": {"type": "string"}, "command": strings,
        "env": list("name", "merge", object(json!({"name": {"type": "string"}, "value": {"type": "string"}}))),
        "ports": list("containerPort", "merge", object(json!({
            "containerPort": {"type": "integer"}, "protocol": {"type": "string"}, "name": {"type": "string"}}))),
    }));
    let pod = object(json!({
        "containers": list("name", "merge", container),
        "volumes": list("name", "merge,retainKeys", any.clone()),
        "tolerations": {"type": "array", "items": any},
    }));
    let deployment = json!({"type": "object", "properties": {
        "data": {"type": "object", "additionalProperties": {"type": "string"}},
        "metadata": object(json!({
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-patch-strategy": "merge"},
        })),
        "spec": object(json!({
            "replicas": {"type": "integer"},
            "strategy": {"type": "object", "x-kubernetes-patch-strategy": "retainKeys",
                "properties": {"type": {"type": "string"}, "rollingUpdate": any}},
            "template": object(json!({"spec": pod})),
        })),
    }});
    schema::parse::node(&deployment).unwrap()
});

fn pod(spec: Value) -> Value {
    json!({"spec": {"template": {"spec": spec}}})
}

fn finalizers(fields: Value) -> Value {
    json!({"metadata": fields})
}

#[test]
fn fields_lists_and_directives_merge_as_in_kubernetes() {
    let a = || json!({"name": "a", "image": "1"});
    let b = || json!({"name": "b", "image": "1"});
    let rows = [
        // maps, null
        (
            json!({"data": {"a": "1", "b": "2"}}),
            json!({"data": {"b": null, "c": "3", "d": null}}),
            json!({"data": {"a": "1", "c": "3"}}),
        ),
        (json!({}), json!({"data": {"a": null, "b": "1"}}), json!({"data": {"b": "1"}})),
        (
            json!({"data": {"a": "1"}}),
            json!({"data": {"$patch": "replace", "b": "2"}}),
            json!({"data": {"b": "2"}}),
        ),
        (json!({"data": {"a": "1"}}), json!({"data": {"$patch": "delete"}}), json!({"data": {}})),
        (json!({}), json!({"data": {"$patch": "delete"}}), json!({})),
        // lists by key: the patch's items come in its order, others stay where they are
        (
            pod(json!({"containers": [a(), b()]})),
            pod(json!({"containers": [{"name": "b", "image": "2"}]})),
            pod(json!({"containers": [a(), {"name": "b", "image": "2"}]})),
        ),
        (
            pod(json!({"containers": [a()]})),
            pod(json!({"containers": [b()]})),
            pod(json!({"containers": [b(), a()]})),
        ),
        (
            pod(json!({"containers": [a(), b()]})),
            pod(json!({"containers": [{"name": "a", "$patch": "delete"}]})),
            pod(json!({"containers": [b()]})),
        ),
        (
            pod(json!({"containers": [a(), b()]})),
            pod(json!({"containers": [{"$patch": "replace"}, {"name": "c"}]})),
            pod(json!({"containers": [{"name": "c"}]})),
        ),
        (
            pod(json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]})),
            pod(
                json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": null}, {"name": "X", "value": null}]}]}),
            ),
            pod(json!({"containers": [{"name": "a", "env": [{"name": "Y"}, {"name": "X"}]}]})),
        ),
        (
            pod(json!({"containers": [a(), b()]})),
            pod(json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]})),
            pod(json!({"containers": [b(), a()]})),
        ),
        (
            pod(json!({"containers": [a(), {"name": "s"}, b()]})),
            pod(json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "n"}, {"name": "a"}],
                "containers": [{"name": "n"}]})),
            pod(json!({"containers": [{"name": "s"}, b(), {"name": "n"}, a()]})),
        ),
        (
            pod(json!({"containers": [a(), b()]})),
            pod(
                json!({"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "a", "$patch": "delete"}, {"name": "c"}]}),
            ),
            pod(json!({"containers": [b(), {"name": "c"}]})),
        ),
        // lists without a strategy are replaced
        (
            pod(json!({"tolerations": [{"key": "a"}]})),
            pod(json!({"tolerations": [{"key": "b"}]})),
            pod(json!({"tolerations": [{"key": "b"}]})),
        ),
        (
            pod(json!({"containers": [{"name": "a", "command": ["x"]}]})),
            pod(json!({"containers": [{"name": "a", "command": ["y"]}]})),
            pod(json!({"containers": [{"name": "a", "command": ["y"]}]})),
        ),
        // lists of scalars
        (
            finalizers(json!({"finalizers": ["a", "b"]})),
            finalizers(json!({"finalizers": ["c", "a"]})),
            finalizers(json!({"finalizers": ["c", "a", "b"]})),
        ),
        (
            finalizers(json!({"finalizers": ["a", "b", "c"]})),
            finalizers(json!({"$deleteFromPrimitiveList/finalizers": ["b"]})),
            finalizers(json!({"finalizers": ["a", "c"]})),
        ),
        (
            finalizers(json!({"finalizers": ["a", "b"]})),
            finalizers(
                json!({"$setElementOrder/finalizers": ["c", "b"], "$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}),
            ),
            finalizers(json!({"finalizers": ["c", "b"]})),
        ),
        // retained keys
        (
            json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}}),
            json!({"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}),
            json!({"spec": {"strategy": {"type": "Recreate"}}}),
        ),
        (
            pod(json!({"volumes": [{"name": "v", "emptyDir": {}}]})),
            pod(
                json!({"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}),
            ),
            pod(json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]})),
        ),
    ];
    for (target, patch, expected) in rows {
        assert_eq!(strategic(&target, &patch, &DEPLOYMENT), Ok(expected), "{target} + {patch}");
    }
}

#[test]
fn malformed_patches_get_kubernetes_codes_and_texts() {
    let target = {
        let mut target = pod(json!({"containers": [{"name": "a"}]}));
        target["metadata"] = json!({"finalizers": ["a"]});
        target
    };
    let rows = [
        (json!([]), 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (
            pod(json!({"containers": [{"image": "1", "env": [{"name": "A"}]}]})),
            500,
            "map: map[env:[map[name:A]] image:1] does not contain declared merge key: name",
        ),
        (json!({"$patch": "frob", "a": 1}), 500, "unknown patch type: frob in map: map[$patch:frob a:1]"),
        (
            pod(json!({"containers": [{"name": "a", "$patch": "frob"}]})),
            500,
            "unknown patch type: frob in map: map[$patch:frob name:a]",
        ),
        (
            pod(json!({"containers": [{"name": "a", "$patch": "merge"}]})),
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (finalizers(json!({"finalizers": [1]})), 500, "list element types are not identical: [[a] [1]]"),
        (
            finalizers(json!({"$setElementOrder/finalizers": "a"})),
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            finalizers(json!({"$setElementOrder/finalizers": ["a", "b"], "finalizers": ["b", "a"]})),
            500,
            "The order in patch list:\n[b a]\n doesn't match $setElementOrder list:\n[a b]\n",
        ),
        (
            finalizers(json!({"$deleteFromPrimitiveList": ["a"]})),
            400,
            "invalid patch format of primitive list",
        ),
        (finalizers(json!({"$setElementOrder": ["a"]})), 400, "invalid patch format of setElementOrder list"),
        (
            json!({"spec": {"$retainKeys": ["replicas"], "template": {}}}),
            400,
            "invalid patch format of retainKeys",
        ),
        (json!({"spec": {"$retainKeys": "replicas"}}), 400, "invalid patch format of retainKeys"),
    ];
    for (patch, code, message) in rows {
        let status = strategic(&target, &patch, &DEPLOYMENT).unwrap_err();
        assert_eq!((status.code, status.message.as_str()), (code, message), "{patch}");
    }
    let nested = json!({"metadata": {"finalizers": [["a"]]}});
    assert_eq!(strategic(&nested, &nested, &DEPLOYMENT).unwrap_err().code, 422);
}

fn patch() -> impl Strategy<Value = Value> {
    let value = prop_oneof![Just(Value::Null), "[xy]".prop_map(Value::from)];
    let data = prop::collection::btree_map("[a-c]", value, 0..4);
    let image = prop::option::of("[12]");
    let containers = prop::collection::btree_map("[a-c]", (image, any::<bool>()), 0..4);
    let finalizers = prop::collection::btree_set("[a-d]", 0..4);
    (data, containers, finalizers).prop_map(|(data, containers, finalizers)| {
        let containers: Vec<Value> = containers
            .into_iter()
            .map(|(name, (image, delete))| match (image, delete) {
                (None, true) => json!({"name": name, "$patch": "delete"}),
                (image, _) => json!({"name": name, "image": image}),
            })
            .collect();
        let mut patch = pod(json!({"containers": containers}));
        patch["data"] = json!(data);
        patch["metadata"] = json!({"finalizers": finalizers});
        patch
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_patch_done_twice_is_done_once(first in patch(), second in patch()) {
        let target = strategic(&json!({}), &first, &DEPLOYMENT).unwrap();
        let once = strategic(&target, &second, &DEPLOYMENT).unwrap();
        prop_assert_eq!(&strategic(&once, &second, &DEPLOYMENT).unwrap(), &once);
    }
}
