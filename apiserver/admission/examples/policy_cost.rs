//! What a validating policy costs a write, in CPU time: `cargo run --release -p freehold-apiserver-admission --example
//! policy_cost`.

use freehold_apiserver_admission::{
    Annotations, Attributes, Lookup, Permission, Verb,
    policy::{Binding, Bound, Policy, validate},
};
use freehold_machinery::{
    PlaneId, ResourceType, User, Value,
    resource::{Conversion, LazySchema, StorageAs},
};
use serde_json::json;
use std::{sync::Arc, time::Instant};

struct Nothing;

impl Lookup for Nothing {
    fn get(&self, _: &PlaneId, _: &str, _: &str, _: &str, _: &str) -> Option<Arc<Value>> {
        None
    }

    fn list(&self, _: &PlaneId, _: &str, _: &str, _: &str) -> Vec<Arc<Value>> {
        Vec::new()
    }

    fn allows(&self, _: &PlaneId, _: &User, _: &Permission<'_>) -> bool {
        true
    }

    fn resource_of(&self, _: &PlaneId, _: &str, _: &str) -> Option<(String, bool)> {
        None
    }
}

fn deployments() -> ResourceType {
    ResourceType {
        group: "apps".into(),
        version: "v1".into(),
        kind: "Deployment".into(),
        list_kind: String::new(),
        plural: "deployments".into(),
        singular: String::new(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: true,
        verbs: Vec::new(),
        subresources: Vec::new(),
        storage: StorageAs {
            group: "apps".into(),
            resource: "deployments".into(),
            api_version: "apps/v1".into(),
            conversion: Conversion::None,
        },
        schema: LazySchema::ready(None),
        stored_schema: None,
        columns: Vec::new(),
        selectable_fields: Vec::new(),
        generation: true,
        custom: false,
        deprecation: None,
        terminating: false,
        contexts: Vec::new(),
        since: 0,
        openapi: Default::default(),
        hash: String::new(),
    }
}

fn main() {
    let rules = json!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}]);
    let policy = |validations: Value| json!({"metadata": {"name": "p"}, "spec": {"matchConstraints": {"resourceRules": rules}, "validations": validations}});
    let rows = [
        ("object.spec.replicas <= 5", json!([{"expression": "object.spec.replicas <= 5"}])),
        (
            "all containers from one registry",
            json!([{"expression": "object.spec.template.spec.containers.all(c, c.image.startsWith('registry.example.com/'))"}]),
        ),
        (
            "three rules, one on the request",
            json!([
                {"expression": "object.spec.replicas <= 5"},
                {"expression": "has(object.metadata.labels) && 'app' in object.metadata.labels"},
                {"expression": "request.operation != 'UPDATE' || request.userInfo.username != ''"},
            ]),
        ),
    ];
    let (plane, user, ty, annotations) =
        (PlaneId::core(), User::default(), deployments(), Annotations::default());
    let container = |n: usize| {
        json!({"name": format!("c{n}"), "image": "registry.example.com/app:1", "env": [{"name": "A", "value": "b"}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}})
    };
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "default", "labels": {"app": "a"}, "annotations": {"x": "y"}},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": {"metadata": {"labels": {"app": "a"}},
            "spec": {"containers": [container(1), container(2), container(3)]}}}});
    let options = Value::Null;
    let binding = Arc::new(Binding::of(
        &json!({"metadata": {"name": "b"}, "spec": {"policyName": "p", "validationActions": ["Deny"]}}),
    ));
    for (name, validations) in rows {
        let policy = Arc::new(Policy::of(&policy(validations)));
        let bound = Bound::join(vec![policy], std::slice::from_ref(&binding));
        let mut times: Vec<u128> = (0..20_000)
            .map(|_| {
                let attributes = Attributes {
                    plane: &plane,
                    user: &user,
                    verb: Verb::Create,
                    ty: &ty,
                    namespace: "default",
                    name: "d",
                    subresource: "",
                    object: Some(&mut object),
                    old: None,
                    dry_run: false,
                    options: &options,
                    annotations: &annotations,
                };
                let begun = Instant::now();
                let outcome = validate(&attributes, &Nothing, &bound);
                let took = begun.elapsed().as_nanos();
                assert_eq!(outcome, Ok(Vec::new()));
                took
            })
            .collect();
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 100] as f64 / 1000.0;
        println!("{name}: {:.1} us at the median, {:.1} us at the 90th percentile", at(50), at(90));
    }
}
