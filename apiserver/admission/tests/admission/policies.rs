//! Admission policies, as they are seen by those who write.

use crate::world::*;
use freehold_apiserver_admission::{
    Authorize, Check, Lookup, Permission,
    policy::{self, Binding, Bound, Expressions, Form, Gives, Policy},
};
use freehold_machinery::{PlaneId, Status, User, Value};
use serde_json::json;
use std::sync::Arc;

fn deployments() -> Value {
    json!({"resourceRules": [{
        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"],
    }]})
}

/// A policy with its binding.
fn bound(mut spec: Value, binding: Value) -> Vec<Bound> {
    if spec["matchConstraints"].is_null() {
        spec["matchConstraints"] = deployments();
    }
    let policy = json!({"metadata": {"name": "p"}, "spec": spec});
    let mut binding = json!({"metadata": {"name": "b"}, "spec": binding});
    binding["spec"]["policyName"] = "p".into();
    Bound::join(vec![Arc::new(Policy::of(&policy))], &[Arc::new(Binding::of(&binding))])
}

fn deny() -> Value {
    json!({"validationActions": ["Deny"]})
}

fn deployment(replicas: i64) -> Value {
    named("web", json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": replicas}}))
}

fn world() -> World {
    World::new(vec![
        ("", "namespaces", named("ns", json!({"metadata": {"labels": {"policed": "true"}}}))),
        ("", "configmaps", in_ns("limits", json!({"data": {"most": "3"}}))),
    ])
}

fn validated(replicas: i64, policies: &[Bound]) -> Result<Vec<String>, Status> {
    let mut object = deployment(replicas);
    let write = create("apps/deployments", object.clone());
    write.with(&mut object, |attributes| policy::validate(attributes, &world(), policies))
}

fn mutated(object: &mut Value, policies: &[Bound]) -> Result<bool, Status> {
    let write = create("apps/deployments", object.clone());
    write.with(object, |attributes| {
        let schema = attributes.ty.schema.get().cloned();
        policy::mutate(attributes, &world(), policies, &Form { schema: schema.as_deref(), settle: &|_| {} })
    })
}

#[test]
fn a_write_that_breaks_a_validation_is_refused_in_its_words() {
    let validation = json!({
        "expression": "object.spec.replicas > 1",
        "messageExpression": "'wants more than 1, got ' + string(object.spec.replicas)",
    });
    let policies = bound(json!({"validations": [validation]}), deny());
    assert!(validated(2, &policies).is_ok());
    let refused = validated(1, &policies).unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    let words = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: wants more than 1, got 1";
    assert!(refused.message.ends_with(words), "{}", refused.message);
}

#[test]
fn a_variable_that_no_expression_comes_to_read_is_not_computed() {
    let variables = json!([
        {"name": "template", "expression": "object.spec.template"},
        {"name": "named", "expression": "variables.template.metadata.name"},
    ]);
    let validate = |expression: &str| {
        let spec = json!({"variables": variables, "validations": [{"expression": expression}]});
        validated(1, &bound(spec, deny()))
    };
    assert!(validate("!has(object.spec.template) || variables.named == 'a'").is_ok());
    let refused = validate("variables.named == 'a'").unwrap_err();
    let words = "composited variable \"named\" fails to evaluate: composited variable \"template\" fails to evaluate: \
                 no such key: template";
    assert!(refused.message.ends_with(words), "{}", refused.message);
}

/// A million for an expression, ten for all validations of a policy.
#[test]
fn expressions_of_a_policy_have_a_budget_together() {
    let sum = "lists.range(90000).map(x, x).size() > 0";
    let validations =
        |count: usize| bound(json!({"validations": vec![json!({"expression": sum}); count]}), deny());
    assert!(validated(1, &validations(1)).is_err(), "copies and costs more than one expression may");
    let sum = "lists.range(30000).all(x, x >= 0)";
    let validations =
        |count: usize| bound(json!({"validations": vec![json!({"expression": sum}); count]}), deny());
    assert!(validated(1, &validations(40)).is_ok());
    let refused = validated(1, &validations(60)).unwrap_err();
    assert!(refused.message.contains("running out of cost budget"), "{}", refused.message);
}

#[test]
fn a_policy_looks_only_at_what_it_matches() {
    let never = json!([{"expression": "false", "reason": "Forbidden"}]);
    let policies = bound(json!({"validations": never}), deny());
    assert_eq!(validated(1, &policies).unwrap_err().code, 403);
    for (label, refused) in [("true", true), ("false", false)] {
        let binding = json!({
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": {"matchLabels": {"policed": label}}},
        });
        let policies = bound(json!({"validations": never}), binding);
        assert_eq!(validated(1, &policies).is_err(), refused, "{label}");
    }
    let pods = json!({"resourceRules": [{
        "apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods", "*/scale"],
    }]});
    let policies = bound(json!({"validations": never, "matchConstraints": pods}), deny());
    assert!(validated(1, &policies).is_ok());
    let conditions = json!([{"name": "large", "expression": "object.spec.replicas > 5"}]);
    let policies = bound(json!({"validations": never, "matchConditions": conditions}), deny());
    assert!(validated(1, &policies).is_ok());
    assert!(validated(6, &policies).is_err());
}

