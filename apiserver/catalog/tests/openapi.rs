//! OpenAPI documents: complete, consistent, and named as Kubernetes names things.

#![allow(clippy::unwrap_used)]

use freehold_apiserver_catalog::{TypeSet, custom_types, openapi, share};
use freehold_machinery::Value;
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};

const GVK: &str = "x-kubernetes-group-version-kind";

fn cron_tabs() -> Arc<TypeSet> {
    let crd = json!({
        "metadata": {"name": "crontabs.stable.example.com"},
        "spec": {
            "group": "stable.example.com", "scope": "Namespaced",
            "names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "listKind": "CronTabList"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}},
                "selectableFields": [{"jsonPath": ".spec.when"}],
                "schema": {"openAPIV3Schema": {
                    "type": "object", "description": "A line of a crontab.",
                    "properties": {
                        "spec": {"type": "object", "required": ["when"], "properties": {
                            "when": {"type": "string", "description": "When.", "pattern": "^.+$"},
                            "maybe": {"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}},
                            "port": {
                                "x-kubernetes-int-or-string": true,
                                "anyOf": [{"type": "integer"}, {"type": "string"}],
                            },
                            "number": {"x-kubernetes-int-or-string": true},
                            "nothing": {"type": "object", "properties": {}},
                            "whole": {
                                "type": "object", "x-kubernetes-embedded-resource": true,
                                "required": ["spec"], "properties": {"spec": {"type": "string"}},
                            },
                            "free": {
                                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                                "properties": {"a": {"type": "string"}},
                            },
                        }},
                    },
                }},
            }],
        },
    });
    share(custom_types(&crd).unwrap(), vec![])
}

/// All references in a document, without what stands before the name.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                found.insert(reference.clone());
            }
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

fn assert_whole(document: &Value, definitions: &str, prefix: &str) {
    let mut found = BTreeSet::new();
    references(document, &mut found);
    assert!(!found.is_empty());
    let definitions = document.pointer(definitions).unwrap().as_object().unwrap();
    for reference in found {
        if let Some(name) = reference.strip_prefix("#/parameters/") {
            assert!(document["parameters"].get(name).is_some(), "{reference} leads nowhere");
            continue;
        }
        let name = reference.strip_prefix(prefix).unwrap_or_else(|| panic!("foreign reference {reference}"));
        assert!(definitions.contains_key(name), "{reference} leads nowhere");
    }
}

#[test]
fn each_document_of_version_3_is_whole() {
    let set = cron_tabs();
    let index = openapi::v3_index(&set, "/projects/a");
    let paths = index["paths"].as_object().unwrap();
    let versions: usize = set.groups().iter().map(|group| group.versions.len()).sum();
    let named = TypeSet::builtin().groups().iter().filter(|group| !group.name.is_empty()).count();
    let told = ["api", "apis", "version", ".well-known/openid-configuration", "openid/v1/jwks"];
    assert_eq!(paths.len(), versions + named + told.len());
    for path in told.into_iter().chain(["apis/apps"]) {
        let hash = openapi::v3_told_hash(&set, path).unwrap();
        assert_eq!(paths[path]["serverRelativeURL"], format!("/projects/a/openapi/v3/{path}?hash={hash}"));
        let document = openapi::v3_told(path, "v1.36.0");
        assert!(document["paths"][format!("/{path}/")]["get"]["operationId"].is_string(), "{path}");
    }
    assert_eq!(openapi::v3_told_hash(&set, "apis/stable.example.com"), None);
    let hash = openapi::v3_hash(&set, "apps", "v1").unwrap();
    assert_eq!(
        paths["apis/apps/v1"]["serverRelativeURL"],
        format!("/projects/a/openapi/v3/apis/apps/v1?hash={hash}")
    );
    for group in set.groups() {
        for served in &group.versions {
            let document = openapi::v3(&set, &group.name, &served.version, "v1.36.0").unwrap();
            assert_whole(&document, "/components/schemas", "#/components/schemas/");
            operations_are_unique(&document);
        }
    }
}

