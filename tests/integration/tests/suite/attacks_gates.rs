//! What is posted and done rather than stored passes admission: tokens, bindings, evictions, connections, reviews.

use crate::{PATIENCE, contains_all, text};
use freehold_tests_integration::{
    Engine, HookServer, Http, Kubectl, Options, Server, World, facts, patching, until, world,
};
use http::Method;
use serde_json::{Value, json};

facts!(engine:
    a_node_gets_tokens_for_its_own_pods_alone_and_evicts_those_alone,
    webhooks_see_what_is_posted_as_it_is_posted,
    a_policy_refuses_tokens_bindings_and_evictions,
    a_webhook_changes_what_is_posted,
);

/// A user of the group of nodes.
const NODE: [&str; 2] = ["--as=system:node:mine", "--as-group=system:nodes"];

const NODES: &str = "---
{apiVersion: v1, kind: Node, metadata: {name: mine}}
---
{apiVersion: v1, kind: Node, metadata: {name: other}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: builder}}
---
{apiVersion: v1, kind: Pod, metadata: {name: here}, spec: {nodeName: mine, containers: [{name: c, image: i}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: there}, spec: {nodeName: other, containers: [{name: c, image: i}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: nowhere}, spec: {containers: [{name: c, image: i}]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: a-node}
rules: [{apiGroups: [''], resources: [serviceaccounts/token, pods/eviction, pods/binding, bindings], verbs: [create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: a-node}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: a-node}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:nodes}]
";

/// Posts an object as a node.
fn post(kubectl: &Kubectl, path: &str, object: &Value) -> freehold_tests_integration::Output {
    let path = format!("/api/v1/namespaces/default/{path}");
    let args = [&["create", "--raw", &path, "-f", "-"][..], &NODE].concat();
    kubectl.run_with_input(&args, &object.to_string())
}

fn a_node_gets_tokens_for_its_own_pods_alone_and_evicts_those_alone(engine: Engine) {
    let args = vec!["--enable-admission-plugins=NodeRestriction".to_owned()];
    let server = Server::start(Options { engine, args, ..Options::default() });
    let kubectl = server.kubectl();
    kubectl.apply(NODES);
    until("the binding counts", PATIENCE, || {
        let asked =
            [&["auth", "can-i", "create", "serviceaccounts", "--subresource=token"][..], &NODE].concat();
        kubectl.run(&asked).success.then_some(())
    });
    let uid = |pod: &str| text(&kubectl.json(&["get", "pod", pod]), "/metadata/uid").to_owned();
    let request = |bound: Value, audiences: &[&str]| {
        json!({"apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest", "spec": {"boundObjectRef": bound, "audiences": audiences}})
    };
    let pod = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid});
    let (here, there) = (uid("here"), uid("there"));
    let rows = [
        ("builder", request(Value::Null, &[]), "node requested token not bound to a pod"),
        (
            "builder",
            request(json!({"apiVersion": "v1", "kind": "Secret", "name": "s"}), &[]),
            "node requested token not bound to a pod",
        ),
        ("default", request(pod("here", ""), &[]), "node requested token with a pod binding without a uid"),
        (
            "default",
            request(pod("there", &there), &[]),
            "node requested token bound to a pod scheduled on a different node",
        ),
        ("default", request(pod("here", &there), &[]), "does not match the UID in record"),
        (
            "default",
            request(pod("here", &here), &["vault"]),
            "audience \"vault\" not found in pod spec volume",
        ),
        (
            "builder",
            request(pod("here", &here), &[]),
            "cannot bind token for serviceaccount \"builder\" to pod running with different serviceaccount name",
        ),
    ];
    for (account, request, why) in rows {
        let refused = post(&kubectl, &format!("serviceaccounts/{account}/token"), &request).expect_failure();
        contains_all(&refused, &[why]);
    }
    let own = request(pod("here", &here), &[]);
    let given = post(&kubectl, "serviceaccounts/default/token", &own).expect_ok();
    let given: Value = serde_json::from_str(&given).expect("a TokenRequest");
    assert!(text(&given, "/status/token").starts_with("ey"), "{given}");

    let named = |kind: &str, version: &str, name: &str| {
        json!({"apiVersion": version, "kind": kind,
        "metadata": {"name": name}, "target": {"name": "mine"}})
    };
    let eviction =
        |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let refused = post(&kubectl, "pods/there/eviction", &eviction("there")).expect_failure();
    contains_all(&refused, &["node mine can only evict pods with spec.nodeName set to itself"]);
    let refused = post(&kubectl, "pods/nowhere/binding", &named("Binding", "v1", "nowhere")).expect_failure();
    contains_all(&refused, &["unexpected pod subresource \"binding\""]);
    post(&kubectl, "pods/here/eviction", &eviction("here")).expect_ok();
}