#[test]
fn a_policy_that_warns_lets_through() {
    let spec = json!({"validations": [{"expression": "false", "message": "no"}]});
    let warnings = validated(1, &bound(spec, json!({"validationActions": ["Warn"]}))).unwrap();
    assert_eq!(warnings, ["Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': no"]);
}

#[test]
fn expressions_read_variables_parameters_namespace_and_request() {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "variables": [
            {"name": "replicas", "expression": "object.spec.replicas"},
            {"name": "odd", "expression": "variables.replicas % 2 == 1"},
        ],
        "validations": [
            {"expression": "variables.odd && variables.replicas <= int(params.data.most)"},
            {"expression": "request.operation == 'CREATE' && request.userInfo.username == 'jane'"},
            {"expression": "namespaceObject.metadata.labels.policed == 'true' && oldObject == null"},
        ],
    });
    let param = |name: &str| {
        let reference = json!({"name": name, "parameterNotFoundAction": "Deny"});
        json!({"validationActions": ["Deny"], "paramRef": reference})
    };
    for (replicas, fine) in [(3, true), (2, false), (5, false)] {
        assert_eq!(validated(replicas, &bound(spec.clone(), param("limits"))).is_ok(), fine, "{replicas}");
    }
    let missing = validated(3, &bound(spec, param("none"))).unwrap_err();
    assert!(missing.message.contains("no params found for policy binding"), "{}", missing.message);
}

#[test]
fn a_policy_that_cannot_be_evaluated_fails_the_write_unless_it_may_not() {
    let broken = json!([{"expression": "object.spec.nope > 1"}]);
    let refused = validated(1, &bound(json!({"validations": broken}), deny())).unwrap_err();
    assert!(refused.message.contains("resulted in error: no such key: nope"), "{}", refused.message);
    let spec = json!({"validations": broken, "failurePolicy": "Ignore"});
    assert!(validated(1, &bound(spec, deny())).is_ok());
}

#[test]
fn a_mutation_is_merged_into_the_object() {
    let expression =
        "Object{metadata: Object.metadata{annotations: {'by': 'policy'}}, spec: Object.spec{replicas: 7}}";
    let mutation =
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    let policies = bound(json!({"mutations": [mutation]}), json!({}));
    let mut object = deployment(1);
    assert!(mutated(&mut object, &policies).unwrap());
    assert_eq!(object["spec"]["replicas"], 7);
    assert_eq!(object["metadata"], json!({"name": "web", "annotations": {"by": "policy"}}));
    assert!(!mutated(&mut object, &policies).unwrap(), "nothing is left to change");
}

