//! Classes and modes of control planes that an organization is not allowed, taken by every way in which a project gets one.

use crate::access::{becomes, member};
use crate::attacks_rights::{RM, ask, owned};
use crate::{PATIENCE, contains_all, text};
use freehold_tests_integration::{Answer, Http, World, facts, until};
use http::Method;
use serde_json::{Value, json};

facts!(world:
    a_class_is_for_the_organizations_that_it_selects,
    a_mode_that_a_class_does_not_allow_is_taken_by_no_way,
    what_is_restored_or_imported_brings_no_class,
);

const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A class for organizations whose namespaces have a label, with these modes.
fn class(name: &str, label: &str, modes: &Value) -> String {
    let object = json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "ControlPlaneClass",
        "metadata": {"name": name},
        "spec": {"allowedOrganizations": {"matchLabels": {"tier": label}}, "allowedModes": modes}});
    format!("---\n{object}\n")
}

fn project(name: &str, organization: &str, plane: &Value) -> Value {
    json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": "Project", "metadata": {"name": name},
        "spec": {"ownerRef": {"kind": "Organization", "name": organization}, "controlPlane": plane}})
}

fn refused(answer: &Answer, why: &str) {
    assert_eq!(answer.code, 403, "{}", answer.body);
    contains_all(text(&answer.body, "/message"), &[why]);
}

/// The ways to make a project, as an owner.
fn makes(http: &Http, organization: &str, project: &Value, then: impl Fn(&Answer)) {
    for way in
        [format!("/organizations/{organization}"), format!("{RM}/organizations/{organization}/control-plane")]
    {
        then(&http.json(Method::POST, &format!("{way}{RM}/projects?dryRun=All"), project));
        let at = format!("{way}{RM}/projects/{}?fieldManager=a&dryRun=All", text(project, "/metadata/name"));
        then(&http.send(Method::PATCH, &at, APPLY, project.to_string()));
    }
}

fn a_class_is_for_the_organizations_that_it_selects(world: &World) {
    let owner = owned(world, "classless", &["classless-a"], "class-cleo");
    world.admin().apply(&class("class-gold", "gold", &json!([])));
    let cleo = ask(world, "class-cleo");
    let gold = project("classless-b", "classless", &json!({"class": "class-gold"}));
    let fork = project(
        "classless-b",
        "classless",
        &json!({"class": "class-gold", "from": {"project": "classless-a"}}),
    );
    let absent = project("classless-b", "classless", &json!({"class": "class-nowhere"}));
    makes(&cleo, "classless", &gold, |answer| refused(answer, "is not for organization \"classless\""));
    makes(&cleo, "classless", &fork, |answer| refused(answer, "is not for organization \"classless\""));
    makes(&cleo, "classless", &absent, |answer| refused(answer, "there is no ControlPlaneClass"));
    // Labels that an owner can write count for nothing.
    owner.ok(&["label", "organization", "classless", "tier=gold"]);
    makes(&cleo, "classless", &gold, |answer| refused(answer, "is not for organization"));
    owner.fails(&["label", "namespace", "organization-classless", "tier=gold"]);
    // Nor is a project's class changed behind its back.
    let patch = json!({"spec": {"controlPlane": {"class": "class-gold"}}}).to_string();
    let changed = cleo.send(Method::PATCH, &format!("{RM}/projects/classless-a"), MERGE, patch);
    assert!(matches!(changed.code, 403 | 422), "{} {}", changed.code, changed.body);
    // What the platform says of the organization counts, and ends with its namespace.
    world.admin().ok(&["label", "namespace", "organization-classless", "tier=gold"]);
    until("the class is the organization's", PATIENCE, || {
        let made =
            cleo.json(Method::POST, &format!("/organizations/classless{RM}/projects?dryRun=All"), &gold);
        (made.code == 201).then_some(())
    });
}