/// A namespace of a project with Pods and an account, and requests to it.
fn prepared(world: &World, name: &str) -> (Kubectl, Http) {
    let kubectl = world.namespace("gates", name);
    let pods = ["a", "b", "c"].map(|pod| {
        format!(
            "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {pod}}},
              spec: {{containers: [{{name: c, image: i}}]}}}}\n"
        )
    });
    kubectl.apply(&pods.concat());
    let http = Http::of(&kubectl);
    (kubectl, http)
}

/// What can be posted in a namespace: paths below it, objects, the code of success, and what a webhook is told of it
/// (resource, subresource, kind and name).
fn posted() -> Vec<(&'static str, Value, u16, [&'static str; 4])> {
    let kinds = |version: &str, kind: &str, name: &str| {
        json!({"apiVersion": version, "kind": kind,
        "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": "n"}})
    };
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "c"}});
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    vec![
        (
            "serviceaccounts/default/token",
            token,
            201,
            ["serviceaccounts", "token", "TokenRequest", "default"],
        ),
        ("pods/a/binding", kinds("v1", "Binding", "a"), 201, ["pods", "binding", "Binding", "a"]),
        ("bindings", kinds("v1", "Binding", "b"), 201, ["bindings", "", "Binding", "b"]),
        ("pods/c/eviction", eviction, 201, ["pods", "eviction", "Eviction", "c"]),
    ]
}

/// Configures a webhook about everything in a namespace, or about resources without one.
fn configure(http: &Http, hooks: &HookServer, kind: &str, namespace: &str) {
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    let rule = |groups: &str, resources: &str| {
        json!({"apiGroups": [groups], "apiVersions": ["*"],
        "operations": ["*"], "resources": [resources]})
    };
    let reviews = [rule("authentication.k8s.io", "*"), rule("authorization.k8s.io", "*")];
    let object = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": namespace},
        "webhooks": [
            {"name": "all.example.com", "clientConfig": hooks.by_url("/"), "sideEffects": "None",
             "admissionReviewVersions": ["v1"], "namespaceSelector": selector, "rules": [rule("", "*/*")]},
            {"name": "reviews.example.com", "clientConfig": hooks.by_url("/"), "sideEffects": "None",
             "admissionReviewVersions": ["v1"], "rules": reviews,
             "matchConditions": [{"name": "asked", "expression": "has(object.spec.user) ? object.spec.user == 'gates-asked' : has(object.spec.token) && object.spec.token == 'gates-asked'"}]},
        ],
    });
    let path = format!("/apis/admissionregistration.k8s.io/v1/{}s", kind.to_lowercase());
    let made = http.json(Method::POST, &path, &object);
    assert_eq!(made.code, 201, "{}", made.body);
}

/// A path in a namespace.
fn path(namespace: &str, rest: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{rest}")
}

fn webhooks_see_what_is_posted_as_it_is_posted(engine: Engine) {
    let name = "gates-seen";
    let world = world(engine);
    let (kubectl, http) = prepared(&world, name);
    let hooks = HookServer::admission(|_| json!({"allowed": true}));
    configure(&http, &hooks, "ValidatingWebhookConfiguration", name);
    for (rest, object, code, _) in posted() {
        let answer = http.json(Method::POST, &path(name, rest), &object);
        assert_eq!(answer.code, code, "{rest}: {}", answer.body);
    }
    let access = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": "gates-asked", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let token = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "gates-asked"}});
    for (path, object) in [
        ("/apis/authorization.k8s.io/v1/subjectaccessreviews", &access),
        ("/apis/authentication.k8s.io/v1/tokenreviews", &token),
    ] {
        let answer = http.json(Method::POST, path, object);
        assert_eq!(answer.code, 201, "{path}: {}", answer.body);
    }
    // A connection is asked about before anybody looks whether there is something to connect to.
    for rest in ["pods/nobody/exec?command=ls", "services/nobody/proxy"] {
        http.json(Method::POST, &path(name, rest), &json!({}));
    }
    let mut expected: Vec<_> = posted().into_iter().map(|(.., told)| (told, "CREATE")).collect();
    expected.push((["subjectaccessreviews", "", "SubjectAccessReview", ""], "CREATE"));
    expected.push((["tokenreviews", "", "TokenReview", ""], "CREATE"));
    expected.push((["pods", "exec", "PodExecOptions", "nobody"], "CONNECT"));
    expected.push((["services", "proxy", "ServiceProxyOptions", "nobody"], "CONNECT"));
    let seen = hooks.seen();
    let told = |review: &Value| {
        let of = |pointer: &str| text(review, pointer).to_owned();
        (
            [
                of("/request/resource/resource"),
                of("/request/subResource"),
                of("/request/kind/kind"),
                of("/request/name"),
            ],
            of("/request/operation"),
        )
    };
    // Each once, and nothing of what they come to: no update of a Pod, no deletion.
    let own = |review: &&Value| text(review, "/request/userInfo/username") == "freehold:project-admin";
    let by_users: Vec<_> = seen.iter().filter(own).map(told).collect();
    let expected: Vec<_> =
        expected.iter().map(|(told, verb)| (told.map(str::to_owned), (*verb).to_owned())).collect();
    assert_eq!(by_users, expected);
    let bound = kubectl.json(&["get", "pods", "a", "b"]);
    assert!(
        bound["items"].as_array().is_some_and(|pods| pods.iter().all(|pod| pod["spec"]["nodeName"] == "n"))
    );
    kubectl.ok(&["delete", "validatingwebhookconfiguration", name]);
}