#[test]
fn a_mutation_can_be_a_list_of_operations() {
    let expression = "[JSONPatch{op: 'replace', path: '/spec/replicas', value: object.spec.replicas + 1}]";
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    let mut object = deployment(1);
    assert!(mutated(&mut object, &bound(json!({"mutations": [mutation]}), json!({}))).unwrap());
    assert_eq!(object["spec"]["replicas"], 2);
}

#[test]
fn a_mutation_of_something_that_is_no_object_fails_the_write() {
    let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "1 + 1"}});
    let refused =
        mutated(&mut deployment(1), &bound(json!({"mutations": [mutation]}), json!({}))).unwrap_err();
    assert_eq!((refused.code, refused.reason.as_str()), (403, "Invalid"));
    assert!(refused.message.contains("policy 'p' with binding 'b' denied request"), "{}", refused.message);
}

fn patches(expressions: &[&str]) -> Value {
    let patch = |expression| json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    expressions.iter().map(patch).collect()
}

#[test]
fn operations_behind_a_test_that_does_not_hold_are_left_out() {
    let tested =
        "[JSONPatch{op: 'test', path: '/spec/replicas', value: 9}, JSONPatch{op: 'remove', path: '/spec'}]";
    let mut object = deployment(1);
    assert!(!mutated(&mut object, &bound(json!({"mutations": patches(&[tested])}), json!({}))).unwrap());
    assert_eq!(object, deployment(1));
}

#[test]
fn a_mutation_that_fails_keeps_no_other_from_being_applied() {
    let fails = "[JSONPatch{op: 'remove', path: '/nope'}]";
    let works = "[JSONPatch{op: 'replace', path: '/spec/replicas', value: 5}]";
    let spec = json!({"mutations": patches(&[fails, works]), "failurePolicy": "Ignore"});
    let mut object = deployment(1);
    assert!(mutated(&mut object, &bound(spec, json!({}))).unwrap());
    assert_eq!(object["spec"]["replicas"], 5);
}

#[test]
fn a_mutation_makes_no_object_of_another_kind() {
    let other = "[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]";
    let mut object = deployment(1);
    let policies = bound(json!({"mutations": patches(&[other]), "failurePolicy": "Ignore"}), json!({}));
    assert_eq!(mutated(&mut object, &policies).unwrap_err().code, 500);
    assert_eq!(object["kind"], "Deployment");
}

#[test]
fn a_variable_that_fails_is_told_by_its_name() {
    let spec = json!({"validations": [{"expression": "variables.v == 1"}],
        "variables": [{"name": "v", "expression": "object.spec.nope"}]});
    let refused = validated(1, &bound(spec, deny())).unwrap_err();
    let said = "expression 'variables.v == 1' resulted in error: composited variable \"v\" fails to evaluate: no such key: nope";
    assert!(refused.message.ends_with(said), "{}", refused.message);
}

/// Nobody may do anything but delete pods.
#[derive(Debug)]
struct PodsAlone;

impl Authorize for PodsAlone {
    fn check(&self, check: &Check) -> Result<(bool, String), String> {
        match check.service_account {
            Some(_) => Err("no accounts here".to_owned()),
            None => {
                Ok((check.verb == "delete" && check.resource == "pods", format!("asked about {check:?}")))
            }
        }
    }
}

/// A world that has an authorizer.
struct Guarded(World);

impl Lookup for Guarded {
    fn get(&self, plane: &PlaneId, group: &str, resource: &str, ns: &str, name: &str) -> Option<Arc<Value>> {
        self.0.get(plane, group, resource, ns, name)
    }

    fn list(&self, plane: &PlaneId, group: &str, resource: &str, namespace: &str) -> Vec<Arc<Value>> {
        self.0.list(plane, group, resource, namespace)
    }

    fn allows(&self, plane: &PlaneId, user: &User, permission: &Permission<'_>) -> bool {
        self.0.allows(plane, user, permission)
    }

    fn resource_of(&self, plane: &PlaneId, api_version: &str, kind: &str) -> Option<(String, bool)> {
        self.0.resource_of(plane, api_version, kind)
    }

