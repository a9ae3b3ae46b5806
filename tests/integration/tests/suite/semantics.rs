//! What Kubernetes does in places where it is easily done otherwise; its conformance tests found these.

use crate::{PATIENCE, contains_all, items, text};
use freehold_tests_integration::{Http, World, facts, until};
use http::Method;
use serde_json::{Value, json};

const PROJECT: &str = "semantics";
const DEFAULT: &str = "/api/v1/namespaces/default";

facts!(world:
    a_status_update_changes_the_metadata_that_its_kind_lets_it,
    a_custom_object_is_defaulted_by_its_schema_as_it_is_now,
    events_are_selected_by_what_reported_them,
    absent_flags_and_numbers_are_selected_as_false_and_zero,
    a_key_that_stands_twice_in_yaml_is_told_with_its_line,
    a_circle_of_owners_goes_with_any_of_them,
    policies_refuse_and_change_writes,
    a_plane_of_other_controllers_is_left_to_them,
    the_service_of_the_api_comes_back_when_it_is_deleted,
);

fn http(world: &World) -> Http {
    Http::of(&world.project(PROJECT))
}

fn made(http: &Http, path: &str, object: &Value) -> Value {
    let answer = http.json(Method::POST, path, object);
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body
}

fn a_status_update_changes_the_metadata_that_its_kind_lets_it(world: &World) {
    let http = http(world);
    let metadata = json!({"annotations": {"a": "b"}, "labels": {"c": "d"}});
    let service = json!({"metadata": {"name": "st"}, "spec": {"ports": [{"port": 80}]}});
    made(&http, &format!("{DEFAULT}/services"), &service);
    let containers = json!([{"name": "c", "image": "i"}]);
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}});
    let deployment = json!({
        "metadata": {"name": "st"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    made(&http, "/apis/apps/v1/namespaces/default/deployments", &deployment);
    let attachment = json!({
        "metadata": {"name": "st"},
        "spec": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
    });
    made(&http, "/apis/storage.k8s.io/v1/volumeattachments", &attachment);
    let rows = [
        (format!("{DEFAULT}/services/st"), "b", "d"),
        ("/apis/apps/v1/namespaces/default/deployments/st".to_owned(), "b", ""),
        ("/apis/storage.k8s.io/v1/volumeattachments/st".to_owned(), "", ""),
    ];
    for (path, annotation, label) in rows {
        let patch = json!({"metadata": metadata}).to_string();
        let answer =
            http.send(Method::PATCH, &format!("{path}/status"), "application/merge-patch+json", patch);
        assert_eq!(answer.code, 200, "{path}: {}", answer.body);
        let found = (text(&answer.body, "/metadata/annotations/a"), text(&answer.body, "/metadata/labels/c"));
        assert_eq!(found, (annotation, label), "{path}");
    }
}

fn a_custom_object_is_defaulted_by_its_schema_as_it_is_now(world: &World) {
    let http = http(world);
    let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let version =
        json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let crd = json!({
        "metadata": {"name": "laters.semantics.example.com"},
        "spec": {
            "group": "semantics.example.com", "scope": "Cluster", "versions": [version],
            "names": {"plural": "laters", "singular": "later", "kind": "Later", "listKind": "LaterList"},
        },
    });
    let mut crd = made(&http, crds, &crd);
    let laters = "/apis/semantics.example.com/v1/laters";
    let later = json!({"apiVersion": "semantics.example.com/v1", "kind": "Later", "metadata": {"name": "l"}});
    let first = made(&http, laters, &later);
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["a"]["default"] = "new".into();
    let answer = http.json(Method::PUT, &format!("{crds}/laters.semantics.example.com"), &crd);
    assert_eq!(answer.code, 200, "{}", answer.body);
    let read = until("the object is defaulted", PATIENCE, || {
        let read = http.get(&format!("{laters}/l")).body;
        (read["a"] == "new").then_some(read)
    });
    assert_eq!(text(&read, "/metadata/resourceVersion"), text(&first, "/metadata/resourceVersion"));
    assert_eq!(items(&http.get(laters).body).next().map(|item| text(item, "/a")), Some("new"));
}

fn events_are_selected_by_what_reported_them(world: &World) {
    let http = http(world);
    let of = |name: &str, source: Value, component: &str| {
        json!({
            "metadata": {"name": name}, "involvedObject": {"namespace": "default", "name": name},
            "source": source, "reportingComponent": component, "reason": "r", "type": "Normal",
        })
    };
    made(&http, &format!("{DEFAULT}/events"), &of("old", json!({"component": "semantics"}), ""));
    made(&http, &format!("{DEFAULT}/events"), &of("new", json!({}), "semantics"));
    for (path, selector, expected) in [
        (format!("{DEFAULT}/events"), "source=semantics", 2),
        (format!("{DEFAULT}/events"), "reportingComponent=semantics", 1),
        ("/apis/events.k8s.io/v1/namespaces/default/events".to_owned(), "regarding.name=old", 1),
        ("/apis/events.k8s.io/v1/namespaces/default/events".to_owned(), "reportingController=semantics", 1),
    ] {
        let list = http.get(&format!("{path}?fieldSelector={selector}")).body;
        assert_eq!(items(&list).count(), expected, "{selector}: {list}");
    }
}

fn absent_flags_and_numbers_are_selected_as_false_and_zero(world: &World) {
    let http = http(world);
    made(&http, "/api/v1/nodes", &json!({"metadata": {"name": "idle"}}));
    made(&http, "/api/v1/nodes", &json!({"metadata": {"name": "cordoned"}, "spec": {"unschedulable": true}}));
    for (selected, expected) in [("false", "idle"), ("true", "cordoned")] {
        let list = http.get(&format!("/api/v1/nodes?fieldSelector=spec.unschedulable={selected}")).body;
        assert_eq!(crate::names(&list), [expected]);
    }
}

fn a_key_that_stands_twice_in_yaml_is_told_with_its_line(world: &World) {
    let http = http(world);
    let apply = |query: &str| {
        let body = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: twice}\ndata:\n  a: '1'\n  a: '2'\n";
        let path = format!("{DEFAULT}/configmaps/twice?fieldManager=m&{query}");
        http.send(Method::PATCH, &path, "application/apply-patch+yaml", body)
    };
    let strict = apply("fieldValidation=Strict");
    assert_eq!(strict.code, 400, "{}", strict.body);
    contains_all(text(&strict.body, "/message"), &["line 6: key \"a\" already set in map"]);
    assert_eq!(text(&apply("fieldValidation=Ignore").body, "/data/a"), "2");
    let unknown = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: unknown}\nnothing: 1\n";
    let path = format!("{DEFAULT}/configmaps/unknown?fieldManager=m");
    let unknown = http.send(Method::PATCH, &path, "application/apply-patch+yaml", unknown);
    contains_all(text(&unknown.body, "/message"), &[".nothing: field not declared in schema"]);
}

