//! What controllers and organizations see of aggregated resources: namespaces that go, owners, and all projects at once.

use crate::aggregated_servers::{account, server};
use crate::{PATIENCE, contains_all, items, names, text};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_tests_integration::{Engine, Extension, Http, Kubectl, Server, facts, until};
use serde_json::{Value, json};

facts!(engine: aggregated_objects_go_with_namespaces_and_owners_and_show_in_their_organization);

const FLUNDERS: &str = "flunders.wardle.example.com";

fn aggregated_objects_go_with_namespaces_and_owners_and_show_in_their_organization(engine: Engine) {
    let (server, kubectl) = server(engine);
    let extension = Extension::start(&account(&server, &kubectl), "api.wardle.svc");
    register(&kubectl, &extension);
    they_go_with_their_namespace(&kubectl);
    they_go_with_their_owners(&kubectl);
    they_show_in_the_organization(&server, &kubectl);
    drop(extension);
}

fn register(kubectl: &Kubectl, extension: &Extension) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "api", "namespace": "wardle"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    kubectl.apply(&service.to_string());
    let object = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1alpha1.wardle.example.com"},
        "spec": {"group": "wardle.example.com", "version": "v1alpha1", "groupPriorityMinimum": 2000,
            "versionPriority": 200, "caBundle": STANDARD.encode(extension.ca_pem()),
            "service": {"namespace": "wardle", "name": "api", "port": extension.port()}},
    });
    kubectl.apply(&object.to_string());
    until("its resources are discovered", PATIENCE, || {
        let listed = kubectl.run(&["api-resources", "--api-group=wardle.example.com", "-o", "name"]);
        listed.stdout.contains("flunders").then_some(())
    });
}

fn flunder(namespace: &str, name: &str, owner: Option<&Value>) -> String {
    let owners: Vec<Value> = owner
        .map(|owner| {
            json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"]})
        })
        .into_iter()
        .collect();
    json!({"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners}, "spec": {"reference": "other"}})
    .to_string()
}

fn they_go_with_their_namespace(kubectl: &Kubectl) {
    kubectl.ok(&["create", "namespace", "short-lived"]);
    kubectl.apply(&flunder("short-lived", "one", None));
    kubectl.ok(&["delete", "namespace", "short-lived", "--timeout=120s"]);
    let left = kubectl.json(&["get", FLUNDERS, "-A"]);
    assert_eq!(items(&left).count(), 0, "{left}");
}

fn they_go_with_their_owners(kubectl: &Kubectl) {
    kubectl.ok(&["create", "configmap", "owner"]);
    let owner = kubectl.json(&["get", "configmap", "owner"]);
    kubectl.apply(&flunder("default", "owned", Some(&owner)));
    kubectl.apply(&flunder("default", "owner", None));
    let mut owner = kubectl.json(&["get", FLUNDERS, "owner"]);
    owner["kind"] = "Flunder".into();
    let owned = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owned", "ownerReferences": [
        {"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "name": "owner", "uid": owner["metadata"]["uid"]}]}});
    kubectl.apply(&owned.to_string());
    kubectl.ok(&["delete", "configmap", "owner"]);
    kubectl.ok(&["delete", FLUNDERS, "owner"]);
    until("an aggregated object goes with its owner", PATIENCE * 2, || {
        let left = kubectl.json(&["get", FLUNDERS]);
        (items(&left).count() == 0).then_some(())
    });
    until("an object goes with its aggregated owner", PATIENCE * 2, || {
        let left = kubectl.json(&["get", "configmaps"]);
        (!names(&left).contains(&"owned")).then_some(())
    });
}

fn they_show_in_the_organization(server: &Server, kubectl: &Kubectl) {
    kubectl.apply(&flunder("default", "shown", None));
    let url = format!("{}/organizations/acme", server.url());
    let organization = server.kubectl().with(&["--server", &url]);
    let listed = organization.json(&["get", FLUNDERS, "-A"]);
    assert_eq!(names(&listed), ["shown"]);
    let annotations = &listed["items"][0]["metadata"]["annotations"];
    assert_eq!(annotations["resourcemanager.freehold.dev/project"], "web");
    contains_all(&organization.ok(&["get", FLUNDERS, "-A"]), &["CREATED AT", "shown"]);
    contains_all(&organization.ok(&["api-resources", "--api-group=wardle.example.com"]), &["flunders"]);
    let http = Http::of_elsewhere(&organization, &url);
    let path = "/apis/wardle.example.com/v1alpha1";
    let document = http.get(path).body;
    let flunders = items_of(&document).find(|resource| resource["name"] == "flunders").expect("flunders");
    assert_eq!(flunders["verbs"], json!(["list"]));
    assert_eq!(http.get(&format!("{path}/flunders?watch=true")).code, 405);
    assert_eq!(http.get(&format!("{path}/namespaces/default/flunders/shown")).code, 405);
    assert_eq!(text(&http.get(&format!("{path}/flunders?limit=1")).body, "/metadata/continue"), "");
}

fn items_of(document: &Value) -> impl Iterator<Item = &Value> {
    document["resources"].as_array().into_iter().flatten()
}
