//! Other servers' APIs in a project: registered with an `APIService`, found by discovery, and answered by those servers.

use crate::{PATIENCE, contains_all, names, row, text};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_tests_integration::{Http, Kubectl, Output, World, facts, until};
use serde_json::{Value, json};

facts!(world:
    groups_of_the_server_are_registered_as_local,
    a_crd_brings_its_registration_and_takes_it_away,
    a_registration_that_can_not_be_is_refused,
    a_server_that_is_not_there_is_unavailable,
    each_plane_publishes_how_its_servers_know_its_users,
);
pub(crate) const GROUP: &str = "rogue.example.com";

fn groups_of_the_server_are_registered_as_local(world: &World) {
    let kubectl = world.project("registered");
    let table = kubectl.ok(&["get", "apiservices"]);
    assert_eq!(row(&table, "v1.")[1..3], ["Local", "True"]);
    assert_eq!(row(&table, "v1.apps")[1..3], ["Local", "True"]);
    let apps = kubectl.json(&["get", "apiservice", "v1.apps"]);
    let condition = &apps["status"]["conditions"][0];
    assert_eq!(text(condition, "/reason"), "Local");
    assert_eq!(text(condition, "/message"), "Local APIServices are always available");
    assert_eq!(apps["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "onstart");
    let core = world.admin().json(&["get", "apiservice", "v1alpha1.resourcemanager.freehold.dev"]);
    assert_eq!(core["metadata"]["labels"]["kube-aggregator.kubernetes.io/automanaged"], "true");
}

fn crd(plural: &str, versions: &[&str]) -> String {
    let kind = plural.to_uppercase();
    let version = |(nth, name): (usize, &&str)| {
        json!({"name": name, "served": true, "storage": nth == 0,
            "schema": {"openAPIV3Schema": {"type": "object"}}})
    };
    let versions: Vec<Value> = versions.iter().enumerate().map(version).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.own.example.com")},
        "spec": {"group": "own.example.com", "scope": "Cluster", "versions": versions,
            "names": {"plural": plural, "kind": kind}},
    })
    .to_string()
}

