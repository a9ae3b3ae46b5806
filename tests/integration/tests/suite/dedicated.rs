//! Point 6: a project with an apiserver and controllers of its own.

use crate::{PATIENCE, contains_all, text};
use freehold_tests_integration::{World, end_with_kill, facts, processes_with, until};
use serde_json::json;

facts!(world:
    a_dedicated_pair_lives_comes_back_and_goes,
    a_class_brings_its_objects_to_a_dedicated_project,
    a_pair_sleeps_when_nobody_uses_it_and_the_first_request_wakes_it,
);

const DEDICATED: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: heavy}
spec: {type: Standard}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: heavy}
spec:
  ownerRef: {kind: Organization, name: heavy}
  controlPlane: {mode: Dedicated}
";

/// One life, told in one piece because a pair takes its time.
fn a_dedicated_pair_lives_comes_back_and_goes(world: &World) {
    let admin = world.admin();
    admin.apply(DEDICATED);
    world.wait_ready("heavy");
    let uid = world.uid("heavy");
    let namespace = format!("project-{uid}");
    the_infra_plane_holds_the_pair(world, &uid, &namespace);
    let kubectl = world.server().project("heavy");
    kubectl.ok(&["create", "namespace", "team"]);
    kubectl.ok(&["create", "configmap", "kept", "--namespace=team", "--from-literal=k=v"]);
    contains_all(&kubectl.ok(&["get", "namespaces"]), &["default", "team"]);
    kubectl.ok(&["wait", "--for=create", "serviceaccount/default", "--namespace=team", "--timeout=120s"]);
    kubectl.ok(&["create", "deployment", "own", "--image=registry.example/own", "--replicas=1"]);
    kubectl.ok(&["wait", "--for=create", "pod", "-l", "app=own", "--timeout=120s"]);
    assert_eq!(text(&admin.json(&["get", "project", "heavy"]), "/status/controlPlane/mode"), "Dedicated");
    let url = format!("{}/projects/heavy", world.server().url());
    assert_eq!(text(&admin.json(&["get", "project", "heavy"]), "/status/controlPlane/url"), url);
    a_killed_process_comes_back(world, &uid);
    until("the plane answers again, with what was in it", PATIENCE, || {
        kubectl.run(&["get", "configmap", "kept", "--namespace=team"]).success.then_some(())
    });
    kubectl.ok(&["create", "configmap", "after", "--namespace=team"]);
    admin.ok(&["delete", "project", "heavy", "--timeout=120s"]);
    let infra = world.at("/planes/infra");
    World::gone(&infra, &["projectcontrolplane", &uid]);
    World::gone(&infra, &["namespace", &namespace]);
    until("the pair's processes end", PATIENCE, || processes_with(&[&uid]).is_empty().then_some(()));
    World::gone(&admin, &["secret", "heavy-kubeconfig", "--namespace=organization-heavy"]);
    assert!(!kubectl.run(&["get", "namespaces"]).success);
}

fn the_infra_plane_holds_the_pair(world: &World, uid: &str, namespace: &str) {
    let infra = world.at("/planes/infra");
    infra.ok(&["wait", "--for=condition=Ready", &format!("projectcontrolplane/{uid}"), "--timeout=120s"]);
    let inside = infra.with(&["--namespace", namespace]);
    for deployment in ["apiserver", "controller-manager"] {
        let what = format!("deployment/{deployment}");
        inside.ok(&["wait", "--for=condition=Available", &what, "--timeout=120s"]);
    }
    inside.ok(&["get", "service/apiserver", "secret/apiserver-serving", "secret/admin-kubeconfig"]);
    contains_all(&inside.ok(&["get", "pods"]), &["apiserver-", "controller-manager-", "Running", "1/1"]);
    inside.ok(&["logs", "deployment/apiserver", "--tail=5"]);
    for program in ["apiserver", "controller-manager"] {
        the_process(&[program, uid]);
    }
}

/// The one process that has these words on its command line, once there is one.
fn the_process(words: &[&str]) -> u32 {
    until(&format!("one process is {words:?}"), PATIENCE, || match processes_with(words)[..] {
        [one] => Some(one),
        _ => None,
    })
}

fn a_killed_process_comes_back(_world: &World, uid: &str) {
    let words = ["apiserver", uid];
    let before = the_process(&words);
    end_with_kill(before);
    until("the apiserver is back", PATIENCE, || {
        let now = processes_with(&words);
        (now.len() == 1 && now != [before]).then_some(())
    });
}