fn operations_are_unique(document: &Value) {
    let mut seen = BTreeSet::new();
    for (name, path) in document["paths"].as_object().unwrap() {
        let placeholders: BTreeSet<_> =
            name.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let resolved = |p: &Value| match p.get("$ref").and_then(Value::as_str) {
            Some(reference) => document.pointer(&reference[1..]).unwrap().clone(),
            None => p.clone(),
        };
        let all = path["parameters"].as_array().into_iter().flatten().map(resolved);
        let parameters: Vec<Value> = all.filter(|p| p["in"] == "path").collect();
        let declared: BTreeSet<_> = parameters.iter().map(|p| p["name"].as_str().unwrap()).collect();
        assert_eq!(placeholders, declared, "{name}");
        for (method, operation) in path.as_object().unwrap().iter().filter(|(key, _)| *key != "parameters") {
            let id = operation["operationId"].as_str().unwrap();
            assert!(seen.insert(id.to_owned()), "{method} {name}: {id} is there twice");
        }
    }
}

#[test]
fn operations_are_named_as_kubernetes_names_them() {
    let set = cron_tabs();
    let rows = [
        ("", "/api/v1/namespaces/{namespace}/pods", "get", "listCoreV1NamespacedPod", "list"),
        ("", "/api/v1/pods", "get", "listCoreV1PodForAllNamespaces", "list"),
        (
            "",
            "/api/v1/namespaces/{namespace}/pods",
            "delete",
            "deleteCoreV1CollectionNamespacedPod",
            "deletecollection",
        ),
        ("", "/api/v1/namespaces/{namespace}/pods/{name}", "patch", "patchCoreV1NamespacedPod", "patch"),
        (
            "",
            "/api/v1/namespaces/{namespace}/pods/{name}/status",
            "put",
            "replaceCoreV1NamespacedPodStatus",
            "put",
        ),
        (
            "",
            "/api/v1/namespaces/{namespace}/pods/{name}/eviction",
            "post",
            "createCoreV1NamespacedPodEviction",
            "post",
        ),
        ("", "/api/v1/nodes/{name}", "get", "readCoreV1Node", "get"),
        (
            "apps",
            "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale",
            "get",
            "readAppsV1NamespacedDeploymentScale",
            "get",
        ),
        (
            "rbac.authorization.k8s.io",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "post",
            "createRbacAuthorizationV1ClusterRole",
            "post",
        ),
        (
            "stable.example.com",
            "/apis/stable.example.com/v1/namespaces/{namespace}/crontabs",
            "post",
            "createStableExampleComV1NamespacedCronTab",
            "post",
        ),
    ];
    for (group, path, method, id, action) in rows {
        let document = openapi::v3(&set, group, "v1", "v1.36.0").unwrap();
        let operation = &document["paths"][path][method];
        assert_eq!(operation["operationId"], id);
        assert_eq!(operation["x-kubernetes-action"], action);
        assert_eq!(openapi::v2(&set, "v1.36.0")["paths"][path][method]["operationId"], id);
    }
    let core = openapi::v3(&set, "", "v1", "v1.36.0").unwrap();
    let create = &core["paths"]["/api/v1/namespaces/{namespace}/pods"]["post"];
    assert_eq!(create["tags"], json!(["core_v1"]));
    assert_eq!(create[GVK], json!({"group": "", "version": "v1", "kind": "Pod"}));
    assert_eq!(
        create["requestBody"]["content"]["*/*"]["schema"]["$ref"],
        "#/components/schemas/io.k8s.api.core.v1.Pod"
    );
}