fn a_mode_that_a_class_does_not_allow_is_taken_by_no_way(world: &World) {
    world.admin().apply(&class("class-small", "small", &json!(["Shared"])));
    world.admin().apply("---\n{apiVersion: resourcemanager.freehold.dev/v1alpha1, kind: Organization, metadata: {name: modeless}}\n");
    world.admin().ok(&["label", "namespace", "organization-modeless", "tier=small"]);
    world.admin().apply(&member("modeless", "mode-mo", "owner"));
    let owner = world.person("mode-mo", "/organizations/modeless");
    becomes(&owner, &["get", "projects"], true);
    let mo = ask(world, "mode-mo");
    let shared = project("modeless-a", "modeless", &json!({"class": "class-small"}));
    assert_eq!(mo.json(Method::POST, &format!("/organizations/modeless{RM}/projects"), &shared).code, 201);
    world.wait_ready("modeless-a");
    let why = "does not allow mode Dedicated";
    let new = project("modeless-b", "modeless", &json!({"class": "class-small", "mode": "Dedicated"}));
    makes(&mo, "modeless", &new, |answer| refused(answer, why));
    let moved = project("modeless-a", "modeless", &json!({"class": "class-small", "mode": "Dedicated"}));
    let patch = json!({"spec": {"controlPlane": {"mode": "Dedicated"}}});
    let steps = json!([{"op": "replace", "path": "/spec/controlPlane/mode", "value": "Dedicated"}]);
    for way in ["", "/organizations/modeless"] {
        let at = format!("{way}{RM}/projects/modeless-a");
        let mut whole = mo.get(&at).body;
        whole["spec"]["controlPlane"]["mode"] = "Dedicated".into();
        refused(&mo.json(Method::PUT, &at, &whole), why);
        refused(&mo.send(Method::PATCH, &at, MERGE, patch.to_string()), why);
        refused(&mo.send(Method::PATCH, &at, "application/json-patch+json", steps.to_string()), why);
        refused(
            &mo.send(Method::PATCH, &format!("{at}?fieldManager=a&force=true"), APPLY, moved.to_string()),
            why,
        );
    }
    // What a project has, it keeps when its class gets narrower, and can still be changed otherwise.
    world.admin().apply(&class("class-small", "nobody", &json!(["Dedicated"])));
    owner.ok(&["label", "project", "modeless-a", "changed=yes"]);
}

fn what_is_restored_or_imported_brings_no_class(world: &World) {
    let owner = owned(world, "unclassed", &["unclassed-a"], "class-ute");
    world.admin().apply(&class("class-silver", "silver", &json!([])));
    let inside = world.server().project("unclassed-a");
    inside.ok(&["create", "configmap", "kept"]);
    let namespace = "--namespace=organization-unclassed";
    let make = |kind: &str, name: &str, spec: Value| {
        let object = json!({"apiVersion": "resourcemanager.freehold.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": "organization-unclassed"}, "spec": spec});
        owner.apply(&object.to_string());
    };
    make("ProjectSnapshot", "s", json!({"projectRef": {"name": "unclassed-a"}}));
    owner.ok(&[
        "wait",
        "--for=jsonpath={.status.phase}=Ready",
        "projectsnapshot/s",
        namespace,
        "--timeout=60s",
    ]);
    make("ProjectRestore", "r", json!({"projectRef": {"name": "unclassed-a"}, "snapshotRef": {"name": "s"}}));
    owner.ok(&[
        "wait",
        "--for=jsonpath={.status.phase}=Completed",
        "projectrestore/r",
        namespace,
        "--timeout=60s",
    ]);
    // An import goes into a project that was made, and that is where it is asked.
    let ute = ask(world, "class-ute");
    let archive = ute.get("/projects/unclassed-a/archive");
    assert_eq!(archive.code, 200);
    let target = project("unclassed-b", "unclassed", &json!({"class": "class-silver"}));
    let plane = json!({"class": "class-silver", "from": {"project": "unclassed-a", "snapshot": "s"}});
    for wanted in [target, project("unclassed-b", "unclassed", &plane)] {
        refused(
            &ute.json(Method::POST, &format!("/organizations/unclassed{RM}/projects"), &wanted),
            "is not for organization",
        );
    }
    let admin = world.admin();
    assert_eq!(text(&admin.json(&["get", "project", "unclassed-a"]), "/spec/controlPlane/class"), "default");
}
