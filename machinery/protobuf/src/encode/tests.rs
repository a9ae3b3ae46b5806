use super::*;
use crate::decode;
use serde_json::json;

#[test]
fn objects_survive_the_way_there_and_back() {
    let rows = [
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {"x": "y", "e": ""},
            "creationTimestamp": "2026-01-02T03:04:05Z", "managedFields": [{"manager": "m", "operation": "Update",
            "fieldsV1": {"f:data": {}}}]}, "data": {"k": "é"}, "binaryData": {"b": "AAEC"}, "immutable": false}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 0,
            "selector": {"matchLabels": {"a": "b"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i",
            "ports": [{"containerPort": 80}], "resources": {"requests": {"cpu": "100m"}},
            "readinessProbe": {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 5},
            "livenessProbe": {"tcpSocket": {"port": "web"}}}],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "x", "optional": true}}]}}}}),
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "u",
            "extra": {"k": ["a", "b"]}, "resourceAttributes": {"verb": "get", "resource": "pods"}}}),
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
            "spec": {"renewTime": "2026-01-02T03:04:05.000006Z", "leaseDurationSeconds": 15}}),
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Foreground"}),
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x"},
            "spec": {"group": "g", "names": {"kind": "K", "plural": "p"}, "scope": "Cluster", "versions": [{"name": "v1",
            "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "a": {"type": "array", "items": {"type": "string"}, "default": ["q"]},
            "b": {"additionalProperties": true}}}}}]}}),
    ];
    for object in rows {
        let bytes = encode(&object).expect("a built-in kind");
        assert_eq!(decode(&bytes).unwrap(), object);
    }
}

#[test]
fn lists_and_unknown_kinds() {
    let list = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"},
        "items": [{"metadata": {"name": "a"}}]});
    assert_eq!(decode(&encode(&list).unwrap()).unwrap(), list);
    assert!(encode(&json!({"apiVersion": "example.com/v1", "kind": "Widget"})).is_none());
}

#[test]
fn garbage_is_refused_and_never_panics() {
    for garbage in [&b""[..], b"k8s", b"{}", b"k8s\0\xff\xff\xff", b"k8s\0\x0a\x05ab", b"k8s\0\x12\x02\x08"] {
        assert!(decode(garbage).is_err(), "{garbage:?}");
    }
}

#[test]
fn a_list_made_of_its_parts_is_the_list() {
    let items = [json!({"metadata": {"name": "a"}}), json!({"metadata": {"name": "b"}, "data": {"k": "v"}})];
    let kind = Kind::of("v1", "ConfigMap").unwrap();
    let mut body = Vec::new();
    for item in &items {
        let bytes = kind.message(item.to_string().as_bytes()).unwrap();
        item_head(&mut body, bytes.len());
        body.extend_from_slice(&bytes);
    }
    let list = Kind::of("v1", "ConfigMapList").unwrap();
    let (head, tail) = list.list(br#"{"resourceVersion":"7"}"#, body.len()).unwrap();
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": "7"},
        "items": items});
    assert_eq!(decode(&[head, body, tail].concat()).unwrap(), expected);
}

#[test]
fn schemas_and_what_stands_in_their_place_survive() {
    for schema in [
        json!({"type": "object", "additionalProperties": {"type": "string"}, "items": {"type": "integer"}}),
        json!({"items": [{"type": "string"}, {"type": "integer"}], "additionalProperties": false, "enum": [1, "a"]}),
        json!({"dependencies": {"a": ["b", "c"], "d": {"type": "object"}}, "maximum": 1.5, "default": {"x": [1]}}),
    ] {
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "x"}, "spec": {"group": "g", "scope": "Cluster", "names": {"kind": "K", "plural": "p"},
            "versions": [{"name": "v1", "served": true, "storage": false, "schema": {"openAPIV3Schema": schema}}]}});
        assert_eq!(decode(&encode(&crd).unwrap()).unwrap(), crd);
    }
}

#[test]
fn pieces_of_messages_without_names_are_merged() {
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": [{"resourceNames": ["n"],
        "apiGroups": ["", "apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["pods"],
        "scope": "*"}]}}});
    assert_eq!(decode(&encode(&policy).unwrap()).unwrap(), policy);
}

#[test]
fn nulls_stand_for_nothing_and_wrong_types_are_errors() {
    let kind = Kind::of("v1", "ConfigMap").unwrap();
    let empty =
        kind.encode(br#"{"data":null,"immutable":null,"metadata":{"creationTimestamp":null}}"#).unwrap();
    assert_eq!(decode(&empty).unwrap(), json!({"apiVersion": "v1", "kind": "ConfigMap"}));
    let zero = kind.encode(br#"{"data":{"a":null},"metadata":{"finalizers":[null]}}"#).unwrap();
    assert_eq!(
        decode(&zero).unwrap(),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": ""}, "metadata": {"finalizers": [""]}})
    );
    for wrong in [&br#"{"data":7}"#[..], br#"{"metadata":[]}"#, br#"{"immutable":"x"}"#, b"{", b"7"] {
        assert!(kind.encode(wrong).is_err(), "{}", String::from_utf8_lossy(wrong));
    }
}

#[test]
fn a_frame_has_its_length_first() {
    let bytes = frame("ADDED", b"object");
    assert_eq!(bytes, b"\0\0\0\x11\x0a\x05ADDED\x12\x08\x0a\x06object");
}
