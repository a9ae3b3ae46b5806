//! Points 1 and 2: an organization, projects, their kubeconfigs.

use crate::{PATIENCE, contains_all, items, names, text};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use freehold_tests_integration::{World, facts, until};

facts!(world:
    an_organization_and_two_projects_become_ready,
    a_shared_project_is_ready_within_a_second,
    the_kubeconfig_is_in_the_organizations_namespace_and_printed_by_freehold,
    the_kubeconfig_leads_to_a_plane_with_the_namespaces_of_any_cluster,
    what_each_namespace_has_comes_back_in_those_that_a_plane_begins_with,
    two_projects_hold_the_same_names_without_meeting,
    a_project_without_its_organization_waits_for_it,
);

const FIRST: &str = "
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Organization
metadata: {name: acme}
spec: {type: Standard, displayName: Acme}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: web}
spec:
  ownerRef: {kind: Organization, name: acme}
---
apiVersion: resourcemanager.freehold.dev/v1alpha1
kind: Project
metadata: {name: shop}
spec:
  ownerRef: {kind: Organization, name: acme}
  controlPlane: {mode: Shared}
";

fn an_organization_and_two_projects_become_ready(world: &World) {
    let kubectl = world.admin();
    kubectl.apply(FIRST);
    for what in ["project/web", "project/shop", "organization/acme"] {
        kubectl.ok(&["wait", "--for=condition=Ready", what, "--timeout=120s"]);
    }
    let web = kubectl.json(&["get", "project", "web"]);
    let url = format!("{}/projects/web", world.server().url());
    assert_eq!(text(&web, "/status/controlPlane/url"), url);
    assert_eq!(text(&web, "/status/controlPlane/id"), text(&web, "/metadata/uid"));
    assert_eq!(text(&web, "/spec/controlPlane/mode"), "Shared", "the mode that is left out");
    let table = kubectl.ok(&["get", "projects", "web", "shop"]);
    contains_all(&table, &["NAME", "ORGANIZATION", "MODE", "READY", "AGE", "acme", "Shared", "True"]);
    assert_eq!(kubectl.json(&["get", "org", "acme"])["status"]["namespace"], "organization-acme");
}

/// Objects tell their times in whole seconds, so that one between them stands for less than two. What else the machine does
/// can make one project wait, and not every one.
fn a_shared_project_is_ready_within_a_second(world: &World) {
    let kubectl = world.admin();
    let mut number = 0;
    until("a project was ready within a second", PATIENCE, || {
        number += 1;
        let name = format!("quick-{number}");
        world.organization("quick", &[name.as_str()]);
        let project = kubectl.json(&["get", "project", &name]);
        let conditions = project["status"]["conditions"].as_array().expect("a ready project has conditions");
        let ready = conditions.iter().find(|c| c["type"] == "Ready").expect("it was waited for");
        let begun = second_of_day(text(&project, "/metadata/creationTimestamp"));
        (second_of_day(text(ready, "/lastTransitionTime")) - begun <= 1).then_some(())
    });
}

/// `2026-11-20T20:36:04Z` in seconds since midnight.
fn second_of_day(time: &str) -> i64 {
    let part = |range| time.get(range).and_then(|digits: &str| digits.parse::<i64>().ok());
    let parts = [part(11..13), part(14..16), part(17..19)].map(|part| part.expect("an RFC 3339 time"));
    parts[0] * 3600 + parts[1] * 60 + parts[2]
}