fn a_crd_brings_its_registration_and_takes_it_away(world: &World) {
    let kubectl = world.project("own-registrations");
    let registered = || {
        let all =
            kubectl.json(&["get", "apiservices", "-l", "kube-aggregator.kubernetes.io/automanaged=true"]);
        names(&all).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    kubectl.apply(&crd("as", &["v1", "v2"]));
    kubectl.apply(&crd("bs", &["v1"]));
    assert_eq!(registered(), ["v1.own.example.com", "v2.own.example.com"]);
    let before = kubectl.json(&["get", "apiservice", "v1.own.example.com"]);
    assert_eq!(
        before["spec"],
        json!({"group": "own.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 100})
    );
    kubectl.ok(&["delete", "apiservice", "v1.own.example.com", "--wait=false"]);
    let after = kubectl.json(&["get", "apiservice", "v1.own.example.com"]);
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"], "it is made anew");
    kubectl.apply(&crd("as", &["v1"]));
    assert_eq!(registered(), ["v1.own.example.com"]);
    kubectl.ok(&["delete", "crd", "as.own.example.com"]);
    assert_eq!(registered(), ["v1.own.example.com"], "the other one has the version still");
    kubectl.ok(&["delete", "crd", "bs.own.example.com"]);
    assert!(registered().is_empty());
}

pub(crate) fn registration(version: &str, service: &Value, further: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.{GROUP}")},
        "spec": {"group": GROUP, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": service},
    });
    for (key, value) in further.as_object().into_iter().flatten() {
        object["spec"][key] = value.clone();
    }
    object
}

fn a_registration_that_can_not_be_is_refused(world: &World) {
    let kubectl = world.project("refused-registrations");
    let service = json!({"namespace": "default", "name": "a"});
    let mut other_name = registration("v1", &service, &Value::Null);
    other_name["metadata"]["name"] = "a".into();
    let both = json!({"insecureSkipTLSVerify": true, "caBundle": STANDARD.encode("x")});
    for (object, parts) in [
        (other_name, ["metadata.name: Invalid value: \"a\"", "must be `spec.version+\".\"+spec.group`"]),
        (
            registration("v1", &json!({"name": "a"}), &Value::Null),
            ["spec.service.namespace: Required value", ""],
        ),
        (
            registration("v1", &service, &both),
            ["spec.insecureSkipTLSVerify", "may not be true if caBundle is present"],
        ),
        (
            registration("v1", &service, &json!({"versionPriority": 0})),
            ["spec.versionPriority", "must be positive and less than 1000"],
        ),
    ] {
        let output: Output = kubectl.run_with_input(&["create", "-f", "-"], &object.to_string());
        contains_all(&output.expect_failure(), &parts);
    }
}

/// Waits for a reason of a registration's condition, and gives its message.
pub(crate) fn reason(kubectl: &Kubectl, version: &str, wanted: &str) -> String {
    until(&format!("the condition says {wanted}"), PATIENCE, || {
        let object = kubectl.json(&["get", "apiservice", &format!("{version}.{GROUP}")]);
        let condition = &object["status"]["conditions"][0];
        (text(condition, "/reason") == wanted).then(|| text(condition, "/message").to_owned())
    })
}

fn a_server_that_is_not_there_is_unavailable(world: &World) {
    let kubectl = world.project("absent-servers");
    let service = json!({"namespace": "default", "name": "absent"});
    kubectl.apply(&registration("v1", &service, &json!({"insecureSkipTLSVerify": true})).to_string());
    assert_eq!(reason(&kubectl, "v1", "ServiceNotFound"), "service/absent in \"default\" is not present");
    let table = kubectl.ok(&["get", "apiservices"]);
    assert_eq!(row(&table, &format!("v1.{GROUP}"))[1..4], ["default/absent", "False", "(ServiceNotFound)"]);
    let http = Http::of(&kubectl);
    let answer = http.get(&format!("/apis/{GROUP}/v1/things"));
    assert_eq!(answer.code, 503);
    contains_all(text(&answer.body, "/message"), &["service unavailable"]);
    let listed = http.get("/apis").body;
    assert!(listed["groups"].as_array().is_some_and(|all| all.iter().any(|g| g["name"] == GROUP)));

    let ports = json!([{"name": "https", "port": 444}]);
    let mut object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "absent", "namespace": "default"},
        "spec": {"ports": ports}});
    kubectl.apply(&object.to_string());
    let message = reason(&kubectl, "v1", "ServicePortError");
    assert_eq!(message, "service/absent in \"default\" is not listening on port 443");
    object["spec"]["ports"][0]["port"] = 443.into();
    kubectl.apply(&object.to_string());
    reason(&kubectl, "v1", "EndpointsNotFound");
    let mut slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "absent", "namespace": "default", "labels": {"kubernetes.io/service-name": "absent"}},
        "addressType": "IPv4", "ports": [{"name": "other", "port": 443}], "endpoints": [{"addresses": ["10.255.255.1"]}]});
    kubectl.apply(&slice.to_string());
    let message = reason(&kubectl, "v1", "MissingEndpoints");
    assert_eq!(
        message,
        "endpointslices for service/absent in \"default\" have no addresses with port name \"https\""
    );
    slice["ports"][0]["name"] = "https".into();
    kubectl.apply(&slice.to_string());
    reason(&kubectl, "v1", "FailedDiscoveryCheck");
    kubectl.ok(&["delete", "apiservice", &format!("v1.{GROUP}")]);
    assert_eq!(http.get(&format!("/apis/{GROUP}/v1")).code, 404);
}

fn each_plane_publishes_how_its_servers_know_its_users(world: &World) {
    let published = |kubectl: &Kubectl| {
        kubectl.json(&["-n", "kube-system", "get", "configmap", "extension-apiserver-authentication"])
    };
    let names = |project: &str| {
        let map = published(&world.project(project));
        assert!(text(&map, "/data/requestheader-client-ca-file").contains("BEGIN CERTIFICATE"));
        assert!(
            text(&map, "/data/client-ca-file").contains("BEGIN CERTIFICATE"),
            "its own clients' authority"
        );
        text(&map, "/data/requestheader-allowed-names").to_owned()
    };
    let [one, other] = ["published-one", "published-other"].map(|project| {
        assert_eq!(
            names(project),
            format!("[\"aggregator:{}\"]", {
                world.project(project);
                world.uid(project)
            })
        );
        names(project)
    });
    assert_ne!(one, other);
}

/// A Service that stands for a name outside of the plane.
pub(crate) fn expose(kubectl: &Kubectl, name: &str, host: &str) {
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "ExternalName", "externalName": host}});
    kubectl.apply(&object.to_string());
}