    fn authorizer(&self, _: &PlaneId, _: &User) -> Option<Arc<dyn Authorize>> {
        Some(Arc::new(PodsAlone))
    }
}

#[test]
fn an_expression_asks_what_users_may_do() {
    let holds = |expression: &str| {
        let policies = bound(json!({"validations": [{"expression": expression}]}), deny());
        let mut object = deployment(1);
        let write = create("apps/deployments", object.clone());
        let outcome =
            write.with(&mut object, |attributes| policy::validate(attributes, &Guarded(world()), &policies));
        outcome.map_err(|status| status.message)
    };
    for expression in [
        "authorizer.group('').resource('pods').namespace('a').check('delete').allowed()",
        "!authorizer.group('').resource('pods').check('get').allowed()",
        "!authorizer.requestResource.check('create').allowed()",
        "authorizer.requestResource.check('create').reason().contains('deployments')",
        "!authorizer.path('/metrics').check('get').allowed()",
        "authorizer.serviceAccount('ns', 'a').group('').resource('pods').check('delete').errored()",
        "authorizer.serviceAccount('ns', 'a').group('').resource('pods').check('delete').error() == 'no accounts here'",
    ] {
        assert_eq!(holds(expression), Ok(Vec::new()), "{expression}");
    }
    // A check costs 350,000 of the million that an expression may cost.
    let checks = |count: usize| {
        let checks = vec!["!authorizer.requestResource.check('x').allowed()"; count].join(" && ");
        holds(&checks)
    };
    assert_eq!(checks(2), Ok(Vec::new()));
    assert!(checks(3).unwrap_err().contains("operation cancelled: actual cost limit exceeded"));
}

#[test]
fn a_policy_says_what_it_finds_to_the_audit_log() {
    let spec = json!({
        "validations": [{"expression": "object.spec.replicas > 5", "message": "too few"}],
        "auditAnnotations": [
            {"key": "replicas", "valueExpression": "'it has ' + string(object.spec.replicas)"},
            {"key": "none", "valueExpression": "object.spec.replicas > 100 ? 'many' : null"},
        ],
    });
    let policies = bound(spec, json!({"validationActions": ["Audit"]}));
    let mut object = deployment(1);
    let write = create("apps/deployments", object.clone());
    let said = write.with(&mut object, |attributes| {
        policy::validate(attributes, &world(), &policies).unwrap();
        attributes.annotations.all()
    });
    let keys: Vec<&str> = said.keys().map(String::as_str).collect();
    assert_eq!(keys, ["p/replicas", "validation.policy.admission.k8s.io/validation_failure"]);
    assert_eq!(said["p/replicas"], "it has 1");
    let failures: Value = serde_json::from_str(&said[keys[1]]).unwrap();
    assert_eq!(
        failures,
        json!([{"message": "too few", "policy": "p", "binding": "b", "expressionIndex": 0, "validationActions": ["Audit"]}])
    );
}

#[test]
fn expressions_are_typed_when_they_are_written() {
    let said = |variables: Value, source: &str| {
        let expressions = Expressions::of(&json!({ "variables": variables }));
        expressions.wrong(source, Gives::Truth).unwrap_or_default()
    };
    let none = || json!([]);
    let fine = "object.spec.replicas > 1 && authorizer.requestResource.check('x').allowed()";
    assert_eq!(said(none(), fine), "");
    assert_eq!(said(none(), "1 + 1"), "must evaluate to bool but got int");
    assert!(said(none(), "request.nothing == 1").contains("undefined field 'nothing'"));
    assert!(said(none(), "variables.a").contains("undeclared reference to 'variables'"));
    let variables = json!([{"name": "a", "expression": "1"}]);
    assert!(said(variables, "variables.a.b").contains("type 'int' does not support field selection"));
    for wrong in ["object.", "nobody > 1", "params.x"] {
        assert_ne!(said(none(), wrong), "", "{wrong:?}");
    }
}
