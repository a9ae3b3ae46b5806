//! Point 4: real CRDs, in one project and without a trace in another.

use crate::{PATIENCE, contains_all, items, names, row, text};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_tests_integration::{Engine, Http, Kubectl, World, crds, facts, until};
use http::Method;
use serde_json::{Value, json};

/// The project that has them.
const WITH: &str = "with-crds";
/// The project that has not.
const WITHOUT: &str = "without-crds";

facts!(world:
    real_crds_become_established_and_are_served,
    another_project_sees_no_trace_of_them,
    custom_resources_are_validated,
    custom_resources_are_defaulted_and_pruned,
    custom_resources_are_printed_and_watched,
    custom_resources_are_scaled,
    custom_resources_are_explained_and_applied_by_the_server,
    a_crd_that_goes_takes_its_objects_along,
    a_crd_that_cannot_be_is_refused,
    a_crd_waits_for_objects_with_finalizers,
    names_that_are_free_again_go_to_who_wanted_them,
    a_type_is_served_only_where_it_shows,
);

/// The project with all CRDs in it.
fn project(world: &World) -> Kubectl {
    world.prepared(WITH, |kubectl| {
        let paths: Vec<String> = crds().iter().map(|crd| crd.path.display().to_string()).collect();
        let files = paths.iter().flat_map(|path| ["-f", path]);
        kubectl.ok(&["apply", "--server-side"].into_iter().chain(files).collect::<Vec<_>>());
        kubectl.ok(&["wait", "--for=condition=Established", "crd", "--all", "--timeout=120s"]);
    })
}

/// A new namespace in it.
fn namespace(world: &World, name: &str) -> Kubectl {
    let kubectl = project(world);
    kubectl.ok(&["create", "namespace", name]);
    kubectl.with(&["--namespace", name])
}

fn certificate(name: &str, spec: &str) -> String {
    format!(
        "---\n{{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {{name: {name}}}, spec: {spec}}}"
    )
}

const SPEC: &str = "{secretName: s, dnsNames: [a.example], issuerRef: {name: ca, kind: Issuer}}";

fn apply(kubectl: &Kubectl, manifest: &str) -> freehold_tests_integration::Output {
    kubectl.run_with_input(&["apply", "-f", "-"], manifest)
}