#[test]
fn schemas_of_built_in_kinds_are_kubernetes_own() {
    let document = openapi::v3(&TypeSet::builtin(), "apps", "v1", "v1.36.0").unwrap();
    let schemas = &document["components"]["schemas"];
    let deployment = &schemas["io.k8s.api.apps.v1.Deployment"];
    assert_eq!(deployment[GVK], json!([{"group": "apps", "version": "v1", "kind": "Deployment"}]));
    assert_eq!(deployment.get("required"), None, "metadata is optional");
    assert_eq!(
        schemas["io.k8s.api.apps.v1.DeploymentList"]["properties"]["items"]["items"],
        json!({"allOf": [{"$ref": "#/components/schemas/io.k8s.api.apps.v1.Deployment"}], "default": {}})
    );
    let policy = &schemas["io.k8s.api.core.v1.Container"]["properties"]["imagePullPolicy"];
    assert_eq!(policy["enum"], json!(["Always", "IfNotPresent", "Never"]));
    assert!(policy["description"].as_str().unwrap().contains("Possible enum values:"));
    let protocol = &schemas["io.k8s.api.core.v1.ContainerPort"]["properties"]["protocol"];
    assert_eq!(protocol["default"], "TCP");
    assert_eq!(deployment["properties"]["metadata"]["default"], json!({}));
    let containers = &schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"];
    assert_eq!(containers["x-kubernetes-patch-merge-key"], "name");
    assert_eq!(containers["x-kubernetes-list-type"], "map");
    let rows = [
        (
            "io.k8s.apimachinery.pkg.api.resource.Quantity",
            json!([{"type": "string"}, {"type": "number"}]),
            None,
        ),
        (
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            json!([{"type": "integer"}, {"type": "string"}]),
            Some("int-or-string"),
        ),
    ];
    for (name, one_of, format) in rows {
        assert_eq!(schemas[name]["oneOf"], one_of);
        assert_eq!(schemas[name].get("format").and_then(Value::as_str), format);
    }
    let options = schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"][GVK].as_array().unwrap();
    assert!(options.contains(&json!({"group": "apps", "version": "v1", "kind": "DeleteOptions"})));
    assert_eq!(schemas["io.k8s.api.core.v1.ObjectReference"].get(GVK), None);
}

