//! Policies and webhooks that come with an export: they look at objects of its types in each consumer's plane, and at
//! nothing else there.
//!
//! Whoever calls them decides which writes they see; their own rules can only narrow that. They are given the write and
//! who makes it, and no other object, namespace or permission of the plane ([`Sealed`]).

pub use crate::sealed::{MAX, Sealed};
use crate::{
    policy::{Binding, Bound, Policy},
    webhook::{Configuration, Webhook},
};
use freehold_machinery::{PlaneId, Value, status::FieldError};
use serde_json::json;
use std::sync::Arc;

/// Bytes that one policy or webhook may have.
const MAX_SIZE: usize = 64 << 10;
/// The longest time that a webhook may take, in seconds.
const MAX_TIMEOUT: u64 = 10;
/// The API version of the objects that they are checked as.
const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// The policies and webhooks of one export, compiled.
#[derive(Debug, Default)]
pub struct Bundle {
    /// Policies that refuse writes.
    pub validating: Vec<Bound>,
    /// Policies that change objects.
    pub mutating: Vec<Bound>,
    /// Webhooks that refuse writes.
    pub validating_hooks: Option<Arc<Configuration>>,
    /// Webhooks that change objects.
    pub mutating_hooks: Option<Arc<Configuration>>,
}

/// One policy or webhook of an export as the object of Kubernetes that it would be in a plane.
#[derive(Debug)]
pub struct Bundled {
    /// Where it stands in the export.
    pub path: String,
    /// The resource of the object, in `admissionregistration.k8s.io`.
    pub resource: &'static str,
    /// The object.
    pub object: Value,
}

fn is_mutating(value: &Value) -> bool {
    value["kind"] == "Mutating"
}

