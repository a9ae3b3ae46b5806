//! Objects that would take far more than they are: to read, to check, to answer for or to hold.

use crate::attacks::parties;
use freehold_tests_integration::{Http, Kubectl, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    an_object_that_is_wrong_many_times_is_answered_for_once,
    variables_of_a_policy_that_read_each_other_without_end_stop_nobody,
    types_that_nest_by_variables_without_end_stop_nobody,
    a_list_of_many_items_is_applied_like_any_other,
    a_type_of_many_fields_is_served_like_any_other,
);

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
/// No answer is larger than this.
const ANSWER: usize = 8 << 20;

/// The victim is served as if nothing was.
fn assert_served(victim: &Kubectl) {
    assert_eq!(victim.ok(&["get", "secret", "treasure", "-o", "name"]).trim(), "secret/treasure");
}

fn post(kubectl: &Kubectl, path: &str, object: &Value) -> (u16, String) {
    let answer = Http::of(kubectl).json(Method::POST, path, object);
    (answer.code, answer.body.to_string())
}

fn map(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

fn an_object_that_is_wrong_many_times_is_answered_for_once(world: &World) {
    let (attacker, victim) = parties(world);
    let owner = |n: usize| json!({"apiVersion": "v1", "kind": "Pod", "name": n.to_string(), "uid": "u", "controller": true});
    let owners = map(json!({"name": "o", "ownerReferences": (0..8_000).map(owner).collect::<Vec<_>>()}));
    let fields = json!({"f:data": {}});
    let manager = json!([{"manager": "\u{1}".repeat(100_000), "operation": "Update", "apiVersion": "v1",
        "fieldsType": "FieldsV1", "fieldsV1": fields}]);
    let labels: Value = (0..20_000).map(|n| (format!("a b {n}"), Value::from("c d"))).collect();
    let finalizers: Vec<String> = (0..50_000).map(|n| format!("no domain {n}")).collect();
    for (what, metadata) in [
        ("owners", owners["metadata"].clone()),
        ("a manager", json!({"name": "m", "managedFields": manager})),
        ("labels", json!({"name": "l", "labels": labels})),
        ("finalizers", json!({"name": "f", "finalizers": finalizers})),
    ] {
        let (status, body) = post(&attacker, MAPS, &map(metadata));
        assert_eq!(status, 422, "{what}: {body:.300}");
        assert!(body.len() < ANSWER, "{what}: {} bytes", body.len());
        assert_served(&victim);
    }
}

/// A policy whose variables each read the one before, and what it says of a write.
fn chained(kubectl: &Kubectl, count: usize, first: &str, next: impl Fn(&str) -> String) -> (u16, String) {
    let name = format!("chain-{count}");
    let variable = |n: usize| match n {
        0 => json!({"name": "v0", "expression": first}),
        n => json!({"name": format!("v{n}"), "expression": next(&format!("variables.v{}", n - 1))}),
    };
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "variables": (0..count).map(variable).collect::<Vec<_>>(),
            "validations": [{"expression": format!("type(variables.v{}) == bool || object.metadata.name != 'asks'", count - 1)}],
        },
    });
    let (status, body) = post(kubectl, POLICIES, &policy);
    assert_eq!(status, 201, "{body:.300}");
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    assert_eq!(post(kubectl, BINDINGS, &binding).0, 201);
    let asked = until("the policy is heeded", crate::PATIENCE, || {
        let asked = post(kubectl, MAPS, &map(json!({"name": "asks"})));
        if asked.0 == 201 {
            kubectl.ok(&["delete", "configmap", "asks"]);
        }
        (asked.0 != 201).then_some(asked)
    });
    kubectl.ok(&["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", &name]);
    asked
}

fn variables_of_a_policy_that_read_each_other_without_end_stop_nobody(world: &World) {
    let (_, victim) = parties(world);
    let attacker = world.project("attacker-chains");
    let (status, body) = chained(&attacker, 50, "1", str::to_owned);
    assert!(status == 422 && body.contains("failed expression"), "{status} {body:.300}");
    let (status, body) = chained(&attacker, 500, "1", str::to_owned);
    assert!(status == 422 && body.contains("variables read each other"), "{status} {body:.300}");
    assert_served(&victim);
}

fn types_that_nest_by_variables_without_end_stop_nobody(world: &World) {
    let (_, victim) = parties(world);
    let attacker = world.project("attacker-nests");
    let (status, body) = chained(&attacker, 500, "[1]", |before| format!("[{before}]"));
    assert!(status == 422 && body.contains("variables read each other"), "{status} {body:.300}");
    // Each would hold all before it.
    let (status, body) = chained(&attacker, 501, "variables", |_| "variables".to_owned());
    assert_eq!(status, 422, "{body:.300}");
    assert_served(&victim);
}

fn a_list_of_many_items_is_applied_like_any_other(world: &World) {
    let attacker = world.project("attacker-lists");
    let variables = |value: &str| -> Vec<Value> {
        (0..6_000).map(|n| json!({"name": format!("V{n}"), "value": value})).collect()
    };
    let path = "/apis/apps/v1/namespaces/default/deployments/many?fieldManager=m&force=true";
    for value in ["a", "b"] {
        let container = json!({"name": "c", "image": "i", "env": variables(value)});
        let labels = json!({"a": "b"});
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "many"},
            "spec": {
                "replicas": 0, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        });
        let applied = "application/apply-patch+yaml";
        let answer = Http::of(&attacker).send(Method::PATCH, path, applied, object.to_string());
        assert!([200, 201].contains(&answer.code), "{}", answer.body);
        let env = &answer.body["spec"]["template"]["spec"]["containers"][0]["env"];
        assert_eq!((env[5_999]["value"].as_str(), env.as_array().map(Vec::len)), (Some(value), Some(6_000)));
    }
}

fn a_type_of_many_fields_is_served_like_any_other(world: &World) {
    let attacker = world.project("attacker-types");
    let count = 20_000;
    let fields: Value = (0..count).map(|n| (format!("p{n}"), json!({"type": "string"}))).collect();
    let spec = json!({"type": "object", "properties": fields});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "bigs", "singular": "big", "kind": "Big", "listKind": "BigList"});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "bigs.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (status, body) = post(&attacker, path, &definition);
    assert_eq!(status, 201, "{body:.300}");
    attacker.ok(&["wait", "--for=condition=Established", "crd/bigs.example.com", "--timeout=120s"]);
    let object = |value: Value| -> Value {
        let fields: Value = (0..count).map(|n| (format!("p{n}"), value.clone())).collect();
        json!({"apiVersion": "example.com/v1", "kind": "Big", "metadata": {"name": "b"}, "spec": fields})
    };
    let bigs = "/apis/example.com/v1/namespaces/default/bigs";
    let (status, body) = post(&attacker, bigs, &object(1.into()));
    assert!(status == 422 && body.len() < ANSWER && body.contains("more]"), "{status}, {} bytes", body.len());
    let (status, body) = post(&attacker, bigs, &object("text".into()));
    assert_eq!(status, 201, "{body:.300}");
    let openapi = Http::of(&attacker).get("/openapi/v3/apis/example.com/v1");
    assert_eq!(openapi.code, 200);
}