fn real_crds_become_established_and_are_served(world: &World) {
    let kubectl = project(world);
    let installed = kubectl.json(&["get", "crds"]);
    assert_eq!(items(&installed).count(), crds().len());
    for crd in items(&installed) {
        let conditions = crd["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_true = |type_: &str| conditions.iter().any(|c| c["type"] == type_ && c["status"] == "True");
        assert!(is_true("Established") && is_true("NamesAccepted"), "{}", crd["status"]);
        assert!(!is_true("NonStructuralSchema"), "{}", crd["status"]);
    }
    let served = kubectl.ok(&["api-resources", "-o", "name"]);
    for crd in crds() {
        let name = text(&crd.object, "/metadata/name");
        assert!(served.lines().any(|line| line == name), "{name} is missing in\n{served}");
    }
    let listable =
        crds().iter().map(|crd| text(&crd.object, "/metadata/name").to_owned()).collect::<Vec<_>>();
    kubectl.ok(&["get", &listable.join(","), "--all-namespaces"]);
}

fn another_project_sees_no_trace_of_them(world: &World) {
    let kubectl = namespace(world, "trace");
    apply(&kubectl, &certificate("a", SPEC)).expect_ok();
    let other = world.project(WITHOUT);
    let groups: Vec<String> = crds().iter().map(|crd| text(&crd.object, "/spec/group").to_owned()).collect();
    // The word alone may stand in a description.
    let forms = |group: &String| {
        [format!("apis/{group}"), format!("/{group}/"), format!("\"{group}\""), format!(".{group}\n")]
    };
    let no_trace = |what: &str, document: &str| {
        for form in groups.iter().flat_map(forms) {
            assert!(!document.contains(&form), "{form:?} is in {what}");
        }
    };
    for path in
        ["/apis", "/openapi/v2", "/openapi/v3", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"]
    {
        no_trace(path, &other.ok(&["get", "--raw", &format!("/projects/{WITHOUT}{path}")]));
    }
    no_trace("api-resources", &other.ok(&["api-resources", "-o", "name"]));
    contains_all(
        &other.fails(&["get", "certificates.cert-manager.io"]),
        &["the server doesn't have a resource type"],
    );
    let path = format!("/projects/{WITHOUT}/apis/cert-manager.io/v1/certificates");
    contains_all(&other.fails(&["get", "--raw", &path]), &["NotFound"]);
    contains_all(
        &kubectl.ok(&["get", "--raw", &format!("/projects/{WITH}/openapi/v3")]),
        &["apis/cert-manager.io/v1"],
    );
    if world.engine() == Engine::Etcd {
        no_trace("storage", &keys(world, &world.uid(WITHOUT)));
        contains_all(&keys(world, &world.uid(WITH)), &["cert-manager.io"]);
    }
}

/// The keys of a plane in etcd, a line each.
fn keys(world: &World, plane: &str) -> String {
    let etcd = Http::plain(&world.server().etcd_url().expect("this world has an etcd"));
    let prefix = format!("/freehold/planes/{plane}/");
    let end = format!("/freehold/planes/{plane}0");
    let [key, range_end] = [prefix, end].map(|text| BASE64_STANDARD.encode(text));
    let answer = etcd.json(
        Method::POST,
        "/v3/kv/range",
        &json!({"key": key, "range_end": range_end, "keys_only": true}),
    );
    let keys = answer.body["kvs"].as_array().cloned().unwrap_or_default();
    let keys = keys.iter().map(|kv| BASE64_STANDARD.decode(text(kv, "/key")).unwrap_or_default());
    keys.map(|key| String::from_utf8_lossy(&key).into_owned() + "\n").collect()
}

fn custom_resources_are_validated(world: &World) {
    let kubectl = namespace(world, "validated");
    let route = "---\n{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: r}, spec: {rules: [{matches: [{path: {type: Exact, value: nothing}}]}]}}";
    let gateway = "---\n{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {name: g}, spec: {gatewayClassName: c, listeners: [{name: http, port: 80, protocol: HTTP, tls: {mode: Passthrough}}]}}";
    let rows = [
        (certificate("a", "{dnsNames: [x]}"), "spec.secretName: Required value"),
        (certificate("a", "{dnsNames: [x]}"), "spec.issuerRef: Required value"),
        (
            certificate("a", "{secretName: s, issuerRef: {name: i}, privateKey: {algorithm: Rot13}}"),
            "spec.privateKey.algorithm: Unsupported value: \"Rot13\": supported values: \"RSA\", \"ECDSA\", \"Ed25519\"",
        ),
        (
            certificate("a", "{secretName: s, issuerRef: {name: i}, dnsNames: x}"),
            "spec.dnsNames: Invalid value: \"string\": spec.dnsNames in body must be of type array: \"string\"",
        ),
        (
            certificate("a", "{secretName: s, issuerRef: {name: i}, nothing: 1}"),
            "strict decoding error: unknown field \"spec.nothing\"",
        ),
        (certificate("A", SPEC), "metadata.name: Invalid value: \"A\""),
        (
            route.to_owned(),
            "value must be an absolute path and start with '/' when type one of ['Exact', 'PathPrefix']",
        ),
        (gateway.to_owned(), "tls must not be specified for protocols ['HTTP', 'TCP', 'UDP']"),
    ];
    for (manifest, complaint) in rows {
        contains_all(&apply(&kubectl, &manifest).expect_failure(), &[complaint]);
    }
    apply(&kubectl, &certificate("a", SPEC)).expect_ok();
    let complaint = kubectl.fails(&[
        "patch",
        "certificate",
        "a",
        "--type=merge",
        "-p",
        "{\"spec\":{\"secretName\":null}}",
    ]);
    contains_all(&complaint, &["spec.secretName: Required value"]);
}

fn custom_resources_are_defaulted_and_pruned(world: &World) {
    let kubectl = namespace(world, "defaulted");
    let route = "---\n{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: r}, spec: {parentRefs: [{name: g}], rules: [{backendRefs: [{name: s, port: 80}]}]}}";
    apply(&kubectl, route).expect_ok();
    let spec = &kubectl.json(&["get", "httproute", "r"])["spec"];
    assert_eq!(
        spec["parentRefs"][0],
        json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"})
    );
    assert_eq!(spec["rules"][0]["matches"], json!([{"path": {"type": "PathPrefix", "value": "/"}}]));
    assert_eq!(spec["rules"][0]["backendRefs"][0]["weight"], 1);
    let loose = certificate(
        "loose",
        "{secretName: s, issuerRef: {name: i}, nothing: 1, privateKey: {odd: 2, size: 2048}}",
    );
    let output = kubectl.run_with_input(&["apply", "--validate=warn", "-f", "-"], &loose);
    contains_all(
        &output.stderr,
        &["Warning: unknown field \"spec.nothing\"", "Warning: unknown field \"spec.privateKey.odd\""],
    );
    output.expect_ok();
    let certificate = kubectl.json(&["get", "certificate", "loose"]);
    assert_eq!(certificate["spec"]["privateKey"], json!({"size": 2048}));
    assert_eq!(certificate["spec"].get("nothing"), None);
    assert_eq!(certificate["metadata"]["generation"], 1);
}

fn custom_resources_are_printed_and_watched(world: &World) {
    let kubectl = namespace(world, "printed");
    apply(&kubectl, &certificate("before", SPEC)).expect_ok();
    let watch = kubectl.background(&["get", "certificates", "--watch"]);
    watch.wait_for("before");
    apply(&kubectl, &certificate("a", SPEC)).expect_ok();
    let header = kubectl.ok(&["get", "cert"]);
    assert_eq!(header.split_whitespace().take(4).collect::<Vec<_>>(), ["NAME", "READY", "SECRET", "AGE"]);
    assert_eq!(row(&header, "a")[1], "s", "a status that is not there leaves its column empty");
    let ready =
        "{\"status\":{\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\",\"message\":\"issued\"}]}}";
    kubectl.ok(&["patch", "certificate", "a", "--subresource=status", "--type=merge", "-p", ready]);
    assert_eq!(row(&kubectl.ok(&["get", "certs"]), "a")[..3], ["a", "True", "s"]);
    let wide = kubectl.ok(&["get", "certificates", "-o", "wide"]);
    contains_all(&wide, &["ISSUER", "STATUS", "issued", " ca "]);
    kubectl.ok(&["wait", "--for=condition=Ready", "certificate/a", "--timeout=120s"]);
    contains_all(&kubectl.ok(&["get", "cert-manager"]), &["certificate.cert-manager.io/a"]);
    contains_all(&kubectl.ok(&["describe", "certificate", "a"]), &["Dns Names:", "a.example"]);
    until("the watch shows both states", PATIENCE, || {
        let printed = watch.printed();
        let rows: Vec<Vec<&str>> = printed.lines().map(|line| line.split_whitespace().collect()).collect();
        let shows = |words: &[&str]| rows.iter().any(|row| row.starts_with(words));
        (shows(&["a", "s"]) && shows(&["a", "True", "s"])).then_some(())
    });
    let spec = "{\"spec\":{\"secretName\":\"t\"},\"status\":{\"revision\":9}}";
    kubectl.ok(&["patch", "certificate", "a", "--type=merge", "-p", spec]);
    let certificate = kubectl.json(&["get", "certificate", "a"]);
    assert_eq!(certificate["metadata"]["generation"], 2);
    assert_eq!(certificate["status"].get("revision"), None, "the status has its own endpoint");
}

fn custom_resources_are_scaled(world: &World) {
    let kubectl = namespace(world, "scaled");
    apply(&kubectl, "---\n{apiVersion: monitoring.coreos.com/v1, kind: Alertmanager, metadata: {name: m}, spec: {replicas: 1}}").expect_ok();
    contains_all(
        &kubectl.ok(&["scale", "alertmanager", "m", "--replicas=3"]),
        &["alertmanager.monitoring.coreos.com/m scaled"],
    );
    assert_eq!(kubectl.json(&["get", "alertmanager", "m"])["spec"]["replicas"], 3);
    let status = "{\"status\":{\"replicas\":2,\"selector\":\"app=m\",\"paused\":false,\"availableReplicas\":2,\"unavailableReplicas\":0,\"updatedReplicas\":2}}";
    kubectl.ok(&["patch", "alertmanager", "m", "--subresource=status", "--type=merge", "-p", status]);
    let scale = kubectl.json(&["get", "alertmanager", "m", "--subresource=scale"]);
    assert_eq!(scale["kind"], "Scale");
    assert_eq!((&scale["spec"]["replicas"], &scale["status"]["replicas"]), (&json!(3), &json!(2)));
    assert_eq!(scale["status"]["selector"], "app=m");
}

fn custom_resources_are_explained_and_applied_by_the_server(world: &World) {
    let kubectl = namespace(world, "explained");
    contains_all(
        &kubectl.ok(&["explain", "certificate.spec.privateKey"]),
        &["GROUP:      cert-manager.io", "algorithm\t<string>", "enum: RSA, ECDSA"],
    );
    let apply = |manager: &str, spec: &str| {
        let manager = format!("--field-manager={manager}");
        kubectl.run_with_input(&["apply", "--server-side", &manager, "-f", "-"], &certificate("a", spec))
    };
    apply("one", SPEC).expect_ok();
    apply("two", "{secretName: s, issuerRef: {name: ca, kind: Issuer}, duration: 24h}").expect_ok();
    let complaint = apply("two", "{secretName: other, issuerRef: {name: ca, kind: Issuer}}").expect_failure();
    contains_all(&complaint, &["conflict with \"one\"", ".spec.secretName"]);
    let edit = kubectl.with_variable("KUBE_EDITOR", "sed -i s/a.example/b.example/");
    contains_all(&edit.ok(&["edit", "certificate", "a"]), &["edited"]);
    assert_eq!(kubectl.json(&["get", "certificate", "a"])["spec"]["dnsNames"], json!(["b.example"]));
}

const WIDGETS: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.tests.example}
spec:
  group: tests.example
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    selectableFields: [{jsonPath: .spec.color}]
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string, default: red}}}}}}
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string}}}}}}
";