fn the_kubeconfig_is_in_the_organizations_namespace_and_printed_by_freehold(world: &World) {
    world.organization("keys", &["keys-a", "keys-b"]);
    let kubectl = world.admin();
    let secrets = kubectl.json(&["get", "secrets", "--namespace", "organization-keys"]);
    let names = names(&secrets);
    for project in ["keys-a", "keys-b"] {
        let name = format!("{project}-kubeconfig");
        assert!(names.contains(&&*name), "{name} is missing in {names:?}");
        let secret = items(&secrets).find(|s| text(s, "/metadata/name") == name).expect("just seen");
        let kept = BASE64_STANDARD.decode(text(secret, "/data/kubeconfig")).expect("Secrets hold base64");
        let printed = world.server().freehold(&["kubeconfig", project]).expect_ok();
        assert_eq!(printed.trim(), String::from_utf8_lossy(&kept).trim());
        contains_all(&printed, &[&format!("{}/projects/{project}", world.server().url())]);
    }
    let complaint = world.server().freehold(&["kubeconfig", "nobody"]).expect_failure();
    contains_all(&complaint, &["projects.resourcemanager.freehold.dev \"nobody\" not found"]);
    assert_eq!(complaint.trim().lines().count(), 1, "{complaint}");
}

fn the_kubeconfig_leads_to_a_plane_with_the_namespaces_of_any_cluster(world: &World) {
    let kubectl = world.project("plain");
    let printed = kubectl.ok(&["get", "namespaces"]);
    contains_all(&printed, &["NAME", "STATUS", "AGE", "default", "kube-system", "kube-public", "Active"]);
    let kinds = kubectl.ok(&["api-resources", "-o", "name"]);
    let of_core = |kind: &&str| kind.ends_with("freehold.dev") && !kind.ends_with(".apis.freehold.dev");
    assert_eq!(
        kinds.lines().find(of_core),
        None,
        "what belongs to the core plane is served by it alone:\n{kinds}"
    );
    kubectl.ok(&["wait", "--for=create", "serviceaccount/default", "--timeout=120s"]);
    kubectl.ok(&["wait", "--for=create", "configmap/kube-root-ca.crt", "--timeout=120s"]);
}

fn what_each_namespace_has_comes_back_in_those_that_a_plane_begins_with(world: &World) {
    let kubectl = world.project("begun");
    for what in ["serviceaccount/default", "configmap/kube-root-ca.crt"] {
        let uid = || {
            let found =
                kubectl.run(&["get", what, "--namespace=kube-public", "-o", "jsonpath={.metadata.uid}"]);
            found.success.then(|| found.stdout.clone()).filter(|uid| !uid.is_empty())
        };
        let before = until("it is there", PATIENCE, uid);
        kubectl.ok(&["delete", what, "--namespace=kube-public"]);
        until("it is made anew", PATIENCE, || uid().filter(|now| *now != before));
    }
}

fn two_projects_hold_the_same_names_without_meeting(world: &World) {
    let [a, b] = ["same-a", "same-b"].map(|name| world.project(name));
    for (kubectl, value) in [(&a, "of-a"), (&b, "of-b")] {
        kubectl.ok(&["create", "namespace", "team"]);
        kubectl.ok(&[
            "create",
            "configmap",
            "settings",
            "--namespace=team",
            &format!("--from-literal=k={value}"),
        ]);
    }
    a.ok(&["create", "configmap", "only-here", "--namespace=team"]);
    for (kubectl, value) in [(&a, "of-a"), (&b, "of-b")] {
        let map = kubectl.json(&["get", "configmap", "settings", "--namespace=team"]);
        assert_eq!(map["data"]["k"], value);
    }
    contains_all(&b.fails(&["get", "configmap", "only-here", "--namespace=team"]), &["NotFound"]);
    a.ok(&["delete", "configmap", "settings", "--namespace=team"]);
    b.ok(&["get", "configmap", "settings", "--namespace=team"]);
    contains_all(&world.admin().fails(&["get", "namespace", "team"]), &["NotFound"]);
}

fn a_project_without_its_organization_waits_for_it(world: &World) {
    let kubectl = world.admin();
    kubectl.apply(
        "---\n{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Project, metadata: {name: early},
          spec: {ownerRef: {kind: Organization, name: late}}}",
    );
    let reason = "--for=jsonpath={.status.conditions[?(@.type=='Ready')].reason}=OrganizationNotFound";
    kubectl.ok(&["wait", reason, "project/early", "--timeout=120s"]);
    world.organization("late", &[]);
    world.wait_ready("early");
}