fn a_class_brings_its_objects_to_a_dedicated_project(world: &World) {
    let class = |data: &str, deletion: &str| {
        json!({
            "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "ControlPlaneClass",
            "metadata": {"name": "own-house"},
            "spec": {"objectDeletion": deletion, "objects": [
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rules", "namespace": "default"},
                 "data": {"text": data}},
            ]},
        })
        .to_string()
    };
    let admin = world.admin();
    admin.apply(&class("one", "Refused"));
    let project =
        DEDICATED.replace("name: heavy", "name: house").replace("Dedicated}", "Dedicated, class: own-house}");
    admin.apply(&project);
    world.wait_ready("house");
    let kubectl = world.server().project("house");
    let rules = || {
        let output = kubectl.run(&["get", "configmap", "rules", "-o", "jsonpath={.data.text}"]);
        output.success.then_some(output.stdout)
    };
    until("the class' objects are there", PATIENCE, || (rules()? == "one").then_some(()));
    contains_all(&kubectl.fails(&["delete", "configmap", "rules"]), &["Forbidden", "doesn't allow"]);
    admin.apply(&class("two", "Allowed"));
    until("a change reaches the project", PATIENCE, || (rules()? == "two").then_some(()));
    kubectl.ok(&["delete", "configmap", "rules"]);
    assert_eq!(rules(), None);
    admin.ok(&["delete", "project", "house", "--timeout=120s"]);
    admin.ok(&["delete", "controlplaneclass", "own-house", "--timeout=120s"]);
}

fn a_pair_sleeps_when_nobody_uses_it_and_the_first_request_wakes_it(world: &World) {
    let admin = world.admin();
    let class = json!({
        "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "ControlPlaneClass",
        "metadata": {"name": "sleepy"}, "spec": {"dedicated": {"sleepAfterSeconds": 10}},
    });
    admin.apply(&class.to_string());
    let project =
        DEDICATED.replace("name: heavy", "name: dozer").replace("Dedicated}", "Dedicated, class: sleepy}");
    admin.apply(&project);
    world.wait_ready("dozer");
    let uid = world.uid("dozer");
    let kubectl = world.server().project("dozer");
    kubectl.ok(&["create", "configmap", "kept", "--from-literal=k=v"]);
    sleeps(world, "dozer", &uid);
    world.at("/organizations/dozer").run(&["get", "configmaps", "--all-namespaces"]);
    assert!(processes_with(&[&uid]).is_empty(), "an organization's view wakes nothing");
    // Held, and not refused: this kubectl asks once.
    contains_all(&kubectl.ok(&["get", "configmap", "kept", "-o", "jsonpath={.data.k}"]), &["v"]);
    let asleep = |asleep: bool| {
        let patch = json!({"spec": {"controlPlane": {"asleep": asleep}}}).to_string();
        admin.ok(&["patch", "project", "dozer", "--type=merge", "-p", &patch]);
    };
    asleep(true);
    until("it rests by hand", PATIENCE, || processes_with(&[&uid]).is_empty().then_some(()));
    let project = || admin.json(&["get", "project", "dozer"]);
    until("the project says so", PATIENCE, || {
        (text(&project(), "/status/conditions/0/reason") == "Asleep").then_some(())
    });
    contains_all(&kubectl.fails(&["get", "configmaps"]), &["asleep"]);
    assert!(processes_with(&[&uid]).is_empty(), "no request wakes it");
    asleep(false);
    until("it runs again", PATIENCE, || kubectl.run(&["get", "configmap", "kept"]).success.then_some(()));
    admin.ok(&["delete", "project", "dozer", "--timeout=120s"]);
    admin.ok(&["delete", "controlplaneclass", "sleepy", "--timeout=120s"]);
}

/// Waits until a project's pair has gone to sleep by itself.
fn sleeps(world: &World, project: &str, uid: &str) {
    until("its programs end", PATIENCE, || processes_with(&[uid]).is_empty().then_some(()));
    until("its project says so, and is ready for a request", PATIENCE, || {
        let project = world.admin().json(&["get", "project", project]);
        let ready = &project["status"]["conditions"][0];
        (ready["reason"] == "Asleep" && ready["status"] == "True").then_some(())
    });
}
