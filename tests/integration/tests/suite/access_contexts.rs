//! Contexts keep what they promise for each verb: what is another's is neither watched, nor named, nor reached; and RBAC inside a
//! project counts for the people of the platform.

use crate::access::{becomes, http, member};
use crate::{contains_all, names};
use freehold_tests_integration::{World, facts};
use http::Method;
use serde_json::json;

facts!(world:
    a_watch_in_an_organization_s_view_has_what_is_its_own_alone,
    a_project_of_another_organization_is_reached_by_none_of_its_names,
    rbac_inside_a_project_counts_for_people_of_the_platform,
);

const RM: &str = "/apis/resourcemanager.freehold.dev/v1alpha1";

fn a_watch_in_an_organization_s_view_has_what_is_its_own_alone(world: &World) {
    world.organization("seen", &["seen-a"]);
    world.organization("unseen", &["unseen-a"]);
    world.admin().apply(&(member("seen", "sue", "owner") + &member("unseen", "unseen-uwe", "owner")));
    let sue = world.person("sue", "/organizations/seen");
    becomes(&sue, &["get", "projects"], true);
    // Kinds of the core plane, and those of projects, with the object that marks the end of what is waited for.
    let watched = [
        (format!("{RM}/projects"), "seen-a"),
        (format!("{RM}/organizations"), "\"seen\""),
        (format!("{RM}/organizationmemberships"), "sue"),
        ("/api/v1/configmaps".to_owned(), "kube-root-ca.crt"),
    ];
    let watches = watched.map(|(path, first)| {
        let watch = sue.background(&["get", "--raw", &format!("/organizations/seen{path}?watch=true")]);
        watch.wait_for(first);
        watch
    });
    for (organization, project) in [("unseen", "unseen-a"), ("seen", "seen-a")] {
        let admin = world.admin();
        admin.ok(&["label", "project", project, "marked=project"]);
        admin.ok(&["label", "organization", organization, "marked=organization"]);
        let namespace = format!("--namespace=organization-{organization}");
        admin.ok(&["label", "organizationmemberships", "--all", &namespace, "marked=membership"]);
        let inside = world.server().project(project);
        inside.ok(&["create", "configmap", &format!("of-{organization}")]);
    }
    for (watch, last) in watches.iter().zip(["\"project\"", "\"organization\"", "\"membership\"", "of-seen"])
    {
        watch.wait_for(last);
        let printed = watch.printed();
        assert!(!printed.contains("unseen"), "{printed}");
    }
}

fn a_project_of_another_organization_is_reached_by_none_of_its_names(world: &World) {
    world.organization("thief", &["thief-a"]);
    world.organization("victim", &["victim-a"]);
    world.admin().apply(&member("thief", "tom", "owner"));
    let tom = world.person("tom", "/organizations/thief");
    becomes(&tom, &["get", "projects"], true);
    let uid = world.uid("victim-a");
    let everywhere = http(world, &tom, "");
    let maps = "/api/v1/namespaces/default/configmaps";
    for path in [
        format!("/projects/victim-a{maps}"),
        format!("/projects/{uid}{maps}"),
        format!("/planes/{uid}{maps}"),
        format!("/planes/-{maps}"),
        format!("{RM}/projects/victim-a"),
        format!("{RM}/projects/victim-a/control-plane{maps}"),
        format!("{RM}/projects/{uid}/control-plane{maps}"),
        format!("{RM}/organizations/victim/control-plane{RM}/projects"),
        format!("{RM}/organizations/thief/control-plane{RM}/projects/victim-a"),
        format!("{RM}/organizations/thief/control-plane{RM}/projects/victim-a/control-plane{maps}"),
        format!("/organizations/thief/projects/victim-a{maps}"),
        format!("/organizations/thief/planes/{uid}{maps}"),
        format!("/projects/thief-a/projects/victim-a{maps}"),
        format!("/projects/thief-a{RM}/projects/victim-a/control-plane{maps}"),
        format!("/users/tom{RM}/projects/victim-a"),
    ] {
        let answer = everywhere.get(&path);
        assert!(matches!(answer.code, 403 | 404), "{path} {} {}", answer.code, answer.body);
    }
    // Nor does a project become another's.
    let inside = http(world, &tom, "/organizations/thief");
    let moved = json!({"spec": {"ownerRef": {"kind": "Organization", "name": "victim"}}}).to_string();
    let patch =
        inside.send(Method::PATCH, &format!("{RM}/projects/thief-a"), "application/merge-patch+json", moved);
    assert!(matches!(patch.code, 403 | 422), "{} {}", patch.code, patch.body);
    let taken = json!({
        "apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Project", "metadata": {"name": "victim-a"},
        "spec": {"ownerRef": {"kind": "Organization", "name": "thief"}},
    });
    let made = inside.json(Method::POST, &format!("{RM}/projects"), &taken);
    assert_eq!(made.code, 409, "{}", made.body);
    assert_eq!(names(&world.at("/organizations/victim").json(&["get", "projects"])), ["victim-a"]);
}

fn rbac_inside_a_project_counts_for_people_of_the_platform(world: &World) {
    world.organization("rbac-in", &["rbac-in-a", "rbac-in-b"]);
    world.admin().apply(&(member("rbac-in", "ron", "owner") + &member("rbac-in", "edie", "editor")));
    let ron = world.person("ron", "/projects/rbac-in-a");
    becomes(&ron, &["get", "configmaps"], true);
    // A guest: a member without a role.
    world.admin().apply(&member("rbac-in", "gina", ""));
    let gina = world.person("gina", "/projects/rbac-in-a");
    becomes(&gina, &["get", "configmaps"], false);
    ron.ok(&["create", "role", "reads", "--verb=get,list", "--resource=configmaps"]);
    ron.ok(&["create", "rolebinding", "gina", "--role=reads", "--user=gina"]);
    becomes(&gina, &["get", "configmaps"], true);
    becomes(&gina, &["get", "configmaps", "--namespace=kube-system"], false);
    becomes(&gina, &["get", "secrets"], false);
    becomes(&world.person("gina", "/projects/rbac-in-b"), &["get", "configmaps"], false);
    becomes(&world.person("gina", "/organizations/rbac-in"), &["get", "projects"], false);
    // Who makes roles there gives no more than they hold, by RBAC or by the platform.
    let edie = world.person("edie", "/projects/rbac-in-a");
    becomes(&edie, &["create", "role", "fine", "--verb=get", "--resource=configmaps"], true);
    let mine = ["create", "clusterrolebinding", "mine", "--clusterrole=cluster-admin", "--user=edie"];
    contains_all(&edie.fails(&mine), &["forbidden", "not currently held"]);
    ron.ok(&["delete", "rolebinding", "gina"]);
    becomes(&gina, &["get", "configmaps"], false);
}