fn a_crd_that_goes_takes_its_objects_along(world: &World) {
    let kubectl = world.namespace("own-crd", "widgets");
    let widget = |version: &str, name: &str, color: &str| {
        format!(
            "---\n{{apiVersion: tests.example/{version}, kind: Widget, metadata: {{name: {name}}}, spec: {{color: {color}}}}}"
        )
    };
    for round in ["first", "second"] {
        kubectl.apply(WIDGETS);
        kubectl.ok(&["wait", "--for=condition=Established", "crd/widgets.tests.example", "--timeout=120s"]);
        until("the new kind is known", PATIENCE, || kubectl.run(&["get", "widgets"]).success.then_some(()));
        assert_eq!(
            items(&kubectl.json(&["get", "widgets"])).count(),
            0,
            "nothing is left in the {round} round"
        );
        kubectl.apply(&widget("v1", "a", "blue"));
        let old = kubectl.run_with_input(&["apply", "-f", "-"], &widget("v1beta1", "b", "red"));
        contains_all(&old.stderr, &["Warning: tests.example/v1beta1 Widget is deprecated"]);
        old.expect_ok();
        assert_eq!(
            text(&kubectl.json(&["get", "widgets.v1beta1.tests.example", "a"]), "/apiVersion"),
            "tests.example/v1beta1"
        );
        let blue = kubectl.json(&["get", "wd", "--field-selector", "spec.color=blue"]);
        assert_eq!(names(&blue), ["a"]);
        kubectl.ok(&["delete", "crd", "widgets.tests.example"]);
        until("the kind is gone", PATIENCE, || {
            let kinds = kubectl.ok(&["get", "--raw", "/projects/own-crd/apis"]);
            (!kinds.contains("tests.example")).then_some(())
        });
    }
    contains_all(
        &kubectl.fails(&["get", "--raw", "/projects/own-crd/apis/tests.example/v1/widgets"]),
        &["NotFound"],
    );
}