#[test]
fn custom_types_are_published_with_their_descriptions() {
    let document = openapi::v3(&cron_tabs(), "stable.example.com", "v1", "v1.36.0").unwrap();
    let schemas = &document["components"]["schemas"];
    let cron_tab = &schemas["com.example.stable.v1.CronTab"];
    assert_eq!(cron_tab["description"], "A line of a crontab.");
    assert_eq!(cron_tab[GVK], json!([{"group": "stable.example.com", "version": "v1", "kind": "CronTab"}]));
    assert_eq!(cron_tab["properties"]["spec"]["properties"]["when"]["description"], "When.");
    assert_eq!(cron_tab["properties"]["spec"]["properties"]["port"]["anyOf"][0]["type"], "integer");
    assert_eq!(
        cron_tab["properties"]["metadata"]["allOf"][0]["$ref"],
        "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    assert_eq!(schemas["com.example.stable.v1.CronTabList"]["required"], json!(["items"]));
    let spec = &cron_tab["properties"]["spec"]["properties"];
    assert_eq!(spec["number"]["anyOf"], json!([{"type": "integer"}, {"type": "string"}]));
    assert_eq!(spec["nothing"], json!({"type": "object"}));
    assert_eq!(spec["whole"]["required"], json!(["spec", "kind", "apiVersion"]));
    for name in ["CronTab", "CronTabList"] {
        let told = &schemas[format!("com.example.stable.v1.{name}")]["x-kubernetes-selectable-fields"];
        assert_eq!(told, &json!([{"fieldPath": "spec.when"}]), "{name}");
    }
    let scale =
        &document["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}/scale"];
    assert_eq!(scale["get"][GVK]["kind"], "CronTab");
    let patch =
        &document["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"]["patch"];
    let kinds = patch["requestBody"]["content"].as_object().unwrap();
    assert!(!kinds.contains_key("application/strategic-merge-patch+json"));
}

#[test]
fn documents_say_what_kubernetes_says_of_built_in_kinds() {
    let document = openapi::v2(&TypeSet::builtin(), "v1.36.0");
    let definitions = &document["definitions"];
    let status = |kind: &str| &definitions[format!("io.k8s.api.apps.v1.{kind}")]["required"];
    assert_eq!(status("ReplicaSetStatus"), &json!(["replicas"]));
    assert_eq!(definitions["io.k8s.api.core.v1.LocalObjectReference"]["required"], Value::Null);
    let answer = |path: &str| {
        let found = &document["paths"][path]["delete"]["responses"]["200"]["schema"]["$ref"];
        found.as_str().and_then(|name| name.rsplit('.').next()).map(str::to_owned)
    };
    let namespaced = "/api/v1/namespaces/{namespace}";
    for (path, kind) in [
        (format!("{namespaced}/pods/{{name}}"), "Pod"),
        (format!("{namespaced}/secrets/{{name}}"), "Status"),
        ("/apis/storage.k8s.io/v1/storageclasses/{name}".to_owned(), "StorageClass"),
    ] {
        assert_eq!(answer(&path).as_deref(), Some(kind), "{path}");
    }
}

#[test]
fn version_2_is_whole_and_leaves_out_what_it_can_not_say() {
    let document = openapi::v2(&cron_tabs(), "v1.36.0");
    assert_whole(&document, "/definitions", "#/definitions/");
    operations_are_unique(&document);
    let definitions = &document["definitions"];
    let spec = &definitions["com.example.stable.v1.CronTab"]["properties"]["spec"];
    assert_eq!(spec["properties"]["when"]["pattern"], "^.+$");
    assert_eq!(spec["properties"]["maybe"], json!({}));
    assert_eq!(spec["properties"]["port"], json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(spec["properties"]["free"], json!({"x-kubernetes-preserve-unknown-fields": true}));
    assert_eq!(
        definitions["com.example.stable.v1.CronTab"]["properties"]["metadata"]["$ref"],
        "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    );
    assert_eq!(definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]["format"], "int-or-string");
    assert_eq!(definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]["type"], "string");
    for keyword in ["anyOf", "oneOf", "allOf", "nullable"] {
        let text = definitions["com.example.stable.v1.CronTab"].to_string();
        assert!(!text.contains(keyword), "{keyword} is not of version 2");
    }
}

#[test]
fn hashes_follow_the_types() {
    let (plain, custom) = (TypeSet::builtin(), cron_tabs());
    assert_eq!(openapi::v3_hash(&plain, "apps", "v1"), openapi::v3_hash(&custom, "apps", "v1"));
    let own = |types| openapi::v2_hash::<&[u8]>(types, &[]);
    assert_ne!(own(&plain), own(&custom));
    let with = |other: &str| openapi::v2_hash(&plain, &[other]);
    assert!(with("a") != own(&plain) && with("a") != with("b"), "what another server tells does not count");
    assert_eq!(openapi::v3_hash(&plain, "stable.example.com", "v1"), None);
    assert_eq!(openapi::v3(&plain, "stable.example.com", "v1", ""), None);
}

/// A protobuf message: its fields by number; lengths and varints only.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return value;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let start = bytes;
        let length = match tag & 7 {
            0 => {
                varint(&mut bytes);
                start.len() - bytes.len()
            }
            1 => 8,
            _ => usize::try_from(varint(&mut bytes)).unwrap(),
        };
        let body = if tag & 7 == 0 { &start[..length] } else { &bytes[..length] };
        if tag & 7 != 0 {
            bytes = &bytes[length..];
        }
        found.push((tag >> 3, body));
    }
    found
}

