//! Point 7: what is deleted is deleted whole, and waits for its finalizers.

use crate::{PATIENCE, contains_all, items, names, text};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_tests_integration::{Engine, Http, Kubectl, World, facts, until};
use http::Method;
use serde_json::json;

facts!(world:
    a_namespace_goes_with_everything_in_it_once_finalizers_let_it,
    what_is_owned_goes_with_its_owner_or_stays_an_orphan,
    a_project_goes_with_everything_in_it_once_finalizers_let_it,
    an_organization_goes_with_its_namespace,
    an_organization_with_projects_goes_only_when_they_may_go_too,
);

const HOLD: &str = "{\"metadata\":{\"finalizers\":[\"tests.freehold.dev/hold\"]}}";
const RELEASE: &str = "{\"metadata\":{\"finalizers\":null}}";

fn a_namespace_goes_with_everything_in_it_once_finalizers_let_it(world: &World) {
    let project = world.project("deletion");
    let kubectl = world.namespace("deletion", "full");
    kubectl.ok(&["create", "configmap", "held"]);
    kubectl.ok(&["patch", "configmap", "held", "-p", HOLD]);
    for kind in ["configmap/free", "secret/generic free", "serviceaccount/free", "deployment/free --image=x"]
    {
        let words: Vec<&str> = kind.split(['/', ' ']).collect();
        kubectl.ok(&["create"].into_iter().chain(words).collect::<Vec<_>>());
    }
    project.ok(&["delete", "namespace", "full", "--wait=false"]);
    until("what is free is gone", PATIENCE, || {
        let left = kubectl.ok(&[
            "get",
            "configmaps,secrets,serviceaccounts,deployments,replicasets,pods",
            "-o",
            "name",
        ]);
        (left.trim() == "configmap/held").then_some(())
    });
    let namespace = project.json(&["get", "namespace", "full"]);
    assert_eq!(text(&namespace, "/status/phase"), "Terminating");
    let complaint = kubectl.fails(&["create", "configmap", "late"]);
    contains_all(
        &complaint,
        &["forbidden: unable to create new content in namespace full because it is being terminated"],
    );
    until("the namespace tells what it waits for", PATIENCE, || {
        let namespace = project.json(&["get", "namespace", "full"]);
        namespace["status"]["conditions"].to_string().contains("tests.freehold.dev/hold").then_some(())
    });
    kubectl.ok(&["patch", "configmap", "held", "--type=merge", "-p", RELEASE]);
    World::gone(&project, &["namespace", "full"]);
    project.ok(&["create", "namespace", "full"]);
    let again = kubectl.json(&["get", "configmaps"]);
    assert!(!names(&again).contains(&"held"), "{again}");
}

fn what_is_owned_goes_with_its_owner_or_stays_an_orphan(world: &World) {
    let kubectl = world.namespace("deletion", "owners");
    let pods = |app: &str| items(&kubectl.json(&["get", "pods", "-l", &format!("app={app}")])).count();
    for (name, cascade, left) in [("a", "background", 0), ("b", "orphan", 1), ("c", "foreground", 0)] {
        kubectl.ok(&["create", "deployment", name, "--image=registry.example/x"]);
        until("its pod", PATIENCE, || (pods(name) == 1).then_some(()));
        kubectl.ok(&["delete", "deployment", name, &format!("--cascade={cascade}"), "--timeout=120s"]);
        until(&format!("{left} pods are left of {cascade}"), PATIENCE, || (pods(name) == left).then_some(()));
    }
    until("the orphan has no owner", PATIENCE, || {
        let sets = kubectl.json(&["get", "replicasets", "-l", "app=b"]);
        let orphan = items(&sets).next().expect("the orphan stays");
        orphan["metadata"]
            .get("ownerReferences")
            .is_none_or(|o| o.as_array().is_some_and(Vec::is_empty))
            .then_some(())
    });
}