fn a_crd_that_cannot_be_is_refused(world: &World) {
    let kubectl = world.project("own-crd");
    let rows = [
        (
            "name: widgets.tests.example",
            "name: gadgets.tests.example",
            "must be spec.names.plural+\".\"+spec.group",
        ),
        ("storage: true", "storage: false", "must have exactly one version marked as storage version"),
        ("scope: Namespaced", "scope: Everywhere", "supported values: \"Cluster\", \"Namespaced\""),
        (
            "schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {color: {type: string, default: red}}}}}}",
            "schema: {openAPIV3Schema: {type: object, properties: {spec: {}}}}",
            "type: Required value: must not be empty for specified object fields",
        ),
        ("default: red", "default: 5", "must be of type string"),
    ];
    for (good, bad, complaint) in rows {
        let manifest = WIDGETS.replacen(good, bad, 1).replace("tests.example", "refused.example");
        contains_all(&apply(&kubectl, &manifest).expect_failure(), &[complaint]);
    }
    let all: Value = kubectl.json(&["get", "crds"]);
    assert!(!names(&all).iter().any(|name| name.contains("refused")));
}

/// A definition of a group of its own, over anything.
fn definition(group: &str, plural: &str, kind: &str) -> String {
    format!(
        "---\n{{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {{name: {plural}.{group}}}, \
         spec: {{group: {group}, scope: Cluster, names: {{plural: {plural}, kind: {kind}}}, versions: [{{name: v1, \
         served: true, storage: true, schema: {{openAPIV3Schema: {{type: object, \
         x-kubernetes-preserve-unknown-fields: true}}}}}}]}}}}"
    )
}