fn items<'v>(spec: &'v Value, field: &str) -> &'v [Value] {
    spec[field].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn policy(value: &Value) -> Value {
    let mut spec = value["spec"].clone();
    if spec.is_object() && spec["matchConstraints"].is_null() {
        spec["matchConstraints"] = json!({"resourceRules": [
            {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*"]}]});
    }
    let kind = if is_mutating(value) { "MutatingAdmissionPolicy" } else { "ValidatingAdmissionPolicy" };
    json!({"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": value["name"]}, "spec": spec})
}

fn webhook(value: &Value) -> Value {
    let mut hook = value["webhook"].clone();
    if hook.is_object() && hook["rules"].is_null() {
        hook["rules"] = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*"]}]);
    }
    let kind = if is_mutating(value) { "Mutating" } else { "Validating" };
    json!({"apiVersion": API_VERSION, "kind": format!("{kind}WebhookConfiguration"), "metadata": {"name": "bundled"}, "webhooks": [hook]})
}

/// The policies and webhooks of an export's spec as objects of Kubernetes, to be checked as such.
pub fn objects(spec: &Value) -> Vec<Bundled> {
    let of = |(field, resources, make): (&str, [&'static str; 2], fn(&Value) -> Value)| {
        let one = |(nth, value): (usize, &Value)| Bundled {
            path: format!("spec.{field}[{nth}]"),
            resource: resources[usize::from(is_mutating(value))],
            object: make(value),
        };
        items(spec, field).iter().enumerate().map(one).collect::<Vec<_>>()
    };
    let mut all = of(("policies", [crate::policy::VALIDATING[0], crate::policy::MUTATING[0]], policy));
    all.extend(of(("webhooks", [crate::webhook::VALIDATING, crate::webhook::MUTATING], webhook)));
    all
}

/// What the policies and webhooks of an export's spec may not have, beside what Kubernetes refuses in them: whatever
/// would show the provider more of a consumer than the write.
pub fn wrong(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for Bundled { path, object, .. } in objects(spec) {
        if object.to_string().len() > MAX_SIZE {
            errors.push(FieldError::forbidden(&*path, format!("must have at most {MAX_SIZE} bytes")));
            continue;
        }
        let of_policy = object["spec"].is_object();
        let own = if of_policy { &object["spec"] } else { &object["webhooks"][0] };
        let path = format!("{path}.{}", if of_policy { "spec" } else { "webhook" });
        let why = "consumers' namespaces, parameters and audit logs are not the provider's";
        let not_here = ["paramKind", "auditAnnotations", "namespaceSelector"];
        errors.extend(
            not_here
                .iter()
                .filter(|field| !own[**field].is_null())
                .map(|field| FieldError::forbidden(format!("{path}.{field}"), why)),
        );
        if !own["matchConstraints"]["namespaceSelector"].is_null() {
            errors.push(FieldError::forbidden(format!("{path}.matchConstraints.namespaceSelector"), why));
        }
        if own["timeoutSeconds"].as_u64().is_some_and(|seconds| seconds > MAX_TIMEOUT) {
            let why = format!("must be at most {MAX_TIMEOUT}");
            errors.push(FieldError::invalid(
                format!("{path}.timeoutSeconds"),
                own["timeoutSeconds"].clone(),
                why,
            ));
        }
        let names = if of_policy {
            Policy::of(&object).reads_plane()
        } else {
            Configuration::of(&object).webhooks.iter().any(Webhook::reads_plane)
        };
        if names {
            let why = "its expressions can name object, oldObject, request and variables, and nothing else of the consumer";
            errors.push(FieldError::forbidden(path, why));
        }
    }
    errors
}

impl Bundle {
    /// The policies and webhooks of an export's spec, which was checked when it was written. `home` is the plane on whose
    /// behalf its webhooks are called.
    pub fn of(export: &str, home: &PlaneId, spec: &Value) -> Self {
        let mut bundle = Self::default();
        for value in items(spec, "policies").iter().take(MAX) {
            let name = format!("{export}/{}", value["name"].as_str().unwrap_or_default());
            let mut object = policy(value);
            object["metadata"]["name"] = name.clone().into();
            let actions = match items(value, "actions") {
                [] => json!(["Deny"]),
                given => given.into(),
            };
            let binding = json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": actions}});
            let bound = Bound {
                policy: Arc::new(Policy::of(&object)),
                bindings: vec![Arc::new(Binding::of(&binding))],
                is_bundled: true,
            };
            if is_mutating(value) { &mut bundle.mutating } else { &mut bundle.validating }.push(bound);
        }
        let hooks = |mutating: bool| {
            let own = items(spec, "webhooks").iter().take(MAX).filter(|value| is_mutating(value) == mutating);
            let hooks: Vec<Webhook> = own
                .flat_map(|value| Configuration::of(&webhook(value)).webhooks)
                .map(|mut hook| {
                    hook.configuration = export.to_owned();
                    hook.home = Some(home.clone());
                    hook
                })
                .collect();
            (!hooks.is_empty()).then(|| Arc::new(Configuration { webhooks: hooks }))
        };
        bundle.validating_hooks = hooks(false);
        bundle.mutating_hooks = hooks(true);
        bundle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reads_more_of_a_consumer_than_the_write_is_refused() {
        let policy = |spec: Value| json!({"policies": [{"name": "p", "spec": spec}]});
        let hook = |given: Value| json!({"webhooks": [{"kind": "Validating", "webhook": given}]});
        let rows = [
            (policy(json!({"validations": [{"expression": "object.spec.size < 5"}]})), 0),
            (policy(json!({"validations": [{"expression": "request.userInfo.username != 'a'"}]})), 0),
            (policy(json!({"validations": [{"expression": "namespaceObject.metadata.name == 'a'"}]})), 1),
            (
                policy(
                    json!({"validations": [{"expression": "authorizer.path('/x').check('get').allowed()"}]}),
                ),
                1,
            ),
            (policy(json!({"paramKind": {"apiVersion": "v1", "kind": "Secret"}})), 1),
            (policy(json!({"matchConstraints": {"namespaceSelector": {"matchLabels": {"a": "b"}}}})), 1),
            (policy(json!({"auditAnnotations": [{"key": "a", "valueExpression": "'b'"}]})), 1),
            (
                policy(json!({"validations": [{"expression": format!("'{}' == ''", "x".repeat(70 << 10))}]})),
                1,
            ),
            (hook(json!({"timeoutSeconds": 5})), 0),
            (hook(json!({"timeoutSeconds": 30})), 1),
            (hook(json!({"namespaceSelector": {}})), 1),
            (hook(json!({"matchConditions": [{"name": "a", "expression": "namespaceObject == null"}]})), 1),
        ];
        for (spec, expected) in rows {
            assert_eq!(wrong(&spec).len(), expected, "{spec}");
        }
    }

    #[test]
    fn each_sort_has_its_place_and_webhooks_are_called_for_the_provider() {
        let spec = json!({
            "policies": [{"name": "a", "spec": {}}, {"name": "b", "kind": "Mutating", "spec": {}}],
            "webhooks": [{"kind": "Mutating", "webhook": {"name": "w", "clientConfig": {"url": "https://a"}}}],
        });
        let bundle = Bundle::of("pg", &PlaneId::infra(), &spec);
        assert_eq!((bundle.validating.len(), bundle.mutating.len()), (1, 1));
        assert!(bundle.validating_hooks.is_none());
        let hooks = bundle.mutating_hooks.unwrap();
        assert_eq!(hooks.webhooks[0].home, Some(PlaneId::infra()));
    }
}