fn a_project_goes_with_everything_in_it_once_finalizers_let_it(world: &World) {
    world.organization("ending", &["ending"]);
    let admin = world.admin();
    let uid = world.uid("ending");
    let kubectl = world.server().project("ending");
    fill(&kubectl);
    admin.ok(&["delete", "project", "ending", "--wait=false"]);
    for held in [&["clusterrole", "held"][..], &["configmap", "held", "--namespace=team"]] {
        let time = ["-o", "jsonpath={.metadata.deletionTimestamp}"];
        let get: Vec<&str> = ["get"].iter().chain(held).chain(&time).copied().collect();
        until("those who hold it are told", PATIENCE, || (!kubectl.ok(&get).is_empty()).then_some(()));
    }
    // The project says what holds it, and at the end of that what still does.
    let waits_for = |words: &str| {
        until(words, PATIENCE, || {
            let project = admin.json(&["get", "project", "ending"]);
            let conditions = project["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let of = |type_: &str| conditions.iter().find(|c| text(c, "/type") == type_).cloned();
            assert!(!text(&project, "/metadata/deletionTimestamp").is_empty(), "{project}");
            let said = of("Terminating").filter(|c| text(c, "/message") == words)?;
            assert_eq!((text(&said, "/status"), text(&said, "/reason")), ("True", "FinalizersRemain"));
            let ready = of("Ready")?;
            assert_eq!((text(&ready, "/status"), text(&ready, "/reason")), ("False", "Terminating"));
            Some(())
        });
    };
    let of = "(finalizers: tests.freehold.dev/hold)";
    waits_for(&format!("waiting for 1 clusterroles.rbac.authorization.k8s.io, 1 configmaps {of}"));
    kubectl.ok(&["patch", "configmap", "held", "--namespace=team", "--type=merge", "-p", RELEASE]);
    waits_for(&format!("waiting for 1 clusterroles.rbac.authorization.k8s.io {of}"));
    kubectl.ok(&["patch", "clusterrole", "held", "--type=merge", "-p", RELEASE]);
    World::gone(&admin, &["project", "ending"]);
    World::gone(&admin, &["secret", "ending-kubeconfig", "--namespace=organization-ending"]);
    assert!(!kubectl.run(&["get", "namespaces"]).success, "its kubeconfig leads nowhere");
    let plane = admin.run(&["get", "--raw", &format!("/planes/{uid}/api/v1/namespaces")]);
    assert!(!plane.success || !plane.stdout.contains("team"), "{plane}");
    assert_eq!(keys(world, &uid), 0, "keys that are left in the store");
    world.organization("ending", &["ending"]);
    let again = world.server().project("ending");
    assert_ne!(world.uid("ending"), uid);
    assert!(!names(&again.json(&["get", "namespaces"])).contains(&"team"));
    again.ok(&["get", "configmaps"]);
    let groups = again.ok(&["get", "--raw", "/projects/ending/apis"]);
    assert!(!groups.contains("ending.example"), "{groups}");
}

/// Fills a project with namespaced, cluster-scoped and custom objects, two of which are held by finalizers.
fn fill(kubectl: &Kubectl) {
    kubectl.ok(&["create", "namespace", "team"]);
    for name in ["free", "held"] {
        kubectl.ok(&["create", "configmap", name, "--namespace=team"]);
    }
    kubectl.ok(&["create", "deployment", "web", "--namespace=team", "--image=registry.example/web"]);
    for name in ["ending", "held"] {
        kubectl.ok(&["create", "clusterrole", name, "--verb=get", "--resource=pods"]);
    }
    kubectl.ok(&["patch", "configmap", "held", "--namespace=team", "-p", HOLD]);
    kubectl.ok(&["patch", "clusterrole", "held", "-p", HOLD]);
    kubectl.apply(
        "---\n{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: widgets.ending.example},
          spec: {group: ending.example, scope: Cluster, names: {plural: widgets, kind: Widget},
            versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}",
    );
    kubectl.ok(&["wait", "--for=condition=Established", "crd/widgets.ending.example", "--timeout=120s"]);
    kubectl.apply("---\n{apiVersion: ending.example/v1, kind: Widget, metadata: {name: w}}");
}

/// How many keys etcd has of a plane; 0 for the embedded engine, where only the server can look.
fn keys(world: &World, plane: &str) -> u64 {
    if world.engine() == Engine::Embedded {
        return 0;
    }
    let etcd = Http::plain(&world.server().etcd_url().expect("this world has an etcd"));
    let [key, range_end] =
        ["/", "0"].map(|end| BASE64_STANDARD.encode(format!("/freehold/planes/{plane}{end}")));
    let range = json!({"key": key, "range_end": range_end, "count_only": true});
    let answer = etcd.json(Method::POST, "/v3/kv/range", &range);
    text(&answer.body, "/count").parse().unwrap_or(0)
}

fn an_organization_with_projects_goes_only_when_they_may_go_too(world: &World) {
    world.organization("whole", &["whole-a", "whole-b"]);
    let admin = world.admin();
    let refused = admin.fails(&["delete", "organization", "whole", "--timeout=120s"]);
    contains_all(&refused, &["it has 2 projects", "--cascade=foreground"]);
    let refused =
        admin.fails(&["delete", "organization", "whole", "--cascade=background", "--dry-run=server"]);
    contains_all(&refused, &["it has 2 projects"]);
    let whole = admin.json(&["get", "organization", "whole"]);
    assert!(text(&whole, "/metadata/deletionTimestamp").is_empty(), "nothing has begun");
    // A project that a finalizer holds keeps its organization, which says so.
    let hold = r#"{"metadata":{"finalizers":["example.com/hold","resourcemanager.freehold.dev/project"]}}"#;
    admin.ok(&["patch", "project", "whole-a", "--type=merge", "-p", hold]);
    admin.ok(&["delete", "organization", "whole", "--cascade=foreground", "--wait=false"]);
    World::gone(&admin, &["project", "whole-b"]);
    let told = until("it says what it waits for", PATIENCE, || {
        let whole = admin.json(&["get", "organization", "whole"]);
        let conditions = whole["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let told = conditions.into_iter().find(|c| text(c, "/type") == "Terminating")?;
        text(&told, "/message").starts_with("1 projects").then_some(told)
    });
    assert_eq!(text(&told, "/reason"), "DeletingProjects");
    let project = admin.json(&["get", "project", "whole-a"]);
    assert!(!text(&project, "/metadata/deletionTimestamp").is_empty());
    let free = r#"{"metadata":{"finalizers":["resourcemanager.freehold.dev/project"]}}"#;
    // Its controller may have taken its own finalizer by now.
    if !admin.run(&["patch", "project", "whole-a", "--type=merge", "-p", free]).success {
        let none = r#"{"metadata":{"finalizers":null}}"#;
        admin.ok(&["patch", "project", "whole-a", "--type=merge", "-p", none]);
    }
    World::gone(&admin, &["organization", "whole"]);
    World::gone(&admin, &["namespace", "organization-whole"]);
}

fn an_organization_goes_with_its_namespace(world: &World) {
    world.organization("passing", &["passing"]);
    let admin = world.admin();
    admin.ok(&["delete", "project", "passing", "--timeout=120s"]);
    admin.ok(&["delete", "organization", "passing", "--timeout=120s"]);
    World::gone(&admin, &["namespace", "organization-passing"]);
}