fn a_crd_waits_for_objects_with_finalizers(world: &World) {
    let kubectl = world.project("waiting-crd");
    kubectl.apply(&definition("waits.example", "pots", "Pot"));
    kubectl.ok(&["wait", "--for=condition=Established", "crd/pots.waits.example", "--timeout=120s"]);
    let pot = |name: &str, finalizers: &str| {
        format!(
            "---\n{{apiVersion: waits.example/v1, kind: Pot, metadata: {{name: {name}, finalizers: [{finalizers}]}}}}"
        )
    };
    kubectl.apply(&pot("held", "a.b/c"));
    kubectl.apply(&pot("free", ""));
    kubectl.ok(&["delete", "crd", "pots.waits.example", "--wait=false"]);
    let crd = kubectl.json(&["get", "crd", "pots.waits.example"]);
    assert_eq!(crd["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    let ending = items_of(&crd, "/status/conditions")
        .into_iter()
        .find(|c| c["type"] == "Terminating")
        .expect("the condition");
    assert_eq!(ending["reason"], "InstanceDeletionInProgress");
    assert_eq!(names(&kubectl.json(&["get", "pots"])), ["held"], "the other one went");
    contains_all(
        &apply(&kubectl, &pot("new", "")).expect_failure(),
        &["custom resource definition is terminating"],
    );
    kubectl.ok(&["patch", "pot", "held", "--type=merge", "-p", r#"{"metadata":{"finalizers":null}}"#]);
    contains_all(&kubectl.fails(&["get", "crd", "pots.waits.example"]), &["NotFound"]);
}

fn items_of(object: &Value, pointer: &str) -> Vec<Value> {
    object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default()
}

fn names_that_are_free_again_go_to_who_wanted_them(world: &World) {
    let kubectl = world.project("names-crd");
    kubectl.apply(&definition("names.example", "firsts", "Same"));
    kubectl.ok(&["wait", "--for=condition=Established", "crd/firsts.names.example", "--timeout=120s"]);
    kubectl.apply(&definition("names.example", "seconds", "Same"));
    let second = kubectl.json(&["get", "crd", "seconds.names.example"]);
    assert_eq!(second["status"]["conditions"][0]["reason"], "ListKindConflict");
    kubectl.ok(&["delete", "crd", "firsts.names.example"]);
    kubectl.ok(&["wait", "--for=condition=Established", "crd/seconds.names.example", "--timeout=120s"]);
    kubectl.ok(&["get", "seconds"]);
}

fn a_type_is_served_only_where_it_shows(world: &World) {
    let kubectl = world.project("bound-crd");
    kubectl.apply(&definition("bound.example", "lamps", "Lamp"));
    kubectl.ok(&["wait", "--for=condition=Established", "crd/lamps.bound.example", "--timeout=120s"]);
    kubectl.apply("---\n{apiVersion: bound.example/v1, kind: Lamp, metadata: {name: one}}");
    let organization = world.admin();
    let seen = || organization.run(&["get", "--raw", "/organizations/tests/apis/bound.example/v1/lamps"]);
    contains_all(&seen().expect_ok(), &["\"one\""]);
    kubectl.ok(&["annotate", "crd", "lamps.bound.example", "freehold.dev/contexts=project"]);
    contains_all(&seen().expect_failure(), &["NotFound"]);
    kubectl.ok(&["get", "--raw", "/projects/bound-crd/apis/bound.example/v1/lamps/one"]);
    kubectl.ok(&[
        "annotate",
        "--overwrite",
        "crd",
        "lamps.bound.example",
        "freehold.dev/contexts=organization",
    ]);
    contains_all(&seen().expect_ok(), &["\"one\""]);
    contains_all(
        &kubectl.fails(&["get", "--raw", "/projects/bound-crd/apis/bound.example/v1/lamps/one"]),
        &["NotFound"],
    );
    assert!(!kubectl.ok(&["get", "--raw", "/projects/bound-crd/apis"]).contains("bound.example"));
}