fn a_policy_refuses_tokens_bindings_and_evictions(engine: Engine) {
    let name = "gates-policy";
    let world = world(engine);
    let (kubectl, http) = prepared(&world, name);
    kubectl.apply(&format!(
        "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints: {{resourceRules: [{{apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*/*']}}]}}
  validations: [{{expression: 'false', message: the gate is shut}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec:
  policyName: {name}
  validationActions: [Deny]
  matchResources: {{namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {name}}}}}}}
"
    ));
    for (rest, object, ..) in posted() {
        let refused = until("the policy counts", PATIENCE, || {
            let answer = http.json(Method::POST, &format!("{}?dryRun=All", path(name, rest)), &object);
            (answer.code == 422).then_some(answer.body)
        });
        contains_all(text(&refused, "/message"), &["the gate is shut"]);
    }
    let refused = http.json(Method::POST, &path(name, "pods/a/exec?command=ls"), &json!({}));
    contains_all(text(&refused.body, "/message"), &["the gate is shut"]);
    // Reviews are no policy's business: what asks them would stand still.
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": name},
        "spec": {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods", "namespace": name}}});
    let path = format!("/apis/authorization.k8s.io/v1/namespaces/{name}/localsubjectaccessreviews");
    assert_eq!(http.json(Method::POST, &path, &review).code, 201);
    kubectl.ok(&["delete", "validatingadmissionpolicybinding", name]);
}

fn a_webhook_changes_what_is_posted(engine: Engine) {
    let name = "gates-changed";
    let world = world(engine);
    let (kubectl, http) = prepared(&world, name);
    let hooks = HookServer::admission(|request| match text(request, "/kind/kind") {
        "TokenRequest" => {
            patching(&json!([{"op": "replace", "path": "/spec/expirationSeconds", "value": 700}]))
        }
        "Binding" => patching(&json!([
            {"op": "replace", "path": "/target/name", "value": "elsewhere"},
            {"op": "add", "path": "/metadata/annotations", "value": {"chosen.example.com/by": "hook"}},
        ])),
        "PodExecOptions" => patching(&json!([{"op": "add", "path": "/tty", "value": true}])),
        _ => json!({"allowed": true}),
    });
    configure(&http, &hooks, "MutatingWebhookConfiguration", name);
    for (rest, object, code, _) in posted().into_iter().take(3) {
        let answer = http.json(Method::POST, &path(name, rest), &object);
        assert_eq!(answer.code, code, "{rest}: {}", answer.body);
        if rest.ends_with("token") {
            assert_eq!(answer.body["spec"]["expirationSeconds"], 700, "{}", answer.body);
        }
    }
    for pod in ["a", "b"] {
        let pod = kubectl.json(&["get", "pod", pod]);
        assert_eq!(text(&pod, "/spec/nodeName"), "elsewhere");
        assert_eq!(pod["metadata"]["annotations"]["chosen.example.com/by"], "hook");
    }
    let refused = http.json(Method::POST, &path(name, "pods/c/exec?command=ls"), &json!({}));
    assert_eq!(refused.body["message"], "pod c does not have a host assigned", "{}", refused.body);
    kubectl.ok(&["delete", "mutatingwebhookconfiguration", name]);
}