/// The name that a step means: what looks like a number stands after `=`.
fn name_of(step: &str) -> &[u8] {
    step.strip_prefix('=').unwrap_or(step).as_bytes()
}

/// The field of a message that `path` leads to: numbers, and names of map entries (field 1 of a pair).
fn lead<'a>(bytes: &'a [u8], path: &[&str]) -> &'a [u8] {
    path.iter().fold(bytes, |bytes, step| match step.parse::<u64>() {
        Ok(number) => {
            fields(bytes).into_iter().find(|(n, _)| *n == number).unwrap_or_else(|| panic!("{step}")).1
        }
        Err(_) => {
            let pairs = fields(bytes).into_iter().map(|(_, pair)| fields(pair));
            pairs
                .filter(|pair| pair.first().is_some_and(|(n, name)| *n == 1 && *name == name_of(step)))
                .find_map(|pair| pair.get(1).map(|(_, value)| *value))
                .unwrap_or_else(|| panic!("{step}"))
        }
    })
}

/// Whether each path of a message leads to these bytes.
fn assert_leads(bytes: &[u8], rows: &[(&[&str], &[u8])]) {
    for (path, expected) in rows {
        let found = lead(bytes, path);
        assert_eq!(found, *expected, "{path:?}: {}", String::from_utf8_lossy(found));
    }
}

#[test]
fn version_3_as_protobuf_has_gnostics_fields() {
    let bytes = openapi::v3_to_protobuf(&openapi::v3(&cron_tabs(), "apps", "v1", "v1.36.0").unwrap());
    let revision = "io.k8s.api.apps.v1.ControllerRevision";
    let reference = b"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let scale = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale";
    let zero = 0.0_f64.to_le_bytes();
    assert_leads(
        &bytes,
        &[
            (&["1"], b"3.0.0"),
            (&["2", "6"], b"v1.36.0"),
            (&["5", "1", revision, "1", "25"], b"object"),
            (&["5", "1", revision, "1", "31", "metadata", "1", "26", "2", "1"], reference),
            (&["5", "1", revision, "1", "31", "metadata", "1", "33"], b""),
            (&["5", "1", revision, "1", "31", "revision", "1", "33", "1"], &zero),
            (&["4", scale, "4", "5"], b"readAppsV1NamespacedDeploymentScale"),
            (&["4", scale, "13", "1", "1"], b"name"),
        ],
    );
}

#[test]
fn version_2_as_protobuf_has_gnostics_fields() {
    let bytes = openapi::to_protobuf(&openapi::v2(&cron_tabs(), "v1.36.0"));
    let pod = "io.k8s.api.core.v1.Pod";
    let rows: [(&[&str], &[u8]); 11] = [
        (&["10", "limit-1NfNmdNH", "2", "3", "4"], b"limit"),
        (&["8", "/api/v1/nodes/{name}", "9", "1", "2", "4", "4"], b"name"),
        (&["1"], b"2.0"),
        (&["2", "2"], b"v1.36.0"),
        (&["9", pod, "22", "1"], b"object"),
        (&["9", pod, "25", "spec", "1"], b"#/definitions/io.k8s.api.core.v1.PodSpec"),
        (&["9", pod, "31", "1"], GVK.as_bytes()),
        (&["9", pod, "31", "2", "2"], br#"[{"group":"","kind":"Pod","version":"v1"}]"#),
        (
            &["9", "io.k8s.api.core.v1.PodList", "25", "items", "23", "1", "1"],
            b"#/definitions/io.k8s.api.core.v1.Pod",
        ),
        (&["8", "/api/v1/namespaces/{namespace}/pods/{name}", "2", "5"], b"readCoreV1NamespacedPod"),
        (
            &["8", "/api/v1/nodes/{name}", "2", "9", "=200", "1", "2", "1", "1"],
            b"#/definitions/io.k8s.api.core.v1.Node",
        ),
    ];
    assert_leads(&bytes, &rows);
}
