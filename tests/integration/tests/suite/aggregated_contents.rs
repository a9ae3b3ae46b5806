//! What controllers and organizations see of aggregated resources: namespaces that go, owners, and all projects at once.

use crate::aggregated_servers::{account, server};
use crate::aggregation::{GROUP, expose, reason, registration};
use crate::{PATIENCE, contains_all, items, names, text};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use freehold_tests_integration::{Engine, Extension, Http, Kubectl, Rogue, Server, Way, facts, until};
use serde_json::{Value, json};

facts!(engine:
    aggregated_objects_go_with_namespaces_and_owners_and_show_in_their_organization,
    projects_that_come_later_and_dedicated_ones_are_in_an_organizations_watch,
);

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
        let left = kubectl.run(&["get", FLUNDERS, "-o", "name"]);
        (left.success && left.stdout.is_empty()).then_some(())
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
    assert_eq!(flunders["verbs"], json!(["list", "watch"]));
    assert_eq!(http.get(&format!("{path}/flunders?watch=true&resourceVersion=7")).code, 410);
    let watch = organization.background(&["get", FLUNDERS, "-A", "--watch", "-o", "name"]);
    watch.wait_for("shown");
    kubectl.apply(&flunder("default", "watched", None));
    watch.wait_for("watched");
    assert_eq!(http.get(&format!("{path}/namespaces/default/flunders/shown")).code, 405);
    assert_eq!(text(&http.get(&format!("{path}/flunders?limit=1")).body, "/metadata/continue"), "");
}

/// A server with one thing, whose watch goes on.
fn one_thing(name: &'static str) -> Rogue {
    Rogue::start("things.default.svc", move |head| {
        let path = head.split_whitespace().nth(1).unwrap_or_default();
        let thing = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Thing",
            "metadata": {"name": name, "namespace": "default"}});
        match (path.ends_with("/v1"), path.contains("watch=")) {
            (true, _) => Way::Json(json!({"kind": "APIResourceList", "groupVersion": format!("{GROUP}/v1"),
                "resources": [{"name": "things", "singularName": "thing", "namespaced": true, "kind": "Thing",
                    "verbs": ["get", "list", "watch"]}]})),
            (_, true) => Way::Stream(format!("{}\n", json!({"type": "ADDED", "object": thing})).into_bytes()),
            _ => Way::Json(json!({"kind": "ThingList", "apiVersion": format!("{GROUP}/v1"),
                "metadata": {"resourceVersion": "1"}, "items": [thing]})),
        }
    })
}

fn serve_things(kubectl: &Kubectl, rogue: &Rogue) {
    expose(kubectl, "things", "localhost");
    let service = json!({"namespace": "default", "name": "things", "port": rogue.port()});
    let bundle = json!({"caBundle": STANDARD.encode(rogue.ca_pem())});
    kubectl.apply(&registration("v1", &service, &bundle).to_string());
    reason(kubectl, "v1", "Passed");
}

fn projects_that_come_later_and_dedicated_ones_are_in_an_organizations_watch(engine: Engine) {
    let (server, kubectl) = server(engine);
    let first = one_thing("first");
    serve_things(&kubectl, &first);
    let url = format!("{}/organizations/acme", server.url());
    let organization = server.kubectl().with(&["--server", &url]);
    let things = format!("things.{GROUP}");
    let listed = |wanted: &[&str]| {
        until(&format!("{wanted:?} are listed"), PATIENCE, || {
            let listed = organization.run(&["get", &things, "-A", "-o", "name"]);
            (listed.stdout.lines().count() == wanted.len()
                && wanted.iter().all(|name| listed.stdout.contains(name)))
            .then_some(())
        });
    };
    listed(&["first"]);
    let watch = organization.background(&["get", &things, "-A", "--watch-only", "-o", "name"]);
    watch.wait_for("first");

    let project = |name: &str, mode: &str| {
        json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Project", "metadata": {"name": name},
            "spec": {"ownerRef": {"kind": "Organization", "name": "acme"}, "controlPlane": {"mode": mode}}})
        .to_string()
    };
    let (later, apart) = (one_thing("later"), one_thing("apart"));
    for (name, mode, rogue) in [("later", "Shared", &later), ("apart", "Dedicated", &apart)] {
        server.kubectl().apply(&project(name, mode));
        server.kubectl().ok(&["wait", "--for=condition=Ready", &format!("project/{name}"), "--timeout=120s"]);
        serve_things(&server.project(name), rogue);
        watch.wait_for(name);
    }
    listed(&["first", "later", "apart"]);
}

fn items_of(document: &Value) -> impl Iterator<Item = &Value> {
    document["resources"].as_array().into_iter().flatten()
}