fn a_circle_of_owners_goes_with_any_of_them(world: &World) {
    let http = http(world);
    let maps = format!("{DEFAULT}/configmaps");
    let uids: Vec<String> = ["circle-0", "circle-1", "circle-2"]
        .map(|name| {
            text(&made(&http, &maps, &json!({"metadata": {"name": name}})), "/metadata/uid").to_owned()
        })
        .to_vec();
    for own in 0..3 {
        let owner = (own + 2) % 3;
        let reference = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": format!("circle-{owner}"), "uid": uids[owner],
            "blockOwnerDeletion": true,
        });
        let patch = json!({"metadata": {"ownerReferences": [reference]}}).to_string();
        let path = format!("{maps}/circle-{own}");
        assert_eq!(http.send(Method::PATCH, &path, "application/merge-patch+json", patch).code, 200);
    }
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"});
    assert_eq!(http.json(Method::DELETE, &format!("{maps}/circle-0"), &options).code, 200);
    until("the circle is gone", PATIENCE, || {
        (0..3).all(|own| http.get(&format!("{maps}/circle-{own}")).code == 404).then_some(())
    });
}

fn policies_refuse_and_change_writes(world: &World) {
    let kubectl = world.namespace(PROJECT, "policed");
    let admission = "admissionregistration.k8s.io/v1";
    let rules = "resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]";
    let selector = "namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: policed}}";
    kubectl.apply(&format!(
        "
apiVersion: {admission}
kind: ValidatingAdmissionPolicy
metadata: {{name: few-keys}}
spec:
  matchConstraints: {{{rules}}}
  variables: [{{name: keys, expression: 'has(object.data) ? size(object.data) : 0'}}]
  validations: [{{expression: variables.keys < 3, message: too many keys}}]
---
apiVersion: {admission}
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: few-keys}}
spec: {{policyName: few-keys, validationActions: [Deny], matchResources: {{{selector}}}}}
---
apiVersion: {admission}
kind: MutatingAdmissionPolicy
metadata: {{name: mark}}
spec:
  matchConstraints: {{{rules}}}
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {{expression: 'Object{{metadata: Object.metadata{{labels: {{\"marked\": request.name}}}}}}'}}
---
apiVersion: {admission}
kind: MutatingAdmissionPolicyBinding
metadata: {{name: mark}}
spec: {{policyName: mark, matchResources: {{{selector}}}}}
"
    ));
    kubectl.ok(&["create", "configmap", "few", "--from-literal=a=1"]);
    let few = kubectl.json(&["get", "configmap", "few"]);
    assert_eq!(text(&few, "/metadata/labels/marked"), "few");
    let many =
        ["create", "configmap", "many", "--from-literal=a=1", "--from-literal=b=1", "--from-literal=c=1"];
    let refused = kubectl.fails(&many);
    contains_all(&refused, &["ValidatingAdmissionPolicy 'few-keys'", "too many keys"]);
    kubectl.ok(&[&many[..], &["--namespace", "default"]].concat());
    kubectl.ok(&["delete", "validatingadmissionpolicybinding", "few-keys"]);
    kubectl.ok(&many);
}

