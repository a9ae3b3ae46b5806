//! Defaults of a tenant's namespaces as policies of the API server: classes and node selectors.

use crate::policies::{API_VERSION, not_admins, rule, rules};
use freehold_machinery::Value;
use freehold_tenancy_api::{GROUP, TENANT_LABEL};
use freehold_tenancy_decide::admission::{INGRESS_CLASS_ANNOTATION, STORAGE_CLASS_ANNOTATION};
use serde_json::json;

/// Default classes as MutatingAdmissionPolicies with their bindings, for servers that have those.
pub fn mutating() -> Vec<Value> {
    let defaults = [
        ("", "persistentvolumeclaims", "storage-class", "storageClassName", Some(STORAGE_CLASS_ANNOTATION)),
        (
            "networking.k8s.io",
            "ingresses",
            "ingress-class",
            "ingressClassName",
            Some(INGRESS_CLASS_ANNOTATION),
        ),
        ("", "pods", "priority-class", "priorityClassName", None),
        ("", "pods", "runtime-class", "runtimeClassName", None),
    ];
    let classes = defaults.iter().flat_map(|(group, resource, key, field, annotation)| {
        let annotations = "object.metadata.annotations";
        let noted = annotation.map(|key| format!(" && !(has({annotations}) && '{key}' in {annotations})"));
        let expression = format!("!has(object.spec.{field}){}", noted.unwrap_or_default());
        let unset = json!({"name": "names-no-class", "expression": expression});
        mutating_policy(&format!("default-{key}"), (group, resource), Some(unset), mutation(key, field))
    });
    classes.chain(mutating_policy("node-selector", ("", "pods"), None, node_selector())).collect()
}

/// The mutation that gives Pods the tenant's node selector. Other values for its keys are refused later on, so they are
/// left as they are.
fn node_selector() -> Value {
    let rule = rule("node-selector");
    let map = "(has(object.spec.nodeSelector) ? [] \
        : [JSONPatch{op: 'add', path: '/spec/nodeSelector', value: Object.spec.nodeSelector{}}])";
    let absent = "!has(object.spec.nodeSelector) || !(p.split('=')[0] in object.spec.nodeSelector)";
    let add = "JSONPatch{op: 'add', path: '/spec/nodeSelector/' + jsonpatch.escapeKey(p.split('=')[0]), \
        value: p.split('=')[1]}";
    let keys = format!("variables.rules[{rule}].split(',').filter(p, {absent}).map(p, {add})");
    let expression = format!("{rule} in variables.rules ? {map} + {keys} : []");
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

/// The mutation that gives an object its class, if the namespace has a default. Conditions of a policy cannot do this:
/// kube-apiserver evaluates them without the namespace.
fn mutation(key: &str, field: &str) -> Value {
    let rule = rule(&format!("default-{key}"));
    if field != "priorityClassName" {
        let class = format!("Object{{spec: Object.spec{{{field}: variables.rules[{rule}]}}}}");
        let expression = format!("{rule} in variables.rules ? {class} : Object{{}}");
        return json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    }
    // The server computed the priority of no class before; it computes it anew where there is none.
    let remove = |field: &str| {
        format!("(has(object.spec.{field}) ? [JSONPatch{{op: 'remove', path: '/spec/{field}'}}] : [])")
    };
    let add = format!("[JSONPatch{{op: 'add', path: '/spec/{field}', value: variables.rules[{rule}]}}]");
    let patch = [add, remove("priority"), remove("preemptionPolicy")].join(" + ");
    let expression = format!("{rule} in variables.rules ? {patch} : []");
    json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
}

fn mutating_policy(
    name: &str,
    (group, resource): (&str, &str),
    condition: Option<Value>,
    mutation: Value,
) -> [Value; 2] {
    let name = format!("{name}.{GROUP}");
    let mut conditions = not_admins().as_array().cloned().unwrap_or_default();
    conditions.extend(condition);
    let (variable, expression) = rules();
    let policy = json!({
        "apiVersion": API_VERSION, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "namespaceSelector": {"matchExpressions": [{"key": TENANT_LABEL, "operator": "Exists"}]},
                "resourceRules": [{
                    "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["CREATE"],
                }],
            },
            "matchConditions": conditions,
            "variables": [{"name": variable, "expression": expression}],
            "mutations": [mutation],
        },
    });
    let binding = json!({
        "apiVersion": API_VERSION, "kind": "MutatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name},
    });
    [policy, binding]
}
