//! Controller managers that divide the planes between them: one is killed, one is stopped, and each project goes on with
//! exactly what it should have.

use crate::{PATIENCE, items, text};
use freehold_tests_integration::{Fleet, Kubectl, until};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

const PARTS: usize = 16;
const PROJECTS: [&str; 6] = ["div-a", "div-b", "div-c", "div-d", "div-e", "div-f"];

/// Holder and last renewal of each part, by the part's name.
fn parts(admin: &Kubectl) -> BTreeMap<String, (String, String)> {
    let leases = admin.json(&["get", "leases", "--namespace=kube-system"]);
    let part = |name: &str| name.strip_prefix("freehold-controller-manager-")?.parse::<usize>().ok();
    let all = items(&leases).filter(|lease| part(text(lease, "/metadata/name")).is_some());
    let one = |field: &str, lease| text(lease, &format!("/spec/{field}")).to_owned();
    all.map(|lease| {
        (text(lease, "/metadata/name").to_owned(), (one("holderIdentity", lease), one("renewTime", lease)))
    })
    .collect()
}

fn holders(parts: &BTreeMap<String, (String, String)>) -> BTreeSet<String> {
    parts.values().map(|(holder, _)| holder.clone()).collect()
}

/// Waits until somebody who lives has each part.
fn all_are_held(admin: &Kubectl) -> BTreeSet<String> {
    let before = parts(admin);
    until("every part is held", PATIENCE, || {
        let now = parts(admin);
        let renewed = |(name, held): (&String, &(String, String))| {
            !held.0.is_empty() && before.get(name).is_none_or(|old| old.1 != held.1)
        };
        (now.len() == PARTS && now.iter().all(renewed)).then(|| holders(&now))
    })
}

/// Waits until each project's deployment has so many pods, and none more.
fn deployments_have(projects: &[Kubectl], count: usize) {
    for project in projects {
        until(&format!("{count} pods"), PATIENCE, || {
            let deployment = project.json(&["get", "deployment", "web"]);
            let pods = project.json(&["get", "pods", "-l", "app=web"]);
            let settled = deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]
                && deployment["status"]["replicas"] == json!(count);
            (settled && items(&pods).count() == count).then_some(())
        });
    }
}

#[test]
fn managers_divide_the_planes_and_none_is_worked_on_twice() {
    let flags = format!("--partitions={PARTS}");
    let mut fleet = Fleet::start_with(1, 3, &[&flags]);
    let admin = fleet.kubectl();
    until("several have parts", PATIENCE, || {
        let parts = parts(&admin);
        (parts.len() == PARTS && holders(&parts).len() >= 2 && !holders(&parts).contains("")).then_some(())
    });
    let organization = "{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Organization, \
                        metadata: {name: divided}, spec: {type: Standard}}";
    let project = |name: &&str| {
        format!(
            "{{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Project, metadata: {{name: {name}}}, \
             spec: {{ownerRef: {{kind: Organization, name: divided}}}}}}"
        )
    };
    let all: Vec<String> = PROJECTS.iter().map(project).collect();
    admin.apply(&format!("---\n{organization}\n---\n{}\n", all.join("\n---\n")));
    let projects: Vec<Kubectl> = PROJECTS.iter().map(|name| ready(&fleet, &admin, name)).collect();
    for project in &projects {
        project.ok(&["create", "deployment", "web", "--image=registry.example/x", "--replicas=2"]);
    }
    deployments_have(&projects, 2);
    // One that is killed gives nothing back: its time has to pass.
    fleet.stop_manager(0, false);
    for project in &projects {
        project.ok(&["scale", "deployment", "web", "--replicas=3"]);
    }
    // What it had sent last may have come after its end.
    until("the others have its parts", PATIENCE, || (all_are_held(&admin).len() <= 2).then_some(()));
    deployments_have(&projects, 3);
    // One that is stopped gives all back, and one that comes gets its share.
    fleet.stop_manager(1, true);
    assert_eq!(all_are_held(&admin).len(), 1);
    for project in &projects {
        project.ok(&["scale", "deployment", "web", "--replicas=1"]);
    }
    deployments_have(&projects, 1);
    fleet.start_manager(0);
    until("it has its share", PATIENCE, || (holders(&parts(&admin)).len() == 2).then_some(()));
    for project in &projects {
        project.ok(&["delete", "deployment", "web", "--cascade=foreground", "--timeout=120s"]);
    }
    admin.ok(&["delete", "project", "div-a", "--timeout=120s"]);
}

/// `kubectl` in a project, once that is ready.
fn ready(fleet: &Fleet, admin: &Kubectl, name: &str) -> Kubectl {
    admin.ok(&["wait", "--for=condition=Ready", &format!("project/{name}"), "--timeout=120s"]);
    let kubeconfig = until("it has a kubeconfig", PATIENCE, || {
        let secret = format!("{name}-kubeconfig");
        let data = ["get", "secret", &secret, "--namespace=organization-divided", "-o=jsonpath={.data.*}"];
        let found = admin.run(&data);
        let first = found.stdout.split_whitespace().next().filter(|_| found.success)?;
        base64::Engine::decode(&base64::prelude::BASE64_STANDARD, first).ok()
    });
    let file = fleet.join(&format!("{name}.kubeconfig"));
    std::fs::write(&file, kubeconfig).expect("a file");
    fleet.kubectl_with(file)
}
