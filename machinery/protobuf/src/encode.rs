//! From JSON to protobuf.

use crate::{
    MAGIC,
    messages::{self, Field, INLINE, Kind, LIST, Message, Shape},
    special,
    wire::{put_bytes, put_double, put_integer},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use freehold_machinery::{Map, Value};

/// Writes an object of a built-in kind, or a list of them; `None` for a kind that has no message.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let text = |field: &str| object.get(field).and_then(Value::as_str);
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let found = messages::of_kind(api_version, kind)?;
    let mut meta = Vec::new();
    put_bytes(&mut meta, 1, api_version.as_bytes());
    put_bytes(&mut meta, 2, kind.as_bytes());
    let mut out = MAGIC.to_vec();
    put_bytes(&mut out, 1, &meta);
    put_bytes(&mut out, 2, &message(found.name, object));
    put_bytes(&mut out, 3, b"");
    put_bytes(&mut out, 4, b"");
    Some(out)
}

/// The bytes of a message.
pub(crate) fn message(name: &str, value: &Value) -> Vec<u8> {
    if special::is_special(name) {
        return special::encode(name, value);
    }
    let mut out = Vec::new();
    if let Some(message) = messages::get(name) {
        fields(&mut out, message, value);
    }
    out
}

fn fields(out: &mut Vec<u8>, message: &Message, value: &Value) {
    for field in &message.fields {
        match (field.name, value) {
            (LIST, Value::Array(items)) => items.iter().for_each(|item| put(out, field, item)),
            (INLINE, value) => put(out, field, value),
            (name, Value::Object(map)) => {
                if let Some(value) = map.get(name).filter(|value| !value.is_null()) {
                    shaped(out, field, value);
                }
            }
            _ => {}
        }
    }
}

fn shaped(out: &mut Vec<u8>, field: &Field, value: &Value) {
    match (field.shape, value) {
        (Shape::One, value) => put(out, field, value),
        (Shape::Many, Value::Array(items)) => items.iter().for_each(|item| put(out, field, item)),
        (Shape::Map, Value::Object(map)) => pairs(out, field, map),
        _ => {}
    }
}

fn pairs(out: &mut Vec<u8>, field: &Field, map: &Map) {
    let as_value =
        Field { name: field.name, number: 2, keep_zero: true, shape: Shape::One, kind: field.kind };
    for (key, value) in map {
        let mut pair = Vec::new();
        put_bytes(&mut pair, 1, key.as_bytes());
        put(&mut pair, &as_value, value);
        put_bytes(out, field.number, &pair);
    }
}

fn put(out: &mut Vec<u8>, field: &Field, value: &Value) {
    let number = field.number;
    match field.kind {
        Kind::Text => put_bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
        Kind::Bytes => {
            let text = value.as_str().unwrap_or_default();
            put_bytes(out, number, &BASE64_STANDARD.decode(text).unwrap_or_default());
        }
        Kind::Bool => put_integer(out, number, u64::from(value.as_bool().unwrap_or(false))),
        Kind::Integer => put_integer(out, number, value.as_i64().unwrap_or(0) as u64),
        Kind::Double => put_double(out, number, value.as_f64().unwrap_or(0.0)),
        Kind::Message(name) => put_bytes(out, number, &message(name, value)),
    }
}

#[cfg(test)]
mod tests {
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
        for garbage in
            [&b""[..], b"k8s", b"{}", b"k8s\0\xff\xff\xff", b"k8s\0\x0a\x05ab", b"k8s\0\x12\x02\x08"]
        {
            assert!(decode(garbage).is_err(), "{garbage:?}");
        }
    }
}