fn a_plane_of_other_controllers_is_left_to_them(world: &World) {
    let admin = world.admin();
    let class = |controllers: &str| {
        admin.apply(&format!(
            "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: ControlPlaneClass\n\
             metadata: {{name: left-alone}}\nspec: {{controllers: {controllers}}}\n"
        ));
    };
    class("External");
    world.organization("left-alone", &[]);
    admin.apply(
        "apiVersion: resourcemanager.freehold.dev/v1alpha1\nkind: Project\nmetadata: {name: left-alone}\n\
         spec: {ownerRef: {kind: Organization, name: left-alone}, controlPlane: {class: left-alone}}\n",
    );
    world.wait_ready("left-alone");
    let kubectl = world.server().project("left-alone");
    // Those of another plane have done their work by the time that these would have. Controllers may learn of the project
    // before they learn of its class.
    let mut nth = 0;
    let here = until("its controllers leave it alone", PATIENCE, || {
        nth += 1;
        let here = format!("here-{nth}");
        kubectl.ok(&["create", "namespace", &here]);
        let other = world.namespace(PROJECT, &format!("there-{nth}"));
        other.ok(&["wait", "--for=create", "serviceaccount/default", "--timeout=120s"]);
        let account = kubectl.run(&["get", "--namespace", &here, "serviceaccount", "default"]);
        (!account.success).then_some(here)
    });
    class("Freehold");
    until("the plane is taken back", PATIENCE, || {
        let found = kubectl.run(&["get", "--namespace", &here, "serviceaccount", "default", "-o", "name"]);
        found.success.then_some(())
    });
    admin.ok(&["delete", "project", "left-alone"]);
}

fn the_service_of_the_api_comes_back_when_it_is_deleted(world: &World) {
    let kubectl = world.project("standing");
    let service = || kubectl.json(&["get", "service", "kubernetes"]);
    let first = service();
    kubectl.ok(&["patch", "service", "kubernetes", "-p", r#"{"metadata":{"labels":{"mine":"yes"}}}"#]);
    let mut uids = vec![text(&first, "/metadata/uid").to_owned()];
    for _ in 0..2 {
        // kubectl waits for it to be gone: another one has another uid.
        kubectl.ok(&["delete", "service", "kubernetes", "--timeout=120s"]);
        let anew = service();
        assert_eq!(anew["spec"], first["spec"]);
        assert_eq!(anew["metadata"]["labels"], first["metadata"]["labels"]);
        uids.push(text(&anew, "/metadata/uid").to_owned());
    }
    uids.dedup();
    assert_eq!(uids.len(), 3, "{uids:?}");
}
